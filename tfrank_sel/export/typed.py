"""Typed features: conversion of requests to the numbers and texts of a model."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfrank_sel.data import parsing, typed
from tfrank_sel.export.inputs import Inputs, Lists, Values
from tfrank_sel.features import Feature


@dataclasses.dataclass(frozen=True)
class Typed(Inputs):
    """Inputs of a model with features of `tfrank_sel.features`: a dict of `features` and `texts`.

    In a request, a number, a Boolean and a vector are float32, NaN if missing; a timestamp is
    int64, seconds since 1970 UTC; a category and a set are strings, empty if missing, or int64. A
    missing integer is the lowest int64.

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
        values = typed.padded(parsed, self.features)
        return Lists(values, parsed[features.mask], parsed[self.doc_id])

    def parse_items(self, examples: tf.Tensor) -> Values:
        parsed = parsing.parse_example(examples, typed.list_features(self.features))
        return typed.padded(parsed, self.features)

    def structure(self) -> dict[str, tf.TensorSpec]:
        return typed.structure(self.features)

    def check(self, values: Values) -> Values:
        return typed.matrices(values, self.features)

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
