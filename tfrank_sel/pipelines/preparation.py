"""The first steps of a run: files to splits that are known, and held against each other."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf
from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel import data, models
from tfrank_sel.data import letor, synthetic
from tfrank_sel.data.formats import Layout
from tfrank_sel.features import Category
from tfrank_sel.models import summary
from tfrank_sel.pipelines.analysis import drift, schema, statistics
from tfrank_sel.pipelines.console import Progress, Step
from tfrank_sel.pipelines.ingestion import ingest, stored
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Inputs, Source

SYNTHETIC_LISTS = {"train": 400, "validation": 100, "test": 100}


@dataclasses.dataclass(frozen=True)
class Split:
    """A split on disk: its shards and statistics."""

    shards: Sequence[str]
    statistics: statistics.Statistics

    def batches(self, spec: data.FeatureSpec) -> tf.data.Dataset:
        """Returns features and mask of its lists by name, and the labels, for one pass."""
        return stored.batches(self.shards, spec, self.statistics.list_sizes)


def synthesise(folder: Path, seed: int, progress: Progress) -> Inputs:
    """Makes a set of three files.

    Args:
        folder: Folder to make.
        seed: The same seed makes the same set.
        progress: Told of the step.
    """
    with progress.step("synthesis") as step:
        folder.mkdir(parents=True)
        lists = synthetic.lists(sum(SYNTHETIC_LISTS.values()), seed=seed)
        sources = []
        for split, count in SYNTHETIC_LISTS.items():
            path = folder / f"{split}.txt"
            letor.write(path, (next(lists) for _ in range(count)))
            sources.append(Source(str(path), split))
        step.tell(f"no files given: made a synthetic set of {SYNTHETIC_LISTS} lists")
    return Inputs(sources)


def ingested(
    inputs: Inputs,
    folder: Path,
    progress: Progress,
    *,
    options: PipelineOptions | None = None,
) -> tuple[Layout, dict[str, Split]]:
    """Turns files into records, and finds the statistics of each split.

    Args:
        inputs: What to read.
        folder: Folder of the run.
        progress: Told of each step.
        options: Of the Beam pipelines.

    Returns:
        What a list holds, and the splits.

    Raises:
        tfrank_sel.data.InputError: If the input cannot be used.
    """
    with progress.step("ingest") as step:
        layout = inputs.layout()
        step.doing(f"{len(inputs.sources)} files")
        ingested = ingest.ingest(inputs, layout, folder, options=options)
        step.tell(f"{len(layout.names)} features")
        for line in ingest.summary(ingested.report):
            step.tell(line)
    spec = inputs.spec(layout)
    splits = {}
    with progress.step("statistics") as step:
        named = {split: ingested.shards[split] for split in SPLITS if split in ingested.shards}
        summaries = statistics.summarise(
            named, spec, folder / "statistics", features=layout.features, options=options
        )
        for split, found in summaries.items():
            splits[split] = Split(named[split], found)
            files = [source.path for source in inputs.sources if source.split in (None, split)]
            _check_comparable(found, ", ".join(files))
            step.tell(f"{split}: {_described(found)}")
    return layout, splits


def _described(found: statistics.Statistics) -> str:
    sizes = found.list_sizes
    described = f"{found.lists} lists of {min(sizes)} to {max(sizes)} items, {found.items} items"
    if 1 in sizes:
        described += f", {sizes[1]} lists of one item (no order to learn)"
    return described


def _check_comparable(found: statistics.Statistics, source: str) -> None:
    if found.comparable_lists == 0:
        labels = ", ".join(found.labels)
        raise data.InputError(
            source,
            "expected a list with two different labels. "
            f"Received: {found.lists} lists, each with one label throughout (labels: {labels})",
        )


def examine(
    spec: data.FeatureSpec,
    layout: Layout,
    splits: Mapping[str, Split],
    folder: Path,
    progress: Progress,
    *,
    reference: Path | None = None,
    options: PipelineOptions | None = None,
) -> None:
    """Infers the schema of the training split, and tells what is other elsewhere.

    Args:
        spec: Names of the parts and number of features.
        layout: What a list holds.
        splits: The splits.
        folder: Folder of the run: `schema.pbtxt`, and `anomalies/SPLIT.json`.
        progress: Told of each step.
        reference: The folder of another run, whose training split was different or not.
        options: Of the Beam pipelines.

    Raises:
        tfrank_sel.data.InputError: If `reference` is not the folder of a run.
    """
    known = splits["train"].statistics
    with progress.step("schema") as step:
        path = folder / "schema.pbtxt"
        inferred = schema.infer(known, spec, path)
        step.tell(f"inferred from train: {path.name}")
    with progress.step("validation") as step:
        held = {split: splits[split].shards for split in ("validation", "test")}
        outside = schema.validate(
            held, inferred, spec, folder, features=layout.features, options=options
        )
        for split in held:
            skewed = drift.anomalies(known, splits[split].statistics)
            _tell(split, outside[split] + skewed, folder, step)
        if reference is not None:
            drifted = drift.anomalies(_reference(reference), known, of="the reference")
            _tell("train", drifted, folder, step)


def prepared(
    split: Split, layout: Layout, within_list: bool, before: models.Preparation | None = None
) -> models.Preparation:
    """Returns the preparation of features for a network, from the statistics of training.

    Args:
        split: The training split.
        layout: What a list holds.
        within_list: As in `models.Preparation`.
        before: The preparation of a model for a warm start. Its vocabularies are kept, and new
            values follow them up to `max_size`; features that were missing before still have a
            column that says where.

    Raises:
        tfrank_sel.data.InputError: If a feature has one value throughout, or no value occurs often
            enough for a vocabulary, and it has no vocabulary before.
    """
    found = split.statistics
    known = (before and before.vocabularies) or {}
    vocabularies = {
        name: _grown(known[name], feature, found.texts[name])
        if name in known
        else _vocabulary(name, feature, found.texts[name])
        for name, feature in layout.features.items()
        if isinstance(feature, Category)
    }
    missing_before = before.missing if before else ()
    missing = dict(zip(found.names, found.features["missing"], strict=True))
    return models.Preparation(
        found.features["compressed_mean"],
        found.features["compressed_variance"],
        within_list,
        layout.features,
        vocabularies,
        [
            name
            for name, feature in layout.features.items()
            if any(missing[x] or name in missing_before for x in feature.columns(name))
        ],
    )


def _grown(known: Sequence[str], feature: Category, counts: Mapping[str, int]) -> list[str]:
    new = [value for value in summary.vocabulary(counts, feature) if value not in {*known}]
    return [*known, *new[: max(0, feature.max_size - len(known))]]


def _vocabulary(name: str, feature: Category, counts: Mapping[str, int]) -> list[str]:
    place = "the training split"
    if len(counts) == 1:
        [[value, count]] = counts.items()
        wanted = f"expected two values of {name!r}, or one and items without"
        raise data.InputError(place, f"{wanted}. Received: {value!r} for all {count} items")
    known = summary.vocabulary(counts, feature)
    if not known:
        wanted = f"expected a value of {name!r} that occurs {feature.min_count} times"
        most = max(count for value, count in counts.items() if value)
        raise data.InputError(place, f"{wanted}. Received: at most {most}")
    return known


def _reference(run: Path) -> statistics.Statistics:
    path = run / "statistics" / "train.json"
    if not path.is_file():
        raise data.InputError(str(run), f"expected the folder of a run. Received: no {path}")
    return statistics.Statistics.load(path)


def _tell(split: str, anomalies: list[schema.Anomaly], folder: Path, step: Step) -> None:
    schema.write(anomalies, folder / "anomalies" / f"{split}.json")
    worst = max(
        anomalies, key=lambda anomaly: (anomaly.distance or 0.0, anomaly.count), default=None
    )
    step.tell(f"{split}: {len(anomalies)} anomalies" + (f"; {worst}" if worst else ""))
