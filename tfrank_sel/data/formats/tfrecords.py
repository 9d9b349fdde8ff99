"""TFRecord files of lists, or of items, whose features have a name each."""

import abc
import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from google.protobuf import message

from tfrank_sel.data import elwc, parsing
from tfrank_sel.data.formats import rows
from tfrank_sel.data.formats.columns import Layout
from tfrank_sel.data.formats.protocol import Part, Reader, RowReader
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import Found, InputError, ItemList, Rejected
from tfrank_sel.data.spec import ListFeatures
from tfrank_sel.features import REFUSE, Feature, Number, Vector

_FRAME = 16  # octets around a record
_SAMPLE = 100  # records that tell which features there are
_BATCH = 64  # records parsed at once
_MISSING = {
    "float_list": (tf.float32, float("nan")),
    "int64_list": (tf.int64, -1),
    "bytes_list": (tf.string, ""),
}
# TensorFlow quotes what it cannot parse, and fails to raise its error where that is not UTF-8.
_Unreadable = (tf.errors.OpError, UnicodeDecodeError)

_Features = Mapping[str, Any]  # `tf.train.Feature` by name
_Kinds = dict[str, tuple[str, int]]  # kind of each feature, and how many values it has


@dataclasses.dataclass(frozen=True)
class _Batch:
    """Some records: their numbers in the file, and what they hold, `[records, list_size, ...]`."""

    numbers: list[int]
    queries: list[str]
    sizes: np.ndarray
    labels: np.ndarray
    features: np.ndarray
    doc_ids: list[list[str]]
    context: dict[str, list[str | float]]


class RecordReader(Reader):
    """Reads TFRecord files, compressed if their names end in `.gz`; the file is the only part.

    A feature that an item lacks is 0, as in LETOR.

    Attributes:
        parse: The function of `tfrank_sel.data.parsing` for the records.
    """

    parse: ClassVar[Callable[..., dict[str, Any]]]

    @abc.abstractmethod
    def features(self, record: bytes) -> tuple[Sequence[_Features], _Features]:
        """Returns the features of each item of a record, and those of its query."""

    def layout(self, paths: Sequence[str]) -> Layout:
        """Returns which features the first hundred records of the first file have."""
        columns, (items, context) = self.columns, self._kinds(paths[0])
        features = columns.features or sorted(
            name
            for name, (kind, _) in items.items()
            if kind != "bytes_list" and name not in columns.others
        )
        for wanted, found in (((columns.label, *features), items), (columns.context, context)):
            for name in wanted:
                if name not in found:
                    raise InputError(paths[0], f"expected {name!r}. Received: {sorted(found)}")
        for name in features:
            if items[name][0] == "bytes_list":
                raise InputError(paths[0], f"expected numbers in {name!r}. Received: bytes")
        return Layout(
            {name: _numbers(items[name][1]) for name in features},
            {name: context[name][0] != "bytes_list" for name in columns.context},
        )

    def lists(self, part: Part, layout: Layout) -> Iterator[Found | Rejected]:
        for batch in self._batches(part, layout):
            if isinstance(batch, Rejected):
                yield batch
                continue
            for i, number in enumerate(batch.numbers):
                items = slice(batch.sizes[i])
                labels, features = batch.labels[i, items], batch.features[i, items]
                if fault := next(rows.faults(labels, features, layout), None):
                    reason = f"{fault[1]} of item {fault[0] + 1}"
                    yield Rejected(part.path, "record", number, reason)
                    continue
                ids = rows.identifiers(batch.queries[i], batch.doc_ids[i][items])
                context = {name: values[i] for name, values in batch.context.items()}
                yield Found(ItemList(batch.queries[i], labels, features, ids), context)

    def _batches(self, part: Part, layout: Layout) -> Iterator[_Batch | Rejected]:
        parse = self._parser(part.path, layout)
        numbered = enumerate(_records(part.path), start=1)
        while chunk := list(itertools.islice(numbered, _BATCH)):
            try:
                yield parse(chunk)
            except _Unreadable:  # some record is at fault: find out which, and why
                for one in chunk:
                    try:
                        yield parse([one])
                    except _Unreadable as error:
                        reason = f"a record must be {self.name}, and text UTF-8. "
                        reason += f"Received: {_first_line(error)}"
                        yield Rejected(part.path, "record", one[0], reason)

    def _parser(self, path: str, layout: Layout) -> Callable[[Sequence[tuple[int, bytes]]], _Batch]:
        """Returns what parses numbered records of a file."""
        kinds, of_query = self._kinds(path)
        label, doc_id, query = self.columns.label, self.columns.doc_id, self.columns.query
        sizes = {name: len(kind.numbers(name)) for name, kind in layout.features.items()}
        items = {x: _fixed(kinds, x, "float_list", n, 0) for x, n in sizes.items()}
        items[label] = _fixed(kinds, label, "float_list")
        items[doc_id] = _fixed(kinds, doc_id, "bytes_list")
        context = {name: _fixed(of_query, name, "float_list") for name in layout.context}
        context[query] = _fixed(of_query, query, "bytes_list")
        features = ListFeatures(items, context)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
            parsed = self.parse(serialized, features)
            shape = tf.unstack(tf.shape(parsed["mask"]))
            values = [tf.reshape(parsed[name], [*shape, n]) for name, n in sizes.items()]
            return parsed, tf.concat([tf.cast(one, tf.float32) for one in values], axis=2)

        def batch(chunk: Sequence[tuple[int, bytes]]) -> _Batch:
            parsed, values = parse([record for _, record in chunk])
            named = zip(parsed[query].numpy().tolist(), chunk, strict=True)
            context = {name: parsed[name].numpy().tolist() for name in layout.context}
            return _Batch(
                [number for number, _ in chunk],
                [_text(name) or _digest(record) for name, (_, record) in named],
                parsed["size"].numpy(),
                parsed[label].numpy().astype(np.float32),
                values.numpy(),
                [[_text(one) for one in of_list] for of_list in parsed[doc_id].numpy().tolist()],
                {
                    name: [float(one) if is_number else _text(one) for one in context[name]]
                    for name, is_number in layout.context.items()
                },
            )

        return batch

    def _kinds(self, path: str) -> tuple[_Kinds, _Kinds]:
        """Which features items and queries have in the first records of a file."""
        items: _Kinds = {}
        context: _Kinds = {}
        for record in itertools.islice(_records(path), _SAMPLE):
            try:
                of_items, of_query = self.features(record)
            except (message.DecodeError, *_Unreadable):  # `lists` will say so
                continue
            for found, features in ((items, of_items), (context, [of_query])):
                for name, feature in (pair for one in features for pair in one.items()):
                    kind = feature.WhichOneof("kind")
                    if kind is not None and getattr(feature, kind).value:
                        found.setdefault(name, (kind, len(getattr(feature, kind).value)))
        return items, context


