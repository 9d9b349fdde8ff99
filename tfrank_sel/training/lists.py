"""Training lists, prepared once for all models that prepare alike."""

import functools
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Self

import keras
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.distribution import Group, SingleProcess
from tfrank_sel.training.settings import SettingsLike


class PreparedLists:
    """Training lists, prepared once for all models with equal preparations.

    Args:
        train: Training batches of inputs (`features`, `mask` and, if there are any, `texts` by
            name), labels and, if there are any, weights.
        validation: Batches for early stopping; None to train for all epochs.
        settings: Settings of training, such as the maximum number of items of a list.
        folder: Folder for the prepared lists; removed on `__exit__`.
        workers: The workers that train on them. The chief prepares the lists for all.
    """

    def __init__(
        self,
        train: tf.data.Dataset,
        validation: tf.data.Dataset | None,
        settings: SettingsLike,
        folder: Path,
        workers: Group = SingleProcess(),  # noqa: B008, it has no state
    ) -> None:
        self.settings, self.workers = settings, workers
        choose = functools.partial(_truncate, settings=settings)
        splits = {"train": train, "validation": validation}
        self._splits = {
            name: split.enumerate().map(choose) if settings.max_items else split
            for name, split in splits.items()
            if split is not None
        }
        self._folder = folder
        self._kept: list[tuple[Any, tuple[Cache, Cache | None]]] = []

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
        inputs, *_ = self._splits["train"].element_spec
        return {name: (None, None, *x.shape[2:]) for name, x in inputs.items()}

    def of(self, model: keras.Model) -> tuple[Cache, Cache | None]:
        """Returns the lists of both splits as the network of a model takes them."""
        return self.prepare(parts_of(model)[0])

    def prepare(self, preparation: keras.layers.Layer | None) -> tuple[Cache, Cache | None]:
        """Returns the lists of both splits as a layer prepares them, or as they are."""
        config_of_layer = preparation and preparation.get_config()
        for config, caches in self._kept:
            if config == config_of_layer:
                return caches
        folder = self._folder / str(len(self._kept))
        if self.workers.is_chief:
            prepared = _preparer(preparation, self._splits["train"].element_spec[0])
            parts = [Cache.write(prepared(x), folder / name) for name, x in self._splits.items()]
            self.workers.wait()
        else:
            self.workers.wait()
            parts = [Cache.load(folder / name) for name in self._splits]
        caches = parts[0], (parts[1] if parts[1:] else None)
        self._kept.append((config_of_layer, caches))
        return caches


def _truncate(number: tf.Tensor, batch: Any, settings: SettingsLike) -> Any:
    """Truncates longer lists according to the settings."""
    inputs, labels, *_ = batch
    size = tf.minimum(settings.max_items, tf.shape(labels)[1])
    if settings.truncation == "random":
        kept = batching.shuffle_positions(inputs["mask"], tf.stack([number, settings.seed]))[
            :, :size
        ]
    else:
        kept = {"head": batching.head, "top": batching.top}[settings.truncation](labels, size)
    return tf.nest.map_structure(lambda x: tf.gather(x, kept, batch_dims=1), batch)


def _preparer(preparation: Any, inputs: Any) -> Callable[[tf.data.Dataset], Iterable[Any]]:
    """A function that prepares batches of such inputs, in a graph that all splits share."""
    if preparation is None:
        return lambda batches: batches
    kinds = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, None, *x.shape[2:]], x.dtype), inputs
    )
    prepare = tf.function(preparation, input_signature=[kinds], autograph=False)
    return lambda batches: ((prepare(batch), *others) for batch, *others in batches)


def parts_of(model: keras.Model) -> tuple[keras.layers.Layer | None, keras.Model]:
    """Returns the preparation of a model, if it has one, and its trained part."""
    if isinstance(model, models.Prepared):
        return model.preparation, model.network
    return None, model
