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
from tfrank_sel.pipelines.files import folders

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run


@dataclasses.dataclass(frozen=True)
class RunStep:
    """A step of a run, which writes a folder from the results of earlier steps.

    Args:
        name: Its name, and that of its folder.
        description: What it does, for the help of its command.
        take: Function of the run and the folder to write to.
        writes: Names of the files and folders that it writes for other steps to read.
        keys: The configuration keys on which it depends.
        after: The steps whose results it reads.
        files: Function from configuration and input files to the other files that it reads.
        is_gated: Whether data that fails a gate stops the run before it.
        resumes: Whether it continues after an interruption.
        seconds: The seconds that each shown part of it takes on a machine of reference, and those
            for a million items; of steps after `ingest`, which counts these.
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
    seconds: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)


def _ingest(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.ingestion.step import ingest

    ingest(run, folder)


def _ingest_files(configuration: Configuration, sources: Sequence[str]) -> Iterator[str]:
    for source in sources:
        if stores.is_dir(source):
            yield from stores.find(source)
        else:
            yield source
    if earlier := configuration.data.continue_from:
        yield stores.join(earlier, "ingest", folders.MANIFEST)


def _analyze(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.analysis.step import analyze

    analyze(run, folder)


def _analyze_files(configuration: Configuration, sources: Sequence[str]) -> Iterator[str]:
    data = configuration.data
    if data.reference:
        yield stores.join(data.reference, "analyze", folders.MANIFEST)
    if data.schema_:
        yield data.schema_


def _train(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.learning.step import Training

    Training.of(run, folder).run_as_chief()


def _train_files(configuration: Configuration, sources: Sequence[str]) -> Iterator[str]:
    """Yields the user's files with losses, models and other configured objects."""
    yield from configuration.modules
    modules = {Path(file).stem for file in configuration.modules}
    training, model = configuration.training, configuration.model
    tables = [model.model_dump(by_alias=True), training.model_dump(by_alias=True)]
    for module in sorted({name.partition(":")[0] for name in _functions(tables)} - modules):
        spec: Any = sys.modules.get(module)
        if spec is None:
            try:
                spec = importlib.util.find_spec(module)
            except (ImportError, ValueError):  # the import reports the error
                continue
        file = getattr(spec, "__file__", None) or getattr(spec, "origin", None)
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
        for inner in value:
            yield from _functions(inner)


def _evaluate(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.evaluation.step import evaluate

    evaluate(run, folder)


def _export(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.export.step import export

    export(run, folder)


def _push(run: "Run", folder: Path) -> None:
    from tfrank_sel.pipelines.push.step import push

    push(run, folder)


BASELINE, OURS = "training baseline", "training ours"  # parts of `train`
_OF_ANALYSIS = ("data.reference", "data.schema")
_OF_DATA = [key for key in map("data.{}".format, fields(Data)) if key not in _OF_ANALYSIS]
_OF_EXPORT = ("serving.model_name", "serving.description", "serving.recalibration")
STEPS = {
    step.name: step
    for step in (
        RunStep(
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
            files=_ingest_files,
            is_gated=False,
        ),
        RunStep(
            "analyze",
            "Compute statistics, schema and anomalies, and check them against the gates.",
            _analyze,
            ("statistics", "increment", "earlier", "schema.pbtxt", "anomalies", "failures.json"),
            keys=(*_OF_ANALYSIS, "gates"),
            after=("ingest",),
            files=_analyze_files,
            is_gated=False,
            seconds={"statistics": (0.3, 40.0), "validation": (0.2, 10.0)},
        ),
        RunStep(
            "train",
            "Train the model and the baseline; continues an interrupted training.",
            _train,
            ("ours.keras", "baseline.keras", "training.json"),
            keys=("modules", "model", "training", "evaluation"),
            after=("ingest",),
            files=_train_files,
            resumes=True,
            seconds={BASELINE: (5.0, 150.0), OURS: (5.0, 300.0)},
        ),
        RunStep(
            "evaluate",
            "Compare the model with the baseline on the test split.",
            _evaluate,
            ("metrics.json",),
            keys=("blessing.metric",),
            after=("train",),
            seconds={"evaluation": (3.5, 50.0)},
        ),
        RunStep(
            "export",
            "Export the SavedModel, and test it.",
            _export,
            ("saved_model", "model.onnx", "one_query.txt", "one_query.jsonl", folders.REQUEST),
            keys=("export", "blessing.metric", *_OF_EXPORT),
            after=("analyze", "evaluate"),
            seconds={"export": (4.0, 5.0), "infra validation": (8.0, 5.0)},
        ),
        RunStep(
            "push",
            "Compare the model with the served one, and publish it if it passes.",
            _push,
            ("pushed.json", "blessing.json"),
            keys=("blessing", "serving"),
            after=("analyze", "export"),
            seconds={"push": (1.0, 5.0)},
        ),
    )
}


def durations(names: Iterable[str], items: int, has_baseline: bool) -> dict[str, float]:
    """Returns the seconds of each shown part of a run on a machine of reference.

    Args:
        names: The steps.
        items: Number of items.
        has_baseline: Whether a baseline is trained, whose network is one of the model's.
    """
    parts = [{"start": (6.0, 0.0)}, *(STEPS[x].seconds for x in names), {"report": (8.0, 30.0)}]
    seconds = {
        part: fixed + growth * items / 1e6
        for step in parts
        for part, (fixed, growth) in step.items()
    }
    if not has_baseline and BASELINE in seconds:
        seconds[OURS] += seconds.pop(BASELINE)
    return seconds
