"""Lists for the evaluation: their files, and their parsers for workers."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf

from tfrank_sel import data
from tfrank_sel.data import packed
from tfrank_sel.pipelines.ingestion import stored


class Lists(Protocol):
    """Lists in TFRecord files, in any layout. The object is sent to workers.

    Attributes:
        shards: The files, or patterns of them.
        spec: Names of the parts and number of features.
        context: Other values of a query, and whether each is a number.
        inputs: Inputs of a scorer by name: the kinds of the outputs of `parse`.
    """

    @property
    def shards(self) -> Sequence[str]: ...

    @property
    def spec(self) -> data.FeatureSpec: ...

    @property
    def context(self) -> Mapping[str, bool]: ...

    @property
    def inputs(self) -> Mapping[str, tf.TensorSpec]: ...

    def parse(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns the inputs of a scorer, with the mask, and the labels, NaN at padding."""

    def queries(self, serialized: tf.Tensor) -> dict[str, np.ndarray]:
        """Returns the identifier of each query, as `spec.query_id`, and its context by name."""


@dataclasses.dataclass(frozen=True)
class PackedLists:
    """Lists in the packed layout of ingest.

    Args:
        shards: The files.
        spec: Names of the parts and number of features.
        context: Other values of a query, and whether each is a number.
    """

    shards: Sequence[str]
    spec: data.FeatureSpec
    context: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """Features, texts if there are any, and mask."""
        return stored.inputs_spec(self.spec)

    def parse(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns features and mask by name, and the labels, as `Lists.parse`."""
        parsed = packed.parse(serialized, self.spec)
        return stored.inputs(parsed, self.spec), parsed[self.spec.label]

    def queries(self, serialized: tf.Tensor) -> dict[str, np.ndarray]:
        """Returns the identifiers of the queries and their context, as `Lists.queries`."""
        return stored.context(serialized, self.spec, self.context)
