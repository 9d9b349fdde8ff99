"""Preparation of features from statistics, and of lists, once for models that prepare alike."""

import functools
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import models
from tfrank_sel.data import batching
from tfrank_sel.data.cache import Cache
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import InputError
from tfrank_sel.distribution import Group, SingleProcess
from tfrank_sel.features import Category
from tfrank_sel.models import summary
from tfrank_sel.pipelines.analysis.statistics import Statistics
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
        workers: Group = SingleProcess(),  # noqa: B008, it has no state
    ) -> None:
        self.workers = workers
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
        splits = {"train": self._train, "validation": self._validation}
        if self.workers.is_chief:
            prepared = _preparing(preparation, self._train.element_spec[0])
            found = [Cache.write(prepared(x), folder / name) for name, x in splits.items()]
            self.workers.wait()
        else:
            self.workers.wait()
            found = [Cache.load(folder / name) for name in splits]
        caches = found[0], found[1]
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


def _preparing(preparation: Any, inputs: Any) -> Callable[[tf.data.Dataset], Iterable[Any]]:
    """A function that prepares batches of such inputs, in a graph that all splits share."""
    if preparation is None:
        return lambda batches: batches
    kinds = tf.nest.map_structure(
        lambda x: tf.TensorSpec([None, None, *x.shape[2:]], x.dtype), inputs
    )
    prepare = tf.function(preparation, input_signature=[kinds], autograph=False)
    return lambda batches: ((prepare(found), *others) for found, *others in batches)


def parts_of(model: keras.Model) -> tuple[keras.layers.Layer | None, keras.Model]:
    """Returns the preparation of a model, if it has one, and its trained part."""
    if isinstance(model, models.Prepared):
        return model.preparation, model.network
    return None, model


def prepared(
    found: Statistics, layout: Schema, within_list: bool, before: models.Preparation | None = None
) -> models.Preparation:
    """Returns the preparation of features for a network, from the training statistics.

    Args:
        found: Statistics of the training split.
        layout: Schema of a list.
        within_list: As in `models.Preparation`.
        before: The preparation of a model for a warm start. Its vocabularies are kept, and new
            values are appended up to `max_size`. Features with missing values before keep their
            indicator column.

    Raises:
        tfrank_sel.data.InputError: If a feature is constant, or if it has no earlier vocabulary and
            no value reaches the minimum count.
    """
    known = (before and before.vocabularies) or {}
    vocabularies = {
        name: _grown(known[name], feature, found.texts[name])
        if name in known
        else _vocabulary(name, feature, found.texts[name])
        for name, feature in layout.features.items()
        if isinstance(feature, Category)
    }
    measures = {name: np.array(values) for name, values in found.features.items()}
    missing = dict(zip(found.names, measures["missing"], strict=True))
    mean = measures["compressed_mean"]
    variance = summary.distinguishable(mean, measures["compressed_variance"])
    missing_before = before.missing if before else ()
    return models.Preparation(
        mean.tolist(),
        np.where(measures["min"] == measures["max"], 0.0, variance).tolist(),
        within_list,
        layout.features,
        vocabularies,
        [
            name
            for name, feature in layout.features.items()
            if any(missing[x] or name in missing_before for x in feature.columns(name))
        ],
    )


def _grown(known: Sequence[str], feature: Category, counts: Mapping[str, int]) -> list[str]:
    new = [value for value in summary.vocabulary(counts, feature) if value not in {*known}]
    return [*known, *new[: max(0, feature.max_size - len(known))]]


def _vocabulary(name: str, feature: Category, counts: Mapping[str, int]) -> list[str]:
    place = "the training split"
    if len(counts) == 1:
        [[value, count]] = counts.items()
        wanted = f"expected two values of {name!r}, or one and items without"
        raise InputError(place, f"{wanted}. Received: {value!r} for all {count} items")
    known = summary.vocabulary(counts, feature)
    if not known:
        wanted = f"expected a value of {name!r} that occurs {feature.min_count} times"
        most = max(count for value, count in counts.items() if value)
        raise InputError(place, f"{wanted}. Received: at most {most}")
    return known
