"""`models.explain`: exact Shapley values, sums, errors, list effects, bad indices."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.features import Category, Number


def shapley(score, features, item, against):
    """The Shapley values by all subsets, in float64."""
    count = features.shape[-1]
    subsets = list(itertools.product([False, True], repeat=count))
    lists = np.stack([features] * len(subsets))
    lists[:, item] = np.where(subsets, features[item], features[against])
    scores = np.asarray(score(lists), np.float64)
    values = dict(zip(subsets, scores[:, item] - scores[:, against], strict=True))
    found = np.zeros(count)
    for subset in subsets:
        size = sum(subset)
        for k in np.flatnonzero(np.logical_not(subset)):
            weight = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            with_feature = (*subset[:k], True, *subset[k + 1 :])
            found[k] += weight * (values[with_feature] - values[subset])
    return found


def features_of(shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_two_interacting_features_are_exact():
    weights = features_of([5, 5], 1)

    def score(x):
        return tf.einsum("bnk,kl,bnl->bn", x, weights, x)

    x = features_of([6, 5])
    found = models.explain(keras.layers.Lambda(score), x[np.newaxis], 2, 4)
    np.testing.assert_allclose(found.values[0], shapley(score, x, 2, 4), rtol=1e-4, atol=1e-5)
    assert np.all(found.errors[0] < 1e-5)


@pytest.mark.long
@pytest.mark.parametrize("within_list", [False, True])
def test_any_network_is_within_its_errors(within_list):
    keras.utils.set_random_seed(0)
    preparation = models.Preparation([0.0] * 6, [1.0] * 6, within_list=within_list)
    model = models.Prepared(preparation, models.Perceptron([16, 16]))
    x = features_of([7, 6])

    def score(lists):
        return model({"features": lists, "mask": tf.ones(lists.shape[:2], tf.bool)})

    inputs = {"features": tf.constant([x, x]), "mask": tf.ones([2, 7], tf.bool)}
    found = models.explain(model, inputs, [0, 5], [3, 1], pairs=10)
    scores = np.asarray(score(x[np.newaxis]))[0]
    differences = [scores[0] - scores[3], scores[5] - scores[1]]
    np.testing.assert_allclose(tf.reduce_sum(found.values, axis=1), differences, atol=1e-5)
    expected = [shapley(score, x, 0, 3), shapley(score, x, 5, 1)]
    gaps = np.abs(found.values - expected)
    assert np.mean(gaps**2) < 4.0 * np.mean(np.asarray(found.errors) ** 2)
    assert np.mean(gaps) < 0.2 * np.mean(np.abs(expected))


@pytest.mark.long
def test_texts_of_items_and_equal_features():
    features = {"price": Number(missing="mean"), "brand": Category(encoding="one_hot")}
    preparation = models.Preparation(
        [0.0], [1.0], features=features, vocabularies={"brand": ["a", "b"]}
    )
    keras.utils.set_random_seed(0)
    model = models.Prepared(preparation, models.Perceptron([8]))
    inputs = {
        "features": tf.constant([[[1.0], [1.0], [9.0]]]),
        "texts": tf.constant([[["a"], ["b"], [""]]]),
        "mask": tf.constant([[True, True, False]]),
    }
    found = models.explain(model, inputs, 0, 1)
    scores = model(inputs).numpy()[0]
    assert found.values[0, 0] == 0.0
    np.testing.assert_allclose(found.values[0, 1], scores[0] - scores[1], rtol=1e-5)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"(?s)must be indices of items.*\n0, 2"
    ):
        models.explain(model, inputs, 0, 2)
    for index in (-1, 3):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be indices of items"):
            models.explain(model, inputs, index, 0)
    with pytest.raises(ValueError, match=r"`pairs` must be at least 2. Received: 1"):
        models.explain(model, inputs, 0, 1, pairs=1)


@pytest.mark.long
def test_long_lists_are_scored_in_parts(monkeypatch):
    keras.utils.set_random_seed(0)
    model = models.ListScorer([0.0] * 5, [1.0] * 5)
    x = features_of([2, 9, 5])
    whole = models.explain(model, x, 0, 8)
    monkeypatch.setattr(models.explanation, "CELLS", 2 * x[0].size)
    parts = models.explain(model, x, 0, 8)
    np.testing.assert_allclose(parts.values, whole.values, atol=1e-6)
    assert np.abs(whole.values).max() > 1e-3
