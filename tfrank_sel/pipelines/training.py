"""Training of a candidate, stopped when validation NDCG no longer rises."""

import collections
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import data, metrics
from tfrank_sel.data import batching
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.pipelines.evaluation.evaluation import Scorer
from tfrank_sel.pipelines.ingestion import stored

# Lists to shuffle among; a list of MSLR takes about 60 kB.
SHUFFLE_BUFFER = 2048


@dataclasses.dataclass(frozen=True)
class Split:
    """A split on disk: its shards and statistics."""

    shards: Sequence[str]
    statistics: Statistics


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and how it went.

    Args:
        candidate: What was trained.
        model: The model, with the weights of its best epoch.
        epochs: Number of epochs run.
        validation_ndcg: Best validation NDCG@10.
        seconds_per_step: Mean time of a training step, the first epoch (which compiles) left out
            if there are more.
        lists_per_second: Lists trained on in that time.
        items_per_second: Documents trained on in that time; padding does not count.
        history: Loss and metrics of each epoch, by name.
    """

    candidate: Candidate
    model: keras.Model
    epochs: int
    validation_ndcg: float
    seconds_per_step: float
    lists_per_second: float
    items_per_second: float
    history: Mapping[str, list[float]]

    @property
    def scores(self) -> Scorer:
        """The function of features and mask that scores lists by the model."""
        return functools.partial(_scores, self.model)

    def figures(self) -> dict[str, Any]:
        """Returns the names of the loss and the model, and all figures."""
        figures = dict(vars(self))
        del figures["candidate"]
        return {"loss": self.candidate.loss.name, **figures, "model": self.model.name}


def train(
    candidate: Candidate,
    spec: data.FeatureSpec,
    train_split: Split,
    validation_split: Split,
    settings: Settings,
    logs: Path,
    model_path: Path,
    on_epoch: Callable[[str], None],
) -> Trained:
    """Trains a candidate and saves the model.

    Args:
        candidate: What to train.
        spec: Names of the parts and number of features.
        train_split: What to learn from. Its statistics standardise the features in the model.
        validation_split: What decides when to stop.
        settings: How to train.
        logs: Folder of TensorBoard logs.
        model_path: `.keras` file to write.
        on_epoch: Called after each epoch with a line on how it went.

    Returns:
        The model and how it went.
    """
    statistics = train_split.statistics
    features = statistics.features
    mean, variance = features["compressed_mean"], features["compressed_variance"]
    model = compiled(candidate, mean, variance, settings)
    steps = math.ceil(statistics.lists / settings.batch_size)
    watch = _Stopwatch(on_epoch)
    batches = _batches(spec, train_split, validation_split, settings)
    learned, held_out = (seen_by(model, found) for found in batches)
    history = model.fit(
        learned,
        steps_per_epoch=steps,
        epochs=settings.epochs,
        validation_data=held_out,
        callbacks=[watch, keras.callbacks.TensorBoard(str(logs)), *stopping(settings)],
        shuffle=False,  # the data set shuffles
        verbose=0,
    ).history
    model_path.parent.mkdir(parents=True, exist_ok=True)
    model.save(model_path)
    per_step = watch.seconds_per_step(steps)
    lists_per_second = settings.batch_size / per_step
    return Trained(
        candidate,
        model,
        epochs=len(history["val_ndcg"]),
        validation_ndcg=float(max(history["val_ndcg"])),
        seconds_per_step=per_step,
        lists_per_second=lists_per_second,
        items_per_second=lists_per_second * statistics.items / statistics.lists,
        history={name: [float(value) for value in values] for name, values in history.items()},
    )


def compiled(
    candidate: Candidate, mean: Sequence[float], variance: Sequence[float], settings: Settings
) -> keras.Model:
    """Returns the model of a candidate, ready to be trained.

    Args:
        candidate: What to train.
        mean: Mean of each feature after compression.
        variance: Variance of each feature after compression.
        settings: How to train.
    """
    keras.utils.set_random_seed(settings.seed)
    model = candidate.make_model(mean, variance, settings)
    model.compile(
        optimizer=keras.optimizers.Adam(
            settings.learning_rate, use_ema=True, ema_momentum=settings.averaging
        ),
        loss=candidate.loss,
        metrics=[metrics.NDCG(k=10, name="ndcg"), metrics.MRR(name="mrr")],
        jit_compile=True,
    )
    return model


def stopping(settings: Settings) -> list[keras.callbacks.Callback]:
    """Returns what measures averaged weights, and keeps those of the best epoch."""
    return [
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        keras.callbacks.EarlyStopping(
            "val_ndcg", mode="max", patience=settings.patience, restore_best_weights=True
        ),
    ]


def seen_by(model: keras.Model, batches: tf.data.Dataset) -> tf.data.Dataset:
    """Returns batches of `(inputs, labels)` with what the model takes of the inputs."""
    return batches.map(lambda inputs, labels: (_seen_by(model, inputs), labels))


def _seen_by(model: keras.Model, inputs: dict[str, tf.Tensor]) -> Any:
    takes_mask = getattr(model, "takes_mask", False)
    return inputs if takes_mask else inputs[data.FeatureSpec.features]


def _scores(model: keras.Model, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    return model(_seen_by(model, inputs), training=False)


def _batches(
    spec: data.FeatureSpec, train_split: Split, validation_split: Split, settings: Settings
) -> tuple[tf.data.Dataset, tf.data.Dataset]:
    """Endless batches to learn from, and one pass to measure on, in the same few shapes."""
    size, inputs = settings.batch_size, list(stored.inputs_spec(spec))
    sizes = validation_split.statistics.list_sizes
    edges = batching.bucket_edges(
        collections.Counter(train_split.statistics.list_sizes) + collections.Counter(sizes),
        min_lists=size,
    )
    learned = batching.batches(
        train_split.shards,
        spec,
        batch_size=size,
        bucket_edges=edges,
        inputs=inputs,
        shuffle_buffer=SHUFFLE_BUFFER,
        seed=settings.seed,
        repeat=True,
    )
    held_out = batching.batches(
        validation_split.shards, spec, batch_size=size, bucket_edges=edges, inputs=inputs
    )
    # Told how many batches there are, Keras does not warn when they end.
    count = batching.num_batches(sizes, batch_size=size, bucket_edges=edges)
    return learned, held_out.apply(tf.data.experimental.assert_cardinality(count))


class _Stopwatch(keras.callbacks.Callback):
    """Times the training steps of each epoch, without its validation."""

    def __init__(self, on_epoch: Callable[[str], None]) -> None:
        super().__init__()
        self._on_epoch = on_epoch
        self._seconds: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._began = self._ended = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        self._ended = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._seconds.append(self._ended - self._began)
        ndcg = (logs or {})["val_ndcg"]
        epochs = self.params["epochs"]
        self._on_epoch(f"epoch {epoch + 1}/{epochs}, validation NDCG@10 {ndcg:.4f}")

    def seconds_per_step(self, steps: int) -> float:
        """Mean over the steps of all epochs but the first, if there are others."""
        seconds = self._seconds[1:] or self._seconds
        return sum(seconds) / (steps * len(seconds))
