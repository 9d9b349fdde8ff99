"""The steps of a run: what each depends on, what it writes, and the function that takes it.

The functions are imported late, so that help, errors and finished runs do not wait for TensorFlow.
"""

import dataclasses
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tfrank_sel.data import stores
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.configuration.data import Data
from tfrank_sel.pipelines.configuration.section import fields
from tfrank_sel.pipelines.configuration.training import FUNCTION
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.files.manifests import Fingerprint, Manifest
from tfrank_sel.pipelines.ingestion.job import Job

if TYPE_CHECKING:
    from tfrank_sel.pipelines.ingestion.stored import Earlier
    from tfrank_sel.pipelines.learning.step import Training
    from tfrank_sel.pipelines.runs import Run


@dataclasses.dataclass(frozen=True)
class Step:
    """A step of a run, which writes a folder from the results of earlier steps.

    Args:
        name: Its name, and that of its folder.
        description: What it does, for the help of its command.
        take: Function of the run and the folder to write to; hands over what the step reads.
        writes: Names of the files and folders that it writes for other steps to read.
        keys: The configuration keys on which it depends.
        after: The steps whose results it reads.
        files: Function from configuration and input files to the other files that it reads.
        is_gated: Whether data that fails a gate stops the run before it.
        resumes: Whether it continues after an interruption.
    """

    name: str
    description: str
    take: "Callable[[Run, Path], None]"
    writes: tuple[str, ...]
    keys: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    files: Callable[[Configuration, Sequence[str]], Iterable[str]] = lambda *_: ()
    is_gated: bool = True
    resumes: bool = False


def _earlier(run: "Run") -> "Earlier | None":
    """The run that a run continues, after a check of its files."""
    if run.earlier is not None:
        manifests.check_written(run.earlier.path, STEPS)
    return run.earlier


