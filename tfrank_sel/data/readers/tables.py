"""Rows of items, from Parquet and CSV, and how they become lists."""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from tfrank_sel import data
from tfrank_sel.data.readers.sources import Columns, Format, Found, Layout, Rejected

_ROWS = 8192  # in a chunk of a Parquet file
_BYTES = 1 << 20  # in a chunk of a CSV file


@dataclasses.dataclass(frozen=True)
class Rows:
    """Consecutive rows, column by column.

    Args:
        place: Where they stand: the file, and the number of each row, counted from 1, `[rows]`.
        queries: Identifier of the query of each, `[rows]`, strings.
        labels: Relevance, `[rows]`, float32.
        features: Features, `[rows, num_features]`, float32.
        doc_ids: Identifiers of the items, `[rows]`, strings; or None.
        context: What else is known of the query, by name, `[rows]`.
    """

    place: tuple[str, np.ndarray]
    queries: np.ndarray
    labels: np.ndarray
    features: np.ndarray
    doc_ids: np.ndarray | None
    context: dict[str, np.ndarray]

    def take(self, rows: np.ndarray | slice) -> "Rows":
        """Returns some of the rows."""
        file, numbers = self.place
        return Rows(
            (file, numbers[rows]),
            self.queries[rows],
            self.labels[rows],
            self.features[rows],
            None if self.doc_ids is None else self.doc_ids[rows],
            {name: values[rows] for name, values in self.context.items()},
        )


def layout(path: str, format: Format, columns: Columns) -> Layout:
    """Returns which columns of a table are features, and which parts of the context are numbers.

    A column of a CSV file is one of numbers if most of its first values are.

    Raises:
        tfrank_sel.data.InputError: If the table cannot be read or lacks a column.
    """
    schema = _schema(path, format)
    _check(path, schema, [columns.query, columns.label, *columns.features, *columns.context])
    if format is Format.PARQUET:
        kinds = (pa.types.is_integer, pa.types.is_floating)
        numbers = [column.name for column in schema if any(kind(column.type) for kind in kinds)]
    else:
        first = _guarded(path, lambda: next(_tables(path, format, schema.names, [])))
        shares = {name: np.isfinite(_floats(first[name])).mean() for name in schema.names}
        numbers = [name for name, share in shares.items() if share > 0.5]
    features = columns.features or [name for name in numbers if name not in columns.others]
    if not features:
        raise data.InputError(path, f"expected a column of numbers. Received: {schema.names}")
    return Layout(dict.fromkeys(features, 1), {name: name in numbers for name in columns.context})


def read(path: str, format: Format, columns: Columns, layout: Layout) -> Iterator[Rows | Rejected]:
    """Reads a Parquet or CSV file, chunk by chunk.

    Args:
        path: The file.
        format: `Format.PARQUET` or `Format.CSV`.
        columns: Names of the parts.
        layout: Which columns are features and what the context is.

    Yields:
        The rows, and what is no row at all.

    Raises:
        tfrank_sel.data.InputError: If the file cannot be read or lacks a column.
    """
    schema = _schema(path, format)
    wanted = [columns.query, columns.label, *layout.features, *layout.context]
    _check(path, schema, wanted)
    has_ids = columns.doc_id in schema.names
    wanted += [columns.doc_id] if has_ids else []
    bad: list[Rejected] = []
    tables = _guarded(path, lambda: _tables(path, format, wanted, bad))
    passed: list[int] = []
    first = 1
    while (table := _guarded(path, lambda: next(tables, None))) is not None:
        passed += [rejected.number for rejected in bad if rejected.number is not None]
        yield from bad
        bad.clear()
        yield Rows(
            (path, _numbers_of_rows(first, table.num_rows, passed)),
            _strings(table[columns.query]),
            _floats(table[columns.label]),
            np.stack([_floats(table[name]) for name in layout.features], axis=1),
            _strings(table[columns.doc_id]) if has_ids else None,
            {
                name: (_floats if is_number else _strings)(table[name])
                for name, is_number in layout.context.items()
            },
        )
        first += table.num_rows
    yield from bad


def checked(chunks: Iterable[Rows | Rejected], unit: str = "row") -> Iterator[Rows | Rejected]:
    """Passes on the rows that can be used, and says what is wrong with the others.

    Args:
        chunks: The rows.
        unit: What a row is called.
    """
    for rows in chunks:
        if isinstance(rows, Rejected):
            yield rows
            continue
        is_label = np.isfinite(rows.labels) & (rows.labels >= 0.0)
        is_finite = np.isfinite(rows.features).all(axis=1)
        is_good = is_label & is_finite & (rows.queries != "")
        file, numbers = rows.place
        for row in np.flatnonzero(~is_good):
            if rows.queries[row] == "":
                reason = "a row must name its query. Received: nothing"
            elif not is_label[row]:
                wanted = "a label must be a finite number that is not negative"
                reason = f"{wanted}. Received: {rows.labels[row]:g}"
            else:
                column = np.flatnonzero(~np.isfinite(rows.features[row]))[0]
                received = f"{rows.features[row, column]:g} as number {column + 1}"
                reason = f"a feature must be a finite number. Received: {received}"
            yield Rejected(file, unit, int(numbers[row]), reason)
        yield rows if is_good.all() else rows.take(is_good)


