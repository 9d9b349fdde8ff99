"""Fast conversion between `TensorProto` and NumPy arrays."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from tfrank_sel import lazy
from tfrank_sel.data.writing import head
from tfrank_sel.serving.options import Limits, exceeded_error
from tfrank_sel.serving.protos import DataType, message_class
from tfrank_sel.serving.status import ServingError, invalid

if TYPE_CHECKING:
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2
else:
    tf = lazy.Module("tensorflow")

Arrays: TypeAlias = dict[str, np.ndarray]  # by name

# The field that holds the values of a type, and the type itself. TensorFlow's own conversion reads
# these fields a hundred times slower; it is used for all other types.
FIELDS: dict[int, tuple[str, type]] = {
    DataType.DT_FLOAT: ("float_val", np.float32),
    DataType.DT_DOUBLE: ("double_val", np.float64),
    DataType.DT_INT8: ("int_val", np.int8),
    DataType.DT_INT16: ("int_val", np.int16),
    DataType.DT_INT32: ("int_val", np.int32),
    DataType.DT_INT64: ("int64_val", np.int64),
    DataType.DT_UINT8: ("int_val", np.uint8),
    DataType.DT_UINT16: ("int_val", np.uint16),
    DataType.DT_UINT32: ("uint32_val", np.uint32),
    DataType.DT_UINT64: ("uint64_val", np.uint64),
    DataType.DT_BOOL: ("bool_val", np.bool_),
    DataType.DT_STRING: ("string_val", np.object_),
}
_DATA_TYPES: dict[type, int] = {kind: dtype for dtype, (_, kind) in FIELDS.items()}
# Field numbers of the types whose packed fields have the layout of memory, so that they are copied.
_PACKED: dict[int, int] = {DataType.DT_FLOAT: 5, DataType.DT_DOUBLE: 6}
_WIDE = {"int_val": np.int32}  # type of a field, where it is narrowed to that of the tensor
_PART = 2**14  # values that are read at a time: other threads run in between
_STRING_BYTES = 32  # bytes of a string object in memory, without its content
_OTHER_BYTES = 16  # maximum bytes of a number of any other type
_AXIS_BYTES = 32  # maximum bytes of an axis in a message


# A `PredictRequest` whose tensors have shapes that are not parsed.
_Outline = message_class("RequestOutline")


def check_axes(request: bytes, limits: Limits) -> None:
    """Checks the size of each shape in a serialized `PredictRequest`, before all of it is parsed.

    Protobuf takes 50 bytes for each empty axis, and stops all other threads meanwhile.

    Raises:
        ServingError: INVALID_ARGUMENT if a shape has more bytes than so many axes take.
    """
    for entry in _Outline.FromString(request).inner:
        for tensor in entry.inner:
            size = sum(map(len, tensor.inner))
            if size > limits.axes * _AXIS_BYTES:
                raise exceeded_error("bytes in a tensor's shape", limits.axes * _AXIS_BYTES, size)


def to_arrays(protos: Mapping[str, "tensor_pb2.TensorProto"], limits: Limits) -> Arrays:
    """Reads the tensors of a request, after checking their declared shapes and sizes.

    Args:
        protos: The tensors by name.
        limits: The limits on each of them, and on all together.

    Raises:
        ServingError: INVALID_ARGUMENT if they exceed a limit, or as `to_array`.
    """
    elements = decoded = 0
    for name, proto in protos.items():
        shape = [dimension.size for dimension in proto.tensor_shape.dim[: limits.axes + 1]]
        if any(size < 0 for size in shape):
            raise _unreadable(name)
        limits.check_shape(name, shape)
        size = math.prod(shape)
        elements += size
        if proto.dtype == DataType.DT_STRING:
            lengths = [len(value) for value in proto.string_val]
            repeated = max(0, size - len(lengths)) * (lengths[-1] if lengths else 0)
            decoded += sum(lengths) + repeated + size * _STRING_BYTES + len(proto.tensor_content)
        elif proto.dtype in FIELDS:
            decoded += size * np.dtype(FIELDS[proto.dtype][1]).itemsize
        else:
            decoded += size * _OTHER_BYTES
        limits.check_elements(elements, decoded)
    return {name: to_array(name, proto) for name, proto in protos.items()}


def to_array(name: str, proto: "tensor_pb2.TensorProto") -> np.ndarray:
    """Reads a tensor with values in `tensor_content` or in a typed field.

    Args:
        name: Name of the input, for the message of an error.
        proto: The tensor. A typed field shorter than the shape repeats its last value.

    Returns:
        The array; strings are bytes in an array of objects.

    Raises:
        ServingError: INVALID_ARGUMENT if values, type and shape do not match.
    """
    shape = tuple(dimension.size for dimension in proto.tensor_shape.dim)
    if proto.tensor_shape.unknown_rank or any(size < 0 for size in shape):
        raise _unreadable(name)
    if proto.dtype not in FIELDS:
        try:
            other: np.ndarray = tf.make_ndarray(proto)
        except (KeyError, TypeError, ValueError) as error:
            # TensorFlow raises these for resources and variants, too.
            raise _unreadable(name) from error
        return other
    field, dtype = FIELDS[proto.dtype]
    size = math.prod(shape)
    if proto.tensor_content and dtype is np.object_:
        try:
            strings: np.ndarray = tf.io.parse_tensor(proto.SerializeToString(), tf.string).numpy()
        except tf.errors.InvalidArgumentError as error:
            raise _unreadable(name) from error
        return np.asarray(strings, object)
    if proto.tensor_content:
        if len(proto.tensor_content) != size * np.dtype(dtype).itemsize:
            raise _unreadable(name)
        return np.frombuffer(proto.tensor_content, dtype).reshape(shape)
    if len(getattr(proto, field)) > size:
        raise _unreadable(name)
    array = _values(proto, field, dtype)
    if len(array) < size:
        last = array[-1:] if len(array) else np.array([b"" if dtype is np.object_ else 0], dtype)
        array = np.concatenate([array, np.repeat(last, size - len(array))])
    return array.reshape(shape)


def _values(proto: "tensor_pb2.TensorProto", field: str, dtype: type) -> np.ndarray:
    """Returns the values of a typed field, which are copied if they are packed as in memory."""
    values = getattr(proto, field)
    if values and proto.dtype in _PACKED:
        size = len(values) * np.dtype(dtype).itemsize
        message, tag = proto.SerializeToString(), head(_PACKED[proto.dtype], size)
        start = len(message) - size
        if message[start - len(tag) : start] == tag:  # nothing comes after the field
            return np.frombuffer(message, dtype, offset=start)
    array: np.ndarray = np.empty(len(values), dtype)
    for start in range(0, len(values), _PART):
        part: np.ndarray = np.array(values[start : start + _PART], _WIDE.get(field, dtype))
        array[start : start + _PART] = part
    return array


def to_proto(array: np.ndarray, proto: "tensor_pb2.TensorProto") -> None:
    """Writes an array into the typed field of an empty tensor.

    Args:
        array: The array; strings are bytes in an array of objects.
        proto: The tensor to fill.
    """
    dtype = _DATA_TYPES.get(array.dtype.type)
    if dtype is None:
        proto.CopyFrom(tf.make_tensor_proto(array))
        return
    proto.dtype = dtype
    proto.tensor_shape.SetInParent()  # a scalar has a shape too: an empty one
    for size in array.shape:
        proto.tensor_shape.dim.add(size=size)
    if dtype in _PACKED:
        octets = array.tobytes()
        proto.MergeFromString(head(_PACKED[dtype], len(octets)) + octets)
    else:
        getattr(proto, FIELDS[dtype][0]).extend(array.ravel().tolist())


def _unreadable(name: str) -> ServingError:
    return invalid(f"tensor parsing error: {name}")
