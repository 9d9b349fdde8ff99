"""Readers for text files with one item per line: CSV and TSV, JSON lines, LETOR."""

import collections
import contextlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from tfrank_sel.data import arrays, arrow_types, letor, lines
from tfrank_sel.data.arrays import array, floats
from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.formats.reader import LineReader, Part, open_part
from tfrank_sel.data.formats.tables import ROWS, TEXT_SUFFIXES, Row, TableReader
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.schema import Schema
from tfrank_sel.data.table import parse_numbers, readable
from tfrank_sel.errors import received, refusal
from tfrank_sel.features import REFUSE, Set, Vector

# Number of bytes that are read at once.
_BYTES = 1 << 20
_BLANK = b"\xef\xbb\xbf\r\n"  # a byte order mark, and line ends
_SHOWN = 1000  # characters of a malformed line that are kept
_DEEPEST = 64  # arrays and objects within each other: deeper ones end pyarrow's reader
_LONGEST_TOKEN = 8  # characters of a number, a word or an escape of which a part is there
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*("|\\?\Z)', re.DOTALL)  # which may have no end


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
        parts = super().parts(path)
        return parts if len(parts) == 1 or self._is_by_line(path) else [Part(path)]

    def counts(self, line: bytes) -> bool:
        return bool(line.strip(b"\r\n"))

    def schema(self, path: str) -> Any:
        """Returns the schema; a column is numeric if most of its first values are numbers."""
        pa = arrow()
        names, kinds = self.names(path), []
        first_bad: Rejected | None = None
        for unit in self.tables(Part(path), names):
            if isinstance(unit, Rejected):
                first_bad = first_bad or unit
            elif unit[1].num_rows:
                kinds = [_kind(unit[1].column(i)) for i in range(len(names))]
                break
        if first_bad and not kinds:
            raise first_bad.error()
        return pa.schema(list(zip(names, kinds or [pa.string()] * len(names), strict=True)))

    def names(self, path: str) -> Sequence[str]:
        with self._open_inferred(path) as batches:
            names: Sequence[str] = batches.schema.names
        return names

    def sample(self, path: str) -> Any:
        with self._open_inferred(path) as batches:
            first = next(iter(batches), None)
        if first is None:
            return self.schema(path).empty_table()
        with self._texts(Part(path), first.schema.names, _skip_row) as batches:
            texts = next(iter(batches))
        count = min(len(first), len(texts))
        columns = [x.slice(0, count) for x in first.columns]
        for i, column in enumerate(columns):
            if arrow_types.is_number(column.type):  # which may be a name, such as 007
                columns[i] = parse_numbers(arrays.plain(texts.column(i).slice(0, count)))
        return arrow().table(columns, names=first.schema.names)

    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        bad: list[Rejected] = []

        def refuse(row: Any) -> str:
            reason = received(f"a row must have {row.expected_columns} values", row.actual_columns)
            # The header line is no row.
            number = part.start + row.number - 1
            bad.append(Rejected(part.path, "row", number, reason, row.text))
            return "skip"

        refused = np.array([], np.int64)  # numbers of rows from `first` on
        first = part.start + 1
        with self._texts(part, names, refuse) as batches:
            for batch in batches:
                new = np.array([rejected.number for rejected in bad], np.int64)
                refused = np.append(refused, new)
                yield from bad
                bad.clear()
                # pyarrow hands out the rows behind a refused one as if it had not been there.
                numbers = np.arange(first, first + batch.num_rows + len(refused))
                numbers = numbers[~np.isin(numbers, refused)][: batch.num_rows]
                yield numbers, batch
                first = int(numbers.max(initial=first - 1)) + 1
                refused = refused[refused >= first]
        yield from bad

    @contextlib.contextmanager
    def _open_inferred(self, path: str) -> Iterator[Any]:
        """Opens a file with the types that pyarrow infers from its beginning."""
        from pyarrow import csv

        with open_part(Part(path)) as stream:
            yield csv.open_csv(stream, parse_options=self._options(_skip_row))

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
        # With several threads, pyarrow does not know the number of a refused row.
        one_thread = csv.ReadOptions(use_threads=False, block_size=_BYTES)
        with open_part(part, headed=True) as stream:
            yield csv.open_csv(stream, one_thread, self._options(refuse), as_text)

    def _options(self, refuse: Callable[[Any], str]) -> Any:
        from pyarrow import csv

        # Without `newlines_in_values`, a line end in quotes fails where a block of pyarrow ends.
        return csv.ParseOptions(
            delimiter=self.delimiter, invalid_row_handler=refuse, newlines_in_values=True
        )

    def _is_by_line(self, path: str) -> bool:
        """Whether each line of a file is a row, from the header to the end."""
        with lines.open_lines(path) as file:
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


def _skip_row(row: Any) -> str:
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
    values = floats(column, words=False)
    is_of_numbers = np.isfinite(values).sum() > 0.5 * (~np.isnan(values)).sum()
    return pa.float32() if is_of_numbers else pa.string()


class JsonlReader(LineReader, TableReader):
    """Reader of files with a JSON object in each line, plain or compressed.

    An absent or null field is a missing value.
    """

    is_open = True
    name = "jsonl"
    suffixes = tuple(f".{kind}{more}" for kind in ("jsonl", "ndjson") for more in TEXT_SUFFIXES)

    def schema(self, path: str) -> Any:
        return self.sample(path).schema

    def sample(self, path: str) -> Any:
        numbers, rows = next(_chunks(Part(path)), (np.arange(0), []))
        try:
            table = _parse_objects(rows, ())
            _check_exact(table, table.schema.names)
            return table
        except arrow().ArrowInvalid:
            bad, _, objects = _objects(path, numbers, rows)
            if bad and not objects:
                raise bad[0].error() from None
            names = dict.fromkeys(name for record in objects for name in record)
            columns = {name: [record.get(name) for record in objects] for name in names}
            return arrow().table({x: _mostly(column) for x, column in columns.items()})

    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        pa = arrow()
        # texts that pyarrow would convert to times, but which may be identifiers
        texts = set[str]()
        for numbers, rows in _chunks(part):
            try:
                table = _parse_objects(rows, texts)
                times = {x.name for x in table.schema if pa.types.is_timestamp(x.type)}
                if times & set(names):
                    texts |= times
                    table = _parse_objects(rows, texts)
                _check_exact(table, self.columns.texts)
            except pa.ArrowInvalid:  # a line is malformed, or a field has several types
                bad, numbers, objects = _objects(part.path, numbers, rows)
                yield from bad
                table = self._table(objects, names)
            nothing = pa.nulls(len(table))
            columns = {x: table[x] if x in table.schema.names else nothing for x in names}
            yield numbers, pa.table(columns)

    def dicts(self, part: Part, names: Sequence[str]) -> Iterator[Row | Rejected]:
        with readable(part.path):
            for numbers, rows in _chunks(part):
                bad, kept, objects = _objects(part.path, numbers, rows)
                yield from bad
                each = zip(kept.tolist(), objects, strict=True)
                yield from ((part.path, number, x) for number, x in each)

    def _table(self, objects: list[dict[str, Any]], names: Sequence[str]) -> Any:
        types = self.columns.types
        lists = [x for x in names if isinstance(types.get(x), Set | Vector)]
        return arrow().table(
            {x: array([row.get(x) for row in objects], may_be_lists=x in lists) for x in names}
        )


def _chunks(part: Part) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    """The non-blank rows and their numbers, some at a time."""
    with open_part(part) as file:
        numbers, rows, size = list[int](), list[bytes](), 0
        for number, line in enumerate(lines.bounded_lines(part.path, file), start=part.start + 1):
            if line.isspace():
                continue
            if len(rows) == ROWS or size + len(line) > lines.PART:
                yield np.array(numbers), rows
                numbers, rows, size = [], [], 0
            numbers.append(number)
            rows.append(line)
            size += len(line)
        if rows:
            yield np.array(numbers), rows


def _parse_objects(rows: list[bytes], texts: Sequence[str] | set[str]) -> Any:
    """The objects of rows as a table; `ArrowInvalid` if their types differ."""
    from pyarrow import json as arrow_json

    pa = arrow()
    whole = b"".join(rows)
    try:
        whole.decode()
        for line in rows:
            _check_depth(line)
    except ValueError as error:
        raise pa.ArrowInvalid("a line is no UTF-8, or deep") from error
    # One block, because a column must have one type in all blocks.
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(whole) + 1)
    schema = pa.schema([(name, pa.string()) for name in sorted(texts)])
    parse = arrow_json.ParseOptions(explicit_schema=schema)
    table = arrow_json.read_json(pa.BufferReader(whole), read, parse)
    if len(table) != len(rows):
        raise pa.ArrowInvalid("several objects in a line")
    return table


