"""Lists prepared for training, once for all models with equal preparations."""

import functools
import shutil
from pathlib import Path
from typing import Any, Self

import keras
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.distribution import Workers
from tfrank_sel.pipelines.configuration.training import Settings


class PreparedLists:
    """Training lists, prepared once for all models with equal preparations.

    Args:
        train: Training batches of inputs (`features`, `mask` and, if there are any, `texts` by
            name), labels and, if there are any, weights.
        validation: Batches for early stopping.
        settings: Settings, with the maximum number of items of a list.
        folder: Folder for the prepared lists; removed on `__exit__`.
        workers: The workers that train on them. The chief prepares the lists for all.
    """

    def __init__(
        self,
        train: tf.data.Dataset,
        validation: tf.data.Dataset,
        settings: Settings,
        folder: Path,
        workers: Workers | None = None,
    ) -> None:
        self.workers = workers or Workers()
        choose = functools.partial(_chosen, settings=settings)
        self._train, self._validation = (
            found.enumerate().map(choose) if settings.max_items else found
            for found in (train, validation)
        )
        self._folder = folder
        self._kept: list[tuple[Any, tuple[Cache, Cache]]] = []

    def __enter__(self) -> Self:
        self._remove()  # left by a killed process
        return self

    def __exit__(self, *error: object) -> None:
        self._remove()

    def _remove(self) -> None:
        if self.workers.is_chief:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def shapes(self) -> Any:
        """Shapes of the inputs of a model, by name."""
        inputs, *_ = self._train.element_spec
        return {name: (None, None, *x.shape[2:]) for name, x in inputs.items()}

    def of(self, model: keras.Model) -> tuple[Cache, Cache]:
        """Returns the lists of both splits as the network of a model takes them."""
        preparation, _ = parts_of(model)
        known = preparation and preparation.get_config()
        for config, caches in self._kept:
            if config == known:
                return caches
        folder = self._folder / str(len(self._kept))
        if self.workers.is_chief:
            Cache.write(_prepared(preparation, self._train), folder / "train")
            Cache.write(_prepared(preparation, self._validation), folder / "validation")
        self.workers.wait()
        caches = Cache.load(folder / "train"), Cache.load(folder / "validation")
        self._kept.append((known, caches))
        return caches


def _chosen(number: tf.Tensor, batch: Any, settings: Settings) -> Any:
    """Truncates longer lists according to the settings."""
    inputs, labels, *_ = batch
    size = tf.minimum(settings.max_items, tf.shape(labels)[1])
    if settings.truncation == "random":
        kept = batching.shuffled(inputs["mask"], tf.stack([number, settings.seed]))[:, :size]
    else:
        kept = {"head": batching.head, "top": batching.top}[settings.truncation](labels, size)
    return tf.nest.map_structure(lambda x: tf.gather(x, kept, batch_dims=1), batch)


def _prepared(preparation: Any, batches: tf.data.Dataset) -> tf.data.Dataset:
    if preparation is None:
        return batches
    return batches.map(lambda inputs, *others: (preparation(inputs), *others))


def parts_of(model: keras.Model) -> tuple[keras.layers.Layer | None, keras.Model]:
    """Returns the preparation of a model, if it has one, and its trained part."""
    if isinstance(model, models.Prepared):
        return model.preparation, model.network
    return None, model
