"""Contracts for any input of losses and metrics: a value, or an error with what is accepted."""

import math
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from tests.cases import (
    DIVERSITY,
    EVERY_LOSS,
    HOLDING,
    IN_BATCH,
    LOSSES,
    METRICS,
    N_WAY,
    SAMPLED,
    SCORE_VECTORS,
    Array,
    Case,
    name_of,
    one_per_class,
)
from tfrank_sel import losses, metrics

pytestmark = pytest.mark.usefixtures("eagerly")

OF_LISTS = LOSSES + HOLDING + SAMPLED + METRICS
every_class = pytest.mark.parametrize(
    "case", one_per_class(OF_LISTS + SCORE_VECTORS + N_WAY + IN_BATCH + DIVERSITY), ids=name_of
)
every_loss = pytest.mark.parametrize("case", EVERY_LOSS, ids=name_of)
every_metric = pytest.mark.parametrize("case", METRICS + DIVERSITY, ids=name_of)


def type_name(value: object) -> str:
    return type(value).__name__


LEAST = int(tf.__version__.startswith("2.15"))  # lists in a batch: 2.15 cannot scan none
DTYPES = [np.bool_, np.uint8, np.int32, np.int64, np.float16, np.float32, np.float64]
NUMBERS = [0.0, 1.0, 2.0, -1.0, 0.25, 1e30, -1e30, math.inf, -math.inf, math.nan]


@pytest.fixture(autouse=True)
def _unwarned() -> Iterator[None]:
    with warnings.catch_warnings(action="ignore"):  # of casts that overflow, and lists of one item
        yield


