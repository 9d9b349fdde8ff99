"""Search for a configuration by Optuna, in a folder shared by processes."""

import contextlib
import gc
import json
import shutil
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import keras
import numpy as np
from rich.console import Console
from rich.text import Text

from tfrank_sel import artefacts
from tfrank_sel.data.rejections import rejection
from tfrank_sel.errors import received, require_extra
from tfrank_sel.locks import hold
from tfrank_sel.pipelines.configuration import (
    Configuration,
    ConfigurationError,
    Override,
    load,
    text,
    with_overrides,
)
from tfrank_sel.pipelines.configuration.sections import without_secrets
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.files import folders, manifests
from tfrank_sel.pipelines.ingestion.inputs import Job
from tfrank_sel.pipelines.learning import instantiate
from tfrank_sel.pipelines.run import registry
from tfrank_sel.pipelines.run.execution import run
from tfrank_sel.pipelines.run.plan import Plan
from tfrank_sel.terminal import Terminal
from tfrank_sel.training.callbacks import Epoch

with require_extra("`tune`", "tune"):
    import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

DATABASE, DATA, TRIALS = "study.db", "data", "trials"
BEST = "best.toml"
# The steps that a trial runs.
_STEPS = ("ingest", "analyze", "train")
Ranges: TypeAlias = Mapping[str, Mapping[str, Any]]
_NAME = "study"
_FILES = "files"  # the attribute with the digest of each file that trials read
_SAME = "must not change within a study; use another folder for a new study"
_WAIT = 0.2  # seconds between checks of whether another process is done
_MOST_KILLS = 2
_IRRELEVANT: Any = {  # to the value of a trial
    "search": {"trials"},
    "evaluation": {"baseline"},
    **dict.fromkeys(("blessing", "export", "serving", "beam", "tracking"), True),
}


