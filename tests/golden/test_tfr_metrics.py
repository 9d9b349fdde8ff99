"""Replays the metrics of tensorflow-ranking 0.5.5: of each list, its value and its weight.

Where we mean to differ (`tfr_metric_differences`), an independent reference is met instead.
"""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from numpy.typing import NDArray

from tests.golden import tfr_metric_counterparts, tfr_metric_differences, vectors
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


def counted_items(
    case: Case, labels: list[Any], scores: list[float], weights: Any
) -> list[list[Any]]:
    """Labels, scores and weights of the items of a list: valid, and mostly of positive weight."""
    keeps = case["metric"] in tfr_metric_differences.DIVERSITY
    weights = [weights] if np.ndim(weights) == 0 else weights
    weights = list(weights) * (len(labels) if len(weights) == 1 else 1)
    items = [
        (np.maximum(y, 0.0).tolist(), s, w)
        for y, s, w in zip(labels, scores, weights, strict=True)
        if not tfr_metric_differences.is_padding(y) and (w > 0.0 or keeps)
    ]
    return [list(x) for x in zip(*items, strict=True)] or [[], [], []]


def expected_weight(ours: tfr_metric_counterparts.Ours, labels: list[Any], weights: Any) -> float:
    """The weight of a list by its own items: by worth, or their mean where none has any."""
    worth = [ours.worth(y) for y in labels]
    if not any(weights):
        return 0.0
    return float(np.average(weights, weights=worth if any(worth) else None))


def expected_of(ours: tfr_metric_counterparts.Ours, case: Case) -> tuple[Array, Array]:
    """Values and weights of all lists, as recorded but for the intended differences."""
    values = np.concatenate(case["expected"]["per_list_value"])
    weights = np.concatenate(case["expected"]["per_list_weight"])
    differences = tfr_metric_differences.of(case)
    if not differences:
        return values, weights
    for i, row in enumerate(
        row
        for b in case["batches"]
        for row in zip(b["y_true"], b["y_pred"], weights_of_lists(b), strict=True)
    ):
        labels, scores, item_weights = counted_items(case, *row)
        weights[i] = expected_weight(ours, labels, item_weights)
        if not all(d.of for d in differences):
            assert ours.reference is not None
            relative = [w / weights[i] if w else 0.0 for w in item_weights]
            values[i] = ours.reference(labels, scores, relative) if labels else 0.0
    return values, weights


def weights_of_lists(batch: Case) -> list[Any]:
    weights = batch["sample_weight"]
    if isinstance(weights, list):
        return weights
    return [1.0 if weights is None else weights] * len(batch["y_true"])


@pytest.mark.filterwarnings("ignore:.*every list has one item")
@pytest.mark.parametrize("case", vectors.in_modes(CASES, kind="metric"))
def test_replay(case: Case) -> None:
    ours = tfr_metric_counterparts.of(case)
    metric = ours.make(averaging=metrics.averaging.BY_RELEVANCE)
    found = [metric.evaluate(*inputs(case, batch)) for batch in case["batches"]]
    values, weights = (np.concatenate(x) for x in zip(*found, strict=True))
    expected_values, expected_weights = expected_of(ours, case)
    np.testing.assert_allclose(values, expected_values, **CLOSE)
    np.testing.assert_allclose(weights, expected_weights, **CLOSE)
    for batch in case["batches"]:
        metric.update_state(*inputs(case, batch))
    total = np.sum(expected_weights)
    mean = np.sum(expected_weights * expected_values) / total if total else 0.0
    np.testing.assert_allclose(metric.result(), mean, **CLOSE)
    if not tfr_metric_differences.of(case) and "result" in case["expected"]:
        np.testing.assert_allclose(metric.result(), case["expected"]["result"], **CLOSE)


TIED = [
    case
    for case in CASES
    if not case["deterministic"]
    and case["metric"] not in WITHOUT_AVERAGE_OVER_TIES
    and not tfr_metric_differences.of(case)
]


@pytest.mark.parametrize("case", TIED, ids=lambda case: case["id"])
def test_the_average_over_ties_is_that_of_all_permutations(case: Case) -> None:
    make = tfr_metric_counterparts.of(case).make
    metric = make(averaging=metrics.averaging.BY_RELEVANCE, ties=metrics.ties.Averaged())
    for batch in case["batches"]:
        metric.update_state(*inputs(case, batch))
    np.testing.assert_allclose(metric.result(), case["ties_exhaustive"]["mean"], **CLOSE)


@pytest.mark.parametrize("ties", [metrics.ties.Reversed(), metrics.ties.Shuffled(seed=3)])
@pytest.mark.parametrize("case", TIED, ids=lambda case: case["id"])
def test_any_order_of_ties_is_that_of_a_permutation(case: Case, ties: metrics.ties.Ties) -> None:
    make = tfr_metric_counterparts.of(case).make
    metric = make(averaging=metrics.averaging.BY_RELEVANCE, ties=ties)
    for batch in case["batches"]:
        metric.update_state(*inputs(case, batch))
    distances = np.abs(np.array(case["ties_exhaustive"]["distinct"]) - float(metric.result()))
    assert np.min(distances) < 1e-5


@vectors.of_our_files
def test_every_difference_is_that_of_some_case() -> None:
    met = {id(d) for case in CASES for d in tfr_metric_differences.of(case)}
    for difference in tfr_metric_differences.DIFFERENCES:
        assert id(difference) in met, difference.scenario


@vectors.of_our_files
def test_the_preset_has_the_conventions_of_tensorflow_ranking() -> None:
    [case] = [c for c in CASES if c["id"] == "PrecisionMetric/fractional/w_none/default"]
    found = metrics.Evaluator(metrics.tfr())(*inputs(case, case["batches"][0]))
    np.testing.assert_allclose(found["metric/precision"].mean(), case["expected"]["result"])
