"""Parquet files, each row an item."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats.protocol import Part
from tfrank_sel.data.formats.tables import TableReader, readable

_ROWS = 8192  # read at once


class ParquetReader(TableReader):
    """Reads Parquet files; the units of a part are row groups."""

    name = "parquet"
    suffixes = (".parquet",)

    def schema(self, path: str) -> Any:
        from pyarrow import parquet

        return parquet.read_schema(path)

    def parts(self, path: str) -> Sequence[Part]:
        from pyarrow import parquet

        with readable(path):
            groups = parquet.read_metadata(path).num_row_groups
        return [Part(path, group, group + 1) for group in range(groups)]

    def tables(self, part: Part, names: Sequence[str]) -> Iterator[tuple[np.ndarray, Any]]:
        from pyarrow import parquet

        # Buffered ahead, what has been read would be kept.
        with parquet.ParquetFile(part.path, pre_buffer=False) as file:
            groups = range(file.num_row_groups)
            first = 1 + sum(file.metadata.row_group(i).num_rows for i in groups[: part.start])
            groups = groups[part.start : part.stop]
            for batch in file.iter_batches(_ROWS, groups, names, use_threads=False):
                yield np.arange(first, first + batch.num_rows), batch
                first += batch.num_rows
