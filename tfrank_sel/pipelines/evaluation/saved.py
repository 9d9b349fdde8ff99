"""Scorers that can be sent to workers: of models in memory, and of exported ones."""

import dataclasses
import functools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf

from tfrank_sel.arguments import StrPath
from tfrank_sel.data import stores, typed
from tfrank_sel.data.rejections import InputError, rejection
from tfrank_sel.data.schema import Schema
from tfrank_sel.errors import refusal
from tfrank_sel.export.inputs import ModelInputs
from tfrank_sel.export.saved_model import read_manifest
from tfrank_sel.features import REFUSE, Feature, FeatureTypes, Number, Vector
from tfrank_sel.pipelines.ingestion.stored_lists import Scorer, Tensors

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

    def __call__(self, inputs: Tensors) -> tf.Tensor:
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
            raise rejection(folder, "expected a SavedModel", error) from None
        of_model = self._loaded.signatures["predict"].structured_input_signature[1]
        of_lists, taken = (
            {name: (x.dtype.name, *x.shape[1:]) for name, x in sorted(specs.items())}
            for specs in (inputs, of_model)
        )
        if taken != of_lists:
            raise refusal(f"{folder} must take the features of the lists, {of_lists}", taken)
        self._arguments = folder, inputs

    @property
    def signatures(self) -> Mapping[str, Callable[..., Tensors]]:
        """The signatures by name."""
        return self._loaded.signatures

    def __call__(self, inputs: Tensors) -> tf.Tensor:
        return self.signatures["predict"](**inputs)["scores"]

    @functools.cached_property
    def explain(self) -> Callable[..., Tensors]:
        """Its signature `explain`, whose input `pair` comes first.

        Raises:
            InputError: If the model has no such signature.
        """
        folder, inputs = self._arguments
        signatures = self._loaded.signatures
        if "explain" not in signatures:
            expected = "expected a model with the signature `explain`: export it again"
            raise rejection(folder, expected, *signatures)
        explain = signatures["explain"]
        [pair] = explain.structured_input_signature[1].keys() - inputs.keys()
        return lambda pairs, **lists: explain(**lists, **{pair: pairs})

    def __reduce__(self) -> tuple[type["SavedScorer"], tuple[Any, ...]]:
        return SavedScorer, self._arguments


