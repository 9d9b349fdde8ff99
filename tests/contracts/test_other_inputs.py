"""The contracts of the losses of vectors of scores, of rows of classes, and of pairs in a batch."""

import functools
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import HOLDING_VECTORS, IN_BATCH, N_WAY, SCORE_VECTORS, Array, Case, name_of
from tfrank_sel import losses

pytestmark = pytest.mark.usefixtures("eagerly")

OF_LISTS = SCORE_VECTORS + N_WAY
every_list = pytest.mark.parametrize("case", OF_LISTS, ids=name_of)
every_vector = pytest.mark.parametrize("case", SCORE_VECTORS, ids=name_of)
every_n_way = pytest.mark.parametrize("case", N_WAY, ids=name_of)
every_in_batch = pytest.mark.parametrize("case", IN_BATCH, ids=name_of)
every_loss = pytest.mark.parametrize("case", OF_LISTS + IN_BATCH, ids=name_of)

LENGTHS = (4, 1, 3)
JUNK = (0.0, 1e30, -1e30, math.inf, math.nan)


def width(case: Case) -> int:
    """The number of classes, or of the scores of an item."""
    return 3 if case in N_WAY else case.make().num_scores or 2


def lists(case: Case) -> tuple[list[Array], list[Array], list[Array]]:
    """Labels, scores and weights of a few lists of different lengths."""
    rng = np.random.default_rng(0)
    labels = [case.labels(rng, (n, width(case)) if case in N_WAY else (n,)) for n in LENGTHS]
    scores = [rng.normal(0.0, 1.5, (n, width(case))).round(3) for n in LENGTHS]
    weights = [rng.uniform(0.5, 2.0, n).round(3) for n in LENGTHS]
    return labels, scores, weights


def padded(rows: list[Array], fill: float) -> Array:
    longest = max(LENGTHS)
    return np.array(
        [np.concatenate([r, np.full((longest - len(r), *r.shape[1:]), fill)]) for r in rows]
    )


def batch(case: Case) -> tuple[Array, Array, Array]:
    """The padded lists, or the pairs of a batch."""
    if case in OF_LISTS:
        labels, scores, weights = lists(case)
        return padded(labels, math.nan), padded(scores, 7.0), padded(weights, 3.0)
    rng = np.random.default_rng(0)
    return case.labels(rng, (5,)), rng.normal(size=(5, 5)).round(3), rng.uniform(0.5, 2.0, 5)