def _check_exact(table: Any, names: Sequence[str]) -> None:
    """Raises `ArrowInvalid` if integers of columns may have become other floats."""
    pa = arrow()
    for name in set(names) & set(table.schema.names):
        column = table[name]
        while arrow_types.is_list(column.type):
            column = pa.compute.list_flatten(column)
        is_float = pa.types.is_floating(column.type)
        if is_float and np.any(np.abs(np.asarray(column.fill_null(0.0))) >= arrays.EXACT):
            raise pa.ArrowInvalid(f"{name} has large integers")


def _objects(
    path: str, numbers: np.ndarray, rows: list[bytes]
) -> tuple[list[Rejected], np.ndarray, list[dict[str, Any]]]:
    """The rows without an object; the numbers and the objects of the others."""
    bad, kept, objects = list[Rejected](), list[int](), list[dict[str, Any]]()
    for number, line in zip(numbers.tolist(), rows, strict=True):
        text = line.decode("utf-8", "replace").rstrip()[:_SHOWN]
        try:
            _check_depth(line)
            value = json.loads(line.decode("utf-8-sig"), object_pairs_hook=fields)
            if not isinstance(value, dict):
                raise refusal("expected an object", type(value).__name__)
            if b"\\u" in line:  # half a surrogate pair has no encoding
                json.dumps(value, ensure_ascii=False).encode()
        except ValueError as error:
            reason = received("a row must be a JSON object", error)
            bad.append(Rejected(path, "row", number, reason, text, _is_torn(line, error)))
            continue
        kept.append(number)
        objects.append(value)
    return bad, np.array(kept, np.int64), objects


