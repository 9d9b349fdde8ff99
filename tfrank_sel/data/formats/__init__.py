"""Readers of all file formats, one per format.

To add a format, write a subclass of `Reader`, `RowReader` or `TableReader` in a new file, and add a
line here.
"""

import dataclasses
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel.arguments import StrPath
from tfrank_sel.data import lists, stores, table as data_table
from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.formats.binary import (
    ArrowReader,
    ElwcReader,
    ExampleInExampleReader,
    ExampleReader,
    ParquetReader,
    SequenceExampleReader,
)
from tfrank_sel.data.formats.reader import (
    Part as Part,
    Reader as Reader,
    RowReader as RowReader,
    open_part,
)
from tfrank_sel.data.formats.tables import TableReader as TableReader, common_columns
from tfrank_sel.data.formats.text import CsvReader, JsonlReader, LetorReader, TsvReader
from tfrank_sel.data.lists import ItemList
from tfrank_sel.data.rejections import InputError as InputError, Rejected, rejection
from tfrank_sel.data.schema import Columns as Columns, Schema as Schema
from tfrank_sel.data.table import Table as Table, check, of_frame, readable
from tfrank_sel.errors import received, refusal
from tfrank_sel.features import Feature as Feature, FeatureTypes

FORMATS: dict[str, type[Reader]] = {
    kind.name: kind
    for kind in (
        LetorReader,
        ElwcReader,
        ExampleInExampleReader,
        SequenceExampleReader,
        ExampleReader,
        ParquetReader,
        ArrowReader,
        CsvReader,
        TsvReader,
        JsonlReader,
    )
}


def reader(
    paths: Sequence[str], columns: Columns | None = None, format: str | None = None
) -> Reader:
    """Returns the reader for files.

    Args:
        paths: The files.
        columns: Names of the parts of a list.
        format: Format of the files, a key of `FORMATS`. By default it is inferred from the suffix:
            `.parquet`, `.arrow`, `.csv`, `.tsv`, `.jsonl`, `.tfrecord` (ELWC), `.txt` (LETOR) and
            others in `Reader.suffixes`. A name without a suffix is LETOR, and a folder contains
            Parquet files.

    Raises:
        ImportError: If a package required by the format is not installed.
        InputError: If the files have different formats or an unknown format.
        ValueError: If there is no such format.

    Example:
        >>> reader(["train.csv", "more.csv.gz"]).name
        'csv'
    """
    names = [format or _format(path) for path in paths]
    for path, name in zip(paths, names, strict=True):
        if name != names[0]:
            raise rejection(path, f"expected {names[0]}, as {paths[0]} is", name)
        if name not in FORMATS:
            raise refusal(f"`format` must be one of {', '.join(FORMATS)}", name)
    return FORMATS[names[0]](columns or Columns())


def read(
    paths: StrPath | Sequence[StrPath],
    *,
    query: str = Columns.query,
    label: str | None = Columns.label,
    doc_id: str = Columns.doc_id,
    features: Sequence[str] | FeatureTypes = (),
    num_features: int | None = None,
    weight: str | None = None,
    list_weight: str | None = None,
    propensity: str | None = None,
    format: str | None = None,
    adjacent: bool = False,
) -> Iterator[ItemList]:
    """Reads files of any format.

    Args:
        paths: One or more files, all of one format.
        query: As in `Columns`.
        label: As in `Columns`.
        doc_id: As in `Columns`.
        features: As in `Columns`.
        num_features: As in `Columns`.
        weight: As in `Columns`.
        list_weight: As in `Columns`.
        propensity: As in `Columns`.
        format: As in `reader`.
        adjacent: Whether the rows of a query are adjacent in row formats: Parquet, CSV,
            `tf.train.Example`. If not, all rows of all files are held in memory, and lists are
            ordered by their first rows. Otherwise files are read a few lists at a time.

    Yields:
        The lists, in the order of the files.

    Raises:
        ImportError: If a package required by the format is not installed.
        InputError: If a file cannot be read, or at the first invalid line, row or record: the
            message names it and the broken rule.
        ValueError: If there is no such format, or a name has two roles.

    Example:
        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "clicks.csv")
        ...     _ = path.write_text("session,clicked,price\\na,1,2.5\\nb,0,3\\na,0,4\\n")
        ...     for found in read(path, query="session", label="clicked"):
        ...         print(found.query_id, found.labels.tolist(), found.features.tolist())
        a [1.0, 0.0] [[2.5], [4.0]]
        b [0.0] [[3.0]]
    """
    sources = [paths] if isinstance(paths, str | os.PathLike) else paths
    files = [os.fspath(path) for path in sources]
    if not files:
        raise refusal("`paths` must name at least one file", "none")
    columns = Columns(
        query,
        label,
        doc_id,
        features,
        num_features=num_features,
        weight=weight,
        list_weight=list_weight,
        propensity=propensity,
    )
    kind = reader(files, columns, format)
    schema = kind.infer(files)
    if isinstance(kind, RowReader):
        each = (row for file in files for row in kind.rows(Part(file), schema))
        units = (lists.adjacent if adjacent else lists.group_rows)(each, schema)
    else:
        units = (unit for file in files for unit in kind.lists(Part(file), schema))
    seen: set[str] = set()
    is_distinct = kind.is_distinct or (adjacent and isinstance(kind, RowReader))
    for found in lists.strict(units):
        if is_distinct:
            for query, row in zip(found.queries, found.offsets.tolist(), strict=False):
                if query in seen:
                    expected = "the rows of a query must be adjacent"
                    unit = "line" if kind.is_distinct else "row"
                    reason = received(expected, f"{query!r} again")
                    raise found.table.reject(row, reason, unit).error()
                seen.add(query)
        yield from found


