"""Replays the metrics of tensorflow-ranking 0.5.5: of each list, its value and its weight.

Where we mean to differ, the metric must equal what `tfr_differences.json` has instead.
"""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests.golden import differences, tfr_metric_counterparts, vectors
from tests.golden.vectors import Case
from tfrank_sel import metrics

Array = NDArray[np.float64]

CASES = vectors.contents("tfr_metrics.json")["cases"]
CLOSE: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
WITHOUT_AVERAGE_OVER_TIES = ("AlphaDCGMetric", "metrics_impl.BPrefMetric", "OPAMetric")


def inputs(case: Case, batch: Case) -> tuple[Any, Any, Any]:
    """The tensors of a batch; ragged ones if the case has such."""

    def tensor(x: Any, per_item: bool = True) -> Any:
        if case["ragged"] and per_item:
            return tf.ragged.constant(x, tf.float32, ragged_rank=1)
        return x if x is None else tf.constant(x, tf.float32)

    per_item = case["weight_kind"].startswith("w_item")
    weights = tensor(batch["sample_weight"], per_item)
    return tensor(batch["y_true"]), tensor(batch["y_pred"]), weights


def expected_of(case: Case) -> tuple[Array, Array]:
    """Values and weights of all lists, as recorded but for the intended differences."""
    for difference in differences.of("metrics", case):
        expected = difference["cases"][case["id"]]
        return np.array(expected["values"]), np.array(expected["weights"])
    expected = case["expected"]
    return np.concatenate(expected["per_list_value"]), np.concatenate(expected["per_list_weight"])


@pytest.mark.filterwarnings("ignore:.*every list has one item")
@pytest.mark.parametrize("case", vectors.in_modes(CASES, kind="metric"))
def test_replay(case: Case) -> None:
    metric = tfr_metric_counterparts.of(case)(averaging=metrics.averaging.BY_RELEVANCE)
    found = [metric.evaluate(*inputs(case, batch)) for batch in case["batches"]]
    values, weights = (np.concatenate(x) for x in zip(*found, strict=True))
    expected_values, expected_weights = expected_of(case)
    np.testing.assert_allclose(values, expected_values, **CLOSE)
    np.testing.assert_allclose(weights, expected_weights, **CLOSE)
    for batch in case["batches"]:
        metric.update_state(*inputs(case, batch))
    total = np.sum(expected_weights)
    mean = np.sum(expected_weights * expected_values) / total if total else 0.0
    np.testing.assert_allclose(metric.result(), mean, **CLOSE)
    if not differences.of("metrics", case) and "result" in case["expected"]:
        np.testing.assert_allclose(metric.result(), case["expected"]["result"], **CLOSE)


TIED = [
    case
    for case in CASES
    if not case["deterministic"]
    and case["metric"] not in WITHOUT_AVERAGE_OVER_TIES
    and not differences.of("metrics", case)
]


@pytest.mark.parametrize("case", TIED, ids=lambda case: case["id"])
def test_the_average_over_ties_is_that_of_all_permutations(case: Case) -> None:
    make = tfr_metric_counterparts.of(case)
    metric = make(averaging=metrics.averaging.BY_RELEVANCE, ties=metrics.ties.Averaged())
    for batch in case["batches"]:
        metric.update_state(*inputs(case, batch))
    np.testing.assert_allclose(metric.result(), case["ties_exhaustive"]["mean"], **CLOSE)


@pytest.mark.parametrize("ties", [metrics.ties.Reversed(), metrics.ties.Shuffled(seed=3)])
@pytest.mark.parametrize("case", TIED, ids=lambda case: case["id"])
def test_any_order_of_ties_is_that_of_a_permutation(case: Case, ties: metrics.ties.Ties) -> None:
    make = tfr_metric_counterparts.of(case)
    metric = make(averaging=metrics.averaging.BY_RELEVANCE, ties=ties)
    for batch in case["batches"]:
        metric.update_state(*inputs(case, batch))
    distances = np.abs(np.array(case["ties_exhaustive"]["distinct"]) - float(metric.result()))
    assert np.min(distances) < 1e-5


@vectors.of_our_files
def test_the_preset_has_the_conventions_of_tensorflow_ranking() -> None:
    [case] = [c for c in CASES if c["id"] == "PrecisionMetric/fractional/w_none/default"]
    found = metrics.Evaluator(metrics.tfr())(*inputs(case, case["batches"][0]))
    np.testing.assert_allclose(found["metric/precision"].mean(), case["expected"]["result"])