def value_and_gradient(case: Case, labels: Any, scores: Any, dtype: str) -> tuple[Array, Array]:
    """The value of each list, or of the batch, and the gradient of their sum."""
    scores = tf.constant(scores, dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = case.make(dtype=dtype, reduction="none")(labels, scores)
    return value.numpy(), tape.gradient(value, scores).numpy()


@every_list
def test_equals_its_reference(case: Case) -> None:
    expected = [case.reference(*one) for one in zip(*lists(case), strict=True)]
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


@pytest.mark.parametrize("case", HOLDING_VECTORS, ids=name_of)
def test_gradient_is_that_of_the_reference_which_holds_a_part(case: Case) -> None:
    labels, scores, _ = batch(case)
    _, grad = value_and_gradient(case, labels, scores, "float64")
    for i, (y, s, _) in enumerate(zip(*lists(case), strict=True)):
        reference = functools.partial(case.reference, y, weights=np.ones(len(y)), held=s)
        for place in np.ndindex(s.shape):
            step = np.zeros_like(s)
            step[place] = 1e-5
            slope = (reference(s + step) - reference(s - step)) / 2e-5
            np.testing.assert_allclose(grad[(i, *place)], slope, rtol=1e-6, atol=1e-8)


every_slope = pytest.mark.parametrize(
    "case", [x for x in OF_LISTS + IN_BATCH if x not in HOLDING_VECTORS], ids=name_of
)


@pytest.mark.sample(5)
@every_slope
def test_gradients_equal_finite_differences(case: Case) -> None:
    labels, scores, _ = batch(case)
    _, grad = value_and_gradient(case, labels, scores, "float64")
    loss = case.make(dtype="float64", reduction="none")
    shape = scores.shape if case in IN_BATCH else scores.shape[1:]
    moves = 1e-5 * np.eye(math.prod(shape)).reshape(-1, *shape)
    moves = np.concatenate([moves, -moves])
    if case in IN_BATCH:  # where an item is one of every list
        values = np.array([np.sum(loss(labels, scores + move)) for move in moves])
    else:
        each = np.repeat(labels, len(moves), axis=0)
        values = loss(each, np.concatenate(scores[:, None] + moves))
    up, down = np.reshape(values, [-1, 2, math.prod(shape)]).swapaxes(0, 1)
    np.testing.assert_allclose(grad.reshape(up.shape), (up - down) / 2e-5, rtol=1e-6, atol=1e-7)


@pytest.mark.sample(6)
@every_slope
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


@pytest.mark.sample(8)
@every_loss
def test_gradients_are_finite_at_extreme_scores(case: Case) -> None:
    labels, scores, _ = batch(case)
    for scale in (1e4, -1e4, 0.0, 1e-30):
        value, grad = value_and_gradient(case, labels, scale * scores, "float32")
        assert np.all(np.isfinite(value))
        assert np.all(np.isfinite(grad))


@pytest.mark.sample(4)
@every_loss
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_any_float_dtype_computes_in_float32(case: Case, dtype: str) -> None:
    labels, scores, _ = batch(case)
    scores = tf.cast(scores, dtype)
    value = case.make()(labels, scores)
    assert value.dtype == tf.float32
    np.testing.assert_allclose(value, case.make()(labels, tf.cast(scores, "float32")), rtol=1e-6)


@pytest.mark.sample(3)
@every_list
def test_ragged_equals_padded(case: Case) -> None:
    labels, scores, weights = (
        tf.RaggedTensor.from_row_lengths(np.concatenate(x), LENGTHS) for x in lists(case)
    )
    expected = case.make()(*batch(case))
    np.testing.assert_allclose(case.make()(labels, scores, weights), expected, rtol=1e-5)
    if case in SCORE_VECTORS:
        by_value = tf.ragged.constant([s.tolist() for s in lists(case)[1]])  # in both axes
        for inputs in (
            (labels, by_value, weights),
            (batch(case)[0], scores, weights),
            (labels, *batch(case)[1:]),
        ):
            np.testing.assert_allclose(case.make()(*inputs), expected, rtol=1e-5)


@pytest.mark.sample(3)
@every_list
def test_padding_changes_nothing(case: Case) -> None:
    labels, scores, weights = batch(case)
    wide = [
        np.concatenate([np.insert(x, [0, 2, 3], fill, axis=1) for fill in fills])
        for x, fills in ((labels, [math.nan] * len(JUNK)), (scores, JUNK), (weights, JUNK))
    ]
    make = functools.partial(case.make, dtype="float64", reduction="none")
    expected = np.tile(make()(labels, scores, weights), len(JUNK))
    np.testing.assert_allclose(make()(*wide), expected, rtol=1e-12)
    _, grad = value_and_gradient(case, wide[0], wide[1], "float64")
    assert np.all(grad[np.isnan(wide[0])] == 0.0)
    _, expected = value_and_gradient(case, labels, scores, "float64")
    expected = np.concatenate([expected] * len(JUNK))
    np.testing.assert_allclose(np.delete(grad, [0, 3, 5], axis=1), expected, rtol=1e-9, atol=1e-15)


@every_list
def test_a_list_without_items_is_zero(case: Case) -> None:
    labels, scores, _ = batch(case)
    value, grad = value_and_gradient(case, np.full_like(labels, math.nan), scores, "float64")
    assert np.all(value == 0.0)
    assert np.all(grad == 0.0)
    none = np.zeros([1, 0, width(case)])
    assert case.make()(none if case in N_WAY else np.zeros([1, 0]), none) == 0.0


@every_vector
def test_a_keras_mask_is_honoured(case: Case) -> None:
    labels, scores, _ = batch(case)
    labels, valid = np.nan_to_num(labels), np.array([[True, False, True, True]] * len(LENGTHS))
    masked = tf.constant(scores)
    masked._keras_mask = tf.constant(valid)
    expected = case.make()(np.where(valid, labels, math.nan), scores)
    np.testing.assert_allclose(case.make()(labels, masked), expected, rtol=1e-6)


@every_in_batch
def test_a_mask_leaves_pairs_out(case: Case) -> None:
    _, scores, _ = batch(case)
    masked = tf.constant(scores)
    masked._keras_mask = tf.constant(np.eye(5, dtype=bool))
    np.testing.assert_array_equal(case.make(dtype="float64")(np.arange(5), masked), 0.0)


@every_n_way
def test_rows_of_one_batch_need_no_batch_axis(case: Case) -> None:
    [labels, *_], [scores, *_], [weights, *_] = lists(case)
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


@every_vector
def test_a_wrong_shape_is_named(case: Case) -> None:
    with pytest.raises(ValueError, match=r"y_pred.shape=\(2, 4\)"):
        case.make()(np.zeros([2, 4]), np.zeros([2, 4]))
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 3\), y_pred.shape=\(2, 4\)"):
        case.make()(np.zeros([2, 3]), np.zeros([2, 4, width(case)]))
    if case.make().num_scores is not None:
        with pytest.raises(ValueError, match=rf"list_size, {width(case)}\]. Received"):
            case.make()(np.zeros([2, 4]), np.zeros([2, 4, width(case) + 1]))


@every_n_way
def test_a_wrong_shape_of_rows_is_named(case: Case) -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 4, 3\), y_pred.shape=\(2, 5, 3\)"):
        case.make()(np.zeros([2, 4, 3]), np.zeros([2, 5, 3]))
    with pytest.raises(ValueError, match=r"y_true.shape=\(2,\), y_pred.shape=\(2, 3\)"):
        case.make()(np.zeros([2]), np.zeros([2, 3]))
    with pytest.raises(ValueError, match="at least two classes"):
        case.make()(np.zeros([2, 4, 1]), np.zeros([2, 4, 1]))
    with pytest.raises(ValueError, match=r"sample_weight.shape=\(5,\)"):
        case.make()(np.zeros([2, 4, 3]), np.zeros([2, 4, 3]), np.ones(5))


def test_the_pairs_of_a_batch_form_a_square() -> None:
    with pytest.raises(ValueError, match=r"y_true.shape=\(2, 2\), y_pred.shape=\(2, 3\)"):
        losses.InBatchInfoNCELoss()([1, 2], np.zeros([2, 3]))


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