def table(
    source: Any,
    roles: Mapping[str, str],
    *,
    optional: Collection[str] = (),
    others: bool = False,
    format: str | None = None,
    rejected: list[Rejected] | None = None,
    place: str = "table",
) -> Table:
    """Reads all rows of a table, with columns by role.

    Args:
        source: A path, or paths of files of one format; or a table in memory: a pandas or polars
            frame, an Arrow table, a mapping of names to columns, or a sequence of dicts.
        roles: Name of the column of each role: see `tfrank_sel.data.table.ROLES`.
        optional: Roles whose columns may be absent.
        others: Whether to keep the other columns, too.
        format: As in `reader`.
        rejected: List to append malformed rows to, and those without a valid value of each role. By
            default, the first one is an error.
        place: Name of a table in memory, in errors.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If a file is no table, cannot be read or lacks a column; or at a bad row. Rows
            of files are counted from 1, and those in memory from 0.
        TypeError: If the source is no table.
        ValueError: If there is no such format.
    """
    paths = paths_of(source)
    needed = list(dict.fromkeys(name for role, name in roles.items() if role not in optional))
    if paths is None:
        with readable(place):
            frame = of_frame(source, names=None if others else {*roles.values()})
        names = frame.schema.names
        check(place, names, [*needed, *{*roles.values()}.intersection(names)])
        counts = {x: names.count(x) for x in names} if others else {}
        left_out = {x: f"{n} columns have this name" for x, n in counts.items() if n > 1}
        kinds = {x: frame.schema.field(x).type for x in counts if x not in left_out}
        chunks: Iterable[Any] = [(place, np.arange(frame.num_rows), frame)]
    else:
        kind = _of_tables(paths, format)
        sample, left_out = kind.sample_files(paths, needed) if others else (arrow().table({}), {})
        kinds = {x.name: x.type for x in sample.schema}
        # all may be identifiers, which keep each digit
        exact = {*kinds, *roles.values()} - {Columns.query, Columns.doc_id}
        kind = type(kind)(Columns(label=None, context=tuple(exact)))
        more = [*roles.values(), *kinds]
        chunks = (x for path in paths for x in kind.read(Part(path), needed, more))
    read = data_table.read(chunks, roles, kinds, rejected, optional)
    parts = data_table.alike([*read], roles, rejected)
    columns, lacking = common_columns([(part.place[0], part.columns) for part in parts])
    if not parts:
        parts = [data_table.empty(x for x in roles if x not in optional)]
    whole = data_table.concatenate(parts)
    of_texts = [name for role, name in roles.items() if data_table.is_id(role)]
    texts = dict.fromkeys(of_texts, arrow().string())
    return dataclasses.replace(
        whole,
        columns=columns.unify_dictionaries(),
        kinds=kinds | texts,
        left_out={**left_out, **lacking},
    )


def paths_of(source: Any) -> list[str] | None:
    """Returns the paths of the files of `table`; None for a table in memory."""
    sources = [source] if isinstance(source, str | os.PathLike) else source
    if not isinstance(sources, Sequence) or not sources:
        return None
    are_paths = all(isinstance(x, str | os.PathLike) for x in sources)
    return [os.fspath(path) for path in sources] if are_paths else None


def names(paths: Sequence[str], format: str | None = None) -> list[str]:
    """Returns the names of the columns of the first file; otherwise as `table`."""
    kind = _of_tables(paths, format)
    with readable(paths[0]):
        return list(kind.schema(paths[0]).names)


def dicts(
    paths: Sequence[str],
    names: Sequence[str],
    format: str | None = None,
    rejected: list[Rejected] | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Reads the rows of tables as dicts, whose values may be of any types.

    Args:
        paths: The files, all of one format.
        names: The columns to read, if they are there; a record may have others, too.
        format: As in `reader`.
        rejected: As in `table`.

    Yields:
        The place of a row, for messages, and the row.

    Raises:
        ImportError: As `table`, as all others.
        InputError: As `table`.
        ValueError: As `table`.
    """
    kind = _of_tables(paths, format)
    for row in (x for path in paths for x in kind.dicts(Part(path), names)):
        if isinstance(row, Rejected):
            data_table.reject([row], rejected)
            continue
        file, number, record = row
        yield f"{file}, row {number}", record


def read_text(path: str) -> str:
    """Returns the text of a file in UTF-8, which may be compressed.

    Raises:
        InputError: If there is no such text.
    """
    with readable(path, "text in UTF-8"), open_part(Part(path)) as file:
        return b"".join(file).decode("utf-8-sig")


def _of_tables(paths: Sequence[str], format: str | None) -> TableReader:
    table_reader = reader(paths, None, format)
    if not isinstance(table_reader, TableReader):
        raise rejection(paths[0], "expected a file of a table", table_reader.name)
    return table_reader


def _format(path: str) -> str:
    file = os.path.basename(path).lower()
    for name, kind in FORMATS.items():
        if file.endswith(kind.suffixes) and not os.path.isdir(path):
            return name
    if stores.is_dir(path):
        return ParquetReader.name
    if "." not in file.removesuffix(".gz"):
        return LetorReader.name
    formats = "; ".join(f"{name}: {' '.join(x.suffixes)}" for name, x in FORMATS.items())
    expected = f"expected a file name with a known suffix, or the argument `format` ({formats})"
    raise rejection(path, expected, repr(os.path.splitext(file)[1]))
