"""Reader of the JSON of a `:predict` request, as TensorFlow Serving reads it.

Its parser accepts `NaN`, `Infinity` and `Inf`, stops after the first value, keeps the first of
equal keys, and does not change bytes that are not UTF-8. `simdjson` reads what is the same without
these extensions, and nested lists of numbers directly into an array, without Python objects;
Python's own parser reads the rest.
"""

# Not `orjson`, which would need 200 lines less: it makes an object of each number, whose type must
# be looked at. 100 x 136 numbers take 0.89 ms (here 0.22), 136 named features 1.39 ms (here 0.84).

import base64
import binascii
import contextlib
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import simdjson

from tfrank_sel.errors import nearest, question
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.protos import DataType
from tfrank_sel.serving.status import Code, ServingError, invalid

_TYPES = {dtype: kind for dtype, (_, kind) in tensor_protos.FIELDS.items()}
_MAX_RANK = 32  # maximum number of axes in NumPy 1
_JSON_TYPES = {type(None): "Null", str: "String", int: "Number", float: "Number"}
_JSON_TYPES |= {list: "Array", dict: "Object"}
_SPACE = re.compile(r"[ \t\n\r]*")
_INF = re.compile(r'"(?:[^"\\]|\\.)*"|Inf(?!inity)', re.DOTALL)
_REASONS = {
    "Expecting value": "Invalid value.",
    "Expecting ',' delimiter": "Missing a comma or a closing bracket.",
    "Expecting ':' delimiter": "Missing a colon after a name of object member.",
    "Expecting property name enclosed in double quotes": "Missing a name for object member.",
}
# The fields of a request beside its inputs, by name: the type of each, and that of a JSON schema.
FIELDS: Mapping[str, tuple[type, str]] = {"signature_name": (str, "string")}
_MANY = 256  # keys of an object; simdjson looks up each from the start
# simdjson accepts a byte order mark, which JSON does not.
_BOM = b"\xef\xbb\xbf"


class Document:
    """A request.

    Args:
        body: Its text.

    Raises:
        ServingError: INVALID_ARGUMENT if it is not a JSON object.

    Example:
        >>> document = Document(b'{"instances": [[1, 2.5]]}')
        >>> document.to_inputs({"x": DataType.DT_FLOAT})
        {'x': array([[1. , 2.5]], dtype=float32)}
    """

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._parsed = _parse(body)
        if not isinstance(self._parsed, simdjson.Object) or len(self._parsed) > _MANY:
            self._parsed = None
        self._members = read_object(body) if self._parsed is None else _members(self._parsed)

    @property
    def is_rows(self) -> bool:
        """Whether the answer is in row format."""
        return "instances" in self._members

    def fields(self) -> dict[str, Any]:
        """Returns the values of those of `FIELDS` that are given.

        Raises:
            ServingError: INVALID_ARGUMENT if one is of another type.
        """
        values = {name: self._members[name] for name in FIELDS if name in self._members}
        for name, value in values.items():
            kind, words = FIELDS[name]
            if not isinstance(value, kind):
                raise invalid(f"'{name}' key must be a {words} value.")
        return values

    def to_inputs(self, types: Mapping[str, int]) -> Arrays:
        """Returns the inputs by name.

        Args:
            types: Type (DT_...) of every input of the signature.

        Raises:
            ServingError: As the function `to_inputs`.
        """
        if self._parsed is not None:
            # Whatever is no block is read again, so that one place decides and words the error.
            with contextlib.suppress(ServingError, _IrregularError):
                if DataType.DT_STRING not in types.values():
                    return self._of_blocks(types)
            self._members = read_object(self._body)
        return to_inputs(self._members, types)

    def _of_blocks(self, types: Mapping[str, int]) -> Arrays:
        """The inputs, if each is a regular block of numbers."""
        blocks, members = _Blocks(), dict(self._members)
        instances = members.get("instances")
        if isinstance(instances, simdjson.Array) and len(instances):
            if isinstance(instances[0], simdjson.Object):
                blocks.lists += 1
                members["instances"] = [
                    _members(row) if isinstance(row, simdjson.Object) else row for row in instances
                ]
            elif "inputs" not in members:
                members = {"inputs": instances}
        if isinstance(members.get("inputs"), simdjson.Object):
            members["inputs"] = _members(members["inputs"])
        inputs = to_inputs(members, types, blocks.tensor, blocks.stack)
        # As many brackets as lists that were read, so there are no other lists among the numbers.
        if np.count_nonzero(np.frombuffer(self._body, np.uint8) == ord("[")) != blocks.lists:
            raise _IrregularError
        return inputs


