"""Execution of a run: all steps from files of lists to a published ranker.

What needs TensorFlow is imported late, so that help, errors and finished runs do not wait for it.
"""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from tfrank_sel.data import stores
from tfrank_sel.data.rejections import rejection
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import Configuration, text
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.run.plan import Plan, is_reported, is_tracked, mark, state
from tfrank_sel.pipelines.run.steps import STEPS, durations
from tfrank_sel.terminal import Terminal

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run


def run(
    configuration: Configuration,
    output: str | Path,
    progress: Progress,
    *,
    only: str | None = None,
    force: str | None = None,
) -> "Run":
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
    job = Job.of(configuration, output)
    if result := carry_out(job, progress, only=only, force=force):
        return result
    from tfrank_sel.pipelines.run.results import Run

    return Run(job, progress)


def carry_out(
    job: Job, progress: Progress, *, only: str | None = None, force: str | None = None
) -> "Run | None":
    """Runs the steps of a job, as `run`; returns None if nothing was to do."""
    chosen = tuple(STEPS) if only is None else (only,)
    with Plan.hold(job, force) as plan:
        plan.check(chosen[0])
        if plan.is_due(only) or job.mirror.url:
            return _carry_out(plan, progress, chosen)
        _keep(job)
        for step in chosen:
            progress.skip(step)
        return None


def _carry_out(plan: Plan, progress: Progress, chosen: Sequence[str]) -> "Run":
    job, stale, is_whole = plan.job, plan.stale, len(chosen) > 1
    with progress.step("start"):
        with quiet():
            from tfrank_sel.pipelines.run.results import Run
        tracker = _tracker(job.configuration) if is_whole else None
        result = Run(job, progress)
        result.step_manifests = plan.manifests
        result.prepare("train" in stale and "train" in chosen)
    _keep(job)
    for step in chosen:
        gates = result.output / "analyze" / "failures.json"
        if STEPS[step].is_gated and (failures := folders.read_json(gates)):
            raise GateError(failures)
        if step in stale:
            _run_step(result, plan, step)
        else:
            progress.skip(step)
            job.mirror.send(step)
        if is_whole and step == "ingest":
            splits = folders.read_json(result.output / step / "ingest.json")["splits"]
            items = sum(split["items"] for split in splits.values())
            has_baseline = job.configuration.evaluation.baseline is not False
            progress.expect(durations(stale, items, has_baseline))
    if is_whole and (stale or not is_reported(job)):
        # Matplotlib takes as long to import as some steps
        from tfrank_sel.pipelines.reporting import report

        with progress.step("report") as part:
            part.tell(str(report.write(result, mark(job))))
    if tracker and not is_tracked(job):
        with progress.step("tracking") as part:
            part.tell(tracker.log(job.configuration, result.output, state(job)))
    job.mirror.send_beside()
    return result


def _keep(job: Job) -> None:
    """Writes the configuration to the folder, for later calls, also if no step depends on it."""
    path, configuration = job.path / folders.CONFIGURATION, text(job.configuration.absolute())
    if not path.is_file() or path.read_text(encoding="utf-8") != configuration:
        with folders.room_for(job.path):
            folders.write_text(path, configuration)


def check(job: Job, force: str | None = None) -> Plan:
    """Returns the plan of a job, after a check of its configuration; nothing is written.

    Args:
        job: The job; of its local copy if it is in a store.
        force: The first step to run again.

    Raises:
        tfrank_sel.pipelines.configuration.ConfigurationError: If a configured object cannot be
            created.
    """
    with quiet():
        from tfrank_sel.pipelines.run.results import Run

    Run(job, Progress(Terminal(quiet=True))).prepare()
    return Plan.of(job, force)


def assist(configuration: Configuration, output: str, *, force: str | None = None) -> bool:
    """Trains together with the chief, which runs all steps, if `TF_CONFIG` names this worker.

    Args:
        configuration: The configuration of the chief.
        output: Folder of the run, accessible to the chief and this process; or its URL if both are
            on one machine.
        force: The first step that the chief runs again.

    Returns:
        Whether this process is a worker other than the chief.

    Raises:
        tfrank_sel.data.InputError: If a worker is lost.
        tfrank_sel.pipelines.configuration.ConfigurationError: If `TF_CONFIG` is invalid.
    """
    with quiet():
        from tfrank_sel.pipelines.learning import workers
        from tfrank_sel.pipelines.learning.step import Training
        from tfrank_sel.pipelines.run.results import Run

    cluster = workers.cluster(configuration)
    if not cluster.index:
        return False
    if stores.is_remote(output) and not cluster.is_of_one_machine:
        reason = "workers on several machines require a run folder that all of them can access"
        raise rejection(output.rstrip("/"), reason, "the URL of a store")
    job = Job.of(configuration, output)
    if "train" in Plan.of(job, force).stale:
        result = Run(job, Progress(Terminal(quiet=True)))
        with workers.watch_workers(job.place):
            # Workers wait here for the steps before the training.
            result.group.wait()
            Training.of(result, folders.partial(job.path, "train")).together()
    return True


def _tracker(configuration: Configuration) -> ModuleType | None:
    """The module that logs runs (an extra), if runs should be logged."""
    if configuration.tracking.mlflow is None:
        return None
    try:
        from tfrank_sel.pipelines.run import tracking
    except ImportError as error:
        raise configuration.error("tracking.mlflow", str(error), "no mlflow") from error
    return tracking


def _run_step(result: "Run", plan: Plan, name: str) -> None:
    """Takes a step."""
    progress, step, manifest = result.progress, STEPS[name], plan.steps[name].manifest
    if (result.output / name).exists():
        progress.note(f"{name} is run again: {plan.stale[name]}")
    earlier = set(progress.seconds)
    output, key = result.output, manifest.digest
    with folders.room_for(output), folders.step(output, name, key, resumes=step.resumes) as folder:
        step.take(result, folder)
        manifests.check_unchanged(manifest)
        seconds = {part: x for part, x in progress.seconds.items() if part not in earlier}
        manifest.write(folder, step.writes, seconds)
    result.step_manifests.update(manifests.read_manifests(result.output, [name]))
    result.job.mirror.send(name)
