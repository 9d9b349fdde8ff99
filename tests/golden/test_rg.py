"""Replays the golden vectors of the RG losses and of their alternating least squares.

The file's families are its top-level keys, and its tolerances stand in its `meta`.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.golden import vectors
from tests.golden.vectors import Case
from tfrank_sel import losses

RG = vectors.contents("rg.json")
TOLERANCE = {
    "float64": RG["meta"]["tolerance_float64"],
    "float32": RG["meta"]["tolerance_float32_relative"],
}


def assert_close(actual: Any, expected: Any, dtype: str) -> None:
    vectors.assert_close(actual, expected, dtype, TOLERANCE)


def losses_of(case: Case, dtype: str, reduction: str) -> Iterator[tuple[dict[str, Any], Any]]:
    """Each loss of the case beside what is expected of it."""
    anchor = (float(case["anchor_alpha"]), float(case["anchor_target"]))
    for name, make in (("rg2", losses.RG2Loss), ("rgx", losses.RGCrossLoss)):
        yield case[name], make(*anchor, reduction=reduction, dtype=dtype)


def lists(case: Case, dtype: str) -> tuple[Any, ...]:
    """Labels, scores, base weights and weights of lists."""
    labels = np.where(np.array(case["mask"], bool), case["labels"], math.nan)
    rows = (labels, case["logits"], case["base_weights"], case["list_weights"])
    return tuple(tf.constant(x, dtype) for x in rows)


def loss(case: Case, dtype: str) -> None:
    labels, scores, base, weights = lists(case, dtype)
    for expected, formula in losses_of(case, dtype, "none"):
        with tf.GradientTape() as tape:
            tape.watch(scores)
            values = formula(labels, scores, base)
            total = tf.reduce_sum(weights * values)
        assert_close(values, expected["per_list_loss"], dtype)
        assert_close(total, expected["weighted_sum"], dtype)
        assert_close(tape.gradient(total, scores), expected["grad_of_weighted_sum"], dtype)
        gains = weights[:, None] * tf.where(tf.math.is_nan(labels), tf.zeros_like(labels), labels)
        per_gain = tf.math.divide_no_nan(total, tf.reduce_sum(gains))
        assert_close(per_gain, expected["normalized_by_sum_of_weighted_labels"], dtype)
    if np.all(np.array(case["base_weights"]) == 1.0):  # then list weights are free
        for expected, formula in losses_of(case, dtype, "sum_over_batch_size"):
            value = formula(labels, scores, weights)
            assert_close(value, expected["weighted_mean_over_lists"], dtype)


def taylor(case: Case, dtype: str) -> None:
    labels, total = [case["labels"]], sum(case["labels"])
    for step in case["ladder"]:
        scores = tf.constant([case["logits"]], dtype) * step["t"]
        softmax = total * losses.SoftmaxLoss(dtype=dtype)(labels, scores)
        for name, make in (("rg2", losses.RG2Loss), ("rgx", losses.RGCrossLoss)):
            gap = softmax - make(dtype=dtype)(labels, scores)
            # the gap is a difference of numbers near the softmax, whose rounding it keeps
            scale = TOLERANCE[dtype] * float(softmax)
            np.testing.assert_allclose(gap, step[f"softmax_minus_{name}"], rtol=0.0, atol=scale)


def als(case: Case, dtype: str) -> None:
    pytest.importorskip("numba")
    import scipy.sparse as sp

    from tfrank_sel.models.als import RG2, RGCross
    from tfrank_sel.models.als.solver import Solver

    anchor = (float(case["alpha"]), float(case["anchor_target"]))
    joint = case["item_step"] == "exact"
    objective = RGCross(*anchor, joint=joint) if case["kappa"] else RG2(*anchor)
    gains = sp.csr_matrix(np.array(case["gains"], np.float64))
    ridges = np.array(case["lam_user"]), np.array(case["lam_item"])
    weights, base = np.array(case["list_weights"], np.float64), np.ones(gains.shape[1])
    solver = Solver(gains, objective, *ridges, weights, base, None, 1, dtype)
    users, items = np.array(case["P0"], dtype), np.array(case["Q0"], dtype)
    values = [solver.value(users, items)]
    solver.renew_users(users, items)
    values.append(solver.value(users, items))
    solver.renew_items(users, items)
    values.append(solver.value(users, items))
    assert_close(users, case["P1"], dtype)
    assert_close(items, case["Q1"], dtype)
    assert_close(values, list(case["objective"].values()), dtype)


def svd_limit(case: Case, dtype: str) -> None:
    pytest.importorskip("numba")
    import scipy.sparse as sp

    from tfrank_sel.models.als import RG2
    from tfrank_sel.models.als.solver import Solver

    gains = np.array(case["gains"])
    shape = gains.shape
    ridges = case["lam"] * gains.sum(axis=1), np.full(shape[1], case["lam_item"])
    matrix, ones = sp.csr_matrix(gains), (np.ones(shape[0]), np.ones(shape[1]))
    solver = Solver(matrix, RG2(case["alpha"]), *ridges, *ones, None, 1, dtype)
    rng = np.random.default_rng(0)
    users, items = (rng.normal(size=(count, case["K"])).astype(dtype) for count in shape)
    gaps = []
    for _ in range(150):
        solver.sweep(users, items)
        gaps.append(float(np.abs(users @ items.T - case["limit_scores"]).max()))
    assert gaps[-1] < 100 * TOLERANCE[dtype]
    assert_close(solver.value(users, items), case["limit_objective"], dtype)
    # The rate is that of the subspace; later a slower mode shows, that of the factors' lengths, at
    # (1 - 2 * threshold / largest singular value)**2.
    rates = {10: case["linear_rate_per_sweep"]}
    if dtype == "float64":
        rates[60] = (1 - 2 * case["threshold"] / case["singular_values"][0]) ** 2
    for begin, expected in rates.items():
        rate = (gaps[begin + 10] / gaps[begin]) ** 0.1
        np.testing.assert_allclose(rate, expected, rtol=0.02)


REPLAYS: dict[str, Callable[[Case, str], None]] = {
    "loss_cases": loss,
    "taylor": taylor,
    "als_cases": als,
    "svd_limit": svd_limit,
}


def cases() -> list[Case]:
    """The cases of all families; a family of one case holds no list."""
    return [
        {"id": case.get("name", family), "family": family, **case}
        for family, held in RG.items()
        if family != "meta"
        for case in (held if isinstance(held, list) else [held])
    ]


@pytest.mark.parametrize(
    ("case", "dtype"), vectors.with_dtypes(vectors.in_modes(cases(), kind="family"))
)
def test_replay(case: Case, dtype: str) -> None:
    vectors.replay(case, dtype, REPLAYS)
