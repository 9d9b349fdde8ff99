"""Comparison of two runs: models on the same lists, settings and training."""

import dataclasses
import tempfile
from pathlib import Path
from typing import Any

from tfrank_sel.data.rejections import rejection
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.configuration import load
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.evaluation import evaluation
from tfrank_sel.pipelines.evaluation.evaluation import Evaluation
from tfrank_sel.pipelines.evaluation.saved import RecordScorer
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.run import registry
from tfrank_sel.pipelines.run.results import Run


@dataclasses.dataclass(frozen=True)
class Compared:
    """Two runs side by side.

    Args:
        names: Name of each run: that of its folder, or the path if the names are equal.
        settings: The keys with different values, and both values.
        fits: Training results of each loss, by the name of the run.
        evaluation: The second model, as `ours`, against the first.
    """

    names: tuple[str, str]
    settings: list[tuple[str, Any, Any]]
    fits: dict[str, list[dict[str, Any]]]
    evaluation: Evaluation


def compare(a: Path, b: Path, progress: Progress) -> Compared:
    """Compares two runs, on the test split of the first.

    Args:
        a: Folder of a run whose model is exported.
        b: Folder of another run, whose features are in the lists of the first.
        progress: Progress display.

    Raises:
        tfrank_sel.data.InputError: If a folder is not a run, its model is not exported, or the
            lists lack features of the second model.
        ConfigurationError: If the configuration of the first cannot be read.
    """
    if a.resolve() == b.resolve():
        raise rejection(str(b), "expected another run than the first", "the same")
    settings, fits = (
        registry.differing_keys(a, b),
        [registry.read_fits(folder) for folder in (a, b)],
    )
    run = Run(Job(load(a / folders.CONFIGURATION), None, a), progress)
    test = run.splits["test"]
    first, second = (RecordScorer(str(_saved_model(x)), test.layout.features) for x in (a, b))
    names = (a.name, b.name) if a.absolute().name != b.absolute().name else (str(a), str(b))
    with progress.step("evaluation") as step, tempfile.TemporaryDirectory() as scratch:
        compared = evaluation.evaluate(
            second,
            first,
            test,
            scratch,
            seed=run.settings.seed,
            against=names[0],
            gain=run.settings.gain,
            pipeline=runners.pipeline(run.options),
        )
        step.tell(f"{test.statistics.lists} queries of the test split of {names[0]}")
    return Compared(names, settings, dict(zip(names, fits, strict=True)), compared)


def _saved_model(folder: Path) -> Path:
    saved_model = folder / "export" / "saved_model"
    if not saved_model.is_dir():
        reason = "expected the folder of a run whose model is exported"
        raise rejection(str(folder), reason, "no export/saved_model")
    return saved_model