def by_query(rows: Rows) -> Iterator[tuple[str, Rows]]:
    """Divides rows by query, wherever they stand."""
    order = np.argsort(rows.queries, kind="stable")
    for part in _runs(rows.take(order)):
        yield str(part.queries[0]), part


def compact(rows: Rows) -> tuple[Any, ...]:
    """Returns rows of one query as a few bytes and strings, of which Beam makes little."""
    file, numbers = rows.place
    ids = None if rows.doc_ids is None else tuple(rows.doc_ids)
    context = tuple(values[:1].tolist()[0] for values in rows.context.values())
    arrays = (numbers.astype(np.int64), rows.labels, np.ascontiguousarray(rows.features))
    return (file, *(values.tobytes() for values in arrays), ids, context)


def expanded(query: str, parts: tuple[Any, ...], layout: Layout) -> Rows:
    """Returns the rows of a query that `compact` made small."""
    file, numbers, labels, features, ids, context = parts
    known = zip(layout.context, context, strict=True)
    return Rows(
        (file, np.frombuffer(numbers, np.int64)),
        np.array([query], np.object_),
        np.frombuffer(labels, np.float32),
        np.frombuffer(features, np.float32).reshape(-1, len(layout.names)),
        None if ids is None else np.array(ids, np.object_),
        {name: np.array([value], np.object_) for name, value in known},
    )


def adjacent(chunks: Iterable[Rows | Rejected]) -> Iterator[Found | Rejected]:
    """Makes lists of rows whose queries stand together."""
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


def joined(parts: Iterable[Rows]) -> Found:
    """Makes a list of all rows of a query, in the order of files and rows."""
    parts = sorted(parts, key=lambda part: (part.place[0], part.place[1][0]))
    query = str(parts[0].queries[0])
    labels = np.concatenate([part.labels for part in parts])
    ids: list[str] = []
    for part in parts:
        if part.doc_ids is None:
            ids += [f"{query}:{len(ids) + i}" for i in range(1, len(part.labels) + 1)]
        else:
            ids += part.doc_ids.tolist()
    features = np.concatenate([part.features for part in parts])
    context = {name: values[:1].tolist()[0] for name, values in parts[0].context.items()}
    return Found(data.ItemList(query, labels, features, tuple(ids)), context)


def _runs(rows: Rows) -> Iterator[Rows]:
    starts = np.flatnonzero(rows.queries[1:] != rows.queries[:-1]) + 1
    ends = [0, *starts.tolist(), len(rows.queries)]
    for start, end in itertools.pairwise(ends):
        if end > start:
            yield rows.take(slice(start, end))


def _schema(path: str, format: Format) -> pa.Schema:
    if not Path(path).is_file():
        raise data.InputError(path, "expected a file. Received: no such file")
    if format is Format.PARQUET:
        return _guarded(path, lambda: parquet.read_schema(path))
    passed = csv.ParseOptions(invalid_row_handler=lambda row: "skip")
    return _guarded(path, lambda: csv.open_csv(path, parse_options=passed).schema)


def _check(path: str, schema: pa.Schema, wanted: Iterable[str]) -> None:
    for name in wanted:
        if name not in schema.names:
            raise data.InputError(path, f"expected a column {name!r}. Received: {schema.names}")


def _tables(path: str, format: Format, wanted: list[str], bad: list[Rejected]) -> Iterator[Any]:
    """Yields some rows at a time; those of a CSV file as text."""

    def refuse(row: Any) -> str:
        reason = f"a row must have {row.expected_columns} values. Received: {row.actual_columns}"
        bad.append(Rejected(path, "row", row.number - 1, reason, row.text))  # less the header
        return "skip"

    if format is Format.PARQUET:
        # Buffered ahead, what has been read would be kept.
        file = parquet.ParquetFile(path, pre_buffer=False)
        yield from file.iter_batches(_ROWS, columns=wanted, use_threads=False)
        return
    # As text, so that one that is no number spoils its row alone.
    as_text = csv.ConvertOptions(
        column_types=dict.fromkeys(wanted, pa.string()),
        include_columns=wanted,
        strings_can_be_null=True,
    )
    one_thread = csv.ReadOptions(use_threads=False, block_size=_BYTES)
    yield from csv.open_csv(path, one_thread, csv.ParseOptions(invalid_row_handler=refuse), as_text)


def _guarded(path: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except (OSError, pa.ArrowException) as error:
        reason = f"expected a readable table. Received: {error}".replace("\n", " ")
        raise data.InputError(path, reason) from error


def _numbers_of_rows(first: int, count: int, passed: list[int]) -> np.ndarray:
    """The numbers of rows in the file, of which some have been passed over."""
    numbers = np.arange(first, first + count)
    for number in passed:
        numbers[numbers >= number] += 1
    return numbers


def _strings(column: Any) -> np.ndarray:
    return np.asarray(column.cast(pa.string()).fill_null("").to_pylist(), np.object_)


def _floats(column: Any) -> np.ndarray:
    """The numbers of a column; NaN where there is none."""
    try:
        return np.asarray(column.cast(pa.float32(), safe=False).fill_null(np.nan))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.array([_float(value) for value in column.to_pylist()], np.float32)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
