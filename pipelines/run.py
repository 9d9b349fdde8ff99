"""The run: from LETOR files to a published ranker, one call after another."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import keras

from pipelines import artefacts, evaluation, ingest, publication, schema, statistics, training
from pipelines.console import Progress
from pipelines.training import Settings, Split, Trained
from tfrank_sel import data, export, links, losses
from tfrank_sel.data import letor, synthetic

SYNTHETIC_LISTS = {"train": 400, "validation": 100, "test": 100}


def scaling(found: statistics.Statistics) -> links.Link:
    """Returns the scaling of our loss: a sigmoid centred on the grades.

    Grades are the scores to match, so the link stands on their scale. Below the middle grade a
    slip costs little, above it the loss ranks like a softmax: what is relevant must be told apart.

    Args:
        found: Statistics of the training split.
    """
    highest = max(float(label) for label in found.labels)
    return links.Sigmoid(scale=1.0, shift=0.5 * highest)


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run gives.

    Args:
        comparisons: Our model against the baseline on the test split, by metric.
        trained: The models, `baseline` and `ours`.
        seconds: Duration of each step.
        model_base: Base path of the model for a server.
        one_query: LETOR file with one query of the test split.
    """

    comparisons: Mapping[str, evaluation.Comparison]
    trained: Mapping[str, Trained]
    seconds: Mapping[str, float]
    model_base: Path
    one_query: Path


def run(
    sources: Mapping[str, Path] | None,
    output: Path,
    settings: Settings,
    progress: Progress,
    *,
    model_name: str = "ranker",
    version: int = 1,
) -> Result:
    """Makes a ranker from LETOR files: everything in `output`, or nothing.

    Args:
        sources: LETOR or SVMLight file of each split, `train`, `validation` and `test`; a synthetic
            set is made if None.
        output: Folder to make; new or empty.
        settings: How to train.
        progress: Told of each step.
        model_name: Name under which the model is served.
        version: Version under which the model is served.

    Returns:
        What came out; all else is in `output`.

    Raises:
        tfrank_sel.data.InputError: If the input or the output folder cannot be used; nothing is
            left at `output` then.
    """
    output = output.absolute()
    with artefacts.aside(output) as folder:
        if sources is None:
            with progress.step("synthesis") as step:
                sources = _synthesise(folder / "synthetic", settings.seed)
                step.tell(f"no files given: made a synthetic set of {SYNTHETIC_LISTS} lists")
        spec, splits = _ingest(sources, folder, progress)
        _examine(spec, splits, folder, progress)
        trained = _train(spec, splits, settings, folder, progress)
        with progress.step("evaluation") as step:
            comparisons = evaluation.compare(
                trained["baseline"].model,
                trained["ours"].model,
                spec,
                splits["test"],
                batch_size=settings.batch_size,
                seed=settings.seed,
            )
            step.tell(f"{splits['test'].statistics.lists} queries of the test split")
        _publish(
            trained["ours"].model,
            spec,
            splits,
            comparisons,
            folder,
            output,
            model_name,
            version,
            progress,
        )
        first = _teaching_list(sources["test"], spec)
        artefacts.write_text(folder / "one_query.txt", letor.text(first))
        _report(folder, settings, comparisons, trained, progress.seconds)
    return Result(
        comparisons,
        trained,
        progress.seconds,
        model_base=output / "serving" / model_name,
        one_query=output / "one_query.txt",
    )


def _synthesise(folder: Path, seed: int) -> dict[str, Path]:
    folder.mkdir(parents=True)
    lists = synthetic.lists(sum(SYNTHETIC_LISTS.values()), seed=seed)
    sources = {}
    for split, count in SYNTHETIC_LISTS.items():
        sources[split] = folder / f"{split}.txt"
        letor.write(sources[split], (next(lists) for _ in range(count)))
    return sources


def _ingest(
    sources: Mapping[str, Path], folder: Path, progress: Progress
) -> tuple[data.FeatureSpec, dict[str, Split]]:
    """LETOR to records and their statistics, for each split."""
    shards = {}
    with progress.step("ingest") as step:
        spec = data.FeatureSpec(letor.num_features(sources["train"]))
        (folder / "records").mkdir()
        for split, source in sources.items():
            step.doing(str(source))
            shards[split] = ingest.ingest(source, spec, folder / "records" / split)
        step.tell(f"{spec.num_features} features")
    splits = {}
    with progress.step("statistics") as step:
        for split in sources:
            step.doing(split)
            path = folder / "statistics" / f"{split}.json"
            splits[split] = Split(shards[split], statistics.summarise(shards[split], spec, path))
            _check_comparable(splits[split].statistics, sources[split])
            step.tell(f"{split}: {_described(splits[split].statistics)}")
    return spec, splits


