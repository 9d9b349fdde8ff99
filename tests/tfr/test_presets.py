"""Presets beside tensorflow-ranking itself, in one process, on lists with padding and weights."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel.migration import names
from tfrank_sel.presets import tfr as ours

pytestmark = pytest.mark.usefixtures("eagerly")

theirs = pytest.importorskip("tensorflow_ranking").keras

NUM_SCORES = {"OrdinalLoss": 2, "ClickEMLoss": 2, "MixtureEMLoss": 3}
ARGUMENTS = {
    "OrdinalLoss": {"ordinal_size": 2},
    "CalibratedSoftmaxLoss": {"virtual_label": 0.5},
    "ClickEMLoss": {"exam_loss_weight": 0.5},
}
NOISY = {"CoupledRankDistilLoss", "GumbelApproxNDCGLoss", "YetiLogisticLoss"}
CLASSES = sorted(names.LOSSES.keys() - NOISY - {"get", "ListMLELoss"})


def lists(num_scores: int | None) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    labels = np.array([random.permutation(6) for _ in range(5)], np.float32)
    labels[0, 3:] = labels[1, 5] = -1.0
    shape = (5, 6) if num_scores is None else (5, 6, num_scores)
    scores = random.normal(size=shape).astype(np.float32)
    return labels, scores, random.uniform(0.5, 2.0, [5, 6]).astype(np.float32)


def value_and_gradient(loss: Any, labels: Any, scores: Any, weights: Any) -> tuple[Any, Any]:
    scores = tf.constant(scores)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss(tf.constant(labels), scores, weights)
    return value, tape.gradient(value, scores)


def assert_same(name: str, arguments: dict[str, Any], weighted: bool = False) -> None:
    labels, scores, weights = lists(NUM_SCORES.get(name))
    for reduction in ("sum_over_batch_size", "sum"):
        made = (
            getattr(theirs.losses, name)(**arguments.get("theirs", arguments), reduction=reduction),
            getattr(ours.losses, names.LOSSES[name])(
                **arguments.get("ours", arguments), reduction=reduction
            ),
        )
        expected, found = (
            value_and_gradient(x, labels, scores, weights if weighted else None) for x in made
        )
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", CLASSES)
def test_a_loss_has_the_value_and_the_gradient(name: str, weighted: bool) -> None:
    assert_same(name, ARGUMENTS.get(name, {}), weighted)


@pytest.mark.parametrize("weight", ["DCGLambdaWeight", "NDCGLambdaWeight", "NDCGLambdaWeightV2"])
@pytest.mark.parametrize("name", ["PairwiseLogisticLoss", "PairwiseHingeLoss"])
def test_a_loss_with_a_lambda_weight_has_the_value_and_the_gradient(name: str, weight: str) -> None:
    lambda_weight = getattr(ours.losses.lambdas, weight)(k=3)
    other = getattr(theirs.losses, weight)(topn=3)
    given = {"ours": {"lambda_weight": lambda_weight}, "theirs": {"lambda_weight": other}}
    assert_same(name, given)


@pytest.mark.parametrize("name", ["GumbelApproxNDCGLoss", "YetiLogisticLoss"])
def test_a_noisy_loss_has_the_scale(name: str) -> None:
    labels, scores = tf.constant([[2.0, 1.0, 0.0]]), tf.constant([[-15.0, 0.0, 15.0]])
    noise = {"sample_size": 64, "seed": 1}
    expected = getattr(theirs.losses, name)(**noise)(labels, scores)
    found = getattr(ours.losses, names.LOSSES[name])(**noise)(labels, scores)
    np.testing.assert_allclose(found, expected, rtol=0.1)


@pytest.mark.parametrize("key", theirs.losses.RankingLossKey.all_keys())
def test_each_key_of_a_loss_is_known(key: str) -> None:
    assert key in ours.losses.KEYS


def test_each_key_of_a_metric_is_known() -> None:
    keys = {v for k, v in vars(theirs.metrics.RankingMetricKey).items() if k.isupper()}
    assert keys == ours.metrics.KEYS.keys()
