"""The contracts of the losses whose inputs are not items of lists: rows of classes, and pairs."""

import json
import math
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import IN_BATCH, N_WAY, Array, Case, name_of
from tfrank_sel import losses

pytestmark = pytest.mark.usefixtures("eagerly")

every_n_way = pytest.mark.parametrize("case", N_WAY, ids=name_of)
every_in_batch = pytest.mark.parametrize("case", IN_BATCH, ids=name_of)
every_loss = pytest.mark.parametrize("case", N_WAY + IN_BATCH, ids=name_of)

ROWS, CLASSES = (4, 1, 3), 3


def entries(case: Case) -> tuple[list[Array], list[Array], list[Array]]:
    """Labels, scores and weights of a few batch entries of different numbers of rows."""
    rng = np.random.default_rng(0)
    labels = [case.labels(rng, (n, CLASSES)) for n in ROWS]
    scores = [rng.normal(0.0, 1.5, (n, CLASSES)).round(3) for n in ROWS]
    weights = [rng.uniform(0.5, 2.0, n).round(3) for n in ROWS]
    return labels, scores, weights


def padded(rows: list[Array], fill: float) -> Array:
    width = max(len(r) for r in rows)
    return np.array(
        [np.concatenate([r, np.full((width - len(r), *r.shape[1:]), fill)]) for r in rows]
    )


def batch(case: Case) -> tuple[Array, Array, Array]:
    """Padded entries of rows, or the pairs of a batch."""
    if case in N_WAY:
        labels, scores, weights = entries(case)
        return padded(labels, math.nan), padded(scores, 7.0), padded(weights, 3.0)
    rng = np.random.default_rng(0)
    return case.labels(rng, (5,)), rng.normal(size=(5, 5)).round(3), rng.uniform(0.5, 2.0, 5)


def value_and_gradient(case: Case, labels: Any, scores: Any, dtype: str) -> tuple[Array, Array]:
    scores = tf.constant(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = tf.reduce_sum(case.make(dtype=dtype, reduction="none")(labels, scores))
    return value.numpy(), tape.gradient(value, scores).numpy()


@every_n_way
def test_rows_equal_the_reference(case: Case) -> None:
    expected = [case.reference(*one) for one in zip(*entries(case), strict=True)]
    value = case.make(dtype="float64", reduction="none")(*batch(case))
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@every_in_batch
def test_pairs_equal_the_reference(case: Case) -> None:
    for weights in (np.ones(5), batch(case)[2]):
        identities, scores, _ = batch(case)
        expected = case.reference(identities, scores, weights)
        loss = case.make(dtype="float64")
        for shape in ([5], [5, 1]):
            value = loss(identities.reshape(shape), scores, weights)
            # a loss of both sides weighs a pair by its query and by its item, which are the same
            np.testing.assert_allclose(value, expected, rtol=1e-12)
        if loss.log_q is None:  # which is by integers
            words = np.array(["a", "b", "c", "d"])[identities.astype(int)]
            np.testing.assert_allclose(loss(words, scores, weights), expected, rtol=1e-12)


@every_in_batch
def test_a_mask_leaves_pairs_out(case: Case) -> None:
    _, scores, _ = batch(case)
    masked = tf.constant(scores)
    masked._keras_mask = tf.constant(np.eye(5, dtype=bool))
    np.testing.assert_array_equal(case.make(dtype="float64")(np.arange(5), masked), 0.0)


def test_the_pairs_of_a_batch_form_a_square() -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 2\), y_pred.shape=\(2, 3\)"):
        losses.InBatchInfoNCELoss()([1, 2], np.zeros([2, 3]))


@every_n_way
def test_ragged_equals_padded(case: Case) -> None:
    labels, scores, weights = entries(case)
    ragged = [
        tf.RaggedTensor.from_row_lengths(np.concatenate(x), ROWS) for x in (labels, scores, weights)
    ]
    np.testing.assert_allclose(case.make()(*ragged), case.make()(*batch(case)), rtol=1e-5)


@every_n_way
@pytest.mark.parametrize("junk", [0.0, 1e30, -1e30, math.inf, math.nan])
def test_padded_rows_change_nothing(case: Case, junk: float) -> None:
    labels, scores, weights = batch(case)
    where = [0, 2, 3]
    wide = [
        np.insert(x, where, fill, axis=1)
        for x, fill in ((labels, math.nan), (scores, junk), (weights, junk))
    ]
    make = case.make
    np.testing.assert_allclose(
        make(dtype="float64")(*wide), make(dtype="float64")(labels, scores, weights), rtol=1e-12
    )
    _, grad = value_and_gradient(case, wide[0], wide[1], "float64")
    assert np.all(grad[np.isnan(wide[0])] == 0.0)
    _, expected = value_and_gradient(case, labels, scores, "float64")
    np.testing.assert_allclose(np.delete(grad, [0, 3, 5], axis=1), expected, rtol=1e-9, atol=1e-15)