def _described(found: statistics.Statistics) -> str:
    sizes = found.list_sizes
    described = f"{found.lists} lists of {min(sizes)} to {max(sizes)} items, {found.items} items"
    if 1 in sizes:
        described += f", {sizes[1]} lists of one item (no order to learn)"
    return described


def _check_comparable(found: statistics.Statistics, source: Path) -> None:
    if found.comparable_lists == 0:
        labels = ", ".join(found.labels)
        raise data.InputError(
            str(source),
            "expected a list with two different labels. "
            f"Received: {found.lists} lists, each with one label throughout (labels: {labels})",
        )


def _examine(
    spec: data.FeatureSpec, splits: Mapping[str, Split], folder: Path, progress: Progress
) -> None:
    with progress.step("schema") as step:
        path = folder / "schema.pbtxt"
        inferred = schema.infer(splits["train"].statistics, spec, path)
        step.tell(f"inferred from train: {path.name}")
    with progress.step("validation") as step:
        for split in ("validation", "test"):
            step.doing(split)
            path = folder / "anomalies" / f"{split}.json"
            anomalies = schema.validate(splits[split].shards, inferred, spec, path)
            worst = max(anomalies, key=lambda anomaly: anomaly.count, default=None)
            step.tell(f"{split}: {len(anomalies)} anomalies" + (f"; {worst}" if worst else ""))


def _train(
    spec: data.FeatureSpec,
    splits: Mapping[str, Split],
    settings: Settings,
    folder: Path,
    progress: Progress,
) -> dict[str, Trained]:
    """The same network and budget, once with each loss."""
    candidates: dict[str, keras.losses.Loss] = {
        "baseline": losses.SoftmaxLoss(),
        "ours": losses.SelectiveSoftmaxLoss(scaling(splits["train"].statistics)),
    }
    trained = {}
    for name, loss in candidates.items():
        with progress.step(f"training {name}") as step:
            trained[name] = training.train(
                loss,
                spec,
                splits["train"],
                splits["validation"],
                settings,
                folder / "logs" / name,
                folder / "models" / f"{name}.keras",
                on_epoch=step.doing,
            )
            step.tell(
                f"{type(loss).__name__}: {trained[name].epochs} epochs, "
                f"best validation NDCG@10 {trained[name].validation_ndcg:.4f}"
            )
    return trained


def _publish(
    model: keras.Model,
    spec: data.FeatureSpec,
    splits: Mapping[str, Split],
    comparisons: Mapping[str, evaluation.Comparison],
    folder: Path,
    output: Path,
    model_name: str,
    version: int,
    progress: Progress,
) -> None:
    saved_model = folder / "saved_model"
    with progress.step("export"):
        export.export(
            model,
            spec,
            saved_model,
            examples=publication.first_lists(splits["validation"].shards, 4),
            metadata={"metrics": {name: x.ours for name, x in comparisons.items()}},
        )
    with progress.step("infra validation") as step:
        shards = splits["test"].shards
        gap = publication.infra_validate(saved_model, model, spec, shards, lists=16)
        step.tell(f"every signature scores as the model does, to {gap:.1g}")
    with progress.step("push") as step:
        serving = folder / "serving"
        publication.push(saved_model, serving, model_name, version, final=output / "serving")
        step.tell(str(output / "serving" / model_name / str(version)))


def _teaching_list(source: Path, spec: data.FeatureSpec) -> data.ItemList:
    """The first list with two different labels."""
    lists = letor.read(source, spec.num_features)
    return next(found for found in lists if found.labels.min() < found.labels.max())


def _report(
    folder: Path,
    settings: Settings,
    comparisons: Mapping[str, evaluation.Comparison],
    trained: Mapping[str, Trained],
    seconds: Mapping[str, float],
) -> None:
    artefacts.write_json(
        folder / "metrics.json",
        {
            "metrics": {name: dataclasses.asdict(value) for name, value in comparisons.items()},
            "training": {name: value.figures() for name, value in trained.items()},
            "settings": dataclasses.asdict(settings),
            "seconds": dict(seconds),
        },
    )
