"""Contracts of every loss and metric."""

import functools
import json
import math
import warnings
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tests.cases import (
    HOLDING,
    LOSSES,
    METRICS,
    Array,
    Case,
    missing_formulas,
    name_of,
    one_per_class,
)
from tfrank_sel import losses, metrics

pytestmark = pytest.mark.usefixtures("eagerly")

FORMULAS = LOSSES + HOLDING + METRICS

every_formula = pytest.mark.parametrize("case", FORMULAS, ids=name_of)
every_class = pytest.mark.parametrize("case", one_per_class(FORMULAS), ids=name_of)
every_loss = pytest.mark.parametrize("case", LOSSES + HOLDING, ids=name_of)
every_slope = pytest.mark.parametrize("case", LOSSES, ids=name_of)
every_metric = pytest.mark.parametrize("case", METRICS, ids=name_of)

LENGTHS = (5, 1, 4)
WIDTH = 5
JUNK = (0.0, 1e30, -1e30, math.inf, math.nan)  # beside which there are lists of other junk


def lists(case: Case, seed: int = 0) -> tuple[list[Array], list[Array], list[Array]]:
    """Labels, scores and weights of a few lists of different lengths."""
    rng = np.random.default_rng(seed)
    labels = [case.labels(rng, (n,)) for n in LENGTHS]
    scores = [rng.normal(0.0, 1.5, n).round(3) for n in LENGTHS]
    weights = [rng.uniform(0.5, 2.0, n).round(3) for n in LENGTHS]
    return labels, scores, weights


def padded(rows: list[Array], fill: float, width: int = WIDTH) -> Array:
    return np.array([np.concatenate([r, np.full(width - len(r), fill)]) for r in rows])


def batch(case: Case, seed: int = 0) -> tuple[Array, Array, Array]:
    labels, scores, weights = lists(case, seed)
    return padded(labels, math.nan), padded(scores, 7.0), padded(weights, 3.0)


def per_list(case: Case, labels: Any, scores: Any, weights: Any = None) -> Array:
    """The value of each list in float64, by the public call."""
    if case in METRICS:
        return case.make(dtype="float64").evaluate(labels, scores, weights).values.numpy()
    return np.array(case.make(dtype="float64", reduction="none")(labels, scores, weights))