class _IrregularError(Exception):
    """A tensor is not a regular block of numbers."""


class _Blocks:
    """Makes tensors of numbers, and counts their lists."""

    def __init__(self) -> None:
        self.lists = 0

    def stack(self, values: list[Any], dtype: int) -> np.ndarray:
        """Returns the tensor of instances."""
        try:
            return np.stack([self.tensor(value, dtype) for value in values])
        except ValueError as error:
            # The shapes of the instances differ.
            raise _IrregularError from error

    def tensor(self, value: Any, dtype: int) -> np.ndarray:
        """Returns one tensor of numbers."""
        if isinstance(value, simdjson.Object):
            raise _IrregularError
        if isinstance(value, simdjson.Array) and _is_float(dtype):
            with np.errstate(over="ignore"):  # infinite in float32, as in TensorFlow Serving
                return self._block(value).astype(_TYPES[dtype])
        tensor = to_array(value.as_list() if isinstance(value, simdjson.Array) else value, dtype)
        self.lists += sum(math.prod(tensor.shape[:axis]) for axis in range(tensor.ndim))
        return tensor

    def _block(self, value: Any) -> np.ndarray:
        shape: list[int] = []
        level: list[Any] = [value]
        while True:
            sizes = set(map(len, level))
            if len(sizes) != 1 or 0 in sizes:
                raise _IrregularError
            shape += sizes
            self.lists += len(level)
            if not isinstance(level[0][0], simdjson.Array):
                break
            level = [item for array in level for item in array]
            if not all(isinstance(item, simdjson.Array) for item in level):
                raise _IrregularError
        try:
            return np.frombuffer(value.as_buffer(of_type="d"), np.float64).reshape(shape)
        except (TypeError, ValueError) as error:  # not all are numbers, or some lists are empty
            raise _IrregularError from error


def _parse(body: bytes) -> Any:
    """Parses JSON without extensions; None for any other text."""
    if body.startswith(_BOM):
        return None
    try:
        return simdjson.Parser().parse(body)
    except (ValueError, RuntimeError):
        return None


def _members(parsed: Any) -> dict[str, Any]:
    """Returns the members of an object, the first of equal keys."""
    if len(parsed) > _MANY:
        raise _IrregularError
    return {key: parsed[key] for key in parsed.keys()}  # noqa: SIM118


def read(body: bytes) -> Any:
    """Reads the first JSON value of a request's body.

    Args:
        body: The text. Bytes of a string that are not UTF-8 become surrogate escapes.

    Returns:
        The value, of Python's own types; an integer beyond 64 bits becomes a float.

    Raises:
        ServingError: INVALID_ARGUMENT with the position of the error.

    Example:
        >>> read(b'{"a": [1, 2.0, NaN], "a": 3} and more')
        {'a': [1, 2.0, nan]}
    """
    value = _parse(body)
    if isinstance(value, simdjson.Object):
        value = value.as_dict()
    elif isinstance(value, simdjson.Array):
        value = value.as_list()
    elif value is None:
        return _read_slowly(body)
    # The last of equal keys is kept. If there are as many colons as keys, no key is repeated.
    return value if _count_keys(value) == body.count(b":") else _read_slowly(body)


def read_object(body: bytes) -> dict[str, Any]:
    """Reads a request's body, which must be an object.

    Raises:
        ServingError: INVALID_ARGUMENT if it is not.
    """
    document = read(body)
    if not isinstance(document, dict):
        raise invalid(f"JSON Value: {format_value(document)} Is not object")
    return document


def _count_keys(value: Any) -> int:
    """Counts the keys of all objects, or fewer when lists mix objects and numbers."""
    count, rest = 0, [value]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            count += len(value)
            rest.extend(value.values())
        elif isinstance(value, list) and value and isinstance(value[0], (dict, list)):
            rest.extend(value)
    return count


def _read_slowly(body: bytes) -> Any:
    text = body.decode("utf-8", "surrogateescape")
    if "Inf" in text:
        text = _INF.sub(lambda match: "Infinity" if match[0] == "Inf" else match[0], text)
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    if start == len(text):
        raise invalid("JSON Parse error: The document is empty. at offset: 0")
    try:
        return _DECODER.raw_decode(text, start)[0]
    except json.JSONDecodeError as error:
        reason = _REASONS.get(error.msg, "Missing a closing quotation mark or invalid string.")
        raise invalid(f"JSON Parse error: {reason} at offset: {error.pos}") from error
    except RecursionError as error:
        raise invalid("JSON Parse error: Lists or objects are nested too deeply.") from error


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise invalid(f"JSON Parse error: Number too big to be stored in double: {text[:32]}")
    return value


