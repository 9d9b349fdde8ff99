"""Replays the golden vectors of the multi-label and n-way m-class losses."""

import functools
import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.vectors import Case, assert_close
from tfrank_sel import losses


def assert_loss(loss: Any, case: Case, dtype: str) -> None:
    """Compares the loss of one list, or of one batch of rows, and its gradient."""
    labels = np.array(case["labels"])
    mask = np.array(case.get("mask", np.ones(len(labels), bool)))
    if labels.ndim > mask.ndim:
        mask = mask[:, None]
    scores = tf.constant([case["scores"]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss([np.where(mask, labels, math.nan)], scores)
    assert_close(value, case["expected"]["loss"], dtype)
    assert_close(tape.gradient(value, scores)[0], case["expected"]["grad"], dtype)


def zlpr(case: Case, dtype: str) -> None:
    threshold = float(case.get("threshold", 0.0))
    assert_loss(losses.ZLPRLoss(threshold, dtype=dtype), case, dtype)


def zlpr_optimum(case: Case, dtype: str) -> None:
    scores, loss = case["expected"]["scores"], losses.ZLPRLoss(dtype=dtype)
    assert_close(loss([case["labels"]], [scores]), case["expected"]["loss"], dtype)
    assert_close(loss.probabilities(tf.constant(scores, dtype)), case["labels"], dtype)


def n_way(make: Any, case: Case, dtype: str) -> None:
    assert_loss(make(dtype=dtype), case, dtype)


def weighted(case: Case, dtype: str) -> None:
    class_weights = case["class_weights"]
    assert_loss(losses.NWayPairwiseLoss(class_weights=class_weights, dtype=dtype), case, dtype)


def scaled(case: Case, dtype: str) -> None:
    assert_loss(losses.NWayPairwiseLoss(scale=float(case["scale"]), dtype=dtype), case, dtype)


def optimum(case: Case, dtype: str) -> None:
    labels, expected = np.array(case["labels"]), case["expected"]
    for name, make in (("loss3", losses.NWayMeanLoss), ("pairlog", losses.NWayPairwiseLoss)):
        loss, scores = make(dtype=dtype), tf.constant([expected[f"{name}_scores"]], dtype)
        assert_close(loss([labels], scores), expected[name], dtype)
        assert_close(loss.probabilities(scores)[0], labels, dtype)
    joint, best = losses.NWayJointLoss(dtype=dtype), losses.joint_optimum(labels)
    assert_close(best.scores, expected["loss1_scores"], dtype)
    assert_close(np.sqrt(best.class_factors), expected["loss1_B"], dtype)
    scores = tf.constant([expected["loss1_scores"]], dtype)
    assert_close(joint([labels], scores), expected["loss1"], dtype)
    factors = joint.class_factors([labels], scores)
    assert_close(factors[0], np.square(expected["loss1_B"]), dtype)
    assert_close(joint.probabilities(scores, factors)[0], labels, dtype)


REPLAYS = {
    "zlpr_hard": zlpr,
    "zlpr_soft": zlpr,
    "zlpr_soft_optimum": zlpr_optimum,
    "nway_mclass_loss1": functools.partial(n_way, losses.NWayJointLoss),
    "nway_mclass_loss3": functools.partial(n_way, losses.NWayMeanLoss),
    "nway_mclass_pairlog": functools.partial(n_way, losses.NWayPairwiseLoss),
    "nway_mclass_pairlog_weighted": weighted,
    "nway_mclass_pairlog_scale2": scaled,
    "nway_soft_optimum": optimum,
}


CASES = vectors.contents("multilabel.json")["cases"]


@pytest.mark.parametrize(
    ("case", "dtype"), vectors.with_dtypes(vectors.in_modes(CASES, kind="family"))
)
def test_replay(case: Case, dtype: str) -> None:
    vectors.replay(case, dtype, REPLAYS)
