-- Refuses requests that cost TensorFlow Serving far more memory than their bytes: it allocates what
-- the shape of a tensor declares. Reads protobuf's wire format, without building messages. Only the
-- fields below pass, with their wire type, and not twice where protobuf would merge them.
local MAX_MEMORY = 67108864   -- bytes that a request takes in the server, estimated from above
local MAX_ELEMENTS = 2097152  -- numbers and strings that the shapes of a request declare
-- bytes in memory
local FIELD = 72              -- of a field, in its message
local TENSOR = 512            -- of an entry of the inputs
local INTEGER = 16            -- of a byte of integers: 8, in a list that grew to twice its size
local EXAMPLE = 24            -- of a byte of an example, parsed: a number and its index
local VALUE = 128             -- of a value of JSON
local STRING, COMPLEX128, RESOURCE, VARIANT = 7, 18, 20, 21
local ELEMENT = {}            -- of an element, by type; other types do not pass
for type = 1, 33 do ELEMENT[type] = 8 end
ELEMENT[STRING], ELEMENT[COMPLEX128], ELEMENT[RESOURCE], ELEMENT[VARIANT] = 48, 16, nil, nil

local VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
local SIZE = {[FIXED64] = 8, [FIXED32] = 4}
local SERVICE = "/tensorflow.serving.PredictionService/"
local SEPARATOR = {[string.byte("[")] = true, [string.byte("{")] = true, [string.byte(",")] = true}

local byte, floor, max = string.byte, math.floor, math.max
local memory, elements  -- of this request

local function refuse(why, ...)
  error({why = string.format(why, ...)})
end

local function spend(bytes)
  memory = memory + bytes
  if not (memory <= MAX_MEMORY) then
    refuse("The request takes too much memory. Accepted: at most %d bytes", MAX_MEMORY)
  end
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

-- Calls found(number, first, last, value) for each field between two positions, after its own
-- `read`; value is that of a varint, the others have bytes.
local function each(text, first, last, message, found)
  local seen = {}
  while first <= last do
    spend(FIELD)
    local tag, at = varint(text, first)
    local number, wire = floor(tag / 8), tag % 8
    local field = message[number]
    if not field or wire ~= field.wire and wire ~= field.unpacked then
      refuse("%s must not have field %.0f of wire type %d", message.name, number, wire)
    end
    if field.once and seen[number] then
      refuse("%s must have field %d once", message.name, number)
    end
    seen[number] = true
    local value, size = nil, SIZE[wire]
    if wire == VARINT then
      value, first = varint(text, at)
    else
      if wire == BYTES then size, at = varint(text, at) end
      first = at + size
    end
    if not (first <= last + 1) then refuse("The message must be whole. Received: a part") end
    if wire == BYTES and field.read then field.read(text, at, first - 1) end
    if found then found(number, at, first - 1, value) end
  end
end

local function one(wire, read) return {wire = wire, read = read, once = true} end
local function many(wire, read) return {wire = wire, read = read} end
local function numbers(wire, read) return {wire = BYTES, unpacked = wire, read = read} end
local function message(fields)
  return function(text, first, last) each(text, first, last, fields) end
end
local function integers(_, first, last) spend((last - first + 1) * INTEGER) end

local DIM = {name = "Dim", [1] = one(VARINT), [2] = one(BYTES)}
local SHAPE = {name = "TensorShapeProto", [2] = many(BYTES)}
local TENSOR_FIELDS = {
  name = "TensorProto",
  [1] = one(VARINT),
  [2] = one(BYTES),
  [3] = one(VARINT),
  [4] = one(BYTES),
  [5] = numbers(FIXED32),
  [6] = numbers(FIXED64),
  [7] = numbers(VARINT, integers),
  [8] = many(BYTES),
  [9] = numbers(FIXED32),
  [10] = numbers(VARINT, integers),
  [11] = numbers(VARINT, integers),
  [12] = numbers(FIXED64),
  [13] = numbers(VARINT, integers),
  [16] = numbers(VARINT, integers),
  [17] = numbers(VARINT, integers),
  [18] = one(BYTES),
}

local function size_of(text, first, last)
  local size = 1
  each(text, first, last, SHAPE, function(_, dim_first, dim_last)
    local length = 0
    each(text, dim_first, dim_last, DIM, function(number, _, _, value)
      if number == 1 then length = value end
    end)
    size = size * length
    if not (size <= MAX_ELEMENTS) then  -- before a dimension of 0, which hides the others
      refuse("Too many elements: %.0f. Accepted: at most %d", size, MAX_ELEMENTS)
    end
  end)
  return size
end

