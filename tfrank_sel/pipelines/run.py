"""The run: from files of lists to a published ranker, one call after another."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions

from tfrank_sel import data, export, losses
from tfrank_sel.arguments import Checked
from tfrank_sel.data import letor, typed
from tfrank_sel.data.formats import Layout
from tfrank_sel.features import Feature
from tfrank_sel.pipelines import artefacts, preparation as steps, publication, training
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation import blessing, evaluation
from tfrank_sel.pipelines.evaluation.blessing import Blessing, Rules
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.lists import PackedLists
from tfrank_sel.pipelines.ingestion import stored
from tfrank_sel.pipelines.ingestion.inputs import Inputs
from tfrank_sel.pipelines.preparation import Split
from tfrank_sel.pipelines.reporting import report
from tfrank_sel.pipelines.training import PreparedLists, Trained

LABELS_TRIED = 7  # of those found, the least and the greatest


@dataclasses.dataclass(frozen=True)
class Plan(Checked):
    """What a run does.

    Args:
        inputs: What to read; a synthetic set is made if None.
        rules: What a model must be to be served.
        reference: The folder of another run: what drifted since then is told.
        options: Of every Beam pipeline; by default it runs in this process.
        model_name: Name under which the model is served.
        version: Version under which the model is served.
        candidate: What to train, evaluate and publish.
        baseline: What to train for comparison; if None, a random order takes its place.
        configuration: The configuration that describes the plan, as TOML; it is kept in the output
            folder as `config.toml`.
    """

    inputs: Inputs | None = None
    rules: Rules = dataclasses.field(default_factory=Rules)
    reference: Path | None = None
    options: PipelineOptions | None = None
    model_name: str = "ranker"
    version: int = 1
    candidate: Candidate = dataclasses.field(default_factory=Candidate)
    baseline: Candidate | None = dataclasses.field(
        default_factory=lambda: Candidate(losses.SoftmaxLoss())
    )
    configuration: str | None = None


@dataclasses.dataclass(frozen=True)
class Result:
    """What a run gives.

    Args:
        evaluation: Our model against the baseline on the test split.
        blessing: Whether our model may be served; if not, it is not published.
        trained: The models, `ours` and, if there is one, `baseline`.
        seconds: Duration of each step.
        model_base: Base path of the model for a server.
        one_query: File with one query of the test split: LETOR, or JSON lines of typed features.
    """

    evaluation: Evaluation
    blessing: Blessing
    trained: Mapping[str, Trained]
    seconds: Mapping[str, float]
    model_base: Path
    one_query: Path


def run(plan: Plan, output: Path, settings: Settings, progress: Progress) -> Result:
    """Makes a ranker from files of lists: everything in `output`, or nothing.

    Args:
        plan: What to do.
        output: Folder to make; new or empty.
        settings: How to train.
        progress: Told of each step.

    Returns:
        What came out; all else is in `output`.

    Raises:
        tfrank_sel.data.InputError: If the input or the output folder cannot be used; nothing is
            left at `output` then.
    """
    output = output.absolute()
    with artefacts.aside(output) as folder:
        if plan.configuration is not None:
            artefacts.write_text(folder / "config.toml", plan.configuration)
        inputs = plan.inputs
        if inputs is None:
            inputs = steps.synthesise(folder / "synthetic", settings.seed, progress)
        layout, splits = steps.ingested(inputs, folder, progress, options=plan.options)
        spec = inputs.spec(layout)
        steps.examine(
            spec, layout, splits, folder, progress, reference=plan.reference, options=plan.options
        )
        _check_losses(plan, splits["train"])
        trained = _train(plan, spec, layout, splits, settings, folder, progress)
        with progress.step("evaluation") as step:
            evaluated = evaluation.evaluate(
                trained["ours"].scores,
                trained["baseline"].scores if plan.baseline else None,
                PackedLists(splits["test"].shards, spec, layout.context),
                str(folder),
                seed=settings.seed,
                pipeline=beam.Pipeline(options=plan.options),
            )
            step.tell(f"{splits['test'].statistics.lists} queries of the test split")
            step.tell(f"{len(evaluated.slices) - 1} slices of them")
            blessed = blessing.bless(evaluated, plan.rules)
            artefacts.write_json(folder / "blessing.json", blessed.figures())
        types = inputs.types(layout)
        _publish(
            trained["ours"],
            spec,
            layout,
            types,
            splits,
            evaluated,
            blessed,
            folder,
            output,
            plan,
            progress,
        )
        first = _teaching_list(splits["test"], spec)
        one_query = "one_query.txt" if types is None else "one_query.jsonl"
        text = letor.text(first) if types is None else typed.text(first, types)
        artefacts.write_text(folder / one_query, text)
        _report(folder, settings, evaluated, trained, progress.seconds)
        with progress.step("report") as step:
            page = report.write(folder, spec, splits, trained, seed=settings.seed)
            step.tell(str(output / page.name))
    return Result(
        evaluated,
        blessed,
        trained,
        progress.seconds,
        model_base=output / "serving" / plan.model_name,
        one_query=output / one_query,
    )


def _check_losses(plan: Plan, split: Split) -> None:
    """Raises an error, before any training, if a loss cannot be computed for the labels found."""
    labels = sorted(map(float, split.statistics.labels))
    few = sorted({*labels[:LABELS_TRIED], labels[-1]})
    for candidate in filter(None, (plan.baseline, plan.candidate)):
        try:
            candidate.check(few)
        except ValueError as error:
            raise data.InputError("train", " ".join(str(error).split())) from error


def _train(
    plan: Plan,
    spec: data.FeatureSpec,
    layout: Layout,
    splits: Mapping[str, Split],
    settings: Settings,
    folder: Path,
    progress: Progress,
) -> dict[str, Trained]:
    """The candidate, and the baseline if there is one, each with the same settings."""
    trained: dict[str, Trained] = {}
    preparation = steps.prepared(splits["train"], layout, within_list=True)
    learned, held_out = (splits[name].batches(spec) for name in ("train", "validation"))
    made = folder / "models"
    made.mkdir()
    with PreparedLists(learned, held_out, settings, folder / "prepared") as lists:
        for name, candidate in (("baseline", plan.baseline), ("ours", plan.candidate)):
            if candidate is None:
                continue
            with progress.step(f"training {name}") as step:
                found = training.train(
                    candidate,
                    preparation,
                    lists,
                    settings,
                    folder / "logs" / name,
                    step.doing,
                    before=list(trained.values()),
                )
                found.model.save(made / f"{name}.keras")
                for fit in found.fits:
                    step.tell(str(fit))
                trained[name] = found
    return trained


def _publish(
    ours: Trained,
    spec: data.FeatureSpec,
    layout: Layout,
    types: Mapping[str, Feature] | None,
    splits: Mapping[str, Split],
    evaluated: Evaluation,
    blessed: Blessing,
    folder: Path,
    output: Path,
    plan: Plan,
    progress: Progress,
) -> None:
    saved_model = folder / "saved_model"
    with progress.step("export"):
        export.export(
            ours.model,
            types or spec,
            saved_model,
            doc_id=spec.doc_id,
            examples=publication.first_lists(splits["validation"].shards, spec, 4, types),
            metadata={
                "metrics": {name: x.ours for name, x in evaluated.overall.items()},
                "feature_names": layout.names,
                "blessed": blessed.blessed,
            },
        )
    with progress.step("infra validation") as step:
        shards = splits["test"].shards
        gap = publication.infra_validate(
            saved_model, ours.scores, spec, shards, lists=16, features=types
        )
        step.tell(f"every signature scores as the model does, to {gap:.1g}")
    if not blessed.blessed:
        return
    with progress.step("push") as step:
        serving = folder / "serving"
        publication.push(
            saved_model, serving, plan.model_name, plan.version, final=output / "serving"
        )
        step.tell(str(output / "serving" / plan.model_name / str(plan.version)))


def _teaching_list(split: Split, spec: data.FeatureSpec) -> data.ItemList:
    """The first list with two different labels."""
    lists = stored.lists(split.shards, spec)
    return next(found for found in lists if found.labels.min() < found.labels.max())


def _report(
    folder: Path,
    settings: Settings,
    evaluated: Evaluation,
    trained: Mapping[str, Trained],
    seconds: Mapping[str, float],
) -> None:
    artefacts.write_json(
        folder / "metrics.json",
        {
            **evaluated.figures(),
            "training": {name: value.figures() for name, value in trained.items()},
            "settings": dataclasses.asdict(settings),
            "seconds": dict(seconds),
        },
    )
