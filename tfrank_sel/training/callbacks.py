"""What happens beside a training: progress reports, durations, and backups to resume from."""

import dataclasses
import json
import math
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import artefacts
from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import refusal
from tfrank_sel.locks import atomic_path
from tfrank_sel.training import networks
from tfrank_sel.training.settings import SettingsLike

USUAL = 0.4  # share of the maximum number of epochs or trees that most trainings take


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Results of an epoch of training, or of a boosted tree, which is a pass over all lists, too.

    Args:
        loss: Name of the loss.
        number: Number of the epoch or tree, from 1.
        epochs: Maximum number of epochs or trees.
        validation_ndcg: Validation NDCG@10 after the epoch or tree; NaN without validation.
        member: Index of the model in the candidate, from 1.
        members: Number of models of the candidate, one per loss.
        seconds_left: Estimated remaining time for all models, with early stopping.
        unit: What it is: an epoch or a tree.
    """

    loss: str
    number: int
    epochs: int
    validation_ndcg: float
    member: int
    members: int
    seconds_left: float
    unit: str = "epoch"

    def __str__(self) -> str:
        epoch = f"{self.loss}: {self.unit} {self.number}/{self.epochs}"
        return f"{epoch}, validation NDCG@10 {self.validation_ndcg:.4f}"


def epochs_to_come(values: Sequence[float], most: int, patience: int, models: int) -> int:
    """Estimates how many epochs, or trees, are to come with early stopping.

    Args:
        values: Validation NDCG after each so far; NaN without validation.
        most: Maximum number of a model.
        patience: Number without improvement before a model stops.
        models: Number of models to come, of which each is to take as long as this one.

    Example:
        >>> [epochs_to_come([0.5] * count, 60, 10, 1) for count in (1, 30)]
        [47, 30]
    """
    is_measured = not math.isnan(values[-1])
    usual = math.ceil(USUAL * most) if is_measured else most
    best = values.index(max(values)) + 1 if is_measured else most
    total = min(most, max(best + patience, usual, len(values)))
    return total - len(values) + models * max(total, usual)


class Stopwatch(keras.callbacks.Callback):
    """Measures the training time of each epoch, without validation, and reports each epoch.

    Args:
        hooks: Called after each epoch, and between steps.
        make_epoch: Makes the results of an epoch of the model.
        to_come: Number of models to train after this one.

    Attributes:
        patience: Number of epochs without improvement before training stops.
        earlier: Durations before an interruption, as in `seconds`.
    """

    def __init__(self, hooks: "Hooks", make_epoch: Callable[..., Epoch], to_come: int) -> None:
        super().__init__()
        self._hooks, self._make_epoch, self._to_come = hooks, make_epoch, to_come
        self.earlier: list[float] = []
        self.patience = 0
        self._values: list[float] = []
        self._seconds: list[float] = []
        self._with_validation: list[float] = []
        self._steps = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._began = self._ended = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._ended, self._steps = time.perf_counter(), batch + 1
        self._hooks.on_step()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._seconds.append(self._ended - self._began)
        self._with_validation.append(time.perf_counter() - self._began)
        epochs = self.params["epochs"]
        self._values += [-math.inf] * (epoch - len(self._values))  # before an interruption
        self._values.append((logs or {}).get("val_ndcg", math.nan))
        to_come = epochs_to_come(self._values, epochs, self.patience, self._to_come)
        taken = self._with_validation[1:] or self._with_validation
        self._hooks.on_epoch(
            self._make_epoch(
                number=epoch + 1,
                epochs=epochs,
                validation_ndcg=self._values[-1],
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


# Variables of Keras or TensorFlow, which share no type.
Variables = Sequence[Any]


class Backup:
    """The backup of the training of one model: a file that is replaced atomically.

    Args:
        path: The file, which need not exist.
        on_save: Called after the file is written.
        keeps: Whether to save; if False, only restore.

    Attributes:
        record: The JSON-ready part of the state that was found; empty if there is none.

    Raises:
        ValueError: If the file cannot be read.
    """

    def __init__(
        self, path: Path, on_save: Callable[[], None] | None = None, keeps: bool = True
    ) -> None:
        self._path, self._on_save, self._keeps = path, on_save, keeps
        self.record: dict[str, Any] = {}
        self._arrays: list[np.ndarray] = []
        if path.exists():
            expected = "a backup of a training; remove it to train from the start"
            with (
                artefacts.name_file_in_errors(path, expected),
                np.load(path, allow_pickle=False) as arrays,
            ):
                self.record = json.loads(str(arrays["record"]))
                self._arrays = [arrays[str(i)] for i in range(len(arrays.files) - 1)]

    def save(
        self, record: dict[str, Any], variables: Variables, others: Sequence[np.ndarray] = ()
    ) -> None:
        """Replaces the state.

        Args:
            record: JSON-ready part of the state.
            variables: Variables for `restore` to assign.
            others: Arrays for `restore` to return.
        """
        if not self._keeps:
            return
        record = {**record, "variables": _variable_signatures(variables)}
        arrays = [*(variable.numpy() for variable in variables), *others]
        named = {str(i): array for i, array in enumerate(arrays)}
        with atomic_path(self._path, replaces=True) as written, written.open("wb") as file:
            np.savez(file, record=np.array(json.dumps(record)), **named)
        if self._on_save is not None:
            self._on_save()

    def restore(self, variables: Variables) -> list[np.ndarray]:
        """Assigns the saved values to variables, and returns the other arrays.

        Raises:
            ValueError: If the variables are not those that were saved.
        """
        expected, received = _variable_signatures(variables), self.record["variables"]
        if expected != received:
            width = max(len(expected), len(received))
            padded = (x + ["no other variable"] * (width - len(x)) for x in (expected, received))
            pairs = zip(*padded, strict=True)
            index, (mine, saved) = next(
                (place, pair) for place, pair in enumerate(pairs) if pair[0] != pair[1]
            )
            raise refusal(
                f"{self._path} is the backup of another training: variable {index} must be {mine}",
                f"{saved}. Remove the file to train from the start",
            )
        for variable, value in zip(variables, self._arrays, strict=False):
            variable.assign(value)
        return self._arrays[len(variables) :]


def _ignore(*_: object) -> None:
    pass


@dataclasses.dataclass(frozen=True)
class Hooks:
    """What a caller adds to a training. An exception raised in a function stops training.

    Args:
        on_epoch: Called after each epoch or tree.
        on_step: Called between steps, and after each tree.
        on_model: Called after each model, with its `MemberFit`.
        optimizer: Makes an optimizer from the settings and the number of steps of an epoch.
        logs: Folder of TensorBoard logs, with a subfolder for each loss. Only the chief needs it.
        backup: Folder for the state of training after each epoch, and for finished models. An
            interrupted training of the same candidate, lists and settings resumes from it, and ends
            with the same weights as without the interruption. The chief writes it.
        on_backup: Called after each write to `backup`.
        verbose: As in `fit` of Keras.
    """

    on_epoch: Callable[[Epoch], None] = _ignore
    on_step: Callable[[], None] = _ignore
    on_model: Callable[[Any], None] = _ignore
    optimizer: Callable[[SettingsLike, int], keras.optimizers.Optimizer] = networks.adam
    logs: StrPath | None = None
    backup: Path | None = None
    on_backup: Callable[[], None] | None = None
    verbose: int = 0

    def backup_of(self, name: str, keeps: bool = True) -> Backup | None:
        """Returns the backup of a model, if there are backups."""
        if self.backup is None:
            return None
        return Backup(self.backup / f"{name}.npz", self.on_backup, keeps)


class Resumption(keras.callbacks.Callback):
    """Resumes a training from its backup, and saves its state before each epoch.

    It must be the last callback, so that the others have updated their state: `SwapEMAWeights` has
    restored the weights of training.

    Args:
        backup: Storage of the state.
        loss: The loss, whose variables belong to the state.
        watch: Callback with the durations.
        history: Callback with the measurements after each epoch.
        stopping: Callback with the best weights.
        board: TensorBoard callback, which gets the epochs before an interruption.
    """

    def __init__(
        self,
        backup: Backup,
        loss: keras.losses.Loss,
        watch: Stopwatch,
        history: keras.callbacks.History,
        stopping: keras.callbacks.EarlyStopping,
        board: keras.callbacks.Callback,
    ) -> None:
        super().__init__()
        self._backup, self._loss, self._watch = backup, loss, watch
        self._history, self._stopping, self._board = history, stopping, board

    def _variables(self) -> Variables:
        return [*variables_of(self.model, self._loss), *self.model.optimizer.variables]

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        optimizer = self.model.optimizer
        if not optimizer.built:
            optimizer.build(self.model.trainable_variables)
        if not (record := self._backup.record):
            return
        best = self._backup.restore(self._variables())
        self._history.history = record["history"]
        self._watch.earlier = record["seconds"]
        for name, value in record["stopping"].items():
            setattr(self._stopping, name, value)
        self._stopping.best_weights = best or None
        epochs, steps = record["epochs"], int(optimizer.iterations)
        for epoch in range(epochs):
            # TensorBoard reads the learning rate from the optimizer
            optimizer.iterations.assign(steps * (epoch + 1) // epochs)
            measured = {name: values[epoch] for name, values in record["history"].items()}
            self._board.on_epoch_end(epoch, measured)

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        stopping = self._stopping
        record = {
            "epochs": epoch,
            "history": {
                name: [float(value) for value in values]
                for name, values in self._history.history.items()
            },
            "seconds": self._watch.seconds,
            "stopping": {name: getattr(stopping, name) for name in ("best", "best_epoch", "wait")},
        }
        self._backup.save(record, self._variables(), stopping.best_weights or ())


def variables_of(model: keras.Model, loss: keras.losses.Loss) -> Variables:
    """Returns the weights of a model, and the random states of the model and the loss."""
    metrics = {id(variable) for variable in model.metrics_variables}
    of_model = [variable for variable in model.variables if id(variable) not in metrics]
    return [*of_model, *_variables_of_loss(loss)]


def _variables_of_loss(loss: keras.losses.Loss) -> Variables:
    variables: list[Any] = []
    for value in vars(loss).values():
        if isinstance(value, (tf.Variable, keras.Variable)):
            variables.append(value)
        elif isinstance(value, keras.losses.Loss):
            variables += _variables_of_loss(value)
    return variables


def _variable_signatures(variables: Variables) -> list[str]:
    """Name, shape and type of each variable, without the layer numbers of this process."""
    return [
        f"{re.sub(r'_[0-9]+', '', getattr(x, 'path', x.name))} {tuple(x.shape)} "
        f"{np.dtype(getattr(x.dtype, 'as_numpy_dtype', x.dtype))}"
        for x in variables
    ]
