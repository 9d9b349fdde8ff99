"""Replays the golden vectors of the softmax family and of the metrics it bounds."""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.vectors import Case, assert_close
from tfrank_sel import bounds, losses, metrics, models
from tfrank_sel.losses import direct, margin, targets
from tfrank_sel.ops import ranking, soft_ranks


def value_and_gradient(f: Callable[[tf.Tensor], tf.Tensor], x: Any, dtype: str) -> tuple[Any, Any]:
    x = tf.constant(x, dtype)
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = f(x)
    return value, tape.gradient(value, x)


def labels_of(case: Case) -> Any:
    return np.where(case.get("mask", True), case["labels"], math.nan)


def assert_loss(loss: Any, case: Case, dtype: str, name: str = "loss") -> None:
    """Compares the loss of one list and, where it is given, its gradient."""
    labels = [labels_of(case)]
    value, grad = value_and_gradient(functools.partial(loss, labels), [case["scores"]], dtype)
    assert_close(value, case["expected"][name], dtype)
    if "grad" in case["expected"]:
        assert_close(grad[0], case["expected"]["grad"], dtype)


def listnet(case: Case, dtype: str) -> None:
    assert_loss(losses.SoftmaxLoss(float(case["temperature"]), dtype=dtype), case, dtype)


def softmax_targets(case: Case, dtype: str) -> None:
    temperature = float(case["target_temperature"])
    loss = losses.SoftmaxLoss(targets=targets.Softmax(temperature), dtype=dtype)
    assert_loss(loss, case, dtype)
    labels = labels_of(case)
    entropy = loss([labels], [labels / temperature])
    assert_close(loss([labels], [case["scores"]]) - entropy, case["expected"]["kl"], dtype)


def bound(case: Case, dtype: str) -> None:
    loss = losses.SoftmaxLoss(targets=targets.Shares(ranking.exponential_gain), dtype=dtype)
    assert_loss(loss, case, dtype, "ce")
    values = bounds.softmax_bounds([labels_of(case)], [case["scores"]], dtype=dtype)
    names = {"bound": "exp_minus_ce", "rr": "rr", "ap": "ap", "ndcg": "ndcg"}
    for ours, theirs in names.items():
        if theirs in case["expected"]:
            assert_close(getattr(values, ours), case["expected"][theirs], dtype)


def ranking_metrics(case: Case, dtype: str) -> None:
    labels, scores = labels_of(case), np.array(case["scores"])
    # ties keep the order of the list: order it as the tie mode says
    first = {"pessimistic": labels, "optimistic": -labels}.get(case["tie_mode"])
    order = np.arange(len(labels)) if first is None else np.argsort(first, kind="stable")
    names = {
        "rr": metrics.MRR,
        "ap": metrics.MAP,
        "precision": metrics.Precision,
        "recall": metrics.Recall,
        "dcg": metrics.DCG,
        "ndcg": metrics.NDCG,
    }
    for name, expected in case["expected"].items():
        value = names[name](k=case["k"], dtype=dtype)([labels[order]], [scores[order]])
        assert_close(value, expected, dtype)


def infonce(case: Case, dtype: str) -> None:
    expected, similarity, temperature = (
        case["expected"],
        case["similarity"],
        float(case["temperature"]),
    )
    identities = np.arange(len(similarity))

    def loss(similarity: Any, **arguments: Any) -> tf.Tensor:
        formula = losses.InBatchInfoNCELoss(temperature, dtype=dtype, **arguments)
        return formula(identities, similarity)

    assert_close(loss(similarity, reduction="none"), expected["per_query"], dtype)
    assert_close(loss(similarity, symmetric=True), expected["symmetric_mean"], dtype)
    mean, grad = value_and_gradient(loss, similarity, dtype)
    assert_close(mean, expected["mean"], dtype)
    assert_close(grad, expected["grad_mean_wrt_similarity"], dtype)
    mutual_information = losses.mutual_information_bound(mean, len(similarity))
    np.testing.assert_allclose(
        mutual_information,
        expected["mi_lower_bound_logB_minus_loss"],
        atol=vectors.TOLERANCE[dtype] * expected["mean"],  # of which it is what log B leaves
    )


def explicit_negatives(case: Case, dtype: str) -> None:
    mask = case.get("mask", np.ones(len(case["negatives"]), bool))
    case = {
        **case,
        "scores": [case["positive"], *case["negatives"]],
        "labels": [1.0] + [0.0] * len(case["negatives"]),
        "mask": [True, *mask],
    }
    temperature = float(case["temperature"])
    for make in (losses.InfoNCELoss, losses.SoftmaxLoss):  # one positive: they are the same
        assert_loss(make(temperature, dtype=dtype), case, dtype)


MARGINS = {"normface": margin.NormFace, "cosface": margin.CosFace, "arcface": margin.ArcFace}