local function tensor(text, first, last)
  local type, size, strings, string_size = 0, 1, 0, 0
  each(text, first, last, TENSOR_FIELDS, function(number, from, to, value)
    if number == 1 then type = value
    elseif number == 2 then size = size_of(text, from, to)
    elseif number == 8 then strings, string_size = strings + 1, to - from + 1 end
  end)
  if not ELEMENT[type] then refuse("Tensors of type %.0f are not accepted", type) end
  elements = elements + size
  if elements > MAX_ELEMENTS then
    refuse("Too many elements: %.0f. Accepted: at most %d", elements, MAX_ELEMENTS)
  end
  -- the last string stands for those that are declared and not given
  spend(size * ELEMENT[type] + max(0, size - strings) * string_size)
end

local INPUT = {name = "InputsEntry", [1] = one(BYTES), [2] = one(BYTES, tensor)}
local function input(text, first, last)
  spend(TENSOR)  -- also if the tensor is missing
  each(text, first, last, INPUT)
end

local FEATURE = {
  name = "Feature",
  [1] = one(BYTES, message({name = "BytesList", [1] = many(BYTES)})),
  [2] = one(BYTES, message({name = "FloatList", [1] = numbers(FIXED32)})),
  [3] = one(BYTES, message({name = "Int64List", [1] = numbers(VARINT, integers)})),
}
local ENTRY = {name = "FeatureEntry", [1] = one(BYTES), [2] = one(BYTES, message(FEATURE))}
local FEATURES = {name = "Features", [1] = many(BYTES, message(ENTRY))}
local example = message({name = "Example", [1] = one(BYTES, message(FEATURES))})
local EXAMPLES = {name = "ExampleList", [1] = many(BYTES, example), [2] = one(BYTES, example)}

-- The server copies the context into each example, and may pad examples to the longest.
local function examples(text, first, last)
  local count, longest, context = 0, 0, 0
  each(text, first, last, EXAMPLES, function(number, from, to)
    local size = to - from + 1
    if number == 2 then context = size else count, longest = count + 1, max(longest, size) end
  end)
  spend(count * (context + longest) * EXAMPLE)
end

local VERSION = message({name = "Int64Value", [1] = one(VARINT)})
local SPEC = message({
  name = "ModelSpec",
  [1] = one(BYTES),
  [2] = one(BYTES, VERSION),
  [3] = one(BYTES),
  [4] = one(BYTES),
})
local LISTS = message({name = "Input", [1] = one(BYTES, examples), [2] = one(BYTES, examples)})
local TASK = message({name = "InferenceTask", [1] = one(BYTES, SPEC), [2] = one(BYTES)})
local LISTS_REQUEST = message({name = "request", [1] = one(BYTES, SPEC), [2] = one(BYTES, LISTS)})
local REQUESTS = {
  Predict = message({
    name = "PredictRequest",
    [1] = one(BYTES, SPEC),
    [2] = many(BYTES, input),
    [3] = many(BYTES),
  }),
  Classify = LISTS_REQUEST,
  Regress = LISTS_REQUEST,
  MultiInference = message({
    name = "MultiInferenceRequest",
    [1] = many(BYTES, TASK),
    [2] = one(BYTES, LISTS),
  }),
  GetModelMetadata = message({
    name = "GetModelMetadataRequest",
    [1] = one(BYTES, SPEC),
    [2] = many(BYTES),
  }),
}

local function grpc(text, method)
  local check = REQUESTS[method]
  if not check then refuse("Method must be one of PredictionService. Received: another") end
  if byte(text, 1) == 1 then refuse("A message must not be compressed. Received: compressed") end
  local head, b, c, d, e = byte(text, 1, 5)
  if head ~= 0 or ((b * 256 + c) * 256 + d) * 256 + e ~= #text - 5 then
    refuse("The body must be one message, after its length. Received: other bytes")
  end
  check(text, 6, #text)
end

local function rest(text, encoding)
  -- Envoy took one gzip off; the server would inflate another
  if encoding then refuse("Content-Encoding must be absent or gzip. Received: another") end
  local values = 0
  for at = 1, #text do
    if SEPARATOR[byte(text, at)] then values = values + 1 end
  end
  spend(values * VALUE)
end

function envoy_on_request(handle)
  local body = handle:body()
  local is_grpc
  local good, problem = pcall(function()
    local headers = handle:headers()
    local path = headers:get(":path")
    local text = body and body:getBytes(0, body:length()) or ""
    is_grpc = path:sub(1, #SERVICE) == SERVICE
    memory, elements = 0, 0
    spend(2 * #text)  -- as received and as parsed
    if is_grpc then grpc(text, path:sub(#SERVICE + 1))
    else rest(text, headers:get("content-encoding")) end
  end)
  if good then return end
  local why = type(problem) == "table" and problem.why or "The bounds could not be checked"
  handle:logInfo(why)
  if is_grpc then
    handle:respond({[":status"] = "400", ["grpc-status"] = "3", ["grpc-message"] = why}, why)
  else
    local content = {[":status"] = "400", ["content-type"] = "application/json"}
    handle:respond(content, '{"error": "' .. why .. '"}')
  end
end
