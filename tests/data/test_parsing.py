import numpy as np
import pytest
import tensorflow as tf

from tests.golden.tfr_data_extra import WRITERS
from tfrank_sel.data import ListFeatures, parsing

READERS = {
    "ELWC": parsing.parse_elwc,
    "EIE": parsing.parse_example_in_example,
    "SEQ": parsing.parse_sequence_example,
}
FORMATS = pytest.mark.parametrize("kind", READERS)
PRICE = tf.io.FixedLenFeature([], tf.float32)
VECTOR = tf.io.FixedLenFeature([2], tf.int64, [7, 8])
WORDS = tf.io.VarLenFeature(tf.string)
BAG = tf.io.RaggedFeature(tf.int64)
ITEMS = {"price": PRICE, "vector": VECTOR, "words": WORDS, "bag": BAG}
FEATURES = ListFeatures(ITEMS, {"query": tf.io.FixedLenFeature([1], tf.string, b"none")})


def items_of(prices):
    return [
        {"price": [p], "vector": [i, -i], "words": [b"w"] * i, "bag": [i] * (2 - i % 2)}
        for i, p in enumerate(prices)
    ]


def lists_of(kind, *prices):
    return tf.constant(
        [WRITERS[kind]({"query": [b"q%d" % i]}, items_of(p)) for i, p in enumerate(prices)],
        tf.string,
    )


def dense(values):
    if isinstance(values, tf.SparseTensor):
        values = tf.sparse.to_dense(values)
    return values.to_tensor() if isinstance(values, tf.RaggedTensor) else values


@pytest.mark.sample(3)
@FORMATS
def test_eager_equals_graph_equals_tf_data(kind):
    lists = lists_of(kind, [0.5, 1.5, 2.5], [3.5], [4.5, 5.5])

    def read(serialized):
        return READERS[kind](serialized, FEATURES, list_size=2)

    eager = read(lists)
    graph = tf.function(read, input_signature=[tf.TensorSpec([None], tf.string)])
    dataset = tf.data.Dataset.from_tensor_slices(lists).batch(3).map(read)

    assert dataset.element_spec["vector"].shape.as_list() == [None, 2, 2]
    assert dataset.element_spec["mask"].shape.as_list() == [None, 2]
    for other in (graph(lists), next(iter(dataset))):
        assert set(other) == {*ITEMS, "query", "mask", "size"}
        for name, value in eager.items():
            np.testing.assert_array_equal(dense(other[name]), dense(value))


@FORMATS
@pytest.mark.parametrize("batch", [0, 2])
@pytest.mark.parametrize("list_size", [None, 3])
def test_empty_lists_and_batches_have_no_items(kind, batch, list_size):
    parsed = READERS[kind](lists_of(kind, *[[]] * batch), FEATURES, list_size=list_size)

    size = list_size or 0
    assert parsed["price"].shape == (batch, size)
    assert parsed["vector"].shape == (batch, size, 2)
    assert parsed["words"].dense_shape.numpy().tolist()[:2] == [batch, size]
    assert parsed["bag"].nrows() == batch
    assert parsed["query"].shape == (batch, 1)
    assert not np.any(parsed["mask"])
    assert parsed["size"].numpy().tolist() == [0] * batch


@FORMATS
def test_padding_is_what_it_is_said_to_be(kind):
    padding = {"price": float("nan"), "vector": [5, 6]}
    features = ListFeatures({"price": PRICE, "vector": VECTOR}, padding=padding)
    parsed = READERS[kind](lists_of(kind, [0.5], [1.5, 2.5]), features)

    np.testing.assert_array_equal(parsed["price"], [[0.5, np.nan], [1.5, 2.5]])
    assert parsed["vector"][0].numpy().tolist() == [[0, 0], [5, 6]]


@FORMATS
@pytest.mark.parametrize(
    "item", [{"vector": [1, 2]}, {"price": [1.0, 2.0]}, {"price": [1]}, {"price": []}]
)
def test_an_item_must_have_what_has_no_default(kind, item):
    lists = tf.constant([WRITERS[kind]({}, [{"price": [1.0]}, item, {"price": [1.0]}])])

    with pytest.raises(tf.errors.InvalidArgumentError, match="price"):
        READERS[kind](lists, FEATURES)


