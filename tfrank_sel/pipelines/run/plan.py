"""Plan of a run: which steps must run, and why."""

import contextlib
import copy
import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from tfrank_sel.data.rejections import InputError
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.configuration.section import absolute
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.files.manifests import Fingerprint, Manifest, Written
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.run.steps import STEPS

NOT_RUN, FORCED = "not run yet", "forced"
TRACKED = "tracking.json"


@dataclasses.dataclass(frozen=True)
class PlannedStep:
    """A step of a plan.

    Args:
        manifest: The manifest that it would have if it ran now.
        written: The manifest in its folder; None if it has not been run.
        reason: Why it must run; empty if it is up to date.
    """

    manifest: Manifest
    written: Written | None
    reason: str

    @property
    def digest(self) -> str:
        """Digest of the inputs of the step as it stands, which an earlier version may have made."""
        return self.manifest.digest if self.reason or not self.written else self.written.digest


@dataclasses.dataclass(frozen=True)
class Plan:
    """The steps of a run, compared with its folder: see `of`.

    Args:
        job: The job.
        steps: The steps by name, in order.
    """

    job: Job
    steps: Mapping[str, PlannedStep]

    @classmethod
    def of(cls, job: Job, force: str | None = None) -> Self:
        """Returns the plan of a job; each manifest in its folder is read once.

        Args:
            job: The job.
            force: The first step to run again even if up to date, with all later steps.

        Raises:
            tfrank_sel.data.InputError: If a file cannot be read, or the manifest of a step that is
                not forced is damaged.
        """
        values = _values(job.configuration)
        sources = [source.path for source in job.inputs.sources] if job.inputs else []
        paths = {x: [*map(absolute, y.files(job.configuration, sources))] for x, y in STEPS.items()}
        planned: dict[str, PlannedStep] = {}
        is_forced = False
        for name, step in STEPS.items():
            is_forced = is_forced or name == force
            try:
                written = Written.read(job.path, name)
            except InputError:
                if not is_forced:
                    raise
                written = None
            # of unmodified files, the digests are known
            before = written.inputs.files if written else {}
            files = {path: Fingerprint.of(path, before.get(path)) for path in paths[name]}
            chosen = {key: _value(values, key) for key in step.keys}
            # Without files the data is synthetic.
            if name == "ingest" and not files:
                chosen["training.seed"] = job.configuration.training.seed
            manifest = Manifest(chosen, files, {x: planned[x].digest for x in step.after})
            reason = NOT_RUN
            if written:
                reason = written.change(manifest, _complete(values, manifest, written, planned))
            reason = reason or (FORCED if is_forced else "")
            planned[name] = PlannedStep(manifest, written, reason)
        return cls(job, planned)

    @classmethod
    @contextlib.contextmanager
    def hold(cls, job: Job, force: str | None = None) -> Iterator[Self]:
        """Holds the folder of a job for this process alone, and provides the plan: see `of`.

        Raises:
            tfrank_sel.data.InputError: As `of`; or if another process holds the folder, or it is
                no folder of a run.
        """
        with job.mirror.hold():
            try:
                for step in STEPS:
                    folders.recover(job.path, step)
                yield cls.of(job, force)
            finally:
                if not any((job.path / step).exists() for step in STEPS):
                    (job.path / folders.CONFIGURATION).unlink(missing_ok=True)

    @property
    def stale(self) -> dict[str, str]:
        """The steps that must run, each with the reason."""
        return {name: step.reason for name, step in self.steps.items() if step.reason}

    @property
    def manifests(self) -> dict[str, Written]:
        """The manifests of the steps that have been run."""
        return {name: step.written for name, step in self.steps.items() if step.written}

    def is_due(self, only: str | None = None) -> bool:
        """Whether a step must run, or the report or the tracked run is not of the run as it is.

        Args:
            only: The only step; by default all.
        """
        if only is not None:
            return only in self.stale
        return bool(self.stale) or not (is_reported(self.job) and is_tracked(self.job))

    def check(self, first: str) -> None:
        """Raises an error unless the steps that are up to date are whole, and enough of them are.

        Args:
            first: The first step to run.

        Raises:
            tfrank_sel.data.InputError: If a step before the first one must run, or a file of a step
                that is up to date is missing or changed.
        """
        stale = self.stale
        for before in tuple(STEPS)[: tuple(STEPS).index(first)]:
            if before in stale:
                why = stale[before]
                what = f"{before} has {why}" if why == NOT_RUN else f"{why} since {before}"
                reason = f"{what}: run `{before}` before `{first}`"
                raise InputError(str(self.job.output), f"{reason}, or `run` for all steps")
        for name, written in self.manifests.items():
            if name not in stale:
                written.check()


def state(job: Job) -> str:
    """Returns the digest of what a report is made of: configuration, and results of all steps."""
    steps = {x: Fingerprint.of(str(job.path / x / folders.MANIFEST)).digest for x in STEPS}
    return Manifest(_values(job.configuration), {}, steps).digest


def mark(job: Job) -> str:
    """Returns the last line of the report of a run as it is, all of whose steps have been run."""
    return f"\n<!-- {state(job)} -->\n"


def is_reported(job: Job) -> bool:
    """Whether the report is that of the run as it is."""
    page = job.path / "report.html"
    return page.is_file() and page.read_bytes().endswith(mark(job).encode())


def is_tracked(job: Job) -> bool:
    """Whether the run as it is was logged to the end, if runs are logged."""
    uri, tracked = job.configuration.absolute().tracking.mlflow, read_tracking(job.path)
    return uri is None or (tracked.get("uri"), tracked.get("state")) == (str(uri), state(job))


def read_tracking(output: Path) -> dict[str, Any]:
    """Returns what `tracking.json` of a run says; nothing if it is missing or damaged."""
    try:
        return dict(json.loads((output / TRACKED).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        return {}


def _values(configuration: Configuration) -> dict[str, Any]:
    return configuration.absolute().model_dump(mode="json", by_alias=True)


def _value(values: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        values = values.get(part, {}) if isinstance(values, Mapping) else {}
    return values


def _complete(
    values: Mapping[str, Any], now: Manifest, written: Written, planned: Mapping[str, PlannedStep]
) -> Manifest:
    """The inputs of a step that was run, with what its version did not know.

    Args:
        values: The configuration.
        now: The inputs that it would have.
        written: The step that was run. Keys that it lacks get their defaults.
        planned: The steps before. Those that it lacks are as they are, unless they run again.
    """
    before = written.inputs
    configuration = dict(before.configuration)
    if configuration != now.configuration:  # or else there is nothing to complete, nor to check
        whole = copy.deepcopy(dict(values))
        for key in {*now.configuration, *configuration}:
            section, _, name = key.rpartition(".")
            table = _value(whole, section) if section else whole
            if isinstance(table, dict):  # a former section may be a value now
                table.pop(name, None)
                table |= {name: configuration[key]} if key in configuration else {}
        with contextlib.suppress(ValueError):  # what is no value any more
            whole = _values(Configuration.model_validate(whole))
            configuration |= {key: _value(whole, key) for key in now.configuration}
    files = {absolute(path): x for path, x in before.files.items()}
    known = {x: planned[x].digest for x in now.after if not planned[x].reason}
    return Manifest(configuration, files, {**known, **before.after})
