"""Ingest: files of lists, or synthetic data, become TFRecord shards of the packed layout."""

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
from tfrank_sel.data import letor, stores, synthetic
from tfrank_sel.data.formats import Part, Reader, RowReader, Schema, rows
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import Found, InputError, Rejected
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.configuration.data import Beam
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import clicks, shards, stored, tally
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source
from tfrank_sel.pipelines.ingestion.job import Job
from tfrank_sel.pipelines.ingestion.stored import Earlier


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
        rejected = tally.keep_dead_letters(
            bad, folder / "dead_letters.jsonl", inputs.allow_bad_lines
        )
        repeated = list(told("repeated"))
        places = tally.Places(inputs.sources, told("lists"))
        if reader.is_distinct:
            tally.check_distinct(repeated, places, inputs.allow_bad_lines)
        report: dict[str, Any] = {
            "files": [f"{source.path} ({reader.name})" for source in inputs.sources],
            "features": layout.names,
            "context": list(layout.context),
            "rejected": rejected,
            "splits": dict(collections.ChainMap(*told("census"))),
            "duplicate_queries": tally.duplicates(repeated, places),
            "shared_queries": tally.shared(repeated),
        }
    for split in inputs.splits:
        if not report["splits"].get(split, {}).get("lists"):
            reason = f"expected lists for the split {split!r}. Received: none"
            raise data.InputError(", ".join(source.path for source in inputs.sources), reason)
    folders.write_json(folder / "ingest.json", report)
    found = {split: folders.shards(stores.join(records, split)) for split in inputs.splits}
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
        "repeated": done.queries | beam.CombinePerKey(tally.Repeated()) | beam.Values(),
    }
    named = [values | f"Name {x}" >> beam.Map(_named, x) for x, values in told.items()]
    runners.gather(named | beam.Flatten(), notes)


_Numbered = tuple[int, int, str | None, Part]  # number of a source and of a part, split, and part


class _Notes:
    """The notes of a pipeline, by name."""

    def __init__(self, notes: str) -> None:
        self.notes = notes

    def __call__(self, name: str) -> Iterator[Any]:
        return (value for x, value in runners.gathered(self.notes) if x == name)


def _named(value: Any, name: str) -> tuple[str, Any]:
    return name, value


def _sum(counts: Iterable[tally.Counts]) -> tally.Counts:
    return functools.reduce(operator.add, counts, tally.Counts())


def _of_split(split: str, counted: tally.Counts) -> dict[str, dict[str, int]]:
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
            yield split, (index, part_number * tally.LISTS + number), one
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
        self.counts: dict[str, tally.Counts] = collections.defaultdict(tally.Counts)
        self.queries: dict[str, array.array[int]] = collections.defaultdict(
            lambda: array.array("Q")
        )

    def process(self, element: tuple[str | None, tuple[int, int], Found]) -> Iterator[Any]:
        split, place, found = element
        query = tally.hash_of(found.item_list.query_id)
        split = split or tally.split_of(query, self.shares)
        self.counts[split].add(found.item_list)
        self.queries[split].extend((query, *place))
        if len(found.item_list.labels):
            key = (*divmod(place[1], tally.LISTS), query)
            yield split, key, stored.serialize(found, self.spec)

    def finish_bundle(self) -> Iterator[Any]:
        for counted in self.counts.items():
            yield beam.pvalue.TaggedOutput("census", GlobalWindows.windowed_value(counted))
        for split, queries in self.queries.items():
            places = np.array(queries, np.uint64).reshape(-1, 3)
            parts = places[:, 0] % tally.PARTS
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


SYNTHETIC_LISTS = {"train": 400, "validation": 100, "test": 100}


def ingest_job(
    job: Job, progress: Progress, folder: Path, earlier: Earlier | None, options: PipelineOptions
) -> None:
    """Converts files to records: `records/`, `ingest.json`, `layout.json`, `dead_letters.jsonl`.

    Args:
        job: The job; its store gets the records if it has one.
        progress: Progress display.
        folder: Folder to write to.
        earlier: The run that this one continues; its records are linked to `earlier/`.
        options: Options of the Beam pipeline.
    """
    seed, mirror = job.configuration.training.seed, job.mirror
    inputs = job.inputs or synthesise(folder / "synthetic", seed, progress)
    with progress.step("ingest") as step:
        if job.configuration.clicks.position is not None:
            settings = job.configuration.clicks
            inputs, known = clicks.corrected(inputs, settings, folder / "clicks", step.tell)
            last = (
                f"position {known.positions[-1]} is examined {known.values[-1]:.2f} times as often"
            )
            step.tell(f"corrected clicks: {last} as the best one; {known.reason}")
        layout = inputs.schema()
        if earlier is not None:
            _check_same(earlier.path, layout)
        step.doing(f"{len(inputs.sources)} files")
        step.reads(source.path for source in inputs.sources)
        mirror.drop("ingest")
        place = folder if mirror.url is None else stores.join(mirror.url, "ingest")
        found = ingest(
            inputs,
            layout,
            folder,
            records=str(stores.join(place, "records")),
            options=options,
            shard_bytes=job.configuration.beam.shard_bytes,
        )
        count = sum(getattr(feature, "size", 1) for feature in layout.features.values())
        step.tell(f"{count} feature{'' if count == 1 else 's'}")
        for line in summary(found.report):
            step.tell(line)
        if earlier is not None:
            kept = earlier.records()
            for number, records in enumerate(kept):
                folders.link(records, stores.join(place, "earlier", f"{number}"))
            step.tell(f"joined to {len(kept)} earlier increments")
    layout.write(folder / "layout.json")


def synthesise(folder: Path, seed: int, progress: Progress) -> Inputs:
    """Writes synthetic data, one file per split.

    Args:
        folder: Folder to create.
        seed: Seed of the data.
        progress: Progress display.
    """
    with progress.step("synthesis") as step:
        folder.mkdir(parents=True)
        lists = synthetic.lists(sum(SYNTHETIC_LISTS.values()), seed=seed)
        sources = []
        for split, count in SYNTHETIC_LISTS.items():
            path = folder / f"{split}.txt"
            letor.write(path, (next(lists) for _ in range(count)))
            sources.append(Source(str(path), split))
        sizes = (f"{count} {split}" for split, count in SYNTHETIC_LISTS.items())
        step.tell(f"synthetic lists: {', '.join(sizes)}")
    return Inputs(sources)


def _check_same(earlier: Path, layout: Schema) -> None:
    known = Schema.read(earlier / "ingest" / "layout.json", layout.columns)
    if known != layout:
        received = ", ".join(
            sorted(
                name
                for name in known.features.keys() | layout.features.keys()
                if known.features.get(name) != layout.features.get(name)
            )
        )
        raise InputError(
            str(earlier),
            "to continue a run, features, types and context must be the same. "
            f"Received: other {received or 'context'}",
        )
