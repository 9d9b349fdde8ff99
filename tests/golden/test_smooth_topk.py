"""Replays the golden vectors of smooth top-k: 60 digits, ordinary points and nasty ones."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.vectors import Case
from tfrank_sel import losses
from tfrank_sel.ops import symmetric

FORMS = {
    "mean_over_relevant": losses.mean_over_relevant,
    "hit_at_k": losses.hit_at_k,
    "recall_structured": losses.recall_structured,
}
NOT_LOSSES = {"name", "family", "scores", "relevant", "k", "tau", "alpha"}
KTH = "soft_kth_largest_of_negatives"

VECTORS = vectors.contents("smooth_topk.json")


def cases(family: str) -> list[Any]:
    named = [{**case, "family": family} for case in VECTORS[family]]
    return vectors.with_dtypes(vectors.in_modes(named, kind="family", name="name"))


def scores_of(case: Case) -> np.ndarray:
    if "scores" in case:
        return np.array([float(s) for s in case["scores"]])
    made = case["scores_gen"]
    if made["kind"] != "hash":
        pytest.fail(f"{case['name']}: no way to make scores by {made['kind']!r}")
    low, high = made["lo"], made["hi"]
    hashed = (np.arange(made["n"], dtype=np.uint64) * 2654435761 + made["seed"]) % 2**32
    return np.float32(low + (high - low) * (hashed / 2.0**32)).astype(np.float64)


def loss_of(case: Case, dtype: str) -> losses.SmoothTopKLoss:
    return losses.SmoothTopKLoss(case["k"], case["tau"], case["alpha"], dtype=dtype)


def assert_loss(actual: Any, expected: float, rtol: float) -> None:
    np.testing.assert_allclose(float(actual), float(expected), rtol=rtol, atol=1e-30)


def test_every_family_has_a_replay() -> None:
    assert {name for name, x in VECTORS.items() if isinstance(x, list)} == {"cases", "multi"}


@pytest.mark.parametrize(("case", "dtype"), cases("cases"))
@pytest.mark.filterwarnings("ignore:.*is 0 for lists of up to")
def test_replay(case: Case, dtype: str) -> None:
    scores = tf.constant([scores_of(case)], dtype)
    label = tf.constant([case["label"]])
    with tf.GradientTape() as tape:
        tape.watch(scores)
        value = loss_of(case, dtype)(label, scores)
    grad = tape.gradient(value, scores).numpy()[0].astype(np.float64)
    expected = case["grad"] if "grad" in case else list(case["grad_at"].values())
    if "grad_at" in case:
        grad = grad[[int(i) for i in case["grad_at"]]]
    exact = dtype == "float64"
    assert_loss(value, case["loss"], 1e-10 if exact else case["rtol_f32"])
    rtol, of_largest = (1e-9, 1e-11) if exact else (1e-5, 5e-7 if case["k"] >= 50 else 2e-7)
    smallest = 0.0 if exact else float(np.finfo(np.float32).tiny)  # what float32 can hold
    atol = of_largest * np.max(np.abs(expected)) + smallest
    np.testing.assert_allclose(grad, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("case", "dtype"), cases("multi"))
def test_replay_of_several_relevant_items(case: Case, dtype: str) -> None:
    rtol = 1e-10 if dtype == "float64" else 1e-5
    scores = tf.constant([case["scores"]], dtype)
    labels = np.zeros([1, len(case["scores"])])
    labels[0, case["relevant"]] = 1.0
    for name in case.keys() - NOT_LOSSES:
        if name == KTH:
            others = tf.where(labels > 0.0, tf.constant(-np.inf, dtype), scores)
            kth, _ = symmetric.soft_kth_largest_beside(
                others, tf.constant([-1]), case["k"], case["k"] * case["tau"]
            )
            assert_loss(kth[0], -np.inf if case[KTH] is None else case[KTH], rtol)
        elif name in FORMS:
            loss = losses.SmoothTopKLoss(
                case["k"], case["tau"], case["alpha"], FORMS[name], dtype=dtype
            )
            assert_loss(loss(labels, scores), case[name], rtol)
        else:
            pytest.fail(f"{case['name']}: no replay for {name!r}")
