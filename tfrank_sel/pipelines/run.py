"""A run: all steps from files of lists to a published ranker."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from rich.console import Console

from tfrank_sel.data import stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines import steps
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import Configuration, text
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.files.manifests import Manifest
from tfrank_sel.pipelines.ingestion.job import Job
from tfrank_sel.pipelines.learning import workers
from tfrank_sel.pipelines.runs import Run
from tfrank_sel.pipelines.steps import STEPS, Step


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
    return carry_out(Job.of(configuration, output), progress, only=only, force=force)


def carry_out(
    job: Job, progress: Progress, *, only: str | None = None, force: str | None = None
) -> Run:
    """Runs the steps of a job; see `run`."""
    configuration, mirror = job.configuration, job.mirror
    tracker = _tracker(configuration) if only is None else None
    result = Run(job, progress)
    chosen = tuple(STEPS) if only is None else (only,)
    with mirror.held():
        for step in STEPS:
            folders.recover(result.output, step)
        after = () if force is None else tuple(STEPS)[tuple(STEPS).index(force) :]
        manifests.drop_damaged(result.output, after)
        now = steps.wanted(job)
        stale = steps.stale(job, now)
        if force is not None:
            stale = {step: stale.get(step, "forced") for step in (*stale, *after)}
        _check_turn(chosen[0], stale, job.output)
        manifests.check_written(result.output, [step for step in STEPS if step not in stale])
        if "train" in stale and "train" in chosen:
            _ = result.group  # before TensorFlow makes objects
        _check_objects(result)
        try:
            for step in chosen:
                if STEPS[step].is_gated:
                    _check_gates(result)
                if step in stale:
                    _take(result, STEPS[step], now[step], stale[step])
                else:
                    progress.skip(step)
                    mirror.send(step)
            if only is None and (stale or not (result.output / "report.html").exists()):
                # Matplotlib takes as long to import as some steps
                from tfrank_sel.pipelines.reporting import report

                with progress.step("report") as told:
                    page = report.write(result, steps.seconds(result.output))
                    told.tell(str(page))
            if tracker is not None:
                with progress.step("tracking") as told:
                    told.tell(tracker.log(configuration, result.output))
            mirror.send_beside()
        finally:
            if not any((result.output / step).exists() for step in STEPS):
                folders.clear(result.output)
    return result


def check(job: Job) -> dict[str, str]:
    """Returns the steps that a run would take, each with the reason; nothing is written.

    Args:
        job: The job; of its local copy if it is in a store.

    Raises:
        tfrank_sel.pipelines.configuration.ConfigurationError: If a configured object cannot be
            created.
    """
    _check_objects(Run(job, Progress(Console(quiet=True))))
    return steps.stale(job)


def _check_objects(result: Run) -> None:
    """Raises an error, before data are read, for a configured object that cannot be created."""
    _ = result.candidates, result.options, result.curated


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
        tfrank_sel.data.InputError: If a worker is lost.
        tfrank_sel.pipelines.configuration.ConfigurationError: If `TF_CONFIG` is invalid.
    """
    cluster = workers.cluster(configuration)
    if not cluster.index:
        return False
    if stores.is_remote(output) and not cluster.is_of_one_machine:
        reason = "workers on several machines require a run folder that all of them can access"
        raise InputError(output.rstrip("/"), f"{reason}. Received: the URL of a store")
    job = Job.of(configuration, output)
    if is_forced or "train" in steps.stale(job):
        result = Run(job, Progress(Console(quiet=True)))
        with workers.watched(job.place):
            result.group.wait()  # for the steps before
            steps.training(result, folders.partial(job.path, "train")).together()
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


def _check_gates(result: Run) -> None:
    failures = json.loads((result.output / "analyze" / "failures.json").read_text())
    if failures:
        raise GateError(failures)


def _check_turn(step: str, stale: Mapping[str, str], output: str | Path) -> None:
    for before in tuple(STEPS)[: tuple(STEPS).index(step)]:
        if before in stale:
            why = stale[before]
            what = f"{before} has {why}" if why == steps.NOT_RUN else f"{why} since {before}"
            reason = f"{what}: run `{before}` before `{step}`"
            raise InputError(str(output), f"{reason}, or `run` for all steps")


def _take(result: Run, step: Step, manifest: Manifest, reason: str) -> None:
    """Takes a step."""
    progress = result.progress
    if (result.output / step.name).exists():
        progress.note(f"{step.name} is run again: {reason}")
    known = set(progress.seconds)
    with folders.room_for(result.output):
        configuration = text(result.configuration.absolute())
        folders.write_text(result.output / folders.CONFIGURATION, configuration)
        with folders.step(
            result.output, step.name, manifest.digest, resumes=step.resumes
        ) as folder:
            step.take(result, folder)
            manifests.check_unchanged(manifest)
            seconds = {name: x for name, x in progress.seconds.items() if name not in known}
            manifest.write(folder, step.writes, seconds)
    result.job.mirror.send(step.name)
