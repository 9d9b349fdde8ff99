"""Lists of features with a name each, from TFRecord files of four formats."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import message
from tensorflow_serving.apis import input_pb2

from tfrank_sel import data
from tfrank_sel.data import parsing
from tfrank_sel.data.readers.sources import Columns, Format, Found, Layout, Rejected
from tfrank_sel.data.readers.tables import Rows

_FRAME = 16  # octets around a record
_SAMPLE = 100  # records that tell which features there are
_BATCH = 64  # records parsed at once
_PARSERS: Mapping[Format, Callable[..., dict[str, Any]]] = {
    Format.ELWC: parsing.parse_elwc,
    Format.EIE: parsing.parse_example_in_example,
    Format.SEQUENCE_EXAMPLE: parsing.parse_sequence_example,
    Format.EXAMPLE: parsing.parse_example,
}
_KINDS = {
    "float_list": (tf.float32, float("nan")),
    "int64_list": (tf.int64, -1),
    "bytes_list": (tf.string, ""),
}

_Kinds = dict[str, tuple[str, int]]  # kind of each feature, and how many values it has


def layout(path: str, format: Format, columns: Columns) -> Layout:
    """Returns which features the first hundred records of a file have.

    Raises:
        tfrank_sel.data.InputError: If the file cannot be read, or these records lack what is named.
    """
    items, context = _kinds(path, format)
    features = columns.features or sorted(
        name
        for name, (kind, _) in items.items()
        if kind != "bytes_list" and name not in columns.others
    )
    for wanted, found in (((columns.label, *features), items), (columns.context, context)):
        for name in wanted:
            if name not in found:
                raise data.InputError(path, f"expected {name!r}. Received: {sorted(found)}")
    return Layout(
        {name: items[name][1] for name in features},
        {name: context[name][0] != "bytes_list" for name in columns.context},
    )


def read(path: str, format: Format, columns: Columns, layout: Layout) -> Iterator[Found | Rejected]:
    """Reads a TFRecord file of lists: ELWC, EIE or SequenceExample.

    Args:
        path: The file; compressed if its name ends in `.gz`.
        format: How a record holds a list.
        columns: Names of the parts.
        layout: Which features an item has. One that an item lacks is 0, as in LETOR.

    Yields:
        The lists, and the records that hold none.

    Raises:
        tfrank_sel.data.InputError: If the file cannot be read.
    """
    for batch in _batches(path, format, columns, layout):
        if isinstance(batch, Rejected):
            yield batch
            continue
        for i, number in enumerate(batch.numbers):
            size, query = int(batch.sizes[i]), batch.queries[i]
            labels, features = batch.labels[i, :size], batch.features[i, :size]
            if (reason := _broken(labels, features)) is not None:
                yield Rejected(path, "record", number, reason)
                continue
            ids = enumerate(batch.doc_ids[i][:size], start=1)
            named = tuple(doc_id or f"{query}:{n}" for n, doc_id in ids)
            context = {name: values[i] for name, values in batch.context.items()}
            yield Found(data.ItemList(query, labels, features, named), context)


def rows(path: str, columns: Columns, layout: Layout) -> Iterator[Rows | Rejected]:
    """Reads a TFRecord file of `tf.train.Example`, each an item with its query.

    Args:
        path: As in `read`.
        columns: As in `read`.
        layout: As in `read`.

    Yields:
        The items as rows, and the records that hold none.

    Raises:
        tfrank_sel.data.InputError: If the file cannot be read.
    """
    for batch in _batches(path, Format.EXAMPLE, columns, layout):
        if isinstance(batch, Rejected):
            yield batch
            continue
        ids = np.array([doc_id for [doc_id] in batch.doc_ids], np.object_)
        yield Rows(
            (path, np.array(batch.numbers)),
            np.array(batch.queries, np.object_),
            batch.labels[:, 0],
            batch.features[:, 0],
            ids if all(ids) else None,
            {name: np.array(values, np.object_) for name, values in batch.context.items()},
        )


# TensorFlow quotes what it cannot parse, and fails to raise its error where that is not UTF-8.
_Unreadable = (tf.errors.OpError, UnicodeDecodeError)


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


def _batches(
    path: str, format: Format, columns: Columns, layout: Layout
) -> Iterator[_Batch | Rejected]:
    parse = _parser(path, format, columns, layout)
    numbered = enumerate(_records(path), start=1)
    while chunk := list(itertools.islice(numbered, _BATCH)):
        try:
            yield parse(chunk)
        except _Unreadable:  # some record is at fault: find out which, and why
            for one in chunk:
                try:
                    yield parse([one])
                except _Unreadable as error:
                    reason = f"a record must be {format.value}, and text UTF-8. "
                    reason += f"Received: {_first_line(error)}"
                    yield Rejected(path, "record", one[0], reason)


def _parser(
    path: str, format: Format, columns: Columns, layout: Layout
) -> Callable[[Sequence[tuple[int, bytes]]], _Batch]:
    """Returns what parses numbered records of a file."""
    kinds, of_query = _kinds(path, format)
    label, doc_id, query = columns.label, columns.doc_id, columns.query
    items = {name: _fixed(kinds, name, "float_list", n, 0) for name, n in layout.features.items()}
    items[label] = _fixed(kinds, label, "float_list")
    items[doc_id] = _fixed(kinds, doc_id, "bytes_list")
    context = {name: _fixed(of_query, name, "float_list") for name in layout.context}
    context[query] = _fixed(of_query, query, "bytes_list")
    features = data.ListFeatures(items, context)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def parse(serialized: tf.Tensor) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
        parsed = _PARSERS[format](serialized, features)
        shape = tf.unstack(tf.shape(parsed["mask"]))
        values = [tf.reshape(parsed[name], [*shape, n]) for name, n in layout.features.items()]
        return parsed, tf.concat([tf.cast(one, tf.float32) for one in values], axis=2)

    def batch(chunk: Sequence[tuple[int, bytes]]) -> _Batch:
        parsed, values = parse([record for _, record in chunk])
        named = zip(parsed[query].numpy().tolist(), chunk, strict=True)
        context = {name: parsed[name].numpy().tolist() for name in layout.context}
        return _Batch(
            [number for number, _ in chunk],
            [_text(name) or hashlib.sha256(record).hexdigest()[:16] for name, (_, record) in named],
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


def _fixed(
    kinds: _Kinds, name: str, kind: str, size: int | None = None, default: Any = None
) -> tf.io.FixedLenFeature:
    """A feature of the kind that it has in the file, with a default, by which it is not missed."""
    dtype, missing = _KINDS[kinds.get(name, (kind, 1))[0]]
    default = missing if default is None else default
    if size is None or size == 1:
        return tf.io.FixedLenFeature([], dtype, default)
    return tf.io.FixedLenFeature([size], dtype, [default] * size)


def _kinds(path: str, format: Format) -> tuple[_Kinds, _Kinds]:
    """Which features items and queries have in the first records of a file."""
    items: _Kinds = {}
    context: _Kinds = {}
    for record in itertools.islice(_records(path), _SAMPLE):
        try:
            of_items, of_query = _features(record, format)
        except message.DecodeError:  # `read` will say so
            continue
        for found, features in ((items, of_items), (context, [of_query])):
            for name, feature in (pair for one in features for pair in one.items()):
                kind = feature.WhichOneof("kind")
                if kind is not None and getattr(feature, kind).value:
                    found.setdefault(name, (kind, len(getattr(feature, kind).value)))
    return items, context


def _features(record: bytes, format: Format) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    """The features of each item of a record, and those of the query."""
    if format is Format.SEQUENCE_EXAMPLE:
        sequence = tf.train.SequenceExample.FromString(record)
        lists = sequence.feature_lists.feature_list
        items: list[Mapping[str, Any]] = [
            {name: item} for name in lists for item in lists[name].feature
        ]
        return items, sequence.context.feature
    if format is Format.ELWC:
        lists = input_pb2.ExampleListWithContext.FromString(record)
        return [one.features.feature for one in lists.examples], lists.context.features.feature
    outer = tf.train.Example.FromString(record).features.feature
    if format is Format.EXAMPLE:
        return [outer], outer
    inner = outer["serialized_examples"].bytes_list.value
    context = outer["serialized_context"].bytes_list.value
    return (
        [tf.train.Example.FromString(one).features.feature for one in inner],
        tf.train.Example.FromString(context[0] if context else b"").features.feature,
    )


def _records(path: str) -> Iterator[bytes]:
    if not Path(path).is_file():
        raise data.InputError(path, "expected a file. Received: no such file")
    is_compressed = path.endswith(".gz")
    octets = 0
    try:
        for record in tf.data.TFRecordDataset(path, "GZIP" if is_compressed else ""):
            octets += _FRAME + len(record.numpy())
            yield record.numpy()
    except tf.errors.OpError as error:
        reason = f"expected a readable TFRecord file. Received: {_first_line(error)}"
        raise data.InputError(path, reason) from error
    # TensorFlow passes over what is left of a record of which not even the length is whole.
    if not is_compressed and octets != Path(path).stat().st_size:
        wanted = "expected a readable TFRecord file"
        raise data.InputError(path, f"{wanted}. Received: {octets} octets of records, and more")


def _broken(labels: np.ndarray, features: np.ndarray) -> str | None:
    """Which rule a list breaks, if any."""
    if (bad := np.flatnonzero(~(np.isfinite(labels) & (labels >= 0.0)))).size:
        wanted = "a label must be a finite number that is not negative"
        return f"{wanted}. Received: {labels[bad[0]]:g} of item {bad[0] + 1}"
    if (bad := np.flatnonzero(~np.isfinite(features).all(axis=1))).size:
        return f"a feature must be a finite number. Received: one that is not, of item {bad[0] + 1}"
    return None


def _text(value: bytes | int | float) -> str:
    """An identifier as text; empty if it is the value of a missing one."""
    if isinstance(value, bytes):
        return value.decode()
    return f"{value:.9g}" if value >= 0 else ""


def _first_line(error: tf.errors.OpError | UnicodeDecodeError) -> str:
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("utf-8", "backslashreplace").splitlines()[0]
    return str(error.message).splitlines()[0]