@dataclasses.dataclass(frozen=True)
class SavedInputs:
    """Input features of an exported model.

    Args:
        folder: Folder or URL of the SavedModel.
        inputs: Its inputs, as its manifest describes them.
        names: Names of the numbers, in order, of a model with packed features; else empty.
    """

    folder: str
    inputs: ModelInputs
    names: Sequence[str] = ()

    @classmethod
    def read(cls, folder: StrPath) -> Self:
        """Reads the manifest of a model.

        Args:
            folder: Folder or URL of a SavedModel from `tfrank_sel.export`.

        Raises:
            tfrank_sel.data.InputError: If it is not such a model, or a named feature has no type.
        """
        path = os.fspath(folder)
        try:
            manifest = read_manifest(path)
        except InputError:
            raise
        except (OSError, ValueError) as error:
            expected = "expected the folder of a model from the step `export`"
            raise rejection(path, expected, error) from error
        inputs = ModelInputs.of_description(manifest["features"])
        if inputs is None:
            expected = "expected a model with packed features, or with typed features"
            raise rejection(path, expected, *manifest["features"])
        if inputs.packed is None:
            return cls(path, inputs)
        nameless = _nameless(inputs.packed.num_features)
        names = manifest.get("feature_names") or ()
        return cls(path, inputs, names if len(names) == len(nameless) else nameless)

    @property
    def features(self) -> FeatureTypes:
        """The features by name; packed ones are required numbers."""
        return dict.fromkeys(self.names, Number(missing=REFUSE)) or self.inputs.types

    def columns(self, features: FeatureTypes) -> tuple[list[int], list[int]]:
        """Returns the indices of the model's inputs, in its order, in the numbers and texts of
        lists.

        Args:
            features: Type of each feature of the lists, in the order of the columns.

        Raises:
            tfrank_sel.data.InputError: If the lists lack a feature, or a feature has another type.
        """
        model, lists = Schema(self.inputs.types), Schema(features)
        if self.names:
            return self._numbers(lists), []
        for name, feature in model.features.items():
            if name not in features:
                raise self._error(f"{name}, which they lack")
            if _stored_form(name, feature) != _stored_form(name, features[name]):
                raise self._error(
                    f"{name}, which is {features[name]} in them and {feature} in the model"
                )
        return [*map(lists.names.index, model.names)], [*map(lists.texts.index, model.texts)]

    def _numbers(self, lists: Schema) -> list[int]:
        """Finds numbers by name, or by position if either the model or the lists have no names."""
        numbers = lists.names
        lacking = [name for name in self.names if name not in numbers]
        if not lacking:
            for name, feature in lists.features.items():
                part = set(feature.numbers(name))
                if 0 < len(part.intersection(self.names)) < len(part):
                    raise self._error(f"{name}, which has {len(part)} numbers in them")
            return [numbers.index(name) for name in self.names]
        if all(names != _nameless(len(names)) for names in ([*self.names], numbers)):
            raise self._error(f"{lacking[0]}, which they lack")
        if len(numbers) != len(self.names):
            raise self._error(f"{len(self.names)} numbers, and {len(numbers)} in them")
        return list(range(len(numbers)))

    def _error(self, of_lists: str) -> InputError:
        return rejection(self.folder, "the lists must have the features of the model", of_lists)


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

    def __init__(self, folder: str, features: FeatureTypes) -> None:
        self.folder, self._model = folder, SavedInputs.read(folder)
        self._numbers, self._texts = self._model.columns(features)
        self._features = features

    @property
    def signatures(self) -> Mapping[str, Callable[..., Tensors]]:
        """The signatures of the model by name."""
        return self._score.signatures

    def move_to(self, folder: str) -> None:
        """Follows the model, which is not loaded again, to the new name of its folder."""
        self.folder, self._model = folder, dataclasses.replace(self._model, folder=folder)

    @functools.cached_property
    def _score(self) -> SavedScorer:
        """The model, loaded at first use, so that this object can be sent to workers."""
        structure = self._model.inputs.structure() or {}
        inputs = {spec.name: spec for spec in structure.values()}
        inputs[_MASK] = tf.TensorSpec([None, None], tf.bool)
        with tf.init_scope():  # a graph may be under construction
            return SavedScorer(self._model.folder, inputs)

    def __call__(self, inputs: Tensors) -> tf.Tensor:
        return self._score(self._select_inputs(inputs))

    def check_explains(self) -> None:
        """Raises an `InputError` if the model has no signature `explain`."""
        _ = self._score.explain

    def explain(self, inputs: Tensors, pairs: tf.Tensor) -> tuple[Sequence[str], np.ndarray]:
        """Returns the names of the features of items, and their contributions to the difference of
        two scores of each list, `[batch_size, num_features]`: see `tfrank_sel.models.explain`.
        """
        outputs = self._score.explain(pairs, **self._select_inputs(inputs))
        names = self._model.names or [x.decode() for x in outputs["features"][0].numpy()]
        return names, outputs["contributions"].numpy()

    def _select_inputs(self, inputs: Tensors) -> Tensors:
        """The inputs of the signature `predict`."""
        numbers = tf.constant(self._numbers, tf.int32)
        taken = {"features": tf.gather(inputs["features"], numbers, axis=2)}
        if self._texts:
            taken["texts"] = tf.gather(inputs["texts"], self._texts, axis=2)
        model = self._model.inputs
        named = typed.split_matrices(taken, model.types)
        return {**{model.names[x]: value for x, value in named.items()}, _MASK: inputs[_MASK]}

    def __reduce__(self) -> tuple[type["RecordScorer"], tuple[Any, ...]]:
        return RecordScorer, (self.folder, self._features)


def _nameless(count: int) -> list[str]:
    """The names of unnamed numbers, as in LETOR files."""
    return Vector(size=count).numbers("features")


def _stored_form(name: str, feature: Feature) -> tuple[Any, ...]:
    """The stored form of a feature in lists."""
    parts = feature.numbers(name), feature.texts(name), typed.dtype(feature)
    return type(feature), feature.of, *parts
