"""Ingest: conversion of files of lists to TFRecord shards of the packed layout, by split."""

import array
import collections
import dataclasses
import functools
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindows

from tfrank_sel import data
from tfrank_sel.data import stores
from tfrank_sel.data.formats import Part, Reader, RowReader, Schema, rows
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import Found, Rejected
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.configuration.data import Beam
from tfrank_sel.pipelines.files import artefacts, folders
from tfrank_sel.pipelines.ingestion import census, findings, shards, stored
from tfrank_sel.pipelines.ingestion.inputs import Inputs


@dataclasses.dataclass(frozen=True)
class Ingested:
    """The result of ingest.

    Args:
        shards: TFRecord files of each split.
        report: Summary of the input, as in `ingest.json`.
    """

    shards: dict[str, list[str]]
    report: dict[str, Any]


def ingest(
    inputs: Inputs,
    layout: Schema,
    folder: Path,
    *,
    records: str | None = None,
    options: PipelineOptions | None = None,
    shard_bytes: int = Beam().shard_bytes,
) -> Ingested:
    """Writes the lists of files as TFRecord shards of the packed layout.

    The files are streamed: only a few lists are held in memory, unless rows must be grouped by
    query. If files have no split, a query gets its split by a hash of its identifier: it is the
    same in every run, for any other queries and any order.

    Args:
        inputs: Input files.
        layout: Schema of the lists.
        folder: Folder to write to: `ingest.json` with the summary, and `dead_letters.jsonl` with
            rejected units, if any.
        records: Folder or URL for the shards, `SPLIT-*`, which all workers can write to; by default
            `records` in the folder. Earlier contents are removed.
        options: Options of the Beam pipeline.
        shard_bytes: Target size of a shard, as in `shards.Write`.

    Returns:
        The shards of each split, and the report.

    Raises:
        tfrank_sel.data.InputError: If there are more malformed units than allowed: the message has
            the first 10 with file and line, and their number. If a file cannot be read, or a split
            has no list.
    """
    records = records or str(folder / "records")
    if not stores.is_remote(records):
        os.makedirs(records, exist_ok=True)
    for path in stores.find(records):  # left by an earlier call, which may have written more shards
        stores.remove(path)
    reader = inputs.reader
    parts = {source.path: reader.parts(source.path) for source in inputs.sources}
    with stores.scratch(records if stores.is_remote(records) else folder) as scratch:
        with runners.pipeline(options) as pipeline:
            write = shards.Write(records, scratch, shard_bytes)
            _build(pipeline, inputs, layout, parts, write, stores.join(scratch, "notes"))
        told = _Notes(stores.join(scratch, "notes"))
        bad = reader.numbered((Rejected(**x) for x in told("bad")), parts)
        rejected = findings.keep_dead_letters(
            bad, folder / "dead_letters.jsonl", inputs.allow_bad_lines
        )
        repeated = list(told("repeated"))
        places = findings.Places(inputs.sources, told("lists"))
        if reader.is_distinct:
            findings.check_distinct(repeated, places, inputs.allow_bad_lines)
        report: dict[str, Any] = {
            "files": [f"{source.path} ({reader.name})" for source in inputs.sources],
            "features": layout.names,
            "context": list(layout.context),
            "rejected": rejected,
            "splits": dict(collections.ChainMap(*told("census"))),
            "duplicate_queries": findings.duplicates(repeated, places),
            "shared_queries": findings.shared(repeated),
        }
    for split in inputs.splits:
        if not report["splits"].get(split, {}).get("lists"):
            reason = f"expected lists for the split {split!r}. Received: none"
            raise data.InputError(", ".join(source.path for source in inputs.sources), reason)
    folders.write_json(folder / "ingest.json", report)
    found = {split: artefacts.shards(stores.join(records, split)) for split in inputs.splits}
    return Ingested(found, report)


def _build(
    pipeline: beam.Pipeline,
    inputs: Inputs,
    layout: Schema,
    parts: Mapping[str, Sequence[Part]],
    write: shards.Write,
    notes: str,
) -> None:
    """Builds the pipeline from files to records by split, and to notes about the input."""
    reader = inputs.reader
    is_grouped = isinstance(reader, RowReader) and not inputs.adjacent
    read_part = beam.FlatMap(_rows if is_grouped else _lists, reader, layout)
    apart = pipeline | beam.Create(list(_numbered(inputs, parts))) | beam.Reshuffle()
    read = apart | read_part.with_outputs("bad", "lists", main="found")
    found = read.found
    if is_grouped:
        found = found | beam.GroupByKey() | "Join" >> beam.Map(_joined, layout)
    store = _Store(layout.spec, inputs.shares)
    done = found | beam.ParDo(store).with_outputs("census", "queries", main="records")
    done.records | write
    told = {
        "bad": read.bad | beam.Map(dataclasses.asdict),
        "lists": read.lists,
        "census": done.census | beam.CombinePerKey(_sum) | beam.MapTuple(_of_split),
        "repeated": done.queries | beam.CombinePerKey(census.Repeated()) | beam.Values(),
    }
    named = [values | f"Name {x}" >> beam.Map(_named, x) for x, values in told.items()]
    artefacts.tell(named | beam.Flatten(), notes)


_Numbered = tuple[int, int, str | None, Part]  # number of a source and of a part, split, and part


class _Notes:
    """The notes of a pipeline, by name."""

    def __init__(self, notes: str) -> None:
        self.notes = notes

    def __call__(self, name: str) -> Iterator[Any]:
        return (value for x, value in artefacts.told(self.notes) if x == name)


def _named(value: Any, name: str) -> tuple[str, Any]:
    return name, value


def _sum(counts: Iterable[census.Census]) -> census.Census:
    return functools.reduce(operator.add, counts, census.Census())


