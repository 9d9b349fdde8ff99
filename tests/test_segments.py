"""Several lists in one row."""

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses, metrics
from tfrank_sel.data import split_segments

RNG = np.random.default_rng(0)
SEGMENTS = np.array([[7, 2, 7, -1, 2, 0, 2, 0], [5, 5, 5, 5, -1, 7, -1, 7]])
LABELS = RNG.integers(0, 3, SEGMENTS.shape).astype(np.float64)
SCORES = RNG.normal(size=SEGMENTS.shape)
WEIGHTS = RNG.uniform(0.5, 2.0, SEGMENTS.shape)


def lists() -> list[tuple[np.ndarray, ...]]:
    """The labels, scores and weights of each list, picked by hand."""
    picked = []
    for row, segment in [(0, 0), (0, 2), (0, 7), (1, 5), (1, 7)]:
        where = SEGMENTS[row] == segment
        picked.append(tuple(x[row][where][None] for x in (LABELS, SCORES, WEIGHTS)))
    return picked


@pytest.mark.sample(2)
@pytest.mark.parametrize("in_graph", [False, True])
def test_a_loss_of_segments_is_that_of_their_lists(in_graph: bool) -> None:
    loss = losses.PairwiseLogisticLoss(dtype="float64", reduction="none")

    def value_and_gradient(scores: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(*split_segments(SEGMENTS, LABELS, scores, WEIGHTS))
        return value, tape.gradient(value, scores)

    function = tf.function(value_and_gradient) if in_graph else value_and_gradient
    value, gradient = function(tf.constant(SCORES))
    np.testing.assert_allclose(value, [loss(*x)[0] for x in lists()], rtol=1e-12)
    assert np.all(gradient.numpy()[SEGMENTS < 0] == 0.0)
    for row, segment in [(0, 2), (1, 5)]:
        where = SEGMENTS[row] == segment
        scores = tf.constant(SCORES[row][where][None])
        with tf.GradientTape() as tape:
            tape.watch(scores)
            alone = loss(LABELS[row][where][None], scores, WEIGHTS[row][where][None])
        np.testing.assert_allclose(gradient[row][where], tape.gradient(alone, scores)[0])


def test_a_metric_of_segments_is_that_of_their_lists() -> None:
    expected = metrics.NDCG(k=2, dtype="float64")
    for x in lists():
        expected.update_state(*x)
    ndcg = metrics.NDCG(k=2, dtype="float64")
    value = ndcg(*split_segments(SEGMENTS, LABELS, SCORES, WEIGHTS))
    np.testing.assert_allclose(value, expected.result(), rtol=1e-12)


def test_each_item_may_have_more_than_a_number() -> None:
    [vectors] = split_segments(SEGMENTS, np.stack([LABELS, SCORES], axis=-1))
    assert vectors.shape[2] == 2
    for actual, (labels, scores, _) in zip(vectors, lists(), strict=True):
        np.testing.assert_array_equal(actual, np.stack([labels[0], scores[0]], axis=-1))


def test_rows_without_items_make_no_list() -> None:
    [nothing] = split_segments([[-1, -1], [-1, -1]], LABELS[:, :2])
    assert nothing.nrows() == 0


@pytest.mark.parametrize("splits", ["int32", "int64"])
def test_ragged_labels_go_with_dense_and_with_ragged_scores_in_a_graph(splits: str) -> None:
    labels = tf.ragged.constant([[1.0, 0.0], [0.0, 2.0, 1.0]], row_splits_dtype=splits)
    scores = tf.constant([[0.3, 0.1, 9.0], [0.2, 0.5, 0.4]])
    lengths = tf.constant([2, 3], tf.int64)
    loss = losses.SoftmaxLoss()
    value = tf.function(
        lambda y, z: loss(y, z), input_signature=[labels._type_spec, tf.TensorSpec([None, None])]
    )
    expected = loss([[1.0, 0.0, -1.0], [0.0, 2.0, 1.0]], scores)
    np.testing.assert_allclose(value(labels, scores), expected, rtol=1e-6)
    ragged = tf.RaggedTensor.from_tensor(scores, lengths)
    np.testing.assert_allclose(tf.function(loss)(labels, ragged), expected, rtol=1e-6)
