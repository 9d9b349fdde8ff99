"""Records of TFRecord files, and the features found in the first records."""

import collections
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf import message

from tfrank_sel.data import elwc, parsing, stores
from tfrank_sel.data.formats import arrays
from tfrank_sel.data.lists import InputError
from tfrank_sel.data.spec import ListFeatures
from tfrank_sel.features import MISSING_INTEGER

_FRAME = 16  # octets around a record
_SAMPLE = 100  # records from which the features are inferred
# TensorFlow quotes invalid input, and fails to raise its error if that is not UTF-8.
Unreadable = (tf.errors.OpError, UnicodeDecodeError)

DTYPES = {"float_list": tf.float32, "int64_list": tf.int64, "bytes_list": tf.string}
_Features = Mapping[str, Any]  # `tf.train.Feature` by name
Kinds = dict[str, tuple[str, int]]  # kind of each feature, and its number of values


class Form(NamedTuple):
    """Parser of the records of a format.

    Attributes:
        name: Name of the format.
        parse: The function of `tfrank_sel.data.parsing` for the records.
        features: Returns the features of each item of a record, and those of its query.
    """

    name: str
    parse: Callable[..., dict[str, Any]]
    features: Callable[[bytes], tuple[Sequence[_Features], _Features]]


def kinds(paths: Sequence[str], form: Form) -> tuple[Kinds, Kinds]:
    """The features of items and queries in the first records of files."""
    items: Kinds = {}
    context: Kinds = {}
    for of_items, of_query in _sample(paths, form):
        for found, features in ((items, of_items), (context, [of_query])):
            for name, kind, known in _values(features):
                found.setdefault(name, (kind, len(known)))
    return items, context


def tables(paths: Sequence[str], form: Form) -> tuple[Any, Any]:
    """Returns the items and the queries of the first records of files as Arrow tables.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If a file cannot be read.
    """
    items: dict[str, list[list[Any]]] = collections.defaultdict(list)
    context: dict[str, list[list[Any]]] = collections.defaultdict(list)
    for of_items, of_query in _sample(paths, form):
        for found, features in ((items, of_items), (context, [of_query])):
            for name, _, known in _values(features):
                found[name].append([text(x) if isinstance(x, bytes) else x for x in known])
    return _table(items), _table(context)


def _table(columns: Mapping[str, list[list[Any]]]) -> Any:
    """Makes a table of the values of each feature, scalar if no item has several."""
    longest = max(map(len, columns.values()), default=0)
    found = {}
    for name, column in columns.items():
        is_plain = all(len(known) == 1 for known in column)
        nothing = [None] * (longest - len(column))
        found[name] = arrays.array([*([x for [x] in column] if is_plain else column), *nothing])
    return arrays.arrow().table(found)


def _sample(paths: Sequence[str], form: Form) -> Iterator[tuple[Sequence[_Features], _Features]]:
    """Yields the result of `form.features` for the first readable records."""
    for record in (x for path in paths for x in itertools.islice(records(path), _SAMPLE)):
        try:
            yield form.features(record)
        except (message.DecodeError, *Unreadable):  # `batches` will report it
            continue


def _values(features: Iterable[_Features]) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Yields name, kind and values of each feature with a value."""
    for name, feature in (pair for one in features for pair in one.items()):
        kind = feature.WhichOneof("kind")
        if kind is not None and (known := getattr(feature, kind).value):
            yield name, kind, known


def mismatch(record: bytes, form: Form, wanted: ListFeatures) -> str:
    """Returns the first feature of a record that has another kind or size; else an empty text."""
    try:
        items, context = form.features(record)
    except (message.DecodeError, *Unreadable):
        return ""
    for kinds, features in ((wanted.items, items), (wanted.context, [context])):
        for name, kind, known in _values(features):
            size = tf.TensorShape(getattr(kinds.get(name), "shape", [])).num_elements()
            is_fixed = isinstance(kinds.get(name), tf.io.FixedLenFeature)
            if name in kinds and (
                DTYPES[kind] != kinds[name].dtype or (is_fixed and size != len(known))
            ):
                count = (
                    f"{size} of type {kinds[name].dtype.name}" if is_fixed else kinds[name].dtype
                )
                rule = f"{name!r} must be {count} in all items, as in the first"
                return f"{rule}. Received: {list(known)[:4]} of type {DTYPES[kind].name}"
    return ""


def records(path: str) -> Iterator[bytes]:
    """Yields the records of a file.

    Raises:
        InputError: If the file cannot be read to its end.
    """
    is_compressed = path.endswith(".gz")
    octets = 0
    try:
        near = stores.near(path)
        for record in tf.data.TFRecordDataset(near, "GZIP" if is_compressed else ""):
            octets += _FRAME + len(record.numpy())
            yield record.numpy()
    except (tf.errors.OpError, OSError) as error:
        reason = str(error) if isinstance(error, OSError) else first_line(error)
        raise InputError(path, f"expected a readable TFRecord file. Received: {reason}") from error
    # TensorFlow ignores a truncated record whose length is not complete.
    if not is_compressed and octets != os.path.getsize(near):
        wanted = "expected a readable TFRecord file"
        raise InputError(path, f"{wanted}. Received: {octets} octets of records, and more")


def first_line(error: tf.errors.OpError | UnicodeDecodeError) -> str:
    """Returns the first line of an error of `Unreadable`."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("utf-8", "backslashreplace").splitlines()[0]
    return str(error.message).splitlines()[0]


def text(value: bytes | int | float) -> str:
    """A value as text; empty if it is missing."""
    if isinstance(value, bytes):
        return value.decode()
    if value == MISSING_INTEGER or value != value:
        return ""
    return arrays.text(np.float32(value) if isinstance(value, float) else value) or ""


def _of_elwc(record: bytes) -> tuple[Sequence[_Features], _Features]:
    examples, context, _ = (x.numpy() for x in elwc.split(tf.constant([record])))
    return [_example(one) for one in examples[0]], _example(context[0])


def _of_example_in_example(record: bytes) -> tuple[Sequence[_Features], _Features]:
    outer = _example(record)
    context = outer["serialized_context"].bytes_list.value or [b""]
    examples = outer["serialized_examples"].bytes_list.value
    return [_example(one) for one in examples], _example(context[0])


def _of_sequence_example(record: bytes) -> tuple[Sequence[_Features], _Features]:
    sequence = tf.train.SequenceExample.FromString(record)
    lists = sequence.feature_lists.feature_list
    items = [{name: item} for name in lists for item in lists[name].feature]
    return items, sequence.context.feature


def _of_example(record: bytes) -> tuple[Sequence[_Features], _Features]:
    example = _example(record)
    return [example], example


def _example(octets: bytes) -> _Features:
    features: _Features = tf.train.Example.FromString(octets).features.feature
    return features


ELWC = Form("elwc", parsing.parse_elwc, _of_elwc)
EXAMPLE_IN_EXAMPLE = Form("eie", parsing.parse_example_in_example, _of_example_in_example)
SEQUENCE_EXAMPLE = Form("sequence-example", parsing.parse_sequence_example, _of_sequence_example)
EXAMPLE = Form("example", parsing.parse_example, _of_example)
