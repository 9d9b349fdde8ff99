"""The run: from files of lists to a published ranker, step by step."""

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from rich.console import Console

from tfrank_sel.data.lists import InputError
from tfrank_sel.pipelines import artefacts, folders, manifests, steps, workers
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import Configuration, text
from tfrank_sel.pipelines.configuration.inputs import complete
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.manifests import STEPS
from tfrank_sel.pipelines.mirrors import Mirror
from tfrank_sel.pipelines.reporting import report
from tfrank_sel.pipelines.runs import Run


def run(
    configuration: Configuration,
    output: str | Path,
    progress: Progress,
    *,
    only: str | None = None,
    force: str | None = None,
) -> Run:
    """Makes a ranker from files of lists, by the steps that are not up to date.

    Each step is in the folder whole or not at all. One whose configuration, files and earlier
    steps are as they were is not run again. A training that was interrupted goes on after its last
    epoch.

    Args:
        configuration: What to do.
        output: Folder of the run, a path or a URL: new, empty, or of a run.
        progress: Told of each step.
        only: The only step to run; by default all.
        force: The first step to run again, up to date or not, with all that follow.

    Returns:
        The run, with what came out.

    Raises:
        tfrank_sel.data.InputError: If the input or the folder cannot be used, or a step before
            `only` is not up to date.
        tfrank_sel.pipelines.configuration.ConfigurationError: If what is configured cannot be made.
    """
    configuration, inputs, _ = complete(configuration)
    tracker = _tracker(configuration) if only is None else None
    mirror = Mirror.of(output)
    found = Run(configuration, inputs, mirror, progress)
    chosen = tuple(STEPS) if only is None else (only,)
    sources = [source.path for source in inputs.sources] if inputs else []
    with mirror.held():
        for step in STEPS:
            folders.recover(found.output, step)
        wanted = manifests.current(configuration, sources, found.output)
        stale = manifests.stale(wanted, found.output)
        if force is not None:
            after = tuple(STEPS)[tuple(STEPS).index(force) :]
            stale = {step: stale.get(step, "forced") for step in (*stale, *after)}
        _check_turn(chosen, stale, output)
        # what cannot be made is told before anything is read
        _ = found.candidates, found.options, found.curated, workers.cluster(configuration)
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


def assist(configuration: Configuration, output: str, *, is_forced: bool = False) -> bool:
    """Trains together with the chief, which takes all steps, if `TF_CONFIG` says so.

    Args:
        configuration: That of the chief.
        output: Folder of the run, which the chief and this process see; or its URL if both are on
            one machine.
        is_forced: Whether to train even if that is up to date.

    Returns:
        Whether this process is a worker beside the chief.

    Raises:
        tfrank_sel.data.InputError: If the chief does not come, or a worker ends.
        tfrank_sel.pipelines.configuration.ConfigurationError: If `TF_CONFIG` cannot be used.
    """
    cluster = workers.cluster(configuration)
    if not cluster.index:
        return False
    mirror = Mirror.of(output)
    if mirror.url is not None and not cluster.is_of_one_machine:
        reason = "workers on several machines need a run in a folder that all of them see"
        raise InputError(mirror.url, f"{reason}. Received: the URL of a store")
    configuration, inputs, _ = complete(configuration)
    found = Run(configuration, inputs, mirror, Progress(Console(quiet=True)))
    sources = [source.path for source in inputs.sources] if inputs else []
    wanted = manifests.current(configuration, sources, found.output)

    def is_done() -> bool:
        return not is_forced and "train" not in manifests.stale(wanted, found.output)

    folder = folders.partial(found.output, "train")
    workers.assist(cluster, is_done, lambda x: steps.train_together(found, folder, x))
    return True


def _tracker(configuration: Configuration) -> ModuleType | None:
    """The module that logs runs, an extra, if they are to be logged."""
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
            reason = f"{before} must be up to date before {chosen[0]}; `run` takes all steps"
            raise InputError(str(output), f"{reason}. Received: {stale[before]}")


def _take(found: Run, step: str, manifest: manifests.Manifest, reason: str) -> None:
    """Takes one step."""
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