def _ingest(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.ingestion.ingest import ingest_job

    ingest_job(run.job, run.progress, folder, _earlier(run), run.options)


def _ingested(configuration: Configuration, sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        if stores.is_dir(source):
            yield from stores.find(source)
        else:
            yield source
    if earlier := configuration.data.continue_from:
        yield stores.join(earlier, "ingest", folders.MANIFEST)


def _analyze(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.analysis.step import analyze

    found = run.records, _earlier(run), run.curated, run.options
    analyze(run.job, run.progress, folder, *found)


def _analyzed(configuration: Configuration, sources: Sequence[str]) -> Iterator[str]:
    data = configuration.data
    if data.reference:
        yield stores.join(data.reference, "analyze", folders.MANIFEST)
    if data.schema_:
        yield data.schema_


def training(run: "Run", folder: Path) -> "Training":
    """Returns the training of a run, which all of its workers do together."""
    from tfrank_sel.pipelines.learning import instantiate
    from tfrank_sel.pipelines.learning.step import Training

    candidates = run.candidates
    if run.configuration.training.region is not None:
        candidates = instantiate.named_candidates(run.configuration, run.labels)
    found = candidates, run.splits, run.settings, _earlier(run), run.group
    return Training(run.job, run.progress, folder, *found)


def _trained(configuration: Configuration, sources: Sequence[str]) -> Iterator[str]:
    """Yields the user's files with losses, models and other configured objects."""
    yield from configuration.modules
    known = {Path(file).stem for file in configuration.modules}
    training, model = configuration.training, configuration.model
    tables = [model.model_dump(by_alias=True), training.model_dump(by_alias=True)]
    for module in sorted({name.partition(":")[0] for name in _functions(tables)} - known):
        found: Any = sys.modules.get(module)
        if found is None:
            try:
                found = importlib.util.find_spec(module)
            except (ImportError, ValueError):  # the import reports the error
                continue
        file = getattr(found, "__file__", None) or getattr(found, "origin", None)
        if file and os.path.isfile(file):
            yield file
    if earlier := configuration.data.continue_from:
        yield stores.join(earlier, "train", folders.MANIFEST)


def _functions(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        name = value.get("class")
        if isinstance(name, str) and FUNCTION.fullmatch(name):
            yield name
        value = list(value.values())
    if isinstance(value, Sequence) and not isinstance(value, str):
        for one in value:
            yield from _functions(one)


def _evaluate(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.evaluation.step import evaluate

    found = run.scorers, run.splits, run.settings, run.options
    evaluate(run.job, run.progress, folder, *found)


def _export(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.reporting import card
    from tfrank_sel.pipelines.trial import export

    found = run.trained["ours"], run.scorers["ours"], run.splits, run.evaluation, card.facts(run)
    run.exported = export(run.job, run.progress, folder, *found)
    run.exported.moved(str(run.output / "export" / "saved_model"))


def _push(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.analysis import leakage
    from tfrank_sel.pipelines.push import push

    leaks = leakage.read(run.output / "analyze" / "anomalies" / "train.json")
    known = run.evaluation, leaks, run.digest("export"), run.pushed
    found = run.exported, run.splits["test"], *known
    push(run.job, run.progress, folder, *found, run.settings, run.options)


NOT_RUN = "not run yet"
_OF_ANALYSIS = ("data.reference", "data.schema")
_OF_DATA = [key for key in map("data.{}".format, fields(Data)) if key not in _OF_ANALYSIS]
STEPS = {
    step.name: step
    for step in (
        Step(
            "ingest",
            "Convert the files to records, split by query.",
            _ingest,
            (
                "records",
                "earlier",
                "synthetic",
                "clicks",
                "ingest.json",
                "layout.json",
                "dead_letters.jsonl",
            ),
            keys=(*_OF_DATA, "clicks", "features"),
            files=_ingested,
            is_gated=False,
        ),
        Step(
            "analyze",
            "Compute statistics, schema and anomalies, and check them against the gates.",
            _analyze,
            ("statistics", "increment", "earlier", "schema.pbtxt", "anomalies", "failures.json"),
            keys=(*_OF_ANALYSIS, "gates"),
            after=("ingest",),
            files=_analyzed,
            is_gated=False,
        ),
        Step(
            "train",
            "Train the model and the baseline; continues an interrupted training.",
            lambda run, folder: training(run, folder).run(),
            ("ours.keras", "baseline.keras", "training.json"),
            keys=("modules", "model", "training", "evaluation"),
            after=("ingest",),
            files=_trained,
            resumes=True,
        ),
        Step(
            "evaluate",
            "Compare the model with the baseline on the test split.",
            _evaluate,
            ("metrics.json",),
            after=("train",),
        ),
        Step(
            "export",
            "Export the SavedModel, and test it.",
            _export,
            ("saved_model", "model.onnx", "one_query.txt", "one_query.jsonl", folders.REQUEST),
            keys=("export", "serving.description", "serving.recalibration"),
            after=("evaluate",),
        ),
        Step(
            "push",
            "Compare the model with the served one, and publish it if it passes.",
            _push,
            ("pushed.json", "blessing.json"),
            keys=("blessing", "serving"),
            after=("analyze", "export"),
        ),
    )
}


def wanted(job: Job) -> dict[str, Manifest]:
    """Returns the manifest that each step would have if it ran now.

    The manifests in the folder have the digests of unmodified files.

    Raises:
        tfrank_sel.data.InputError: If a file cannot be read.
    """
    values = job.configuration.absolute().model_dump(mode="json", by_alias=True)
    sources = [source.path for source in job.inputs.sources] if job.inputs else []
    found: dict[str, Manifest] = {}
    for name, step in STEPS.items():
        written = manifests.read(job.path, name)
        known = Manifest.of(written).files if written else {}
        read = step.files(job.configuration, sources)
        files = {path: Fingerprint.of(path, known.get(path)) for path in read}
        chosen = {key: _value(values, key) for key in step.keys}
        if name == "ingest" and not files:  # synthetic data
            chosen["training.seed"] = job.configuration.training.seed
        found[name] = Manifest(chosen, files, {x: found[x].digest for x in step.after})
    return found


def stale(job: Job, now: Mapping[str, Manifest] | None = None) -> dict[str, str]:
    """Returns the steps that must run, each with the reason.

    Args:
        job: The job.
        now: Result of `wanted`, if it is known.
    """
    found = {}
    for name, manifest in (now or wanted(job)).items():
        written = manifests.read(job.path, name)
        reason = Manifest.of(written).change(manifest) if written else NOT_RUN
        if written and not reason and manifests.WRITTEN not in written:
            reason = manifests.NO_DIGESTS
        if reason:
            found[name] = reason
    return found


def _value(values: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        values = values.get(part, {}) if isinstance(values, Mapping) else {}
    return values


def seconds(output: Path) -> dict[str, float]:
    """Returns the duration of each part of the steps of a run, from when they ran."""
    found = (manifests.read(output, step) or {"seconds": {}} for step in STEPS)
    return {name: value for one in found for name, value in one["seconds"].items()}