def _integer(text: str) -> int | float:
    # `int` takes quadratic time, and refuses thousands of digits.
    if len(text) > 20 or not -(2**63) <= (value := int(text)) < 2**64:
        return _float(text)
    return value


def _constant(text: str) -> float:
    return float(text)  # a function of Python lets other threads run in between


def _first_of_equal(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    return members if len(members) == len(pairs) else dict(reversed(pairs))


_DECODER = json.JSONDecoder(
    object_pairs_hook=_first_of_equal,
    parse_float=_float,
    parse_int=_integer,
    parse_constant=_constant,
)


def to_inputs(
    document: dict[str, Any],
    types: Mapping[str, int],
    tensor: Callable[[Any, int], np.ndarray] | None = None,
    stacked: Callable[[list[Any], int], np.ndarray] | None = None,
) -> Arrays:
    """Reads the inputs of a request, in row format (`instances`) or columnar (`inputs`).

    Args:
        document: The request.
        types: Type (DT_...) of every input of the signature.
        tensor: Function that makes a tensor of a value and a type; by default `to_array`.
        stacked: Function that makes the tensor of a list of instances.

    Returns:
        The inputs by name.

    Raises:
        ServingError: INVALID_ARGUMENT if the request does not have those inputs, UNIMPLEMENTED for
            a type that JSON cannot express.
    """
    if "instances" in document and "inputs" in document:
        raise invalid(
            "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist"
        )
    if "instances" in document:
        return _rows(document["instances"], types, stacked or _stack)
    if "inputs" in document:
        return _columns(document["inputs"], types, tensor or to_array)
    raise invalid("Missing 'inputs' or 'instances' key")


def _rows(
    instances: Any, types: Mapping[str, int], stacked: Callable[[list[Any], int], np.ndarray]
) -> Arrays:
    if not isinstance(instances, list):
        raise invalid("Expecting 'instances' to be an list/array")
    if not instances:
        raise invalid("No values in 'instances' array")
    if not _is_object(instances[0]):
        if len(types) != 1:
            raise invalid(
                "instances is a plain list, but expecting list of objects as multiple input "
                "tensors required as per tensorinfo_map"
            )
        for item, value in enumerate(instances):
            if _is_object(value):
                raise invalid(f"Expecting value/list but got object at item {item} of input list")
        [name] = types
        return {name: stacked(instances, types[name])}
    for item, value in enumerate(instances):
        if not _is_object(value):
            raise invalid(f"Expecting object but got list at item {item} of input list")
        for name in value:
            if name not in types:
                raise invalid(
                    f"Failed to process element: {item} of 'instances' list. "
                    f"JSON object: does not have named input: {name}"
                )
        if value.keys() != types.keys():
            raise invalid(
                f"Failed to process element: {item} of 'instances' list. JSON object: "
                f"{format_value(value)} keys must be equal to: {','.join(sorted(types))}"
            )
    return {
        name: stacked([value[name] for value in instances], dtype) for name, dtype in types.items()
    }


def _columns(
    inputs: Any, types: Mapping[str, int], tensor: Callable[[Any, int], np.ndarray]
) -> Arrays:
    if not _is_object(inputs):
        if len(types) != 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        inputs = dict.fromkeys(types, inputs)
    if lacking := [x for x in types if x not in inputs]:
        unknown = {x: nearest(x, lacking) for x in inputs if x not in types}
        sent, near = next(((x, y) for x, y in unknown.items() if y), ("", lacking))
        why = f" {sent!r} is unknown.{question(sent, near[:1])}" if sent else ""
        raise invalid(f"Missing named input: {near[0]} in 'inputs' object.{why}")
    return {name: tensor(inputs[name], dtype) for name, dtype in types.items()}


def _stack(values: list[Any], dtype: int) -> np.ndarray:
    """Returns the tensor of instances, which must have equal sizes and shapes."""
    first = _shape(values[0])
    for value in values[1:]:
        shape = _shape(value)
        if shape != first:
            sizes = int(np.prod(first)), len(_leaves(value))
            if sizes[0] != sizes[1]:
                raise invalid(f"Expecting tensor size: {sizes[0]} but got: {sizes[1]}")
            raise invalid(f"Expecting shape {first} but got: {shape}")
    return to_array(values, dtype)


def to_array(value: Any, dtype: int) -> np.ndarray:
    """Reads one tensor.

    Args:
        value: The value, as nested lists.
        dtype: Its type (DT_...).

    Raises:
        ServingError: As `to_inputs` does.
    """
    shape = _shape(value)
    leaves = [value]
    for level, size in enumerate(shape):
        for item in leaves:
            if not isinstance(item, list):
                raise invalid(
                    f"JSON Value: {format_value(item)} found at incorrect level: {level + 1} in "
                    f"the JSON DOM. Expected at level: {len(shape)}"
                )
            if len(item) != size:
                raise invalid(
                    f"Encountered list at unexpected size: {len(item)} at level: {level} "
                    f"expected size: {size}"
                )
        leaves = list(itertools.chain.from_iterable(leaves))
    return _scalars(leaves, dtype).reshape(shape)


def _scalars(values: list[Any], dtype: int) -> np.ndarray:
    """Returns values that are not lists as a flat array of a type."""
    if dtype == DataType.DT_STRING:
        strings = np.empty(len(values), np.object_)
        strings[:] = [to_bytes(value) for value in values]
        return strings
    if dtype == DataType.DT_BOOL:
        _require(values, dtype, (bool,))
        return np.array(values, np.bool_)
    if _is_float(dtype):
        _require(values, dtype, (float, int))
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(_TYPES[dtype])
    if dtype in _TYPES:
        _require(values, dtype, (int,))
        limits = np.iinfo(_TYPES[dtype])
        for value in values:
            if not limits.min <= value <= limits.max:
                raise _mismatch(value, dtype)
        return np.array(values, _TYPES[dtype])
    raise ServingError(
        Code.UNIMPLEMENTED,
        f"Conversion of JSON Value: {format_value(values[:1])} to type: {_type_name(dtype)} is not "
        "supported",
    )


def _is_float(dtype: int) -> bool:
    return issubclass(_TYPES.get(dtype, np.void), np.floating)


def _require(values: list[Any], dtype: int, allowed: tuple[type, ...]) -> None:
    """Raises an error unless the type of every value is allowed; true is not a number."""
    if not set(map(type, values)) <= set(allowed):
        raise _mismatch(next(value for value in values if type(value) not in allowed), dtype)


def to_bytes(value: Any) -> bytes:
    """Reads a string, or the bytes of `{"b64": ...}`.

    Raises:
        ServingError: INVALID_ARGUMENT if it is neither.
    """
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError as error:
            raise invalid(f"JSON Value: {format_value(value)} is not Unicode") from error
    if not is_b64(value):
        raise _mismatch(value, DataType.DT_STRING)
    if not isinstance(value["b64"], str):
        raise _mismatch(value["b64"], DataType.DT_STRING)
    with contextlib.suppress(ValueError):  # as most clients write it
        return binascii.a2b_base64(value["b64"], strict_mode=True)
    try:
        text = "".join(value["b64"].split())  # padding and line breaks are optional
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"Unable to base64 decode: {format_value(value['b64'])}") from error


