"""Ingest on Beam; what workers do stands in `reading` and `shards`.

Only what runs on Beam imports this module.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows

from tfrank_sel.data import stores
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.table import Table
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.ingestion import ingest_counts, shards
from tfrank_sel.pipelines.ingestion.reading import (
    Listed,
    Numbered,
    PartReader,
    Store,
    batch_lists,
)
from tfrank_sel.pipelines.runners import beams


def write(records: beam.PCollection, folder: str, scratch: str, size: int) -> None:
    """Writes `(split, key, record)` to shards, `SPLIT-00000-of-00003.tfrecord` and so on.

    Each bundle writes its own files, and emits them when it ends, so files of failed or repeated
    bundles are ignored.

    Args:
        records: The records.
        folder: Folder of the shards, as path or URL.
        scratch: Folder of the files of bundles. The creator of the folders must remove this one.
        size: Target size of a shard in bytes, as in `shards.Files` and `shards.plan`.
    """
    (
        records
        | "Write files" >> beam.ParDo(WriteFiles(scratch, size))
        | "Files of a split" >> beam.GroupByKey()
        | "Plan shards" >> beam.FlatMap(shards.plan, folder, size)
        | "Shards apart" >> beam.Reshuffle()
        | "Make shards" >> beam.Map(shards.join)
    )


class WriteFiles(beam.DoFn):
    """Writes the records of a bundle, as `shards.Files`."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder, self.size = folder, size

    def start_bundle(self) -> None:
        self.files = shards.Files(self.folder, self.size)

    def process(self, element: tuple[str, shards.Key, bytes]) -> Iterator[Any]:
        yield from self.files.write(*element)

    def finish_bundle(self) -> Iterator[Any]:
        yield from map(GlobalWindows.windowed_value, self.files.close())


class _Store(beam.DoFn):
    """Makes records of the lists of a bundle, as `Store`, and tells of them at its end."""

    def __init__(self, create: Callable[[], Store]) -> None:
        self.create = create

    def start_bundle(self) -> None:
        self.store = self.create()

    def process(self, element: Sequence[Any]) -> Iterator[Any]:
        yield from self.store.records(element)

    def finish_bundle(self) -> Iterator[Any]:
        for counted in self.store.counts.items():
            yield TaggedOutput("census", GlobalWindows.windowed_value(counted))
        for places in self.store.places():
            yield TaggedOutput("queries", GlobalWindows.windowed_value(places))


def ingest(
    reading: PartReader,
    parts: Iterable[Numbered],
    create: Callable[[], Store],
    target: tuple[str, str, int],
    options: PipelineOptions,
) -> Callable[[str], Iterator[Any]]:
    """Reads parts of files and writes records, as `reading.ingest`; `create` makes a store."""
    notes = stores.join(target[1], "notes")
    with beams.pipeline(options) as pipeline:
        apart = pipeline | beam.Create(list(parts)) | beam.Reshuffle()
        read_part = beam.FlatMap(_rows if reading.is_grouped else _lists, reading)
        read = apart | read_part.with_outputs("bad", "lists", main="found")
        lists = read.found
        if reading.is_grouped:
            lists = lists | beam.GroupByKey() | "Join" >> beam.Map(_join_rows, reading)
        done = lists | beam.ParDo(_Store(create)).with_outputs("census", "queries", main="records")
        write(done.records, *target)
        repeated = beam.CombinePerKey(beams.Combine(ingest_counts.Repeated()))
        results = {
            "bad": read.bad | beam.Map(dataclasses.asdict),
            "lists": read.lists,
            "census": done.census
            | "Count" >> beam.CombinePerKey(beams.Combine(runners.Combiner()))
            | beam.MapTuple(lambda split, counted: {split: vars(counted)}),
            "repeated": done.queries | repeated | beam.Values(),
        }
        named = [
            values | f"Name {name}" >> beam.Map(lambda value, name: (name, value), name)
            for name, values in results.items()
        ]
        beams.gather(named | beam.Flatten(), notes)
    return lambda name: (value for x, value in beams.read_gathered(notes) if x == name)


def _lists(numbered: Numbered, reading: PartReader) -> Iterator[Any]:
    """As `PartReader.lists`, some at a time."""
    for name, value in batch_lists(reading.lists(numbered)):
        yield value if name == "found" else TaggedOutput(name, value)


def _rows(numbered: Numbered, reading: PartReader) -> Iterator[Any]:
    """As `PartReader.rows`, by split and query, with the numbers of source and part."""
    for name, value in reading.rows(numbered):
        if name == "found":
            split, table = value
            for query, of_query in Lists.group([table]).tables():
                yield (split or "", query), (numbered[:2], *_compact(of_query))
        else:
            yield TaggedOutput(name, value)


def _join_rows(
    grouped: tuple[tuple[str, str], Iterable[tuple[Any, ...]]], reading: PartReader
) -> list[Listed]:
    (split, query), parts = grouped
    in_order = sorted(parts, key=lambda part: (part[0], np.frombuffer(part[1], np.int64)[0]))
    tables = [_expand(query, part[1:], reading.layout) for part in in_order]
    return [(split or None, None, Lists.group(tables, reading.layout))]


def _compact(table: Table) -> tuple[Any, ...]:
    """Returns rows of one query as a few bytes and strings, which Beam encodes compactly."""
    context = tuple(values[:1].tolist()[0] for values in table.context.values())
    numbers, features = table.place[1].astype(np.int64), np.ascontiguousarray(table.features)
    arrays = (numbers, table["label"], features)
    ids = tuple(table["item"]) if any(table["item"]) else None
    texts = None if table.texts is None else tuple(table.texts.ravel().tolist())
    weights = table["weight"].tobytes() if "weight" in table.roles else None
    return (*(values.tobytes() for values in arrays), ids, context, texts, weights)


def _expand(query: str, parts: tuple[Any, ...], layout: Schema) -> Table:
    """Returns the rows of a query from the result of `_compact`."""
    numbers, labels, features, ids, context, texts, weights = parts
    label = np.frombuffer(labels, np.float32)
    rows = len(label)
    roles = {
        "query": np.full(rows, query, np.object_),
        "item": np.array(ids or [""] * rows, np.object_),
        "label": label,
    }
    if weights is not None:
        roles["weight"] = np.frombuffer(weights, np.float32)
    matrix = np.frombuffer(features, np.float32).reshape(rows, len(layout.names))
    if texts is not None:
        texts = np.array(texts, np.object_).reshape(rows, len(layout.texts))
    values = zip(layout.context, context, strict=True)
    of_query = {name: np.full(rows, value, np.object_) for name, value in values}
    return Table(("", np.frombuffer(numbers, np.int64)), roles, matrix, texts, of_query)
