"""Conversion of requests to the inputs of a model, and the description of these in a manifest."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tfrank_sel import lazy
from tfrank_sel.data import typed
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.spec import FeatureSpec, ListFeatures, input_names
from tfrank_sel.features import FeatureTypes, of_config

if TYPE_CHECKING:
    import tensorflow as tf

    from tfrank_sel.data import parsing
else:
    tf, parsing = lazy.Module("tensorflow"), lazy.Module("tfrank_sel.data.parsing")

Spec = FeatureSpec | Schema | ListFeatures | FeatureTypes
Values = dict[str, Any]  # tensors by name of the feature
PACKED = "features"  # the input of a model that takes one tensor


class Request(NamedTuple):
    """Lists of a request.

    Args:
        values: The features by name.
        mask: True for items, False for padding, `[batch_size, list_size]`.
        doc_ids: Identifiers of the items, of the same shape.
    """

    values: Values
    mask: "tf.Tensor"
    doc_ids: "tf.Tensor"


@dataclasses.dataclass(frozen=True)
class ModelInputs:
    """The inputs of a model, and how to read them from requests: see `of`.

    In a request, a number, a Boolean and a vector are float32, NaN or -3e38 if missing; a timestamp
    is int64, seconds since 1970 UTC; a category and a set are strings, empty if missing, or int64.
    A missing integer is the lowest int64.

    Args:
        names: Name of each feature as an input of a signature.
        description: The description of the inputs for the manifest.
        doc_id: Name of an item's identifier.
        types: Type of each feature, in the order in which the model takes them; empty if the model
            takes the features of `given` as they are.
        packed: The short form of a schema, for a model that takes its only feature as a tensor.
        mask: Name of the mask of a dense request.
        given: The features of an example, of a model without types.
    """

    names: Mapping[str, str]
    description: Mapping[str, Any]
    doc_id: str
    types: FeatureTypes = dataclasses.field(default_factory=dict)
    packed: FeatureSpec | None = None
    mask: str = "mask"
    given: ListFeatures | None = None

    @functools.cached_property
    def example_features(self) -> ListFeatures:
        """The features of an example."""
        return self.given or typed.list_features(self.types)

    @classmethod
    def of(cls, spec: Spec, doc_id: str = Columns.doc_id) -> Self:
        """Returns the inputs of a model.

        Args:
            spec: As in `tfrank_sel.export.export`.
            doc_id: As in `tfrank_sel.export.export`.
        """
        if isinstance(spec, Schema):
            spec = spec.types or spec.spec
        if isinstance(spec, ListFeatures):
            kinds = {**spec.items, **spec.context}
            description = {
                "items": {name: _description(kind) for name, kind in spec.items.items()},
                "context": {name: _description(kind) for name, kind in spec.context.items()},
                "doc_id": doc_id,
            }
            names = input_names(kinds)
            return cls(names, description, doc_id, mask=spec.mask, given=spec)
        if isinstance(spec, FeatureSpec):
            names = {spec.features: PACKED}
            return cls(names, spec.get_config(), spec.doc_id, spec.types, spec)
        configs = {name: feature.config() for name, feature in spec.items()}
        description = {"types": configs, "doc_id": doc_id}
        return cls(input_names(spec), description, doc_id, spec)

    @classmethod
    def of_description(cls, description: Mapping[str, Any]) -> Self | None:
        """Returns the inputs that a manifest of this or an earlier version describes; None if they
        have no types, or nothing is described.
        """
        if "types" in description:
            types = {name: of_config(config) for name, config in description["types"].items()}
            return cls.of(types, description["doc_id"])
        return cls.of(FeatureSpec(**description)) if "num_features" in description else None

    def parse(self, examples: "tf.Tensor") -> Request:
        """Reads serialized `ExampleListWithContext`, `[batch_size]`."""
        identifier = tf.io.FixedLenFeature([], tf.string, "")
        items = {self.doc_id: identifier, **self.example_features.items}
        parsed = parsing.parse_elwc(
            examples, dataclasses.replace(self.example_features, items=items)
        )
        return Request(
            self._values(parsed), parsed[self.example_features.mask], parsed[self.doc_id]
        )

    def parse_items(self, examples: "tf.Tensor") -> Values:
        """Reads serialized `tf.train.Example`, `[num_items]`, each as a list of one item."""
        return self._values(parsing.parse_example(examples, self.example_features))

    def _values(self, parsed: Mapping[str, Any]) -> Values:
        return {name: parsed[name] for name in self.names} | typed.pad_sets(parsed, self.types)

    def structure(self) -> "dict[str, tf.TensorSpec] | None":
        """Returns the `tf.TensorSpec` of each input of a dense request; None if there is none."""
        kinds = {**self.example_features.items, **self.example_features.context}
        fixed = {x: kind for x, kind in kinds.items() if isinstance(kind, tf.io.FixedLenFeature)}
        specs = {name: tf.TensorSpec(self._shape(name), kind.dtype) for name, kind in fixed.items()}
        specs |= typed.structure(self.types)
        if specs.keys() != kinds.keys():
            return None
        return {
            name: tf.TensorSpec(specs[name].shape, specs[name].dtype, name=self.names[name])
            for name in kinds
        }

    def size(self, values: Values) -> "tf.Tensor":
        """Returns `[batch_size, list_size]` of dense values."""
        return tf.shape(values[next(iter(self.example_features.items))])[:2]

    def check(self, values: Values) -> Values:
        """Returns the values as a model gets them by name; the graph raises an error for wrong
        shapes and non-finite values.
        """
        if self.types and self.packed is None:
            return typed.matrices(values, self.types)
        return {
            name: _check_shape(name, value, self._shape(name))
            if isinstance(value, tf.Tensor)
            else value
            for name, value in values.items()
        }

    @property
    def explained_features(self) -> tuple[Sequence[str], Mapping[str, Any]]:
        """Names of the features that scores are explained by, those of items or the columns of the
        only one, and the number of each dense input that is one, or of its columns.
        """
        if self.packed is not None:
            columns = range(self.packed.num_features)
            return [str(i + 1) for i in columns], {self.packed.features: columns}
        names = [*self.example_features.items]
        return names, {name: number for number, name in enumerate(names)}

    def _shape(self, name: str) -> list[int | None]:
        """The shape of a batch of a `tf.io.FixedLenFeature`."""
        kind = self.example_features.items.get(name)
        lists: list[int | None] = [None] if kind is None else [None, None]
        kind = kind or self.example_features.context[name]
        return lists + tf.TensorShape(kind.shape).as_list()


def _check_shape(name: str, value: "tf.Tensor", shape: Sequence[int | None]) -> "tf.Tensor":
    # A server does not check the shape of a request against the signature, so the graph does.
    value = tf.ensure_shape(value, shape)
    if value.dtype.is_floating:
        value = tf.debugging.check_numerics(value, f"`{name}` must be finite")
    return value


def _description(kind: Any) -> dict[str, Any]:
    described = {"kind": type(kind).__name__, "dtype": kind.dtype.name}
    if isinstance(kind, tf.io.FixedLenFeature):
        described["shape"] = tf.TensorShape(kind.shape).as_list()
        described["has_default"] = kind.default_value is not None
    return described
