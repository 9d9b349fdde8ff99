"""The step `analyze`: statistics of the splits, schema and anomalies."""

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel import data
from tfrank_sel.data import examples, formats, stores
from tfrank_sel.data.formats import Columns, Schema
from tfrank_sel.data.rejections import rejection
from tfrank_sel.features import whole
from tfrank_sel.pipelines.analysis import drift, gates as gating, leakage, schema, statistics
from tfrank_sel.pipelines.analysis.gates import Anomaly
from tfrank_sel.pipelines.analysis.statistics import DataSplit
from tfrank_sel.pipelines.configuration.data import Gates
from tfrank_sel.pipelines.configuration.section import choices
from tfrank_sel.pipelines.console import Activity
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion import clicks, ingest_counts, stored_lists
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Job

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run


def analyze(run: "Run", folder: Path) -> None:
    """Computes the statistics of the splits, the schema of the training split, and all anomalies.

    The statistics of the run that this one continues are linked to `earlier/`, and the new ones are
    compared with them unless the configuration names another reference.

    Args:
        run: The run. Its curated schema, if it has one, validates all splits.
        folder: Folder to write to: `statistics/SPLIT.json`, `increment/` with those of the lists
            that this run ingested, `schema.pbtxt`, `anomalies/SPLIT.json` and `failures.json`, with
            a line for each anomaly that fails.

    Raises:
        tfrank_sel.data.InputError: If a split has no list to learn from, the reference is not the
            folder of a run, or the gates name a feature that is not in the data, the curated schema
            or the reference.
    """
    job, progress, records = run.job, run.progress, run.records
    earlier, curated, options = run.earlier, run.curated_schema, run.options
    gates = job.configuration.gates
    spec, features, url = records.spec, records.layout.features, job.mirror.url
    with progress.step("statistics") as step:
        shards = {split: records.own(split) for split in SPLITS}
        step.reads(shard for own in shards.values() for shard in own)
        summary_by_split = statistics.summarise(
            shards, spec, folder / "increment", scratch=url, features=features, options=options
        )
        summaries = summary_by_split
        for number, kept in enumerate(earlier.statistics() if earlier else ()):
            folders.link(kept, folder / "earlier" / f"{number}")
            summaries = {
                name: statistics.Statistics.load(Path(kept, f"{name}.json")) + summary
                for name, summary in summaries.items()
            }
        for split, summary in summaries.items():
            folders.write_json(folder / "statistics" / f"{split}.json", dataclasses.asdict(summary))
            if not summary.comparable_lists:
                labels = ", ".join(summary.labels)
                equal = f"{summary.lists} lists, each with equal labels (labels: {labels})"
                raise rejection(
                    job.files(split), "expected a list with two different labels", equal
                )
            step.tell(f"{split}: {_describe_split(summary)}")
    splits = {name: DataSplit.of(records, name, summary) for name, summary in summaries.items()}
    with progress.step("schema") as step:
        path = folder / "schema.pbtxt"
        inferred = schema.infer(summaries["train"], spec, path)
        step.tell(f"inferred from train: {path.name}")
    with progress.step("validation") as step:
        reference_path = job.configuration.data.reference or (earlier.path if earlier else None)
        before = None if reference_path is None else _reference(reference_path)
        check_named(gates, spec.label, [x for x in (summaries["train"], before) if x], curated)
        held = [split for split in splits if curated is not None or split != "train"]
        anomalies_of_schema = schema.validate(
            {split: splits[split].shards for split in held},
            inferred if curated is None else curated,
            spec,
            url or str(folder),
            features=features,
            gates=gates,
            of="training" if curated is None else "the schema",
            inferred_from=summaries["train"] if curated is None else None,
            options=options,
        )
        anomalies = functools.partial(drift.anomalies, label=spec.label, gates=gates)
        for split in ("validation", "test"):
            anomalies_of_schema[split] += anomalies(summaries["train"], summaries[split])
        of_train = anomalies_of_schema.setdefault("train", [])
        if before is not None:
            of_train += anomalies(before, summary_by_split["train"], of="the reference")
        leaks = {x.feature: x for x in _leaks_of_log(job, records.layout, gates)}
        leaks |= {x.feature: x for x in _leaks(splits["train"], gates)}
        of_train += leaks.values()
        shared = folders.read_json(job.path / "ingest" / "ingest.json").get("shared_queries", {})
        if earlier:  # whose lists the report does not count
            shared = shared_queries({x: y.shards for x, y in splits.items()}, spec)
        lists = {split: summary.lists for split, summary in summaries.items()}
        for split, more in leakage.of_splits(shared, lists, gates).items():
            anomalies_of_schema[split] += more
        for split, all_ in anomalies_of_schema.items():
            _tell(split, all_, folder, step)
        folders.write_json(folder / "failures.json", gating.failures(anomalies_of_schema))


