"""Plan of a run: which steps must run, and why."""

import contextlib
import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Self

from tfrank_sel.data.rejections import InputError
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.files.manifests import Fingerprint, Manifest, Written
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.run.steps import STEPS

NOT_RUN, FORCED = "not run yet", "forced"


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
        paths = {x: [*step.files(job.configuration, sources)] for x, step in STEPS.items()}
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
            if name == "ingest" and not files:  # synthetic data
                chosen["training.seed"] = job.configuration.training.seed
            after = {x: planned[x].digest for x in step.after}
            manifest = Manifest(chosen, files, after)
            reason = NOT_RUN
            if written:
                before = _completed(values, chosen, written.inputs.configuration)
                reason = written.change(manifest, before)
            reason = reason or (FORCED if is_forced else "")
            planned[name] = PlannedStep(manifest, written, reason)
        return cls(job, planned)

    @classmethod
    @contextlib.contextmanager
    def held(cls, job: Job, force: str | None = None) -> Iterator[Self]:
        """Holds the folder of a job for this process alone, and provides the plan: see `of`.

        Raises:
            tfrank_sel.data.InputError: As `of`; or if another process holds the folder, or it is
                no folder of a run.
        """
        with job.mirror.held():
            try:
                for step in STEPS:
                    folders.recover(job.path, step)
                yield cls.of(job, force)
            finally:
                if not any((job.path / step).exists() for step in STEPS):
                    folders.clear(job.path)

    @property
    def stale(self) -> dict[str, str]:
        """The steps that must run, each with the reason."""
        return {name: step.reason for name, step in self.steps.items() if step.reason}

    @property
    def written(self) -> dict[str, Written]:
        """The manifests of the steps that have been run."""
        return {name: step.written for name, step in self.steps.items() if step.written}

    def is_due(self, only: str | None = None) -> bool:
        """Whether a step must run, or a file of the whole run is missing.

        Args:
            only: The only step; by default all.
        """
        if only is not None:
            return only in self.stale
        tracking = ["tracking.json"] if self.job.configuration.tracking.mlflow else []
        files = (self.job.path / name for name in ("report.html", *tracking))
        return bool(self.stale) or not all(file.exists() for file in files)

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
        for name, written in self.written.items():
            if name not in stale:
                written.check()


def _values(configuration: Configuration) -> dict[str, Any]:
    return configuration.absolute().model_dump(mode="json", by_alias=True)


def _value(values: Mapping[str, Any], key: str) -> Any:
    for part in key.split("."):
        values = values.get(part, {}) if isinstance(values, Mapping) else {}
    return values


def _completed(
    values: Mapping[str, Any], now: Mapping[str, Any], before: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The values of a step that was run, with the defaults of keys that its version did not have.

    Args:
        values: The configuration.
        now: The values in it of the keys of the step.
        before: The values of the step that was run.
    """
    whole = copy.deepcopy(dict(values))
    for key in {*now, *before}:
        section, _, name = key.rpartition(".")
        table = _value(whole, section) if section else whole
        table.pop(name, None)
        if key in before:
            table[name] = before[key]
    try:
        whole = _values(Configuration.model_validate(whole))
    except ValueError:  # what is no value any more
        return before
    return {**before, **{key: _value(whole, key) for key in now}}
