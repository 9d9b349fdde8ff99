"""Comparison of runs, query by query, with intervals and tests."""

import dataclasses
import itertools
import json
import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.data import arrays, table
from tfrank_sel.errors import refusal
from tfrank_sel.metrics import ListwiseMetric
from tfrank_sel.metrics.significance import holm, randomisation_test, resample, t_test
from tfrank_sel.trec import runs as trec

ALL = "all"  # the slice of all queries
# Number of differences that a `repr` shows.
MOST_SHOWN = 20
_HEAD = [
    *("metric", "slice", "queries", "A", "B", "A mean", "B mean", "B - A", "95 % interval"),
    *("p (rand.)", "p (t)", "B wins/ties/losses"),
]
Array = NDArray[np.float64]
_EQUAL = 1e-6  # differences up to this may be rounding in float32


if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclasses.dataclass(frozen=True)
class Difference:
    """A metric of two runs on the same queries.

    Args:
        metric: Name of the metric.
        slice: Name of the slice; `all` for all queries.
        a: Name of the first run.
        b: Name of the second run.
        queries: Number of queries that count.
        mean_a: Mean of the first run.
        mean_b: Mean of the second run.
        difference: `mean_b - mean_a`.
        low: Lower end of the 95 % bootstrap interval of the difference.
        high: Upper end of that interval.
        p_randomisation: Two-sided p value of the randomisation test.
        p_t: Two-sided p value of the t test.
        holm_randomisation: `p_randomisation` with Holm's correction.
        holm_t: `p_t` with Holm's correction.
        wins: Number of queries for which the value of `b` is higher.
        ties: Number of queries with the same value.
        losses: Number of queries for which the value of `b` is lower.
    """

    metric: str
    slice: str
    a: str
    b: str
    queries: int
    mean_a: float
    mean_b: float
    difference: float
    low: float
    high: float
    p_randomisation: float
    p_t: float
    holm_randomisation: float
    holm_t: float
    wins: int
    ties: int
    losses: int

    def cells(self) -> list[str]:
        """Returns the cells of its row in a table; p values have Holm's correction."""
        return [
            self.metric,
            self.slice,
            str(self.queries),
            self.a,
            self.b,
            f"{self.mean_a:.4f}",
            f"{self.mean_b:.4f}",
            f"{self.difference:+.4f}",
            f"{self.low:+.4f} to {self.high:+.4f}",
            f"{self.holm_randomisation:.4f}",
            f"{self.holm_t:.4f}",
            f"{self.wins}/{self.ties}/{self.losses}",
        ]


