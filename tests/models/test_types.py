"""Features of each type: what a network gets of them."""

import datetime
import itertools
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import data, features as types, losses, models
from tfrank_sel.models.preparation import column_names
from tfrank_sel.models.summary import by_feature, vocabulary

NAN = float("nan")
FEATURES = {
    "price": types.Number(),
    "rating": types.Number(missing=3.0, within_list=False),
    "new": types.Bool(),
    "embedding": types.Vector(size=2),
    "published": types.Timestamp(since="shown", parts=True),
    "shown": types.Timestamp(of="query"),
    "brand": types.Category(out_of_vocabulary=2, dimension=3),
    "device": types.Category(encoding="one_hot"),
    "tags": types.Set(max_values=3, dimension=2),
    "colours": types.Set(max_values=2, encoding="one_hot"),
    "seller": types.Hash(buckets=7, dimension=4),
}
NUMBERS = sum(len(f.numbers(name)) for name, f in FEATURES.items())
TEXTS = sum(len(f.texts(name)) for name, f in FEATURES.items())
VOCABULARIES = {
    "brand": ["acme", "bolt"],
    "device": ["phone", "tv"],
    "tags": ["a", "b"],
    "colours": ["red", "blue"],
}


def preparation(within_list=False, **options):
    count = len(column_names(FEATURES))
    arguments = {"vocabularies": VOCABULARIES, "missing": ["price", "embedding"], **options}
    return models.Preparation([0.0] * count, [1.0] * count, within_list, FEATURES, **arguments)


def inputs(numbers, texts):
    mask = np.ones([1, len(numbers)], bool)
    return {
        "features": tf.constant([numbers], tf.float32),
        "texts": tf.constant([texts]),
        "mask": tf.constant(mask),
    }


ITEM = [2.0, NAN, 1.0, 0.5, -0.5, 19_675.0, 43_200.0, 19_676.0, 0.0]
OTHER = [NAN, 4.0, NAN, NAN, NAN, NAN, NAN, 19_676.0, 0.0]
WORDS = ["bolt", "phone", "a", "b", "", "blue", "red", "s1"]
NONE = [""] * TEXTS


def test_a_network_gets_each_type_as_its_formula_says():
    found = preparation()(inputs([ITEM, OTHER], [WORDS, NONE]))["features"].numpy()[0]
    log = lambda x: np.sign(x) * np.log1p(np.abs(x))  # noqa: E731
    week = 2.0 * np.pi * 1.5 / 7.0  # noon of 2023-11-14, a Tuesday
    columns = [2.0, 3.0, 1.0, 0.5, -0.5, 0.5, 0.0, -1.0, np.sin(week), np.cos(week)]
    numbers, rest = np.split(found, [len(columns)], axis=1)
    np.testing.assert_allclose(numbers[0], log(np.array(columns)), atol=1e-6)
    np.testing.assert_allclose(numbers[1], log(np.array([0, 4.0] + [0] * 8)), atol=1e-6)
    indicators, device, colours, ids = np.split(rest, [2, 6, 10], axis=1)
    assert indicators.tolist() == [[0.0, 0.0], [1.0, 1.0]]
    assert device.tolist() == [[0, 0, 1, 0], [1, 0, 0, 0]]
    assert colours.tolist() == [[0, 0, 1, 1], [1, 0, 0, 0]]
    assert ids[0, :4].tolist() == [4.0, 2.0, 3.0, 0.0]  # bolt; a, b
    assert 1.0 <= ids[0, 4] <= 7.0
    assert ids[1].tolist() == [0.0] * 5
    assert preparation().embeddings == [[1, 5, 3], [3, 4, 2], [1, 8, 4]]
    assert found.shape[1] == preparation().width


def test_the_day_of_the_week_begins_on_monday():
    for day in range(7):
        moment = datetime.datetime(2024, 1, 1 + day, tzinfo=datetime.UTC)  # a Monday
        days = moment.timestamp() / 86_400
        item = [*ITEM[:5], days, 0.0, 19_676.0, 0.0]
        found = preparation()(inputs([item], [NONE]))["features"].numpy()[0, 0]
        angle = 2.0 * np.pi * moment.weekday() / 7.0
        np.testing.assert_allclose(
            np.expm1(np.abs(found[8])) * np.sign(found[8]), np.sin(angle), atol=1e-6
        )
        np.testing.assert_allclose(
            np.expm1(np.abs(found[9])) * np.sign(found[9]), np.cos(angle), atol=1e-6
        )


