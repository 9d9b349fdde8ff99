"""Training of a candidate, stopped when validation NDCG no longer rises."""

import collections
import dataclasses
import functools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import tensorflow as tf

from tfrank_sel import data, metrics, models
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.evaluation.evaluation import Scorer

MEASURED_AT_ONCE = 64  # lists
STEPS_AT_A_TIME = 8  # between which Keras' Python does not run


@dataclasses.dataclass(frozen=True)
class Fit:
    """How training with one loss went.

    Args:
        loss: Name of the loss.
        epochs: Number of epochs run.
        validation_ndcg: Best validation NDCG@10.
        seconds_per_step: Mean time of a training step, the first epoch (which compiles) left out
            if there are more.
        lists_per_second: Lists trained on in that time.
        items_per_second: Documents trained on in that time; padding does not count.
        history: Loss and metrics of each epoch, by name.
    """

    loss: str
    epochs: int
    validation_ndcg: float
    seconds_per_step: float
    lists_per_second: float
    items_per_second: float
    history: Mapping[str, list[float]]

    def __str__(self) -> str:
        best = f"best validation NDCG@10 {self.validation_ndcg:.4f}"
        return f"{self.loss}: {self.epochs} epochs, {best}"


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and how it went.

    Args:
        candidate: What was trained.
        model: The model, with the weights of its best epochs.
        fits: How training went, with each loss.
    """

    candidate: Candidate
    model: keras.Model
    fits: Sequence[Fit]

    @property
    def scores(self) -> Scorer:
        """The function of features and mask that scores lists by the model."""
        return functools.partial(_scores, self.model)

    def figures(self) -> dict[str, Any]:
        """Returns the name of the model and all figures."""
        return {"model": self.model.name, "fits": [dataclasses.asdict(fit) for fit in self.fits]}


class PreparedLists:
    """Lists to train on, prepared once for all models that take them alike.

    Args:
        train: Batches of inputs, `features` and `mask` by name, and labels; to learn from.
        validation: Batches that decide when to stop.
        folder: Where to keep them; removed on `__exit__`.
    """

    def __init__(self, train: tf.data.Dataset, validation: tf.data.Dataset, folder: Path) -> None:
        self._train, self._validation, self._folder = train, validation, folder
        self._kept: list[tuple[Any, tuple[Cache, Cache]]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def of(self, model: keras.Model) -> tuple[Cache, Cache]:
        """Returns the lists of both splits as the network of a model takes them."""
        preparation = getattr(model, "preparation", None)
        known = preparation and preparation.get_config()
        for config, caches in self._kept:
            if config == known:
                return caches
        folder = self._folder / str(len(self._kept))
        caches = (
            Cache.write(_prepared(preparation, self._train), folder / "train"),
            Cache.write(_prepared(preparation, self._validation), folder / "validation"),
        )
        self._kept.append((known, caches))
        return caches


def _prepared(preparation: Any, batches: tf.data.Dataset) -> tf.data.Dataset:
    if preparation is None:
        return batches
    return batches.map(lambda inputs, labels: (preparation(inputs), labels))


def train(
    candidate: Candidate,
    mean: Sequence[float],
    variance: Sequence[float],
    lists: PreparedLists,
    settings: Settings,
    logs: Path,
    on_epoch: Callable[[str], None],
) -> Trained:
    """Trains a candidate: a model with each of its losses.

    Args:
        candidate: What to train.
        mean: Mean of each feature after compression.
        variance: Variance of each feature after compression.
        lists: What to learn from, and what decides when to stop.
        settings: How to train.
        logs: Folder of TensorBoard logs; each loss gets one in it.
        on_epoch: Called after each epoch with a line on how it went.

    Returns:
        The model, the `models.Ensemble` of all if there are several losses, and how it went.
    """
    members, fits = [], []
    for number, loss in enumerate(candidate.losses):
        keras.utils.set_random_seed(settings.seed + number)
        model = candidate.make_model(mean, variance, settings)
        if hasattr(model, "network"):  # which alone is trained, and so built
            shapes = {data.FeatureSpec.features: (None, None, len(mean)), "mask": (None, None)}
            model.build(shapes)
        told = keras.callbacks.TensorBoard(str(logs / loss.name))
        fits.append(_fit(model, loss, *lists.of(model), settings, [told], on_epoch))
        members.append(model)
    return Trained(candidate, _joined(members), fits)


def _joined(members: Sequence[keras.Model]) -> keras.Model:
    """Several models as one, which prepares features once if the members take them alike."""
    first, *others = members
    if not others:
        return first
    preparations = [getattr(member, "preparation", None) for member in members]
    known = [found and found.get_config() for found in preparations]
    if known[0] is None or any(config != known[0] for config in known):
        return models.Ensemble(members)
    ensemble = models.Ensemble([member.network for member in members])
    return models.Prepared(preparations[0], ensemble, name=ensemble.name)


def _fit(
    model: keras.Model,
    loss: keras.losses.Loss,
    learned: Cache,
    held_out: Cache,
    settings: Settings,
    callbacks: Sequence[keras.callbacks.Callback],
    on_epoch: Callable[[str], None],
) -> Fit:
    """Trains a model, its network alone if it has one, and keeps the weights of the best epoch."""
    trained = getattr(model, "network", model)
    trained.compile(
        optimizer=keras.optimizers.Adam(
            settings.learning_rate, use_ema=True, ema_momentum=settings.averaging
        ),
        loss=loss,
        steps_per_execution=STEPS_AT_A_TIME,
        # the loss compiles itself; to compile the step, too, for each shape, takes longer on a CPU
        # than it saves in tens of thousands of steps
        jit_compile=False,
    )
    size = settings.batch_size
    sizes = collections.Counter([*learned.sizes.tolist(), *held_out.sizes.tolist()])
    edges = batching.bucket_edges(sizes, min_lists=size)
    batches, measured = (
        found if getattr(trained, "takes_mask", False) else found.map(_without_mask)
        for found in (
            learned.batches(size, edges, seed=settings.seed),
            held_out.batches(MEASURED_AT_ONCE, edges),
        )
    )
    watch = _Stopwatch(on_epoch)
    stopping = keras.callbacks.EarlyStopping(
        "val_ndcg", mode="max", patience=settings.patience, restore_best_weights=True
    )
    history = trained.fit(
        batches.repeat(),  # without an end, as to begin takes as long as some steps
        epochs=settings.epochs,
        steps_per_epoch=int(batches.cardinality()),
        callbacks=[
            keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
            _Validation(measured, loss),
            watch,
            *callbacks,
            stopping,
        ],
        shuffle=False,  # the lists are shuffled
        verbose=0,
    ).history
    per_step = watch.seconds_per_step()
    return Fit(
        loss.name,
        epochs=len(history["val_ndcg"]),
        validation_ndcg=float(max(history["val_ndcg"])),
        seconds_per_step=per_step,
        lists_per_second=size / per_step,
        items_per_second=size / per_step * float(learned.sizes.mean()),
        history={name: [float(value) for value in values] for name, values in history.items()},
    )


def _without_mask(inputs: dict[str, tf.Tensor], labels: tf.Tensor) -> Any:
    return inputs[data.FeatureSpec.features], labels


def _scores(model: keras.Model, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    takes_mask = getattr(model, "takes_mask", False)
    return model(inputs if takes_mask else inputs[data.FeatureSpec.features], training=False)


class _Validation(keras.callbacks.Callback):
    """Measures a model after each epoch, and not in each training step."""

    def __init__(self, batches: tf.data.Dataset, loss: keras.losses.Loss) -> None:
        super().__init__()
        self._batches, self._steps = iter(batches.repeat()), int(batches.cardinality())
        self._loss = loss
        self._mean_loss = keras.metrics.Mean()
        self._metrics = {"val_ndcg": metrics.NDCG(k=10), "val_mrr": metrics.MRR()}

    @tf.function
    def _measure(self) -> None:
        for _ in tf.range(self._steps):
            inputs, labels = next(self._batches)
            scores = self.model(inputs, training=False)
            self._mean_loss.update_state(self._loss(labels, scores), tf.shape(labels)[0])
            for metric in self._metrics.values():
                metric.update_state(labels, scores)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        measured = {"val_loss": self._mean_loss, **self._metrics}
        for metric in measured.values():
            metric.reset_state()
        self._measure()
        assert logs is not None
        # for the callbacks after this one
        logs.update({name: float(metric.result()) for name, metric in measured.items()})


class _Stopwatch(keras.callbacks.Callback):
    """Times the training steps of each epoch, without its validation."""

    def __init__(self, on_epoch: Callable[[str], None]) -> None:
        super().__init__()
        self._on_epoch = on_epoch
        self._seconds: list[float] = []
        self._steps = 0

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._began = self._ended = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._ended, self._steps = time.perf_counter(), batch + 1

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._seconds.append(self._ended - self._began)
        ndcg = (logs or {})["val_ndcg"]
        epochs = self.params["epochs"]
        self._on_epoch(f"epoch {epoch + 1}/{epochs}, validation NDCG@10 {ndcg:.4f}")

    def seconds_per_step(self) -> float:
        """Mean over the steps of all epochs but the first, if there are others."""
        seconds = self._seconds[1:] or self._seconds
        return sum(seconds) / (self._steps * len(seconds))
