"""Losses and metrics in every mode that users run: the same value and gradient in each.

Nothing here runs under `run_functions_eagerly` but the reference.
"""

import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import (
    DIVERSITY,
    EVERY_LOSS,
    EVERY_METRIC,
    IN_BATCH,
    LOSSES,
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
    one_per_class(EVERY_LOSS),
    ids=name_of,
)
every_metric = pytest.mark.parametrize("case", one_per_class(EVERY_METRIC), ids=name_of)

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
        return self.trace(function, *fields)(*fields)

    def trace(self, function: Callable[..., Any], *fields: tf.Tensor) -> Callable[..., Any]:
        shapes = self.labels(fields[0]), self.scores(fields[1]), self.labels(fields[2])
        signature = [tf.TensorSpec(s, x.dtype) for s, x in zip(shapes, fields, strict=True)]
        options = {"jit_compile": self.jit_compile, "autograph": False}
        return tf.function(function, signature, **options)


def eager(function: Callable[..., Any], *fields: tf.Tensor) -> Any:
    return function(*fields)


KNOWN, ANY_RANK = Mode(known, known), Mode(of_any_rank, of_any_lists)
MODES = {"any rank": ANY_RANK, "XLA": Mode(known, known, jit_compile=True)}
MODES_OF_METRICS = {
    "any shape": Mode(of_any_lists, of_any_lists),
    "any rank": ANY_RANK,  # of labels and weights
    "eager": eager,
    "any batch size": Mode(of_any_batch, of_any_batch),
    "XLA": MODES["XLA"],
}


@pytest.fixture
def run_eagerly() -> Iterator[Callable[[bool], None]]:
    yield tf.config.run_functions_eagerly
    tf.config.run_functions_eagerly(False)


def with_gradient(loss: Loss, *fields: tf.Tensor) -> Result:
    with tf.GradientTape() as tape:
        tape.watch(fields[1])
        value = loss(*fields)
        half = 0.5 * value  # so that what comes from above is not 1
    return value, tape.gradient(half, fields[1])


def value_gradient_and_second(loss: Loss, *fields: tf.Tensor) -> tuple[tf.Tensor, ...]:
    """The value, its gradient, and the gradient of the gradient's square."""
    with tf.GradientTape() as tape:
        tape.watch(fields[1])
        value, gradient = with_gradient(loss, *fields)
        square = tf.reduce_sum(gradient**2)
    return value, gradient, tape.gradient(square, fields[1])


@every_loss
def test_a_graph_has_the_same_value_and_gradients(
    case: Case, run_eagerly: Callable[[bool], None]
) -> None:
    assert_is_that_of_eager_mode(case, KNOWN, run_eagerly)


@pytest.mark.sample(28)
@every_loss
@pytest.mark.parametrize("mode", MODES)
def test_every_mode_has_the_same_value_and_gradients(
    case: Case, mode: str, run_eagerly: Callable[[bool], None]
) -> None:
    assert_is_that_of_eager_mode(case, MODES[mode], run_eagerly)


