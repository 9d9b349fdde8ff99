"""Reader for JSON lines files with one item per line."""

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfrank_sel.data.formats import arrays
from tfrank_sel.data.formats.arrays import array, arrow
from tfrank_sel.data.formats.protocol import Part
from tfrank_sel.data.formats.tables import ROWS, TEXT_SUFFIXES, TableReader
from tfrank_sel.data.formats.text import LineReader, opened
from tfrank_sel.data.lists import Rejected
from tfrank_sel.features import Set, Vector

_SHOWN = 1000  # characters of a malformed line that are kept


class JsonlReader(LineReader, TableReader):
    """Reader of files with a JSON object in each line, plain or compressed.

    An absent or null field is a missing value.
    """

    name = "jsonl"
    suffixes = tuple(f".{kind}{more}" for kind in ("jsonl", "ndjson") for more in TEXT_SUFFIXES)

    def schema(self, path: str) -> Any:
        return self.sample(path).schema

    def sample(self, path: str) -> Any:
        numbers, lines = next(_chunks(Part(path)), (np.arange(0), []))
        try:
            return _parsed(lines, ())
        except arrow().ArrowInvalid:
            _, _, found = _objects(path, numbers, lines)
            names = dict.fromkeys(name for one in found for name in one)
            columns = {name: [one.get(name) for one in found] for name in names}
            return arrow().table({x: _mostly(column) for x, column in columns.items()})

    def tables(
        self, part: Part, names: Sequence[str]
    ) -> Iterator[tuple[np.ndarray, Any] | Rejected]:
        pa = arrow()
        # texts that pyarrow would convert to times, but which may be identifiers
        texts = set[str]()
        for numbers, lines in _chunks(part):
            try:
                table = _parsed(lines, texts)
                times = {x.name for x in table.schema if pa.types.is_timestamp(x.type)}
                if times & set(names):
                    texts |= times
                    table = _parsed(lines, texts)
                _check_exact(table, self.columns.texts)
            except pa.ArrowInvalid:  # a line is malformed, or a field has several types
                bad, numbers, found = _objects(part.path, numbers, lines)
                yield from bad
                table = self._table(found, names)
            nothing = pa.nulls(len(table))
            columns = {x: table[x] if x in table.schema.names else nothing for x in names}
            yield numbers, pa.table(columns)

    def _table(self, found: list[dict[str, Any]], names: Sequence[str]) -> Any:
        types = self.columns.types or {}
        lists = [x for x in names if isinstance(types.get(x), Set | Vector)]
        return arrow().table(
            {x: array([one.get(x) for one in found], may_be_lists=x in lists) for x in names}
        )


def _chunks(part: Part) -> Iterator[tuple[np.ndarray, list[bytes]]]:
    """The non-blank lines and their numbers, some at a time."""
    with opened(part) as file:
        each = enumerate(file, start=part.start + 1)
        filled = ((number, line) for number, line in each if not line.isspace())
        while chunk := list(itertools.islice(filled, ROWS)):
            yield np.array([number for number, _ in chunk]), [line for _, line in chunk]


def _parsed(lines: list[bytes], texts: Sequence[str] | set[str]) -> Any:
    """The objects of lines as a table; `ArrowInvalid` if their types differ."""
    from pyarrow import json as arrow_json

    pa = arrow()
    whole = b"".join(lines)
    try:
        whole.decode()
    except UnicodeError as error:
        raise pa.ArrowInvalid("a line is no UTF-8") from error
    # One block, because a column must have one type in all blocks.
    read = arrow_json.ReadOptions(use_threads=False, block_size=len(whole) + 1)
    schema = pa.schema([(name, pa.string()) for name in sorted(texts)])
    parse = arrow_json.ParseOptions(explicit_schema=schema)
    table = arrow_json.read_json(pa.BufferReader(whole), read, parse)
    if len(table) != len(lines):
        raise pa.ArrowInvalid("several objects in a line")
    return table


def _check_exact(table: Any, names: Sequence[str]) -> None:
    """Raises `ArrowInvalid` if integers of columns may have become other floats."""
    pa = arrow()
    for name in set(names) & set(table.schema.names):
        column = table[name]
        while arrays.is_list(column.type):
            column = pa.compute.list_flatten(column)
        is_float = pa.types.is_floating(column.type)
        if is_float and np.any(np.abs(np.asarray(column.fill_null(0.0))) >= arrays.EXACT):
            raise pa.ArrowInvalid(f"{name} has large integers")


def _objects(
    path: str, numbers: np.ndarray, lines: list[bytes]
) -> tuple[list[Rejected], np.ndarray, list[dict[str, Any]]]:
    """The lines without an object; the numbers and the objects of the others."""
    bad, kept, found = list[Rejected](), list[int](), list[dict[str, Any]]()
    for number, line in zip(numbers.tolist(), lines, strict=True):
        text = line.decode("utf-8", "replace").rstrip()[:_SHOWN]
        try:
            value = json.loads(line.decode("utf-8-sig"), object_pairs_hook=_fields)
            if not isinstance(value, dict):
                raise ValueError(f"expected an object. Received: {type(value).__name__}")
            if b"\\u" in line:  # half a surrogate pair has no encoding
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            reason = f"a row must be a JSON object. Received: {error}"
            bad.append(Rejected(path, "row", number, reason, text))
            continue
        kept.append(number)
        found.append(value)
    return bad, np.array(kept, np.int64), found


def _fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({x for x in names if names.count(x) > 1})
        raise ValueError(f"each field must occur once. Received twice: {twice}")
    return fields


def _mostly(column: list[Any]) -> Any:
    """Values as an Arrow array, numeric if most of them are numbers."""
    is_number = [isinstance(x, int | float) and not isinstance(x, bool) for x in column]
    if 2 * sum(is_number) <= sum(x is not None for x in column):
        return array(column)
    return array([x if fits else None for x, fits in zip(column, is_number, strict=True)])