def test_a_value_that_is_unknown_is_not_one_that_is_missing():
    brand = lambda text: preparation()(inputs([ITEM], [[text, *NONE[1:]]]))["features"][0, 0, -5]  # noqa: E731
    ids = {text: int(brand(text)) for text in ("", "acme", "bolt", "other", "another", "x", "y")}
    assert (ids[""], ids["acme"], ids["bolt"]) == (0, 3, 4)
    assert {ids[text] for text in ("other", "another", "x", "y")} == {1, 2}


@pytest.mark.parametrize("within_list", [False, True])
def test_padding_and_other_lists_change_nothing(within_list):
    layer = preparation(within_list)
    both = layer(inputs([ITEM, OTHER], [WORDS, NONE]))["features"].numpy()[0]
    padded = {
        "features": tf.constant([[ITEM, OTHER, [NAN] * NUMBERS], [OTHER] * 3], tf.float32),
        "texts": tf.constant([[WORDS, NONE, WORDS], [NONE] * 3]),
        "mask": tf.constant([[True, True, False], [True] * 3]),
    }
    np.testing.assert_array_equal(layer(padded)["features"].numpy()[0, :2], both)


def test_standing_is_of_the_features_whose_type_says_so():
    plain, standing = (preparation(within).width for within in (False, True))
    assert standing - plain == 2 * (1 + 5)  # price; age and parts of the timestamp


def network(layer):
    return models.Prepared(layer, models.Perceptron([8], embeddings=layer.embeddings))


def test_a_model_of_all_types_is_saved_with_its_vocabularies(tmp_path):
    model = network(preparation(True))
    batch = inputs([ITEM, OTHER], [WORDS, NONE])
    scores = model(batch).numpy()
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(batch), scores)
    assert loaded.preparation.get_config() == model.preparation.get_config()


@pytest.mark.long
@pytest.mark.parametrize(("jit_compile", "policy"), [(False, "float32"), (True, "mixed_bfloat16")])
def test_a_network_learns_what_a_category_is_worth(jit_compile, policy):
    kinds = {"x": types.Number(), "brand": types.Category(), "tags": types.Set(max_values=2)}
    random = np.random.default_rng(0)
    brands = random.integers(0, 300, [64, 10])  # integers that float16 and bfloat16 do not hold
    worth = random.normal(size=300)
    labels = (worth[brands] > 0.5).astype(np.float32)
    texts = np.stack([np.char.add("b", brands.astype(str)), *[np.full([64, 10], "")] * 2], -1)
    batch = {
        "features": tf.constant(random.normal(size=[64, 10, 1]), tf.float32),
        "texts": tf.constant(texts),
        "mask": tf.ones([64, 10], bool),
    }
    vocabulary_of = [f"b{i}" for i in range(300)]
    layer = models.Preparation([0.0], [1.0], False, kinds, {"brand": vocabulary_of, "tags": ["t"]})
    keras.utils.set_random_seed(0)
    prepared = layer(batch)
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(policy)
    try:
        model = models.Perceptron([16], embeddings=layer.embeddings)
        model.compile(keras.optimizers.Adam(0.05), losses.SoftmaxLoss(), jit_compile=jit_compile)
        model.fit(prepared, labels, epochs=30, batch_size=64, verbose=0)
    finally:
        keras.mixed_precision.set_global_policy(before)
    scores = model(prepared).numpy()
    assert scores[labels > 0].mean() > scores[labels == 0].mean() + 2.0


def test_a_preparation_of_a_dataset_knows_its_moments_and_vocabularies():
    rows = np.array([ITEM, OTHER, ITEM], np.float32)
    texts = np.array([WORDS, WORDS, NONE], object)
    batch = inputs(rows.tolist(), texts.tolist())
    made = {name: of_any_count(feature) for name, feature in FEATURES.items()}
    found = models.Preparation.of([(batch, None)], made, within_list=False)
    assert found.missing == ["price", "new", "embedding", "published"]
    assert found.vocabularies["brand"] == ["bolt"]
    assert found.vocabularies["colours"] == ["blue", "red"]
    prices = np.log1p([2.0, 2.0])
    assert found.mean[0] == pytest.approx(prices.mean())
    assert found.variance[0] == 0.0
    assert found.mean[1] == pytest.approx(np.log1p([3.0, 4.0, 3.0]).mean())


def of_any_count(feature):
    """The type, with values that occur once in its vocabulary."""
    return (
        types.of_config({**feature.config(), "min_count": 1})
        if isinstance(feature, types.Category)
        else feature
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocabularies": {**VOCABULARIES, "brand": []}}, "vocabulary of 'brand'"),
        ({"vocabularies": {**VOCABULARIES, "tags": ["a\nb"]}}, "vocabulary of 'tags'"),
        ({"vocabularies": None}, "vocabulary of 'brand'"),
    ],
)
def test_a_vocabulary_that_cannot_be_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        preparation(**options)


