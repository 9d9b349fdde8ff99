"""Ingest: LETOR text to TFRecord shards of `ExampleListWithContext`."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam

from pipelines import artefacts
from tfrank_sel import data
from tfrank_sel.data import elwc, letor

# How many bad lines are told one by one.
SHOWN = 10


def ingest(source: Path, spec: data.FeatureSpec, records: Path) -> list[str]:
    """Writes the lists of a LETOR file as TFRecord shards.

    The file streams through: no more than one list is held in memory.

    Args:
        source: LETOR or SVMLight file, `.gz` or plain.
        spec: Names of the parts and number of features.
        records: Prefix of the shards: `FOLDER/train` gives `FOLDER/train-00000-of-00001`.

    Returns:
        The shards.

    Raises:
        tfrank_sel.data.InputError: If a line is malformed: the message tells the first 10 by file
            and line, and how many there are.
    """
    report = records.with_name(f"{records.name}.bad_lines.json")
    with beam.Pipeline() as pipeline:
        parts = (
            pipeline
            | beam.Create([str(source)])
            | beam.ParDo(_Read(spec)).with_outputs("bad", main="lists")
        )
        # Without a number of shards each bundle is written as it comes; with one, Beam's local
        # runner would first gather all lists in memory.
        parts.lists | beam.io.WriteToTFRecord(str(records), num_shards=0)
        (
            parts.bad
            | beam.CombineGlobally(_First(SHOWN))
            | beam.Map(json.dumps)
            | beam.io.WriteToText(str(report), shard_name_template="")
        )
    bad = json.loads(report.read_text())
    report.unlink()
    if bad["count"]:
        raise _told(source, bad["first"], bad["count"])
    return artefacts.shards(records)


class _Read(beam.DoFn):
    """File name to serialized lists, and to `(place, reason)` of each bad line."""

    def __init__(self, spec: data.FeatureSpec) -> None:
        self.spec = spec

    def process(self, path: str) -> Iterator[Any]:
        errors: list[data.InputError] = []
        try:
            for item_list in letor.read(path, self.spec.num_features, on_error=errors.append):
                yield elwc.serialize(
                    item_list.features,
                    self.spec,
                    labels=item_list.labels,
                    doc_ids=[doc_id.encode() for doc_id in item_list.doc_ids],
                    query_id=item_list.query_id.encode(),
                )
                yield from self._bad(errors)
        except data.InputError as error:
            errors.append(error)
        yield from self._bad(errors)

    def _bad(self, errors: list[data.InputError]) -> Iterator[beam.pvalue.TaggedOutput]:
        for error in errors:
            yield beam.pvalue.TaggedOutput("bad", (error.place, error.reason))
        errors.clear()


class _First(beam.CombineFn):
    """The first few elements, and how many there are."""

    def __init__(self, shown: int) -> None:
        self.shown = shown

    def create_accumulator(self) -> dict[str, Any]:
        return {"first": [], "count": 0}

    def add_input(self, accumulator: dict[str, Any], element: tuple[str, str]) -> dict[str, Any]:
        return self.merge_accumulators([accumulator, {"first": [element], "count": 1}])

    def merge_accumulators(self, accumulators: Iterable[dict[str, Any]]) -> dict[str, Any]:
        merged = self.create_accumulator()
        for accumulator in accumulators:
            merged["first"] = (merged["first"] + accumulator["first"])[: self.shown]
            merged["count"] += accumulator["count"]
        return merged

    def extract_output(self, accumulator: dict[str, Any]) -> dict[str, Any]:
        return accumulator


def _told(source: Path, first: list[tuple[str, str]], count: int) -> data.InputError:
    (place, reason), *others = first
    lines = [reason, *(f"{place}: {reason}" for place, reason in others)]
    if count > 1:
        lines.append(f"{source}: expected no bad line. Received: {count}")
    return data.InputError(place, "\n".join(lines))
