"""Several metrics at once: what each has alone, with one sort for all that rank alike."""

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.cases import METRICS, Case, name_of, one_per_class
from tfrank_sel import metrics
from tfrank_sel.metrics import averaging, ties
from tfrank_sel.ops import ranking

rng = np.random.default_rng(0)
Y_TRUE = rng.integers(-1, 4, [6, 9]).astype(np.float32)
Y_PRED = rng.integers(0, 4, [6, 9]).astype(np.float32)  # with ties
WEIGHTS = rng.uniform(0.5, 2.0, [6, 9]).astype(np.float32)


@contextlib.contextmanager
def eagerly() -> Iterator[None]:
    """Runs formulas without tracing or compiling."""
    tf.config.run_functions_eagerly(True)
    try:
        yield
    finally:
        tf.config.run_functions_eagerly(False)


def all_metrics() -> list[metrics.ListwiseMetric]:
    """One of each class but those of scores as labels, and several cut-offs, ties and averages."""
    some = [case.make() for case in one_per_class(METRICS) if case.make.func.min_label == 0.0]
    return [
        *some,
        metrics.NDCG(3, name="ndcg@3"),
        metrics.NDCG(name="reversed", ties=ties.REVERSED),
        metrics.MAP(4, name="map@4", ties=ties.Averaged()),
        metrics.MRR(name="defined", averaging=averaging.DEFINED_LISTS),
        metrics.DCG(2, name="by relevance", averaging=averaging.BY_RELEVANCE),
    ]


@pytest.mark.long
def test_together_metrics_are_as_alone() -> None:
    evaluator = metrics.Evaluator(all_metrics())
    together = evaluator(Y_TRUE, Y_PRED, WEIGHTS)
    in_graph = tf.function(evaluator)(Y_TRUE, Y_PRED, WEIGHTS)
    with eagerly():
        for metric in all_metrics():
            alone = metric.evaluate(Y_TRUE, Y_PRED, WEIGHTS)
            for found in (together[metric.name], in_graph[metric.name]):
                np.testing.assert_allclose(found, alone, rtol=1e-5, atol=1e-6, err_msg=metric.name)
            metric.update_state(Y_TRUE, Y_PRED, WEIGHTS)
            mean = together[metric.name].mean()
            np.testing.assert_allclose(mean, metric.result(), rtol=1e-5, err_msg=metric.name)


def test_metrics_that_rank_alike_share_one_sort(monkeypatch: pytest.MonkeyPatch) -> None:
    depths: list[int | None] = []
    order = ranking.order

    def counted(scores: tf.Tensor, mask: tf.Tensor, k: int | None = None) -> tf.Tensor:
        depths.append(k)
        return order(scores, mask, k)

    monkeypatch.setattr(ranking, "order", counted)
    cut = [metrics.NDCG(k, name=f"ndcg@{k}") for k in (1, 5)]
    for chosen, expected in (
        ([metrics.Precision(3), metrics.Hits(5)], {5: 1}),
        ([metrics.Precision(3), metrics.MRR(), metrics.MAP()], {None: 1}),
        ([metrics.MRR(), metrics.MRR(name="other", ties=ties.REVERSED)], {None: 2}),
        ([metrics.OPA()], {}),
        (cut, {5: 3}),  # and each the ideal ranking, which XLA finds to be the same
    ):
        depths.clear()
        metrics.Evaluator(chosen)(Y_TRUE, Y_PRED)
        assert collections.Counter(depths) == expected


@pytest.mark.long
def test_xla_sorts_once_for_the_ideal_ranking_of_all_cutoffs() -> None:
    cut = [metrics.NDCG(k, name=f"ndcg@{k}") for k in (1, 5, 10)]
    [group] = metrics.Evaluator(cut)._groups
    batch = cut[0].batch_of(tf.constant(Y_TRUE), tf.constant(Y_PRED), None, "float32")

    @tf.function(jit_compile=True)
    def values() -> Any:
        sort = group[0].shared_sort(batch, group)
        return [metric.list_values(batch, sort).values for metric in group]

    text = values.experimental_get_compiler_ir()(stage="optimized_hlo")
    assert text.count(" custom-call(") + text.count(" sort(") <= 2
    assert text.count("TopK") + text.count(" sort(") >= 2


def test_equal_names_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Received twice: \['ndcg'\]"):
        metrics.Evaluator([metrics.NDCG(1, name="ndcg"), metrics.NDCG(), metrics.MRR()])


def test_metrics_of_regions_keep_their_own_lists() -> None:
    regions = metrics.by_region([1.0])
    together = metrics.Evaluator(regions)(Y_TRUE, Y_PRED)
    for metric in regions:
        np.testing.assert_allclose(together[metric.name].mean(), metric(Y_TRUE, Y_PRED))


def test_the_state_is_left_alone() -> None:
    mrr = metrics.MRR()
    metrics.Evaluator([mrr])(Y_TRUE, Y_PRED)
    mrr.evaluate(Y_TRUE, Y_PRED)
    assert float(mrr.result()) == 0.0


@pytest.mark.sample(3)
@pytest.mark.parametrize("case", METRICS, ids=name_of)
def test_weights_of_lists_are_theirs_or_zero(case: Case) -> None:
    tf.config.run_functions_eagerly(True)
    w = np.arange(1.0, 7.0)
    found = case.make().evaluate(Y_TRUE, Y_PRED, w).weights.numpy()
    tf.config.run_functions_eagerly(False)
    assert np.all((found == w) | (found == 0.0))
