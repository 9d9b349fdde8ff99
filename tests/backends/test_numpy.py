"""Values on NumPy, and what has none."""

import json
import sys

import numpy as np
import pytest

from tests.cases import (
    EVERY_LOSS,
    EVERY_METRIC,
    HOLDING,
    LOSSES,
    METRICS,
    Case,
    name_of,
    one_per_class,
)
from tfrank_sel import losses, metrics, numerics as xp
from tfrank_sel.links import Sigmoid

pytestmark = pytest.mark.skipif(xp.NAME != "numpy", reason="of NumPy")


def test_a_gradient_is_refused() -> None:
    with pytest.raises(NotImplementedError, match=r"^NumPy has no gradients: set KERAS_BACKEND="):
        xp.vjp(Sigmoid(), np.zeros(2))


def test_equal_seeds_draw_equal_noise() -> None:
    labels, scores = [[1.0, 0.0, 2.0]], [[0.5, 0.25, 0.0]]
    first, second = (losses.GumbelLoss(losses.SoftmaxLoss(), seed=1) for _ in range(2))
    found = [float(first(labels, scores)) for _ in range(3)]
    assert len(set(found)) == 3
    assert [float(second(labels, scores)) for _ in range(3)] == found


@pytest.mark.parametrize("case", EVERY_LOSS + EVERY_METRIC, ids=name_of)
def test_a_config_makes_an_equal_formula_without_keras(case: Case) -> None:
    formula = case.make()
    config = json.loads(json.dumps(formula.get_config()))
    assert type(formula).from_config(config).get_config() == config


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("sum_over_batch_size", 5.0), ("sum", 10.0), ("mean_with_sample_weight", 2.5), (None, None)],
)
def test_a_reduction_is_that_of_keras(reduction: str | None, expected: float | None) -> None:
    loss = losses.MeanSquaredLoss(reduction=reduction)
    found = loss([[0.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [2.0, 2.0]], [2.0, 2.0])
    np.testing.assert_allclose(found, [2.0, 8.0] if expected is None else expected)
    with pytest.raises(ValueError, match="`reduction` must be one of 'sum_over_batch_size', "):
        losses.MeanSquaredLoss(reduction="all")


def test_a_metric_averages_batches() -> None:
    metric = metrics.MRR()
    for labels, weight in (([[1, 0], [0, 1]], [1.0, 3.0]), ([[0, 1]], [2.0])):
        metric.update_state(labels, [[2.0, 1.0]] * len(labels), weight)
    assert float(metric.result()) == pytest.approx((1.0 + 1.5 + 1.0) / 6.0)
    metric.reset_state()
    assert float(metric([[1, 0]], [[2.0, 1.0]])) == 1.0


@pytest.mark.filterwarnings("ignore:.* is 0 for lists of up to `k` items")
@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
@pytest.mark.parametrize("case", one_per_class(LOSSES + HOLDING + METRICS), ids=name_of)
def test_lists_may_be_empty(case: Case, shape: tuple[int, int]) -> None:
    lists = np.zeros(shape), np.zeros(shape)
    if case in METRICS:
        found = case.make().evaluate(*lists).values
    else:
        found = case.make(reduction="none")(*lists)
    np.testing.assert_array_equal(found, np.zeros(shape[0]))


def test_nothing_here_imports_a_framework() -> None:
    assert {"jax", "keras", "tensorflow"} & sys.modules.keys() == set()


@pytest.mark.parametrize(
    ("a", "b", "x", "expected"),
    [  # of mpmath
        (0.5, 0.5, 0.25, 1.0 / 3.0),
        (9.5, 0.5, 0.75, 0.020991504670164811),
        (49.5, 0.5, 0.999, 0.75357595961021771),
        (2.0, 3.0, 0.0, 0.0),
    ],
)
def test_the_incomplete_beta_function(a: float, b: float, x: float, expected: float) -> None:
    assert float(xp.betainc(a, b, x)) == pytest.approx(expected, rel=1e-13)
