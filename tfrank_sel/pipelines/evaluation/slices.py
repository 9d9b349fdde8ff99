"""Slices of the queries: by list size, by query frequency, and by context."""

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel.errors import refusal
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.analysis import sketches
from tfrank_sel.pipelines.ingestion import ingest_counts
from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists

LIST_SIZES = (10, 50, 200)
FREQUENCIES = (1, 10, 100)


def band(count: int, edges: Sequence[int]) -> str:
    """Returns the band that a count is in.

    Args:
        count: The count, positive.
        edges: Increasing upper limits of all bands except the last.

    Example:
        >>> [band(count, LIST_SIZES) for count in (1, 10, 11, 500)]
        ['1-10', '1-10', '11-50', '201+']
    """
    low = 1
    for edge in edges:
        if count <= edge:
            return f"{low}-{edge}" if low < edge else f"{edge}"
        low = edge + 1
    return f"{low}+"


OVERALL = "all"
_VALUES = 10  # values of a text with a separate slice; the others share one
_KEPT = 10_000  # counted values of a text


@dataclasses.dataclass(frozen=True)
class Survey:
    """Statistics of all queries for slicing.

    Args:
        queries: Hashes of the queries.
        numbers: For each number of the context, its counts by bin of `sketches`.
        texts: For each text of the context, the count of each value.
    """

    queries: list[np.ndarray]
    numbers: dict[str, np.ndarray]
    texts: dict[str, collections.Counter[str]]


@dataclasses.dataclass(frozen=True)
class Slicing:
    """The slices of queries.

    Args:
        repeated: The count of each query that occurs more than once, by hash.
        edges: For each number of the context, the quartiles.
        values: For each text of the context, the most frequent values.
    """

    repeated: Mapping[int, int]
    edges: Mapping[str, list[float]]
    values: Mapping[str, list[str]]

    def names(self, query: int, size: int, context: Mapping[str, Any]) -> list[str]:
        """Returns the slices that a query is in.

        Args:
            query: Hash of its identifier.
            size: Number of its items.
            context: Other values of the query, by name.
        """
        names = [OVERALL, f"list_size {band(size, LIST_SIZES)}"]
        if self.repeated:  # otherwise all queries are in one slice
            frequency = band(self.repeated.get(query, 1), FREQUENCIES)
            names.append(f"query_frequency {frequency}")
        for name, edges in self.edges.items():
            if np.isnan(context[name]):
                names.append(f"{name} (missing)")
                continue
            above = int(np.searchsorted(edges, context[name]))
            low = f"above {edges[above - 1]:.4g}" if above else ""
            high = f"up to {edges[above]:.4g}" if above < len(edges) else ""
            names.append(" ".join(filter(None, [name, low, high])))
        for name, values in self.values.items():
            value = context[name].decode("utf-8", "replace")
            names.append(f"{name} {value if value in values else '(other)'}")
        return names


class Surveyor(runners.Combiner):
    """Combiner (`runners.Combiner`) from batches of serialized lists to `Slicing`.

    Args:
        lists: The lists, with their parser.

    Raises:
        ValueError: If there is no list.
    """

    def __init__(self, lists: StoredLists) -> None:
        self.lists = lists

    def count(self, element: Sequence[bytes]) -> Survey:
        parts = self.lists.queries(tf.constant(element))
        hashes = ingest_counts.hashes_of(parts.pop(self.lists.spec.query_id))
        numbers, texts = {}, {}
        for name, is_number in self.lists.context.items():
            if is_number:
                numbers[name] = sketches.counts(parts[name][:, None])
            else:
                decoded = (x.decode("utf-8", "replace") for x in parts[name])
                texts[name] = _frequent(collections.Counter(decoded))
        return Survey([hashes], numbers, texts)

    def add(self, total: Survey, other: Survey) -> Survey:
        return Survey(
            total.queries + other.queries,
            {name: x + other.numbers[name] for name, x in total.numbers.items()},
            {name: _frequent(x + other.texts[name]) for name, x in total.texts.items()},
        )

    def extract_output(self, accumulator: Survey | None) -> Slicing:
        if accumulator is None:
            raise refusal(f"expected a list in {', '.join(self.lists.shards)}", "none")
        hashes, counts = np.unique(np.concatenate(accumulator.queries), return_counts=True)
        often = counts > 1
        quartiles = np.array([0.25, 0.5, 0.75])
        return Slicing(
            dict(zip(hashes[often].tolist(), counts[often].tolist(), strict=True)),
            {
                name: np.unique(sketches.quantiles(counts, quartiles)).tolist()
                for name, counts in accumulator.numbers.items()
            },
            {
                name: [value for value, _ in occurring.most_common(_VALUES)]
                for name, occurring in accumulator.texts.items()
            },
        )


def _frequent(counts: collections.Counter[str]) -> collections.Counter[str]:
    return collections.Counter(dict(counts.most_common(_KEPT)))
