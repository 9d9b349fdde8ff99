"""A warm start: weights belong to features and values by name, whatever else is new."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import features as types, models
from tfrank_sel.models.preparation import column_names

RNG = np.random.default_rng(0)
OLD = {
    "price": types.Number(),
    "rating": types.Number(within_list=False),
    "brand": types.Category(out_of_vocabulary=2, dimension=3),
    "device": types.Category(encoding="one_hot"),
    "tags": types.Set(max_values=2, dimension=2),
    "seller": types.Hash(buckets=5, dimension=2, encoding="one_hot"),
}
NEW = {
    "age": types.Number(),
    "kind": types.Category(dimension=2),
    **dict(reversed(OLD.items())),
    "city": types.Hash(buckets=3),
}
VALUES = {"brand": ["acme", "bolt"], "device": ["phone", "tv"], "tags": ["a", "b"]}
GROWN = {**{name: [*x, "new"] for name, x in VALUES.items()}, "kind": ["k"]}


def of_types(kinds, vocabularies, missing):
    known = {"price": (0.3, 2.0), "rating": (1.0, 0.5), "age": (3.0, 1.0)}
    mean, variance = zip(*(known[name] for name in column_names(kinds)), strict=True)
    return models.Preparation(mean, variance, True, kinds, vocabularies, missing)


def table(size=(2, 6)):
    """Values of all features, for two lists of six items."""
    found = {name: RNG.normal(2.0, 3.0, size) for name in ("price", "rating", "age")}
    found["price"][0, 1] = np.nan
    words = {"brand": ["acme", "bolt", "x", "y", ""], "device": ["tv", "phone", "z", ""]}
    words |= {"tags[1]": ["a", "b", "c"], "tags[2]": ["a", "b", ""], "seller": ["s", "t", ""]}
    words |= {"kind": ["k", ""], "city": ["c", "d"]}
    return found | {name: RNG.choice(x, size) for name, x in words.items()}


def inputs(kinds, values):
    columns = [
        [x for name, kind in kinds.items() for x in getattr(kind, part)(name)]
        for part in ("numbers", "texts")
    ]
    numbers, texts = (np.stack([values[name] for name in names], axis=-1) for names in columns)
    mask = tf.sequence_mask([6, 4], 6)
    return {"features": tf.constant(numbers, tf.float32), "texts": texts, "mask": mask}


def prepared(preparation, **options):
    network = models.Perceptron(embeddings=preparation.embeddings, **options)
    model = models.Prepared(preparation, network)
    shape = [None, None, preparation.num_features]
    model.build({"features": shape, "mask": shape[:2], "texts": shape})
    # biases of 0 would be equal of themselves
    model.network.set_weights([RNG.normal(size=x.shape) for x in network.get_weights()])
    return model


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "options",
    [
        {"hidden_units": [8, 4], "dropout": 0.2},
        {"hidden_units": [4], "num_heads": 2},
        {"hidden_units": []},
    ],
    ids=["hidden", "attention", "linear"],
)
def test_scores_stay_when_features_values_and_indicators_are_new(options):
    before = prepared(of_types(OLD, VALUES, ["price"]), **options)
    after = prepared(of_types(NEW, GROWN, ["rating", "price", "age"]), **options)
    values = table()
    expected = before(inputs(OLD, values)).numpy()
    assert not np.allclose(after(inputs(NEW, values)), expected, atol=1e-2)
    initial = after.network.get_weights()[1]
    models.warm_start(after, before)
    np.testing.assert_allclose(after(inputs(NEW, values)), expected, atol=1e-6, rtol=1e-6)
    tags, known = after.network.get_weights()[1], before.network.get_weights()[1]
    np.testing.assert_array_equal(tags, [*known, initial[-1]])  # of the value that is new


def test_what_is_no_longer_there_is_left_out():
    before = prepared(of_types(NEW, GROWN, ["price"]), hidden_units=[8])
    after = prepared(of_types(OLD, VALUES, []), hidden_units=[8])
    models.warm_start(after, before)
    kernel, kernel_before = after.network.get_weights()[2], before.network.get_weights()[4]
    names, names_before = after.preparation.names, before.preparation.names
    for row, name in zip(kernel, names, strict=False):
        np.testing.assert_array_equal(row, kernel_before[names_before.index(name)])
    np.testing.assert_array_equal(
        after.network.get_weights()[0], before.network.get_weights()[2][:5]
    )


def test_an_embedding_of_another_size_or_hash_starts_anew():
    changed = {**OLD, "brand": types.Category(dimension=4), "seller": types.Hash(buckets=7)}
    before = prepared(of_types(OLD, VALUES, []), hidden_units=[8])
    after = prepared(of_types(changed, VALUES, []), hidden_units=[8])
    initial = after.network.get_weights()
    models.warm_start(after, before)
    brand, tags, seller, kernel, *_ = after.network.get_weights()
    np.testing.assert_array_equal(brand, initial[0])
    np.testing.assert_array_equal(tags, before.network.get_weights()[1])
    np.testing.assert_array_equal(seller, initial[2])
    numbers = len(after.preparation.names)
    assert not kernel[numbers : numbers + 4].any()
    assert kernel[numbers + 4 : numbers + 6].all()
    assert not kernel[numbers + 6 :].any()


def test_an_ensemble_starts_member_by_member():
    def ensemble(count, members=2):
        preparation = models.Preparation([0.1] * count, [2.0] * count, within_list=True)
        networks = [models.Perceptron([4]) for _ in range(members)]
        model = models.Prepared(preparation, models.Ensemble(networks))
        model.build([None, None, count])
        return model

    before, after = ensemble(2), ensemble(3)
    features = RNG.normal(size=[2, 5, 3]).astype(np.float32)
    models.warm_start(after, before)
    expected = before(tf.constant(features[..., :2]))
    np.testing.assert_allclose(after(tf.constant(features)), expected, atol=1e-6)
    with pytest.raises(ValueError, match=r"the same number of members\. Received: 3 and 2 members"):
        models.warm_start(ensemble(3, members=3), before)


def of_a_user(units=3, layers=1):
    model = keras.Sequential([keras.layers.Dense(units) for _ in range(layers)])
    model.build([None, None, 2])
    return model


def test_of_any_model_all_weights_are_copied():
    before, after = of_a_user(), of_a_user()
    models.warm_start(after, before)
    for one, other in zip(after.get_weights(), before.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("make", "before", "message"),
    [
        (of_a_user, lambda: of_a_user(4), r"kernel.* must have shape \(2, 3\). Received: \(2, 4\)"),
        (of_a_user, lambda: of_a_user(3, 2), "weights of `model`, 2. Received: 4"),
        (
            lambda: prepared(of_types(OLD, VALUES, []), hidden_units=[8]),
            lambda: prepared(of_types(NEW, GROWN, []), hidden_units=[4]),
            r"kernel.* must have shape \(\d+, 8\). Received: \(\d+, 4\)",
        ),
    ],
    ids=["shape", "count", "units"],
)
def test_what_does_not_fit_is_named_and_changes_nothing(make, before, message):
    model = make()
    kept = model.get_weights()
    with pytest.raises(ValueError, match=message):
        models.warm_start(model, before())
    for one, other in zip(model.get_weights(), kept, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("is_prepared", [True, False])
def test_scores_stay_in_other_units(is_prepared):
    units, values = ({"scale": 30.0, "shift": 7.0}, {"scale": 0.5, "shift": -2.0}), table()
    preparation = of_types(OLD, VALUES, [])
    before, after = (prepared(preparation, hidden_units=[4], **x) for x in units)
    expected = before(inputs(OLD, values))
    models.warm_start(*((x if is_prepared else x.network) for x in (after, before)))
    np.testing.assert_allclose(after(inputs(OLD, values)), expected, rtol=1e-5, atol=1e-5)
