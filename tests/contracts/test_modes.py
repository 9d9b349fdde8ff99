"""Losses and metrics in every mode that users run: the same value and gradient in each.

Nothing here runs under `run_functions_eagerly` but the reference.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import (
    DIVERSITY,
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
from tfrank_sel import links, losses, metrics

Loss = losses.ListwiseLoss
Result = tuple[tf.Tensor, tf.Tensor]

every_loss = pytest.mark.parametrize(
    "case",
    one_per_class(LOSSES + HOLDING + SAMPLED + SCORE_VECTORS + N_WAY + IN_BATCH),
    ids=name_of,
)
every_metric = pytest.mark.parametrize("case", one_per_class(METRICS + DIVERSITY), ids=name_of)

BATCH_SIZE, LIST_SIZE = 4, 5


def batch(case: Case) -> tuple[Array, Array, Array]:
    """Labels, scores with ties, and weights of items or pairs; some items are padding."""
    rng = np.random.default_rng(6)
    shape = (BATCH_SIZE, BATCH_SIZE if case in IN_BATCH else LIST_SIZE)
    classes = (3,) if case in N_WAY else ()
    vectors = (case.make().num_scores or 2,) if case in SCORE_VECTORS else ()
    labels = np.arange(4.0) if case in IN_BATCH else case.labels(rng, (*shape, *classes))
    if case not in IN_BATCH + N_WAY + DIVERSITY:
        labels *= rng.random(shape) < 0.6  # enough items that are not relevant
    if case not in IN_BATCH:
        labels[0, 3:] = np.nan
    scores = rng.integers(-4, 5, (*shape, *classes, *vectors)) / 4.0
    weights = rng.uniform(0.5, 2.0, shape).round(3)
    return labels, scores, weights


def known(x: tf.Tensor) -> Any:
    return x.shape


def of_any_batch(x: tf.Tensor) -> Any:
    return [None, *x.shape[1:]]


def of_any_lists(x: tf.Tensor) -> Any:
    return [None, None, *x.shape[2:]][: x.shape.rank]


def of_any_rank(x: tf.Tensor) -> Any:
    return None


class Mode(NamedTuple):
    """How a function of labels, scores and weights is traced."""

    labels: Callable[[tf.Tensor], Any]  # makes the shape that is traced of that of a tensor
    scores: Callable[[tf.Tensor], Any]
    jit_compile: bool = False

    def __call__(self, function: Callable[..., Any], *fields: tf.Tensor) -> Any:
        shapes = self.labels(fields[0]), self.scores(fields[1]), self.labels(fields[2])
        signature = [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes, fields, strict=True)]
        options = {"jit_compile": self.jit_compile, "autograph": False}
        return tf.function(function, signature, **options)(*fields)


def eager(function: Callable[..., Any], *fields: tf.Tensor) -> Any:
    return function(*fields)


MODES = {
    "eager": eager,
    "any batch size": Mode(of_any_batch, of_any_batch),
    "any shape": Mode(of_any_lists, of_any_lists),
    "any rank of labels and weights": Mode(of_any_rank, of_any_lists),
    "XLA": Mode(known, known, jit_compile=True),
}


@pytest.fixture
def run_eagerly() -> Iterator[Callable[[bool], None]]:
    yield tf.config.run_functions_eagerly
    tf.config.run_functions_eagerly(False)


def with_gradient(loss: Loss, *fields: tf.Tensor) -> Result:
    with tf.GradientTape() as tape:
        tape.watch(fields[1])
        value = loss(*fields)
    return value, tape.gradient(value, fields[1])


def gradient_of_gradient(loss: Loss, *fields: tf.Tensor) -> tf.Tensor:
    with tf.GradientTape() as tape:
        tape.watch(fields[1])
        square = tf.reduce_sum(with_gradient(loss, *fields)[1] ** 2)
    return tape.gradient(square, fields[1])


@every_loss
def test_every_mode_has_the_same_value_and_gradient(
    case: Case, run_eagerly: Callable[[bool], None]
) -> None:
    fields = [tf.constant(x, tf.float32) for x in batch(case)]
    run_eagerly(True)
    expected = with_gradient(case.make(reduction="sum"), *fields)
    run_eagerly(False)
    assert np.any(expected[1] != 0.0)
    modes = {n: m for n, m in MODES.items() if n != "XLA" or case not in SAMPLED}  # has other noise
    for name, mode in modes.items():
        run = functools.partial(with_gradient, case.make(reduction="sum"))
        value, gradient = mode(run, *fields)
        np.testing.assert_allclose(value, expected[0], rtol=1e-5, atol=1e-6, err_msg=name)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-4, atol=1e-6, err_msg=name)


@every_loss
def test_a_gradient_has_a_gradient(case: Case, run_eagerly: Callable[[bool], None]) -> None:
    labels, scores, weights = (tf.constant(x, tf.float64) for x in batch(case))
    untied = scores + 0.01 * tf.cumsum(tf.ones_like(scores), axis=1)
    fields = labels, untied, weights
    make = functools.partial(case.make, reduction="sum", dtype="float64")
    run_eagerly(True)
    expected = gradient_of_gradient(make(), *fields)
    run_eagerly(False)
    found = Mode(known, known)(functools.partial(gradient_of_gradient, make()), *fields)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * np.max(np.abs(expected)))


@pytest.mark.parametrize(
    "loss",
    [losses.ListMLELoss(), losses.LambdaLoss(), losses.SelectiveSoftmaxLoss(links.Exp())],
    ids=lambda loss: type(loss).__name__,
)
def test_eager_tapes_nest(loss: Loss, run_eagerly: Callable[[bool], None]) -> None:
    fields = [tf.constant(x) for x in ([[2.0, 0.0, 1.0]], [[0.5, 1.0, -0.25]], [[1.0, 2.0, 0.5]])]
    run_eagerly(True)
    expected = gradient_of_gradient(loss, *fields)
    run_eagerly(False)
    np.testing.assert_allclose(gradient_of_gradient(loss, *fields), expected, rtol=1e-4)


@every_metric
def test_a_metric_is_the_same_in_every_mode(
    case: Case, run_eagerly: Callable[[bool], None]
) -> None:
    fields = [tf.constant(x, tf.float32) for x in batch(case)]
    run_eagerly(True)
    expected = case.make()(*fields)
    run_eagerly(False)
    for name, mode in MODES.items():
        metric = case.make()

        def update(*fields: tf.Tensor, metric: Any = metric) -> None:
            metric.update_state(*fields)  # returns an operation in graphs of Keras 2

        mode(update, *fields)
        np.testing.assert_allclose(metric.result(), expected, rtol=1e-5, err_msg=name)


def scorer(loss: Loss, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape([-1])])
    model.compile(keras.optimizers.SGD(0.1), loss, weighted_metrics=[metrics.MRR()], **options)
    return model


@pytest.mark.parametrize("batch_size", [1, 2])
def test_weights_of_items_may_follow_weights_of_lists(batch_size: int) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=[4, 3, 2]), rng.integers(0, 3, [4, 3]).astype(float)
    model = scorer(losses.SoftmaxLoss())
    for shape in ([4], [4, 1], [4, 3], [4]):
        weights = rng.uniform(0.5, 2.0, shape)
        given = {"batch_size": batch_size, "sample_weight": weights, "verbose": 0}
        found = model.evaluate(x, y, **given)
        expected = model.loss(y, model(x), weights), metrics.MRR()(y, model(x), weights)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
