"""Readers of tables: Arrow columns to rows of items, whatever file or frame they come from."""

import abc
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats import rows
from tfrank_sel.data.formats.columns import Columns, Layout
from tfrank_sel.data.formats.protocol import Part, RowReader
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import InputError, Rejected
from tfrank_sel.features import REFUSE, Number


def arrow() -> Any:
    """Returns pyarrow.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import pyarrow
    except ImportError as error:
        raise ImportError("Tables need pyarrow: pip install 'tfrank_sel[frames]'") from error
    return pyarrow


class TableReader(RowReader):
    """Reads files of named columns, by pyarrow.

    Raises:
        ImportError: If pyarrow is not installed.
    """

    def __init__(self, columns: Columns) -> None:
        arrow()
        super().__init__(columns)

    @abc.abstractmethod
    def schema(self, path: str) -> Any:
        """Returns the Arrow schema of a file: names and types of its columns."""

    @abc.abstractmethod
    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        """Yields some rows at a time.

        Args:
            part: The part to read.
            names: The columns to read.

        Yields:
            The numbers of rows in the file, counted from 1, and an Arrow table or batch of them;
            and what is no row.
        """

    def layout(self, paths: Sequence[str]) -> Layout:
        with readable(paths[0]):
            return layout(paths[0], self.schema(paths[0]), self.columns)

    def rows(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        return rows.checked(self._unchecked(part, layout), layout)

    def _unchecked(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        with readable(part.path):
            names = self.schema(part.path).names
            wanted = [*self.columns.required, *layout.features]
            check(part.path, names, wanted)
            wanted += [name for name in [self.columns.doc_id] if name in names]
            for found in self.tables(part, list(dict.fromkeys(wanted))):
                if isinstance(found, Rejected):
                    yield found
                else:
                    yield of_table((part.path, found[0]), found[1], self.columns, layout)


@contextlib.contextmanager
def readable(place: str) -> Iterator[None]:
    """Turns errors of files and of Arrow into an `InputError`."""
    try:
        yield
    except (OSError, arrow().ArrowException) as error:
        reason = f"expected a readable table. Received: {error}".replace("\n", " ")
        raise InputError(place, reason) from error


def check(place: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raises an `InputError` if a table lacks a column."""
    for name in wanted:
        if name not in names:
            raise InputError(place, f"expected a column {name!r}. Received: {list(names)}")


def layout(place: str, schema: Any, columns: Columns) -> Layout:
    """Returns which columns of a table are features, and which parts of the context are numbers.

    Args:
        place: Where the table stands.
        schema: Its Arrow schema.
        columns: Names of the parts. By default, features are the integers and floats that have no
            other role; Booleans and decimals may be named.

    Raises:
        InputError: If the table lacks a column, has no feature, or one that is no number is named.
    """
    check(place, schema.names, columns.required)
    types = arrow().types
    numbers = [x.name for x in schema if types.is_integer(x.type) or types.is_floating(x.type)]
    for name in columns.features:
        kind = schema.field(name).type
        if name not in numbers and not (types.is_boolean(kind) or types.is_decimal(kind)):
            raise InputError(place, f"expected numbers in the column {name!r}. Received: {kind}")
    features = columns.features or [name for name in numbers if name not in columns.others]
    if not features:
        raise InputError(place, f"expected a column of numbers. Received: {schema.names}")
    return Layout(
        dict.fromkeys(features, Number(missing=REFUSE)),
        {name: name in numbers for name in columns.context},
    )


def of_table(place: tuple[str, np.ndarray], table: Any, columns: Columns, layout: Layout) -> Rows:
    """Returns the rows of an Arrow table or batch.

    Args:
        place: As in `Rows`.
        table: The table.
        columns: Names of the parts.
        layout: Which columns are features, and which parts of the context are numbers.
    """
    has_ids = columns.doc_id in table.schema.names
    return Rows(
        place,
        strings(table[columns.query]),
        floats(table[columns.label]),
        np.stack([floats(table[name]) for name in layout.features], axis=1),
        strings(table[columns.doc_id]) if has_ids else np.full(table.num_rows, "", np.object_),
        {
            name: (floats if is_number else strings)(table[name])
            for name, is_number in layout.context.items()
        },
    )


def strings(column: Any) -> np.ndarray:
    """Returns a column as strings; empty where there is nothing, or NaN."""
    texts = column.cast(arrow().string()).fill_null("").to_pylist()
    if arrow().types.is_floating(column.type):
        texts = ["" if text == "nan" else text for text in texts]
    return np.asarray(texts, np.object_)


def floats(column: Any) -> np.ndarray:
    """Returns a column as float32; NaN where there is no number."""
    pa = arrow()
    try:
        return np.asarray(column.cast(pa.float32(), safe=False).fill_null(np.nan))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return np.array([_float(value) for value in column.to_pylist()], np.float32)


def _float(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return float("nan")
