"""Epochs of a training: measurements after each, durations, and what is told of them."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import metrics
from tfrank_sel.distribution import Workers
from tfrank_sel.pipelines import interrupts

MINUTES = 120  # seconds from which on a duration is shown in minutes


@dataclasses.dataclass(frozen=True)
class Epoch:
    """How an epoch of training went.

    Args:
        loss: Name of the loss.
        number: Number of the epoch, from 1.
        epochs: Maximum number of epochs.
        validation_ndcg: Validation NDCG@10 after the epoch.
        member: Number of the model among those of the candidate, from 1.
        members: Number of models of the candidate, one for each loss.
        seconds_left: Estimated time until the last model is trained if no training stops early.
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


class Validation(keras.callbacks.Callback):
    """Measures a model after each epoch, and not in each training step.

    Args:
        batches: What to measure on, a pass; of several workers, the share of this one.
        loss: The loss, measured beside the metrics.
        workers: The workers whose measurements to join.
    """

    def __init__(self, batches: tf.data.Dataset, loss: keras.losses.Loss, workers: Workers) -> None:
        super().__init__()
        self._batches, self._steps = iter(batches.repeat()), int(batches.cardinality())
        self._loss, self._workers = loss, workers
        self._mean_loss = keras.metrics.Mean()
        self._metrics = {"val_ndcg": metrics.NDCG(k=10), "val_mrr": metrics.MRR()}

    @tf.function
    def _measure(self) -> None:
        for _ in tf.range(self._steps):
            self._measure_batch(*next(self._batches))

    @tf.autograph.experimental.do_not_convert
    def _measure_batch(self, inputs: Any, labels: tf.Tensor, weights: Any = None) -> None:
        scores = self.model(inputs, training=False)
        # a list without items, which fills up a batch, adds 0 to its mean loss
        is_list = tf.cast(tf.reduce_any(labels == labels, axis=1), tf.float32)
        loss = tf.math.divide_no_nan(self._loss(labels, scores, weights), tf.reduce_mean(is_list))
        self._mean_loss.update_state(loss, tf.reduce_sum(is_list))
        for metric in self._metrics.values():
            metric.update_state(labels, scores)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        measured = {"val_loss": self._mean_loss, **self._metrics}
        for metric in measured.values():
            metric.reset_state()
        self._measure()
        variables = [v for metric in measured.values() for v in metric.variables]
        for variable in variables if self._workers.count > 1 else ():
            variable.assign(self._workers.sum(variable.numpy()))
        assert logs is not None
        # for the callbacks after this one
        logs.update({name: float(metric.result()) for name, metric in measured.items()})


class Stopwatch(keras.callbacks.Callback):
    """Times the training steps of each epoch, without its validation, and tells of each epoch.

    Args:
        on_epoch: Called after each epoch.
        loss: Name of the loss.
        member: Number of the model among those of the candidate, from 1.
        members: Number of models of the candidate.
        to_come: Number of models to train after this one.

    Attributes:
        earlier: Durations from before the training was interrupted, as `seconds` gave them.
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
        """Durations of the steps of each epoch but the first of a process, which compiles."""
        return [*self.earlier, *self._seconds[1:]]

    def seconds_per_step(self) -> float:
        """Mean over the steps of `seconds`, or of the first epoch if there is no other."""
        return statistics.mean(self.seconds or self._seconds) / self._steps