def _of_split(split: str, counted: census.Census) -> dict[str, dict[str, int]]:
    return {split: vars(counted)}


def _numbered(inputs: Inputs, parts: Mapping[str, Sequence[Part]]) -> Iterator[_Numbered]:
    """The parts that workers read independently."""
    number = 0
    for index, source in enumerate(inputs.sources):
        for part in parts[source.path]:
            yield index, number, source.split, part
            number += 1


def _lists(numbered: _Numbered, reader: Reader, layout: Schema) -> Iterator[Any]:
    """From a part of a source to `(split, place, list)`, rejected units and the list count."""
    index, part_number, split, part = numbered
    number = 0
    for one in _told(reader.lists(part, layout)):
        if isinstance(one, Rejected):
            yield beam.pvalue.TaggedOutput("bad", one)
        else:
            number += 1
            yield split, (index, part_number * findings.LISTS + number), one
    yield beam.pvalue.TaggedOutput("lists", (index, part_number, number))


def _rows(numbered: _Numbered, reader: RowReader, layout: Schema) -> Iterator[Any]:
    """From a part of a source to rows by split and query, and rejected units."""
    _, _, split, part = numbered
    for one in _told(reader.rows(part, layout)):
        if isinstance(one, Rejected):
            yield beam.pvalue.TaggedOutput("bad", one)
        else:
            for query, of_query in rows.by_query(one):
                yield (split or "", query), _compact(of_query)


def _joined(
    grouped: tuple[tuple[str, str], Iterable[tuple[Any, ...]]], layout: Schema
) -> tuple[str | None, tuple[int, int], Found]:
    (split, query), parts = grouped
    found = rows.joined((_expanded(query, part, layout) for part in parts), layout)
    return split or None, (0, 0), found  # each query occurs once, so it needs no place


def _compact(found: Rows) -> tuple[Any, ...]:
    """Returns rows of one query as a few bytes and strings, which Beam encodes compactly."""
    file, numbers = found.place
    context = tuple(values[:1].tolist()[0] for values in found.context.values())
    arrays = (numbers.astype(np.int64), found.labels, np.ascontiguousarray(found.features))
    ids = tuple(found.doc_ids) if any(found.doc_ids) else None
    texts = None if found.texts is None else tuple(found.texts.ravel().tolist())
    weights = None if found.weights is None else found.weights.tobytes()
    return (file, *(values.tobytes() for values in arrays), ids, context, texts, weights)


def _expanded(query: str, parts: tuple[Any, ...], layout: Schema) -> Rows:
    """Returns the rows of a query from the result of `_compact`."""
    file, numbers, labels, features, ids, context, texts, weights = parts
    known = zip(layout.context, context, strict=True)
    values = np.frombuffer(labels, np.float32)
    rows = len(values)
    return Rows(
        (file, np.frombuffer(numbers, np.int64)),
        np.array([query], np.object_),
        values,
        np.frombuffer(features, np.float32).reshape(rows, len(layout.names)),
        np.array(ids or [""] * rows, np.object_),
        {name: np.array([value], np.object_) for name, value in known},
        None if texts is None else np.array(texts, np.object_).reshape(rows, len(layout.texts)),
        None if weights is None else np.frombuffer(weights, np.float32),
    )


class _Store(beam.DoFn):
    """From lists to records by split, a census of each split, and the places of the queries."""

    def __init__(self, spec: data.FeatureSpec, shares: Mapping[str, float]) -> None:
        self.spec, self.shares = spec, dict(shares)

    def start_bundle(self) -> None:
        self.counts: dict[str, census.Census] = collections.defaultdict(census.Census)
        self.queries: dict[str, array.array[int]] = collections.defaultdict(
            lambda: array.array("Q")
        )

    def process(self, element: tuple[str | None, tuple[int, int], Found]) -> Iterator[Any]:
        split, place, found = element
        query = census.hash_of(found.item_list.query_id)
        split = split or census.split_of(query, self.shares)
        self.counts[split].add(found.item_list)
        self.queries[split].extend((query, *place))
        if len(found.item_list.labels):
            key = (*divmod(place[1], findings.LISTS), query)
            yield split, key, stored.serialize(found, self.spec)

    def finish_bundle(self) -> Iterator[Any]:
        for counted in self.counts.items():
            yield beam.pvalue.TaggedOutput("census", GlobalWindows.windowed_value(counted))
        for split, queries in self.queries.items():
            places = np.array(queries, np.uint64).reshape(-1, 3)
            parts = places[:, 0] % census.PARTS
            for part in np.unique(parts).tolist():
                keyed = GlobalWindows.windowed_value((part, (split, places[parts == part])))
                yield beam.pvalue.TaggedOutput("queries", keyed)


def _told(read: Iterator[Any]) -> Iterator[Any]:
    """Yields the units that are read, and a rejected unit if the file cannot be read further."""
    try:
        yield from read
    except data.InputError as error:
        yield Rejected(error.place, "file", None, error.reason)


def summary(report: Mapping[str, Any]) -> Iterator[str]:
    """Returns the notable findings of a report as lines.

    Args:
        report: As in `Ingested`.
    """
    for split, counted in report["splits"].items():
        for name in ("empty_lists", "conflicting_lists"):
            if counted[name]:
                yield f"{split}: {counted[name]} {name.replace('_', ' ')}"
    if report["duplicate_queries"]["count"]:
        first = " and ".join(report["duplicate_queries"]["first"][0])
        yield f"{report['duplicate_queries']['count']} queries occur more than once; first: {first}"
    if report["rejected"]["count"]:
        yield f"{report['rejected']['count']} rejected: see dead_letters.jsonl"
