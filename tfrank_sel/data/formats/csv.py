"""CSV and TSV files with a line of names, each other line an item."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from tfrank_sel.data.formats.protocol import Part
from tfrank_sel.data.formats.tables import TEXT_SUFFIXES, TableReader
from tfrank_sel.data.formats.values import arrow, floats
from tfrank_sel.data.lists import Rejected

_BYTES = 1 << 20  # read at once


class DelimitedReader(TableReader):
    """Reads text with a line of names, plain or compressed; the file is the only part.

    Attributes:
        delimiter: What stands between values.
    """

    delimiter: ClassVar[str]

    def schema(self, path: str) -> Any:
        """Returns the names of the columns; one holds numbers if most of its first values do."""

        pa = arrow()
        names = self._inferred(path).schema.names
        first = next(iter(self._texts(path, names, _skipped)), None)
        numbers = [] if first is None else [x for x in names if _is_of_numbers(first[x])]
        return pa.schema([(x, pa.float32() if x in numbers else pa.string()) for x in names])

    def sample(self, path: str) -> Any:
        first = next(iter(self._inferred(path)), None)
        return arrow().table(first) if first is not None else self.schema(path).empty_table()

    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        bad: list[Rejected] = []

        def refuse(row: Any) -> str:
            wanted = f"a row must have {row.expected_columns} values"
            reason = f"{wanted}. Received: {row.actual_columns}"
            number = row.number - 1  # less the line of names
            bad.append(Rejected(part.path, "row", number, reason, row.text))
            return "skip"

        passed: list[int] = []
        first = 1
        for batch in self._texts(part.path, names, refuse):
            passed += [rejected.number for rejected in bad if rejected.number is not None]
            yield from bad
            bad.clear()
            numbers = np.arange(first, first + batch.num_rows)
            for number in passed:
                numbers[numbers >= number] += 1
            yield numbers, batch
            first += batch.num_rows
        yield from bad

    def _inferred(self, path: str) -> Any:
        """Opens a file in the types that pyarrow finds in its beginning."""
        from pyarrow import csv

        return csv.open_csv(path, parse_options=self._options(_skipped))

    def _texts(self, path: str, names: Sequence[str], refuse: Callable[[Any], str]) -> Any:
        """Opens a file as text, so that one value that is no number spoils its row alone."""
        from pyarrow import csv

        as_text = csv.ConvertOptions(
            column_types=dict.fromkeys(names, arrow().string()),
            include_columns=list(names),
            null_values=[""],
            strings_can_be_null=True,
        )
        one_thread = csv.ReadOptions(use_threads=False, block_size=_BYTES)
        return csv.open_csv(path, one_thread, self._options(refuse), as_text)

    def _options(self, refuse: Callable[[Any], str]) -> Any:
        from pyarrow import csv

        return csv.ParseOptions(delimiter=self.delimiter, invalid_row_handler=refuse)


class CsvReader(DelimitedReader):
    """Reads CSV files, with commas between values."""

    name = "csv"
    suffixes = tuple(f".csv{more}" for more in TEXT_SUFFIXES)
    delimiter = ","


class TsvReader(DelimitedReader):
    """Reads TSV files, with tabs between values."""

    name = "tsv"
    suffixes = tuple(f".tsv{more}" for more in TEXT_SUFFIXES)
    delimiter = "\t"


def _skipped(row: Any) -> str:
    return "skip"


def _is_of_numbers(column: Any) -> bool:
    return len(column) > 0 and bool(np.isfinite(floats(column)).mean() > 0.5)
