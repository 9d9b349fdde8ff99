"""Contracts of metrics: lists of weight 0, items not retrieved, scores of NaN, `above`."""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import CALIBRATION, DIVERSITY, METRICS, Case, name_of, one_per_class
from tfrank_sel import bounds, links, metrics
from tfrank_sel.metrics import averaging, ties

pytestmark = pytest.mark.usefixtures("eagerly")

rng = np.random.default_rng(0)
SCORES = rng.normal(size=[3, 5])
AVERAGES = [averaging.ALL_LISTS, averaging.DEFINED_LISTS, averaging.BY_RELEVANCE]


def every(cases: list[Case]) -> Any:
    return pytest.mark.parametrize("case", one_per_class(cases), ids=name_of)


@pytest.mark.sample(6)
@every(METRICS + DIVERSITY + CALIBRATION)
def test_a_list_of_weight_0_is_as_if_it_were_not_there(case: Case) -> None:
    labels, bad = case.labels(rng, (3, 5)), [0, 0, math.nan, math.inf, 1]
    if getattr(case.make(), "largest_label", math.inf) == math.inf:
        labels[2, 0] = math.inf
    scores = np.concatenate([SCORES[:2], [bad]])
    of_items = np.array([[1.0, 2.0, 0.5, 0.0, 1.0]] * 2 + [[0.0] * 5])
    kinds = [{}] if case in CALIBRATION else [{"averaging": x} for x in AVERAGES]
    for weights, options in ((np.array([0.5, 2.0, 0.0]), {}), *((of_items, x) for x in kinds)):
        found, expected = (case.make(dtype="float64", **options) for _ in range(2))
        expected = expected(labels[:2], scores[:2], weights[:2])
        np.testing.assert_allclose(found(labels, scores, weights), expected, rtol=1e-12)
    if options:
        mean = found.evaluate(labels, scores, weights).mean()
        np.testing.assert_allclose(mean, expected, rtol=1e-12)


@every(METRICS + DIVERSITY + CALIBRATION)
def test_a_list_with_an_infinite_label_is_nan(case: Case) -> None:
    metric, labels = case.make(), case.labels(rng, (3, 5))
    if getattr(metric, "largest_label", math.inf) == math.inf:
        labels[2, 0] = math.inf
        assert np.all(np.isnan(metric(labels, SCORES)))


@pytest.mark.parametrize(
    "make", [metrics.AUC, metrics.OPA, metrics.KendallTau, metrics.SpearmanRho]
)
def test_pairs_of_weight_0_define_no_metric(make: type[metrics.ComparingMetric]) -> None:
    both = make()([[0.0, 1.0], [0.0, 1.0]], [[2.0, 1.0], [1.0, 2.0]], [[1.0, 0.0], [1.0, 1.0]])
    assert float(both) == pytest.approx(1.0)


@every([x for x in METRICS if issubclass(x.make.func, metrics.ComparingMetric)])
def test_a_score_of_nan_is_below_all_others(case: Case) -> None:
    labels = case.labels(rng, (3, 5))
    scores = np.where(rng.random([3, 5]) < 0.4, math.nan, SCORES)
    lowest = np.where(np.isnan(scores), -99.0, scores)
    found, expected = (case.make().evaluate(labels, x).values for x in (scores, lowest))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("order", [ties.IN_ORDER, ties.REVERSED, ties.AVERAGED, ties.SHUFFLED])
def test_the_mean_rank_is_no_better_for_relevant_items_that_are_not_found(order: ties.Ties) -> None:
    labels, found = np.array([[0.0, 2.0, 1.0, 0.0, -1.0]]), [[1.0, 4.0, 3.0, 2.0, 9.0]]
    values = []
    for lost in ([], [2], [1], [1, 2], [0, 1, 2, 3]):
        scores = np.array(found)
        scores[0, lost] = -math.inf
        values.append(float(metrics.ARP(ties=order)(labels, scores)))
    assert values == pytest.approx([4 / 3, 7 / 3, 11 / 3, 5.0, 5.0])


@every(DIVERSITY)
def test_subtopics_are_read_by_above(case: Case) -> None:
    labels = rng.normal(size=[3, 5, 2])
    labels[0, 3:] = math.nan
    gains = np.maximum(labels - 0.4, 0.0)
    found = case.make(above=0.4).evaluate(labels, SCORES).values
    np.testing.assert_allclose(found, case.make().evaluate(gains, SCORES).values, rtol=1e-6)


@every(CALIBRATION)
def test_calibration_takes_the_index_of_the_relevant_item(case: Case) -> None:
    classes = np.array([4, -1, 0])  # the second list is padding
    one_hot = np.eye(5)[classes]
    one_hot[1] = math.nan
    expected = case.make()(one_hot, SCORES)
    for labels in (classes, classes[:, None]):
        np.testing.assert_allclose(case.make()(labels, SCORES), expected, rtol=1e-6)


def test_bounds_take_the_index_of_the_relevant_item() -> None:
    classes = np.array([4, 1, 0])
    found, expected = (bounds.softmax_bounds(x, SCORES) for x in (classes, np.eye(5)[classes]))
    np.testing.assert_allclose(found, expected)


class _Above(averaging.DefinedLists):
    """Ranks the items of labels above a bound only."""

    bound: float = 0.0

    def mask(self, batch: Any) -> tf.Tensor:
        return batch.mask & (batch.labels > self.bound)


def test_metrics_share_what_they_read_by_value() -> None:
    def labels_of(factor: float) -> links.Link:
        return links.labels.affine(factor, 1.0)

    y, s = np.array([[0.0, 1.0, 2.0]]), np.array([[3.0, 2.0, 1.0]])
    for first, second in ((1.0, 1.0), (1.0, 2.0), (2.0, 2.0)):
        # one object in the first of them, equal ones in the second, of the same graph
        one = labels_of(first)
        for maps in ((one, one if first == second else labels_of(second)), (first, second)):
            maps = [x if isinstance(x, links.Link) else labels_of(x) for x in maps]
            regions = [
                metrics.RegionAbsoluteError(label_map=x, name=f"{i}") for i, x in enumerate(maps)
            ]
            found = metrics.Evaluator(regions)(y, s)
            for metric in regions:
                np.testing.assert_allclose(found[metric.name].mean(), metric(y, s))
    bounded = [metrics.MRR(averaging=_Above(bound), name=f"{bound}") for bound in (0.0, 1.0)]
    for order in (bounded, bounded[::-1]):
        found = metrics.Evaluator(order)(y, s)
        assert [float(found[f"{bound}"].mean()) for bound in (0.0, 1.0)] == [1.0, 1.0]
