"""Lists from tables: pandas, polars and Arrow frames, arrays by name, Parquet and CSV files."""

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.lists import InputError, ItemList


def lists(
    frame: Any,
    *,
    query: str,
    label: str,
    features: Sequence[str] = (),
    doc_id: str | None = None,
) -> Iterator[ItemList]:
    """Groups the rows of a table by query: one row is one item.

    Args:
        frame: A pandas or polars DataFrame, an Arrow table, or a mapping of names to arrays of one
            length.
        query: Column of the query's identifier, which every row has. The rows of a query need not
            stand together.
        label: Column of the relevance, finite and not negative.
        features: Columns of the features, finite numbers; by default all columns but the others
            named here, in the order of the table.
        doc_id: Column of the item's identifier; by default `ID:position`, counted from 1.

    Yields:
        The lists, by the first row of each query, their items in the order of the rows.

    Raises:
        InputError: If a column is missing, holds no numbers where it must, or a value breaks the
            rules above: the message names column and row, counted from 0.

    Example:
        >>> frame = {"q": ["a", "b", "a"], "y": [1, 0, 2], "x": [0.5, 1.5, 2.5]}
        >>> for found in lists(frame, query="q", label="y"):
        ...     print(found.query_id, found.labels.tolist(), found.features.tolist())
        a [1.0, 2.0] [[0.5], [2.5]]
        b [0.0] [[1.5]]
    """
    names = _names(frame)
    others = [name for name in (query, label, doc_id) if name is not None]
    features = list(features) or [name for name in names if name not in others]
    for name in (*others, *features):
        if name not in names:
            raise InputError("frame", f"expected a column {name!r}. Received: {names}")
    if not features:
        raise InputError("frame", f"expected a column of features. Received: {names}")
    labels = _numbers(frame, label)
    if (negative := np.flatnonzero(labels < 0.0)).size:
        raise _bad(label, negative[0], "a label that is not negative", labels[negative[0]])
    matrix = np.stack([_numbers(frame, name) for name in features], axis=1)
    queries = _column(frame, query)
    if queries.dtype.kind not in "iu" and any(bad := [_is_missing(name) for name in queries]):
        row = bad.index(True)
        raise _bad(query, row, "an identifier", queries[row])
    _, first, group = np.unique(queries.astype(str), return_index=True, return_inverse=True)
    rows = np.argsort(first[group], kind="stable")
    ids = None if doc_id is None else _column(frame, doc_id).astype(str)
    starts = np.flatnonzero(np.diff(first[group][rows], prepend=-1))
    for items in np.split(rows, starts[1:]):
        name = str(queries[items[0]])
        found = ids[items] if ids is not None else [f"{name}:{i + 1}" for i in range(len(items))]
        yield ItemList(name, labels[items], matrix[items], tuple(map(str, found)))


def read(path: str | pathlib.Path, **columns: Any) -> Iterator[ItemList]:
    """Reads a `.parquet` or `.csv` file (`.csv.gz` too), which is held in memory as a whole.

    Args:
        path: The file.
        **columns: `query`, `label`, `features` and `doc_id`, as in `lists`.

    Yields:
        The lists, as `lists` does.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If the file cannot be read, or as `lists` does.
    """
    try:
        import pyarrow
        from pyarrow import csv, parquet
    except ImportError as error:
        raise ImportError("Tables need pyarrow: pip install 'tfrank_sel[frames]'") from error
    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv, ".csv.gz": csv.read_csv}
    reader = next((readers[end] for end in readers if str(path).endswith(end)), None)
    if reader is None:
        raise InputError(str(path), f"expected one of {', '.join(readers)}")
    try:
        frame = reader(str(path))
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise InputError(str(path), f"expected a readable table. Received: {error}") from error
    try:
        yield from lists(frame, **columns)
    except InputError as error:
        raise InputError(f"{path}, {error.place}", error.reason) from error


def _names(frame: Any) -> list[str]:
    if isinstance(frame, dict):
        return list(frame)
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def _column(frame: Any, name: str) -> np.ndarray:
    column = frame[name]
    return np.asarray(column.to_numpy() if hasattr(column, "to_numpy") else column)


def _numbers(frame: Any, name: str) -> np.ndarray:
    column = _column(frame, name)
    try:
        numbers = column.astype(np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"column {name!r}", f"expected numbers. Received: {error}") from error
    if (bad := np.flatnonzero(~np.isfinite(numbers))).size:
        raise _bad(name, bad[0], "a finite number", column[bad[0]])
    return numbers


def _is_missing(identifier: object) -> bool:
    """Whether nothing is there, or what stands for nothing in some kind of frame."""
    if isinstance(identifier, (str, bytes)):
        return not identifier
    return str(identifier) in ("None", "nan", "NaT", "<NA>")


def _bad(name: str, row: int, wanted: str, received: object) -> InputError:
    return InputError(f"column {name!r}, row {row}", f"expected {wanted}. Received: {received}")
