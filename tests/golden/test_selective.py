"""Replays the golden vectors of the selective matching losses."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.vectors import Case, assert_close
from tfrank_sel import links, losses

LINKS = {
    "identity": links.Identity,
    "sigmoid": links.Sigmoid,
    "exp": links.Exp,
    "sinh": links.Sinh,
}


def link_of(spec: dict[str, Any], case: Case) -> links.ElementaryLink:
    return LINKS[spec["kind"]](scale=float(case["alpha"]), shift=float(case["beta"]))


def scaling_of(case: Case) -> links.Link:
    """The paper's q(z) = alpha * phi(x), whose potential is Q(z) = Phi(x)."""
    link = link_of(case["q"], case)
    return links.Scaled(link, link.scale)


def loss_and_gradient(loss: Any, s: Any, s_hat: Any, dtype: str) -> tuple[Any, Any]:
    z = tf.constant(s_hat, dtype)
    with tf.GradientTape() as tape:
        tape.watch(z)
        value = loss(tf.constant(s, dtype), z)
    return value, tape.gradient(value, z)


def masked(x: Any, mask: Any) -> Any:
    return np.where(mask, x, math.nan) if mask is not None else x


def scalar(case: Case, dtype: str) -> None:
    link: links.Link = link_of(case["link"], case)
    if case["norm"] == "slope":
        link = links.Scaled(link, float(case["alpha"]))
    loss = losses.MatchingLoss(link, dtype=dtype)
    value, grad = loss_and_gradient(loss, [[case["s"]]], [[case["s_hat"]]], dtype)
    assert_close(value, case["expected"]["loss"], dtype)
    assert_close(grad[0, 0], case["expected"]["grad"], dtype)
    for name in ("s", "s_hat"):
        if case["expected"][f"sens_{name}"] is not None:
            slope = link.slope(tf.constant(case[name], dtype))
            assert_close(slope, case["expected"][f"sens_{name}"], dtype)


def composite_softmax(case: Case, dtype: str) -> None:
    scaling = scaling_of(case)
    loss = losses.SelectiveSoftmaxLoss(scaling, float(case["gamma"]), dtype=dtype)
    s = masked([case["s"]], case.get("mask"))
    value, grad = loss_and_gradient(loss, s, [case["s_hat"]], dtype)
    assert_close(value, case["expected"]["loss"], dtype)
    assert_close(grad[0], case["expected"]["grad"], dtype)


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


REPLAYS = {
    "scalar": scalar,
    "composite_softmax": composite_softmax,
    "batch_softmax": batch_softmax,
}


def in_range(case: Case, dtype: str) -> bool:
    """Whether all intermediates of a case fit the dtype."""
    return dtype == "float64" or case["f32"] == "ok"


@pytest.mark.parametrize(("case", "dtype"), vectors.cases("selective.json", where=in_range))
def test_replay(case: Case, dtype: str) -> None:
    vectors.replay(case, dtype, REPLAYS)