def test_moments_are_one_for_each_number_of_a_network():
    with pytest.raises(ValueError, match=r"published\[age\].*Received: 2 values"):
        models.Preparation([0.0, 0.0], [1.0, 1.0], features=FEATURES, vocabularies=VOCABULARIES)


def test_a_vocabulary_has_the_most_frequent_values_without_line_breaks():
    texts = np.array([["b"], ["b"], ["a"], ["a"], ["c"], ["x\ny"], ["x\ny"], [""]], object)
    counts = by_feature(texts, {"word": types.Category()})["word"]
    assert counts[""] == 1
    assert vocabulary(counts, types.Category(min_count=2)) == ["a", "b"]
    assert vocabulary(counts, types.Category(min_count=1, max_size=1)) == ["a"]


def test_a_set_without_values_is_counted_as_missing_once():
    texts = np.array([["a", "b"], ["a", ""], ["", ""]], object)
    counts = by_feature(texts, {"tags": types.Set(max_values=2)})["tags"]
    assert dict(counts) == {"a": 2, "b": 1, "": 1}


@pytest.mark.parametrize("config", [f.config() for f in FEATURES.values()], ids=list(FEATURES))
def test_a_type_is_what_its_config_says(config):
    assert types.of_config(config).config() == config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("categry", "Did you mean 'category'.*Received: 'categry'"),
        ({"type": "hash", "bucket": 3}, "'hash' takes buckets.*Received: bucket"),
        ({"type": "vector"}, "requires size"),
        ({"type": "vector", "size": 0}, "`size` must be positive"),
        ({"type": "number", "missing": "zero"}, "`missing` must be 'mean'"),
        ({"type": "timestamp", "missing": 0.0}, "`missing` must be 'mean' or 'refuse'"),
        ({"type": "bool", "of": "list"}, "`of` must be 'item' or 'query'"),
        ({"type": "category", "encoding": "hot"}, "`encoding` must be"),
        ({"type": "hash", "buckets": 2**24}, r"at most 2\*\*24"),
    ],
)
def test_a_type_that_cannot_be_is_refused(config, message):
    with pytest.raises(ValueError, match=message):
        types.of_config(config)


def test_a_timestamp_is_measured_to_a_timestamp():
    for since in ("price", "nowhere"):
        made = {"price": types.Number(), "at": types.Timestamp(since=since)}
        with pytest.raises(ValueError, match=f"`since` of 'at'.*Received: '{since}'"):
            types.check(made)


def test_all_types_are_tested():
    assert {type(feature) for feature in FEATURES.values()} == set(types.TYPES.values())
    assert len(list(itertools.chain(WORDS))) == TEXTS


@pytest.mark.long
def test_a_dataset_trains_without_a_warning(tmp_path):
    frame = {"q": np.repeat(np.arange(9), 4), "y": np.tile([0.0, 1.0, 0.0, 2.0], 9)}
    frame["x"] = np.random.default_rng(0).normal(size=36)
    made = data.frames.dataset(frame, query="q", label="y", batch_size=4, seed=0)
    path = tmp_path / "lists.tfrecord"
    spec = data.FeatureSpec(1)
    with tf.io.TFRecordWriter(str(path)) as file:
        for one in data.frames.lists(frame, query="q", label="y"):
            file.write(data.packed.serialize(one.features, spec, labels=one.labels))
    inputs = ["features", "mask"]
    read = data.batches([path], spec, batch_size=4, shuffle_buffer=9, seed=0, inputs=inputs)
    model = models.ListScorer([0.0], [1.0], [4])
    model.compile("adam", losses.SoftmaxLoss())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        for dataset in (made, read):
            assert int(dataset.cardinality()) == 3 == len(list(dataset))
            model.fit(dataset, epochs=2, verbose=0, shuffle=False)


def test_a_set_has_the_mean_of_the_vectors_of_its_values():
    model = models.Perceptron([4], embeddings=[(2, 5, 3)])
    sets = np.array([[[3, 0], [3, 3], [0, 0], [3, 4], [4, 3]]], np.float32)
    features = np.concatenate([np.ones([1, 5, 1], np.float32), sets], axis=2)
    model(features)
    for weight in model.weights:
        weight.assign(tf.random.stateless_normal(weight.shape, [1, 2]))
    one, twice, none, *both = model(features)[0].numpy()
    assert one == pytest.approx(twice)
    assert both[0] == pytest.approx(both[1])
    assert len({round(float(x), 4) for x in (one, none, both[0])}) == 3
