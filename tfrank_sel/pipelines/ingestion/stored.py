"""Stored lists of ingest: the packed layout, with the context of the query."""

from collections.abc import Iterator, Mapping, Sequence

import apache_beam as beam
import numpy as np
import tensorflow as tf

from tfrank_sel import data
from tfrank_sel.data import batching, packed, stores
from tfrank_sel.data.lists import Found
from tfrank_sel.models import summary

_BATCH = 64


def records(shard: str) -> Iterator[bytes]:
    """Reads a TFRecord file, compressed if its name ends in `.gz`; a URL is copied to the cache."""
    yield from _dataset(shard).as_numpy_iterator()


def _dataset(shard: str) -> tf.data.Dataset:
    compression = "GZIP" if shard.endswith(".gz") else ""
    return tf.data.TFRecordDataset(stores.near(shard), compression)


def _files(shard: str) -> list[str]:
    return [shard] if stores.is_file(shard) else stores.glob(shard)


class Read(beam.PTransform):
    """Reads records in batches of at most 64.

    Args:
        shards: TFRecord files, and patterns of them.
    """

    def __init__(self, shards: Sequence[str]) -> None:
        super().__init__()
        self.shards = list(shards)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection:
        return (
            pipeline
            | beam.Create(self.shards)
            | beam.FlatMap(_files)
            | beam.Reshuffle()
            | beam.FlatMap(records)
            | beam.BatchElements(min_batch_size=16, max_batch_size=_BATCH)
        )


def serialize(found: Found, spec: data.FeatureSpec) -> bytes:
    """Returns the record of a list: a `tf.train.Example`.

    Args:
        found: The list. Each part of its context is one more feature of the example.
        spec: Names of the parts and number of features.
    """
    one = found.item_list
    record = packed.serialize(
        one.features,
        spec,
        labels=one.labels,
        doc_ids=[doc_id.encode() for doc_id in one.doc_ids],
        query_id=one.query_id.encode(),
        texts=one.texts if spec.num_texts else None,
        weights=one.weights if spec.weight else None,
    )
    if not found.context:
        return record
    example = tf.train.Example()
    for name, value in found.context.items():
        feature = example.features.feature[name]
        if isinstance(value, str):
            feature.bytes_list.value.append(value.encode())
        else:
            feature.float_list.value.append(value)
    # concatenated messages are merged
    return record + example.SerializeToString(deterministic=True)


def context(
    serialized: tf.Tensor, spec: data.FeatureSpec, kinds: Mapping[str, bool]
) -> dict[str, np.ndarray]:
    """Returns the identifier and the context of each query.

    Args:
        serialized: Records, strings of shape `[batch_size]`.
        spec: Names of the parts.
        kinds: Names of the parts of the context, and whether each is a number.

    Returns:
        The identifier of the query, as `spec.query_id`, and each part of the context by name,
        `[batch_size]`.
    """
    features = {
        name: tf.io.FixedLenFeature([], tf.float32 if is_number else tf.string)
        for name, is_number in {spec.query_id: False, **kinds}.items()
    }
    return {name: x.numpy() for name, x in tf.io.parse_example(serialized, features).items()}


def inputs(parsed: Mapping[str, tf.Tensor], spec: data.FeatureSpec) -> dict[str, tf.Tensor]:
    """Returns the inputs of a list scorer from parsed records: features, texts if any, and mask."""
    return {name: parsed[name] for name in inputs_spec(spec)}


def inputs_spec(spec: data.FeatureSpec) -> dict[str, tf.TensorSpec]:
    """Returns the kinds of `inputs`, by name."""
    found = {
        spec.features: tf.TensorSpec([None, None, spec.num_features], tf.float32),
        "mask": tf.TensorSpec([None, None], tf.bool),
    }
    if spec.num_texts:
        found[spec.texts] = tf.TensorSpec([None, None, spec.num_texts], tf.string)
    return found


def batches(
    shards: Sequence[str], spec: data.FeatureSpec, list_sizes: Mapping[int, int]
) -> tf.data.Dataset:
    """Returns features and mask of lists by name, and the labels, for one pass.

    Args:
        shards: TFRecord files of the packed layout.
        spec: Names of the parts and number of features.
        list_sizes: Number of lists of each size.
    """
    return batching.batches(
        shards,
        spec,
        batch_size=_BATCH,
        bucket_edges=batching.bucket_edges(list_sizes),
        inputs=list(inputs_spec(spec)),
    )


def serialized_batches(shards: Sequence[str]) -> Iterator[tf.Tensor]:
    """Reads records of files, and patterns of them, 64 at a time, in the order of the files."""
    for shard in shards:  # the next file is copied after this one has been read
        for file in _files(shard):
            yield from _dataset(file).batch(_BATCH)


def lists(shards: Sequence[str], spec: data.FeatureSpec) -> Iterator[data.ItemList]:
    """Reads lists back, a few at a time.

    Args:
        shards: TFRecord files from ingest.
        spec: Names of the parts and number of features.

    Yields:
        The lists, in the order of the files.
    """
    for serialized in serialized_batches(shards):
        parsed = {name: x.numpy() for name, x in packed.parse(serialized, spec).items()}
        queries = context(serialized, spec, {})[spec.query_id]
        for i, size in enumerate(parsed["mask"].sum(axis=1)):
            texts = None
            if spec.num_texts:
                texts = summary.decoded(parsed[spec.texts][i, :size])
            yield data.ItemList(
                queries[i].decode(),
                parsed[spec.label][i, :size],
                parsed[spec.features][i, :size],
                tuple(doc_id.decode() for doc_id in parsed[spec.doc_id][i, :size]),
                texts,
                parsed[spec.weight][i, :size] if spec.weight else None,
            )


def batch_of(one: data.ItemList, spec: data.FeatureSpec) -> dict[str, tf.Tensor]:
    """Returns one list as the inputs of a list scorer."""
    found = {
        spec.features: tf.constant(one.features[None]),
        "mask": tf.fill([1, len(one.labels)], True),
    }
    if spec.num_texts:
        found[spec.texts] = tf.constant([one.texts.tolist()])  # type: ignore[union-attr]
    return found
