"""Tensors of requests are read as TensorFlow's own parser reads them."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st
from tensorflow.core.framework import tensor_pb2

from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.status import ServingError

FIELDS = {
    tf.float32: ("float_val", st.floats(width=32)),
    tf.float64: ("double_val", st.floats()),
    tf.int8: ("int_val", st.integers(-300, 300)),  # beyond the type, it is narrowed
    tf.uint8: ("int_val", st.integers(-300, 300)),
    tf.int64: ("int64_val", st.integers(-(2**63), 2**63 - 1)),
    tf.uint64: ("uint64_val", st.integers(0, 2**64 - 1)),
    tf.bool: ("bool_val", st.booleans()),
    tf.string: ("string_val", st.binary(max_size=4)),
}


def proto_of(dtype, size, values):
    proto = tensor_pb2.TensorProto(dtype=dtype.as_datatype_enum)
    proto.tensor_shape.dim.add(size=size)
    getattr(proto, FIELDS[dtype][0]).extend(values)
    return proto


def check(proto, dtype):
    parsed = tf.io.parse_tensor(proto.SerializeToString(), dtype).numpy()
    read = tensor_protos.to_array("x", proto)
    assert read.dtype == parsed.dtype
    np.testing.assert_array_equal(read, parsed)


@pytest.mark.sample(4)
@pytest.mark.parametrize("dtype", FIELDS, ids=lambda dtype: dtype.name)
@given(data=st.data(), more=st.integers(0, 3))
def test_typed_fields_are_read_as_tensorflow_reads_them(dtype, data, more):
    values = data.draw(st.lists(FIELDS[dtype][1], min_size=1, max_size=6))
    check(proto_of(dtype, len(values) + more, values), dtype)


@pytest.mark.parametrize("dtype", [tf.float32, tf.float64, tf.int64], ids=lambda dtype: dtype.name)
def test_long_fields_are_read_in_parts(dtype):
    size = 2 * tensor_protos._PART + 3
    check(proto_of(dtype, size, np.arange(size).tolist()), dtype)


def test_packed_numbers_are_found_before_other_fields():
    proto = proto_of(tf.float32, 3, [1.0, 2.0, 3.0])
    proto.double_val.extend([4.0, 5.0])
    check(proto, tf.float32)
    check(
        tensor_pb2.TensorProto.FromString(proto.SerializeToString() + b"\xfa\x3e\x01z"), tf.float32
    )


def test_strings_in_the_content_are_read_as_tensorflow_reads_them_or_refused():
    """As C++ writes them: all lengths, then all bytes."""
    for content, size in ((b"\4\4acmebolt", 2), (b"\0\1\0", 2), (b"\0", 1)):
        proto = proto_of(tf.string, size, [])
        proto.tensor_content = content
        check(proto, tf.string)
        proto.tensor_content = content + b"x"
        with pytest.raises(ServingError, match="tensor parsing error: x"):
            tensor_protos.to_array("x", proto)
