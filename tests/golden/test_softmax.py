"""Replays the golden vectors of the softmax family and of the metrics it bounds."""

import math

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.vectors import Case, assert_close
from tfrank_sel import losses, metrics


def listnet(case: Case, dtype: str) -> None:
    loss = losses.SoftmaxLoss(float(case["temperature"]), dtype=dtype)
    labels = np.where(case.get("mask", True), case["labels"], math.nan)
    scores = tf.constant([case["scores"]], dtype)
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss([labels], scores)
    assert_close(value, case["expected"]["loss"], dtype)
    assert_close(tape.gradient(value, scores)[0], case["expected"]["grad"], dtype)


def ranking_metrics(case: Case, dtype: str) -> None:
    labels = np.where(case.get("mask", True), case["labels"], math.nan)
    scores = np.array(case["scores"])
    # ties keep the order of the list: order it as the tie mode says
    first = {"pessimistic": labels, "optimistic": -labels}.get(case["tie_mode"])
    order = np.arange(len(labels)) if first is None else np.argsort(first, kind="stable")
    for name, make in (("ndcg", metrics.NDCG), ("rr", metrics.MRR)):
        value = make(k=case["k"], dtype=dtype)([labels[order]], [scores[order]])
        assert_close(value, case["expected"][name], dtype)


REPLAYS = {"listnet": listnet, "metrics": ranking_metrics}


@pytest.mark.parametrize(("case", "dtype"), vectors.cases("softmax.json"))
def test_replay(case: Case, dtype: str) -> None:
    vectors.replay(case, dtype, REPLAYS)
