"""Conversion of requests to the inputs of a model: packed, named or typed features."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfrank_sel.data import parsing, typed
from tfrank_sel.data.spec import FeatureSpec, ListFeatures, input_names
from tfrank_sel.features import Feature

Values = Any  # a tensor, or a dict of tensors by name


class Request(NamedTuple):
    """Lists of a request.

    Args:
        values: What the model takes.
        mask: True for items, False for padding, `[batch_size, list_size]`.
        doc_ids: Identifiers of the items, of the same shape.
    """

    values: Values
    mask: tf.Tensor
    doc_ids: tf.Tensor


class Inputs(abc.ABC):
    """The inputs of a model, and how to read them from requests.

    Attributes:
        doc_id: Name of an item's identifier.
        mask: Name of the mask of a dense request.
        stored: The features of an example.
    """

    doc_id: str
    mask: str
    stored: ListFeatures

    def parse(self, examples: tf.Tensor) -> Request:
        """Reads serialized `ExampleListWithContext`, `[batch_size]`."""
        identifier = tf.io.FixedLenFeature([], tf.string, "")
        items = {self.doc_id: identifier, **self.stored.items}
        parsed = parsing.parse_elwc(examples, dataclasses.replace(self.stored, items=items))
        return Request(self.values(parsed), parsed[self.stored.mask], parsed[self.doc_id])

    def parse_items(self, examples: tf.Tensor) -> Values:
        """Reads serialized `tf.train.Example`, `[num_items]`, each as a list of one item."""
        return self.values(parsing.parse_example(examples, self.stored))

    def with_mask(self, values: Values, mask: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the values with their mask, for a model that takes it."""
        return {**values, self.mask: mask}

    def size(self, values: Values) -> tf.Tensor:
        """Returns `[batch_size, list_size]` of dense values."""
        return tf.shape(values[next(iter(self.stored.items))])[:2]

    @abc.abstractmethod
    def values(self, parsed: Mapping[str, Any]) -> Values:
        """Returns what the model takes of parsed examples."""

    @abc.abstractmethod
    def structure(self) -> Any:
        """Returns the `tf.TensorSpec` of each input of a dense request; None if it is impossible.

        Names are those of `tfrank_sel.data.spec.input_name`.
        """

    @property
    def of_items(self) -> Sequence[str]:
        """The features of items in the order of their numbers, by which they are explained."""
        return [*self.stored.items]

    @property
    def numbers(self) -> dict[str, Any]:
        """The number, in `of_items`, of each dense input that is one, or of its columns."""
        return {name: number for number, name in enumerate(self.of_items)}

    @abc.abstractmethod
    def check(self, values: Values) -> Values:
        """Returns the values; the graph raises an error for wrong shapes and non-finite values."""

    @abc.abstractmethod
    def description(self) -> Mapping[str, Any]:
        """Returns the description of the inputs for the manifest."""


class Packed(Inputs):
    """Inputs of a model with packed features, `[batch_size, list_size, num_features]`.

    Args:
        spec: Names of the parts of an example and number of features.
    """

    mask = "mask"

    def __init__(self, spec: FeatureSpec) -> None:
        self.spec, self.doc_id = spec, spec.doc_id
        packed = tf.io.FixedLenFeature([spec.num_features], tf.float32)
        self.stored = ListFeatures({spec.features: packed}, mask="\0mask", size="\0size")

    def values(self, parsed: Mapping[str, Any]) -> Values:
        return parsed[self.spec.features]

    def structure(self) -> Any:
        return tf.TensorSpec([None, None, self.spec.num_features], tf.float32, name="features")

    def check(self, values: Values) -> Values:
        return _checked(self.spec.features, values, self.structure().shape)

    def with_mask(self, values: Values, mask: tf.Tensor) -> dict[str, tf.Tensor]:
        return {self.spec.features: values, self.mask: mask}

    def size(self, values: Values) -> tf.Tensor:
        return tf.shape(values)[:2]

    @property
    def of_items(self) -> Sequence[str]:
        return [str(i) for i in range(1, self.spec.num_features + 1)]

    @property
    def numbers(self) -> dict[str, Any]:
        return {self.spec.features: range(self.spec.num_features)}

    def description(self) -> Mapping[str, Any]:
        return self.spec.get_config()


class Named(Inputs):
    """Inputs of a model with named features: a dict of the features of the items and of the query.

    Args:
        features: The features.
        doc_id: Name of the item identifier, which the model takes only if it is in `features`.
    """

    def __init__(self, features: ListFeatures, doc_id: str) -> None:
        self.stored, self.doc_id, self.mask = features, doc_id, features.mask
        self.kinds = {**features.items, **features.context}

    def values(self, parsed: Mapping[str, Any]) -> Values:
        return {name: parsed[name] for name in self.kinds}

    def structure(self) -> Any:
        if not all(isinstance(kind, tf.io.FixedLenFeature) for kind in self.kinds.values()):
            return None
        names = input_names(self.kinds)
        return {
            name: tf.TensorSpec(self._shape(name), kind.dtype, name=names[name])
            for name, kind in self.kinds.items()
        }

    def check(self, values: Values) -> Values:
        return {
            name: _checked(name, value, self._shape(name))
            if isinstance(value, tf.Tensor)
            else value
            for name, value in values.items()
        }

    def description(self) -> Mapping[str, Any]:
        return {
            "items": {name: _told(kind) for name, kind in self.stored.items.items()},
            "context": {name: _told(kind) for name, kind in self.stored.context.items()},
            "doc_id": self.doc_id,
        }

    def _shape(self, name: str) -> list[int | None]:
        lists: list[int | None] = [None, None] if name in self.stored.items else [None]
        return lists + tf.TensorShape(self.kinds[name].shape).as_list()


class Typed(Inputs):
    """Inputs of a model with features of `tfrank_sel.features`: a dict of `features` and `texts`.

    In a request, a number, a Boolean and a vector are float32, NaN if missing; a timestamp is
    int64, seconds since 1970 UTC; a category and a set are strings, empty if missing, or int64. A
    missing integer is the lowest int64.

    Args:
        features: Type of each feature by name, in the order in which the model takes them.
        doc_id: Name of an item's identifier.
    """

    mask = "mask"

    def __init__(self, features: Mapping[str, Feature], doc_id: str) -> None:
        self.features, self.doc_id = features, doc_id
        self.stored = typed.list_features(features)

    def values(self, parsed: Mapping[str, Any]) -> Values:
        return typed.padded(parsed, self.features)

    def structure(self) -> dict[str, tf.TensorSpec]:
        return typed.structure(self.features)

    def check(self, values: Values) -> Values:
        return typed.matrices(values, self.features)

    def description(self) -> Mapping[str, Any]:
        return {
            "types": {name: feature.config() for name, feature in self.features.items()},
            "doc_id": self.doc_id,
        }


def _checked(name: str, value: tf.Tensor, shape: Sequence[int | None]) -> tf.Tensor:
    # A server does not check the shape of a request against the signature, so the graph does.
    value = tf.ensure_shape(value, shape)
    if value.dtype.is_floating:
        value = tf.debugging.check_numerics(value, f"`{name}` must be finite")
    return value


def _told(kind: Any) -> dict[str, Any]:
    told = {"kind": type(kind).__name__, "dtype": kind.dtype.name}
    if isinstance(kind, tf.io.FixedLenFeature):
        told["shape"] = tf.TensorShape(kind.shape).as_list()
        told["has_default"] = kind.default_value is not None
    return told
