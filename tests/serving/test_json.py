import json
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.core.framework import types_pb2

from tfrank_sel.serving.rest import json_reader, json_writer
from tfrank_sel.serving.status import Code, ServingError

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def typed(value):
    """Tells 1 from 1.0 and from true, which are equal in Python."""
    if isinstance(value, list):
        return [typed(item) for item in value]
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    return type(value), value


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(VALUES, st.sampled_from([None, 1]))
def test_what_is_written_is_read(value, indent):
    body = json.dumps(value, indent=indent).encode()

    assert typed(json_reader.read(body)) == typed(value)
    # What follows the first value sends the same text through the slower reader.
    assert typed(json_reader.read(body + b" }")) == typed(value)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='[]{}",:0-1.eE \\ntrue\udcff', max_size=20))
def test_nonsense_is_refused_and_nothing_worse(text):
    body = text.encode("utf-8", "surrogateescape")
    error = None
    try:
        json_reader.read(body)
    except ServingError as raised:
        error = raised
    assert error is None or error.code is Code.INVALID_ARGUMENT
    assert error is None or str(error).startswith("JSON Parse error: ")


def test_the_first_of_equal_keys_counts_at_any_depth():
    assert json_reader.read(b'{"a": [{"b": 1, "b": 2}, 3, {"c": 4, "c": 5}], "a": 6}') == {
        "a": [{"b": 1}, 3, {"c": 4}]
    }


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([0.1, 2, 9e6], np.float32), b"[0.1,2.0,9000000.0]"),
        (np.array(0.1), b"0.1"),
        (np.array([[1], [2]], np.int32), b"[[1],[2]]"),
        (np.array([True]), b"[true]"),
        (np.zeros([0, 0], np.float32), b"[]"),
        (np.zeros([1, 0], np.float32), b"[[]]"),
        (np.zeros([2, 3], np.float32).T[:, :1], b"[[0.0],[0.0],[0.0]]"),
        (np.array(["\u00e9".encode(), b"\xff"], object), b'["\xc3\xa9", "\xff"]'),
        (np.array([np.nan, np.inf]), b"[NaN, Infinity]"),
    ],
)
def test_arrays_are_written_as_json(array, text):
    body = json_writer.to_body({"y": array}, rows=False)
    assert body == b'{\n    "outputs": ' + text + b"\n}"


def test_rows_need_one_batch_axis():
    with pytest.raises(ServingError, match="b has inconsistent batch size: 1 expecting: 2"):
        json_writer.to_body({"a": np.zeros(2), "b": np.zeros(1)}, rows=True)
    with pytest.raises(ServingError, match="complex64, unknown to JSON") as error:
        json_writer.to_body({"a": np.zeros(2, np.complex64)}, rows=True)
    assert error.value.code is Code.UNIMPLEMENTED


def read_slowly(body, types):
    return json_reader.to_inputs(json_reader.read_object(body), types)


def outcome(read, *arguments):
    try:
        return {name: typed_array(x) for name, x in read(*arguments).items()}
    except ServingError as error:
        return str(error)


def typed_array(array):
    return array.dtype, array.shape, array.tobytes() if array.dtype != object else array.tolist()


@pytest.mark.parametrize("kind", ["int32", "int64", "uint8"])
def test_integers_are_read_up_to_the_ends_of_their_type(kind):
    ends, types = np.iinfo(kind), {"x": getattr(types_pb2, f"DT_{kind.upper()}")}
    body = '{{"instances": [0, {}]}}'.format
    for end in (ends.min, ends.max):
        found = read_slowly(body(end).encode(), types)["x"]
        assert (found.dtype, found.tolist()) == (kind, [0, end])
    for beyond in (ends.min - 1, ends.max + 1):
        with pytest.raises(ServingError):
            read_slowly(body(beyond).encode(), types)


NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
RAGGED = st.recursive(
    NUMBERS | st.sampled_from([True, None, "x", "[", 1e39]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xy"), inner),
)
REGULAR = hnp.arrays(np.float64, hnp.array_shapes(max_dims=4), elements=st.integers(-9, 9)).map(
    np.ndarray.tolist
)


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["instances", "inputs", "signature_name", "other"]),
        RAGGED
        | REGULAR
        | st.lists(st.fixed_dictionaries({"x": REGULAR | NUMBERS, "y": REGULAR}), max_size=3)
        | st.fixed_dictionaries({"x": REGULAR, "y": REGULAR | RAGGED}),
    ),
    st.sampled_from(
        [
            {"x": types_pb2.DT_FLOAT},
            {"x": types_pb2.DT_DOUBLE, "y": types_pb2.DT_INT64},
            {"x": types_pb2.DT_FLOAT, "y": types_pb2.DT_BOOL},
            {"x": types_pb2.DT_STRING},
        ]
    ),
    st.sampled_from(["", " ", " more"]),
)
def test_blocks_of_numbers_are_read_as_anything_else_is(document, types, tail):
    body = json.dumps(document).encode() + tail.encode()

    found = outcome(lambda: json_reader.Document(body).to_inputs(types))

    assert found == outcome(read_slowly, body, types)


@pytest.mark.parametrize(
    "body",
    [
        b'{"instances": [[1, [2]], [3, [4]]]}',
        b'{"instances": [[1, 2], [3, []]]}',
        b'{"instances": [[1, 2], [[], 4, 5]]}',
        b'{"instances": [1.5, 2], "instances": [3]}',
        b'{"inputs": {"x": [1], "x": [2]}}',
        b'{"instances": [NaN, Infinity]}',
        b'{"instances": [1e400, 123456789012345678901234567890, -0, -0.0]}',
        b'{"signature_name": "[", "instances": [1]}',
        b'\xef\xbb\xbf{"instances": [1]}',
        b'{"instances": [{"x": 1}, {"x": [1]}]}',
        b'{"instances": [{"x": 1}, 1]}',
        b'{"instances": [1, {"x": 1}]}',
    ],
)
def test_what_looks_like_a_block_but_is_none(body):
    types = {"x": types_pb2.DT_FLOAT}
    found = outcome(lambda: json_reader.Document(body).to_inputs(types))
    assert found == outcome(read_slowly, body, types)


def test_an_object_of_many_keys_does_not_take_long():
    members = ",".join(f'"key {number}": 1' for number in range(100_000))
    body = f'{{{members}, "instances": [[2.5]]}}'.encode()
    began = time.process_time()
    document = json_reader.Document(body)
    found = document.to_inputs({"x": types_pb2.DT_FLOAT})
    assert found["x"].tolist() == [[2.5]]
    assert time.process_time() - began < 10.0  # looking up each would take two minutes
