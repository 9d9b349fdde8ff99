"""Ingest: files of lists to TFRecord shards of the packed layout, for each split."""

import array
import collections
import dataclasses
import functools
import json
import operator
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import GlobalWindows

from tfrank_sel import data
from tfrank_sel.arguments import Checked
from tfrank_sel.data.readers import readers, tables
from tfrank_sel.data.readers.sources import Columns, Found, Layout, Rejected, Source
from tfrank_sel.pipelines import artefacts
from tfrank_sel.pipelines.ingestion import census, stored

# How many bad lines are told one by one.
SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Ingested:
    """What ingest wrote.

    Args:
        shards: TFRecord files of each split.
        report: What was found, as in `ingest.json`.
    """

    shards: dict[str, list[str]]
    report: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Inputs(Checked):
    """What to read, and how.

    Args:
        sources: The files, all of one format.
        columns: Names of the parts, where files name them.
        shares: The share of the queries that each split gets, for files that belong to none;
            together 1.
        allow_bad_lines: How many lines, rows or records may be left out.
        adjacent: Whether the rows of a query stand together. If not, Beam groups them.
        num_features: The largest index of LETOR files, which are read once more for it if None.
    """

    sources: Sequence[Source]
    columns: Columns = dataclasses.field(default_factory=Columns)
    shares: Mapping[str, float] = dataclasses.field(default_factory=dict)
    allow_bad_lines: int = 0
    adjacent: bool = False
    num_features: int | None = None

    @property
    def splits(self) -> list[str]:
        """The splits that there will be."""
        named = {source.split for source in self.sources if source.split is not None}
        if any(source.split is None for source in self.sources):
            named |= set(self.shares)
        return sorted(named)


def ingest(
    inputs: Inputs, layout: Layout, folder: Path, *, options: PipelineOptions | None = None
) -> Ingested:
    """Writes the lists of files as TFRecord shards of the packed layout.

    The files stream through: no more than a few lists are held in memory, unless rows have to be
    grouped by query. A query without a split of its own gets one by a hash of its identifier: the
    same in every run, whatever else there is and in whatever order.

    Args:
        inputs: What to read.
        layout: What the lists hold.
        folder: Folder to write to: `records/SPLIT-*`, `ingest.json` with what was found, and
            `dead_letters.jsonl` with what was left out, if anything.
        options: Of the Beam pipeline.

    Returns:
        The shards of each split, and the report.

    Raises:
        tfrank_sel.data.InputError: If more is malformed than may be left out: the message tells the
            first 10 by file and line, and how many there are. If a file cannot be used, or a split
            has no list.
    """
    (folder / "records").mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        notes = Path(scratch)
        with beam.Pipeline(options=options) as pipeline:
            _build(pipeline, inputs, layout, folder / "records", notes)
        letters = folder / "dead_letters.jsonl"
        report: dict[str, Any] = {
            "files": [f"{source.path} ({source.format.value})" for source in inputs.sources],
            "features": layout.names,
            "context": list(layout.context),
            "rejected": _keep_dead_letters(notes / "bad", letters, inputs.allow_bad_lines),
            "splits": dict(collections.ChainMap(*artefacts.told(notes / "census"))),
            "duplicate_queries": _duplicates(artefacts.told(notes / "repeated"), inputs.sources),
        }
    for split in inputs.splits:
        if not report["splits"].get(split, {}).get("lists"):
            reason = f"expected lists for the split {split!r}. Received: none"
            raise data.InputError(", ".join(source.path for source in inputs.sources), reason)
    artefacts.write_json(folder / "ingest.json", report)
    shards = {split: artefacts.shards(folder / "records" / split) for split in inputs.splits}
    return Ingested(shards, report)


def _build(
    pipeline: beam.Pipeline, inputs: Inputs, layout: Layout, records: Path, notes: Path
) -> None:
    """From files to records by split, and to notes on what was found."""
    files = pipeline | beam.Create(list(enumerate(inputs.sources))) | beam.Reshuffle()
    is_grouped = inputs.sources[0].format.has_rows and not inputs.adjacent
    reader = _rows if is_grouped else _lists
    read = files | beam.FlatMap(reader, inputs.columns, layout).with_outputs("bad", main="found")
    found = read.found
    if is_grouped:
        found = found | beam.GroupByKey() | "Join" >> beam.Map(_joined, layout)
    store = _Store(data.FeatureSpec(len(layout.names)), inputs.shares)
    done = found | beam.ParDo(store).with_outputs(*inputs.splits, *_NOTES)
    for split in inputs.splits:
        # Without a number of shards each bundle is written as it comes; with one, Beam's local
        # runner would first gather all lists in memory.
        write = beam.io.WriteToTFRecord(str(records / split), num_shards=0)
        done[split] | f"Write {split}" >> write
    summed = done.census | beam.CombinePerKey(_sum)
    repeated = done.queries | beam.CombinePerKey(census.Repeated()) | beam.Values()
    artefacts.tell(read.bad | beam.Map(dataclasses.asdict), notes / "bad")
    artefacts.tell(summed | beam.MapTuple(_of_split), notes / "census")
    artefacts.tell(repeated, notes / "repeated")


