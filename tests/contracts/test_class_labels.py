"""Contracts of formulas for labels that are the index of one relevant item per list."""

import functools
import re
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import (
    HOLDING,
    LOSSES,
    METRICS,
    SAMPLED,
    SCORE_VECTORS,
    Case,
    name_of,
    one_per_class,
)
from tfrank_sel import losses, metrics

pytestmark = pytest.mark.usefixtures("eagerly")

FORMULAS = one_per_class([*LOSSES, *HOLDING, *SAMPLED, *METRICS])
OF_RELEVANCES = [case for case in FORMULAS if case.make().min_label == 0.0]
OF_SCORES = [case for case in FORMULAS if case.make().min_label != 0.0]
# which take an index of any dtype
OF_CLASSES = (losses.MarginSoftmaxLoss, losses.SmoothTopKLoss, losses.TopKHingeLoss)

every_formula = pytest.mark.parametrize("case", OF_RELEVANCES, ids=name_of)

SCORES = np.random.default_rng(8).normal(size=[4, 5]).astype(np.float32)
CLASSES = np.array([3, 0, -1, 4])  # a list that does not count among them
ONE_HOT = np.eye(5, dtype=np.float32)[CLASSES]
ONE_HOT[2] = -1.0
WEIGHTS = np.random.default_rng(9).uniform(0.5, 2.0, [4, 5]).astype(np.float32)


def over_counted(formula: Any, labels: Any, scores: Any, weights: Any = None) -> Any:
    """The mean over the lists that have an item; Keras divides a loss by the number of all."""
    value = formula(labels, scores, weights)
    if not isinstance(formula, losses.ListwiseLoss):
        return value
    has_items = [bool(np.any(row >= 0.0)) for row in labels]
    return value * len(has_items) / sum(has_items)


@pytest.mark.sample(9)
@every_formula
@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8"])
def test_an_index_is_a_one_hot_row(case: Case, dtype: str) -> None:
    known = CLASSES >= 0 if dtype == "uint8" else np.full(4, True)
    classes, scores = tf.constant(CLASSES[known], dtype), SCORES[known]
    of_any_shape = (WEIGHTS[known, 0], WEIGHTS[known, :1], WEIGHTS[known])
    for weights in (None, *(of_any_shape if dtype == "int32" else ())):
        expected = over_counted(case.make(), ONE_HOT[known], scores, weights)
        for y_true in (classes, classes[:, tf.newaxis]):
            np.testing.assert_allclose(case.make()(y_true, scores, weights), expected, rtol=1e-5)


@pytest.mark.sample(9)
@every_formula
def test_an_index_of_masked_and_of_ragged_lists(case: Case) -> None:
    valid = np.array([[True] * 5, [True, True, False, True, True], [True] * 5, [False] * 5])
    masked = tf.constant(SCORES)
    masked._keras_mask = tf.constant(valid)
    expected = over_counted(case.make(), np.where(valid, ONE_HOT, -1.0), SCORES)
    np.testing.assert_allclose(case.make()(CLASSES, masked), expected, rtol=1e-5)
    ragged = tf.RaggedTensor.from_tensor(SCORES, lengths=[4, 1, 5, 5])
    labels = tf.RaggedTensor.from_tensor(ONE_HOT, lengths=[4, 1, 5, 5])
    expected = over_counted(case.make(), labels, ragged)
    np.testing.assert_allclose(case.make()(CLASSES, ragged), expected, rtol=1e-5)


@pytest.mark.sample(28)
@pytest.mark.compiled
@pytest.mark.parametrize("make", [losses.SoftmaxLoss, losses.RGCrossLoss, metrics.NDCG])
@pytest.mark.parametrize("jit_compile", [True, False])
@pytest.mark.parametrize("known", [(4, 1), (None,), (None, 1), (None, None), None], ids=str)
def test_an_index_in_graphs(make: Any, jit_compile: bool, known: Any) -> None:
    formula = make() if make is not metrics.NDCG else metrics.Evaluator([make()])
    y_true = CLASSES if known == (None,) else CLASSES[:, np.newaxis]

    @tf.function(
        input_signature=[tf.TensorSpec(known, tf.int64), tf.TensorSpec([None, None])],
        jit_compile=jit_compile,
    )
    def call(y_true: tf.Tensor, y_pred: tf.Tensor) -> Any:
        return formula(y_true, y_pred)

    result = call(y_true, SCORES)
    value = result["ndcg"].mean() if isinstance(result, dict) else result
    np.testing.assert_allclose(value, over_counted(make(), ONE_HOT, SCORES), rtol=1e-5)


