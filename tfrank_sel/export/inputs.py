"""Conversion of requests to the inputs of a model: packed features, or named features."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from tfrank_sel.data import elwc, parsing
from tfrank_sel.data.spec import FeatureSpec, ListFeatures, input_names

Values = Any  # a tensor, or a dict of tensors by name


class Lists(NamedTuple):
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

    Args:
        mask: Name of the mask of a dense request.
    """

    mask: str

    @abc.abstractmethod
    def parse(self, examples: tf.Tensor) -> Lists:
        """Reads serialized `ExampleListWithContext`, `[batch_size]`."""

    @abc.abstractmethod
    def parse_items(self, examples: tf.Tensor) -> Values:
        """Reads serialized `tf.train.Example`, `[num_items]`, each as a list of one item."""

    @abc.abstractmethod
    def structure(self) -> Any:
        """Returns the `tf.TensorSpec` of each input of a dense request; None if it is impossible.

        Names are those of `tfrank_sel.data.spec.input_name`.
        """

    @abc.abstractmethod
    def check(self, values: Values) -> Values:
        """Returns the values; the graph raises an error for wrong shapes and non-finite values."""

    @abc.abstractmethod
    def with_mask(self, values: Values, mask: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the values with their mask, for a model that takes it."""

    @abc.abstractmethod
    def size(self, values: Values) -> tf.Tensor:
        """Returns `[batch_size, list_size]` of dense values."""

    @abc.abstractmethod
    def description(self) -> Mapping[str, Any]:
        """Returns the description of the inputs for the manifest."""


@dataclasses.dataclass(frozen=True)
class Packed(Inputs):
    """Inputs of a model with packed features, `[batch_size, list_size, num_features]`.

    Args:
        spec: Names of the parts of an example and number of features.
    """

    spec: FeatureSpec
    mask: str = "mask"

    def parse(self, examples: tf.Tensor) -> Lists:
        parsed = elwc.parse(examples, self.spec)
        return Lists(parsed[self.spec.features], parsed["mask"], parsed[self.spec.doc_id])

    def parse_items(self, examples: tf.Tensor) -> Values:
        items = tf.io.FixedLenFeature([self.spec.num_features], tf.float32)
        parsed = tf.io.parse_example(examples, {self.spec.features: items})
        return parsed[self.spec.features][:, tf.newaxis]

    def structure(self) -> Any:
        return tf.TensorSpec([None, None, self.spec.num_features], tf.float32, name="features")

    def check(self, values: Values) -> Values:
        return _checked(self.spec.features, values, self.structure().shape)

    def with_mask(self, values: Values, mask: tf.Tensor) -> dict[str, tf.Tensor]:
        return {self.spec.features: values, self.mask: mask}

    def size(self, values: Values) -> tf.Tensor:
        return tf.shape(values)[:2]

    def description(self) -> Mapping[str, Any]:
        return self.spec.get_config()


@dataclasses.dataclass(frozen=True)
class Named(Inputs):
    """Inputs of a model with named features: a dict of the features of the items and of the query.

    Args:
        features: The features.
        doc_id: Name of the item identifier, which the model takes only if it is in `features`.
    """

    features: ListFeatures
    doc_id: str

    @property
    def mask(self) -> str:  # type: ignore[override]
        """Name of the mask of a dense request."""
        return self.features.mask

    def parse(self, examples: tf.Tensor) -> Lists:
        identifier = tf.io.FixedLenFeature([], tf.string, "")
        items = {self.doc_id: identifier, **self.features.items}
        parsed = parsing.parse_elwc(examples, dataclasses.replace(self.features, items=items))
        return Lists(self._chosen(parsed), parsed[self.features.mask], parsed[self.doc_id])

    def parse_items(self, examples: tf.Tensor) -> Values:
        return self._chosen(parsing.parse_example(examples, self.features))

    def structure(self) -> Any:
        kinds = {**self.features.items, **self.features.context}
        if not all(isinstance(kind, tf.io.FixedLenFeature) for kind in kinds.values()):
            return None
        names = input_names(kinds)
        return {
            name: tf.TensorSpec(self._shape(name), kind.dtype, name=names[name])
            for name, kind in kinds.items()
        }

    def check(self, values: Values) -> Values:
        return {
            name: _checked(name, value, self._shape(name))
            if isinstance(value, tf.Tensor)
            else value
            for name, value in values.items()
        }

    def with_mask(self, values: Values, mask: tf.Tensor) -> dict[str, tf.Tensor]:
        return {**values, self.mask: mask}

    def size(self, values: Values) -> tf.Tensor:
        return tf.shape(values[next(iter(self.features.items))])[:2]

    def description(self) -> Mapping[str, Any]:
        return {
            "items": {name: _told(kind) for name, kind in self.features.items.items()},
            "context": {name: _told(kind) for name, kind in self.features.context.items()},
            "doc_id": self.doc_id,
        }

    def _chosen(self, parsed: Mapping[str, Any]) -> Values:
        return {name: parsed[name] for name in [*self.features.items, *self.features.context]}

    def _shape(self, name: str) -> list[int | None]:
        kind = {**self.features.items, **self.features.context}[name]
        lists: list[int | None] = [None, None] if name in self.features.items else [None]
        return lists + tf.TensorShape(kind.shape).as_list()


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
