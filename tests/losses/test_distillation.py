"""Distillation: what its guide says of existing losses, and ranks of ties."""

import math

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, strategies as st
from scipy.stats import rankdata, spearmanr

from tfrank_sel import links, losses
from tfrank_sel.losses import targets
from tfrank_sel.ops import label_order

pytestmark = pytest.mark.usefixtures("eagerly")

RNG = np.random.default_rng(0)


@pytest.mark.long
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=9), st.integers(0, 3))
def test_tied_labels_have_the_mean_of_their_ranks(labels: list[int], padding: int) -> None:
    y = np.float32([*labels, *[math.nan] * padding])
    mask = ~np.isnan(y)
    found = label_order.mean_ranks(tf.constant([np.where(mask, y, 0.0)]), tf.constant([mask]))
    np.testing.assert_array_equal(found[0, : len(labels)], rankdata(-y[mask]))
    np.testing.assert_array_equal(found[0, len(labels) :], np.zeros(padding))


@pytest.mark.parametrize("link", [links.Sigmoid(), links.Laplace()])
def test_the_spearman_loss_goes_to_one_less_the_correlation(link: links.Link) -> None:
    y, s = RNG.normal(size=[2, 20])
    loss = losses.SpearmanLoss(1e-6, link, dtype="float64")
    assert float(loss([y], [s])) == pytest.approx(1.0 - spearmanr(y, s).statistic, rel=1e-6)


def test_pairwise_mse_is_margin_mse_of_labels_that_are_not_negative() -> None:
    (y, z), (s, t) = RNG.normal(size=[2, 2])
    low = min(y, z)
    expected = ((s - t) - (y - z)) ** 2
    assert float(losses.MarginMSELoss()([[y, z]], [[s, t]])) == pytest.approx(expected, rel=1e-5)
    loss = float(losses.PairwiseMSELoss()([[y - low, z - low]], [[s, t]]))
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_softmax_of_targets_has_the_gradient_of_the_divergence_from_the_teacher() -> None:
    y, s = RNG.normal(size=[2, 1, 6])

    def gradient(loss: losses.ListwiseLoss, labels: np.ndarray) -> tf.Tensor:
        scores = tf.constant(s)
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = loss(labels, scores)
        return tape.gradient(value, scores)

    p, q = (np.exp(x) / np.exp(x).sum() for x in (s, y))
    softmax = losses.SoftmaxLoss(targets=targets.Softmax(), dtype="float64")
    np.testing.assert_allclose(gradient(softmax, y - y.min()), p - q, rtol=1e-8)
    selective = losses.SelectiveSoftmaxLoss(links.Constant(), dtype="float64")
    np.testing.assert_allclose(gradient(selective, y), p - q, rtol=1e-8)
    divergence = np.sum(q * np.log(q / p))
    assert float(selective(y, s)) == pytest.approx(divergence, rel=1e-8)


def test_weighted_cross_entropy_of_the_teachers_top_is_ranking_distillation() -> None:
    y, s = RNG.normal(size=[2, 8])
    ranks = rankdata(-y)
    labels = np.where(ranks <= 3, 1.0, -1.0)
    weights = np.exp(-ranks / 2.0)
    loss = losses.SigmoidCrossEntropyLoss(losses.sum_over_terms, dtype="float64")
    found = float(loss([labels], [s], [weights]))
    top = np.argsort(-y)[:3]
    expected = sum(
        -math.exp(-r / 2.0) * math.log(1 / (1 + math.exp(-s[i]))) for r, i in enumerate(top, 1)
    )
    assert found == pytest.approx(expected, rel=1e-10)
