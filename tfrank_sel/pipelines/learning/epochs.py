"""Epochs of a training: durations and progress reports."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras

from tfrank_sel.pipelines import interrupts

MINUTES = 120  # seconds above which a duration is shown in minutes


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Results of an epoch of training.

    Args:
        loss: Name of the loss.
        number: Number of the epoch, from 1.
        epochs: Maximum number of epochs.
        validation_ndcg: Validation NDCG@10 after the epoch.
        member: Index of the model in the candidate, from 1.
        members: Number of models of the candidate, one per loss.
        seconds_left: Estimated remaining time for all models without early stopping.
    """

    loss: str
    number: int
    epochs: int
    validation_ndcg: float
    member: int
    members: int
    seconds_left: float

    def __str__(self) -> str:
        epoch = f"{self.loss}: epoch {self.number}/{self.epochs}"
        seconds = self.seconds_left
        left = f"{seconds:.0f} s" if seconds < MINUTES else f"{seconds / 60:.0f} min"
        return f"{epoch}, validation NDCG@10 {self.validation_ndcg:.4f}, at most {left} left"


class Stopwatch(keras.callbacks.Callback):
    """Measures the training time of each epoch, without validation, and reports each epoch.

    Args:
        on_epoch: Called after each epoch.
        loss: Name of the loss.
        member: Index of the model in the candidate, from 1.
        members: Number of models of the candidate.
        to_come: Number of models to train after this one.

    Attributes:
        earlier: Durations before an interruption, as in `seconds`.
    """

    def __init__(
        self,
        on_epoch: Callable[[Epoch], None],
        loss: str,
        member: int,
        members: int,
        to_come: int,
    ) -> None:
        super().__init__()
        self._on_epoch = on_epoch
        self._loss, self._member, self._members, self._to_come = loss, member, members, to_come
        self.earlier: list[float] = []
        self._seconds: list[float] = []
        self._with_validation: list[float] = []
        self._steps = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._began = self._ended = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._ended, self._steps = time.perf_counter(), batch + 1
        interrupts.check()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._seconds.append(self._ended - self._began)
        self._with_validation.append(time.perf_counter() - self._began)
        epochs = self.params["epochs"]
        to_come = epochs - epoch - 1 + self._to_come * epochs
        ndcg = (logs or {})["val_ndcg"]
        taken = self._with_validation[1:] or self._with_validation
        self._on_epoch(
            Epoch(
                self._loss,
                number=epoch + 1,
                epochs=epochs,
                validation_ndcg=ndcg,
                member=self._member,
                members=self._members,
                seconds_left=to_come * statistics.mean(taken),
            )
        )

    @property
    def seconds(self) -> list[float]:
        """Durations of the steps of each epoch, except the first of a process, which compiles."""
        return [*self.earlier, *self._seconds[1:]]

    def seconds_per_step(self) -> float:
        """Mean over the steps of `seconds`, or of the first epoch if it is the only one."""
        return statistics.mean(self.seconds or self._seconds) / self._steps
