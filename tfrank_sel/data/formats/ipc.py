"""Reader for Arrow and Feather files with one item per row."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data import stores
from tfrank_sel.data.formats.arrays import arrow
from tfrank_sel.data.formats.protocol import Part
from tfrank_sel.data.formats.tables import ROWS, TableReader


class ArrowReader(TableReader):
    """Reader of Arrow IPC files and streams, and Feather files; a file is a single part."""

    name = "arrow"
    suffixes = (".arrow", ".feather")

    def schema(self, path: str) -> Any:
        with _opened(path) as (schema, _):
            return schema

    def tables(self, part: Part, names: Sequence[str]) -> Iterator[tuple[np.ndarray, Any]]:
        first = 1
        with _opened(part.path) as (_, batches):
            for batch in batches:
                for start in range(0, batch.num_rows, ROWS):
                    rows = batch.select(names).slice(start, ROWS)
                    yield np.arange(first, first + rows.num_rows), rows
                    first += rows.num_rows


@contextlib.contextmanager
def _opened(path: str) -> Iterator[tuple[Any, Iterator[Any]]]:
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
