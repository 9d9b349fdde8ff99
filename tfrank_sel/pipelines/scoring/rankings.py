"""Files of ranked lists: one row per item, with its rank and score."""

import contextlib
import json
import types
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from tfrank_sel.data import stores

SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("rank", pa.int32()),
        ("doc_id", pa.string()),
        ("score", pa.float32()),
    ]
)
EXPLAINED = SCHEMA.append(pa.field("contributions", pa.string()))
# Number of rows that are written at once.
_ROWS = 1 << 16


def table(
    queries: np.ndarray, doc_ids: np.ndarray, scores: np.ndarray, mask: np.ndarray
) -> tuple[pa.Table, np.ndarray]:
    """Ranks lists; equal scores keep the order of items.

    Args:
        queries: Identifier of each query, bytes `[batch_size]`.
        doc_ids: Identifiers of the items, bytes `[batch_size, list_size]`.
        scores: Their scores, of the same shape.
        mask: True for items, False for padding, of the same shape; padding is last.

    Returns:
        The lists, one after another, each by rank; and the indices of their items, best first, of
        the shape of the scores.

    Example:
        >>> ids, scores = np.array([[b"a", b"b", b""]], object), np.array([[1.0, 2.0, 0.0]])
        >>> mask = np.array([[True, True, False]])
        >>> table(np.array([b"q"], object), ids, scores, mask)[0].to_pylist()
        [{'query_id': 'q', 'rank': 1, 'doc_id': 'b', 'score': 2.0},
         {'query_id': 'q', 'rank': 2, 'doc_id': 'a', 'score': 1.0}]
    """
    # The sort is stable: equal scores keep the order of the items.
    order = np.lexsort([-scores, ~mask])
    lists, places = np.nonzero(mask)
    best = lists, order[mask]
    columns = queries[lists], places + 1, doc_ids[best], scores[best]
    arrays = [pa.array(x, field.type) for x, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA), order


@contextlib.contextmanager
def open_writer(path: str, schema: pa.Schema = SCHEMA) -> Iterator[Callable[[pa.Table], None]]:
    """Provides a writer of tables to a file, which appears when it is complete.

    Args:
        path: Path or URL of the file: `.parquet`, `.csv` or `.jsonl`.
        schema: Columns of the tables.
    """
    waiting: list[pa.Table] = []
    rows = 0
    with _whole(path) as file, WRITERS[path.rpartition(".")[2]](file, schema) as writer:

        def write(ranked: pa.Table) -> None:
            nonlocal rows
            waiting.append(ranked)
            rows += len(ranked)
            if rows >= _ROWS:
                writer.write_table(pa.concat_tables(waiting))
                waiting.clear()
                rows = 0

        yield write
        writer.write_table(pa.concat_tables([schema.empty_table(), *waiting]))


@contextlib.contextmanager
def _whole(path: str) -> Iterator[IO[bytes]]:
    """Opens a file for atomic writing: renamed at the end on disk; stores show only whole files."""
    if stores.is_remote(path):
        with stores.open_file(path, "wb") as file:
            yield file
        return
    partial = Path(path).with_name(f".{uuid.uuid4().hex}")
    with open(partial, "wb") as file:
        yield file
    partial.rename(path)


@contextlib.contextmanager
def _json_lines(file: IO[bytes], schema: pa.Schema) -> Iterator[Any]:
    """Provides a writer of JSON lines, like those of pyarrow for Parquet and CSV."""

    def write_table(table: pa.Table) -> None:
        file.writelines(f"{json.dumps(row)}\n".encode() for row in table.to_pylist())

    yield types.SimpleNamespace(write_table=write_table)


WRITERS: dict[str, Callable[[IO[bytes], pa.Schema], Any]] = {
    "parquet": parquet.ParquetWriter,
    "jsonl": _json_lines,
    "csv": csv.CSVWriter,
}