class ElwcReader(RecordReader):
    """Reads records of `ExampleListWithContext`."""

    name = "elwc"
    suffixes = (".tfrecord", ".tfrecord.gz")
    parse = staticmethod(parsing.parse_elwc)

    def features(self, record: bytes) -> tuple[Sequence[_Features], _Features]:
        examples, context, _ = (x.numpy() for x in elwc.split(tf.constant([record])))
        return [_example(one) for one in examples[0]], _example(context[0])


class ExampleInExampleReader(RecordReader):
    """Reads records of `tf.train.Example` that hold the serialized examples of a list."""

    name = "eie"
    parse = staticmethod(parsing.parse_example_in_example)

    def features(self, record: bytes) -> tuple[Sequence[_Features], _Features]:
        outer = _example(record)
        context = outer["serialized_context"].bytes_list.value or [b""]
        examples = outer["serialized_examples"].bytes_list.value
        return [_example(one) for one in examples], _example(context[0])


class SequenceExampleReader(RecordReader):
    """Reads records of `tf.train.SequenceExample`."""

    name = "sequence-example"
    parse = staticmethod(parsing.parse_sequence_example)

    def features(self, record: bytes) -> tuple[Sequence[_Features], _Features]:
        sequence = tf.train.SequenceExample.FromString(record)
        lists = sequence.feature_lists.feature_list
        items = [{name: item} for name in lists for item in lists[name].feature]
        return items, sequence.context.feature


class ExampleReader(RowReader, RecordReader):
    """Reads records of `tf.train.Example`, each an item with its query."""

    name = "example"
    parse = staticmethod(parsing.parse_example)

    def features(self, record: bytes) -> tuple[Sequence[_Features], _Features]:
        example = _example(record)
        return [example], example

    def rows(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        return rows.checked(self._unchecked(part, layout), layout, "record")

    def _unchecked(self, part: Part, layout: Layout) -> Iterator[Rows | Rejected]:
        for batch in self._batches(part, layout):
            if isinstance(batch, Rejected):
                yield batch
                continue
            yield Rows(
                (part.path, np.array(batch.numbers)),
                np.array(batch.queries, np.object_),
                batch.labels[:, 0],
                batch.features[:, 0],
                np.array([doc_id for [doc_id] in batch.doc_ids], np.object_),
                {name: np.array(values, np.object_) for name, values in batch.context.items()},
            )


def _numbers(size: int) -> Feature:
    if size == 1:
        return Number(missing=REFUSE)
    return Vector(size=size, missing=REFUSE, within_list=True)


def _example(octets: bytes) -> _Features:
    features: _Features = tf.train.Example.FromString(octets).features.feature
    return features


def _fixed(
    kinds: _Kinds, name: str, kind: str, size: int | None = None, default: Any = None
) -> tf.io.FixedLenFeature:
    """A feature of the kind that it has in the file, with a default, by which it is not missed."""
    dtype, missing = _MISSING[kinds.get(name, (kind, 1))[0]]
    default = missing if default is None else default
    if size is None or size == 1:
        return tf.io.FixedLenFeature([], dtype, default)
    return tf.io.FixedLenFeature([size], dtype, [default] * size)


def _records(path: str) -> Iterator[bytes]:
    is_compressed = path.endswith(".gz")
    octets = 0
    try:
        for record in tf.data.TFRecordDataset(path, "GZIP" if is_compressed else ""):
            octets += _FRAME + len(record.numpy())
            yield record.numpy()
    except tf.errors.OpError as error:
        reason = f"expected a readable TFRecord file. Received: {_first_line(error)}"
        raise InputError(path, reason) from error
    # TensorFlow passes over what is left of a record of which not even the length is whole.
    if not is_compressed and octets != Path(path).stat().st_size:
        wanted = "expected a readable TFRecord file"
        raise InputError(path, f"{wanted}. Received: {octets} octets of records, and more")


def _text(value: bytes | int | float) -> str:
    """An identifier as text; empty if it is the value of a missing one."""
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:.9g}" if value >= 0 else ""


def _first_line(error: tf.errors.OpError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("utf-8", "backslashreplace").splitlines()[0]
    return str(error.message).splitlines()[0]


def _digest(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()[:16]