@pytest.mark.compiled
def test_labels_of_unknown_width_stay_labels() -> None:
    evaluate = metrics.Evaluator([metrics.DCG()])

    @tf.function(
        input_signature=[tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None])]
    )
    def call(y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        return evaluate(y_true, y_pred)["dcg"].values

    grades = np.array([[2, 0, 1, 0, 1]] * 4, np.int32)
    expected = metrics.DCG().evaluate(grades.astype(np.float32), SCORES).values
    np.testing.assert_allclose(call(grades, SCORES), expected, rtol=1e-6)
    np.testing.assert_allclose(call(grades[:, :1], SCORES[:, :1]), [3.0] * 4)  # lists of one item


@pytest.mark.long
@pytest.mark.compiled
@pytest.mark.parametrize(("run_eagerly", "shape"), [(True, [-1]), (False, [-1]), (False, [-1, 1])])
def test_a_classifier_trains(run_eagerly: bool, shape: list[int]) -> None:
    keras.utils.set_random_seed(2)
    features = np.random.default_rng(2).normal(size=[64, 6]).astype(np.float32)
    classes = np.argmax(features[:, :4], axis=1)
    y_true = classes.reshape(shape)
    model = keras.Sequential([keras.Input([6]), keras.layers.Dense(4)])
    model.compile(
        keras.optimizers.Adam(0.1),
        losses.SoftmaxLoss(),
        metrics=[metrics.MRR()],
        run_eagerly=run_eagerly,
    )
    model.fit(features, y_true, batch_size=24, epochs=8, verbose=0)
    found = model.evaluate(features, y_true, verbose=0, return_dict=True)
    assert found["mrr"] > 0.9
    expected = metrics.MRR()(np.eye(4)[classes], model.predict(features, verbose=0))
    np.testing.assert_allclose(found["mrr"], expected, rtol=1e-5)


@pytest.mark.parametrize("case", OF_SCORES, ids=name_of)
def test_an_index_beside_scores_is_refused_with_advice(case: Case) -> None:
    for y_true in (CLASSES, CLASSES[:, np.newaxis], CLASSES.astype(np.float32)):
        with pytest.raises(ValueError, match=re.escape("write tf.one_hot(y_true, 5)")):
            case.make()(y_true, SCORES)


@pytest.mark.parametrize("case", one_per_class(SCORE_VECTORS), ids=name_of)
def test_an_index_beside_vectors_of_scores_is_refused_with_advice(case: Case) -> None:
    loss = case.make()
    with pytest.raises(ValueError, match=re.escape("write tf.one_hot(y_true, 5)")):
        loss(CLASSES, np.zeros([4, 5, loss.num_scores or 2]))


@every_formula
def test_numbers_that_are_no_integers_are_refused_with_advice(case: Case) -> None:
    if issubclass(case.make.func, OF_CLASSES):
        return
    for y_true in (CLASSES.astype(np.float32), CLASSES[:, np.newaxis] * 1.0):
        with pytest.raises(ValueError, match=re.escape("write tf.cast(y_true, tf.int32)")):
            case.make()(y_true, SCORES)
    with pytest.raises(ValueError, match=re.escape("y_true.shape=(3,), y_pred.shape=(4, 5)")):
        case.make()(CLASSES[:3], SCORES)


def sequences() -> tuple[Any, Any, Any]:
    """Indices of two sequences of three positions, some padded, and the scores of five items."""
    rng = np.random.default_rng(10)
    indices = np.array([[3, -1, 0], [4, 2, -1]])
    return indices, rng.normal(size=[2, 3, 5]).astype(np.float32), rng.uniform(0.5, 2.0, [2, 3, 5])


@pytest.mark.sample(20)
@every_formula
def test_each_position_of_a_sequence_is_a_list(case: Case) -> None:
    indices, scores, weights = sequences()
    flat = indices.ravel(), scores.reshape(-1, 5)
    for of_all, of_flat in (
        (None, None),
        (weights[..., 0], weights[..., 0].ravel()),
        (weights[:, 0, 0], np.repeat(weights[:, 0, 0], 3)),
        (weights[:, :1, 0], np.repeat(weights[:, 0, 0], 3)),
        (weights, weights.reshape(-1, 5)),
    ):
        expected = case.make()(*flat, of_flat)
        np.testing.assert_allclose(case.make()(indices, scores, of_all), expected, rtol=1e-6)
    masked = tf.constant(scores)
    masked._keras_mask = tf.constant(indices >= 0)
    np.testing.assert_allclose(
        case.make()(np.maximum(indices, 0), masked), case.make()(*flat), rtol=1e-6
    )


@pytest.mark.compiled
@pytest.mark.parametrize("jit_compile", [None, False, True])
def test_sequences_equal_the_cross_entropy_of_keras(jit_compile: bool | None) -> None:
    indices, scores, weights = sequences()
    keras_loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, ignore_class=-1)
    ours = losses.SoftmaxLoss()

    def step(y_pred: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(y_pred)
            value = ours(indices, y_pred, weights[..., 0])
        return value, tape.gradient(value, y_pred)

    run = step if jit_compile is None else tf.function(step, jit_compile=jit_compile)
    value, gradient = run(tf.constant(scores))
    expected = keras_loss(indices, scores, weights[..., 0])
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    assert not gradient.numpy()[indices < 0].any()
    assert gradient.numpy()[indices >= 0].all()
    values = losses.SoftmaxLoss(reduction="none")(indices, scores)
    assert values.shape == (2, 3)


@pytest.mark.parametrize(
    "make",
    [losses.SoftmaxLoss, losses.ApproxNDCGLoss, functools.partial(losses.TopKHingeLoss, k=2)],
)
def test_an_index_beside_scores_with_a_last_axis_of_one(make: Any) -> None:
    for reduction in ("none", "sum_over_batch_size"):
        loss = make(reduction=reduction)
        expected = loss(CLASSES, SCORES)
        assert expected.shape == ([4] if reduction == "none" else [])
        for y_true in (CLASSES, CLASSES[:, np.newaxis, np.newaxis]):
            np.testing.assert_array_equal(loss(y_true, SCORES[..., np.newaxis]), expected)


def test_an_index_of_float_is_a_whole_number_of_any_size() -> None:
    loss, scores = losses.TopKHingeLoss(k=2), SCORES[:3]
    expected = loss(np.array([3, 7, -1]), scores)
    for dtype, far, padding in (("float32", 3e9, np.nan), ("float16", np.inf, -1.0)):
        found = loss(tf.constant([3.0, far, padding], dtype), scores)
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a whole number"):
        loss(np.array([3.0, 0.5, 1.0]), scores)
    with pytest.raises(ValueError, match="the index of its relevant item, one integer per list"):
        loss(np.array([True, False, True]), scores)


def test_a_class_far_above_the_others_has_a_second_derivative() -> None:
    scores = tf.constant([[200.0, 0.0, 1.0]])
    with tf.GradientTape() as outer:
        outer.watch(scores)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = losses.ZLPRLoss()(np.array([0]), scores)
        gradient = tape.gradient(value, scores)
    p = np.exp([0.0, 1.0]) / (1.0 + np.exp([0.0, 1.0]).sum())
    np.testing.assert_allclose(gradient[0], [0.0, *p], rtol=1e-6)
    # of the sum of the gradient, p1 + p2
    found = outer.gradient(gradient, scores)[0]
    np.testing.assert_allclose(found, [0.0, *p * (1.0 - p.sum())], rtol=1e-5)