@st.composite
def anything(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An array of any dtype and values, as NumPy, lists, a tensor or a ragged tensor."""
    numbers = arrays.arrays(np.float64, shape, elements=st.sampled_from(NUMBERS))
    with np.errstate(invalid="ignore", over="ignore"):
        made = draw(numbers).astype(draw(st.sampled_from(DTYPES)))
    kinds = [lambda x: x, lambda x: x.tolist(), tf.constant]
    if len(shape) > 1 and shape[0]:  # TensorFlow makes no dense tensor of a ragged one without rows
        kinds.append(tf.RaggedTensor.from_tensor)
    return draw(st.sampled_from(kinds))(made)


@st.composite
def arguments(draw: st.DrawFn) -> tuple[Any, Any, Any]:
    """Labels, scores and weights, whose shapes fit as often as not."""
    shapes = arrays.array_shapes(min_dims=0, max_dims=3, min_side=LEAST, max_side=3)
    shape = draw(arrays.array_shapes(min_dims=2, max_dims=3, min_side=LEAST, max_side=3))
    weights = st.sampled_from([(), shape[:1], shape[:2], (*shape[:1], 1)])
    return (
        draw(anything(draw(st.sampled_from([shape, shape[:2]]) | shapes))),
        draw(anything(draw(st.just(shape) | shapes))),
        draw(st.none() | anything(draw(weights | shapes))),
    )


# weights of two items for lists of one, whose size the shape does not tell
ONE_ITEM = np.zeros(3, int), tf.ragged.constant([[0.0]] * 3), np.ones([3, 2])


@pytest.mark.sample(20)
@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@example(given=ONE_ITEM)
@given(given=arguments())
@every_class
def test_any_input_gives_a_value_or_an_error_that_says_what_was_wanted(
    case: Case, given: tuple[Any, Any, Any]
) -> None:
    try:
        value = case.make()(*given)
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        found: Any = str(error)
    else:
        found = (value.dtype, value.shape)
    assert found == (tf.float32, ()) or re.search(r"Received|must", str(found)), found


def batch(case: Case) -> tuple[Array, Array]:
    """Labels and scores of three lists of three items, pairs or rows of classes."""
    rng = np.random.default_rng(4)
    shape = (3, 3, 3) if case in N_WAY else (3, 3)
    vectors = [case.make().num_scores or 2] if case in SCORE_VECTORS else []
    labels = np.arange(3.0) if case in IN_BATCH else case.labels(rng, shape)
    return labels, rng.normal(size=(*shape, *vectors)).round(3)


@pytest.mark.sample(16)
@every_loss
def test_a_score_that_is_not_finite_makes_the_loss_of_its_list_nan(case: Case) -> None:
    labels, scores = batch(case)
    places = list(np.ndindex(scores.shape[1:]))
    wrong = np.repeat([math.nan, math.inf, -math.inf], len(places))
    loss = case.make(reduction="none")
    if case in IN_BATCH:  # where an item is one of every list
        values = []
        for x, place in zip(wrong, 3 * places, strict=True):
            moved = scores.copy()
            moved[1, *place] = x
            values.append(loss(labels, moved)[1])
    else:  # all in one batch, between two lists of finite scores
        order = [0, *[1] * len(wrong), 2]
        labels, scores = labels[order], scores[order]
        expected = case.make(reduction="none")(labels, scores).numpy()
        assert np.all(np.isfinite(expected))
        for i, place in enumerate(3 * places):
            scores[1 + i, *place] = wrong[i]
        first, *values, last = loss(labels, scores).numpy()
        np.testing.assert_array_equal([first, last], expected[[0, -1]])
    is_finite = (wrong == -math.inf) & loss.takes_minus_infinity
    np.testing.assert_array_equal(np.isfinite(values), is_finite)
    np.testing.assert_array_equal(np.isnan(values), ~is_finite)


@pytest.mark.parametrize("loss", [losses.TopKHingeLoss(1), losses.CircleLoss()], ids=type_name)
def test_a_score_of_nan_is_not_lost_under_xla(loss: losses.ListwiseLoss) -> None:
    tf.config.run_functions_eagerly(False)
    labels, scores = [[1.0, 0.0, 0.0], [1.0, 0.0, -1.0]], [[0.9, 0.1, math.nan]] * 2
    batch = loss.batch_of(labels, scores, None, "float32")
    values = loss.shared_formula(batch.labels, batch.scores, batch.mask, batch.weights)
    np.testing.assert_array_equal(np.isnan(values), [True, False])  # the second is of padding


@pytest.mark.sample(9)
@every_metric
def test_a_score_of_nan_concerns_its_list_alone_and_ranks_last(case: Case) -> None:
    labels, scores = batch(case)
    expected = case.make().evaluate(labels, scores).values.numpy()
    for place in range(3):
        scores = batch(case)[1]
        scores[1, place] = math.nan
        values = case.make().evaluate(labels, scores).values.numpy()
        np.testing.assert_array_equal(values[[0, 2]], expected[[0, 2]])
        if isinstance(case.make(), metrics.RankedMetric):
            scores[1, place] = -1e30
            last = case.make().evaluate(labels, scores).values
            np.testing.assert_array_equal(values, last)


@pytest.mark.sample(9)
@every_class
def test_no_lists_and_lists_without_items_are_zero(case: Case) -> None:
    if case in IN_BATCH:
        return  # its lists have an item each
    width = batch(case)[1].shape[2:]
    topics = (3,) if case in DIVERSITY else ()
    for shape, weights in (
        ((0, 3), np.ones([0, 3])),
        ((0, 3), np.ones(0)),
        ((0, 0), None),
        ((2, 0), np.ones([2, 0])),
        ((2, 0), np.ones(2)),
    )[3 * LEAST :]:
        labels = np.zeros([*shape, *(width if case in N_WAY else topics)])
        assert case.make()(labels, np.zeros([*shape, *width]), weights) == 0.0


@every_class
def test_a_ragged_row_longer_than_the_dense_ones_is_refused(case: Case) -> None:
    if case in OF_LISTS:
        longer, dense = tf.ragged.constant([[1.0, 0.0, 2.0], [1.0]]), np.zeros([2, 2])
        for given in ((longer, dense), (dense, longer)):
            with pytest.raises(tf.errors.InvalidArgumentError, match="must not be longer"):
                case.make()(*given)
