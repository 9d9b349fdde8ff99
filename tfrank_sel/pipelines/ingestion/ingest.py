"""Ingest: files of lists, or synthetic data, become TFRecord shards of the packed layout."""

import collections
import dataclasses
import functools
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tfrank_sel import artefacts
from tfrank_sel.data import stores
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.rejections import Rejected, rejection
from tfrank_sel.pipelines.configuration.data import Beam
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import ingest_counts
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Inputs
from tfrank_sel.pipelines.ingestion.reading import PartReader, Store, ingest as here
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
    reading = PartReader(reader, layout, inputs.adjacent)
    with stores.scratch(records if stores.is_remote(records) else folder) as scratch:
        store = functools.partial(Store, layout.spec, inputs.shares)
        numbers, target = itertools.count(), (records, scratch, shard_bytes)
        # Workers read the parts independently.
        numbered = [
            (index, next(numbers), source.split, part)
            for index, source in enumerate(inputs.sources)
            for part in parts[source.path]
        ]
        if options is None:
            results = here(reading, numbered, store(), target)
        else:
            from tfrank_sel.pipelines.ingestion import parallel

            results = parallel.ingest(reading, numbered, store, target, options)
        bad = reader.with_file_rows((Rejected(**x) for x in results("bad")), parts)
        rejected = ingest_counts.keep_dead_letters(
            bad, folder / "dead_letters.jsonl", inputs.allow_bad_lines
        )
        repeated = list(results("repeated"))
        places = ingest_counts.Places(inputs.sources, results("lists"))
        if reader.is_distinct:
            ingest_counts.check_distinct(repeated, places, inputs.allow_bad_lines)
        report: dict[str, Any] = {
            "files": [f"{artefacts.address(x.path)} ({reader.name})" for x in inputs.sources],
            "features": layout.names,
            "context": list(layout.context),
            "rejected": rejected,
            "splits": dict(collections.ChainMap(*results("census"))),
            **ingest_counts.recurring(repeated, places),
        }
    for split in inputs.splits:
        if not report["splits"].get(split, {}).get("lists"):
            of_run = f" for the split {split!r}" if split in SPLITS else ""
            files = ", ".join(source.path for source in inputs.sources)
            raise rejection(files, f"expected lists{of_run}", "none")
    folders.write_json(folder / "ingest.json", report)
    shards = {split: folders.shards(stores.join(records, split)) for split in inputs.splits}
    return Ingested(shards, report)


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
