"""The contracts of the losses whose items have several scores each."""

import functools
import json
import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import HOLDING_VECTORS, SCORE_VECTORS, Array, Case, name_of
from tfrank_sel import losses

pytestmark = pytest.mark.usefixtures("eagerly")

every_loss = pytest.mark.parametrize("case", SCORE_VECTORS, ids=name_of)

LENGTHS = (4, 1, 3)


def width(case: Case) -> int:
    return case.make().num_scores or 2


def lists(case: Case) -> tuple[list[Array], list[Array], list[Array]]:
    """Labels, score vectors and weights of a few lists of different lengths."""
    rng = np.random.default_rng(0)
    labels = [case.labels(rng, (n,)) for n in LENGTHS]
    scores = [rng.normal(0.0, 1.5, (n, width(case))).round(3) for n in LENGTHS]
    weights = [rng.uniform(0.5, 2.0, n).round(3) for n in LENGTHS]
    return labels, scores, weights


def padded(rows: list[Array], fill: float) -> Array:
    longest = max(LENGTHS)
    return np.array(
        [np.concatenate([r, np.full((longest - len(r), *r.shape[1:]), fill)]) for r in rows]
    )


def batch(case: Case) -> tuple[Array, Array, Array]:
    labels, scores, weights = lists(case)
    return padded(labels, math.nan), padded(scores, 7.0), padded(weights, 3.0)


def value_and_gradient(case: Case, labels: Any, scores: Any, dtype: str) -> tuple[Array, Array]:
    scores = tf.constant(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = case.make(dtype=dtype, reduction="none")(labels, scores)
    return value.numpy(), tape.gradient(value, scores).numpy()


@every_loss
def test_equals_its_reference(case: Case) -> None:
    expected = [case.reference(*one) for one in zip(*lists(case), strict=True)]
    value = case.make(dtype="float64", reduction="none")(*batch(case))
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@every_loss
def test_gradient_is_that_of_the_reference_which_may_hold_a_part(case: Case) -> None:
    labels, scores, _ = batch(case)
    _, grad = value_and_gradient(case, labels, scores, "float64")
    for i, (y, s, _) in enumerate(zip(*lists(case), strict=True)):
        held = {"held": s} if case in HOLDING_VECTORS else {}
        reference = functools.partial(case.reference, y, weights=np.ones(len(y)), **held)
        for place in np.ndindex(s.shape):
            step = np.zeros_like(s)
            step[place] = 1e-5
            slope = (reference(s + step) - reference(s - step)) / 2e-5
            np.testing.assert_allclose(grad[(i, *place)], slope, rtol=1e-6, atol=1e-8)


@every_loss
def test_ragged_equals_padded(case: Case) -> None:
    _, scores, _ = lists(case)
    by_row = [tf.RaggedTensor.from_row_lengths(np.concatenate(x), LENGTHS) for x in lists(case)]
    expected = case.make()(*batch(case))
    np.testing.assert_allclose(case.make()(*by_row), expected, rtol=1e-5)
    by_value = tf.ragged.constant([s.tolist() for s in scores])  # ragged in both axes
    np.testing.assert_allclose(case.make()(by_row[0], by_value, by_row[2]), expected, rtol=1e-5)
    np.testing.assert_allclose(
        case.make()(batch(case)[0], by_row[1], by_row[2]), expected, rtol=1e-5
    )
    np.testing.assert_allclose(case.make()(by_row[0], *batch(case)[1:]), expected, rtol=1e-5)


@every_loss
def test_padding_changes_nothing(case: Case) -> None:
    labels, scores, weights = batch(case)
    where, junk = [0, 2, 3], (0.0, 1e30, math.inf, math.nan)
    wide = [
        np.concatenate([np.insert(x, where, fill, axis=1) for fill in fills])
        for x, fills in ((labels, [math.nan] * len(junk)), (scores, junk), (weights, junk))
    ]
    loss = case.make(dtype="float64", reduction="none")
    expected = np.tile(loss(labels, scores, weights), len(junk))
    np.testing.assert_allclose(loss(*wide), expected, rtol=1e-12)
    _, grad = value_and_gradient(case, wide[0], wide[1], "float64")
    assert np.all(grad[np.isnan(wide[0])] == 0.0)
    _, expected = value_and_gradient(case, labels, scores, "float64")
    expected = np.concatenate([expected] * len(junk))
    np.testing.assert_allclose(np.delete(grad, [0, 3, 5], axis=1), expected, rtol=1e-9, atol=1e-15)


@every_loss
def test_a_keras_mask_is_honoured(case: Case) -> None:
    labels, scores, _ = batch(case)
    labels, valid = np.nan_to_num(labels), np.array([[True, False, True, True]] * len(LENGTHS))
    masked = tf.constant(scores)
    masked._keras_mask = tf.constant(valid)
    expected = case.make()(np.where(valid, labels, math.nan), scores)
    np.testing.assert_allclose(case.make()(labels, masked), expected, rtol=1e-6)


@every_loss
def test_a_list_without_items_is_zero(case: Case) -> None:
    labels, scores, _ = batch(case)
    value, grad = value_and_gradient(case, np.full_like(labels, math.nan), scores, "float64")
    assert np.all(value == 0.0)
    assert np.all(grad == 0.0)
    assert case.make()(np.zeros([1, 0]), np.zeros([1, 0, width(case)])) == 0.0


@every_loss
def test_gradients_are_finite_at_extreme_scores(case: Case) -> None:
    labels, scores, _ = batch(case)
    for scale in (1e4, -1e4, 0.0, 1e-30):
        value, grad = value_and_gradient(case, labels, scale * scores, "float32")
        assert np.all(np.isfinite(value))
        assert np.all(np.isfinite(grad))


@every_loss
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_any_float_dtype_computes_in_float32(case: Case, dtype: str) -> None:
    labels, scores, _ = batch(case)
    scores = tf.cast(scores, dtype)
    value = case.make()(labels, scores)
    assert value.dtype == tf.float32
    np.testing.assert_allclose(value, case.make()(labels, tf.cast(scores, "float32")), rtol=1e-6)


@every_loss
def test_a_wrong_shape_is_named(case: Case) -> None:
    with pytest.raises(ValueError, match=r"y_pred.shape=\(2, 4\)"):
        case.make()(np.zeros([2, 4]), np.zeros([2, 4]))
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 3\), y_pred.shape=\(2, 4\)"):
        case.make()(np.zeros([2, 3]), np.zeros([2, 4, width(case)]))
    if case.make().num_scores is not None:
        with pytest.raises(ValueError, match=rf"list_size, {width(case)}\]. Received"):
            case.make()(np.zeros([2, 4]), np.zeros([2, 4, width(case) + 1]))