def with_gradient(
    case: Case, labels: Any, scores: Any, weights: Any = None, dtype: str = "float64"
) -> tuple[Array, Array]:
    """The value of each list, and the gradient of their sum."""
    scores = tf.constant(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        values = case.make(dtype=dtype, reduction="none")(labels, scores, weights)
    return values.numpy(), tape.gradient(values, scores).numpy()


@every_formula
def test_equals_its_reference(case: Case) -> None:
    labels, scores, weights = lists(case)
    expected = [case.reference(*one) for one in zip(labels, scores, weights, strict=True)]
    np.testing.assert_allclose(per_list(case, *batch(case)), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.sample(12)
@every_class
def test_ragged_equals_padded(case: Case) -> None:
    labels, scores, weights = (tf.ragged.constant([r.tolist() for r in x]) for x in lists(case))
    expected = case.make()(*batch(case))
    for each in (scores, batch(case)[1]):
        value = case.make()(labels, each, weights)
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.sample(4)
@every_formula
def test_padding_changes_nothing(case: Case) -> None:
    def wide(x: Array, *junk: float) -> Array:
        """The lists padded behind, and then in front, in the middle and behind with each junk."""
        blocks = [np.insert(x, [WIDTH] * 3, junk[0], axis=1)]
        return np.concatenate([*blocks, *(np.insert(x, [0, 2, 3], fill, axis=1) for fill in junk)])

    labels, scores, weights = batch(case)
    labels = wide(labels, *[math.nan] * len(JUNK))
    fields = labels, wide(scores, *JUNK), wide(weights, *JUNK)
    if case in METRICS:
        expected, *found = np.split(per_list(case, *fields), 1 + len(JUNK))
    else:
        values, grads = with_gradient(case, *fields)
        assert np.all(grads[np.isnan(labels)] == 0.0)
        expected, *found = np.split(values, 1 + len(JUNK))
        of_items, *others = np.split(grads, 1 + len(JUNK))
        for grad in others:
            moved = np.delete(grad, [0, 3, 5], axis=1)
            np.testing.assert_allclose(moved, of_items[:, :WIDTH], rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(found, [expected] * len(JUNK), rtol=1e-12, atol=1e-15)


# `tests/contracts/test_modes.py` has one of each class
@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize(
    "case", [x for x in FORMULAS if x not in one_per_class(FORMULAS)], ids=name_of
)
def test_xla_agrees(case: Case) -> None:
    rng = np.random.default_rng(1)
    labels = tf.constant(case.labels(rng, (3, 6)), tf.float32)
    scores = tf.constant(rng.integers(-2, 3, (3, 6)), tf.float32)  # with ties
    mask = tf.constant(rng.random((3, 6)) < 0.8)
    args = (labels, scores, mask, tf.cast(mask, tf.float32))
    formula = case.make().per_list
    compiled = tf.function(formula, jit_compile=True)(*args)
    np.testing.assert_allclose(compiled, formula(*args), rtol=1e-5, atol=1e-6)


@pytest.mark.sample(6)
@every_class
def test_the_order_of_items_is_irrelevant(case: Case) -> None:
    labels, scores, weights = batch(case)
    order = np.random.default_rng(2).permutation(WIDTH)
    np.testing.assert_allclose(
        per_list(case, labels[:, order], scores[:, order], weights[:, order]),
        per_list(case, labels, scores, weights),
        rtol=1e-9,
        atol=1e-14,
    )


@pytest.mark.sample(9)
@every_class
def test_a_list_without_items_is_zero(case: Case) -> None:
    labels, scores, _ = batch(case)
    expected = per_list(case, labels, scores)
    empty = np.full_like(labels[:1], math.nan)
    with_empty = np.concatenate([labels, empty]), np.concatenate([scores, scores[:1]])
    if case in METRICS:
        values = per_list(case, *with_empty)
    else:
        values, grads = with_gradient(case, *with_empty)
        assert np.all(grads[-1] == 0.0)
    assert values[-1] == 0.0
    np.testing.assert_allclose(values[:-1], expected, rtol=1e-12)


@pytest.mark.sample(6)
@every_metric
def test_a_list_without_items_is_not_counted(case: Case) -> None:
    labels, scores, _ = batch(case)
    both = case.make(dtype="float64")
    both.update_state(labels, scores)
    both.update_state(np.full([2, 3], math.nan), np.zeros([2, 3]))
    np.testing.assert_allclose(both.result(), case.make(dtype="float64")(labels, scores))


@pytest.mark.sample(9)
@every_class
def test_a_saved_formula_is_equal(case: Case) -> None:
    saved = json.dumps(keras.saving.serialize_keras_object(case.make()))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    assert loaded.get_config() == case.make().get_config()
    np.testing.assert_allclose(loaded(*batch(case)), case.make()(*batch(case)))


@pytest.mark.sample(12)
@every_loss
def test_gradient_is_finite_at_extreme_scores(case: Case) -> None:
    labels = np.array([[0.0, 1.0, 2.0, 3.0]] * 3)
    scores = [[1e4, -1e4, 0.0, 1.0], [-1e4, -1e4, -1e4, -1e4], [88.0, -88.0, 104.0, 710.0]]
    for found in with_gradient(case, labels, scores, dtype="float32"):
        assert np.all(np.isfinite(found))


@pytest.mark.parametrize("case", HOLDING, ids=name_of)
def test_gradient_is_that_of_the_reference_which_holds_a_part(case: Case) -> None:
    labels, scores, _ = lists(case)
    (_, grad), step = with_gradient(case, *batch(case)[:2]), 1e-5
    for i, (y, s) in enumerate(zip(labels, scores, strict=True)):
        reference = functools.partial(case.reference, y, weights=np.ones(len(y)), held=s)
        for j, move in enumerate(step * np.eye(len(s))):
            slope = (reference(s + move) - reference(s - move)) / (2 * step)
            np.testing.assert_allclose(grad[i, j], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.sample(8)
@every_slope
def test_both_derivatives_equal_finite_differences(case: Case) -> None:
    labels, scores, _ = batch(case)
    step, direction = 1e-5, np.arange(1.0, WIDTH + 1.0)
    z = tf.constant(np.concatenate([scores + x * step * direction for x in (0.0, 1.0, -1.0)]))
    with tf.GradientTape() as outer:
        outer.watch(z)
        with tf.GradientTape() as inner:
            inner.watch(z)
            value = case.make(dtype="float64", reduction="sum")(np.tile(labels, [3, 1]), z)
        gradients = inner.gradient(value, z)
        total = tf.reduce_sum(gradients[: len(labels)] * direction)
    hessian_row = outer.gradient(total, z)[: len(labels)]
    gradient, up, down = np.split(gradients, 3)
    np.testing.assert_allclose(hessian_row, (up - down) / (2 * step), rtol=1e-5, atol=1e-6)
    moves = step * np.concatenate([np.eye(WIDTH), -np.eye(WIDTH)])  # of each item, up and down
    rows = np.repeat(labels, len(moves), axis=0), np.concatenate(scores[:, None] + moves)
    up, down = per_list(case, *rows).reshape(len(labels), 2, WIDTH).swapaxes(0, 1)
    np.testing.assert_allclose(gradient, (up - down) / (2 * step), rtol=1e-6, atol=1e-7)


@pytest.mark.sample(12)
@every_class
def test_any_numeric_dtype_computes_in_float32(case: Case) -> None:
    expected = case.make()([[2.0, 0.0, 1.0]], [[60.0, -1.0, 2.0]])
    for dtype in ("float16", "bfloat16", "float64", "int32"):
        value = case.make()(tf.constant([[2, 0, 1]], dtype), tf.constant([[60, -1, 2]], dtype))
        assert value.dtype == tf.float32, dtype
        np.testing.assert_allclose(value, expected, rtol=1e-6, err_msg=dtype)


@pytest.mark.sample(12)
@every_class
def test_weights_per_list_in_every_shape_agree(case: Case) -> None:
    labels, scores, _ = (x[:, :3] for x in batch(case, seed=1))  # as many lists as items
    w = np.array([0.5, 1.0, 2.0])
    row, column = case.make()(labels, scores, w), case.make()(labels, scores, w[:, None])
    np.testing.assert_allclose(row, column, rtol=1e-6)
    each, count = per_list(case, labels, scores), len(w)
    if case in METRICS:
        w = w * np.sign(case.make().evaluate(labels, scores).weights)  # of the lists that count
        count = np.sum(w)
    expected = np.sum(w * each) / count
    np.testing.assert_allclose(row, expected, rtol=1e-5)
    np.testing.assert_allclose(
        case.make()(labels, scores, 1.0), case.make()(labels, scores), rtol=1e-6
    )


@pytest.mark.compiled
@pytest.mark.parametrize("make", [losses.SoftmaxLoss, losses.MatchingLoss, metrics.MRR])
def test_weights_per_list_of_unknown_width_stay_per_list(make: Any) -> None:
    case = next(case for case in FORMULAS if case.make.func == make)
    labels, scores, _ = (tf.constant(x, tf.float32) for x in batch(case))
    formula = case.make()
    any_shape = tf.TensorSpec([None, None], tf.float32)

    @tf.function(input_signature=[any_shape] * 3)
    def call(labels: tf.Tensor, scores: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
        return formula(labels, scores, weights)

    w = tf.constant([[0.5], [1.0], [2.0]])
    np.testing.assert_allclose(call(labels, scores, w), case.make()(labels, scores, w), rtol=1e-5)


@pytest.mark.sample(9)
@every_class
def test_a_keras_mask_is_honoured(case: Case) -> None:
    labels, scores, _ = batch(case)
    labels = np.nan_to_num(labels)
    valid = np.array([[True, True, False, True, False]] * 3)
    expected = case.make()(np.where(valid, labels, math.nan), scores)
    for shape in ([3, 5], [3, 5, 1]):  # the second is that of `Dense(1)`
        masked = tf.constant(scores.reshape(shape), tf.float32)
        masked._keras_mask = tf.constant(valid)
        np.testing.assert_allclose(case.make()(labels, masked), expected, rtol=1e-6)


@pytest.mark.sample(9)
@every_class
def test_a_wrong_shape_is_named(case: Case) -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 3\), y_pred.shape=\(2, 4\)"):
        case.make()(np.zeros([2, 3]), np.zeros([2, 4]))
    with pytest.raises(ValueError, match=r"y_pred.shape=\(2, 3, 2\)"):
        case.make()(np.zeros([2, 3]), np.zeros([2, 3, 2]))
    with pytest.raises(ValueError, match=r"sample_weight.shape=\(3,\)"):
        case.make()(np.zeros([2, 4]), np.zeros([2, 4]), np.ones(3))
    with pytest.raises(tf.errors.InvalidArgumentError, match="row lengths"):
        case.make()(tf.ragged.constant([[1.0, 0.0]]), tf.ragged.constant([[1.0]]))
    ragged, dense = tf.ragged.constant([[1.0, 0.0, 2.0], [1.0]]), np.zeros([2, 2])
    for inputs in ((ragged, dense), (dense, ragged), (dense, dense, ragged)):
        with pytest.raises(tf.errors.InvalidArgumentError, match="must not be longer"):
            case.make()(*inputs)


@pytest.mark.sample(9)
@every_class
def test_lists_of_one_item_warn_where_items_are_compared(case: Case) -> None:
    ones = np.ones([3, 1])
    formula = case.make()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        formula(ones, ones)
    found = [str(x.message) for x in told if "every list has one item" in str(x.message)]
    assert len(found) == formula.compares_items


@pytest.mark.sample(12)
@settings(max_examples=3)
@given(data=st.data())
@every_formula
def test_any_list_equals_its_reference(case: Case, data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 6))
    tied = st.sampled_from([-2.0, 0.0, 0.25, 3.0])  # ties, and all labels equal
    row = st.lists(tied | st.floats(-5.0, 5.0, width=32), min_size=size, max_size=size)
    scores = np.array(data.draw(st.lists(row, min_size=8, max_size=8)))
    seed = data.draw(st.integers(0, 99))
    labels = case.labels(np.random.default_rng(seed), scores.shape)
    labels[data.draw(st.integers(0, 7))] = labels[0, 0]  # all alike in one of the lists
    ones = tf.ones(scores.shape, tf.float64)
    rows = tf.constant(labels, tf.float64), tf.constant(scores), ones > 0.0, ones
    values = case.make(dtype="float64").per_list(*rows)
    expected = [case.reference(*x, [1.0] * size) for x in zip(labels, scores, strict=True)]
    np.testing.assert_allclose(values, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("module", [losses, metrics], ids=["losses", "metrics"])
def test_no_public_formula_is_missing(module: Any) -> None:
    assert missing_formulas(module) == set()