def _leaks(split: DataSplit, gates: Gates) -> Iterator[Anomaly]:
    """Finds features that leak the label, in a sample of lists."""
    lists = split.sample()
    mask = lists.inputs["mask"]
    texts = lists.inputs["texts"][mask] if split.layout.texts else None
    numbers, of_list = lists.inputs["features"][mask], np.nonzero(mask)[0]
    return leakage.of_items(split.layout, numbers, texts, lists.labels[mask], of_list, gates)


def _leaks_of_log(job: Job, layout: Schema, gates: Gates) -> Iterator[Anomaly]:
    """Finds features that leak the clicks of a log.

    Labels without position bias are means over impressions, which no feature of one impression
    orders.
    """
    path, settings = job.path / "ingest" / "clicks" / clicks.FIRST, job.configuration.clicks
    if not path.exists() or job.inputs is None:
        return
    columns = job.inputs.columns
    roles = Columns(
        settings.session or columns.query, columns.label, columns.doc_id, layout.features
    )
    table = formats.table([str(path)], {}, others=True).columns
    yield from leakage.of_table(str(path), table, Schema(layout.features, columns=roles), gates)


def shared_queries(shards: Mapping[str, Sequence[str]], spec: data.FeatureSpec) -> dict[str, int]:
    """Counts the lists of each split whose query is in the training split too.

    Args:
        shards: TFRecord files of the packed layout, of each split.
        spec: Names of the parts and number of features.
    """
    queries = {}
    for split, paths in shards.items():
        name = spec.query_id.encode()
        ids = (examples.octets(x)[name][0] for x in stored_lists.records(paths))
        queries[split] = ingest_counts.hashes_of(ids)
    train = queries.pop("train")
    return {x: n for x, own in queries.items() if (n := int(np.isin(own, train).sum()))}


def _describe_split(split: statistics.Statistics) -> str:
    """Describes the numbers of lists and items of a split."""
    sizes = split.list_sizes
    described = f"{split.lists} lists of {min(sizes)} to {max(sizes)} items, {split.items} items"
    if 1 in sizes:
        described += f", {sizes[1]} lists of one item (no order to learn)"
    return described


def check_named(
    gates: Gates,
    label: str,
    summaries: Sequence[statistics.Statistics],
    curated: schema_pb2.Schema | None = None,
) -> None:
    """Raises an error if a gate names a feature that is neither known nor in the schema."""
    columns = [label, *(name for x in summaries for name in (*x.names, *x.texts))]
    columns += [x.name for x in curated.feature] if curated is not None else []
    names = sorted({*columns, *map(whole, columns)})
    for name in gates.features:
        if name not in names:
            reason = f"must be names of features: {choices(name, names)}"
            raise data.InputError("gates.features", reason)


def _reference(run: str | Path) -> statistics.Statistics:
    path = stores.join(run, "analyze", "statistics", "train.json")
    if not stores.is_file(path):
        raise rejection(str(run), "expected the folder of a run", f"no {path}")
    return statistics.Statistics.load(Path(stores.near(path)))


def _tell(split: str, anomalies: list[gating.Anomaly], folder: Path, step: Activity) -> None:
    schema.write(anomalies, folder / "anomalies" / f"{split}.json")
    worst = max(anomalies, key=lambda x: (x.distance or 0.0, x.count), default=None)
    count = "1 anomaly" if len(anomalies) == 1 else f"{len(anomalies)} anomalies"
    step.tell(f"{split}: {count}" + (f"; {worst}" if worst else ""))
