"""Replays the golden vectors of the selective matching losses."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import ArrayLike

from tests.golden import vectors
from tests.golden.paper_links import link_of, scalar_link_of, scaling_of
from tests.golden.vectors import Case
from tfrank_sel import links, losses

# scores of float64 that are near each other have half of its digits
TOLERANCE = {"float64": 2e-8, "float32": 2e-5}


def assert_close(actual: ArrayLike, expected: ArrayLike, dtype: str) -> None:
    """Compares with the tolerance of these vectors."""
    vectors.assert_close(actual, expected, dtype, TOLERANCE)


def loss_and_gradient(loss: Any, s: Any, s_hat: Any, dtype: str) -> tuple[Any, Any]:
    z = tf.constant(s_hat, dtype)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = loss(tf.constant(s, dtype), z)
    return value, tape.gradient(value, z)


def masked(x: Any, mask: Any) -> Any:
    return np.where(mask, x, math.nan) if mask is not None else x


def assert_loss(loss: Any, case: Case, dtype: str, value: str = "loss") -> None:
    """Compares the loss of one list, or of one item, and its gradient."""
    s, s_hat = (np.atleast_2d(case[name]) for name in ("s", "s_hat"))
    actual, grad = loss_and_gradient(loss, masked(s, case.get("mask")), s_hat, dtype)
    assert_close(actual, case["expected"][value], dtype)
    assert_close(grad[0], np.atleast_1d(case["expected"]["grad"]), dtype)


def assert_sensitivities(sensitivity: Any, case: Case, dtype: str) -> None:
    for name in ("s", "s_hat"):
        expected = case["expected"].get(f"sens_{name}")
        if expected is not None:  # the slope is infinite
            assert_close(sensitivity(tf.constant(case[name], dtype)), expected, dtype)


def scalar(case: Case, dtype: str) -> None:
    link = scalar_link_of(case)
    assert_loss(losses.MatchingLoss(link, dtype=dtype), case, dtype)
    assert_sensitivities(link.slope, case, dtype)


def decomposed(case: Case, dtype: str) -> None:
    link = scalar_link_of(case)
    assert_loss(losses.DecomposedMatchingLoss(link, dtype=dtype), case, dtype)
    mask = case.get("mask", True)
    z, s = (tf.constant(np.where(mask, case[name], 0.0), dtype) for name in ("s_hat", "s"))
    assert_close(link.divergence(z, s), case["expected"]["per_class"], dtype)
    sensitivities = np.where(mask, link.slope(z), 0.0)
    assert_close(sensitivities, case["expected"]["sens_s_hat"], dtype)


def composite_sigmoid(case: Case, dtype: str) -> None:
    args = (scaling_of(case), float(case["gamma"]), float(case["Q_offset"]))
    loss = losses.SelectiveSigmoidLoss(*args, allow_nonconvex=True, dtype=dtype)
    assert_loss(loss, case, dtype)
    link = links.CompositeSigmoid(*args, allow_nonconvex=True)
    assert_sensitivities(link.slope, case, dtype)
    s, s_hat = (tf.constant(case[name], dtype) for name in ("s", "s_hat"))
    assert_close(link.probability(s), case["expected"]["p_s"], dtype)
    assert_close(link.probability(s_hat), case["expected"]["p_s_hat"], dtype)
    assert_close(link(s), case["expected"]["h_s"], dtype)


def composite_softmax(case: Case, dtype: str) -> None:
    args = (scaling_of(case), float(case["gamma"]))
    loss = losses.SelectiveSoftmaxLoss(*args, allow_nonconvex=True, dtype=dtype)
    assert_loss(loss, case, dtype)
    link = links.CompositeSoftmax(*args, allow_nonconvex=True)
    mask = tf.constant([case.get("mask", [True] * len(case["s"]))])
    rest = (mask, tf.ones_like(mask, dtype))
    assert_sensitivities(lambda s: link.sensitivity([s], *rest)[0], case, dtype)
    for name in ("s", "s_hat"):
        p = link.probabilities(tf.constant([case[name]], dtype), *rest)
        assert_close(p[0], case["expected"][f"p_{name}"], dtype)
    if "hessian_s_hat" in case["expected"]:
        hessian = link.hessian(tf.constant([case["s_hat"]], dtype), *rest)
        assert_close(hessian[0], case["expected"]["hessian_s_hat"], dtype)


def batch_softmax(case: Case, dtype: str) -> None:
    expected, weights = case["expected"], case["sample_weight"]
    s = masked(case["s"], case["mask"])
    for reduction in ("none", "sum", "sum_over_batch_size"):
        loss = losses.SelectiveSoftmaxLoss(
            scaling_of(case), float(case["gamma"]), reduction=reduction, dtype=dtype
        )
        if reduction == "none":
            value, grad = loss_and_gradient(loss, s, case["s_hat"], dtype)
            assert_close(value, expected["per_list"], dtype)
            for row, expected_row in zip(grad, expected["grad_per_list"], strict=True):
                assert_close(row, expected_row, dtype)
        else:
            value = loss(s, case["s_hat"], weights)
            assert_close(value, expected[f"reduction_{reduction}"], dtype)


def ce_sigmoid(case: Case, dtype: str) -> None:
    scaling, gamma = links.Constant(shift=float(case["beta"])), 1.0 / case["alpha"]
    loss = losses.SelectiveSigmoidCrossEntropyLoss(scaling, gamma, dtype=dtype)
    assert_cross_entropy(loss, case, dtype)
    matching = losses.MatchingLoss(
        links.Sigmoid(scale=float(case["alpha"]), shift=float(case["beta"])), dtype=dtype
    )
    assert_loss(matching, case, dtype, "matching_loss")


def ce_composite_sigmoid(case: Case, dtype: str) -> None:
    loss = losses.SelectiveSigmoidCrossEntropyLoss(scaling_of(case), dtype=dtype)
    assert_cross_entropy(loss, case, dtype)


def ce_composite_softmax(case: Case, dtype: str) -> None:
    args = (scaling_of(case), float(case["gamma"]))
    assert_cross_entropy(losses.SelectiveSoftmaxCrossEntropyLoss(*args, dtype=dtype), case, dtype)
    matching = losses.SelectiveSoftmaxLoss(*args, dtype=dtype)
    value = matching([case["s"]], [case["s_hat"]])
    assert_close(value, case["expected"]["matching_loss"], dtype)


def assert_cross_entropy(loss: Any, case: Case, dtype: str) -> None:
    assert_loss(loss, case, dtype, "ce")
    s, s_hat = (np.atleast_2d(case[name]) for name in ("s", "s_hat"))
    value = loss(s, s_hat)
    excess = case["expected"]["excess"]  # a difference of two numbers of the size of the loss
    tolerance = TOLERANCE[dtype]
    np.testing.assert_allclose(value - loss(s, s), excess, rtol=tolerance, atol=tolerance * value)


def standard_softmax(case: Case, dtype: str) -> None:
    scaling = links.Scaled(
        links.Constant(scale=float(case["alpha"]), shift=float(case["beta"])), float(case["alpha"])
    )
    args = (scaling, float(case["gamma"]), np.log(case["rho"]).tolist())
    assert_loss(losses.SelectiveSoftmaxLoss(*args, dtype=dtype), case, dtype)
    cross_entropy = losses.SelectiveSoftmaxCrossEntropyLoss(*args, dtype=dtype)
    s, s_hat = [case["s"]], [case["s_hat"]]
    value = cross_entropy(s, s_hat)
    assert_close(value, case["expected"]["ce_E11"], dtype)
    # what E.11 leaves out is a constant
    whole = value - np.array(case["expected"]["p_s"]) @ np.array(args[2])
    assert_close(whole, case["expected"]["gamma_times_cross_entropy"], dtype)
    link = links.CompositeSoftmax(*args)
    s = tf.constant(s, dtype)
    p = link.probabilities(s, tf.ones_like(s, tf.bool), tf.ones_like(s))
    assert_close(p[0], case["expected"]["p_s"], dtype)


def pairwise(case: Case, dtype: str) -> None:
    link, n = link_of(case["link"], case), np.sum(case.get("mask", np.ones(len(case["s"]))))
    pairs = n * (n - 1) / 2
    loss = losses.ContrastiveMatchingLoss(link, dtype=dtype)
    s = masked([case["s"]], case.get("mask"))
    value, grad = loss_and_gradient(loss, s, [case["s_hat"]], dtype)
    assert_close(value, case["expected"]["loss_mean_over_pairs"], dtype)
    assert_close(value * pairs, case["expected"]["loss_sum_i_lt_j"], dtype)
    assert_close(grad[0] * pairs, case["expected"]["grad"], dtype)


def fenchel_young(case: Case, dtype: str) -> None:
    loss = losses.FenchelYoungLoss(link_of(case["link"], case), dtype=dtype)
    assert_loss(loss, {**case, "s": case["target_link"]}, dtype)


def bust(case: Case, dtype: str) -> None:
    link, expected = link_of(case["link"], case), case["expected"]
    score, interval = float(case["w_u"]), tuple(case["domain"])
    assert_close(links.bust(link, score, float(case["d"]), interval), expected["bust"], dtype)
    assert_close(links.blust(link, score, interval), expected["blust"], dtype)
    assert_close(links.llust(link, score, interval), expected["llust_w2"], dtype)


def constant_predictor(case: Case, dtype: str) -> None:
    link, observed = link_of(case["link"], case), np.array(case["observed"])
    best = links.constant_predictor(link, observed, case["weights"])
    assert_close(best, case["expected"]["s_star"], dtype)
    weights = np.ones_like(observed) if case["weights"] is None else np.array(case["weights"])
    areas = link.divergence(np.full_like(observed, best), observed)
    mean = np.sum(weights * areas) / np.sum(weights)
    assert_close(mean, case["expected"]["mean_loss_at_optimum"], dtype)


def constant_predictor_softmax(case: Case, dtype: str) -> None:
    link = links.CompositeSoftmax(scaling_of(case), float(case["gamma"]))
    observed = tf.constant(case["observed"], tf.float64)
    best = links.constant_predictor(link, observed)
    assert_close(best, case["expected"]["s_star"], dtype)
    rest = (tf.ones_like(observed, tf.bool), tf.ones_like(observed))
    mean_link = np.mean(link(observed, *rest), axis=0)
    assert_close(mean_link, case["expected"]["mean_link"], dtype)
    constant = tf.broadcast_to(best, observed.shape)
    mean = np.mean(link.divergence(constant, observed, *rest))
    assert_close(mean, case["expected"]["mean_loss_at_optimum"], dtype)


REPLAYS = {
    "scalar": scalar,
    "decomposed": decomposed,
    "composite_sigmoid": composite_sigmoid,
    "composite_softmax": composite_softmax,
    "batch_softmax": batch_softmax,
    "ce_sigmoid_E1": ce_sigmoid,
    "ce_composite_sigmoid_E3": ce_composite_sigmoid,
    "ce_composite_softmax_E5": ce_composite_softmax,
    "standard_softmax_E7": standard_softmax,
    "pairwise_difference": pairwise,
    "fenchel_young": fenchel_young,
    "bust": bust,
    "constant_predictor": constant_predictor,
    "constant_predictor_softmax": constant_predictor_softmax,
}


def in_range(case: Case, dtype: str) -> bool:
    """Whether float32 holds all intermediates: exponential links are constant beyond."""
    return bool(case["f32"] == "ok")


CASES = vectors.contents("selective.json")["cases"]


@pytest.mark.parametrize(
    ("case", "dtype"), vectors.with_dtypes(vectors.in_modes(CASES, kind="family"), in_range)
)
def test_replay(case: Case, dtype: str) -> None:
    vectors.replay(case, dtype, REPLAYS)
