import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.data import example_writers
from tfrank_sel.data import ListFeatures, parsing, writing

WRITERS = {
    "ELWC": (writing.serialize_elwc, parsing.parse_elwc),
    "EIE": (example_writers.example_in_example, parsing.parse_example_in_example),
    "SEQ": (writing.serialize_sequence_example, parsing.parse_sequence_example),
    "tf.Example": (example_writers.one_item_example, parsing.parse_example),
}
FEATURES = ListFeatures(
    items={
        "price": tf.io.FixedLenFeature([], tf.float32),
        "vector": tf.io.FixedLenFeature([2], tf.int64, [7, 8]),
        "words": tf.io.VarLenFeature(tf.string),
        "bag": tf.io.RaggedFeature(tf.int64),
    },
    context={
        "query": tf.io.FixedLenFeature([], tf.string, b"none"),
        "user": tf.io.VarLenFeature(tf.float32),
    },
)
FLOATS = st.floats(width=32, allow_nan=False)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
FORMATS = pytest.mark.parametrize("kind", WRITERS)


@st.composite
def lists(draw, sizes):
    size = draw(sizes)

    def column(values):
        return draw(st.lists(values, min_size=size, max_size=size))

    return {
        "price": column(FLOATS),
        "vector": column(st.none() | st.tuples(INTEGERS, INTEGERS)),
        "words": column(st.lists(st.binary(max_size=3), max_size=3)),
        "bag": column(st.none() | st.lists(INTEGERS, max_size=3)),
        "query": draw(st.none() | st.binary(max_size=3)),
        "user": draw(st.lists(FLOATS, max_size=3)),
    }


def sparse_items(values):
    """The values of each item, as lists."""
    found = [[[] for _ in range(values.shape[1])] for _ in range(values.shape[0])]
    for (row, item, _), value in zip(values.indices.numpy(), values.values.numpy(), strict=True):
        found[row][item].append(value)
    return found


@pytest.mark.sample(4)
@FORMATS
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_what_is_written_is_read(kind, data):
    write, read = WRITERS[kind]
    sizes = st.just(1) if kind == "tf.Example" else st.integers(0, 3)
    batch = data.draw(st.lists(lists(sizes), min_size=1, max_size=3))
    found = read(tf.constant([write(one, FEATURES) for one in batch]), FEATURES)

    words, bags = sparse_items(found["words"]), found["bag"].to_list()
    users = tf.RaggedTensor.from_sparse(found["user"])
    for row, one in enumerate(batch):
        size = len(one["price"])
        assert found["size"][row] == size
        assert found["price"][row, :size].numpy().tolist() == one["price"]
        vectors = [list(x) if x else [7, 8] for x in one["vector"]]
        assert found["vector"][row, :size].numpy().tolist() == vectors
        assert words[row][:size] == one["words"]
        assert bags[row][:size] == [x or [] for x in one["bag"]]
        assert found["query"][row] == (b"none" if one["query"] is None else one["query"])
        assert users[row].numpy().tolist() == one["user"]


@FORMATS
def test_arrays_and_text_may_be_given_and_names_left_out(kind):
    write, read = WRITERS[kind]
    values = {
        "price": np.array([0.5], np.float64),
        "words": [["é"]],
        "vector": np.ones([1, 2], "i4"),
    }
    found = read(tf.constant([write(values, FEATURES)]), FEATURES)

    assert found["price"].numpy().tolist() == [[0.5]]
    assert found["vector"].numpy().tolist() == [[[1, 1]]]
    assert found["words"].values.numpy().tolist() == ["é".encode()]
    assert found["query"].numpy().tolist() == [b"none"]


@pytest.mark.sample(3)
@FORMATS
@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"price": [1.0], "prize": [1.0]}, ValueError, r"Received: \['prize'\]"),
        ({"query": b"q"}, ValueError, r"at least one feature.*Received numbers of items: \{\}"),
        ({"price": [1.0], "bag": [[], []]}, ValueError, r"\{'price': 1, 'bag': 2\}"),
        ({"price": [None]}, ValueError, r"'price' must have 1 values. Received: None"),
        ({"price": [1.0], "vector": [[1, 2, 3]]}, ValueError, "'vector' must have 2 values"),
        ({"price": ["x"]}, TypeError, "'price' must be of float32. Received: 'x'"),
        ({"price": [1.0], "bag": [[1.5]]}, TypeError, "'bag' must be of int64"),
        ({"price": [1.0], "words": [[1]]}, TypeError, "'words' must be of string"),
    ],
)
def test_values_must_be_those_of_the_features(kind, values, error, message):
    with pytest.raises(error, match=message):
        WRITERS[kind][0](values, FEATURES)


def test_numbers_beyond_their_type_are_refused():
    """They became infinite, or negative."""
    for value in ([1e300], np.array([1e300]), [10**400]):
        with pytest.raises((ValueError, TypeError), match=r"'price' must be (within|of) float32"):
            writing.serialize_elwc({"price": value}, FEATURES)
    for value in (2**63 + 5, np.uint64(2**63 + 5), -(2**63) - 1):
        with pytest.raises((ValueError, TypeError), match=r"'bag' must be (within|of) int64"):
            writing.serialize_elwc({"price": [1.0], "bag": [[value]]}, FEATURES)
    for value in (1e300, [1.0, 1e300], 2**63 + 5, [-(2**63) - 1]):
        with pytest.raises(ValueError, match="'x' must be within"):
            writing.example({"x": value})
    written = writing.serialize_elwc({"price": [np.inf, np.nan, 2**63 + 5]}, FEATURES)
    found = parsing.parse_elwc(tf.constant([written]), FEATURES)["price"].numpy()
    np.testing.assert_array_equal(found, np.float32([[np.inf, np.nan, 2.0**63]]))


def test_partitions_are_refused():
    lengths = tf.io.RaggedFeature.RowLengths("lengths")
    for bag in (tf.io.RaggedFeature(tf.int64, "x"), tf.io.RaggedFeature(tf.int64, "b", [lengths])):
        with pytest.raises(ValueError, match="'b' must be stored whole"):
            writing.serialize_elwc({"b": [[1]]}, ListFeatures({"b": bag}))
