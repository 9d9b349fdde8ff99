"""First steps of a run: synthetic data, statistics, schema, gates and preparation."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2

from tfrank_sel import data, models
from tfrank_sel.data import letor, stores, synthetic
from tfrank_sel.data.formats import Schema
from tfrank_sel.features import Category
from tfrank_sel.models import summary
from tfrank_sel.models.preparation import columns
from tfrank_sel.pipelines.analysis import drift, gates as gating, leakage, schema, statistics
from tfrank_sel.pipelines.analysis.gates import Anomaly
from tfrank_sel.pipelines.analysis.splits import Split
from tfrank_sel.pipelines.configuration.data import Gates, whole
from tfrank_sel.pipelines.configuration.section import choices
from tfrank_sel.pipelines.console import Progress, Step
from tfrank_sel.pipelines.evaluation import inspection
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion.inputs import Inputs, Source
from tfrank_sel.pipelines.runs import Run

SYNTHETIC_LISTS = {"train": 400, "validation": 100, "test": 100}


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
        step.tell(f"synthetic data with {SYNTHETIC_LISTS} lists")
    return Inputs(sources)


def described(found: statistics.Statistics) -> str:
    """Describes the numbers of lists and items of a split."""
    sizes = found.list_sizes
    described = f"{found.lists} lists of {min(sizes)} to {max(sizes)} items, {found.items} items"
    if 1 in sizes:
        described += f", {sizes[1]} lists of one item (no order to learn)"
    return described


def check_comparable(found: statistics.Statistics, source: str) -> None:
    """Raises an error if no list of a split has two different labels."""
    if found.comparable_lists == 0:
        labels = ", ".join(found.labels)
        raise data.InputError(
            source,
            "expected a list with two different labels. "
            f"Received: {found.lists} lists, each with equal labels (labels: {labels})",
        )


def examine(
    run: Run,
    splits: Mapping[str, Split],
    own: Mapping[str, statistics.Statistics],
    folder: Path,
) -> None:
    """Infers the schema of the training split, and finds the anomalies of all splits.

    Args:
        run: The run.
        splits: The splits.
        own: Statistics of the lists that this run ingested.
        folder: Folder for `schema.pbtxt`, `anomalies/SPLIT.json` and `failures.json`, with a line
            for each anomaly that fails.

    Raises:
        tfrank_sel.data.InputError: If the reference is not the folder of a run, or the gates name a
            feature that is not in the data, the curated schema or the reference.
    """
    known = splits["train"].statistics
    with run.progress.step("schema") as step:
        path = folder / "schema.pbtxt"
        inferred = schema.infer(known, run.spec, path)
        step.tell(f"inferred from train: {path.name}")
    with run.progress.step("validation") as step:
        gates, curated = run.configuration.gates, run.curated
        reference = run.configuration.data.reference or run.earlier
        before = None if reference is None else _reference(reference)
        check_named(gates, run.spec.label, [x for x in (known, before) if x], curated)
        held = [split for split in splits if curated is not None or split != "train"]
        found = schema.validate(
            {split: splits[split].shards for split in held},
            inferred if curated is None else curated,
            run.spec,
            run.mirror.url or str(folder),
            features=run.layout.features,
            gates=gates,
            of="training" if curated is None else "the schema",
            options=run.options,
        )
        label = run.spec.label
        for split in ("validation", "test"):
            found[split] += drift.anomalies(
                known, splits[split].statistics, label=label, gates=gates
            )
        if before is not None:
            drifted = drift.anomalies(
                before, own["train"], of="the reference", label=label, gates=gates
            )
            found.setdefault("train", []).extend(drifted)
        found.setdefault("train", []).extend(_leaks(run, splits["train"]))
        report = folders.read_json(run.output / "ingest" / "ingest.json")
        lists = {split: counts["lists"] for split, counts in report["splits"].items()}
        shared = leakage.of_splits(report.get("shared_queries", {}), lists, gates)
        for split, anomalies in shared.items():
            found[split] += anomalies
        for split, anomalies in found.items():
            _tell(split, anomalies, folder, step)
        folders.write_json(folder / "failures.json", gating.failures(found))


def _leaks(run: Run, split: Split) -> Iterator[Anomaly]:
    """Finds features that leak the label, in a sample of lists."""
    longest = max(split.statistics.list_sizes)
    lists = inspection.sample(split.shards, run.spec, longest=longest)
    mask = ~np.isnan(lists.labels)
    labels, numbers = lists.labels[mask], np.nonzero(mask)[0]
    rows = columns(run.layout.features, tf.constant(lists.inputs["features"][mask], tf.float64))
    names, values = [*split.statistics.names, *run.layout.texts], [rows.numpy()]
    if run.layout.texts:
        values.append(leakage.of_texts(lists.inputs["texts"][mask], labels, numbers))
    yield from leakage.of_features(
        names, np.hstack(values), labels, numbers, run.configuration.gates
    )


def check_named(
    gates: Gates,
    label: str,
    known: Sequence[statistics.Statistics],
    curated: schema_pb2.Schema | None = None,
) -> None:
    """Raises an error if a gate names a feature that is neither known nor in the schema."""
    columns = [label, *(name for x in known for name in (*x.names, *x.texts))]
    columns += [x.name for x in curated.feature] if curated is not None else []
    names = sorted({*columns, *map(whole, columns)})
    for name in gates.features:
        if name not in names:
            wanted = f"must be names of features: {choices(name, names)}"
            raise data.InputError("gates.features", wanted)


def prepared(
    split: Split, layout: Schema, within_list: bool, before: models.Preparation | None = None
) -> models.Preparation:
    """Returns the preparation of features for a network, from the training statistics.

    Args:
        split: The training split.
        layout: Schema of a list.
        within_list: As in `models.Preparation`.
        before: The preparation of a model for a warm start. Its vocabularies are kept, and new
            values are appended up to `max_size`. Features with missing values before keep their
            indicator column.

    Raises:
        tfrank_sel.data.InputError: If a feature is constant, or if it has no earlier vocabulary and
            no value reaches the minimum count.
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
    measures = {name: np.array(values) for name, values in found.features.items()}
    missing = dict(zip(found.names, measures["missing"], strict=True))
    mean = measures["compressed_mean"]
    variance = summary.distinguishable(mean, measures["compressed_variance"])
    missing_before = before.missing if before else ()
    return models.Preparation(
        mean.tolist(),
        np.where(measures["min"] == measures["max"], 0.0, variance).tolist(),
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


def _reference(run: str | Path) -> statistics.Statistics:
    path = stores.join(run, "analyze", "statistics", "train.json")
    if not stores.is_file(path):
        raise data.InputError(str(run), f"expected the folder of a run. Received: no {path}")
    return statistics.Statistics.load(Path(stores.near(path)))


def _tell(split: str, anomalies: list[gating.Anomaly], folder: Path, step: Step) -> None:
    schema.write(anomalies, folder / "anomalies" / f"{split}.json")
    worst = max(
        anomalies, key=lambda anomaly: (anomaly.distance or 0.0, anomaly.count), default=None
    )
    step.tell(f"{split}: {len(anomalies)} anomalies" + (f"; {worst}" if worst else ""))
