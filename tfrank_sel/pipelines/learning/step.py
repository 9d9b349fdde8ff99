"""The step `train`: the candidate and the baseline, on lists that are prepared once."""

import dataclasses
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

import keras

from tfrank_sel import models
from tfrank_sel.commandline import log_warnings
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.pipelines.analysis.statistics import DataSplit
from tfrank_sel.pipelines.configuration.training import Settings
from tfrank_sel.pipelines.console import interrupts
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.ingestion.stored_lists import Earlier
from tfrank_sel.pipelines.learning import instantiate, preparation, workers
from tfrank_sel.training import fitting
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.candidates import Candidate
from tfrank_sel.training.fitting import MemberFit, Trained
from tfrank_sel.training.lists import PreparedLists
from tfrank_sel.training.settings import MANY, patience
from tfrank_sel.training.trees import TreesError

if TYPE_CHECKING:
    from tfrank_sel.pipelines.run.results import Run

LARGE = 10_000  # training lists, whose first results take minutes
# Number of lists of each split that a provisional fit takes.
PROVISIONAL = {"train": 2_000, "validation": 1_000}


@dataclasses.dataclass(frozen=True)
class Training:
    """The training of candidates by all workers of a run.

    Args:
        run: The run, whose workers train together.
        folder: Folder to write to: `NAME.keras`, `training.json` and `logs/`.
        candidates: The candidates by name: `ours` and, if there is one, `baseline`.
        splits: The splits.
        settings: Settings of training.
        earlier: The run that this one continues.
        note: Text before each printed result.
    """

    run: "Run"
    folder: Path
    _: dataclasses.KW_ONLY
    candidates: Mapping[str, Candidate]
    splits: Mapping[str, DataSplit]
    settings: Settings
    earlier: Earlier | None
    note: str = ""

    @classmethod
    def of(cls, run: "Run", folder: Path) -> Self:
        """Returns the training of a run; candidates of scores read the labels."""
        candidates = run.candidates
        if run.configuration.training.region is not None:
            candidates = instantiate.named_candidates(run.configuration, run.labels)
        return cls(
            run,
            folder,
            candidates=candidates,
            splits=run.splits,
            settings=run.settings,
            earlier=run.earlier,
        )

    def run_as_chief(self) -> None:
        """Trains the candidates, as the chief of the workers, and writes them.

        Raises:
            tfrank_sel.data.InputError: If a loss cannot be computed for the labels, the model of
                the earlier run does not fit, or a worker is lost.
        """
        self._check_losses()
        with workers.watch_workers(self.run.job.place):
            if self.run.group.size == 1 and not (self.folder / "backup").exists():
                self._provisional()
            self._tell_patience()
            self.run.group.wait()
            trained = self.together()
        for name, fitted in trained.items():
            fitted.model.save(self.folder / f"{name}.keras")
        figures = {name: fitted.figures() for name, fitted in trained.items()}
        folders.write_json(self.folder / "training.json", figures)
        shutil.rmtree(self.folder / "backup")

    def together(self) -> dict[str, Trained]:
        """Trains the candidates; each of the workers calls it."""
        start = None if self.earlier is None else _load(self.earlier.path / "train", "ours")
        train, held_out = self.splits["train"], self.splits["validation"]
        before = start.preparation if isinstance(start, models.Prepared) else None
        prepared = preparation.fit_preparation(train.statistics, train.layout, True, before)
        trained: dict[str, Trained] = {}
        cache_folder, logs = self.folder / "prepared", self.folder / "logs"
        with PreparedLists(
            train.batches(), held_out.batches(), self.settings, cache_folder, self.run.group
        ) as lists:
            for name, candidate in self.candidates.items():
                with (
                    self.run.progress.step(f"training {name}") as step,
                    interrupts.defer(),
                    log_warnings(step.tell),
                ):
                    hooks = Hooks(
                        on_epoch=step.epoch,
                        on_step=interrupts.check,
                        optimizer=instantiate.optimizer,
                        logs=logs / name if self.run.group.is_chief else None,
                        backup=self.folder / "backup" / name,
                        on_backup=self.run.job.mirror.sender("train", "backup"),
                    )
                    try:
                        fitted = fitting.train(
                            candidate,
                            prepared,
                            lists,
                            hooks,
                            before=list(trained.values()),
                            start=start if name == "ours" else None,
                        )
                    except fitting.StartError as error:
                        reason = "to continue a run, losses and network must be the same"
                        run = str(self.earlier and self.earlier.path)
                        raise rejection(run, reason, error) from error
                    except TreesError as error:
                        raise InputError("model.trees", str(error)) from error
                    for fit in fitted.fits:
                        step.tell(f"{self.note}{fit}")
                    trained[name] = fitted
        return trained

    def _provisional(self) -> None:
        """Trains trees, and a network for one epoch, on some of many lists, for a first result."""
        lists, ours = self.splits["train"].statistics.lists, self.candidates["ours"]
        if lists < LARGE or self.run.progress.console.quiet:
            return
        folder, trees = self.folder / "provisional", ours.trees
        first = dataclasses.replace(
            ours,
            loss=ours.losses[:1],
            trees=trees and dataclasses.replace(trees, losses=trees.losses[:1]),
        )
        dataclasses.replace(
            self,
            folder=folder,
            candidates={"provisional": first},
            splits={
                name: dataclasses.replace(self.splits[name], most=most)
                for name, most in PROVISIONAL.items()
            },
            settings=self.settings.model_copy(update={"epochs": 1}),
            earlier=None,
            note=f"provisional, on {PROVISIONAL['train']} of {lists} lists: ",
        ).together()
        shutil.rmtree(folder)

    def _tell_patience(self) -> None:
        """Prints that training stops early, if it does by the number of lists."""
        lists, configured = self.splits["train"].statistics.lists, self.settings.patience
        if (epochs := patience(self.settings, lists)) < configured:
            told = f"{epochs} epochs of {lists} lists without improvement end a training"
            self.run.progress.note(f"{told} (training.patience: {configured} of at most {MANY})")

    def _check_losses(self) -> None:
        """Raises an error before training if a loss cannot be computed for the labels."""
        labels = [*map(float, self.splits["train"].statistics.labels)]
        for candidate in self.candidates.values():
            try:
                candidate.check(labels)
            except ValueError as error:
                raise InputError("train", " ".join(str(error).split())) from error


def read(folder: Path, candidates: Mapping[str, Candidate]) -> dict[str, Trained]:
    """Reads the trained candidates, after the user's modules with their classes are imported."""
    figures = folders.read_json(folder / "training.json")
    return {
        name: Trained(
            candidate,
            _load(folder, name),
            (),
            [MemberFit(**fit) for fit in figures[name]["fits"]],
            figures[name].get("better", ()),  # runs of earlier versions lack it
        )
        for name, candidate in candidates.items()
    }


def _load(folder: Path, name: str) -> keras.Model:
    return keras.models.load_model(folder / f"{name}.keras", compile=False)