_NOTES = ("census", "queries")


def _sum(counts: Iterable[census.Census]) -> census.Census:
    return functools.reduce(operator.add, counts, census.Census())


def _of_split(split: str, counted: census.Census) -> dict[str, dict[str, int]]:
    return {split: vars(counted)}


def _lists(numbered: tuple[int, Source], columns: Columns, layout: Layout) -> Iterator[Any]:
    """A numbered source to `(split, place, list)`, and to what is left out."""
    index, source = numbered
    number = 0
    for one in _told(readers.lists(source, columns, layout)):
        if isinstance(one, Rejected):
            yield beam.pvalue.TaggedOutput("bad", one)
        else:
            number += 1
            yield source.split, (index, number), one


def _rows(numbered: tuple[int, Source], columns: Columns, layout: Layout) -> Iterator[Any]:
    """A numbered source to rows by split and query, and to what is left out."""
    _, source = numbered
    for one in _told(readers.rows(source, columns, layout)):
        if isinstance(one, Rejected):
            yield beam.pvalue.TaggedOutput("bad", one)
        else:
            for query, rows in tables.by_query(one):
                yield (source.split or "", query), tables.compact(rows)


def _joined(
    grouped: tuple[tuple[str, str], Iterable[tuple[Any, ...]]], layout: Layout
) -> tuple[str | None, tuple[int, int], Found]:
    (split, query), parts = grouped
    found = tables.joined(tables.expanded(query, part, layout) for part in parts)
    return split or None, (0, 0), found  # each query is here once: it needs no place


class _Store(beam.DoFn):
    """Lists to records by split; to a census of each split, and the places of the queries."""

    def __init__(self, spec: data.FeatureSpec, shares: Mapping[str, float]) -> None:
        self.spec, self.shares = spec, dict(shares)

    def start_bundle(self) -> None:
        self.counts: dict[str, census.Census] = collections.defaultdict(census.Census)
        self.queries = array.array("Q")

    def process(self, element: tuple[str | None, tuple[int, int], Found]) -> Iterator[Any]:
        split, place, found = element
        query = census.hash_of(found.item_list.query_id)
        split = split or census.split_of(query, self.shares)
        self.counts[split].add(found.item_list)
        self.queries.extend((query, *place))
        if len(found.item_list.labels):
            yield beam.pvalue.TaggedOutput(split, stored.serialize(found, self.spec))

    def finish_bundle(self) -> Iterator[Any]:
        for counted in self.counts.items():
            yield beam.pvalue.TaggedOutput("census", GlobalWindows.windowed_value(counted))
        places = np.array(self.queries, np.uint64).reshape(-1, 3)
        parts = places[:, 0] % census.PARTS
        for part in np.unique(parts).tolist():
            keyed = GlobalWindows.windowed_value((part, places[parts == part]))
            yield beam.pvalue.TaggedOutput("queries", keyed)


def _told(read: Iterator[Any]) -> Iterator[Any]:
    """Passes on what is read; a file that cannot be read further is told as rejected."""
    try:
        yield from read
    except data.InputError as error:
        yield Rejected(error.place, "file", None, error.reason)


def _keep_dead_letters(notes: Path, path: Path, allowed: int) -> dict[str, Any]:
    """Puts what was left out into one file, and counts it by rule."""
    count, first, rules = 0, list[Rejected](), collections.Counter[str]()
    with path.open("w") as file:
        for letter in artefacts.told(notes):
            rejected = Rejected(**letter)
            if rejected.number is None or len(first) < SHOWN:
                first.append(rejected)
            count += 1
            rules[rejected.rule] += 1
            file.write(json.dumps(letter) + "\n")
    unusable = [rejected for rejected in first if rejected.number is None]
    if count > allowed or unusable:
        raise _refused((unusable or first)[:SHOWN], count, allowed)
    if count == 0:
        path.unlink()
    return {"count": count, "rules": dict(rules)}


def _refused(first: list[Rejected], count: int, allowed: int) -> data.InputError:
    lines = [first[0].reason, *(f"{one.place}: {one.reason}" for one in first[1:])]
    if count > 1:
        wanted = f"at most {allowed} bad lines" if allowed else "no bad line"
        lines.append(f"expected {wanted}. Received: {count}")
    return data.InputError(first[0].place, "\n".join(lines))


def _duplicates(found: Iterable[dict[str, Any]], sources: Sequence[Source]) -> dict[str, Any]:
    count, first = 0, []
    for part in found:
        count += part["count"]
        first += [
            [f"{sources[file].path}, list {number}" for file, number in places]
            for places in part["first"]
        ]
    return {"count": count, "first": first[: census.SHOWN]}


def summary(report: Mapping[str, Any]) -> Iterator[str]:
    """Tells what a report holds that is worth a look, in lines.

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
        yield f"{report['rejected']['count']} left out: see dead_letters.jsonl"
