"""Base of table readers: Arrow columns to rows of items."""

import abc
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats import proposals, rows, values
from tfrank_sel.data.formats.columns import Columns, Layout, is_index
from tfrank_sel.data.formats.protocol import Part, RowReader
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.formats.values import arrow
from tfrank_sel.data.lists import InputError, Rejected
from tfrank_sel.features import REFUSE, Feature, Number

ROWS = 8192  # read at once
TEXT_SUFFIXES = ("", ".gz", ".bz2", ".zst")  # of text that pyarrow decompresses


class TableReader(RowReader):
    """Reader of files with named columns, by pyarrow.

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
            and malformed rows.
        """

    def pieces(self, part: Part) -> Iterator[tuple[Part, Mapping[str, str | None]]]:
        """Yields the files of a part, and the columns with one value for a whole file."""
        yield part, {}

    def sample(self, path: str) -> Any:
        """Returns the first thousands of rows as an Arrow table, with the best-fitting types.

        Raises:
            InputError: If the file cannot be read.
        """
        pa = arrow()
        schema = self.schema(path)
        read = self._read(Part(path), schema.names)
        tables = (x[2] for x in read if not isinstance(x, Rejected))
        first = next((table for table in tables if table.num_rows), schema.empty_table())
        return pa.table({name: first[name] for name in schema.names})

    def propose(self, path: str) -> tuple[dict[str, Feature], dict[str, str]]:
        with readable(path):
            sample = self.sample(path)
        check(path, sample.schema.names, self.columns.required)
        return proposals.propose(sample.schema, sample, self.columns)

    def layout(self, paths: Sequence[str]) -> Layout:
        with readable(paths[0]):
            return layout(paths[0], self.schema(paths[0]), self.columns)

    def rows(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        return rows.checked(self._unchecked(part, layout))

    def _unchecked(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        needed = [*self.columns.required, *layout.features]
        for found in self._read(part, needed, [self.columns.doc_id]):
            if isinstance(found, Rejected):
                yield found
            else:
                path, numbers, table = found
                yield of_table((path, numbers), table, self.columns, layout)

    def _read(
        self, part: Part, needed: Sequence[str], optional: Sequence[str] = ()
    ) -> Iterator[tuple[str, np.ndarray, Any] | Rejected]:
        """Yields the file of some rows, their numbers and an Arrow table, or malformed rows."""
        pa = arrow()
        for piece, constants in self.pieces(part):
            with readable(piece.path):
                there = self.schema(piece.path).names
                check(piece.path, [*there, *constants], needed)
                names = dict.fromkeys([*needed, *optional])
                given = [x for x in names if x in constants]
                wanted = [x for x in names if x in there and x not in constants]
                for found in self.tables(piece, wanted):
                    if isinstance(found, Rejected):
                        yield found
                        continue
                    numbers, table = found
                    for name in given:
                        value = pa.scalar(constants[name], pa.string())
                        table = table.append_column(name, pa.repeat(value, table.num_rows))
                    yield piece.path, numbers, table


@contextlib.contextmanager
def readable(place: str) -> Iterator[None]:
    """Converts errors of files and of Arrow to an `InputError`."""
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
    """Returns the types of the features of a table, and which context columns are numbers.

    Args:
        place: Name of the table in errors.
        schema: Its Arrow schema.
        columns: Names of the parts. By default, the features are the integer and float columns
            without another role; Boolean and decimal columns may be named.

    Raises:
        InputError: If a column is missing, there is no feature, or a column does not fit its type.
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
    free = [x for x in numbers if x not in columns.others and not is_index(x)]
    features = columns.features or free
    if not features:
        raise InputError(place, f"expected a column of numbers. Received: {schema.names}")
    return Layout(
        columns.types or dict.fromkeys(features, Number(missing=REFUSE)),
        {name: name in numbers for name in columns.context},
    )


def of_table(place: tuple[str, np.ndarray], table: Any, columns: Columns, layout: Layout) -> Rows:
    """Returns the rows of an Arrow table or batch, with the faults of invalid rows.

    Args:
        place: As in `Rows`.
        table: The table.
        columns: Names of the parts.
        layout: Types of the features, and which parts of the context are numbers.
    """
    measures = {"label": np.zeros(table.num_rows, np.float32)}
    measures |= {role: values.floats(table[name]) for role, name in columns.measures.items()}
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