@every_n_way
def test_rows_of_one_batch_need_no_batch_axis(case: Case) -> None:
    [labels, *_], [scores, *_], [weights, *_] = entries(case)
    loss = case.make(dtype="float64")
    expected = loss([labels], [scores], [weights])
    np.testing.assert_allclose(loss(labels, scores, weights), expected)
    np.testing.assert_allclose(loss(labels, scores, weights[:, None]), expected)
    valid = np.array([True, False, True, True])
    masked = tf.constant(scores)
    masked._keras_mask = tf.constant(valid)
    np.testing.assert_allclose(loss(labels, masked), loss(labels[valid], scores[valid]))


@every_n_way
def test_the_order_of_rows_is_irrelevant_and_of_classes_consistent(case: Case) -> None:
    labels, scores, weights = (x[:, ::-1] for x in batch(case))
    np.testing.assert_allclose(case.make()(labels, scores, weights), case.make()(*batch(case)))
    if not case.make.args:  # classes have no weights of their own
        reversed_classes = case.make()(labels[..., ::-1], scores[..., ::-1], weights)
        np.testing.assert_allclose(reversed_classes, case.make()(*batch(case)), rtol=1e-6)


@every_n_way
def test_an_entry_without_rows_is_zero(case: Case) -> None:
    labels, scores, _ = batch(case)
    value, grad = value_and_gradient(case, np.full_like(labels, math.nan), scores, "float64")
    assert value == 0.0
    assert np.all(grad == 0.0)
    assert case.make()(np.zeros([1, 0, 3]), np.zeros([1, 0, 3])) == 0.0


@every_n_way
def test_a_wrong_shape_is_named(case: Case) -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 4, 3\), y_pred.shape=\(2, 5, 3\)"):
        case.make()(np.zeros([2, 4, 3]), np.zeros([2, 5, 3]))
    with pytest.raises(ValueError, match=r"y_true.shape=\(2,\), y_pred.shape=\(2, 3\)"):
        case.make()(np.zeros([2]), np.zeros([2, 3]))
    with pytest.raises(ValueError, match="at least two classes"):
        case.make()(np.zeros([2, 4, 1]), np.zeros([2, 4, 1]))
    with pytest.raises(ValueError, match=r"sample_weight.shape=\(5,\)"):
        case.make()(np.zeros([2, 4, 3]), np.zeros([2, 4, 3]), np.ones(5))


@every_loss
def test_gradients_equal_finite_differences(case: Case) -> None:
    labels, scores, _ = batch(case)
    _, grad = value_and_gradient(case, labels, scores, "float64")
    step = 1e-5
    for index in np.ndindex(scores.shape):
        values = []
        for sign in (1.0, -1.0):
            moved = scores.copy()
            moved[index] += sign * step
            values.append(value_and_gradient(case, labels, moved, "float64")[0])
        slope = (values[0] - values[1]) / (2 * step)
        np.testing.assert_allclose(grad[index], slope, rtol=1e-6, atol=1e-7)


@every_loss
def test_second_derivatives_equal_finite_differences(case: Case) -> None:
    labels, scores, _ = batch(case)
    direction, step = np.random.default_rng(1).normal(size=scores.shape), 1e-5
    z = tf.constant(scores)
    with tf.GradientTape() as outer:
        outer.watch(z)
        with tf.GradientTape() as inner:
            inner.watch(z)
            value = tf.reduce_sum(case.make(dtype="float64", reduction="none")(labels, z))
        along = tf.reduce_sum(inner.gradient(value, z) * direction)
    up, down = (
        value_and_gradient(case, labels, scores + sign * step * direction, "float64")[1]
        for sign in (1.0, -1.0)
    )
    expected = (up - down) / (2 * step)
    np.testing.assert_allclose(outer.gradient(along, z), expected, rtol=1e-5, atol=1e-6)


@every_loss
def test_gradients_are_finite_at_extreme_scores(case: Case) -> None:
    labels, scores, _ = batch(case)
    for scale in (1e4, -1e4, 0.0, 1e-30):
        value, grad = value_and_gradient(case, labels, scale * scores, "float32")
        assert np.isfinite(value)
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
def test_a_saved_loss_is_equal(case: Case) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.make()))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded.get_config() == case.make().get_config()
    np.testing.assert_allclose(loaded(*batch(case)), case.make()(*batch(case)))
