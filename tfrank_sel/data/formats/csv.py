"""Readers for CSV and TSV files with a header line and one item per line."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from tfrank_sel.data import lines
from tfrank_sel.data.formats.arrays import arrow
from tfrank_sel.data.formats.protocol import Part
from tfrank_sel.data.formats.tables import TEXT_SUFFIXES, TableReader
from tfrank_sel.data.formats.text import LineReader, opened
from tfrank_sel.data.formats.values import floats
from tfrank_sel.data.lists import Rejected

_BYTES = 1 << 20  # read at once
_BLANK = b"\xef\xbb\xbf\r\n"  # a byte order mark, and line ends


class DelimitedReader(LineReader, TableReader):
    """Reader of delimited text with a header line, plain or compressed.

    A file with a line end within a value is a single part. To find out, a file that is large enough
    for several parts is scanned.

    Attributes:
        delimiter: Separator of values.
    """

    delimiter: ClassVar[str]
    heading = 1

    def parts(self, path: str) -> Sequence[Part]:
        found = super().parts(path)
        return found if len(found) == 1 or self._is_by_line(path) else [Part(path)]

    def counts(self, line: bytes) -> bool:
        return bool(line.strip(b"\r\n"))

    def schema(self, path: str) -> Any:
        """Returns the schema; a column is numeric if most of its first values are numbers."""
        pa = arrow()
        names = self.names(path)
        with self._texts(Part(path), names, _skipped) as batches:
            first = next(iter(batches), None)
        kinds = [] if first is None else [_kind(first.column(i)) for i in range(len(names))]
        return pa.schema(list(zip(names, kinds or [pa.string()] * len(names), strict=True)))

    def names(self, path: str) -> Sequence[str]:
        with self._inferred(path) as batches:
            names: Sequence[str] = batches.schema.names
        return names

    def sample(self, path: str) -> Any:
        with self._inferred(path) as batches:
            first = next(iter(batches), None)
        return arrow().table(first) if first is not None else self.schema(path).empty_table()

    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        bad: list[Rejected] = []

        def refuse(row: Any) -> str:
            wanted = f"a row must have {row.expected_columns} values"
            reason = f"{wanted}. Received: {row.actual_columns}"
            number = part.start + row.number - 1  # without the header line
            bad.append(Rejected(part.path, "row", number, reason, row.text))
            return "skip"

        passed: list[int] = []
        first = part.start + 1
        with self._texts(part, names, refuse) as batches:
            for batch in batches:
                passed += [rejected.number for rejected in bad if rejected.number is not None]
                yield from bad
                bad.clear()
                numbers = np.arange(first, first + batch.num_rows)
                for number in passed:
                    numbers[numbers >= number] += 1
                yield numbers, batch
                first += batch.num_rows
        yield from bad

    @contextlib.contextmanager
    def _inferred(self, path: str) -> Iterator[Any]:
        """Opens a file with the types that pyarrow infers from its beginning."""
        from pyarrow import csv

        with opened(Part(path)) as stream:
            yield csv.open_csv(stream, parse_options=self._options(_skipped))

    @contextlib.contextmanager
    def _texts(
        self, part: Part, names: Sequence[str], refuse: Callable[[Any], str]
    ) -> Iterator[Any]:
        """Opens a part as bytes, so that an invalid number or text affects only its row."""
        from pyarrow import csv

        as_text = csv.ConvertOptions(
            column_types=dict.fromkeys(names, arrow().binary()),
            check_utf8=False,
            include_columns=list(names),
            null_values=[""],
            strings_can_be_null=True,
        )
        one_thread = csv.ReadOptions(use_threads=False, block_size=_BYTES)
        with opened(part, headed=True) as stream:
            yield csv.open_csv(stream, one_thread, self._options(refuse), as_text)

    def _options(self, refuse: Callable[[Any], str]) -> Any:
        from pyarrow import csv

        return csv.ParseOptions(
            delimiter=self.delimiter, invalid_row_handler=refuse, newlines_in_values=True
        )

    def _is_by_line(self, path: str) -> bool:
        """Whether each line of a file is a row, from the header to the end."""
        with lines.opened(path) as file:
            names = file.readline(_BYTES)
            chunks = iter(lambda: file.read(_BYTES) + file.readline(), b"")
            is_named = names.endswith(b"\n") and bool(names.strip(_BLANK))
            delimiter = self.delimiter.encode()
            return is_named and all(
                _are_rows(x, delimiter) for x in itertools.chain([names], chunks)
            )


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


def _are_rows(octets: bytes, delimiter: bytes) -> bool:
    """Whether no value of some lines continues in the next line, and no carriage return ends a row.

    This holds if each line has pairs of quotes, and the first of each pair follows the beginning of
    a value or another quote (a quote within a value is doubled).
    """
    if octets.count(b"\r") != octets.count(b"\r\n"):
        return False
    if b'"' not in octets:
        return True
    bytes_ = np.frombuffer(b"\n" + octets, np.uint8)
    quotes = np.flatnonzero(bytes_ == ord('"'))
    if len(quotes) % 2:
        return False
    line = np.searchsorted(np.flatnonzero(bytes_ == ord("\n")), quotes)
    are_pairs = line[::2] == line[1::2]
    are_first = np.isin(bytes_[quotes[::2] - 1], list(delimiter + b'"\n'))
    return bool(np.all(are_pairs & are_first))


def _kind(column: Any) -> Any:
    pa = arrow()
    if column.null_count == len(column):
        return pa.null()
    is_of_numbers = np.isfinite(floats(column, words=False)).mean() > 0.5
    return pa.float32() if is_of_numbers else pa.string()
