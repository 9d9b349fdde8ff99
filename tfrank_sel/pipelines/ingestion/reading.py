"""From parts of files to records: what one process or each worker of Beam does."""

import array
import collections
import dataclasses
import itertools
import json
import pickle
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tfrank_sel import data
from tfrank_sel.data import stores
from tfrank_sel.data.formats import Part, Reader, RowReader, Schema
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.data.table import Table
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.ingestion import ingest_counts, shards, stored_lists

ITEMS = 8192  # in lists that are stored at once
HELD = 1 << 26  # bytes of rows that are grouped in memory
_PIECES = 64  # of the queries, if there are more
# Estimated number of bytes of a text in memory.
_STRING = 80

Numbered = tuple[int, int, str | None, Part]  # number of a source and of a part, split, and part
# split of lists, number of their source, and number of the first in it; None if rows were grouped,
# so that each query occurs once
Listed = tuple[str | None, ingest_counts.Place | None, Lists]


def batch_lists(units: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """Joins the lists that are `"found"` to batches of so many items; passes other units on."""
    batch, items = list[Listed](), 0
    for name, value in units:
        if name != "found":
            yield name, value
            continue
        batch.append(value)
        items += int(value[2].sizes.sum())
        if items >= ITEMS:
            yield "found", batch
            batch, items = [], 0
    if batch:
        yield "found", batch


@dataclasses.dataclass(frozen=True)
class PartReader:
    """Reads parts of files.

    Args:
        reader: The reader of the files.
        layout: Schema of the lists.
        adjacent: Whether the rows of a query are adjacent.
    """

    reader: Reader
    layout: Schema
    adjacent: bool

    @property
    def is_grouped(self) -> bool:
        """Whether rows must be grouped by query."""
        return isinstance(self.reader, RowReader) and not self.adjacent

    def lists(self, numbered: Numbered) -> Iterator[tuple[str, Any]]:
        """Yields lists as `"found"`, `"bad"` units, and the count of `"lists"`."""
        index, part_number, split, part = numbered
        number = 0
        for unit in _until_unreadable(self.reader.lists(part, self.layout)):
            if isinstance(unit, Rejected):
                yield "bad", unit
                continue
            origin = index, part_number * ingest_counts.LISTS + number + 1
            number += len(unit)
            yield "found", (split, origin, unit)
        yield "lists", (index, part_number, number)

    def rows(self, numbered: Numbered) -> Iterator[tuple[str, Any]]:
        """Yields a split and some of its rows at a time as `"found"`, and `"bad"` units."""
        _, _, split, part = numbered
        assert isinstance(self.reader, RowReader)
        for unit in _until_unreadable(self.reader.rows(part, self.layout)):
            yield ("bad", unit) if isinstance(unit, Rejected) else ("found", (split, unit))


def _until_unreadable(read: Iterator[Any]) -> Iterator[Any]:
    """Yields the units that are read, and a rejected unit if the file cannot be read further."""
    try:
        yield from read
    except data.InputError as error:
        yield Rejected(error.place, "file", None, error.reason)


class Store:
    """Makes records of lists, and counts them.

    Args:
        spec: Names of the parts and number of features.
        shares: The share of queries of each split, for lists without one.
    """

    def __init__(self, spec: data.FeatureSpec, shares: Mapping[str, float]) -> None:
        self.spec, self.shares = spec, dict(shares)
        self.counts = collections.defaultdict[str, ingest_counts.Counts](ingest_counts.Counts)
        self.queries = collections.defaultdict[str, "array.array[int]"](lambda: array.array("Q"))

    def records(self, lists: Sequence[Listed]) -> Iterator[tuple[str, shards.Key, bytes]]:
        """Yields split, key and record of each list with an item."""
        by_split = collections.defaultdict[str, list[data.ItemList]](list)
        for named_split, origin, found in lists:
            for number, one in enumerate(found):
                query = ingest_counts.hash_of(one.query_id)
                split = named_split or ingest_counts.split_of(query, self.shares)
                by_split[split].append(one)
                source, first = origin or (0, -number)
                self.queries[split].extend((query, source, first + number))
                if len(one.labels):
                    key = (*divmod(first + number, ingest_counts.LISTS), query)
                    context = {name: values[number] for name, values in found.context.items()}
                    yield split, key, stored_lists.serialize(one, context, self.spec)
        for split, of_split in by_split.items():
            self.counts[split] += ingest_counts.Counts.of(of_split)

    def places(self) -> Iterator[tuple[int, tuple[str, np.ndarray]]]:
        """Yields places of queries by split, for `ingest_counts.Repeated`, and by their part."""
        for split, queries in self.queries.items():
            places = np.array(queries, np.uint64).reshape(-1, 3)
            parts = places[:, 0] % ingest_counts.PARTS
            for part in np.unique(parts).tolist():
                yield part, (split, places[parts == part])


def group_units(
    units: Iterable[tuple[str, Any]], schema: Schema, folder: str
) -> Iterator[tuple[str, Any]]:
    """Groups rows of any order by split and query; on disk if they are many.

    Args:
        units: Splits and rows as `"found"`, and others, which are passed on.
        schema: Schema of the lists.
        folder: A temporary folder on this machine.

    Yields:
        All lists, as `PartReader.lists`, and the other units.
    """
    held, size = list[tuple[str | None, Table]](), 0
    for name, value in units:
        if name != "found":
            yield name, value
            continue
        held.append(value)
        table = value[1]
        texts = 0 if table.texts is None else table.texts.size
        size += table.features.nbytes + _STRING * (texts + 2 * len(table))
        if size >= HELD:
            _put_off(held, Path(folder))
            held, size = [], 0
    files = sorted(Path(folder).iterdir())
    if files and held:
        _put_off(held, Path(folder))
    for of_piece in map(_unpickle, sorted(Path(folder).iterdir())) if files else [held]:
        by_split = collections.defaultdict[str | None, list[Table]](list)
        for split, table in of_piece:
            by_split[split].append(table)
        for split, of_split in by_split.items():
            for lists in Lists.group(of_split, schema).pieces(ITEMS):
                yield "found", (split, None, lists)


def _put_off(held: Iterable[tuple[str | None, Table]], folder: Path) -> None:
    """Writes rows to a file for each piece of the queries."""
    for split, table in held:
        queries = (zlib.crc32(query.encode()) for query in table["query"].tolist())
        pieces = np.fromiter(queries, np.int64, len(table)) % _PIECES
        for piece in np.unique(pieces).tolist():
            with (folder / f"{piece:03d}").open("ab") as file:
                pickle.dump((split, table.take(np.flatnonzero(pieces == piece))), file)


def _unpickle(path: Path) -> Iterator[tuple[str | None, Table]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        while file.tell() < size:
            yield pickle.load(file)


def ingest(
    reading: PartReader,
    parts: Iterable[Numbered],
    store: Store,
    target: tuple[str, str, int],
) -> Callable[[str], Iterator[Any]]:
    """Reads parts of files and writes records, in this process.

    Args:
        reading: Reads a part.
        parts: The parts.
        store: Makes records of lists.
        target: Folder of the shards and a temporary folder, as paths or URLs; and size of a shard.

    Returns:
        What is told of the parts by name, as JSON-ready values: `bad` units, `lists` of each part,
        the `census` of each split, and `repeated` queries.
    """
    folder, scratch, size = target
    files, done, counted = shards.Files(scratch, size), list[tuple[str, shards.File]](), list[Any]()
    letters, here = stores.join(scratch, "bad"), None if stores.is_remote(scratch) else scratch
    read = reading.rows if reading.is_grouped else reading.lists
    units = itertools.chain.from_iterable(map(read, parts))
    with stores.open_file(letters, "wb") as bad, tempfile.TemporaryDirectory(dir=here) as pieces:
        grouped = group_units(units, reading.layout, pieces) if reading.is_grouped else units
        for name, value in batch_lists(grouped):
            if name == "bad":
                bad.write(json.dumps(vars(value)).encode() + b"\n")
            elif name == "lists":
                counted.append(value)
            else:
                for record in store.records(value):
                    done += files.write(*record)
    done += files.close()
    by_split = collections.defaultdict[str, list[shards.File]](list)
    for split, file in done:
        by_split[split].append(file)
    for of_split in by_split.items():
        for shard in shards.plan(of_split, folder, size):
            shards.join(shard)
    queries = collections.defaultdict[int, list[Any]](list)
    for part, places in store.places():
        queries[part].append(places)
    results = {
        "lists": counted,
        "census": [{split: vars(counts)} for split, counts in store.counts.items()],
        "repeated": [runners.total(ingest_counts.Repeated(), x) for x in queries.values()],
    }
    return lambda name: _lines(letters) if name == "bad" else iter(results[name])


def _lines(path: str) -> Iterator[Any]:
    with stores.open_file(path) as file:
        yield from map(json.loads, file)
