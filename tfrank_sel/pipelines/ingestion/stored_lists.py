"""Stored lists of ingest: the packed layout, with the context of the query."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeAlias

import numpy as np

from tfrank_sel import data, lazy
from tfrank_sel.data import examples, stores, writing
from tfrank_sel.data.formats import Schema
from tfrank_sel.data.lists import Lists, pad
from tfrank_sel.models import summary
from tfrank_sel.pipelines import runners
from tfrank_sel.pipelines.files import folders
from tfrank_sel.pipelines.files.mirrors import Mirror, near
from tfrank_sel.pipelines.ingestion.shards import records as read_records

if TYPE_CHECKING:
    import tensorflow as tf

    from tfrank_sel.data import batching, packed
else:
    batching = lazy.Module("tfrank_sel.data.batching")
    packed = lazy.Module("tfrank_sel.data.packed")
    tf = lazy.Module("tensorflow")

BATCH = 64
_OCTETS = 1 << 22  # of records that are summed at once
SLOTS = 20_000  # items of a sample, with padding

Tensors: TypeAlias = dict[str, "tf.Tensor"]  # by name
# Maps the named outputs of `Lists.parse` to scores; such a function is sent to workers.
Scorer: TypeAlias = Callable[[Tensors], "tf.Tensor"]
# Maps serialized lists and their parsed inputs to scores `[batch_size, list_size]`; it is sent to
# workers, too.
Ranking: TypeAlias = Callable[["tf.Tensor", Tensors], np.ndarray]


def _dataset(shard: str) -> "tf.data.Dataset":
    """The records of a file, compressed if its name ends in `.gz`; a URL is copied to the cache."""
    compression = "GZIP" if shard.endswith(".gz") else ""
    return tf.data.TFRecordDataset(stores.near(shard), compression)


def serialize(
    item_list: data.ItemList, context: Mapping[str, str | float], spec: data.FeatureSpec
) -> bytes:
    """Returns the record of a list: a `tf.train.Example`.

    Args:
        item_list: The list.
        context: Other values of its query, each one more feature of the example.
        spec: Names of the parts and number of features.
    """
    record = examples.serialize(
        item_list.features,
        spec,
        labels=item_list.labels,
        doc_ids=[doc_id.encode() for doc_id in item_list.doc_ids],
        query_id=item_list.query_id.encode(),
        texts=item_list.texts if spec.num_texts else None,
        weights=item_list.weights if spec.weight else None,
    )
    # Parsers of protocol buffers merge concatenated messages.
    return record + writing.example(context) if context else record


def context(
    serialized: "tf.Tensor", spec: data.FeatureSpec, kinds: Mapping[str, bool]
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


def inputs(parsed: "Mapping[str, tf.Tensor]", spec: data.FeatureSpec) -> Tensors:
    """Returns the inputs of a list scorer from parsed records: features, texts if any, and mask."""
    return {name: parsed[name] for name in inputs_spec(spec)}


def inputs_spec(spec: data.FeatureSpec) -> "dict[str, tf.TensorSpec]":
    """Returns the kinds of `inputs`, by name."""
    kinds = {
        spec.features: tf.TensorSpec([None, None, spec.num_features], tf.float32),
        "mask": tf.TensorSpec([None, None], tf.bool),
    }
    if spec.num_texts:
        kinds[spec.texts] = tf.TensorSpec([None, None, spec.num_texts], tf.string)
    return kinds


def batches(
    shards: Sequence[str], spec: data.FeatureSpec, list_sizes: Mapping[int, int]
) -> "tf.data.Dataset":
    """Returns features and mask of lists by name, and the labels, for one pass.

    Args:
        shards: TFRecord files of the packed layout.
        spec: Names of the parts and number of features.
        list_sizes: Number of lists of each size.
    """
    return batching.batches(
        shards,
        spec,
        batch_size=BATCH,
        bucket_edges=batching.bucket_edges(list_sizes),
        inputs=list(inputs_spec(spec)),
    )


def items(serialized: Sequence[bytes], spec: data.FeatureSpec) -> Lists:
    """Returns the items of records."""
    return examples.items(serialized, spec)


def serialized_batches(shards: Sequence[str]) -> "Iterator[tf.Tensor]":
    """Reads records of files, and patterns of them, 64 at a time, in the order of the files."""
    for file in runners.files(shards):  # the next file is copied after this one has been read
        yield from _dataset(file).batch(BATCH)


def records(shards: Sequence[str]) -> Iterator[bytes]:
    """Reads records of files, and patterns of them, in the order of the files."""
    for file in runners.files(shards):  # the next file is copied after this one has been read
        yield from read_records(file)


def blocks(shards: Sequence[str]) -> Iterator[list[bytes]]:
    """Reads records as `records`, some MiB at a time."""
    block, size = list[bytes](), 0
    for record in records(shards):
        block.append(record)
        size += len(record)
        if size >= _OCTETS:
            yield block
            block, size = [], 0
    if block:
        yield block


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
                texts = summary.decode_texts(parsed[spec.texts][i, :size])
            yield data.ItemList(
                queries[i].decode(),
                parsed[spec.label][i, :size],
                parsed[spec.features][i, :size],
                tuple(doc_id.decode() for doc_id in parsed[spec.doc_id][i, :size]),
                texts,
                parsed[spec.weight][i, :size] if spec.weight else None,
            )


def batch_of(item_list: data.ItemList, spec: data.FeatureSpec) -> Tensors:
    """Returns one list as the inputs of a list scorer."""
    inputs = {
        spec.features: tf.constant(item_list.features[None]),
        "mask": tf.fill([1, len(item_list.labels)], True),
    }
    if spec.num_texts:
        inputs[spec.texts] = tf.constant([item_list.texts.tolist()])  # type: ignore[union-attr]
    return inputs


@dataclasses.dataclass(frozen=True)
class Records:
    """The records of a run: those that it ingested, and those kept from earlier runs.

    Args:
        place: Folder or URL of the step `ingest`.
        layout: Schema of a list.
    """

    place: str
    layout: Schema

    @property
    def spec(self) -> data.FeatureSpec:
        """Names and sizes of the parts of a stored list."""
        return self.layout.spec

    def own(self, split: str) -> list[str]:
        """The shards of a split that this run ingested."""
        return folders.shards(stores.join(self.place, "records", split))

    def of(self, split: str) -> list[str]:
        """The shards of a split: those kept from earlier runs, and its own."""
        earlier = numbered_folders(stores.join(self.place, "earlier"))
        kept = [x for folder in earlier for x in folders.shards(stores.join(folder, split))]
        return [*kept, *self.own(split)]


@dataclasses.dataclass(frozen=True)
class Earlier:
    """An earlier run that a run continues.

    Args:
        path: Its folder, or a local copy of it.
        place: Its folder or URL.
        memory: Number of its last increments to keep; None for all.
    """

    path: Path
    place: str
    memory: int | None

    @classmethod
    def of(cls, run: str, memory: int | None) -> Self:
        """Returns the run of a path or URL."""
        mirror = Mirror.of(run)
        return cls(near(run), mirror.url or str(mirror.path), memory)

    def records(self) -> Sequence[str]:
        """Folders or URLs of the records of each increment to keep."""
        return self._recent(stores.join(self.place, "ingest"), "records")

    def statistics(self) -> Sequence[str]:
        """Folders of the statistics of each increment to keep."""
        return self._recent(str(self.path / "analyze"), "increment")

    def _recent(self, folder: str, last: str) -> Sequence[str]:
        places = [*numbered_folders(stores.join(folder, "earlier")), stores.join(folder, last)]
        return places if self.memory is None else places[max(0, len(places) - self.memory) :]


def numbered_folders(folder: str) -> list[str]:
    """Returns the numbered subfolders of a folder, by number."""
    numbers = {int(x.removeprefix(f"{folder}/").partition("/")[0]) for x in stores.find(folder)}
    return [stores.join(folder, str(number)) for number in sorted(numbers)]


@dataclasses.dataclass(frozen=True)
class StoredLists:
    """Lists in TFRecord files, here in the packed layout of ingest. The object is sent to workers.

    Args:
        shards: The files, or patterns of them.
        spec: Names of the parts and number of features.
        context: Other values of a query, and whether each is a number.
    """

    shards: Sequence[str]
    spec: data.FeatureSpec
    context: Mapping[str, bool] = dataclasses.field(default_factory=dict)

    @property
    def inputs(self) -> "dict[str, tf.TensorSpec]":
        """Inputs of a scorer by name, as `parse` returns them."""
        return inputs_spec(self.spec)

    @property
    def has_irrelevant(self) -> bool:
        """Whether a label is 0 or below; lists are read until one is found."""
        parsed = (packed.parse(x, self.spec) for x in serialized_batches(self.shards))
        return any(bool(tf.reduce_any(x[self.spec.label] <= 0.0)) for x in parsed)

    def parse(self, serialized: "tf.Tensor") -> "tuple[Tensors, tf.Tensor]":
        """Returns the inputs of a scorer, with the mask, and the labels, NaN at padding."""
        parsed = packed.parse(serialized, self.spec)
        return inputs(parsed, self.spec), parsed[self.spec.label]

    def queries(self, serialized: "tf.Tensor") -> dict[str, np.ndarray]:
        """Returns the identifier of each query, as `spec.query_id`, and its context by name."""
        return context(serialized, self.spec, self.context)


@dataclasses.dataclass(frozen=True)
class Sample:
    """The first lists of a split, padded.

    Args:
        inputs: What a scorer takes, by name.
        labels: Labels `[lists, items]`; NaN is padding.
    """

    inputs: Mapping[str, np.ndarray]
    labels: np.ndarray

    def first(self, count: int) -> "Sample":
        """Returns the sample of the first lists, at least one."""
        count = max(count, 1)
        return Sample({k: x[:count] for k, x in self.inputs.items()}, self.labels[:count])

    def by_size(self) -> "Sample":
        """Returns the sample with the shortest lists first."""
        order = np.argsort(self.inputs["mask"].sum(axis=1), kind="stable")
        return Sample({k: x[order] for k, x in self.inputs.items()}, self.labels[order])


def sample(shards: Sequence[str], spec: data.FeatureSpec, *, longest: int) -> Sample:
    """Reads the first lists of a split, as many as fit into `SLOTS` items, at least one.

    Args:
        shards: TFRecord files of the packed layout.
        spec: Names of the parts and number of features.
        longest: Number of items of the longest list.
    """
    first = itertools.islice(records(shards), max(SLOTS // longest, 1))
    lists = items([*first], spec)
    mask = np.arange(max(lists.sizes, default=0)) < lists.sizes[:, np.newaxis]
    inputs = {spec.features: pad(lists.features, mask, 0.0), "mask": mask}
    if spec.num_texts:
        inputs[spec.texts] = pad(np.asarray(lists.texts), mask, b"")
    return Sample(inputs, pad(lists.labels, mask, np.nan))
