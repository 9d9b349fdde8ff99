"""Scorers that can be sent to workers: of models in memory, and of exported ones."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel.arguments import Checked
from tfrank_sel.data import stores, typed
from tfrank_sel.data.formats import Columns
from tfrank_sel.data.lists import InputError
from tfrank_sel.export.saved_model import read_manifest
from tfrank_sel.features import Feature, Vector, of_config
from tfrank_sel.pipelines.ingestion.stored_lists import Scorer

_MASK = "mask"


class TracedScorer:
    """Scores lists by a model in memory, as a graph that each process traces once.

    Args:
        scorer: Scoring function of the model.
        inputs: Its inputs, by name.
    """

    def __init__(self, scorer: Scorer, inputs: Mapping[str, tf.TensorSpec]) -> None:
        self._arguments = scorer, dict(inputs)

    @functools.cached_property
    def _graph(self) -> Scorer:
        scorer, inputs = self._arguments
        return tf.function(scorer, input_signature=[inputs], autograph=False)

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self._graph(inputs)

    def __reduce__(self) -> tuple[type["TracedScorer"], tuple[Any, ...]]:
        return TracedScorer, self._arguments


class SavedScorer:
    """Scores lists by a SavedModel, which is loaded on each worker.

    Args:
        folder: Folder or URL of a SavedModel from `tfrank_sel.export`.
        inputs: Required inputs of its signature `predict`, by name.

    Raises:
        InputError: If it cannot be loaded.
        ValueError: If the model takes other features.
    """

    def __init__(self, folder: str, inputs: Mapping[str, tf.TensorSpec]) -> None:
        try:
            self._loaded = tf.saved_model.load(stores.near_folder(folder))
        except Exception as error:  # whatever a damaged file makes of TensorFlow
            raise InputError(folder, f"expected a SavedModel. Received: {error}") from None
        found = self._loaded.signatures["predict"].structured_input_signature[1]
        wanted, received = (
            {name: (x.dtype.name, *x.shape[1:]) for name, x in sorted(kinds.items())}
            for kinds in (inputs, found)
        )
        if received != wanted:
            raise ValueError(
                f"{folder} must take the features of the lists, {wanted}. Received: {received}"
            )
        self._arguments = folder, inputs

    @property
    def signatures(self) -> Mapping[str, Callable[..., dict[str, tf.Tensor]]]:
        """The signatures by name."""
        return self._loaded.signatures

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self.signatures["predict"](**inputs)["scores"]

    @functools.cached_property
    def explain(self) -> Callable[..., dict[str, tf.Tensor]]:
        """Its signature `explain`, whose input `pair` comes first.

        Raises:
            InputError: If the model has no such signature.
        """
        folder, inputs = self._arguments
        signatures = self._loaded.signatures
        if "explain" not in signatures:
            wanted = "expected a model with the signature `explain`: export it again"
            raise InputError(folder, f"{wanted}. Received: {', '.join(signatures)}")
        found = signatures["explain"]
        [pair] = found.structured_input_signature[1].keys() - inputs.keys()
        return lambda pairs, **lists: found(**lists, **{pair: pairs})

    def __reduce__(self) -> tuple[type["SavedScorer"], tuple[Any, ...]]:
        return SavedScorer, self._arguments


@dataclasses.dataclass(frozen=True)
class Takes(Checked):
    """Input features of an exported model.

    Args:
        folder: Folder or URL of the SavedModel.
        names: Names of the numbers, in order, of a model with packed features; else empty.
        types: Types of the features, in order, of a model with named features; else empty.
        doc_id: Name of the item identifier.
    """

    folder: str
    names: Sequence[str] = ()
    types: Mapping[str, Feature] = dataclasses.field(default_factory=dict)
    doc_id: str = Columns.doc_id

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> "Takes":
        """Reads the manifest of a model.

        Args:
            folder: Folder or URL of a SavedModel from `tfrank_sel.export`.

        Raises:
            tfrank_sel.data.InputError: If it is not such a model, or a named feature has no type.
        """
        place = os.fspath(folder)
        try:
            manifest = read_manifest(place)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            wanted = "expected the folder of a model from the step `export`"
            raise InputError(place, f"{wanted}. Received: {error}") from error
        found = manifest["features"]
        if "types" in found:
            types = {name: of_config(config) for name, config in found["types"].items()}
            return cls(place, (), types, found["doc_id"])
        if "num_features" not in found:
            wanted = "expected a model with packed features, or with typed features"
            raise InputError(place, f"{wanted}. Received: {', '.join(found)}")
        names = manifest.get("feature_names") or ()
        if len(names) != found["num_features"]:
            names = _nameless(found["num_features"])
        return cls(place, names, {}, found["doc_id"])

    def columns(self, features: Mapping[str, Feature]) -> tuple[list[int], list[int]]:
        """Returns the indices of the model's inputs, in its order, in the numbers and texts of
        lists.

        Args:
            features: Type of each feature of the lists, in the order of the columns.

        Raises:
            tfrank_sel.data.InputError: If the lists lack a feature, or a feature has another type.
        """
        numbers = [x for name, feature in features.items() for x in feature.numbers(name)]
        texts = [x for name, feature in features.items() for x in feature.texts(name)]
        if not self.types:
            return self._of_numbers(numbers, features), []
        for name, feature in self.types.items():
            if name not in features:
                raise self._refused(f"{name}, which they lack")
            if _stored(name, feature) != _stored(name, features[name]):
                received = f"{name}, which is {features[name]} in them and {feature} in the model"
                raise self._refused(received)
        wanted = self.types.items()
        return (
            [numbers.index(x) for name, feature in wanted for x in feature.numbers(name)],
            [texts.index(x) for name, feature in wanted for x in feature.texts(name)],
        )

    def _of_numbers(self, known: list[str], features: Mapping[str, Feature]) -> list[int]:
        """Finds numbers by name, or by position if either the model or the lists have no names."""
        lacking = [name for name in self.names if name not in known]
        if not lacking:
            for name, feature in features.items():
                part = set(feature.numbers(name))
                if 0 < len(part.intersection(self.names)) < len(part):
                    raise self._refused(f"{name}, which has {len(part)} numbers in them")
            return [known.index(name) for name in self.names]
        is_nameless = [names == _nameless(len(names)) for names in (list(self.names), known)]
        if not any(is_nameless):
            raise self._refused(f"{lacking[0]}, which they lack")
        if len(known) != len(self.names):
            raise self._refused(f"{len(self.names)} numbers, and {len(known)} in them")
        return list(range(len(known)))

    def _refused(self, received: str) -> InputError:
        wanted = "the lists must have the features of the model"
        return InputError(self.folder, f"{wanted}. Received: {received}")


class RecordScorer:
    """Scores lists in the layout of records by an exported model, selecting its features.

    Args:
        folder: Folder or URL of a SavedModel from `tfrank_sel.export`, with packed features or with
            typed features.
        features: Type of each feature of the lists, in the order of the columns. The model may use
            a part of them, in another order.

    Raises:
        tfrank_sel.data.InputError: If `folder` is not such a model, or the lists lack a feature of
            the model or have it with another type.
    """

    def __init__(self, folder: str, features: Mapping[str, Feature]) -> None:
        self.folder, self._takes = folder, Takes.read(folder)
        self._numbers, self._texts = self._takes.columns(features)
        self._structure = typed.structure(self._takes.types)
        self._features = features

    @property
    def signatures(self) -> Mapping[str, Callable[..., dict[str, tf.Tensor]]]:
        """The signatures of the model by name."""
        return self._score.signatures

    def moved(self, folder: str) -> None:
        """Follows the model, which is not loaded again, to the new name of its folder."""
        self.folder, self._takes = folder, dataclasses.replace(self._takes, folder=folder)

    @functools.cached_property
    def _score(self) -> SavedScorer:
        """The model, loaded at first use, so that this object can be sent to workers."""
        inputs = {spec.name: spec for spec in self._structure.values()}
        if not inputs:
            inputs["features"] = tf.TensorSpec([None, None, len(self._numbers)], tf.float32)
        inputs[_MASK] = tf.TensorSpec([None, None], tf.bool)
        with tf.init_scope():  # a graph may be under construction
            return SavedScorer(self._takes.folder, inputs)

    def __call__(self, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
        return self._score(self._taken(inputs))

    def check_explains(self) -> None:
        """Raises an `InputError` if the model has no signature `explain`."""
        _ = self._score.explain

    def explain(
        self, inputs: dict[str, tf.Tensor], pairs: tf.Tensor
    ) -> tuple[Sequence[str], np.ndarray]:
        """Returns the names of the features of items, and their contributions to the difference of
        two scores of each list, `[batch_size, num_features]`: see `tfrank_sel.models.explain`.
        """
        found = self._score.explain(pairs, **self._taken(inputs))
        names = self._takes.names or [x.decode() for x in found["features"][0].numpy()]
        return names, found["contributions"].numpy()

    def _taken(self, inputs: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """The inputs of the signature `predict`."""
        numbers = tf.constant(self._numbers, tf.int32)
        taken = {"features": tf.gather(inputs["features"], numbers, axis=2)}
        if self._texts:
            taken["texts"] = tf.gather(inputs["texts"], self._texts, axis=2)
        if self._structure:
            named = typed.named(taken, self._takes.types)
            taken = {self._structure[name].name: value for name, value in named.items()}
        return {**taken, _MASK: inputs[_MASK]}

    def __reduce__(self) -> tuple[type["RecordScorer"], tuple[Any, ...]]:
        return RecordScorer, (self.folder, self._features)


def _nameless(count: int) -> list[str]:
    """The names of unnamed numbers, as in LETOR files."""
    return Vector(size=count).numbers("features")


def _stored(name: str, feature: Feature) -> tuple[Any, ...]:
    """The stored form of a feature in lists."""
    parts = feature.numbers(name), feature.texts(name), typed.dtype(feature)
    return type(feature), feature.of, *parts
