-- Refuses gRPC requests that cost TensorFlow Serving far more memory than their bytes: it allocates
-- what the shape of a tensor declares. Reads protobuf's wire format, without building messages.
local MAX_ELEMENTS = 2097152   -- numbers and strings that the shapes of a request declare
local MAX_REPEATED = 67108864  -- bytes of strings that stand once and are declared many times
local MAX_VARINTS = 4194304    -- bytes of integers, each of which takes up to 8 bytes in memory
local MAX_FIELDS = 524288      -- fields of a message, each of which may take 100 bytes in memory
local SERVICE = "/tensorflow.serving.PredictionService/"
local STRING = 7
local VARINTS = {[7] = true, [10] = true, [11] = true, [16] = true, [17] = true}

local byte, floor = string.byte, math.floor
local fields_read, varints_read

local function refuse(why)
  error({why = why})
end

local function varint(text, at)
  local value, scale = 0, 1
  for _ = 1, 10 do
    local part = byte(text, at)
    if not part then break end
    at = at + 1
    value = value + part % 128 * scale
    if part < 128 then return value, at end
    scale = scale * 128
  end
  refuse("The message must be protobuf. Received: other bytes")
end

-- Calls found(number, first, last, value) for each field between two positions; value is that of a
-- varint, the others have bytes.
local function each(text, first, last, found)
  while first <= last do
    fields_read = fields_read + 1
    if fields_read > MAX_FIELDS then
      refuse("Too many fields. Accepted: at most " .. MAX_FIELDS)
    end
    local tag, at = varint(text, first)
    local kind, value, size = tag % 8, nil, nil
    if kind == 0 then
      value, first = varint(text, at)
    else
      if kind == 1 then size = 8 elseif kind == 5 then size = 4
      elseif kind == 2 then size, at = varint(text, at)
      else refuse("The message must be protobuf. Received: groups") end
      first = at + size
    end
    if first > last + 1 then refuse("The message must be whole. Received: a part") end
    found(floor(tag / 8), at, first - 1, value)
  end
end

local function count_varints(size)
  varints_read = varints_read + size
  if varints_read > MAX_VARINTS then
    refuse("Too many bytes of integers. Accepted: at most " .. MAX_VARINTS)
  end
end

local function elements_of(text, first, last)
  local elements, strings, string_size, type = 1, 0, 0, 0
  each(text, first, last, function(number, from, to, value)
    if number == 1 then type = value
    elseif number == 2 then
      each(text, from, to, function(of_shape, dim_from, dim_to)
        if of_shape ~= 2 then return end
        local size = 0
        each(text, dim_from, dim_to, function(of_dim, _, _, given)
          if of_dim == 1 then size = given or 0 end
        end)
        elements = elements * size
      end)
    elseif number == 8 then strings, string_size = strings + 1, to - from + 1
    elseif VARINTS[number] then count_varints(to - from + 1) end
  end)
  if type == STRING and (elements - strings) * string_size > MAX_REPEATED then
    refuse("Too many bytes of repeated strings. Accepted: at most " .. MAX_REPEATED)
  end
  return elements
end

local function predict(text, first, last)
  local elements = 0
  each(text, first, last, function(of_request, from, to)
    if of_request ~= 2 then return end
    each(text, from, to, function(of_entry, tensor_from, tensor_to)
      if of_entry ~= 2 then return end
      elements = elements + elements_of(text, tensor_from, tensor_to)
    end)
  end)
  if elements > MAX_ELEMENTS then
    refuse(string.format("Too many elements: %.0f. Accepted: at most %d", elements, MAX_ELEMENTS))
  end
end

-- Fields that lead from a request to classify, regress or both to the values of its examples:
-- input, list, example or context, features, entry, feature, list of bytes.
local PATH = {{2}, {1, 2}, {1, 2}, {1}, {1}, {2}, {1}}
local INTEGERS_DEPTH, INTEGERS = 7, 3

local function examples(text, first, last, depth)
  depth = depth or 1
  local inner = PATH[depth] or {}
  each(text, first, last, function(number, from, to)
    if number == inner[1] or number == inner[2] then examples(text, from, to, depth + 1)
    elseif depth == INTEGERS_DEPTH and number == INTEGERS then count_varints(to - from + 1) end
  end)
end

local CHECKS = {
  [SERVICE .. "Predict"] = predict,
  [SERVICE .. "Classify"] = examples,
  [SERVICE .. "Regress"] = examples,
  [SERVICE .. "MultiInference"] = examples,
}

function envoy_on_request(handle)
  local check = CHECKS[handle:headers():get(":path")]
  if not check then return end
  local body = handle:body()
  local text = body and body:getBytes(0, body:length()) or ""
  fields_read, varints_read = 0, 0
  local good, problem = pcall(function()
    if byte(text, 1) == 1 then refuse("A message must not be compressed. Received: compressed") end
    check(text, 6, #text)  -- after a flag and the length
  end)
  if good then return end
  local why = type(problem) == "table" and problem.why or "The bounds could not be checked"
  handle:logInfo(why)
  handle:respond({[":status"] = "400", ["grpc-status"] = "3", ["grpc-message"] = why}, why)
end
