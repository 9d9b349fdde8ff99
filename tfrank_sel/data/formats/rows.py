"""Rows of items, and their grouping into lists."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.arrays import INVALID, mask_of
from tfrank_sel.data.lists import Found, ItemList, Rejected, groups, runs
from tfrank_sel.data.schema import Schema
from tfrank_sel.data.table import ROLES, TEXT, is_invalid, shown
from tfrank_sel.features import Feature, Vector, spans
from tfrank_sel.refusals import received

_INTEGER = re.compile(r"-?[0-9]+")
_WANTED = {"number": "a finite number", "bool": "true or false", "timestamp": "a point in time"}


@dataclasses.dataclass(frozen=True)
class Rows:
    """Consecutive rows, column by column.

    Args:
        place: The file, and the number of each row, counted from 1, `[rows]`.
        queries: Identifier of the query of each, `[rows]`, strings.
        labels: Relevance, `[rows]`, float32.
        features: Numbers, `[rows, num_features]`, float32; NaN if missing.
        doc_ids: Identifiers of the items, `[rows]`, strings; empty if missing.
        context: Other values of the query, by name, `[rows]`.
        texts: Texts, `[rows, num_texts]`, strings; empty if missing.
        weights: Weights of the items, `[rows]`, float32; None for 1.
        faults: Reason why a row is invalid, by its index; see `checked`.
    """

    place: tuple[str, np.ndarray]
    queries: np.ndarray
    labels: np.ndarray
    features: np.ndarray
    doc_ids: np.ndarray
    context: dict[str, np.ndarray]
    texts: np.ndarray | None = None
    weights: np.ndarray | None = None
    faults: Mapping[int, str] = dataclasses.field(default_factory=dict)

    def take(self, rows: np.ndarray | slice) -> "Rows":
        """Returns some of the rows, without their faults."""
        file, numbers = self.place
        return Rows(
            (file, numbers[rows]),
            self.queries[rows],
            self.labels[rows],
            self.features[rows],
            self.doc_ids[rows],
            {name: values[rows] for name, values in self.context.items()},
            None if self.texts is None else self.texts[rows],
            None if self.weights is None else self.weights[rows],
        )


def checked(chunks: Iterable[Rows | Rejected], unit: str = "row") -> Iterator[Rows | Rejected]:
    """Yields the valid rows, and the faults of the others.

    Args:
        chunks: The rows.
        unit: Name of a row in messages.
    """
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
            continue
        file, numbers = rows.place
        nameless = np.flatnonzero(rows.queries == "").tolist()
        reason = received("a row must have a query identifier", "nothing")
        bad = {**rows.faults, **dict.fromkeys(nameless, reason)}
        for row, reason in sorted(bad.items()):
            yield Rejected(file, unit, int(numbers[row]), reason)
        yield rows.take(np.delete(np.arange(len(numbers)), list(bad))) if bad else rows


def weights(measures: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """Returns the weights of items: `weight * list_weight`, divided by `propensity` for positives.

    Args:
        measures: Values of the weight columns, by their role in `Columns`, `[rows]`.

    Returns:
        `[rows]`, float32; None if there is no weight.

    Example:
        >>> weights({"label": np.array([1.0, 0.0]), "propensity": np.array([0.5, 0.5])}).tolist()
        [2.0, 1.0]
    """
    if measures.keys() == {"label"}:
        return None
    labels = measures["label"]
    product = measures.get("weight", np.float32(1.0)) * measures.get("list_weight", np.float32(1.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # such rows are faults
        product = product / np.where(labels > 0.0, measures.get("propensity", 1.0), 1.0)
    return np.broadcast_to(product, labels.shape).astype(np.float32)


def faults(
    schema: Schema,
    measures: Mapping[str, np.ndarray],
    features: np.ndarray,
    texts: np.ndarray | None,
    value_of: Callable[[str, int], Any],
    ids: Mapping[str, np.ndarray] | None = None,
) -> dict[int, str]:
    """Returns the first broken rule of each invalid row, by the index of the row.

    Args:
        schema: Types of the features, and names of the parts.
        measures: As in `weights`; NaN and infinity are invalid.
        features: As in `Rows`; infinity for an invalid value.
        texts: As in `Rows`.
        value_of: Returns the original value of a column in a row.
        ids: Identifiers, by their column.
    """
    reasons: dict[int, str] = {}

    def add(name: str, rule: str, is_bad: np.ndarray) -> None:
        for row in np.flatnonzero(is_bad).tolist():
            if row not in reasons:
                reasons[row] = received(f"{name!r} must be {rule}", shown(value_of(name, row)))

    for role, name in schema.columns.measures.items():
        rule, accepts, *_ = ROLES[role]
        add(name, rule, ~(np.isfinite(measures[role]) & accepts(measures[role])))
    if not np.isfinite(features).all():
        for name, feature, is_text, columns in spans(schema.features):
            if not is_text:
                add(name, _wanted(feature), _is_bad(features[:, columns], feature))
    blocks = dict(ids or {})
    if texts is not None:
        for name, _, is_text, columns in spans(schema.features):
            if is_text:
                blocks[name] = texts[:, columns]
    for name, block in blocks.items():
        is_integer = getattr(schema.features.get(name), "dtype", "string") == "int64"
        if not is_integer and INVALID not in "".join(block.ravel().tolist()):
            continue
        rule, is_bad = ("an integer", _is_no_integer) if is_integer else (TEXT, is_invalid)
        found_bad = mask_of(block, is_bad).reshape(len(block), block.size // max(len(block), 1))
        add(name, rule, np.any(found_bad, axis=1))
    return reasons


def _is_bad(block: np.ndarray, feature: Feature) -> np.ndarray:
    """Mask of the rows with an invalid or incomplete value."""
    is_missing = np.isnan(block)
    is_bad: np.ndarray = np.isinf(block).any(axis=1) | is_missing.any(axis=1)
    return is_bad & ~is_missing.all(axis=1) if feature.may_be_missing else is_bad


def _is_no_integer(text: str) -> bool:
    return bool(text) and not _INTEGER.fullmatch(text)


def _wanted(feature: Feature) -> str:
    if isinstance(feature, Vector):
        return f"{feature.size} finite numbers"
    return _WANTED[feature.type]


def identifiers(query: str, doc_ids: Iterable[str]) -> tuple[str, ...]:
    """Returns the identifiers of items; `QUERY:position` if missing."""
    return tuple(x or f"{query}:{i}" for i, x in enumerate(doc_ids, start=1))


def by_query(rows: Rows) -> Iterator[tuple[str, Rows]]:
    """Groups rows by query, in the order of their first rows."""
    for part in _runs(rows.take(groups(rows.queries)[1])):
        yield str(part.queries[0]), part


def adjacent(
    chunks: Iterable[Rows | Rejected],
    schema: Schema,
    rest: Iterable[Rows | Rejected] = (),
    *,
    is_first: bool = True,
) -> Iterator[Found | Rejected]:
    """Makes lists from rows whose queries are adjacent, with one list in memory.

    Args:
        chunks: The rows of a part of a file.
        schema: Types of the features.
        rest: The rows after it, as in `runs`.
        is_first: Whether this is the first part.
    """
    for run in runs(_pieces(chunks), _pieces(rest), is_first=is_first):
        yield run if isinstance(run, Rejected) else joined(run[1], schema)


def _pieces(chunks: Iterable[Rows | Rejected]) -> Iterator[tuple[str, Rows] | Rejected]:
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
        else:
            yield from ((str(part.queries[0]), part) for part in _runs(rows))


def grouped(chunks: Iterable[Rows | Rejected], schema: Schema) -> Iterator[Found | Rejected]:
    """Makes lists from rows in any order, all in memory, in the order of their first rows."""
    files: dict[str, list[Rows]] = {}
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
        else:
            files.setdefault(rows.place[0], []).append(rows)
    kept: dict[str, list[Rows]] = {}
    for of_file in files.values():
        for query, part in by_query(_concatenated(of_file)):
            kept.setdefault(query, []).append(part)
    for parts in kept.values():
        yield joined(parts, schema)


def joined(parts: Iterable[Rows], schema: Schema) -> Found:
    """Makes a list from all rows of a query, in the order of files and rows."""
    parts = sorted(parts, key=lambda part: (part.place[0], part.place[1][0]))
    whole = _concatenated(parts)
    context = {name: values[:1].tolist()[0] for name, values in whole.context.items()}
    return listed(str(whole.queries[0]), whole, context, schema)


def listed(query: str, rows: Rows, context: Mapping[str, Any], schema: Schema) -> Found:
    """Makes a list from rows; the values of the query are those of the first row.

    Args:
        query: Identifier of the query.
        rows: The rows of this query; may be empty.
        context: Other values of the query.
        schema: Types of the features.
    """
    numbers_of_query, texts_of_query = schema.of_query
    numbers = _of_first(rows.features, numbers_of_query)
    texts = None if rows.texts is None else _of_first(rows.texts, texts_of_query)
    ids = identifiers(query, rows.doc_ids)
    return Found(ItemList(query, rows.labels, numbers, ids, texts, rows.weights), context)


def _of_first(matrix: np.ndarray, columns: np.ndarray) -> np.ndarray:
    if not columns.size or not len(matrix):
        return matrix
    matrix = matrix.copy()
    matrix[:, columns] = matrix[0, columns]
    return matrix


def _concatenated(parts: Sequence[Rows]) -> Rows:
    """Concatenates rows, with the file name of the first part."""
    if len(parts) == 1:
        return parts[0]

    def whole(values: Iterable[Any]) -> Any:
        arrays = list(values)
        return None if arrays[0] is None else np.concatenate(arrays)

    return Rows(
        (parts[0].place[0], whole(part.place[1] for part in parts)),
        whole(part.queries for part in parts),
        whole(part.labels for part in parts),
        whole(part.features for part in parts),
        whole(part.doc_ids for part in parts),
        {name: whole(part.context[name] for part in parts) for name in parts[0].context},
        whole(part.texts for part in parts),
        whole(part.weights for part in parts),
    )


def _runs(rows: Rows) -> Iterator[Rows]:
    starts = np.flatnonzero(rows.queries[1:] != rows.queries[:-1]) + 1
    ends = [0, *starts.tolist(), len(rows.queries)]
    for start, end in itertools.pairwise(ends):
        if end > start:
            yield rows.take(slice(start, end))
