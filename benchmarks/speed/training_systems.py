"""Systems that `benchmarks.speed.training` trains, and measurements of their training."""

import dataclasses
import pathlib
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console

from benchmarks.speed import memory
from benchmarks.speed.rows import digits
from benchmarks.speed.training_step import ONE_LOSS, bare, documents
from tfrank_sel import data, metrics, models
from tfrank_sel.data import ItemList, letor, packed
from tfrank_sel.pipelines.candidates import Settings
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.ingestion import stored_lists
from tfrank_sel.pipelines.run import run
from tfrank_sel.training import fitting
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.lists import PreparedLists

FILES = {"train": "train.txt", "validation": "vali.txt", "test": "test.txt"}

Splits = dict[str, Sequence[ItemList]]


@dataclasses.dataclass(frozen=True)
class Fitted:
    """How training went; a column of the table each.

    Args:
        passes: Number of epochs or trees.
        ndcg: Best validation NDCG@10.
        first: CPU seconds to the end of the first pass; None if they are not known.
        best: CPU seconds to the end of the best pass; None if they are not known.
        total: CPU seconds.
        speed: Documents per CPU second.
        data: MiB before.
        peak: MiB at most.
    """

    passes: int
    ndcg: float
    first: float | None
    best: float | None
    total: float
    speed: float
    data: float
    peak: float

    def __str__(self) -> str:
        times = ("" if x is None else digits(x) for x in (self.first, self.best, self.total))
        memory = f"{self.data:,.0f} | {self.peak:,.0f}"
        return (
            f"{self.passes} | {self.ndcg:.4f} | {' | '.join(times)} | {self.speed:,.0f} | {memory}"
        )


class Watch:
    """Takes CPU seconds at the end of each pass, and memory, from when it is made."""

    def __init__(self) -> None:
        memory.start_peak()
        self.data, self.ends = memory.resident(), list[float]()
        self._began = time.process_time()

    def __call__(self, *_: object) -> None:
        self.ends.append(time.process_time() - self._began)

    def fitted(self, count: int, best: int, ndcg: float) -> Fitted:
        """Returns how training on `count` documents a pass went."""
        ends, passes = self.ends, len(self.ends)
        speed = count * (passes - 1) / (ends[-1] - ends[0])
        times = ends[0], ends[best], ends[-1]
        return Fitted(passes, ndcg, *times, speed, self.data, self.peak)

    @property
    def peak(self) -> float:
        """The peak memory until now; Linux counts in rough steps, so no less than at the start."""
        return max(self.data, memory.peak())


