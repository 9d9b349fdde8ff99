"""Ranking lists as `SequenceExample` with named features, the native format of TFX."""

import dataclasses
import functools
import itertools
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils

from tfrank_sel import data
from tfrank_sel.data import parsing, typed, writing
from tfrank_sel.data.formats import FORMATS, Columns, Part, records as parsed_records, rows
from tfrank_sel.data.schema import Schema
from tfrank_sel.errors import received, refusal
from tfrank_sel.features import MISSING_INTEGER, means_missing
from tfrank_sel.locks import atomic_path
from tfrank_sel.pipelines import StoredLists
from tfrank_sel.pipelines.export.requests import request

QUERY_ID, DOC_ID, LABEL = Columns.query, Columns.doc_id, str(Columns.label)
PARSED_AT_ONCE = 64
_ITEMS = "##SEQUENCE##"  # the struct of the features of items

_KINDS = {dtype: kind for kind, dtype in parsed_records.DTYPES.items()}


@dataclasses.dataclass(frozen=True)
class SequenceSchema(Schema):
    """What a list holds that is stored as `SequenceExample`.

    Args:
        features: Type of each feature, by name, in the order of the model inputs: those of the
            columns, or by default every number of an item without another role, by name.
        context: Values of the query to slice by, and whether each is a number.
        columns: Names of the parts.
        kinds: Kinds of the features of items and of queries, by name.
    """

    kinds: tuple[parsed_records.Kinds, parsed_records.Kinds] = ({}, {})

    @classmethod
    def of(cls, proto: schema_pb2.Schema, columns: Columns) -> Self:
        """Converts a schema of tensorflow-metadata.

        Args:
            proto: The schema of a set of lists, from SchemaGen.
            columns: Names of the parts.

        Raises:
            tfrank_sel.data.InputError: If a named column is missing in the schema, or there is no
                feature to rank by.
        """
        stored_features = list_features(proto)
        kinds = _kinds(stored_features.items), _kinds(stored_features.context)
        layout = parsed_records.schema_of(kinds, columns, "the schema")
        return cls(layout.features, layout.context, columns, kinds)

    @classmethod
    def load(cls, schema: str, columns: str) -> Self:
        """Reads the schema in a folder, as written by SchemaGen, with the JSON of its columns."""
        proto = io_utils.parse_pbtxt_file(io_utils.get_only_uri_in_dir(schema), schema_pb2.Schema())
        return cls.of(proto, Columns.from_config(json.loads(columns)))

    @property
    def signature(self) -> dict[str, tf.TensorSpec]:
        """The inputs of the signature `predict` of the model, by name."""
        return {
            **{x.name: x for x in typed.structure(self.request_features).values()},
            "mask": tf.TensorSpec([None, None], tf.bool),
        }

    def parse(self, serialized: tf.Tensor) -> dict[str, Any]:
        """Reads a batch of serialized lists: each feature as a server is sent it, sets padded, and
        the other parts, by name."""
        # a missing value is 0 only at padding, unlike in files of lists
        columns = dataclasses.replace(self.columns, features=self.features)
        schema = Schema(self.features, self.context, columns)
        stored = parsed_records.list_features(self.kinds, schema)
        refused = [x for x, y in self.features.items() if not y.may_be_missing]
        at_padding = {name: 0 for name in refused if name in stored.items}
        stored = dataclasses.replace(stored, padding=at_padding)
        parsed = parsing.parse_sequence_example(serialized, stored)
        padded = typed.pad_sets(parsed, self.features)
        return {**parsed, **{x: _as(typed.dtype(y), padded[x]) for x, y in self.features.items()}}

    def inputs(self, serialized: tf.Tensor) -> tuple[Any, ...]:
        """Reads a batch of serialized lists for training.

        Args:
            serialized: Serialized `SequenceExample`, strings `[batch_size]`.

        Returns:
            A dict of `features`, `texts` if there are any, and `mask`; labels, float32
            `[batch_size, list_size]`, NaN at padding; and weights of the same shape, if there are
            columns of weights.

        Raises:
            tf.errors.InvalidArgumentError: If a number is infinite, or a required number is
                missing.
            ValueError: If a label or weight is out of range; in a graph, the error above.
        """
        parsed = self.parse(serialized)
        inputs = {**typed.matrices(parsed, self.features), "mask": parsed["mask"]}
        return inputs, *self._labels_and_weights(parsed)

    def predict_inputs(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns a batch of serialized lists as inputs of `predict`, and the labels."""
        inputs, labels, *_ = self.inputs(serialized)
        values, specs = (
            typed.split_matrices(inputs, self.request_features),
            typed.structure(self.request_features),
        )
        named = {spec.name: values[name] for name, spec in specs.items()}
        return {**named, "mask": inputs["mask"]}, labels

    def _labels_and_weights(self, parsed: Mapping[str, Any]) -> list[tf.Tensor]:
        """Labels, and weights if there are any."""
        mask, of_items = parsed["mask"], []
        for name in self.columns.measures.values():
            column = _as(tf.float32, parsed[name])
            of_list = column if column.shape.rank == 2 else column[:, tf.newaxis]
            of_items.append(tf.boolean_mask(tf.broadcast_to(of_list, tf.shape(mask)), mask))
        column = tf.numpy_function(functools.partial(_measures, self.columns), of_items, tf.float32)
        column = tf.ensure_shape(column, [1 if len(of_items) == 1 else 2, None])
        places, shape = tf.where(mask), tf.shape(mask, tf.int64)
        labels, *weights = (tf.scatter_nd(places, x, shape) for x in tf.unstack(column))
        return [tf.where(mask, labels, float("nan")), *weights]


def _kinds(features: Mapping[str, Any]) -> parsed_records.Kinds:
    return {name: (_KINDS[feature.dtype], 1) for name, feature in features.items()}


def _as(dtype: tf.DType, value: tf.Tensor) -> tf.Tensor:
    """Stored values converted to the dtype of requests."""
    if value.dtype == dtype:
        return value
    if value.dtype == tf.int64:
        cast = tf.strings.as_string(value) if dtype == tf.string else tf.cast(value, dtype)
        return tf.where(means_missing(value), tf.constant(typed.MISSING[dtype.name], dtype), cast)
    if (value.dtype, dtype) == (tf.float32, tf.int64):
        return tf.where(tf.math.is_nan(value), MISSING_INTEGER, tf.cast(value, dtype))
    raise TypeError(received(f"values must be {dtype.name}", value.dtype.name))


def _measures(columns: Columns, *values: np.ndarray) -> np.ndarray:
    """Labels, and weights if there are any, from the columns of items."""
    measures = dict(zip(columns.measures, values, strict=True))
    named = dict(zip(columns.measures.values(), values, strict=True))
    faults = rows.faults(
        Schema({}, columns=columns),
        measures,
        np.empty([len(values[0]), 0]),
        None,
        lambda name, row: named[name][row].item(),
    )
    if faults:
        raise ValueError(next(iter(faults.values())))
    weights = rows.weights(measures)
    return np.stack([measures["label"], *([] if weights is None else [weights])])


@dataclasses.dataclass(frozen=True, kw_only=True)
class SequenceExamples(StoredLists):
    """Lists as `SequenceExample` for the evaluation.

    Args:
        layout: Schema of a list.
    """

    layout: SequenceSchema

    @property
    def inputs(self) -> dict[str, tf.TensorSpec]:
        """The inputs of the signature `predict`."""
        return self.layout.signature

    def parse(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns the inputs of `predict`, by name, and the labels, NaN at padding."""
        return self.layout.predict_inputs(serialized)

    def queries(self, serialized: tf.Tensor) -> dict[str, np.ndarray]:
        """Returns the identifier of each query, as `query_id`, and its context by name."""
        parsed, columns = self.layout.parse(serialized), self.layout.columns
        texts = {QUERY_ID: _as(tf.string, parsed[columns.query])}
        for name, is_number in self.context.items():
            texts[name] = _as(tf.float32 if is_number else tf.string, parsed[name])
        return {name: value.numpy() for name, value in texts.items()}


def write(path: Path, lists: Iterable[data.ItemList]) -> None:
    """Writes lists atomically as a TFRecord file of `SequenceExample`.

    Args:
        path: File to write. Its folder is created if needed.
        lists: The lists. Their features become `feature_001`, `feature_002`, ...
    """
    with atomic_path(path, replaces=True) as partial, tf.io.TFRecordWriter(str(partial)) as writer:
        for item_list in lists:
            writer.write(_sequence_example(item_list))


def pattern(examples: Artifact, split: str) -> str:
    """Returns the pattern of the files of a split.

    Args:
        examples: Output of ExampleGen.
        split: Name of the split.
    """
    return os.path.join(artifact_utils.get_split_uri([examples], split), "*")


def records(*patterns: str) -> tf.data.Dataset:
    """Returns the serialized lists in the files that patterns match.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    return tf.data.TFRecordDataset(_files(patterns), compression_type="GZIP")


def requests(patterns: Sequence[str], layout: SequenceSchema, count: int) -> list[bytes]:
    """Returns the first lists as requests for a server, `ExampleListWithContext`.

    Args:
        patterns: Patterns of the files. Empty lists are skipped.
        layout: Schema of a list.
        count: Number of lists.
    """
    reader = FORMATS["sequence-example"](layout.columns)
    read = (unit for file in _files(patterns) for unit in reader.lists(Part(file), layout))
    lists = (x for found in read if isinstance(found, data.Lists) for x in found if len(x.labels))
    return [request(unit, layout) for unit in itertools.islice(lists, count)]


def _files(patterns: Sequence[str]) -> list[str]:
    files = [file for pattern in patterns for file in sorted(fileio.glob(pattern))]
    if not files:
        reason = received(f"the lists must be in {' or '.join(patterns)}", "no file")
        raise FileNotFoundError(reason)
    return files


def _sequence_example(item_list: data.ItemList) -> bytes:
    width = max(3, len(str(item_list.features.shape[1])))  # so that names sort in numerical order
    numbers = {
        f"feature_{index:0{width}d}": column.tolist()
        for index, column in enumerate(item_list.features.T, start=1)
    }
    values = {
        LABEL: item_list.labels.tolist(),
        DOC_ID: item_list.doc_ids,
        **numbers,
        QUERY_ID: item_list.query_id,
    }
    text, number = tf.io.FixedLenFeature([], tf.string), tf.io.FixedLenFeature([], tf.float32)
    items: dict[str, Any] = {LABEL: number, DOC_ID: text, **dict.fromkeys(numbers, number)}
    return writing.serialize_sequence_example(values, data.ListFeatures(items, {QUERY_ID: text}))


def list_features(schema: schema_pb2.Schema) -> data.ListFeatures:
    """Returns the features of lists that a schema of tensorflow-metadata describes.

    A feature with a shape is a `tf.io.FixedLenFeature` without default. Any other is a
    `VarLenFeature`, or a `RaggedFeature` if the schema sets `represent_variable_length_as_ragged`.

    Args:
        schema: The schema, in the form that TFX uses for `tf.train.SequenceExample`: features of
            the query are at the top level, and those of the items in the struct `##SEQUENCE##`.

    Raises:
        ValueError: If there is no feature of items.
    """
    structs = [field for field in schema.feature if field.name == _ITEMS]
    if not structs:
        names = [field.name for field in schema.feature]
        raise refusal(f"`schema` must have the struct {_ITEMS!r}", names)
    return data.ListFeatures(
        items={field.name: _type_of(schema, field) for field in structs[0].struct_domain.feature},
        context={
            field.name: _type_of(schema, field) for field in schema.feature if field.name != _ITEMS
        },
    )


def _type_of(schema: Any, field: Any) -> Any:
    dtype = {1: tf.string, 2: tf.int64, 3: tf.float32}[field.type]  # BYTES, INT, FLOAT
    if field.HasField("shape"):
        return tf.io.FixedLenFeature([dim.size for dim in field.shape.dim], dtype)
    if schema.represent_variable_length_as_ragged:
        return tf.io.RaggedFeature(dtype)
    return tf.io.VarLenFeature(dtype)
