"""Training of the models of an estimator, in memory and on a scratch folder."""

import dataclasses
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tfrank_sel import models
from tfrank_sel.arguments import Count, OpenShare
from tfrank_sel.data.lists import Lists
from tfrank_sel.features import Feature
from tfrank_sel.training import fitting
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.candidates import Candidate
from tfrank_sel.training.lists import PreparedLists
from tfrank_sel.training.settings import TrainingSettings


@dataclasses.dataclass(frozen=True)
class Parameters(TrainingSettings):
    """Settings of training and of an estimator: see `Ranker`."""

    validation_fraction: OpenShare | None = 0.1
    members: Count | None = None
    verbose: int = 0


def train(
    candidate: Candidate,
    learned: Lists,
    held_out: Lists | None,
    features: Mapping[str, Feature] | None,
    settings: Parameters,
) -> fitting.Trained:
    """Trains a candidate on lists of an estimator.

    Args:
        candidate: The models to train.
        learned: Lists to learn from, with labels.
        held_out: Lists that decide when to stop; None to train for all epochs.
        features: Type of each feature; None if all are numbers that are never missing.
        settings: How to train.
    """
    if features is None:
        mean, variance = models.moments(learned.features)
        preparation = models.Preparation(mean, variance, within_list=True)
    else:
        batches = ((inputs,) for _, inputs, _ in learned.batches())
        preparation = models.Preparation.of(batches, features)
    measured = held_out and held_out.dataset()
    hooks = Hooks(on_model=_told(), verbose=settings.verbose) if settings.verbose else Hooks()
    with tempfile.TemporaryDirectory() as folder:
        lists = PreparedLists(learned.dataset(), measured, settings, Path(folder))
        return fitting.train(candidate, preparation, lists, hooks)


def _told() -> Callable[[fitting.MemberFit], None]:
    """A function that prints how the training of each model went, and its time."""
    began = time.perf_counter()

    def tell(fit: fitting.MemberFit) -> None:
        nonlocal began
        before, began = began, time.perf_counter()
        print(f"{fit}, {began - before:.1f} s")

    return tell
