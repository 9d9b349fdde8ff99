"""Readers of tables: Arrow columns to rows of items, whatever file or frame they come from."""

import abc
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats import rows, values
from tfrank_sel.data.formats.columns import Columns, Layout
from tfrank_sel.data.formats.protocol import Part, RowReader
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.formats.values import arrow
from tfrank_sel.data.lists import InputError, Rejected
from tfrank_sel.features import REFUSE, Number


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
        return rows.checked(self._unchecked(part, layout))

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
    """Returns the types of the features of a table, and which parts of the context are numbers.

    Args:
        place: Where the table stands.
        schema: Its Arrow schema.
        columns: Names of the parts. By default, features are the integers and floats that have no
            other role; Booleans and decimals may be named.

    Raises:
        InputError: If the table lacks a column, has no feature, or one that cannot be of its type.
    """
    check(place, schema.names, columns.required)
    types = arrow().types
    numbers = [x.name for x in schema if types.is_integer(x.type) or types.is_floating(x.type)]
    if columns.types is None:
        for name in columns.features:
            kind = schema.field(name).type
            if not (values.is_number(kind) or types.is_boolean(kind)):
                raise InputError(
                    place, f"expected numbers in the column {name!r}. Received: {kind}"
                )
    for name, feature in (columns.types or {}).items():
        kind = schema.field(name).type
        if not values.accepts(kind, feature):
            wanted = f"expected a column {name!r} that can be of type {feature.type}"
            raise InputError(place, f"{wanted}. Received: {kind}")
    features = columns.features or [name for name in numbers if name not in columns.others]
    if not features:
        raise InputError(place, f"expected a column of numbers. Received: {schema.names}")
    return Layout(
        columns.types or dict.fromkeys(features, Number(missing=REFUSE)),
        {name: name in numbers for name in columns.context},
    )


def of_table(place: tuple[str, np.ndarray], table: Any, columns: Columns, layout: Layout) -> Rows:
    """Returns the rows of an Arrow table or batch, and the faults of those that cannot be used.

    Args:
        place: As in `Rows`.
        table: The table.
        columns: Names of the parts.
        layout: Types of the features, and which parts of the context are numbers.
    """
    measures = {role: values.floats(table[name]) for role, name in columns.measures.items()}
    features = np.empty([table.num_rows, len(layout.names)], np.float32)
    texts = np.empty([table.num_rows, len(layout.texts)], np.object_) if layout.texts else None
    first_number = first_text = 0
    for name, feature in layout.features.items():
        if count := len(feature.numbers(name)):
            block = values.numbers(table[name], feature)
            features[:, first_number : first_number + count] = block
            first_number += count
        if texts is not None and (count := len(feature.texts(name))):
            texts[:, first_text : first_text + count] = values.texts(table[name], feature)
            first_text += count
    has_ids = columns.doc_id in table.schema.names
    ids = values.strings(table[columns.doc_id]) if has_ids else np.full(len(features), "", object)
    return Rows(
        place,
        values.strings(table[columns.query]),
        measures["label"],
        features,
        ids,
        {
            name: (values.floats if is_number else values.strings)(table[name])
            for name, is_number in layout.context.items()
        },
        texts,
        rows.weights(measures),
        rows.faults(
            columns, layout, measures, features, texts, lambda name, row: table[name][row].as_py()
        ),
    )
