import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel.data import elwc
from tfrank_sel.data.spec import FeatureSpec

SPEC = FeatureSpec(num_features=2)
ITEM = st.tuples(
    st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2),
    st.floats(min_value=0.0, max_value=4.0, width=32),
    st.binary(max_size=5),
)


def written(items, query_id=b"q"):
    features, labels, doc_ids = zip(*items, strict=True) if items else ((), (), ())
    array = np.array(features, np.float32).reshape(-1, 2)
    return elwc.serialize(array, SPEC, labels=labels, doc_ids=doc_ids, query_id=query_id)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(ITEM, max_size=5), max_size=4))
def test_what_is_written_is_read(lists):
    parsed = elwc.parse(tf.constant([written(items) for items in lists], tf.string), SPEC)

    size = max(map(len, lists), default=0)
    assert parsed["features"].shape == (len(lists), size, 2)
    for row, items in enumerate(lists):
        padding = size - len(items)
        assert parsed["mask"][row].numpy().tolist() == [True] * len(items) + [False] * padding
        for column, (features, label, doc_id) in enumerate(items):
            assert parsed["features"][row, column].numpy().tolist() == features
            assert parsed["relevance"][row, column].numpy() == label
            assert parsed["doc_id"][row, column].numpy() == doc_id
        assert not np.any(parsed["features"][row, len(items) :])
        assert np.all(np.isnan(parsed["relevance"][row, len(items) :]))
        assert parsed["doc_id"][row, len(items) :].numpy().tolist() == [b""] * padding


def test_the_message_is_the_genuine_one():
    input_pb2 = pytest.importorskip("tensorflow_serving.apis.input_pb2")
    many = [([float(n), 0.5], 1.0, b"d%d" % n) for n in range(200)]

    genuine = input_pb2.ExampleListWithContext.FromString(written(many, b"q7"))

    assert genuine.context.features.feature["query_id"].bytes_list.value == [b"q7"]
    assert [e.features.feature["features"].float_list.value[0] for e in genuine.examples] == [
        float(n) for n in range(200)
    ]
    parsed = elwc.parse(tf.constant([genuine.SerializeToString()]), SPEC)
    assert parsed["doc_id"][0].numpy().tolist() == [d for _, _, d in many]


def test_labels_and_ids_may_be_absent():
    parsed = elwc.parse(tf.constant([elwc.serialize(np.ones((2, 2)), SPEC)]), SPEC)

    assert np.all(np.isnan(parsed["relevance"]))
    assert parsed["doc_id"].numpy().tolist() == [[b"", b""]]


def test_names_come_from_the_spec():
    spec = FeatureSpec(num_features=1, features="x", label="y", doc_id="d", query_id="q")
    data = elwc.serialize(np.ones((1, 1)), spec, labels=[2.0], doc_ids=[b"a"])

    assert set(elwc.parse(tf.constant([data]), spec)) == {"x", "y", "d", "mask"}


@pytest.mark.parametrize("batch", [0, 1, 3])
def test_empty_lists_and_batches_have_no_items(batch):
    empty = tf.constant([elwc.serialize(np.ones((0, 2)), SPEC)] * batch, tf.string)

    assert elwc.parse(empty, SPEC)["features"].shape == (batch, 0, 2)


@pytest.mark.parametrize("received", [0, 1, 3])
def test_a_wrong_number_of_features_is_an_error(received):
    other = FeatureSpec(num_features=max(received, 1), features="features" if received else "none")
    bad = elwc.serialize(np.ones((1, other.num_features)), other)

    with pytest.raises(tf.errors.InvalidArgumentError, match="features"):
        elwc.parse(tf.constant([written([([1, 2], 0, b"")]), bad]), SPEC)


def test_bytes_that_are_no_list_are_an_error():
    with pytest.raises(tf.errors.DataLossError):
        elwc.parse(tf.constant([b"\x0a\xff"]), SPEC)


def test_eager_equals_graph_equals_tf_data():
    data = [written([([1, 2], 1, b"a"), ([3, 4], 0, b"b")]), written([([5, 6], 2, b"c")])]
    eager = elwc.parse(tf.constant(data), SPEC)
    graph = tf.function(
        lambda x: elwc.parse(x, SPEC), input_signature=[tf.TensorSpec([None], tf.string)]
    )
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(2).map(lambda x: elwc.parse(x, SPEC))

    assert dataset.element_spec["features"].shape.as_list() == [None, None, 2]
    for other in (graph(tf.constant(data)), next(iter(dataset))):
        for name, value in eager.items():
            np.testing.assert_array_equal(other[name], value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.ones((2, 3))}, r"\[list_size, 2\]. Received: \(2, 3\)"),
        ({"features": np.ones(2)}, r"Received: \(2,\)"),
        ({"labels": [1.0]}, "`labels` must have length 2. Received: 1"),
        ({"doc_ids": [b"a"] * 3}, "`doc_ids` must have length 2. Received: 3"),
    ],
)
def test_sizes_must_agree(change, message):
    with pytest.raises(ValueError, match=message):
        elwc.serialize(**{"features": np.ones((2, 2)), "spec": SPEC, **change})
