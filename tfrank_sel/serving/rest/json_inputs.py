"""Reader of the tensors in the JSON of a `:predict` request."""

import base64
import binascii
import itertools
import json
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
from tensorflow.core.framework import types_pb2

from tfrank_sel.serving.status import Code, ServingError, invalid

FLOATS = {types_pb2.DT_FLOAT: np.float32, types_pb2.DT_DOUBLE: np.float64}
_INTEGERS: dict[int, type[np.integer[Any]]] = {
    types_pb2.DT_INT8: np.int8,
    types_pb2.DT_INT16: np.int16,
    types_pb2.DT_INT32: np.int32,
    types_pb2.DT_INT64: np.int64,
    types_pb2.DT_UINT8: np.uint8,
    types_pb2.DT_UINT16: np.uint16,
    types_pb2.DT_UINT32: np.uint32,
    types_pb2.DT_UINT64: np.uint64,
}
_MAX_RANK = 32  # maximum number of axes in NumPy 1
_JSON_TYPES = {type(None): "Null", str: "String", int: "Number", float: "Number"}
_JSON_TYPES |= {list: "Array", dict: "Object"}


def to_inputs(document: dict[str, Any], types: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Reads the inputs of a request, in row format (`instances`) or columnar (`inputs`).

    Args:
        document: The request.
        types: Type (DT_...) of every input of the signature.

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
        return _rows(document["instances"], types)
    if "inputs" in document:
        return _columns(document["inputs"], types)
    raise invalid("Missing 'inputs' or 'instances' key")


def _rows(instances: Any, types: Mapping[str, int]) -> dict[str, np.ndarray]:
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
        return {name: _stack(instances, types[name])}
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
                f"{shown(value)} keys must be equal to: {','.join(sorted(types))}"
            )
    return {
        name: _stack([value[name] for value in instances], dtype) for name, dtype in types.items()
    }


def _columns(inputs: Any, types: Mapping[str, int]) -> dict[str, np.ndarray]:
    if not _is_object(inputs):
        if len(types) != 1:
            raise invalid(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        inputs = dict.fromkeys(types, inputs)
    for name in types:
        if name not in inputs:
            raise invalid(f"Missing named input: {name} in 'inputs' object.")
    return {name: to_array(inputs[name], dtype) for name, dtype in types.items()}


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
                    f"JSON Value: {shown(item)} found at incorrect level: {level + 1} in the "
                    f"JSON DOM. Expected at level: {len(shape)}"
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
    if dtype in FLOATS:
        _require(values, dtype, (float, int))
        with np.errstate(over="ignore"):
            return np.array(values, np.float64).astype(FLOATS[dtype])
    if dtype in _INTEGERS:
        _require(values, dtype, (int,))
        limits = np.iinfo(_INTEGERS[dtype])
        for value in values:
            if not limits.min <= value <= limits.max:
                raise _mismatch(value, dtype)
        return np.array(values, _INTEGERS[dtype])
    if dtype == types_pb2.DT_BOOL:
        _require(values, dtype, (bool,))
        return np.array(values, np.bool_)
    if dtype == types_pb2.DT_STRING:
        strings = np.empty(len(values), np.object_)
        strings[:] = [to_bytes(value) for value in values]
        return strings
    raise ServingError(
        Code.UNIMPLEMENTED,
        f"Conversion of JSON Value: {shown(values[:1])} to type: {_type_name(dtype)} is not "
        "supported",
    )


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
            raise invalid(f"JSON Value: {shown(value)} is not Unicode") from error
    if not is_b64(value):
        raise _mismatch(value, types_pb2.DT_STRING)
    if not isinstance(value["b64"], str):
        raise _mismatch(value["b64"], types_pb2.DT_STRING)
    try:
        text = re.sub(r"\s+", "", value["b64"])  # padding and line breaks are optional
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"Unable to base64 decode: {shown(value['b64'])}") from error


def _shape(value: Any) -> tuple[int, ...]:
    """Returns the shape, inferred from the first elements."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
        if len(shape) > _MAX_RANK:
            raise invalid(f"A tensor must have at most {_MAX_RANK} axes. Received: more")
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
        f"JSON Value: {shown(value)} Type: {kind} is not of expected type: {_type_name(dtype)}"
    )


def _type_name(dtype: int) -> str:
    return str(types_pb2.DataType.Name(dtype)).removeprefix("DT_").lower()


def shown(value: Any) -> str:
    """Returns a JSON value for an error message, truncated if long."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except RecursionError:
        return "nested too deeply to show"
    return text if len(text) <= 128 else text[:128] + "...TRUNCATED"
