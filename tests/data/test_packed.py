import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel.data import FeatureSpec, elwc, packed

SPEC = FeatureSpec(num_features=2)
FLOATS = st.floats(width=32, allow_nan=False)


@st.composite
def lists(draw):
    """A list, with or without labels and doc ids: arguments of `serialize`."""
    size = draw(st.integers(0, 5))

    def column(values):
        return draw(st.none() | st.lists(values, min_size=size, max_size=size))

    features = draw(st.lists(FLOATS, min_size=2 * size, max_size=2 * size))
    return {
        "features": np.array(features, np.float32).reshape(size, 2),
        "labels": column(FLOATS),
        "doc_ids": column(st.binary(max_size=200)),
        "query_id": draw(st.binary(max_size=200)),
    }


def read(serialized, **changed):
    return packed.parse(tf.convert_to_tensor(serialized, tf.string), SPEC, **changed)


@settings(max_examples=30, deadline=None)
@given(st.lists(lists(), max_size=4), st.none() | st.integers(1, 7))
def test_a_batch_reads_as_the_same_lists_in_elwc_do(batch, list_size):
    found = read([packed.serialize(spec=SPEC, **one) for one in batch], list_size=list_size)
    same = tf.constant([elwc.serialize(spec=SPEC, **one) for one in batch], tf.string)
    expected = elwc.parse(same, SPEC, list_size=list_size)

    assert list(found) == list(expected)
    longest = max((len(one["features"]) for one in batch), default=0)
    assert found["features"].shape[1] == (longest if list_size is None else list_size)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(found[name], value)


@settings(max_examples=30, deadline=None)
@given(lists())
def test_the_bytes_are_those_of_tensorflow(one):
    written = packed.serialize(spec=SPEC, **one)
    assert tf.train.Example.FromString(written).SerializeToString(deterministic=True) == written


def test_stock_tensorflow_reads_it():
    """All that a reader without this library has to know."""
    features, labels, ids = [[1.5, 2.5], [3.5, 4.5]], [1.0, 0.0], [b"d1", b"d2"]
    written = packed.serialize(features, SPEC, labels=labels, doc_ids=ids, query_id=b"q7")

    one = tf.io.parse_single_example(
        written,
        {
            "features": tf.io.FixedLenFeature([], tf.string),
            "relevance": tf.io.FixedLenFeature([], tf.string),
            "doc_id": tf.io.RaggedFeature(tf.string),
            "query_id": tf.io.FixedLenFeature([], tf.string),
        },
    )
    numbers = tf.io.decode_raw(one["features"], tf.float32, little_endian=True)
    assert tf.reshape(numbers, [-1, 2]).numpy().tolist() == features
    assert tf.io.decode_raw(one["relevance"], tf.float32).numpy().tolist() == labels
    assert one["doc_id"].numpy().tolist() == ids
    assert one["query_id"] == b"q7"


def test_names_come_from_the_spec():
    spec = FeatureSpec(num_features=1, features="x", label="y", doc_id="d", query_id="q")
    written = packed.serialize([[1.0]], spec, labels=[2.0], doc_ids=[b"a"])

    assert set(tf.train.Example.FromString(written).features.feature) == {"x", "y", "d", "q"}
    assert set(packed.parse(tf.constant([written]), spec)) == {"x", "y", "d", "mask"}


def example(**features):
    lists = {name: tf.train.BytesList(value=values) for name, values in features.items()}
    made = {name: tf.train.Feature(bytes_list=values) for name, values in lists.items()}
    return tf.train.Example(features=tf.train.Features(feature=made)).SerializeToString()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ({"features": [bytes(12)]}, r"`features` must be 8 bytes for each item"),
        ({"relevance": [bytes(4)]}, "features"),
        ({"features": [bytes(16)], "relevance": [bytes(4)]}, "`relevance` must have .* bytes"),
        ({"features": [bytes(8)], "relevance": [bytes(6)]}, "`relevance` must have .* bytes"),
        ({"features": [bytes(16)], "doc_id": [b"a"]}, "`doc_id` must have .* values"),
    ],
)
def test_parts_that_do_not_fit_are_an_error(features, message):
    good = packed.serialize(np.ones([2, 2]), SPEC)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        read([good, example(**features)])


FLOAT = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))


@pytest.mark.parametrize(
    ("name", "feature", "message"),
    [
        ("features", FLOAT, "`features` must have values of bytes"),
        ("relevance", FLOAT, "`relevance` must have values of bytes"),
        ("texts", FLOAT, "`texts` must have values of bytes"),
        ("features", [bytes(4), bytes(4)], "`features` must be one value of bytes. Received: 2"),
        ("relevance", [b"\0\0", b"\x80\x3f"], "`relevance` must be one value .* Received: 2"),
    ],
)
def test_features_of_another_kind_are_no_items(name, feature, message):
    one = tf.train.Example.FromString(packed.serialize(np.ones([1, 2]), SPEC))
    if isinstance(feature, list):
        feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=feature))
    one.features.feature[name].CopyFrom(feature)
    serialized = tf.constant([one.SerializeToString()])
    spec = SPEC if name != "texts" else FeatureSpec(num_features=0, num_texts=1)
    with pytest.raises(ValueError, match=message):
        packed.items(serialized, spec)
    with pytest.raises(tf.errors.InvalidArgumentError, match=name):
        packed.parse(serialized, spec)


def test_items_are_read_from_a_tensor_and_an_unset_feature_is_absent():
    one = tf.train.Example.FromString(packed.serialize(np.ones([1, 2]), SPEC))
    one.features.feature["relevance"].SetInParent()
    serialized = tf.constant([one.SerializeToString()])
    np.testing.assert_array_equal(
        packed.items(serialized, SPEC).labels, read(serialized)["relevance"][0]
    )


@pytest.mark.parametrize("name", ["labels", "doc_ids"])
@pytest.mark.parametrize("serialize", [packed.serialize, elwc.serialize])
def test_parts_of_another_shape_are_not_written(serialize, name):
    with pytest.raises(ValueError, match=rf"`{name}` must have length 2. Received: shape \(2, 3\)"):
        serialize(np.ones([2, 2]), SPEC, **{name: np.ones([2, 3])})


def test_bytes_that_are_no_list_are_an_error():
    with pytest.raises(tf.errors.InvalidArgumentError):
        read([b"\x0a\x7f"])


@pytest.mark.parametrize("change", [{"features": np.ones([2, 3])}, {"labels": [1.0]}])
def test_sizes_must_agree(change):
    with pytest.raises(ValueError, match=r"must have .*Received"):
        packed.serialize(**{"features": np.ones([2, 2]), "spec": SPEC, **change})


def test_eager_equals_graph_equals_tf_data():
    data = [packed.serialize(np.ones([n, 2]), SPEC, labels=np.ones(n)) for n in (1, 3, 0)]
    eager = read(data)
    graph = tf.function(read, input_signature=[tf.TensorSpec([None], tf.string)])
    dataset = tf.data.Dataset.from_tensor_slices(data).batch(3).map(read)

    assert dataset.element_spec["features"].shape.as_list() == [None, None, 2]
    for other in (graph(tf.constant(data)), next(iter(dataset))):
        for name, value in eager.items():
            np.testing.assert_array_equal(other[name], value)


@settings(max_examples=20, deadline=None)
@given(st.lists(lists(), max_size=4))
def test_sizes_are_told_with_labels_and_without(batch):
    serialized = tf.constant([packed.serialize(spec=SPEC, **one) for one in batch], tf.string)
    sizes = [len(one["features"]) for one in batch]
    assert packed.list_sizes(serialized, SPEC).numpy().tolist() == sizes
