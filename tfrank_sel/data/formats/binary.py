"""Readers for Parquet, Arrow and TFRecord files."""

import contextlib
import dataclasses
import os
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrank_sel.data import stores
from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.formats import rows, tables
from tfrank_sel.data.formats.reader import Part, Reader, RowReader, evenly_spaced
from tfrank_sel.data.formats.tables import PARTS, ROWS, TableReader
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected, rejection
from tfrank_sel.data.schema import Schema
from tfrank_sel.data.table import Table, readable
from tfrank_sel.features import Feature

if TYPE_CHECKING:  # it imports TensorFlow, which takes seconds
    from tfrank_sel.data.formats import records

_NOTHING = "__HIVE_DEFAULT_PARTITION__"


class ParquetReader(TableReader):
    """Reader of Parquet files; the units of a part are row groups.

    A folder is read as its files, ordered by path, and the units of a part are these files; its
    columns are those of several of them. A subfolder named `NAME=VALUE`, as in Hive and Spark, is a
    column of its files.
    """

    name = "parquet"
    suffixes = (".parquet", ".parq")

    def schema(self, path: str) -> Any:
        from pyarrow import parquet

        pa = arrow()
        files = _files(path)
        fields: list[Any] = []
        for path_of_part in evenly_spaced(files, PARTS):
            with stores.open_file(path_of_part) as file:
                names = {field.name for field in fields}
                fields += [x for x in parquet.read_schema(file) if x.name not in names]
        schema = pa.schema(fields)
        partitions = [_partition(path, x) for x in files]
        for name in partitions[0]:
            texts = {partition[name] for partition in partitions if partition.get(name) is not None}
            is_whole = bool(texts) and all(text.lstrip("-").isdecimal() for text in texts if text)
            schema = schema.append(pa.field(name, pa.int64() if is_whole else pa.string()))
        return schema

    def parts(self, path: str) -> Sequence[Part]:
        from pyarrow import parquet

        with readable(path):
            if stores.is_dir(path):
                count = len(_files(path))
            else:
                with stores.open_file(path) as file:
                    count = parquet.read_metadata(file).num_row_groups
        return [Part(path, unit, unit + 1) for unit in range(count)]

    def pieces(self, part: Part) -> Iterator[tuple[Part, Mapping[str, str | None]]]:
        if not stores.is_dir(part.path):
            yield part, {}
            return
        for file in _files(part.path)[part.start : part.stop]:
            yield Part(file), _partition(part.path, file)

    def tables(self, part: Part, names: Sequence[str]) -> Iterator[tuple[np.ndarray, Any]]:
        from pyarrow import parquet

        # Read-ahead buffers would keep what has been read.
        with (
            stores.open_file(part.path) as stored,
            parquet.ParquetFile(stored, pre_buffer=False) as file,
        ):
            groups = range(file.num_row_groups)
            first = 1 + sum(file.metadata.row_group(i).num_rows for i in groups[: part.start])
            groups = groups[part.start : part.stop]
            for batch in file.iter_batches(ROWS, groups, names, use_threads=False):
                yield np.arange(first, first + batch.num_rows), batch
                first += batch.num_rows


def _files(path: str) -> list[str]:
    """The file, or the files of a folder without the hidden files of Spark."""
    if not stores.is_dir(path):
        return [path]
    paths = [x for x in stores.find(path) if x.endswith(ParquetReader.suffixes)]
    shown = [x for x in paths if not any(y[0] in "._" for y in _within(path, x).split("/"))]
    if not shown:
        raise rejection(path, "expected Parquet files in the folder", "none")
    return shown


def _within(folder: str, file: str) -> str:
    if stores.is_remote(folder):
        return file.removeprefix(f"{folder.rstrip('/')}/")
    return os.path.relpath(file, folder)


def _partition(folder: str, file: str) -> dict[str, str | None]:
    """The partition columns from the folders above a file."""
    if folder == file:
        return {}
    pairs = [x.partition("=") for x in _within(folder, file).split("/")[:-1] if "=" in x]
    texts = {name: urllib.parse.unquote(value) for name, _, value in pairs}
    return {name: None if text == _NOTHING else text for name, text in texts.items()}


