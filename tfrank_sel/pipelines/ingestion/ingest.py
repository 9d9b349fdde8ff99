"""Ingest: files of lists, or synthetic data, become TFRecord shards of the packed layout."""

import collections
import dataclasses
import functools
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tfrank_sel import data
from tfrank_sel.data import letor, stores, synthetic
from tfrank_sel.data.formats import Part, Schema
from tfrank_sel.data.lists import InputError, Rejected
from tfrank_sel.pipelines.configuration.data import Beam
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import clicks, tally
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source
from tfrank_sel.pipelines.ingestion.job import Job
from tfrank_sel.pipelines.ingestion.reading import Numbered, Reading, Store, ingest as here
from tfrank_sel.pipelines.ingestion.stored import Earlier
from tfrank_sel.pipelines.runners import Options


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
    options: Options = None,
    shard_bytes: int = Beam().shard_bytes,
) -> Ingested:
    """Writes the lists of files as TFRecord shards of the packed layout.

    The files are streamed: only a few lists are held in memory; rows that must be grouped by query
    are put on disk if they are many. If files have no split, a query gets its split by a hash of
    its identifier: it is the same in every run, for any other queries and any order.

    Args:
        inputs: Input files.
        layout: Schema of the lists.
        folder: Folder to write to: `ingest.json` with the summary, and `dead_letters.jsonl` with
            rejected units, if any.
        records: Folder or URL for the shards, `SPLIT-*`, which all workers can write to; by default
            `records` in the folder. Earlier contents are removed.
        options: Options of Beam; None for this process.
        shard_bytes: Target size of a shard.

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
    reading = Reading(reader, layout, inputs.adjacent)
    with stores.scratch(records if stores.is_remote(records) else folder) as scratch:
        store = functools.partial(Store, layout.spec, inputs.shares)
        numbered, target = _numbered(inputs, parts), (records, scratch, shard_bytes)
        if options is None:
            told = here(reading, numbered, store(), target)
        else:
            from tfrank_sel.pipelines.ingestion import parallel

            told = parallel.ingest(reading, numbered, store, target, options)
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


def _numbered(inputs: Inputs, parts: Mapping[str, Sequence[Part]]) -> Iterator[Numbered]:
    """The parts that workers read independently."""
    number = 0
    for index, source in enumerate(inputs.sources):
        for part in parts[source.path]:
            yield index, number, source.split, part
            number += 1


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
    job: Job,
    progress: Progress,
    folder: Path,
    earlier: Earlier | None,
    options: Options,
) -> None:
    """Converts files to records: `records/`, `ingest.json`, `layout.json`, `dead_letters.jsonl`.

    Args:
        job: The job; its store gets the records if it has one.
        progress: Progress display.
        folder: Folder to write to.
        earlier: The run that this one continues; its records are linked to `earlier/`.
        options: Options of Beam; None for this process.
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
