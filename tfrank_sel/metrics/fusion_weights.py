"""Weights of runs in a fusion, fitted on judged queries."""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.metrics import sources, trec
from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.metrics.evaluator import Evaluator
from tfrank_sel.metrics.fusion import comb_sum

STEPS = 10  # weights are multiples of 1 / (STEPS * runs)

Weights = tuple[int, ...]
Array = NDArray[np.float64]


class FusionFit(NamedTuple):
    """Weights of runs, and what they are worth.

    Attributes:
        weights: Weight of each run, for `metrics.comb_sum`; they sum to 1.
        value: Mean of the metric with these weights, over the queries that they were fitted on.
        held_out: Mean of the metric by cross-validation: each query has weights that were fitted on
            other queries.
        equal: Mean of the metric with equal weights.
    """

    weights: list[float]
    value: float
    held_out: float
    equal: float


def fit_fusion(
    runs: Sequence[Any], qrels: Any, metric: ListwiseMetric, *, folds: int = 5, seed: int = 0
) -> FusionFit:
    """Fits the weights of `metrics.comb_sum` on judged queries.

    The search starts from equal weights. It moves weight between two runs as long as the metric
    rises, and tries each pair. For two runs it is exhaustive, in steps of 0.05. The weights are
    worth their cost if `held_out` is clearly above `equal`; do not measure them on the same
    queries.

    Args:
        runs: Two runs or more, in the forms of `metrics.compare`.
        qrels: Judgements of the validation queries. Other queries of the runs are ignored.
        metric: The metric to maximise.
        folds: Number of parts of the queries for cross-validation.
        seed: Seed of the division into parts.

    Raises:
        ValueError: If there are fewer than two runs, fewer than two folds, or fewer queries that
            count than folds.

    Example:
        >>> qrels = {str(q): {"x": q % 2, "y": 1 - q % 2} for q in range(10)}
        >>> right = {q: dict(documents) for q, documents in qrels.items()}
        >>> wrong = {q: {"x": 1, "y": 0} for q in qrels}
        >>> metrics.fit_fusion([right, wrong], qrels, metrics.MRR())
        FusionFit(weights=[0.55, 0.45], value=1.0, held_out=1.0, equal=0.75)
    """
    if len(runs) < 2 or folds < 2:
        raise ValueError(
            "`fit_fusion` requires at least two runs and two folds. "
            f"Received: {len(runs)} runs, folds={folds}"
        )
    values_of = _Values(runs, sources.qrels(qrels), metric)
    rows = np.flatnonzero(np.isfinite(values_of(_equal(len(runs)))))
    if len(rows) < folds:
        raise ValueError(
            f"Expected a query that counts for each of {folds} folds. Received: {len(rows)}"
        )
    fold = np.random.default_rng(seed).permutation(len(rows)) % folds
    held_out = np.zeros(len(rows))
    for i in range(folds):
        found = _fitted(values_of, rows[fold != i])
        held_out[fold == i] = values_of(found)[rows[fold == i]]
    best = _fitted(values_of, rows)
    return FusionFit(
        weights=[x / sum(best) for x in best],
        value=float(values_of(best)[rows].mean()),
        held_out=float(held_out.mean()),
        equal=float(values_of(_equal(len(runs)))[rows].mean()),
    )


class _Values:
    """The values of the queries for weights of runs; NaN for a query that does not count."""

    def __init__(self, runs: Sequence[Any], judged: trec.Qrels, metric: ListwiseMetric) -> None:
        parts = [comb_sum([run]) for run in runs]
        union = comb_sum(parts)
        self.num_runs = len(runs)
        self.evaluator = Evaluator([metric], jit_compile=False)
        self.of = functools.cache(self._of)
        queries, size = sorted(judged.keys() & union.keys()), trec.QUERIES_AT_ONCE
        self.chunks = [
            _stacked(parts, union, judged, queries[i : i + size], trec.takes_judged_only(metric))
            for i in range(0, len(queries), size)
        ]

    def __call__(self, weights: Weights) -> Array:
        divisor = math.gcd(*weights)
        return self.of(tuple(x // divisor for x in weights))

    def _of(self, weights: Weights) -> Array:
        found = [np.zeros(0)]
        for labels, parts in self.chunks:
            # of documents that no run retrieves, all scores are -inf
            scores = np.tensordot(np.array(weights) / sum(weights), np.maximum(parts, -1.0), axes=1)
            scores = np.where(np.isneginf(parts[0]), -np.inf, scores)
            [(values, counted)] = self.evaluator(labels, scores.astype(np.float32)).values()
            found.append(np.where(np.asarray(counted) > 0.0, values, np.nan))
        return np.concatenate(found)


def _stacked(
    parts: Sequence[trec.Run],
    union: trec.Run,
    judged: trec.Qrels,
    queries: Sequence[str],
    judged_only: bool,
) -> tuple[Array, Array]:
    """Labels `[queries, documents]`, and the scores of each run, `[runs, queries, documents]`."""
    found = [
        trec.padded(
            [
                trec.items_of(
                    judged[query],
                    {**dict.fromkeys(union[query], 0.0), **part.get(query, {})},
                    judged_only,
                )
                for query in queries
            ]
        )
        for part in parts
    ]
    return found[0][0], np.stack([scores for _, scores in found])


def _equal(num_runs: int) -> Weights:
    return (STEPS,) * num_runs


def _fitted(values_of: _Values, rows: NDArray[np.intp]) -> Weights:
    """Moves weight between pairs of runs until no move is better on the queries of `rows`."""
    best = _equal(values_of.num_runs)
    while True:
        before = best
        for i, j in itertools.combinations(range(len(best)), 2):
            both = best[i] + best[j]
            moved = [
                tuple({i: x, j: both - x}.get(n, w) for n, w in enumerate(best))
                for x in range(both + 1)
            ]
            # of equally good weights the most even
            best = max(
                moved,
                key=lambda w: (round(float(values_of(w)[rows].mean()), 9), -abs(w[i] - w[j])),
            )
        if best == before or len(best) == 2:
            return best