class Study:
    """A search for a configuration, in its folder.

    Trials are chosen by the tree-structured Parzen estimator, seeded by `training.seed` and the
    number of the trial, so that one process finds the same trials again. The objective is the best
    validation NDCG@10; with several losses, their mean. After each epoch, a trial is pruned if its
    best value is below the median of the finished trials at that epoch.

    Args:
        configuration: The complete configuration, with the ranges in section `search`.
        output: Folder of the study: new, empty, or of the same study.

    Raises:
        tfrank_sel.data.InputError: If the folder has other contents.
        ConfigurationError: If it contains the study of another configuration, or a value of a range
            is invalid.
    """

    def __init__(self, configuration: Configuration, output: Path) -> None:
        self.configuration, self.output = configuration, output.absolute()
        self.ranges = configuration.search.keys
        check_ranges(configuration)
        with self._alone():
            self._check_folder()
            folders.write_text(self.output / folders.CONFIGURATION, text(configuration.absolute()))
            self._storage = optuna.storages.RDBStorage(
                f"sqlite:///{self.output / DATABASE}",
                engine_kwargs={"connect_args": {"timeout": 60}},
            )
            self._study = optuna.create_study(
                storage=self._storage,
                study_name=_NAME,
                direction="maximize",
                pruner=optuna.pruners.MedianPruner(),
                load_if_exists=True,
            )

    def _check_folder(self) -> None:
        output_path = str(self.output)
        if not (self.output / DATABASE).is_file():
            if any(path.name != ".lock" for path in self.output.iterdir()):
                reason = "the output folder must be new, empty, or contain a study"
                raise rejection(output_path, reason, "a folder with other contents")
            return
        shown = {"mode": "json", "by_alias": True, "exclude": _IRRELEVANT}
        before, now = (
            without_secrets(configuration.absolute().model_dump(**shown))
            for configuration in (load(self.output / folders.CONFIGURATION), self.configuration)
        )
        for section, value in now.items():
            for key, old, new in manifests.differences(section, before[section], value):
                raise ConfigurationError(key, received(_SAME, f"{new!r}, was {old!r}"), output_path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the study, waiting for other processes."""
        with contextlib.ExitStack() as stack:
            while True:
                try:
                    stack.enter_context(hold(self.output))
                    break
                except FileExistsError:
                    time.sleep(_WAIT)
            yield

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials."""
        return self._study.get_trials(deepcopy=False)

    @property
    def finished_trials(self) -> list[FrozenTrial]:
        """The trials that are complete or pruned."""
        return [x for x in self.trials if x.state in (TrialState.COMPLETE, TrialState.PRUNED)]

    @property
    def best(self) -> FrozenTrial | None:
        """The trial with the greatest value; None if none is complete."""
        complete = [x for x in self.trials if x.state == TrialState.COMPLETE]
        return max(complete, key=lambda x: (x.value, -x.number), default=None)

    def folder(self, number: int) -> Path:
        """Folder of the run of a trial."""
        return self.output / TRIALS / str(number)

    def prepare(self, progress: Progress) -> None:
        """Runs the steps that all trials share, in `data`.

        Raises:
            tfrank_sel.data.InputError: If the data or a module changed since the first call.
        """
        with self._alone():
            steps = Plan.of(Job.of(self.configuration, self.output / DATA)).steps
            read = {**steps["ingest"].manifest.files, **steps["train"].manifest.files}
            files = manifests.Manifest({}, read, {}).public_form.files
            now = {path: x.digest for path, x in files.items()}
            before = self._study.user_attrs.get(_FILES, now)
            # Earlier versions wrote paths with secrets.
            before = {artefacts.address(path): x for path, x in before.items()}
            for path in (*now, *before):
                if now.get(path) != before.get(path):
                    raise rejection(path, _SAME, "a changed file")
            for step in ("ingest", "analyze"):
                run(self.configuration, self.output / DATA, progress, only=step)
            self._study.set_user_attr(_FILES, now)

    def run(self, console: Console) -> None:
        """Runs trials until enough are finished, and prints a line for each.

        An interrupted trial continues after its last epoch; a trial whose process was killed twice
        fails.

        Raises:
            ConfigurationError: If the combination of values of a trial is invalid.
            tfrank_sel.data.InputError: If the data is invalid for a trial.
        """
        with warnings.catch_warnings():
            # A resumed trial reports its first values once more.
            warnings.filterwarnings("ignore", "The reported value is ignored")
            while True:
                with self._next() as trial:
                    if trial is None:
                        return
                    self._try(trial, console)

    @contextlib.contextmanager
    def _next(self) -> Iterator[Trial | None]:
        """Provides an interrupted or new trial for this process; None if enough are done."""
        with contextlib.ExitStack() as stack:
            with self._alone():
                number = self._take_interrupted(stack)
                running = [x for x in self.trials if x.state == TrialState.RUNNING]
                count = len(self.finished_trials) + len(running)
                if number is None and count < self.configuration.search.trials:
                    number = len(self.trials)
                    stack.enter_context(self._hold(number))
                trial = None if number is None else self._sample(number)
            yield trial

    def _hold(self, number: int) -> contextlib.AbstractContextManager[None]:
        return hold(self.output / TRIALS, f".{number}.lock")

    def _take_interrupted(self, stack: contextlib.ExitStack) -> int | None:
        for trial in self.trials:
            if trial.state != TrialState.RUNNING:
                continue
            try:
                stack.enter_context(self._hold(trial.number))
            except FileExistsError:
                # Another process runs this trial.
                continue
            if trial.user_attrs.get("kills", 0) < _MOST_KILLS:
                return trial.number
            self._study.tell(trial.number, state=TrialState.FAIL)
        return None

    def _sample(self, number: int) -> Trial:
        """Returns a new or known trial, with a value for each key."""
        seeds = np.random.SeedSequence([self.configuration.training.seed, number])
        self._study.sampler = optuna.samplers.TPESampler(seed=int(seeds.generate_state(1)[0]))
        if number == len(self.trials):
            trial = self._study.ask()
        else:
            study = self._storage.get_study_id_from_name(_NAME)
            trial_id = self._storage.get_trial_id_from_study_id_trial_number(study, number)
            trial = Trial(self._study, trial_id)
        _suggest(self.ranges, trial)
        return trial

    def configuration_of(self, trial: FrozenTrial | Trial) -> Configuration:
        """Returns the configuration of a trial, for `run` to train the same model."""
        values = _values(self.ranges, trial)
        origin = f"trial {trial.number}"
        overrides = [Override(key, value, f"{origin}, {key}") for key, value in values.items()]
        return with_overrides(self.configuration, [*overrides, Override("search.keys", {}, origin)])

    def _try(self, trial: Trial, console: Console) -> None:
        """Runs a trial, and prints its result."""
        began, value = time.perf_counter(), None
        kills = trial.user_attrs.get("kills", 0)
        # A trial that finishes replaces the count.
        trial.set_user_attr("kills", kills + 1)
        try:
            value = self._value(trial, console)
        except optuna.TrialPruned:
            shutil.rmtree(folders.partial(self.folder(trial.number), "train"), ignore_errors=True)
        except KeyboardInterrupt:
            trial.set_user_attr("kills", kills)
            raise
        except Exception:
            self._study.tell(trial, state=TrialState.FAIL)
            raise
        finally:
            keras.backend.clear_session()
            gc.collect()
        trial.set_user_attr("seconds", time.perf_counter() - began)
        with self._alone():
            state = TrialState.PRUNED if value is None else TrialState.COMPLETE
            self._study.tell(trial, value, state=state)
            best = self.best
            if best is not None and best.number == trial.number:
                folders.write_text(self.output / BEST, text(self.configuration_of(best).absolute()))
        console.out(self._line(self.trials[trial.number]), highlight=False)

    def _value(self, trial: Trial, console: Console) -> float:
        """Trains the model of a trial, and returns its value."""
        number, most = len(self.finished_trials), self.configuration.search.trials
        title = f"trial {trial.number}, {number} of {most}"
        # without a baseline and trees, which would be the same in each trial
        left_out = ["evaluation.baseline"]
        if not any(key.startswith("model.trees") for key in self.ranges):
            left_out.append("model.trees")
        overrides = [Override(key, False, title) for key in left_out]
        configuration = with_overrides(self.configuration_of(trial), overrides)
        folder = self.folder(trial.number)
        self._share(configuration, folder)
        with console.status(title) as status:

            def on_epoch(epoch: Epoch) -> None:
                status.update(Text(f"{title}: {epoch}"))
                number = (epoch.member - 1) * epoch.epochs + epoch.number
                trial.report(epoch.validation_ndcg, number)
                if trial.should_prune():
                    raise optuna.TrialPruned

            progress = Progress(Terminal(quiet=True), on_epoch=on_epoch)
            for step in _STEPS:
                run(configuration, folder, progress, only=step)
        return statistics.mean(fit["validation_ndcg"] for fit in registry.read_fits(folder))

    def _share(self, configuration: Configuration, folder: Path) -> None:
        """Links the results of the steps of `data` into the folder of a trial, if they are the
        same.
        """
        job = Job.of(configuration, self.output / DATA)
        stale = Plan.of(job).stale
        for step in ("ingest", "analyze"):
            if step in stale:
                return
            if not (folder / step).exists():
                folder.mkdir(parents=True, exist_ok=True)
                configured = text(job.configuration.absolute())
                folders.write_text(folder / folders.CONFIGURATION, configured)
                with folders.step(folder, step, "") as target:
                    folders.link(self.output / DATA / step, target)

    def _line(self, trial: FrozenTrial) -> str:
        of_trial = _values(self.ranges, trial).items()
        values = ", ".join(f"{key}={format_value(value)}" for key, value in of_trial)
        best, seconds = self.best, trial.user_attrs["seconds"]
        number, trials = len(self.finished_trials), self.configuration.search.trials
        done = f"trial {trial.number}: {number} of {trials}"
        value = "pruned" if trial.state == TrialState.PRUNED else f"NDCG@10 {trial.value:.4f}"
        most = "" if best is None else f", best {best.value:.4f} of trial {best.number}"
        return f"{done}, {value}{most}, {seconds:.1f} s, {values}"


def check_ranges(configuration: Configuration) -> None:
    """Checks that each end and choice of a range is valid, with the first values of the others.

    Args:
        configuration: The configuration, with the ranges in section `search`.

    Raises:
        ConfigurationError: If a value is invalid or there is no range; the error names the key.
    """
    ranges = configuration.search.keys
    if not ranges:
        example = '{"training.learning_rate" = {low = 1e-4, high = 1e-2, log = true}}'
        raise configuration.error(
            "search.keys", f"must name a key that varies, such as {example}", "{}"
        )
    ends = {key: x.get("choices") or [x["low"], x["high"]] for key, x in ranges.items()}
    for key, bounds in ends.items():
        for value in bounds:
            tried = {**{other: x[0] for other, x in ends.items()}, key: value}
            overrides = [Override(x, y, f'search.keys."{x}"') for x, y in tried.items()]
            instantiate.candidate(with_overrides(configuration, overrides))


def _suggest(ranges: Ranges, trial: Trial) -> None:
    """Chooses a value for each key of a trial that has none."""
    for key, bounds in ranges.items():
        if "choices" in bounds:  # any JSON; Optuna accepts only texts and numbers
            trial.suggest_categorical(key, [json.dumps(choice) for choice in bounds["choices"]])
            continue
        low, high, log = bounds["low"], bounds["high"], bounds.get("log", False)
        step = bounds.get("step")
        if all(isinstance(x, int) for x in (low, high, step or 0)):
            trial.suggest_int(key, low, high, step=step or 1, log=log)
        else:
            trial.suggest_float(key, low, high, step=step, log=log)


def _values(ranges: Ranges, trial: FrozenTrial | Trial) -> dict[str, Any]:
    """Returns the value of each key that a trial has."""
    return {
        key: json.loads(trial.params[key]) if "choices" in bounds else trial.params[key]
        for key, bounds in ranges.items()
        if key in trial.params
    }


def format_value(value: Any) -> str:
    """Returns a short form of the value of a key.

    Example:
        >>> format_value([{"class": "LambdaLoss", "temperature": 2.0}, {"class": "RGCrossLoss"}])
        '[LambdaLoss(temperature=2), RGCrossLoss]'
    """
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping) and "class" in value:
        others = [f"{name}={format_value(x)}" for name, x in value.items() if name != "class"]
        return f"{value['class']}({', '.join(others)})" if others else str(value["class"])
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    return str(value)
