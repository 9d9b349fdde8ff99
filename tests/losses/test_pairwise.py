"""Pairwise and pointwise losses: weights of pairs, normalisation, and what they refuse."""

import json
import math
from collections.abc import Callable

import keras
import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import losses
from tfrank_sel.losses import lambdas
from tfrank_sel.ops.pairs import Items

pytestmark = pytest.mark.usefixtures("eagerly")

RNG = np.random.default_rng(0)
LABELS = np.array([[2.0, 0.0, 1.0, -1.0], [0.0, 1.0, 1.0, 3.0]])
SCORES = RNG.normal(size=LABELS.shape)


@keras.saving.register_keras_serializable("tests")
def reciprocal_ranks(first: Items, second: Items) -> tf.Tensor:
    valid = tf.cast(first.mask & second.mask, first.ranks.dtype)
    change = tf.abs(1.0 / first.ranks - 1.0 / second.ranks)
    return valid * change * tf.abs(first.labels - second.labels)


def test_a_callback_weighs_pairs_by_labels_ranks_and_mask() -> None:
    loss = losses.PairwiseHingeLoss(
        lambdas.CallbackLambdaWeight(reciprocal_ranks), normalizer=losses.sum_over_terms
    )
    saved = json.dumps(keras.saving.serialize_keras_object(loss))
    loaded = keras.saving.deserialize_keras_object(json.loads(saved))
    ranks = {0.3: 1, 0.2: 2, -0.5: 3}
    expected = 0.0
    for y, s in ((2.0, 0.2), (1.0, -0.5), (0.0, 0.3)):
        for z, t in ((1.0, -0.5), (0.0, 0.3)):
            if y > z:
                weight = abs(1 / ranks[s] - 1 / ranks[t]) * (y - z)
                expected += weight * max(0.0, 1.0 - (s - t))
    for one in (loss, loaded):
        value = one([[2.0, 1.0, 0.0, -1.0]], [[0.2, -0.5, 0.3, 9.0]])
        assert float(value) == pytest.approx(expected)


def test_a_callback_sees_the_scores_and_passes_no_gradient_to_them() -> None:
    def by_scores(first: Items, second: Items) -> tf.Tensor:
        return tf.abs(first.scores - second.scores)

    scores = tf.constant([[0.5, 0.0]])
    loss = losses.PairwiseLogisticLoss(lambdas.CallbackLambdaWeight(by_scores))
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss([[1.0, 0.0]], scores)
    assert float(value) == pytest.approx(0.5 * math.log1p(math.exp(-0.5)))
    slope = 0.5 / (1.0 + math.exp(0.5))
    np.testing.assert_allclose(tape.gradient(value, scores), [[-slope, slope]], rtol=1e-6)


def test_lambda_loss_is_the_logistic_loss_with_its_weights() -> None:
    for weight in (lambdas.NDCGLambdaWeightV2(), lambdas.NDCGLambdaWeightV2(2)):
        np.testing.assert_array_equal(
            losses.LambdaLoss(weight)(LABELS, SCORES),
            losses.PairwiseLogisticLoss(weight)(LABELS, SCORES),
        )


def test_without_a_normalizer_the_lambda_weight_has_one() -> None:
    def value(weight: lambdas.LambdaWeight | None, normalizer: Callable | None = None) -> float:
        return float(losses.PairwiseHingeLoss(weight, normalizer=normalizer)(LABELS, SCORES))

    ndcg, label_diff = lambdas.NDCGLambdaWeight(), lambdas.LabelDiffLambdaWeight()
    assert value(ndcg) == value(ndcg, losses.sum_over_terms)
    assert value(ndcg) != value(ndcg, losses.mean_over_terms)
    assert value(label_diff) == value(label_diff, losses.mean_over_terms)
    assert value(None) == value(None, losses.mean_over_terms)


@pytest.mark.parametrize("make", [losses.PairwiseHingeLoss, losses.MeanSquaredLoss])
def test_normalizers_divide_the_same_sum(make: Callable) -> None:
    def values(normalizer: Callable) -> np.ndarray:
        return make(normalizer=normalizer, reduction="none")(LABELS, SCORES).numpy()

    total = values(losses.sum_over_terms)
    terms = [3, 5] if make is losses.PairwiseHingeLoss else [4, 4]
    np.testing.assert_allclose(values(losses.mean_over_terms), total / terms, rtol=1e-6)
    np.testing.assert_allclose(values(losses.mean_over_slots), total / 4, rtol=1e-6)


def test_a_pair_has_the_weight_of_its_preferred_item() -> None:
    loss = losses.PairwiseHingeLoss()
    assert float(loss([[1.0, 0.0]], [[0.0, 0.0]], [[3.0, 7.0]])) == 3.0


def test_a_weight_that_a_loss_cannot_use_is_refused() -> None:
    for weight in (lambdas.NDCGLambdaWeightV2(), lambdas.LabelDiffLambdaWeight(), "ndcg"):
        with pytest.raises(TypeError, match="NDCGLambdaWeight or SwapLambdaWeight"):
            losses.SoftmaxLoss(lambda_weight=weight)
    with pytest.raises(TypeError, match=r"lambdas\) or None\. Received: lambda_weight='ndcg'"):
        losses.PairwiseHingeLoss(lambda_weight="ndcg")


def test_equal_scores_of_a_pair_are_pulled_apart() -> None:
    scores = tf.zeros([1, 2])
    for make in (losses.PairwiseLogisticLoss, losses.PairwiseHingeLoss):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            value = make()([[1.0, 0.0]], scores)
        assert tape.gradient(value, scores)[0, 0] < 0.0


def test_the_logistic_and_the_squared_loss_of_log_ratios_are_those_of_dpo_and_ipo() -> None:
    policy, reference = RNG.normal(-30.0, 9.0, size=[2, 50, 2])  # log p of preferred and rejected
    labels = np.tile([1.0, 0.0], [50, 1])
    gap = np.diff(reference - policy)[:, 0]
    for beta in (0.01, 0.3, 2.0):
        dpo = losses.PairwiseLogisticLoss(temperature=1.0 / beta)
        expected = -np.log(1.0 / (1.0 + np.exp(-beta * gap)))
        assert float(dpo(labels, policy - reference)) == pytest.approx(expected.mean(), rel=1e-6)
        target = 0.5 / beta
        ipo = losses.MarginMSELoss()(target * labels, policy - reference)
        assert float(ipo) == pytest.approx(np.square(gap - target).mean(), rel=1e-6)