def _shape(value: Any) -> tuple[int, ...]:
    """Returns the shape, inferred from the first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
        if len(shape) > _MAX_RANK:
            raise invalid(f"A tensor must have at most {_MAX_RANK} axes", "more")
    return tuple(shape)


def _leaves(value: Any) -> list[Any]:
    leaves = [value]
    while any(isinstance(leaf, list) for leaf in leaves):
        leaves = list(
            itertools.chain.from_iterable(x if isinstance(x, list) else [x] for x in leaves)
        )
    return leaves


def is_b64(value: Any) -> bool:
    """Returns whether a JSON value represents bytes."""
    return isinstance(value, dict) and value.keys() == {"b64"}


def _is_object(value: Any) -> bool:
    return isinstance(value, dict) and not is_b64(value)


def _mismatch(value: Any, dtype: int) -> ServingError:
    kind = str(value) if isinstance(value, bool) else _JSON_TYPES[type(value)]
    return invalid(
        f"JSON Value: {format_value(value)} Type: {kind} is not of expected type: "
        f"{_type_name(dtype)}"
    )


def _type_name(dtype: int) -> str:
    return DataType(dtype).name.removeprefix("DT_").lower()


def format_value(value: Any) -> str:
    """Returns a JSON value for an error message, truncated if long."""
    try:
        text = json.dumps(value, ensure_ascii=False, default=repr)
    except RecursionError:
        return "nested too deeply to show"
    return text if len(text) <= 128 else text[:128] + "...TRUNCATED"