@every_loss
def test_a_saved_loss_is_equal(case: Case) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.make()))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded.get_config() == case.make().get_config()
    np.testing.assert_allclose(loaded(*batch(case)), case.make()(*batch(case)))


def test_the_gradient_of_clicks_is_that_of_their_likelihood() -> None:
    labels, scores, _ = batch(SCORE_VECTORS[0])
    loss = losses.ClickEMLoss(dtype="float64", reduction="sum")
    clicked, valid = tf.constant(labels >= 1.0), tf.constant(~np.isnan(labels))
    x = tf.constant(scores)
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        value = loss(labels, x)
        both = tf.reduce_prod(tf.sigmoid(x), axis=-1)
        likelihoods = tf.where(clicked, both, 1.0 - both)
        count = tf.reduce_sum(tf.cast(valid, x.dtype), axis=1, keepdims=True)
        nll = -tf.reduce_sum(tf.where(valid, tf.math.log(likelihoods), 0.0) / count)
    np.testing.assert_allclose(tape.gradient(value, x), tape.gradient(nll, x), atol=1e-12)


def test_the_gradient_of_a_mixture_is_that_of_its_likelihood() -> None:
    labels, scores, _ = lists(SCORE_VECTORS[1])
    loss = losses.MixtureEMLoss(dtype="float64", reduction="sum")
    x = tf.constant(scores[:1])
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        value = loss(labels[:1], x)
        costs = tf.reduce_sum(tf.math.softplus(x) - labels[0][:, None] * x, axis=1)
        nll = -tf.reduce_logsumexp(-costs)
    np.testing.assert_allclose(tape.gradient(value, x), tape.gradient(nll, x), atol=1e-12)