def margin_softmax(case: Case, dtype: str) -> None:
    expected, scale = case["expected"], float(case["scale"])
    arguments = () if case["kind"] == "normface" else (float(case["margin"]),)
    target_margin = MARGINS[case["kind"]](*arguments)
    layer = models.CosineClassifier(len(case["W"]), dtype=dtype)
    layer.build((None, len(case["x"])))
    layer.set_weights([np.transpose(case["W"])])

    def loss(x: tf.Tensor, used: margin.Margin = target_margin) -> tf.Tensor:
        return losses.MarginSoftmaxLoss(used, scale, dtype=dtype)([case["label"]], layer(x))

    cosines = layer(tf.constant([case["x"]], dtype))
    assert_close(cosines[0], expected["cos"], dtype)
    is_label = np.arange(len(case["W"])) == case["label"]
    logits = scale * np.where(is_label, target_margin(cosines[0]), cosines[0])
    assert_close(logits, expected["logits"], dtype)
    value, grad = value_and_gradient(loss, [case["x"]], dtype)
    assert_close(value, expected["loss"], dtype)
    if "grad_x" in expected:
        assert_close(grad[0], expected["grad_x"], dtype)
    x = tf.constant([case["x"]], dtype)
    if "loss_without_fallback" in expected:
        without = margin.ArcFace(float(case["margin"]), fall_back=False)
        assert_close(loss(x, without), expected["loss_without_fallback"], dtype)
    if "plain_loss" in expected:
        assert_close(loss(x, margin.NormFace()), expected["plain_loss"], dtype)


def softrank(case: Case, dtype: str) -> None:
    labels, expected, sigma = labels_of(case), case["expected"], float(case["sigma"])
    loss = losses.SoftRankLoss(sigma, case["k"], dtype=dtype)
    value, grad = value_and_gradient(functools.partial(loss, [labels]), [case["scores"]], dtype)
    assert_close(1.0 - value, expected["soft_ndcg"], dtype)
    if "grad" in expected:
        assert_close(-grad[0], expected["grad"], dtype)
    if "hard_ndcg" in expected:
        ndcg = metrics.NDCG(case["k"], dtype=dtype)([labels], [case["scores"]])
        assert_close(ndcg, expected["hard_ndcg"], dtype)
    valid = ~np.isnan(labels)
    pairs = soft_ranks.ahead_and_behind(
        tf.constant([case["scores"]], dtype), tf.constant([valid]), sigma
    )
    p = soft_ranks.rank_distributions(*pairs)[0].numpy()
    assert_close(p[valid][:, : valid.sum()], expected["rank_dist"], dtype)


def direct_loss(case: Case, dtype: str) -> None:
    expected, epsilon = case["expected"], float(case["sign"] * case["epsilon"])
    labels, scores = labels_of(case), tf.constant([case["scores"]], dtype)
    loss = losses.DirectAPLoss(epsilon, dtype=dtype)
    value, grad = value_and_gradient(functools.partial(loss, [labels]), scores, dtype)
    assert_close(grad[0], expected["grad"], dtype)
    valid = tf.constant([~np.isnan(labels)])
    lists = direct.split(
        tf.constant(np.nan_to_num([labels]), dtype), scores, valid, tf.ones_like(scores)
    )
    count = int(lists.num_positives[0])
    for name, weight in (("direct", epsilon), ("w", 0.0)):
        ahead = direct.negatives_ahead(lists, weight)[0, :count]
        np.testing.assert_array_equal(ahead, expected[f"negatives_ahead_{name}"])
        positions = np.arange(1, count + 1)
        precisions = positions / (positions + ahead.numpy())
        assert_close(np.mean(precisions), expected[f"ap_{name}"], dtype)
    ap = metrics.MAP(dtype=dtype)([labels], scores)
    assert_close(ap, expected["ap_w"], dtype)
    is_pair = (labels[:, None] > 0) & (labels == 0)
    best = np.abs(np.subtract.outer(scores[0].numpy(), scores[0].numpy()))[is_pair].mean()
    assert_close(value * epsilon + best, expected["value_direct"], dtype)


REPLAYS = {
    "listnet": listnet,
    "listnet_softmax_targets": softmax_targets,
    "bound_binary": bound,
    "bound_graded_gain_targets": bound,
    "metrics": ranking_metrics,
    "infonce": infonce,
    "infonce_explicit_negatives": explicit_negatives,
    "margin_softmax": margin_softmax,
    "softrank": softrank,
    "direct_loss_ap": direct_loss,
}


CASES = vectors.contents("softmax.json")["cases"]


@pytest.mark.parametrize(
    ("case", "dtype"), vectors.with_dtypes(vectors.in_modes(CASES, kind="family"))
)
def test_replay(case: Case, dtype: str) -> None:
    vectors.replay(case, dtype, REPLAYS)