class ArrowReader(TableReader):
    """Reader of Arrow IPC files and streams, and Feather files; a file is a single part."""

    name = "arrow"
    suffixes = (".arrow", ".feather")

    def schema(self, path: str) -> Any:
        with _open(path) as (schema, _):
            return schema

    def tables(self, part: Part, names: Sequence[str]) -> Iterator[tuple[np.ndarray, Any]]:
        first = 1
        with _open(part.path) as (_, batches):
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS):
                    rows = batch.select(names).slice(start, ROWS)
                    yield np.arange(first, first + rows.num_rows), rows
                    first += rows.num_rows


@contextlib.contextmanager
def _open(path: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """Opens a file; returns its schema and its batches."""
    from pyarrow import ipc

    with arrow().memory_map(stores.near(path)) as source:
        try:
            file = ipc.open_file(source)
        except arrow().ArrowInvalid:  # it may be a stream
            source.seek(0)
            stream = ipc.open_stream(source)
            yield stream.schema, iter(stream)
        else:
            yield file.schema, map(file.get_batch, range(file.num_record_batches))


class RecordReader(Reader):
    """Reader of TFRecord files, compressed if their names end in `.gz`; a file is a single part.

    An absent number is a missing value if `columns` has types, else 0, as in LETOR.
    """

    @property
    def parser(self) -> "records.RecordParser":
        """Parser of the records."""
        from tfrank_sel.data.formats import records  # imports TensorFlow, which takes seconds

        return records.PARSERS[self.name]

    def infer(self, paths: Sequence[str]) -> Schema:
        """Returns the schema of the lists, from the first records of files."""
        from tfrank_sel.data.formats import records

        paths = evenly_spaced(sorted(paths))
        return records.schema_of(records.kinds(paths, self.parser), self.columns, ", ".join(paths))

    def propose(self, paths: Sequence[str]) -> tuple[dict[str, Feature], dict[str, str]]:
        from tfrank_sel.data.formats import records

        items, context = records.tables(evenly_spaced(sorted(paths)), self.parser)
        of_query, left_out = tables.propose(context.schema, context, self.columns)
        of_query = {x: dataclasses.replace(y, of="query") for x, y in of_query.items()}
        of_items, others = tables.propose(items.schema, items, self.columns)
        return {**of_query, **of_items}, {**left_out, **others}

    def lists(self, part: Part, schema: Schema) -> Iterator[Lists | Rejected]:
        from tfrank_sel.data.formats import records

        for batch in records.batches(part.path, self.parser, schema):
            if isinstance(batch, Rejected):
                yield batch
                continue
            bad: dict[int, Rejected] = {}
            for row, reason in batch.table.faults.items():
                index = int(np.searchsorted(batch.offsets, row, "right")) - 1
                reason = f"{reason} in item {row - batch.offsets[index] + 1}"
                number = int(batch.table.place[1][row])
                bad.setdefault(index, Rejected(part.path, "record", number, reason))
            yield from (bad[place] for place in sorted(bad))
            yield batch.take(np.delete(np.arange(len(batch)), list(bad))) if bad else batch


class ElwcReader(RecordReader):
    """Reader of records of `ExampleListWithContext`."""

    name = "elwc"
    suffixes = (".tfrecord", ".tfrecord.gz")


class ExampleInExampleReader(RecordReader):
    """Reader of records of `tf.train.Example` that contain the serialized examples of a list."""

    name = "eie"


class SequenceExampleReader(RecordReader):
    """Reader of records of `tf.train.SequenceExample`."""

    name = "sequence-example"


class ExampleReader(RowReader, RecordReader):
    """Reader of records of `tf.train.Example`, each an item with its query."""

    name = "example"

    def rows(self, part: Part, schema: Schema) -> Iterator[Table | Rejected]:
        from tfrank_sel.data.formats import records

        batches = records.batches(part.path, self.parser, schema)
        of_items = (x if isinstance(x, Rejected) else x.table for x in batches)
        return rows.check_rows(of_items, "record")
