"""Rows of items, and how they become lists."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator

import numpy as np

from tfrank_sel.data.formats.columns import Layout
from tfrank_sel.data.lists import Found, ItemList, Rejected


@dataclasses.dataclass(frozen=True)
class Rows:
    """Consecutive rows, column by column.

    Args:
        place: Where they stand: the file, and the number of each row, counted from 1, `[rows]`.
        queries: Identifier of the query of each, `[rows]`, strings.
        labels: Relevance, `[rows]`, float32.
        features: Features, `[rows, num_features]`, float32.
        doc_ids: Identifiers of the items, `[rows]`, strings; empty where there is none.
        context: What else is known of the query, by name, `[rows]`.
    """

    place: tuple[str, np.ndarray]
    queries: np.ndarray
    labels: np.ndarray
    features: np.ndarray
    doc_ids: np.ndarray
    context: dict[str, np.ndarray]

    def take(self, rows: np.ndarray | slice) -> "Rows":
        """Returns some of the rows."""
        file, numbers = self.place
        return Rows(
            (file, numbers[rows]),
            self.queries[rows],
            self.labels[rows],
            self.features[rows],
            self.doc_ids[rows],
            {name: values[rows] for name, values in self.context.items()},
        )


def checked(
    chunks: Iterable[Rows | Rejected], layout: Layout, unit: str = "row"
) -> Iterator[Rows | Rejected]:
    """Passes on the rows that can be used, and says what is wrong with the others.

    Args:
        chunks: The rows.
        layout: Names of the features.
        unit: What a row is called.
    """
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
            continue
        file, numbers = rows.place
        bad = dict(faults(rows.labels, rows.features, layout))
        nameless = np.flatnonzero(rows.queries == "").tolist()
        bad |= dict.fromkeys(nameless, "a row must name its query. Received: nothing")
        for row, reason in sorted(bad.items()):
            yield Rejected(file, unit, int(numbers[row]), reason)
        yield rows.take(np.delete(np.arange(len(numbers)), list(bad))) if bad else rows


def faults(labels: np.ndarray, features: np.ndarray, layout: Layout) -> Iterator[tuple[int, str]]:
    """Yields the items that break a rule, and the rule.

    Args:
        labels: As in `Rows`.
        features: As in `Rows`.
        layout: Names of the features.
    """
    is_label = np.isfinite(labels) & (labels >= 0.0)
    is_finite = np.isfinite(features)
    for item in np.flatnonzero(~(is_label & is_finite.all(axis=1))).tolist():
        if not is_label[item]:
            wanted = "a label must be a finite number that is not negative"
            yield item, f"{wanted}. Received: {labels[item]:g}"
        else:
            column = np.flatnonzero(~is_finite[item])[0]
            received = f"{features[item, column]:g} as {layout.names[column]!r}"
            yield item, f"a feature must be a finite number. Received: {received}"


def identifiers(query: str, doc_ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the identifiers of items: `QUERY:position` for those that have none."""
    return tuple(x or f"{query}:{i}" for i, x in enumerate(doc_ids, start=1))


def by_query(rows: Rows) -> Iterator[tuple[str, Rows]]:
    """Divides rows by query, wherever they stand, in the order of their first rows."""
    seen: dict[str, int] = {}
    places = [seen.setdefault(query, len(seen)) for query in rows.queries]
    for part in _runs(rows.take(np.argsort(places, kind="stable"))):
        yield str(part.queries[0]), part


def adjacent(chunks: Iterable[Rows | Rejected]) -> Iterator[Found | Rejected]:
    """Makes lists of rows whose queries stand together, with one list in memory."""
    kept: list[Rows] = []
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
            continue
        for part in _runs(rows):
            if kept and kept[0].queries[0] != part.queries[0]:
                yield joined(kept)
                kept = []
            kept.append(part)
    if kept:
        yield joined(kept)


def grouped(chunks: Iterable[Rows | Rejected]) -> Iterator[Found | Rejected]:
    """Makes lists of rows that stand anywhere, all of them in memory, by their first rows."""
    kept: dict[str, list[Rows]] = {}
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
            continue
        for query, part in by_query(rows):
            kept.setdefault(query, []).append(part)
    yield from map(joined, kept.values())


def joined(parts: Iterable[Rows]) -> Found:
    """Makes a list of all rows of a query, in the order of files and rows."""
    parts = sorted(parts, key=lambda part: (part.place[0], part.place[1][0]))
    query = str(parts[0].queries[0])
    labels = np.concatenate([part.labels for part in parts])
    ids = (x for part in parts for x in part.doc_ids)
    features = np.concatenate([part.features for part in parts])
    context = {name: values[:1].tolist()[0] for name, values in parts[0].context.items()}
    return Found(ItemList(query, labels, features, identifiers(query, ids)), context)


def _runs(rows: Rows) -> Iterator[Rows]:
    starts = np.flatnonzero(rows.queries[1:] != rows.queries[:-1]) + 1
    ends = [0, *starts.tolist(), len(rows.queries)]
    for start, end in itertools.pairwise(ends):
        if end > start:
            yield rows.take(slice(start, end))
