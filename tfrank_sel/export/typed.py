"""Features with a name and a type each: how requests become the numbers and texts of a model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfrank_sel.data import parsing, typed
from tfrank_sel.data.spec import input_name
from tfrank_sel.data.typed import DAY, MISSING
from tfrank_sel.export.inputs import Inputs, Lists, Values
from tfrank_sel.features import REFUSE, Category, Feature, Hash, Set, Timestamp, Vector


@dataclasses.dataclass(frozen=True)
class Typed(Inputs):
    """Features of `tfrank_sel.features`: the model takes a dict of `features` and `texts`.

    In a request, a number, a Boolean and a vector are float32, NaN if missing; a timestamp is
    int64, seconds since 1970 UTC; a category and a set are strings, empty if missing, or int64. An
    integer that is missing is the lowest one.

    Args:
        features: Type of each feature by name, in the order in which the model takes them.
        doc_id: Name of an item's identifier.
    """

    features: Mapping[str, Feature]
    doc_id: str
    mask: str = "mask"

    def parse(self, examples: tf.Tensor) -> Lists:
        features = typed.list_features(self.features, self.doc_id)
        parsed = parsing.parse_elwc(examples, features)
        return Lists(self._dense(parsed), parsed[features.mask], parsed[self.doc_id])

    def parse_items(self, examples: tf.Tensor) -> Values:
        return self._dense(parsing.parse_example(examples, typed.list_features(self.features)))

    def structure(self) -> dict[str, tf.TensorSpec]:
        return {
            name: tf.TensorSpec(self._shape(name), typed.dtype(feature), name=input_name(name))
            for name, feature in self.features.items()
        }

    def check(self, values: Values) -> Values:
        size = self.size(values)
        numbers, texts = [], []
        for name, feature in self.features.items():
            value = tf.ensure_shape(values[name], self._shape(name))
            if feature.of == "query":
                shape = tf.concat([size, tf.shape(value)[1:]], 0)
                value = tf.broadcast_to(value[:, tf.newaxis], shape)
            if isinstance(feature, (Category, Hash)):
                value = value if isinstance(feature, Set) else value[..., tf.newaxis]
                if value.dtype == tf.int64:
                    value = tf.where(value == MISSING, "", tf.strings.as_string(value))
                texts.append(value)
                continue
            value = value if isinstance(feature, Vector) else value[..., tf.newaxis]
            if isinstance(feature, Timestamp):
                parts = tf.concat([value // DAY, value % DAY], axis=-1)
                value = tf.where(value == MISSING, float("nan"), tf.cast(parts, tf.float32))
            numbers.append(_checked(name, feature, value))
        found = {"features": tf.concat(numbers, axis=-1)}
        return {**found, "texts": tf.concat(texts, axis=-1)} if texts else found

    def with_mask(self, values: Values, mask: tf.Tensor) -> dict[str, tf.Tensor]:
        return {**values, self.mask: mask}

    def size(self, values: Values) -> tf.Tensor:
        item = next(name for name, feature in self.features.items() if feature.of == "item")
        return tf.shape(values[item])[:2]

    def description(self) -> Mapping[str, Any]:
        return {
            "types": {name: feature.config() for name, feature in self.features.items()},
            "doc_id": self.doc_id,
        }

    def _dense(self, parsed: Mapping[str, Any]) -> dict[str, tf.Tensor]:
        """The features as `structure` has them: sets padded."""
        found = {}
        for name, feature in self.features.items():
            value = parsed[name]
            if isinstance(feature, Set):
                default = MISSING if feature.dtype == "int64" else ""
                shape = [None] * (value.shape.rank - 1) + [feature.max_values]
                value = value.to_tensor(default, shape=shape)
            found[name] = value
        return found

    def _shape(self, name: str) -> list[int | None]:
        feature = self.features[name]
        lists: list[int | None] = [None, None] if feature.of == "item" else [None]
        if isinstance(feature, Vector):
            return [*lists, feature.size]
        return [*lists, feature.max_values] if isinstance(feature, Set) else lists


def _checked(name: str, feature: Feature, value: tf.Tensor) -> tf.Tensor:
    if getattr(feature, "missing", None) == REFUSE:
        return tf.debugging.check_numerics(value, f"`{name}` must be finite")
    # NaN is a missing value
    present = tf.where(tf.math.is_nan(value), tf.zeros_like(value), value)
    found = tf.debugging.check_numerics(present, f"`{name}` must not be infinite")
    with tf.control_dependencies([found]):
        return tf.identity(value)
