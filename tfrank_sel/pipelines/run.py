"""A run: all steps from files of lists to a published ranker."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console

from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines import steps
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import Configuration, text
from tfrank_sel.pipelines.configuration.inputs import resolve
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import artefacts, folders, manifests
from tfrank_sel.pipelines.files.manifests import STEPS
from tfrank_sel.pipelines.files.mirrors import Mirror
from tfrank_sel.pipelines.learning import workers
from tfrank_sel.pipelines.runs import Run


def run(
    configuration: Configuration,
    output: str | Path,
    progress: Progress,
    *,
    only: str | None = None,
    force: str | None = None,
) -> Run:
    """Trains a ranker from files of lists, running the steps that are not up to date.

    Each step appears in the folder only when it is complete. A step whose configuration, files and
    earlier steps are unchanged is not run again. An interrupted training continues after its last
    epoch.

    Args:
        configuration: The configuration.
        output: Folder of the run, a path or a URL: new, empty, or of a run.
        progress: Progress display.
        only: The only step to run; by default all.
        force: The first step to run again even if up to date, with all later steps.

    Returns:
        The run, with its results.

    Raises:
        tfrank_sel.data.InputError: If the input or the folder is invalid, or a step before `only`
            is not up to date.
        tfrank_sel.pipelines.configuration.ConfigurationError: If a configured object cannot be
            created.
    """
    configuration, inputs, _ = resolve(configuration)
    tracker = _tracker(configuration) if only is None else None
    mirror = Mirror.of(output)
    found = Run(configuration, inputs, mirror, progress)
    chosen = tuple(STEPS) if only is None else (only,)
    sources = [source.path for source in inputs.sources] if inputs else []
    with mirror.held():
        for step in STEPS:
            folders.recover(found.output, step)
        after = () if force is None else tuple(STEPS)[tuple(STEPS).index(force) :]
        manifests.drop_damaged(found.output, after)
        wanted = manifests.current(configuration, sources, found.output)
        stale = manifests.stale(wanted, found.output)
        if force is not None:
            stale = {step: stale.get(step, "forced") for step in (*stale, *after)}
        _check_turn(chosen, stale, output)
        manifests.check_written(found.output, [step for step in STEPS if step not in stale])
        _check_objects(found)
        try:
            for step in chosen:
                if step not in ("ingest", "analyze"):
                    _check_gates(found)
                if step in stale:
                    _take(found, step, wanted[step], stale[step])
                else:
                    progress.skip(step)
                    mirror.send(step)
            if only is None and (stale or not (found.output / "report.html").exists()):
                # Matplotlib takes as long to import as some steps
                from tfrank_sel.pipelines.reporting import report

                with progress.step("report") as told:
                    page = report.write(found)
                    told.tell(str(page))
            if tracker is not None:
                with progress.step("tracking") as told:
                    told.tell(tracker.log(configuration, found.output))
            mirror.send_beside()
        finally:
            if not any((found.output / step).exists() for step in STEPS):
                folders.clear(found.output)
    return found


def plan(configuration: Configuration, output: str | Path) -> dict[str, str]:
    """Returns the steps that a run would take, each with the reason; nothing is written.

    Args:
        configuration: The configuration.
        output: Folder of the run, as in `run`; its local copy if it is the URL of a store.

    Raises:
        tfrank_sel.data.InputError: If the input is invalid.
        tfrank_sel.pipelines.configuration.ConfigurationError: If a configured object cannot be
            created.
    """
    configuration, inputs, _ = resolve(configuration)
    found = Run(configuration, inputs, Mirror.of(output), Progress(Console(quiet=True)))
    _check_objects(found)
    sources = [source.path for source in inputs.sources] if inputs else []
    return manifests.stale(manifests.current(configuration, sources, found.output), found.output)


def _check_objects(found: Run) -> None:
    """Raises an error, before data are read, for a configured object that cannot be created."""
    _ = found.candidates, found.options, found.curated, workers.cluster(found.configuration)


def assist(configuration: Configuration, output: str, *, is_forced: bool = False) -> bool:
    """Trains together with the chief, which runs all steps, if `TF_CONFIG` names this worker.

    Args:
        configuration: The configuration of the chief.
        output: Folder of the run, accessible to the chief and this process; or its URL if both are
            on one machine.
        is_forced: Whether to train even if training is up to date.

    Returns:
        Whether this process is a worker other than the chief.

    Raises:
        tfrank_sel.data.InputError: If the chief does not start, or a worker is lost.
        tfrank_sel.pipelines.configuration.ConfigurationError: If `TF_CONFIG` is invalid.
    """
    cluster = workers.cluster(configuration)
    if not cluster.index:
        return False
    mirror = Mirror.of(output)
    if mirror.url is not None and not cluster.is_of_one_machine:
        reason = "workers on several machines require a run folder that all of them can access"
        raise InputError(mirror.url, f"{reason}. Received: the URL of a store")
    configuration, inputs, _ = resolve(configuration)
    found = Run(configuration, inputs, mirror, Progress(Console(quiet=True)))
    sources = [source.path for source in inputs.sources] if inputs else []
    wanted = manifests.current(configuration, sources, found.output)

    def is_done() -> bool:
        return not is_forced and "train" not in manifests.stale(wanted, found.output)

    folder = folders.partial(found.output, "train")
    workers.assist(cluster, is_done, lambda x: steps.train_together(found, folder, x))
    return True


def _tracker(configuration: Configuration) -> ModuleType | None:
    """The module that logs runs (an extra), if runs should be logged."""
    if configuration.tracking.mlflow is None:
        return None
    try:
        from tfrank_sel.pipelines import tracking
    except ImportError as error:
        raise configuration.error("tracking.mlflow", f"{error}. Received: no mlflow") from error
    return tracking


def _check_gates(found: Run) -> None:
    failures = json.loads((found.output / "analyze" / "failures.json").read_text())
    if failures:
        raise GateError(failures)


def _check_turn(chosen: Sequence[str], stale: Mapping[str, str], output: str | Path) -> None:
    for before in tuple(STEPS)[: tuple(STEPS).index(chosen[0])]:
        if before in stale:
            reason = f"{before} must be up to date before {chosen[0]}; `run` runs all steps"
            raise InputError(str(output), f"{reason}. Received: {stale[before]}")


def _take(found: Run, step: str, manifest: manifests.Manifest, reason: str) -> None:
    """Runs one step."""
    progress = found.progress
    if (found.output / step).exists():
        progress.note(f"{step} is run again: {reason}")
    known = set(progress.seconds)
    with artefacts.room_for(found.output), contextlib.ExitStack() as stack:
        configuration = text(found.configuration.absolute())
        folders.write_text(found.output / folders.CONFIGURATION, configuration)
        folder = stack.enter_context(
            folders.step(found.output, step, manifest.digest, resumes=step == "train")
        )
        steps.TAKE[step](found, folder)
        manifests.check_unchanged(manifest)
        seconds = {name: x for name, x in progress.seconds.items() if name not in known}
        manifest.write(folder, seconds)
    found.mirror.send(step)
