"""Claims of the listwise losses about ties, extremes and metrics."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.references import listwise
from tfrank_sel import links, losses, metrics
from tfrank_sel.ops import label_order

pytestmark = pytest.mark.usefixtures("eagerly")


def of_one_order(labels: list[float], scores: list[float], order: tuple[int, ...]) -> float:
    """ListMLE where ties keep the given order."""
    ranked = sorted(order, key=lambda i: -labels[i])
    x = [scores[i] for i in ranked]
    return -sum(listwise.log_softmax(x[r:])[0] for r in range(len(x)))


@pytest.mark.parametrize("seed", range(4))
def test_ties_cost_between_the_mean_and_the_most_of_all_orders(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, 3, 6).tolist(), (3.0 * rng.normal(size=6)).tolist()
    costs = [of_one_order(labels, scores, p) for p in itertools.permutations(range(6))]
    value = losses.ListMLELoss(dtype="float64")([labels], [scores])
    assert np.mean(costs) <= value <= np.max(costs)
    flat = losses.ListMLELoss(dtype="float64")([labels], [[1.0] * 6])
    np.testing.assert_allclose(flat, math.log(math.factorial(6)), rtol=1e-12)


def test_the_likelihood_is_exact_however_far_scores_are_apart() -> None:
    loss = losses.ListMLELoss()
    expected = math.log1p(math.exp(-50) + math.exp(-100)) + math.log1p(math.exp(-50))
    np.testing.assert_allclose(loss([[2.0, 1.0, 0.0]], [[100.0, 50.0, 0.0]]), expected, atol=1e-20)
    np.testing.assert_allclose(loss([[2.0, 1.0, 0.0]], [[0.0, 50.0, 100.0]]), 150.0)
    far = tf.constant([[1e4, -1e4, 3e4, -2e4]])
    with tf.GradientTape() as tape:
        tape.watch(far)
        value = loss([[3.0, 2.0, 1.0, 0.0]], far)
    np.testing.assert_allclose(value, 2e4 + 4e4)
    np.testing.assert_allclose(tape.gradient(value, far), [[-1.0, -1.0, 2.0, 0.0]], atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_labels_sort_with_padding_last_and_ties_in_order(dtype: str) -> None:
    labels = tf.constant([[0.0, -0.0, 2.5, 1e-30, 0.0, 2.5, 3e38]], dtype)
    mask = tf.constant([[True, True, True, True, False, True, True]])
    scores = tf.constant([np.arange(7.0)], dtype)
    found = label_order.sort(labels, scores, mask)
    np.testing.assert_array_equal(found[1][0, :6], [6.0, 2.0, 5.0, 3.0, 0.0, 1.0])
    np.testing.assert_array_equal(found[2], [[True] * 6 + [False]])
    np.testing.assert_array_equal(found[0][0, :4], labels.numpy()[0, [6, 2, 5, 3]])


METRICS: dict[str, tuple[Callable[..., Any], Any]] = {
    "DCG": (losses.ApproxDCGLoss, metrics.DCG()),
    "NDCG": (losses.ApproxNDCGLoss, metrics.NDCG()),
    "AP": (losses.ApproxAPLoss, metrics.MAP()),
    "soft permutation": (losses.NeuralSortNDCGLoss, metrics.NDCG()),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_relaxed_metric_is_the_metric_once_the_temperature_is_low(name: str) -> None:
    make, metric = METRICS[name]
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, (3, 6)).astype(float)
    scores = np.array([rng.permutation(6) for _ in range(3)], float)
    np.testing.assert_allclose(
        -make(temperature=0.01)(labels, scores), metric(labels, scores), rtol=1e-5
    )


def test_a_soft_cutoff_counts_half_of_what_lies_on_it() -> None:
    # ranks 1, 2.5, 2.5, 4: two of three relevant items at k + 1/2
    labels, scores = [[1.0, 1.0, 1.0, 0.0]], [[9.0, 5.0, 5.0, 1.0]]
    hits = 1.0 / (1.0 + math.exp(-1.5)) + 2 * 0.5
    for make, count in ((losses.ApproxPrecisionLoss, 2), (losses.ApproxRecallLoss, 3)):
        loss = make(k=2, temperature=0.01)
        np.testing.assert_allclose(loss(labels, scores), -hits / count, rtol=1e-6)


def test_any_link_from_0_to_1_relaxes_ranks() -> None:
    steps = links.Step()
    loss = losses.ApproxNDCGLoss(link=steps)
    labels, scores = [[1.0, 0.0, 2.0]], [[0.3, 0.2, 0.1]]
    np.testing.assert_allclose(-loss(labels, scores), metrics.NDCG()(labels, scores), rtol=1e-6)


def test_ragged_vectors_of_unknown_length_have_the_same_loss_in_a_graph() -> None:
    loss = losses.OrdinalLoss(3)
    labels = tf.ragged.constant([[0.0, 2.0], [1.0]])
    rows = [[[0.1, 0.3, 0.2], [0.4, 0.1, 0.0]], [[0.2, 0.5, 0.1]]]
    scores = tf.ragged.constant(rows, ragged_rank=1)
    lists = tf.RaggedTensorSpec([None, None])
    vectors = tf.RaggedTensorSpec([None, None, 3], ragged_rank=1)
    run = tf.function(loss, input_signature=[lists, vectors], autograph=False)
    np.testing.assert_allclose(run(labels, scores), loss(labels, scores), rtol=1e-6)
