"""Contracts on labels of any size, equal scores, and the direction of metrics."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.cases import METRICS, name_of, one_per_class
from tfrank_sel import losses, metrics, objectives
from tfrank_sel.losses import lambdas, targets
from tfrank_sel.objectives import lists
from tfrank_sel.ops import ranking

pytestmark = pytest.mark.usefixtures("eagerly")

RATIOS = [
    losses.LambdaLoss(),
    losses.ApproxNDCGLoss(),
    losses.NeuralSortNDCGLoss(),
    losses.SoftRankLoss(),
    losses.SoftmaxLoss(lambda_weight=lambdas.NDCGLambdaWeight()),
    losses.SoftmaxLoss(targets=targets.Shares(ranking.exponential_gain)),
    metrics.NDCG(10),
    metrics.ERR(),
]
SUMS = [
    losses.ApproxDCGLoss(),
    losses.UniqueSoftmaxLoss(),
    losses.YetiLogisticLoss(),
    losses.RGCrossLoss(gain=ranking.exponential_gain),
    losses.SoftmaxLoss(targets=targets.Gains(ranking.exponential_gain)),
    metrics.DCG(),
]
SCORES = np.random.default_rng(0).normal(size=(1, 30)).astype(np.float32)


@pytest.mark.parametrize("scale", [1.0, 10.0, 1e36])
@pytest.mark.parametrize("formula", RATIOS, ids=lambda x: x.name)
def test_ratios_of_gains_are_finite_for_finite_labels(formula: keras.losses.Loss, scale: float):
    assert np.isfinite(float(formula(np.arange(30.0)[np.newaxis] * scale, SCORES)))


@pytest.mark.parametrize("formula", SUMS, ids=lambda x: x.name)
def test_sums_of_gains_refuse_labels_beyond_their_range(formula: keras.losses.Loss) -> None:
    labels = np.arange(30.0)[np.newaxis]
    assert np.isfinite(float(formula(labels, SCORES)))
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be at most 100"):
        formula(labels * 10.0, SCORES)
    with pytest.raises(ValueError, match="must be at most 100"):
        lists.check_labels(formula, labels * 10.0)


def test_large_labels_have_the_ndcg_of_smaller_ones() -> None:
    labels = np.random.default_rng(1).permutation(30)[np.newaxis].astype(np.float64)
    ndcg = metrics.NDCG(10, dtype="float64")
    expected = float(ndcg(labels + 40.0, SCORES))
    ndcg.reset_state()
    np.testing.assert_allclose(float(ndcg(labels + 3000.0, SCORES)), expected, rtol=1e-9)


def test_rows_have_no_padding_but_nan() -> None:
    objectives.Derivatives(losses.MeanSquaredLoss())([-1.0, 2.0], [0.0, 0.0], group=[2])
    derivatives = objectives.Derivatives(losses.PairwiseLogisticLoss())
    with pytest.raises(ValueError, match="requires labels of at least 0"):
        derivatives([-1.0, 1.0], [0.0, 0.0], group=[2])
    with pytest.raises(ValueError, match="requires labels of at least 0"):
        objectives.lightgbm_metric(metrics.NDCG(10))([-1.0, 1.0], [0.0, 0.0], None, [2])


@pytest.mark.parametrize("case", one_per_class(METRICS), ids=name_of)
def test_metrics_know_their_direction(case) -> None:
    metric = case.make()
    regions = (metrics.RegionAbsoluteError, metrics.RegionDivergence, metrics.ExcessError)
    errors = (metrics.ARP, metrics.LogitNorm, *regions)
    assert metric._direction == ("down" if isinstance(metric, errors) else "up")


@pytest.mark.parametrize("metric", [metrics.NDCG(3), metrics.MRR(), metrics.MAP()])
def test_the_order_of_equal_scores_does_not_count(metric: metrics.ListwiseMetric) -> None:
    labels = np.sort(np.random.default_rng(2).integers(0, 4, [200, 6]), axis=1).astype(float)
    group, scores = np.full(200, 6), np.zeros(1200)
    measure = objectives.lightgbm_metric(metric)
    last, first = (measure(x.ravel(), scores, None, group)[1] for x in (labels, labels[:, ::-1]))
    assert abs(last - first) < 1e-5
