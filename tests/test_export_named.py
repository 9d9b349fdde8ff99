import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests import stock_server
from tfrank_sel import export
from tfrank_sel.data import ListFeatures, parsing, writing

FEATURES = ListFeatures(
    items={
        "price": tf.io.FixedLenFeature([], tf.float32),
        "shape": tf.io.FixedLenFeature([2], tf.float32, [0.5, 0.5]),
        "brand": tf.io.FixedLenFeature([], tf.string, ""),
    },
    context={
        "query": tf.io.FixedLenFeature([], tf.string, ""),
        "age": tf.io.FixedLenFeature([], tf.int64, 0),
    },
)


def feature(value):
    if isinstance(value, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
    if isinstance(value, int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(value)))


def example(**values):
    features = tf.train.Features(feature={k: feature(v) for k, v in values.items()})
    return tf.train.Example(features=features).SerializeToString()


def written(items, **context):
    parts = [writing.field(1, example(**item)) for item in items]
    return b"".join([*parts, writing.field(2, example(**context))])


LISTS = [
    written(
        [
            {"price": 2.0, "brand": b"acme", "shape": [1.0, 3.0], "doc_id": b"a"},
            {"price": 1.0, "brand": b"nobody", "doc_id": b"b"},
            {"price": 4.0, "brand": b"zeta", "doc_id": b"c"},
        ],
        query=b"shoes",
        age=30,
    ),
    written([{"price": 3.0, "brand": b"zeta"}], query=b"other"),
]


def ranker(vocabulary):
    """Strings through a vocabulary in a file and one in the model, integers through another."""
    layers = keras.layers
    keras.utils.set_random_seed(5)
    price, shape = keras.Input([None], name="price"), keras.Input([None, 2], name="shape")
    brand = keras.Input([None], dtype="string", name="brand")
    query = keras.Input([], dtype="string", name="query")
    age = keras.Input([], dtype="int64", name="age")
    brands = layers.Embedding(4, 3)(layers.StringLookup(vocabulary=str(vocabulary))(brand))
    queries = layers.Embedding(3, 3)(layers.StringLookup(vocabulary=["shoes", "hats"])(query))
    ages = layers.Embedding(3, 3)(layers.IntegerLookup(vocabulary=[30, 40])(age))
    whole = layers.Reshape([1, 3])(layers.Add()([queries, ages]))
    item = layers.Concatenate()([layers.Reshape([-1, 1])(price), shape, brands * whole])
    scores = layers.Reshape([-1])(layers.Dense(1)(item))
    inputs = {x.name: x for x in (price, shape, brand, query, age)}
    return keras.Model(inputs, scores)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The model, and its export where nothing else is left of the place it was made."""
    made = tmp_path_factory.mktemp("made")
    (made / "brands.txt").write_text("acme\nzeta\n")
    model = ranker(made / "brands.txt")
    export.export(model, FEATURES, made / "model", examples=LISTS)
    path = tmp_path_factory.mktemp("moved") / "1"
    shutil.move(made / "model", path)
    shutil.rmtree(made)
    return model, path


@pytest.fixture(scope="module")
def signatures(exported):
    return tf.saved_model.load(str(exported[1])).signatures


def wanted(model, lists):
    parsed = parsing.parse_elwc(tf.constant(lists), FEATURES)
    names = [*FEATURES.items, *FEATURES.context]
    scores = model({name: parsed[name] for name in names}).numpy()
    return np.where(parsed["mask"], scores, export.PADDING_SCORE), parsed


def test_lists_of_named_features_are_scored_and_ranked(exported, signatures):
    scores, parsed = wanted(exported[0], LISTS)
    examples = tf.constant(LISTS)

    served = signatures["serving_default"](examples=examples)
    ranked = signatures["rank_top_k"](examples=examples, k=tf.constant(2))

    np.testing.assert_allclose(served["scores"], scores, atol=1e-6)
    np.testing.assert_array_equal(served["mask"], parsed["mask"])
    order = np.argsort(-scores[0])[:2]
    assert ranked["doc_ids"][0].numpy().tolist() == [[b"a", b"b", b"c"][i] for i in order]
    assert ranked["ranks"].numpy().tolist() == [[1, 2], [1, 0]]


def test_dense_requests_have_an_input_for_each_feature(exported, signatures):
    scores, parsed = wanted(exported[0], LISTS)
    names = [*FEATURES.items, *FEATURES.context, "mask"]

    served = signatures["predict"](**{name: parsed[name] for name in names})

    np.testing.assert_allclose(served["scores"], scores, atol=1e-6)
    np.testing.assert_array_equal(served["mask"], parsed["mask"])


def test_features_of_items_are_explained(exported, signatures):
    scores, parsed = wanted(exported[0], LISTS[:1])
    names = [*FEATURES.items, *FEATURES.context, "mask"]
    dense = {name: parsed[name] for name in names}

    served = signatures["explain"](**dense, pair=tf.constant([[2, 0]]))

    assert served["features"].numpy().tolist() == [[b"price", b"shape", b"brand"]]
    assert np.all(np.abs(served["contributions"]) > 0.0)
    total = float(tf.reduce_sum(served["contributions"]))
    assert total == pytest.approx(scores[0, 2] - scores[0, 0], abs=1e-5)


def test_an_item_is_regressed_with_its_query(exported, signatures):
    scores, _ = wanted(exported[0], LISTS)
    items, context, _ = parsing.split(tf.constant(LISTS))

    served = signatures["regress"](inputs=tf.strings.join([context[0], items[0]]))["outputs"]

    np.testing.assert_allclose(served, scores[0], atol=1e-6)


@pytest.mark.long
def test_a_server_without_xla_runs_every_signature_and_finds_the_vocabularies(exported, signatures):
    model, path = exported
    answers = stock_server.answers(path)

    assert "acme" in "".join(file.read_text() for file in (path / "assets").iterdir())
    assert {name for name, _ in answers} == set(signatures)
    # each list alone, and both; one explanation
    assert len(answers) == 3 * (len(signatures) - 1) + 1
    for name, scores in answers:
        if name in ("serving_default", "predict") and len(scores) == 2:
            np.testing.assert_allclose(scores, wanted(model, LISTS)[0], atol=1e-6)


def test_the_manifest_tells_the_features(exported):
    manifest = json.loads((exported[1] / "assets.extra" / "manifest.json").read_text())

    assert manifest["features"]["items"]["shape"] == {
        "kind": "FixedLenFeature",
        "dtype": "float32",
        "shape": [2],
        "has_default": True,
    }
    assert list(manifest["features"]["context"]) == ["query", "age"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ({"price": float("nan")}, "`price` must be finite"),
        ({"brand": b"acme"}, "price"),
        ({"price": 1.0, "shape": [1.0]}, "shape"),
    ],
)
def test_bad_features_are_named(signatures, item, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures["serving_default"](examples=tf.constant([written([item])]))


class CountX(keras.Model):
    """Counts the word x of each item."""

    def call(self, inputs):
        return tf.reduce_sum(tf.cast(inputs["words"] == "x", tf.float32), axis=2).to_tensor()


def test_features_of_any_number_have_no_dense_request(tmp_path):
    model = CountX()
    model.built = True
    features = ListFeatures({"words": tf.io.RaggedFeature(tf.string)})
    export.export(model, features, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures

    lists = tf.constant([written([{"words": b"x"}, {"words": b"y"}])])
    scores = signatures["serving_default"](examples=lists)["scores"]
    assert scores.numpy().tolist() == [[1.0, 0.0]]
    assert "predict" not in signatures