def arrays(lists: Sequence[ItemList]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features and labels of all documents, and sizes of lists."""
    features, labels = zip(*((x.features, x.labels) for x in lists), strict=True)
    return np.concatenate(features), np.concatenate(labels), np.array([len(x) for x in labels])


def ndcg(labels: np.ndarray, scores: np.ndarray, sizes: np.ndarray) -> float:
    of_lists = (tf.RaggedTensor.from_row_lengths(x, sizes) for x in (labels, scores))
    return float(metrics.NDCG(10).evaluate(*of_lists).mean())


def prepared(splits: Splits, folder: pathlib.Path) -> tuple[Any, PreparedLists]:
    """Mean and variance of the features, and the lists as a run gives them to training."""
    features, *_ = arrays(splits["train"])
    spec = data.FeatureSpec(features.shape[1])

    def batches(split: str) -> tf.data.Dataset:
        path = str(folder / split)
        with tf.io.TFRecordWriter(path) as file:
            for x in splits[split]:
                file.write(packed.serialize(x.features, spec, labels=x.labels))
        return stored_lists.batches([path], spec, Counter(len(x.labels) for x in splits[split]))

    lists = PreparedLists(batches("train"), batches("validation"), Settings(), folder / "prepared")
    return models.moments(features), lists


def to_the_end(epochs: int) -> Settings:
    """Settings with which training does not stop before the last epoch."""
    return Settings(epochs=epochs, patience=epochs)


def network(splits: Splits, epochs: int, folder: pathlib.Path) -> Fitted:
    """One member of the default candidate, from records on disk."""
    count = sum(len(x.labels) for x in splits["train"])
    moments, lists = prepared(splits, folder)
    splits.clear()  # training reads files
    watch = Watch()
    preparation = models.Preparation(*moments, within_list=True)
    hooks = Hooks(watch, logs=folder / "logs")
    lists.settings = to_the_end(epochs)
    trained = fitting.train(ONE_LOSS, preparation, lists, hooks)
    history = trained.fits[0].history["val_ndcg"]
    return watch.fitted(count, int(np.argmax(history)), max(history))


def whole_run(splits: Splits, epochs: int, folder: pathlib.Path) -> Fitted:
    """A run of one network and no baseline, from LETOR text to a published model."""
    training = {"loss": "RGCrossLoss", "epochs": epochs, "patience": epochs}
    alone: dict[str, Any] = {"model": {"trees": False}, "evaluation": {"baseline": False}}
    return _run(splits, folder, training=training, **alone)


def default_run(splits: Splits, epochs: int, folder: pathlib.Path) -> Fitted:
    """A run as it is without options: three networks, each until it gets no better."""
    return _run(splits, folder)


def _run(splits: Splits, folder: pathlib.Path, **sections: dict[str, Any]) -> Fitted:
    for split, lists in splits.items():
        letor.write(folder / FILES[split], lists)
    count = sum(len(x.labels) for x in splits["train"])
    splits.clear()
    files = {split: [str(folder / name)] for split, name in FILES.items()}
    configuration = Configuration.model_validate({"data": files, **sections})
    watch = Watch()
    result = run(configuration, folder / "out", Progress(Console(quiet=True)))
    watch()
    fits, (total,) = result.trained_models["ours"].fits, watch.ends
    passes = sum(fit.epochs for fit in fits)
    best = max(fit.validation_ndcg for fit in fits)
    found = (passes, best, None, None, total, count * passes / total)
    return Fitted(*found, watch.data, watch.peak)


def mlp(splits: Splits, epochs: int, folder: pathlib.Path) -> Fitted:
    """The floor: mean squared error of documents, of arrays prepared as for the network."""
    moments, lists = prepared(splits, folder)
    splits.clear()
    watch = Watch()
    model = models.ListScorer(*moments)
    train, validation = lists.of(model)
    x, y = documents(train)
    held_out, labels = documents(validation)
    found = []

    class Validation(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            scores = self.model.predict(held_out, batch_size=8192, verbose=0)
            found.append(ndcg(labels[:, 0], scores[:, 0], validation.sizes))
            watch()

    settings = to_the_end(epochs)
    batch_size = int(settings.batch_size * train.sizes.mean())
    bare(x.shape[1], settings).fit(x, y, batch_size, epochs, verbose=0, callbacks=[Validation()])
    return watch.fitted(len(y), int(np.argmax(found)), max(found))


def lightgbm(splits: Splits, trees: int, _: pathlib.Path, leaves: int) -> Fitted:
    """LightGBM's lambdarank."""
    import lightgbm

    x, y, sizes = arrays(splits["train"])
    held_out, labels, held_out_sizes = arrays(splits["validation"])
    splits.clear()
    watch, history = Watch(), dict[str, Any]()
    train = lightgbm.Dataset(x, y, group=sizes)
    settings = {
        "objective": "lambdarank",
        "metric": "ndcg",
        "eval_at": [10],
        "num_leaves": leaves,
        "num_threads": 1,
        "verbose": -1,
    }
    model = lightgbm.train(
        settings,
        train,
        trees,
        valid_sets=[train.create_valid(held_out, labels, group=held_out_sizes)],
        callbacks=[lightgbm.record_evaluation(history), watch],
    )
    best = int(np.argmax(history["valid_0"]["ndcg@10"]))
    scores = model.predict(held_out, num_iteration=best + 1)
    return watch.fitted(len(y), best, ndcg(labels, scores, held_out_sizes))


def xgboost(splits: Splits, trees: int, _: pathlib.Path) -> Fitted:
    """XGBoost's rank:ndcg."""
    import xgboost

    class AfterTree(xgboost.callback.TrainingCallback):
        def after_iteration(self, *_: object) -> bool:
            watch()
            return False

    x, y, sizes = arrays(splits["train"])
    held_out, labels, held_out_sizes = arrays(splits["validation"])
    splits.clear()
    watch, history = Watch(), dict[str, Any]()
    validation = xgboost.DMatrix(held_out, labels, group=held_out_sizes, nthread=1)
    model = xgboost.train(
        {"objective": "rank:ndcg", "eval_metric": "ndcg@10", "nthread": 1},
        xgboost.QuantileDMatrix(x, y, group=sizes, nthread=1),
        trees,
        evals=[(validation, "validation")],
        evals_result=history,
        callbacks=[AfterTree()],
        verbose_eval=False,
    )
    best = int(np.argmax(history["validation"]["ndcg@10"]))
    scores = model.predict(validation, iteration_range=(0, best + 1))
    return watch.fitted(len(y), best, ndcg(labels, scores, held_out_sizes))
