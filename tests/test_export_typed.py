"""A model of typed features serves what it was trained on, type by type."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.data import example_writers
from tests.models import test_types as trial
from tfrank_sel import data, export, features as types, models
from tfrank_sel.data import spec, typed, writing
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import ItemList

LISTS = 6


@pytest.fixture(scope="module")
def lists():
    """Lists as readers give them, with values of all kinds missing."""
    random = np.random.default_rng(0)
    words = {"brand": ["acme", "bolt", "who"], "device": ["phone", "tv"], "seller": ["s1", "s2"]}
    found = []
    for query in range(LISTS):
        size = int(random.integers(1, 9))
        numbers = random.normal(size=[size, trial.NUMBERS]).astype(np.float32) * 30.0
        numbers[:, 2] = random.random(size) > 0.5
        numbers[:, 5:7] = np.stack(
            [random.integers(15_000, 20_000, size), random.integers(0, 86_400, size)], 1
        )
        numbers[:, 7:] = 20_001, 3_600 * query
        numbers[random.random(size) < 0.3, 0] = np.nan
        numbers[random.random(size) < 0.3, 1] = np.nan
        numbers[random.random(size) < 0.3, 2] = np.nan
        numbers[random.random(size) < 0.3, 3:5] = np.nan
        numbers[random.random(size) < 0.3, 5:7] = np.nan
        rows = []
        for _ in range(size):
            pick = {name: random.choice([*values, ""]) for name, values in words.items()}
            tags = [*random.permutation(["a", "b", "c"])[: random.integers(0, 4)]]
            colours = [*random.permutation(["red", "blue"])[: random.integers(0, 3)]]
            padded = [*tags, *[""] * (3 - len(tags)), *colours, *[""] * (2 - len(colours))]
            rows.append([pick["brand"], pick["device"], *padded, pick["seller"]])
        ids = tuple(f"{query}-{i}" for i in range(size))
        texts = np.array(rows, object).reshape(size, trial.TEXTS)
        found.append(ItemList(str(query), np.zeros(size, np.float32), numbers, ids, texts))
    return found


def built(model, numbers, texts):
    lists = (None, None)
    model.build({"features": (*lists, numbers), "texts": (*lists, texts), "mask": lists})
    return model


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    layer = trial.preparation(True)
    made = trial.network(layer)
    made.build(
        {
            "features": (None, None, trial.NUMBERS),
            "texts": (None, None, trial.TEXTS),
            "mask": (None, None),
        }
    )
    for weight in made.weights:  # embeddings begin near 0
        weight.assign(tf.random.stateless_normal(weight.shape, [1, 2]))
    return made


@pytest.fixture(scope="module")
def examples(lists):
    named = typed.list_features(trial.FEATURES, "doc_id")
    return [
        writing.serialize_elwc({**typed.values(one, trial.FEATURES), "doc_id": one.doc_ids}, named)
        for one in lists
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, model, examples):
    path = tmp_path_factory.mktemp("typed") / "model"
    export.export(model, trial.FEATURES, path, examples=examples[:2])
    return path


@pytest.fixture(scope="module")
def signatures(folder):
    return tf.saved_model.load(str(folder)).signatures


def alone(model, one):
    """The scores of a list by the model, of the matrices that it was trained on."""
    batch = trial.inputs(one.features.tolist(), one.texts.tolist())
    return model(batch).numpy()[0]


@pytest.mark.long
def test_a_server_scores_as_training_did_to_the_last_bit(model, lists, examples, signatures):
    for one, example in zip(lists, examples, strict=True):
        served = signatures["serving_default"](examples=tf.constant([example]))
        np.testing.assert_array_equal(served["scores"].numpy()[0], alone(model, one))


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", trial.FEATURES)
def test_each_type_matters_and_is_served_as_it_was_trained(name, model, lists, signatures):
    """Only one feature differs between the items of each list."""
    kinds = trial.FEATURES
    named = typed.list_features(kinds, "doc_id")
    place = next(i for i, x in enumerate(kinds) if x == name)
    width = [len(f.numbers(x)) for x, f in kinds.items()]
    count = [len(f.texts(x)) for x, f in kinds.items()]
    rows = slice(sum(width[:place]), sum(width[: place + 1]))
    words = slice(sum(count[:place]), sum(count[: place + 1]))
    seen = set()
    for one in lists:
        numbers = np.repeat(lists[0].features[:1], len(one.labels), axis=0)
        texts = np.repeat(lists[0].texts[:1], len(one.labels), axis=0)
        numbers[:, rows], texts[:, words] = one.features[:, rows], one.texts[:, words]
        numbers[:, 5:7] = (19_000, 5) if name == "shown" else numbers[:, 5:7]
        made = ItemList("q", one.labels, numbers, one.doc_ids, texts)
        values = {**typed.values(made, kinds), "doc_id": made.doc_ids}
        example = writing.serialize_elwc(values, named)
        served = signatures["serving_default"](examples=tf.constant([example]))
        scores = alone(model, made)
        np.testing.assert_array_equal(served["scores"].numpy()[0], scores)
        seen |= {*scores.tolist()}
    assert len(seen) > 1


def test_dense_requests_score_alike(examples, signatures):
    together = tf.constant(examples)
    expected = signatures["serving_default"](examples=together)
    dense = export.dense_inputs(together, trial.FEATURES)
    found = signatures["predict"](**dense)
    np.testing.assert_allclose(found["scores"], expected["scores"], rtol=1e-5)
    assert dense["tags"].shape[2] == 3
    assert dense["shown"].shape.rank == 1


def test_an_item_alone_scores_as_a_list_of_one(model, lists, signatures):
    kinds = trial.FEATURES
    named = typed.list_features(kinds)
    items = []
    for one in lists:
        first = ItemList("q", one.labels[:1], one.features[:1], one.doc_ids[:1], one.texts[:1])
        items.append(example_writers.one_item_example(typed.values(first, kinds), named))
        expected = alone(model, first)[0]
        found = signatures["regress"](inputs=tf.constant(items[-1:]))["outputs"].numpy()
        np.testing.assert_array_equal(found, [expected])


def test_the_manifest_and_the_assets_tell_what_the_model_takes(folder):
    manifest = json.loads((folder / "assets.extra" / "manifest.json").read_text())
    told = manifest["features"]["types"]
    assert {name: types.of_config(config) for name, config in told.items()} == trial.FEATURES
    assert list(told) == list(trial.FEATURES)
    files = {path.name: path.read_text().split() for path in (folder / "assets").iterdir()}
    assert files == {f"{name}.txt": values for name, values in trial.VOCABULARIES.items()}


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("price", float("inf"), "`price` must not be infinite"),
        ("embedding", [float("nan"), float("-inf")], "`embedding` must not be infinite"),
    ],
)
def test_an_infinite_number_is_refused(name, value, message, lists, signatures):
    one = lists[0]
    values = typed.values(one, trial.FEATURES)
    values[name] = [value] * len(one.labels)
    example = writing.serialize_elwc(values, typed.list_features(trial.FEATURES))
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        signatures["serving_default"](examples=tf.constant([example]))


def test_what_may_not_be_missing_is_asked_for(tmp_path):
    kinds = {"price": types.Number(missing="refuse"), "new": types.Bool()}
    model = models.Prepared(
        models.Preparation([0.0] * 2, [1.0] * 2, features=kinds), models.Perceptron([4])
    )
    model.build((None, None, 2))
    export.export(model, kinds, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    lax = data.ListFeatures(
        {
            "price": tf.io.FixedLenFeature([], tf.float32, 0.0),
            "new": tf.io.FixedLenFeature([], tf.float32, 0.0),
        }
    )
    good = writing.serialize_elwc({"price": [1.0, 2.0], "new": [1.0, None]}, lax)
    assert signatures["serving_default"](examples=tf.constant([good]))["scores"].shape == (1, 2)
    bad = writing.serialize_elwc({"price": [1.0, None], "new": [1.0, 0.0]}, lax)
    with pytest.raises(tf.errors.InvalidArgumentError, match="price"):
        signatures["serving_default"](examples=tf.constant([bad]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`price` must be finite"):
        signatures["predict"](price=[[1.0, np.nan]], new=[[0.0, 1.0]], mask=[[True]])


@pytest.mark.long
def test_integers_are_served_as_the_texts_that_they_were_trained_as(tmp_path):
    kinds = {
        "x": types.Number(),
        "shop": types.Category(dtype="int64"),
        "of": types.Set(dtype="int64", max_values=2),
    }
    layer = models.Preparation(
        [0.0], [1.0], features=kinds, vocabularies={"shop": ["7", "-3"], "of": ["5"]}
    )
    model = built(trial.network(layer), 1, 3)
    export.export(model, kinds, tmp_path / "model")
    signatures = tf.saved_model.load(str(tmp_path / "model")).signatures
    values = {"x": [0.0] * 4, "shop": [7, -3, None, 9], "of": [[5, 6], [], [5], None]}
    example = writing.serialize_elwc(values, typed.list_features(kinds))
    texts = np.array([["7", "5", "6"], ["-3", "", ""], ["", "5", ""], ["9", "", ""]], object)
    one = ItemList("q", np.zeros(4), np.zeros([4, 1], np.float32), tuple("abcd"), texts)
    served = signatures["serving_default"](examples=tf.constant([example]))["scores"].numpy()[0]
    np.testing.assert_array_equal(served, alone(model, one))
    assert typed.values(one, kinds) == {**values, "of": [[5, 6], [], [5], []]}
    assert len(set(served.tolist())) == 4


def test_lines_of_a_list_are_what_its_values_are(lists):
    lines = [json.loads(line) for line in typed.text(lists[0], trial.FEATURES).splitlines()]
    assert [line.pop("doc_id") for line in lines] == [*lists[0].doc_ids]
    values = typed.values(lists[0], trial.FEATURES)
    for name, found in values.items():
        of_query = trial.FEATURES[name].of == "query"
        assert [line[name] for line in lines] == ([found] * len(lines) if of_query else found)


def test_a_layout_names_the_columns_of_both_matrices():
    layout = Schema(trial.FEATURES)
    assert (len(layout.names), len(layout.texts)) == (trial.NUMBERS, trial.TEXTS)


@pytest.mark.long
def test_names_that_differ_by_case_are_different_inputs(tmp_path):
    named = dict.fromkeys(["ctr", "CTR", "Mask", "mask_", "Ctr Ä"], types.Number(missing=0.0))
    preparation = models.Preparation([0.0] * 5, [1.0] * 5, features=named)
    ranker = models.Prepared(preparation, models.Perceptron([2]))
    ranker({"features": tf.zeros([1, 2, 5]), "mask": tf.ones([1, 2], bool)})
    export.export(ranker, named, tmp_path / "m")
    names = spec.input_names(named)
    assert [spec.of_input_name(x) for x in names.values()] == [*named]
    signature = tf.saved_model.load(str(tmp_path / "m")).signatures["predict"]
    assert {*names.values(), "mask"} == set(signature.structured_input_signature[1])