@FORMATS
@pytest.mark.parametrize("splits", [tf.int32, tf.int64])
def test_ragged_features_may_have_partitions(kind, splits):
    lengths = tf.io.RaggedFeature.RowLengths("lengths")
    bags = tf.io.RaggedFeature(tf.int64, "values", [lengths], row_splits_dtype=splits)
    items = [{"values": [1, 2, 3], "lengths": [1, 2]}, {"values": [4], "lengths": [0, 1]}]
    lists = tf.constant([WRITERS[kind]({}, items), WRITERS[kind]({}, items[:1])])
    parsed = READERS[kind](lists, ListFeatures({"bags": bags}), list_size=3)

    assert parsed["bags"].row_splits.dtype == splits
    assert parsed["bags"].to_list() == [[[[1], [2, 3]], [[], [4]], []], [[[1], [2, 3]], [], []]]


@FORMATS
def test_items_are_shuffled_as_a_whole_and_before_truncation(kind):
    prices = np.arange(1.0, 41.0)
    lists = lists_of(kind, prices.tolist(), prices[:30].tolist())

    def read(seed):
        return READERS[kind](lists, FEATURES, list_size=20, shuffle=True, seed=seed)

    parsed = read(1)
    for row, size in enumerate([40, 30]):
        kept = parsed["price"][row].numpy()
        assert np.unique(kept).size == 20
        assert 20.0 < np.max(kept) <= size
        assert not np.array_equal(kept, np.sort(kept))
        np.testing.assert_array_equal(parsed["vector"][row, :, 0], kept - 1.0)
        lengths = [len(x) for x in parsed["bag"][row].to_list()]
        np.testing.assert_array_equal(lengths, 2 - (kept - 1.0) % 2)
        words = tf.sparse.to_dense(parsed["words"])[row] == b"w"
        np.testing.assert_array_equal(np.sum(words, axis=1), kept - 1.0)
    assert parsed["size"].numpy().tolist() == [40, 30]
    np.testing.assert_array_equal(read(tf.constant(1, tf.int64))["price"], parsed["price"])
    assert not np.array_equal(read(2)["price"], parsed["price"])
    assert not np.array_equal(read(None)["price"], read(None)["price"])


def test_every_item_is_kept_as_often():
    lists = lists_of("ELWC", *[[0.0, 1.0, 2.0, 3.0]] * 2000)
    parsed = parsing.parse_elwc(lists, ListFeatures({"price": PRICE}), list_size=2, shuffle=True)
    counts = np.bincount(parsed["price"].numpy().astype(int).ravel())
    np.testing.assert_allclose(counts, 1000.0, atol=150.0)  # 6.7 standard deviations


@FORMATS
def test_bytes_that_are_no_list_are_an_error(kind):
    with pytest.raises((tf.errors.DataLossError, tf.errors.InvalidArgumentError)):
        READERS[kind](tf.constant([b"\x0a\xc3\xbf"]), FEATURES)


@pytest.mark.parametrize("reader", [*READERS.values(), parsing.parse_example])
def test_a_list_size_must_be_positive(reader):
    with pytest.raises(ValueError, match=r"`list_size` must be positive or None. Received: .*=0"):
        reader(tf.constant([b""]), FEATURES, list_size=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"items": {}}, ValueError, "`items` must name at least one feature"),
        ({"items": {"a": PRICE}, "context": {"a": PRICE}}, ValueError, r"differ.*\['a', 'a'"),
        ({"items": {"mask": PRICE}}, ValueError, "differ"),
        ({"items": {"a": tf.float32}}, TypeError, "'a' must be a tf.io.FixedLenFeature"),
        ({"items": {"a": PRICE, "b": WORDS}, "padding": {"b": 0}}, ValueError, r"\['a'\]. .*'b'"),
    ],
)
def test_features_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        ListFeatures(**arguments)
