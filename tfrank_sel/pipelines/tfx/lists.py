"""Ranking lists as `SequenceExample`: features with a name each, as TFX reads them natively."""

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx.dsl.io import fileio
from tfx.types import Artifact, artifact_utils
from tfx.utils import io_utils

from tfrank_sel import data
from tfrank_sel.data import elwc, parsing

# The feature of a schema that holds the feature lists of a `SequenceExample`.
SEQUENCE = "##SEQUENCE##"
QUERY_ID, DOC_ID, LABEL = data.FeatureSpec.query_id, data.FeatureSpec.doc_id, data.FeatureSpec.label
PARSED_AT_ONCE = 64

_DTYPES = {schema_pb2.FLOAT: tf.float32, schema_pb2.INT: tf.int64}


@dataclasses.dataclass(frozen=True)
class Layout:
    """What describes an item: every number but the label, in the order of the names.

    In that order the model takes them, and requests to a server have to give them.

    Args:
        features: Type of each feature, by name.
        label: Type of the label.
    """

    features: Mapping[str, tf.DType]
    label: tf.DType = tf.float32

    @classmethod
    def of(cls, schema: schema_pb2.Schema) -> "Layout":
        """Reads the layout off a schema.

        Args:
            schema: The schema of a set of lists, from SchemaGen.

        Raises:
            ValueError: If the schema has no feature lists, no label, or no other number.
        """
        sequences = [f.struct_domain for f in schema.feature if f.name == SEQUENCE]
        fields = [field for sequence in sequences for field in sequence.feature]
        dtypes = {f.name: _DTYPES[f.type] for f in fields if f.type in _DTYPES}
        label = dtypes.pop(LABEL, None)
        if label is None or not dtypes:
            raise ValueError(
                f"the items must have the number {LABEL!r} and other numbers to rank by. "
                f"Received: {sorted(f.name for f in fields)}"
            )
        return cls(dict(sorted(dtypes.items())), label)

    @classmethod
    def load(cls, schema: str) -> "Layout":
        """Reads the layout off the schema in a folder, as SchemaGen writes it."""
        file = io_utils.get_only_uri_in_dir(schema)
        return cls.of(io_utils.parse_pbtxt_file(file, schema_pb2.Schema()))

    @property
    def spec(self) -> data.FeatureSpec:
        """What the served model is asked with."""
        return data.FeatureSpec(num_features=len(self.features))

    def parse(self, serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Reads a batch of serialized lists.

        Args:
            serialized: Serialized `SequenceExample`, strings `[batch_size]`.

        Returns:
            Features, float32 `[batch_size, list_size, num_features]`, 0 at padding; labels, float32
            `[batch_size, list_size]`, NaN at padding; and the sizes, `[batch_size]`.
        """
        dtypes = {**self.features, LABEL: self.label}
        items = {name: tf.io.FixedLenFeature([], dtype) for name, dtype in dtypes.items()}
        parsed = parsing.parse_sequence_example(serialized, data.ListFeatures(items))
        columns = [tf.cast(parsed[name], tf.float32) for name in self.features]
        labels = tf.cast(parsed[LABEL], tf.float32)
        labels = tf.where(parsed["mask"], labels, tf.constant(float("nan")))
        return tf.stack(columns, axis=2), labels, parsed["size"]

    def inputs(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns features and mask of a batch of serialized lists by name, and the labels."""
        features, labels, _ = self.parse(serialized)
        return {self.spec.features: features, "mask": ~tf.math.is_nan(labels)}, labels


@dataclasses.dataclass(frozen=True)
class SequenceExamples:
    """Lists as `SequenceExample` to evaluate on.

    Args:
        shards: Patterns of their TFRecord files.
        layout: What describes an item.
    """

    shards: Sequence[str]
    layout: Layout
    context: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    @property
    def spec(self) -> data.FeatureSpec:
        """Names of the parts and number of features."""
        return self.layout.spec

    def parse(self, serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        """Returns features and mask by name, and the labels, NaN at padding."""
        return self.layout.inputs(serialized)

    def queries(self, serialized: tf.Tensor) -> dict[str, np.ndarray]:
        """Returns the identifier of each query, as `query_id`."""
        known = {QUERY_ID: tf.io.FixedLenFeature([], tf.string)}
        found, _, _ = tf.io.parse_sequence_example(serialized, known)
        return {QUERY_ID: found[QUERY_ID].numpy()}


def write(path: Path, lists: Iterable[data.ItemList]) -> None:
    """Writes lists as a TFRecord file of `SequenceExample`, whole or not at all.

    Args:
        path: File to write. Its folder is made if need be.
        lists: The lists. Their features become `feature_001`, `feature_002`, ...
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tf.io.TFRecordWriter(str(partial)) as writer:
            for one in lists:
                writer.write(_sequence_example(one).SerializeToString(deterministic=True))
        partial.rename(path)
    finally:
        partial.unlink(missing_ok=True)


def pattern(examples: Artifact, split: str) -> str:
    """Returns the pattern of the files of a split.

    Args:
        examples: What ExampleGen wrote.
        split: Name of the split.
    """
    return os.path.join(artifact_utils.get_split_uri([examples], split), "*")


def records(*patterns: str) -> tf.data.Dataset:
    """Returns the serialized lists in the files that patterns match.

    Raises:
        FileNotFoundError: If there is no such file.
    """
    files = [file for found in patterns for file in sorted(fileio.glob(found))]
    if not files:
        raise FileNotFoundError(f"the lists must be in {' or '.join(patterns)}. Received: no file")
    return tf.data.TFRecordDataset(files, compression_type="GZIP")


def requests(serialized: tf.data.Dataset, layout: Layout, count: int) -> list[bytes]:
    """Returns the first lists as one asks a server: as `ExampleListWithContext`.

    Args:
        serialized: The serialized lists. Those without items are left out.
        layout: What describes an item.
        count: How many lists.
    """
    one_by_one = serialized.batch(1).map(layout.parse)
    found = one_by_one.filter(lambda _, labels, size: size[0] > 0).take(count)
    return [elwc.serialize(features[0].numpy(), layout.spec) for features, _, _ in found]


def _sequence_example(one: data.ItemList) -> tf.train.SequenceExample:
    written = tf.train.SequenceExample()
    query_id = written.context.feature[QUERY_ID]
    query_id.bytes_list.value.append(one.query_id.encode())
    columns = written.feature_lists.feature_list
    for label, doc_id in zip(one.labels.tolist(), one.doc_ids, strict=True):
        columns[LABEL].feature.add().float_list.value.append(label)
        columns[DOC_ID].feature.add().bytes_list.value.append(doc_id.encode())
    width = max(3, len(str(one.features.shape[1])))  # so that names sort as numbers do
    for index, column in enumerate(one.features.T.tolist(), start=1):
        name = f"feature_{index:0{width}d}"
        for value in column:
            columns[name].feature.add().float_list.value.append(value)
    return written