def _is_torn(line: bytes, error: ValueError) -> bool:
    """Whether the last line of a file ends within its object, and has no fault before."""
    bare = _TEXT.sub(b"", line)
    if line.endswith(b"\n") or bare.count(b"{") <= bare.count(b"}"):
        return False
    if isinstance(error, json.JSONDecodeError):
        is_text = error.msg.startswith("Unterminated string")
        return is_text or error.pos >= len(error.doc) - _LONGEST_TOKEN
    return isinstance(error, UnicodeDecodeError) and error.end >= len(line)


def _check_depth(line: bytes) -> None:
    """Raises an error at arrays and objects within each other that are too deep to read."""
    if line.count(b"[") + line.count(b"{") <= _DEEPEST:
        return
    octets = np.frombuffer(_TEXT.sub(b"", line), np.uint8)
    opens, closes = (np.isin(octets, list(x)).astype(np.int8) for x in (b"[{", b"]}"))
    depth = np.cumsum(opens - closes, dtype=np.int64).max(initial=0)
    if depth > _DEEPEST:
        raise refusal(f"expected at most {_DEEPEST} arrays and objects within each other", depth)


def fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the fields of a JSON object, each of which must occur once."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = collections.Counter(name for name, _ in pairs)
        twice = sorted(name for name, count in counts.items() if count > 1)
        raise ValueError(f"each field must occur once. Received twice: {twice}")
    return values


def _mostly(column: list[Any]) -> Any:
    """Values as an Arrow array, numeric if most of them are numbers."""
    is_number = [isinstance(x, int | float) and not isinstance(x, bool) for x in column]
    if 2 * sum(is_number) <= sum(x is not None for x in column):
        return array(column)
    return array([x if fits else None for x, fits in zip(column, is_number, strict=True)])


class LetorReader(LineReader):
    """Reader of LETOR and SVMLight files, plain or `.gz`.

    A list across the border of two parts is read as a whole, in one of them.
    """

    name = "letor"
    is_distinct = True
    suffixes = tuple(
        f".{kind}{more}"
        for kind in ("txt", "letor", "svm", "svmlight", "libsvm", "dat")
        for more in ("", ".gz")
    )

    def infer(self, paths: Sequence[str]) -> Schema:
        """Returns the schema, with the number of features from `columns` or from all files."""
        size = self.columns.num_features or max(letor.num_features(path) for path in paths)
        packed = Vector(size=size, missing=REFUSE, within_list=True)
        return Schema({"features": packed}, columns=self.columns)

    def lists(self, part: Part, schema: Schema) -> Iterator[Lists | Rejected]:
        yield from letor.scan(part.path, len(schema.names), part.start, part.stop)
