"""Training: a scorer fitted with one loss, stopped when validation NDCG no longer rises."""

import collections
import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from tfrank_sel import data, metrics, models
from tfrank_sel.arguments import Checked
from tfrank_sel.data import batching
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.ingestion import stored

# Lists to shuffle among; a list of MSLR takes about 60 kB.
SHUFFLE_BUFFER = 2048


@dataclasses.dataclass(frozen=True)
class Settings(Checked):
    """How a model is trained; the same for ours and the baseline.

    Args:
        epochs: Largest number of epochs.
        patience: Epochs without a better validation NDCG@10 before training stops.
        batch_size: Lists in a batch.
        learning_rate: Step size of Adam; positive.
        hidden_units: Widths of the hidden layers.
        dropout: Share of hidden units dropped, in [0, 1).
        averaging: Decay of the averaged weights, which the model is measured and served with.
        seed: Seed of weights, shuffling and dropout; at least 0.

    Raises:
        ValueError: If a number is out of range.
    """

    epochs: int = 60
    patience: int = 10
    batch_size: int = 16
    learning_rate: float = 1e-3
    hidden_units: Sequence[int] = (64, 32)
    dropout: float = 0.3
    averaging: float = 0.98
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive. Received: {getattr(self, name)}")
        if not 0.0 <= self.averaging < 1.0 or self.seed < 0:
            raise ValueError(
                "`averaging` must be in [0, 1) and `seed` at least 0. "
                f"Received: averaging={self.averaging}, seed={self.seed}"
            )


@dataclasses.dataclass(frozen=True)
class Split:
    """A split on disk: its shards and statistics."""

    shards: Sequence[str]
    statistics: Statistics


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model and how it went.

    Args:
        model: The model, with the weights of its best epoch.
        epochs: Number of epochs run.
        validation_ndcg: Best validation NDCG@10.
        seconds_per_step: Mean time of a training step, the first epoch (which compiles) left out
            if there are more.
        lists_per_second: Lists trained on in that time.
        items_per_second: Documents trained on in that time; padding does not count.
        history: Loss and metrics of each epoch, by name.
    """

    model: keras.Model
    epochs: int
    validation_ndcg: float
    seconds_per_step: float
    lists_per_second: float
    items_per_second: float
    history: Mapping[str, list[float]]

    def figures(self) -> dict[str, Any]:
        """Returns all but the model."""
        figures = dict(vars(self))
        del figures["model"]
        return figures


def train(
    loss: keras.losses.Loss,
    spec: data.FeatureSpec,
    train_split: Split,
    validation_split: Split,
    settings: Settings,
    logs: Path,
    model_path: Path,
    on_epoch: Callable[[str], None],
) -> Trained:
    """Trains a scorer and saves it.

    Args:
        loss: The loss. Its labels are the grades; NaN is padding.
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
    model = compiled(loss, features["compressed_mean"], features["compressed_variance"], settings)
    steps = math.ceil(statistics.lists / settings.batch_size)
    watch = _Stopwatch(on_epoch)
    learned, held_out = _batches(spec, train_split, validation_split, settings)
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
        model,
        epochs=len(history["val_ndcg"]),
        validation_ndcg=float(max(history["val_ndcg"])),
        seconds_per_step=per_step,
        lists_per_second=lists_per_second,
        items_per_second=lists_per_second * statistics.items / statistics.lists,
        history={name: [float(value) for value in values] for name, values in history.items()},
    )


def compiled(
    loss: keras.losses.Loss, mean: Sequence[float], variance: Sequence[float], settings: Settings
) -> keras.Model:
    """Returns the scorer of a run, ready to be trained.

    Args:
        loss: The loss.
        mean: Mean of each feature after compression.
        variance: Variance of each feature after compression.
        settings: How to train.
    """
    keras.utils.set_random_seed(settings.seed)
    model = models.ListScorer(mean, variance, settings.hidden_units, settings.dropout)
    model.compile(
        optimizer=keras.optimizers.Adam(
            settings.learning_rate, use_ema=True, ema_momentum=settings.averaging
        ),
        loss=loss,
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