def assert_is_that_of_eager_mode(
    case: Case, mode: Mode, run_eagerly: Callable[[bool], None]
) -> None:
    labels, tied, weights = (tf.constant(x, tf.float64) for x in batch(case))

    def make() -> Loss:
        return case.make(reduction="sum", dtype="float64")

    run_eagerly(True)
    expected = with_gradient(make(), labels, tied, weights)
    assert np.any(expected[1] != 0.0)
    run_eagerly(False)
    run = functools.partial(with_gradient, make())
    value, gradient = mode(run, labels, tied, weights)
    if case in SAMPLED and mode.jit_compile:  # XLA has other noise
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))
        return
    np.testing.assert_allclose(value, expected[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-12)


@pytest.mark.sample(28)
@every_loss
def test_second_derivatives_of_a_graph_are_those_of_eager_mode(
    case: Case, run_eagerly: Callable[[bool], None]
) -> None:
    labels, tied, weights = (tf.constant(x, tf.float64) for x in batch(case))
    fields = labels, tied + 0.01 * tf.cumsum(tf.ones_like(tied), axis=1), weights  # without ties

    def run() -> Callable[..., tuple[tf.Tensor, ...]]:
        loss = case.make(reduction="sum", dtype="float64")
        return functools.partial(value_gradient_and_second, loss)

    run_eagerly(True)
    *_, expected = run()(*fields)
    run_eagerly(False)
    *_, found = KNOWN(run(), *fields)
    scale = np.max(np.abs(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8 * scale)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "loss",
    [losses.ListMLELoss(), losses.LambdaLoss(), losses.SelectiveSoftmaxLoss(links.Exp())],
    ids=lambda loss: type(loss).__name__,
)
def test_eager_tapes_nest(loss: Loss, run_eagerly: Callable[[bool], None]) -> None:
    fields = [tf.constant(x) for x in ([[2.0, 0.0, 1.0]], [[0.5, 1.0, -0.25]], [[1.0, 2.0, 0.5]])]
    run_eagerly(True)
    expected = value_gradient_and_second(loss, *fields)[2]
    run_eagerly(False)
    second = value_gradient_and_second(loss, *fields)[2]
    np.testing.assert_allclose(second, expected, rtol=1e-4)


@pytest.mark.sample(len(MODES_OF_METRICS))
@every_metric
@pytest.mark.parametrize("mode", MODES_OF_METRICS)
def test_a_metric_is_the_same_in_every_mode(
    case: Case, mode: str, run_eagerly: Callable[[bool], None]
) -> None:
    fields = [tf.constant(x, tf.float32) for x in batch(case)]
    run_eagerly(True)
    expected = case.make()(*fields)
    run_eagerly(False)
    metric = case.make()

    def update(*fields: tf.Tensor) -> None:
        metric.update_state(*fields)  # returns an operation in graphs of Keras 2

    MODES_OF_METRICS[mode](update, *fields)
    np.testing.assert_allclose(metric.result(), expected, rtol=1e-5)


def examples(case: Case) -> tuple[keras.Model, Array, Array, Array]:
    """A model, and features, labels and weights that it can be trained on."""
    rng = np.random.default_rng(3)
    keras.utils.set_random_seed(3)
    if case in N_WAY + IN_BATCH:
        features = rng.normal(size=[24, 8])
        rows = np.eye(3)[np.argmax(features[:, :3], axis=1)]
        labels, width = (rows, 3) if case in N_WAY else (np.arange(24), 12)
        return ranker([8], width), features, labels, rng.uniform(0.5, 2.0, 24)
    features = rng.normal(size=[24, 4, 3])
    if case in SCORE_VECTORS:
        labels, width = features.sum(axis=-1) > 0.0, case.make().num_scores or 2
        model = ranker([4, 3], width)
    else:
        labels, model = np.clip(features.sum(axis=-1).round(), 0.0, 4.0), ranker([4, 3], 1, [4])
    labels = np.where(rng.random(labels.shape) < 0.9, labels, np.nan)
    return model, features, labels, rng.uniform(0.5, 2.0, labels.shape)


def ranker(shape: list[int], width: int, scores: list[int] | None = None) -> keras.Model:
    model = keras.Sequential([keras.Input(shape), keras.layers.Dense(width, use_bias=False)])
    if scores is not None:
        model.add(keras.layers.Reshape(scores))
    return model


def fit(
    model: keras.Model, loss: Loss, *fields: Array, epochs: int = 4, **options: Any
) -> tuple[list[Array], dict[str, list[float]]]:
    """The weights and the history of a short training."""
    model.compile(keras.optimizers.Adam(0.1), loss, **options)
    rows = tf.data.Dataset.from_tensor_slices(tuple(fields))
    is_static = options.get("jit_compile", False)
    told = model.fit(rows.batch(12, drop_remainder=is_static), epochs=epochs, verbose=0)
    return model.get_weights(), told.history


@pytest.mark.long
@every_loss
def test_trains_alike_in_every_mode_and_loads(case: Case, tmp_path: pathlib.Path) -> None:
    learnt, epochs = [], 8 if case in SAMPLED else 4
    for mode in ({"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}):
        model, *fields = examples(case)
        weights, history = fit(model, case.make(), *fields, epochs=epochs, **mode)
        assert history["loss"][-1] < history["loss"][0], mode
        learnt.append((*weights, history["loss"]))
    if case in SAMPLED:  # XLA has other noise
        assert len(set(history["loss"])) == epochs
        learnt.pop()
    for other in learnt[1:]:
        for x, y in zip(other, learnt[0], strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.loss.get_config() == model.loss.get_config()
    np.testing.assert_allclose(loaded(fields[0]), model(fields[0]), rtol=1e-6)


@pytest.mark.long
def test_metrics_of_a_training_are_the_same_in_every_mode() -> None:
    told = []
    for mode in ({"run_eagerly": True}, {"jit_compile": False}, {"jit_compile": True}):
        model, *fields = examples(LOSSES[0])
        measures = [metrics.NDCG(1), metrics.NDCG(2), metrics.MRR()]
        _, history = fit(model, losses.SoftmaxLoss(), *fields, **mode, weighted_metrics=measures)
        told.append(history)
    assert set(told[0]) == {"loss", "ndcg_at_1", "ndcg_at_2", "mrr"}
    for name, values in told[0].items():
        np.testing.assert_allclose([x[name] for x in told], [values] * 3, rtol=1e-4, err_msg=name)


def scorer(loss: Loss, **options: Any) -> keras.Model:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(1), keras.layers.Reshape([-1])])
    model.compile(keras.optimizers.SGD(0.1), loss, weighted_metrics=[metrics.MRR()], **options)
    return model


@pytest.mark.long
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
