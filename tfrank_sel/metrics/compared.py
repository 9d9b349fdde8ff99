"""Results of a comparison of runs, as Markdown, JSON and a picture."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ALL = "all"  # the slice of all queries

_HEAD = [
    *("metric", "slice", "queries", "A", "B", "A mean", "B mean", "B - A", "95 % interval"),
    *("p (rand.)", "p (t)", "B wins/ties/losses"),
]


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
        rows = [[x.replace("|", "\\|") for x in one.cells()] for one in self.differences]
        lines = [_HEAD, ["---"] * len(_HEAD), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def json(self, count: int = 5) -> str:
        """Returns the differences as JSON, with the queries that differ most.

        Args:
            count: Maximum number of queries of each metric and pair of runs.
        """
        found = []
        for one in self.differences:
            row = dataclasses.asdict(one)
            if one.slice == ALL:
                most = self.most_different(one.metric, one.a, one.b, count)
                row["most_different"] = [dataclasses.asdict(x) for x in most]
            found.append(row)
        return json.dumps({"differences": found}, indent=2)

    def draw(self, axes: "Axes") -> None:
        """Draws the interval of each difference.

        Args:
            axes: Axes of matplotlib.
        """
        names = [
            f"{x.metric}: {x.b} - {x.a}" + (f", {x.slice}" if x.slice != ALL else "")
            for x in self.differences
        ]
        for y, one in enumerate(self.differences):
            axes.plot([one.low, one.high], [y, y], color="tab:blue")
            axes.plot(one.difference, y, "o", color="tab:blue")
        axes.axvline(0.0, color="black", linewidth=0.8)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel("difference of means, 95 % interval")
