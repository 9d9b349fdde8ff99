import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from serving import json_outputs, json_reader
from serving.status import Code, ServingError

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
    body = json_outputs.to_body({"y": array}, rows=False)
    assert body == b'{\n    "outputs": ' + text + b"\n}"


def test_rows_need_one_batch_axis():
    with pytest.raises(ServingError, match="b has inconsistent batch size: 1 expecting: 2"):
        json_outputs.to_body({"a": np.zeros(2), "b": np.zeros(1)}, rows=True)
    with pytest.raises(ServingError, match="complex64, unknown to JSON") as error:
        json_outputs.to_body({"a": np.zeros(2, np.complex64)}, rows=True)
    assert error.value.code is Code.UNIMPLEMENTED