@dataclasses.dataclass(frozen=True)
class QueryDifference:
    """The values of a query.

    Args:
        query: The query.
        a: Value of the first run.
        b: Value of the second run.
    """

    query: str
    a: float
    b: float


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A comparison of runs, as `metrics.compare` returns it.

    Args:
        differences: The differences, all queries first.
        queries: The queries.
        values: Values of each query, by run and metric; NaN if the query does not count.
    """

    differences: Sequence[Difference]
    queries: Sequence[str]
    values: Mapping[str, Mapping[str, NDArray[np.float64]]]

    def __repr__(self) -> str:
        """Returns the first differences as a table."""
        more = len(self.differences) - MOST_SHOWN
        first = dataclasses.replace(self, differences=self.differences[:MOST_SHOWN])
        return first.markdown() + (f"\nand {more} more: see `differences`" if more > 0 else "")

    def most_different(self, metric: str, a: str, b: str, count: int = 5) -> list[QueryDifference]:
        """Returns the queries whose values differ most, those with the largest difference first.

        Args:
            metric: Name of the metric.
            a: Name of the first run.
            b: Name of the second run.
            count: Maximum number of queries. Queries with equal values are left out.
        """
        first, second = self.values[a][metric], self.values[b][metric]
        gaps = np.nan_to_num(np.abs(second - first))
        order = np.argsort(-gaps, kind="stable")[:count]
        return [
            QueryDifference(self.queries[i], float(first[i]), float(second[i]))
            for i in order
            if gaps[i] > 0.0
        ]

    def markdown(self) -> str:
        """Returns the differences as a table in Markdown."""
        rows = [[cell.replace("|", "\\|") for cell in x.cells()] for x in self.differences]
        lines = [_HEAD, ["---"] * len(_HEAD), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def json(self, count: int = 5) -> str:
        """Returns the differences as JSON, with the queries that differ most.

        Args:
            count: Maximum number of queries of each metric and pair of runs.
        """
        rows = []
        for difference in self.differences:
            row = dataclasses.asdict(difference)
            if difference.slice == ALL:
                most = self.most_different(difference.metric, difference.a, difference.b, count)
                row["most_different"] = [dataclasses.asdict(x) for x in most]
            rows.append(row)
        return json.dumps({"differences": rows}, indent=2)

    def draw(self, axes: "Axes") -> None:
        """Draws the interval of each difference.

        Args:
            axes: Axes of matplotlib.
        """
        names = [
            f"{x.metric}: {x.b} - {x.a}" + (f", {x.slice}" if x.slice != ALL else "")
            for x in self.differences
        ]
        for y, difference in enumerate(self.differences):
            axes.plot([difference.low, difference.high], [y, y], color="tab:blue")
            axes.plot(difference.difference, y, "o", color="tab:blue")
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(names)), names, parse_math=False)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("difference of means, 95 % interval")


class _Paired(NamedTuple):
    """Values of a metric for two runs, `[queries]`; NaN for queries that do not count."""

    metric: str
    a: str
    b: str
    first: Array
    second: Array


def compare(
    runs: Mapping[str, Any],
    qrels: Any,
    metrics: Sequence[ListwiseMetric],
    *,
    slices: Mapping[str, Any] | None = None,
    resamples: int = 10_000,
    seed: int = 0,
) -> Comparison:
    """Compares each pair of runs on the same queries, as `metrics.compare`.

    Example:
        >>> qrels = {"1": {"a": 1, "b": 0}, "2": {"a": 0, "b": 1}}
        >>> old = {"1": {"a": 1.0, "b": 2.0}, "2": {"a": 1.0, "b": 2.0}}
        >>> new = {"1": {"a": 2.0, "b": 1.0}, "2": {"a": 1.0, "b": 2.0}}
        >>> found = metrics.compare({"old": old, "new": new}, qrels, [metrics.MRR()])
        >>> [mrr] = found.differences
        >>> mrr.mean_a, mrr.mean_b, mrr.wins, mrr.ties, mrr.losses
        (0.75, 1.0, 1, 1, 0)
        >>> found.most_different("mrr", "old", "new")
        [QueryDifference(query='1', a=0.5, b=1.0)]
    """
    if not isinstance(runs, Mapping) or len(runs) < 2:
        given = [*runs] if isinstance(runs, Mapping) else type(runs).__name__
        raise refusal("`runs` must be two runs or more, by name", given)
    listed = metrics if isinstance(metrics, Sequence) else [metrics]
    if not listed or not all(isinstance(metric, ListwiseMetric) for metric in listed):
        raise refusal("`metrics` must be a list of metrics of lists", repr(metrics))
    if not isinstance(resamples, numbers.Integral) or resamples < 1:
        raise refusal("`resamples` must be a positive integer", resamples=resamples)
    if not isinstance(seed, numbers.Integral) or seed < 0:
        raise refusal("`seed` must be an integer of at least 0", seed=seed)
    slice_of = _slice_of({} if slices is None else slices)
    judged = trec.qrels_of(qrels)
    queries = sorted(judged)
    values = {name: _values(name, run, judged, listed, queries) for name, run in runs.items()}
    pairs = [
        _Paired(metric.name, a, b, values[a][metric.name], values[b][metric.name])
        for metric in listed
        for a, b in itertools.combinations(runs, 2)
    ]
    overall = _differences(pairs, {ALL: np.ones(len(queries), bool)}, resamples, seed)
    if len(overall) < len(pairs):
        raise refusal("Expected a query that counts for each metric", "none")
    names = np.array([slice_of.get(query) for query in queries], object)
    members = {x: names == x for x in sorted({slice_of[q] for q in queries if q in slice_of})}
    return Comparison([*overall, *_differences(pairs, members, resamples, seed)], queries, values)


def _slice_of(slices: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(slices, Mapping):
        raise refusal("`slices` must map queries to slices", type(slices).__name__)
    found = {
        table.identifier("`slices`", "query_id", query): table.identifier(
            "`slices`", "slice", value
        )
        for query, value in slices.items()
        if arrays.text(value)  # others are only among all
    }
    if ALL in found.values():
        raise refusal(
            f"`slices` must not contain {ALL!r}, the name of the slice of all queries", ALL
        )
    return found


def _values(
    name: str,
    source: Any,
    judged: trec.Qrels,
    metrics: Sequence[ListwiseMetric],
    queries: Sequence[str],
) -> dict[str, Array]:
    run = trec.run_of(source)
    if judged.keys().isdisjoint(run):
        raise refusal(f"Expected a query of the judgements in the run {name}", "none")
    by_metric = trec.list_values(judged, run, metrics, queries).items()
    return {x: np.where(weights > 0.0, values, np.nan) for x, (values, weights) in by_metric}


def _differences(
    pairs: Sequence[_Paired], members: Mapping[str, NDArray[np.bool_]], resamples: int, seed: int
) -> list[Difference]:
    """The differences of each slice with a query that counts: one family of tests."""
    differences = []
    for name, member in members.items():
        counting: dict[bytes, list[_Paired]] = {}  # these share their random numbers
        for pair in pairs:
            counts = member & np.isfinite(pair.first) & np.isfinite(pair.second)
            counting.setdefault(counts.tobytes(), []).append(pair)
        for counted, alike in counting.items():
            rows = np.flatnonzero(np.frombuffer(counted, bool))
            if len(rows):
                differences += _test_pairs(alike, name, rows, resamples, seed)
    if not differences:
        return []
    randomised = holm(np.array([x.p_randomisation for x in differences])).tolist()
    t = holm(np.array([x.p_t for x in differences])).tolist()
    return [
        dataclasses.replace(difference, holm_randomisation=p, holm_t=q)
        for difference, p, q in zip(differences, randomised, t, strict=True)
    ]


def _test_pairs(
    pairs: Sequence[_Paired], name: str, rows: NDArray[np.intp], resamples: int, seed: int
) -> list[Difference]:
    """The differences on the queries of some rows, without the correction."""
    first = np.stack([x.first[rows] for x in pairs], axis=1)
    gaps = np.stack([x.second[rows] for x in pairs], axis=1) - first
    keys = rows.astype(np.uint64)
    lows, highs = resample(keys, gaps, seed=seed, resamples=resamples).interval()
    randomised, t = randomisation_test(keys, gaps, seed, resamples), t_test(gaps)
    return [
        Difference(
            metric=pair.metric,
            slice=name,
            a=pair.a,
            b=pair.b,
            queries=len(rows),
            mean_a=float(first[:, i].mean()),
            mean_b=float((first[:, i] + gaps[:, i]).mean()),
            difference=float(gaps[:, i].mean()),
            low=float(lows[i]),
            high=float(highs[i]),
            p_randomisation=float(randomised[i]),
            p_t=float(t[i]),
            holm_randomisation=float(randomised[i]),
            holm_t=float(t[i]),
            wins=int(np.sum(gaps[:, i] > _EQUAL)),
            ties=int(np.sum(np.abs(gaps[:, i]) <= _EQUAL)),
            losses=int(np.sum(gaps[:, i] < -_EQUAL)),
        )
        for i, pair in enumerate(pairs)
    ]
