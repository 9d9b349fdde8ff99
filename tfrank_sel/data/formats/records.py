"""Records of TFRecord files: the features found in the first records, and batches of rows."""

import collections
import dataclasses
import functools
import hashlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from google.protobuf import message

from tfrank_sel.canonical_text import canonical
from tfrank_sel.data import arrays, parsing, stores, typed
from tfrank_sel.data.arrow_types import arrow
from tfrank_sel.data.formats import rows
from tfrank_sel.data.lists import Lists
from tfrank_sel.data.rejections import Rejected, rejection
from tfrank_sel.data.schema import Columns, Schema
from tfrank_sel.data.spec import ListFeatures
from tfrank_sel.data.table import Table
from tfrank_sel.errors import received
from tfrank_sel.features import (
    REFUSE,
    Bool,
    Feature,
    Number,
    Set,
    Timestamp,
    Vector,
    means_missing,
)

# Number of bytes that a TFRecord file adds to a record.
_FRAME = 16
_TRACE = ("Graph execution error:", "Detected at node", "<stack traces")
_SAMPLE = 100  # records from which the features are inferred
# TensorFlow quotes invalid input, and fails to raise its error if that is not UTF-8.
Unreadable = (tf.errors.OpError, UnicodeDecodeError)

DTYPES = {"float_list": tf.float32, "int64_list": tf.int64, "bytes_list": tf.string}
# Each value is a `tf.train.Feature`, which has no type of its own.
_Features = Mapping[str, Any]
_Parsed: TypeAlias = tuple[Sequence[_Features], _Features]  # of the items and of the query
Kinds = dict[str, tuple[str, int]]  # kind of each feature, and its number of values
# Number of records that are parsed at once.
_BATCH = 64


class RecordParser(NamedTuple):
    """Parser of the records of a format.

    Attributes:
        name: Name of the format.
        parse: The function of `tfrank_sel.data.parsing` for the records.
        features: Returns the features of each item of a record, and those of its query.
    """

    name: str
    parse: Callable[..., dict[str, Any]]
    features: Callable[[bytes], _Parsed]


def kinds(paths: Sequence[str], parser: RecordParser) -> tuple[Kinds, Kinds]:
    """The features of items and queries in the first records of files."""
    items: Kinds = {}
    context: Kinds = {}
    for of_items, of_query in _read(_first(paths), parser):
        for into, features in ((items, of_items), (context, [of_query])):
            for name, kind, values in _values(features):
                into.setdefault(name, (kind, len(values)))
    return items, context


def tables(paths: Sequence[str], parser: RecordParser) -> tuple[Any, Any]:
    """Returns the items and the queries of the first records of files as Arrow tables.

    Raises:
        ImportError: If pyarrow is not installed.
        InputError: If a file cannot be read.
    """
    items: dict[str, list[list[Any]]] = collections.defaultdict(list)
    context: dict[str, list[list[Any]]] = collections.defaultdict(list)
    for of_items, of_query in _read(_first(paths), parser):
        for columns, features in ((items, of_items), (context, [of_query])):
            for name, _, values in _values(features):
                columns[name].append([text(x) if isinstance(x, bytes) else x for x in values])
    return _table(items), _table(context)


def _table(columns: Mapping[str, list[list[Any]]]) -> Any:
    """Makes a table of the values of each feature, scalar if no item has several."""
    longest = max(map(len, columns.values()), default=0)
    by_name = {}
    for name, column in columns.items():
        is_plain = all(len(values) == 1 for values in column)
        nothing = [None] * (longest - len(column))
        by_name[name] = arrays.array([*([x for [x] in column] if is_plain else column), *nothing])
    return arrow().table(by_name)


def _first(paths: Sequence[str]) -> Iterator[bytes]:
    return (x for path in paths for x in itertools.islice(records(path), _SAMPLE))


def _read(found: Iterable[bytes], parser: RecordParser) -> Iterator[_Parsed]:
    """Yields the result of `parser.features` for the readable records."""
    for record in found:
        try:
            yield parser.features(record)
        except (message.DecodeError, *Unreadable):
            # `batches` reports a record that cannot be parsed.
            continue


def _values(features: Iterable[_Features]) -> Iterator[tuple[str, str, Sequence[Any]]]:
    """Yields name, kind and values of each feature with a value."""
    for name, feature in (pair for item in features for pair in item.items()):
        kind = feature.WhichOneof("kind")
        if kind is not None and (values := getattr(feature, kind).value):
            yield name, kind, values


def mismatch(record: bytes, parser: RecordParser, expected: ListFeatures) -> str:
    """Returns the first feature of a record that has another kind or size; else an empty text."""
    try:
        items, context = parser.features(record)
    except (message.DecodeError, *Unreadable):
        return ""
    for kinds, features in ((expected.items, items), (expected.context, [context])):
        for name, kind, values in _values(features):
            size = tf.TensorShape(getattr(kinds.get(name), "shape", [])).num_elements()
            is_fixed = isinstance(kinds.get(name), tf.io.FixedLenFeature)
            if name in kinds and (
                DTYPES[kind] != kinds[name].dtype or (is_fixed and size != len(values))
            ):
                count = (
                    f"{size} of type {kinds[name].dtype.name}" if is_fixed else kinds[name].dtype
                )
                rule = f"{name!r} must be {count} in all items, as in the first"
                return received(rule, f"{list(values)[:4]} of type {DTYPES[kind].name}")
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
        raise rejection(path, "expected a readable TFRecord file", reason) from error
    # TensorFlow ignores a truncated record whose length is not complete.
    if not is_compressed and octets != os.path.getsize(near):
        read = f"{octets} octets of records, and more"
        raise rejection(path, "expected a readable TFRecord file", read)


def first_line(error: tf.errors.OpError | UnicodeDecodeError) -> str:
    """Returns the first line of an error of `Unreadable` that is no trace of the graph."""
    if isinstance(error, UnicodeDecodeError):
        return error.object.decode("utf-8", "backslashreplace").splitlines()[0]
    lines = [x for x in str(error.message).splitlines() if x and not x[0].isspace()]
    return next((x for x in lines if not x.startswith(_TRACE)), lines[0])


def text(value: bytes | int | float) -> str:
    """A value as text; empty if it is missing."""
    if isinstance(value, bytes):
        return value.decode()
    if means_missing(value) or value != value:
        return ""
    return arrays.text(np.float32(value) if isinstance(value, float) else value) or ""


def _of_elwc(record: bytes) -> _Parsed:
    examples, context, _ = (x.numpy() for x in parsing.split(tf.constant([record])))
    return [_example(item) for item in examples[0]], _example(context[0])


def _of_example_in_example(record: bytes) -> _Parsed:
    outer = _example(record)
    context = outer["serialized_context"].bytes_list.value or [b""]
    examples = outer["serialized_examples"].bytes_list.value
    return [_example(item) for item in examples], _example(context[0])


def _of_sequence_example(record: bytes) -> _Parsed:
    sequence = tf.train.SequenceExample.FromString(record)
    lists = sequence.feature_lists.feature_list
    items = [{name: item} for name in lists for item in lists[name].feature]
    return items, sequence.context.feature


def _of_example(record: bytes) -> _Parsed:
    example = _example(record)
    return [example], example


def _example(octets: bytes) -> _Features:
    features: _Features = tf.train.Example.FromString(octets).features.feature
    return features


PARSERS = {
    parser.name: parser
    for parser in (
        RecordParser("elwc", parsing.parse_elwc, _of_elwc),
        RecordParser("eie", parsing.parse_example_in_example, _of_example_in_example),
        RecordParser("sequence-example", parsing.parse_sequence_example, _of_sequence_example),
        RecordParser("example", parsing.parse_example, _of_example),
    )
}


def schema_of(kinds: tuple[Kinds, Kinds], columns: Columns, path: str) -> Schema:
    """Returns the schema of lists from the kinds of the features of their items and queries.

    Args:
        kinds: As `kinds` returns them.
        columns: Names of the parts.
        path: Where they are, for errors.

    Raises:
        InputError: If a named column is missing or has the wrong kind.
    """
    items, context = kinds
    names = columns.features or sorted(
        name
        for name, (kind, _) in items.items()
        if kind != "bytes_list" and name not in columns.others
    )
    if not names:
        reason = "expected a feature of numbers, or the type of each feature"
        raise rejection(path, reason, sorted({*items, *context}))
    sizes = {name: size for name, (_, size) in items.items()}
    types = columns.types or {name: _numbers_of(sizes.get(name, 1)) for name in names}
    required = [(name, items) for role, name in columns.measures.items() if role != "list_weight"]
    required += [(name, context if x.of == "query" else items) for name, x in types.items()]
    required += [(name, context) for name in columns.context]
    if columns.list_weight is not None:
        required.append((columns.list_weight, context))
    for name, kinds_there in required:
        if name not in kinds_there:
            where = "the items" if kinds_there is items else "the query"
            raise rejection(path, f"expected {name!r} in {where}", sorted(kinds_there))
    for name, feature in types.items():
        kind, _ = (context if feature.of == "query" else items)[name]
        if kind == "bytes_list" and feature.numbers(name):
            raise rejection(path, f"expected numbers in {name!r}", "bytes")
    of_query = {name: context[name][0] != "bytes_list" for name in columns.context}
    return Schema(types, of_query, columns)


def batches(path: str, parser: RecordParser, schema: Schema) -> Iterator[Lists | Rejected]:
    """Reads a file in batches of records.

    A feature that the first records lack has the kind of the records with it.

    Args:
        path: The file.
        parser: How its records are parsed.
        schema: Schema of the lists.

    Yields:
        The lists of some records, with the faults of their items, and malformed records.

    Raises:
        InputError: If the file cannot be read.
    """
    items, context = kinds([path], parser)
    late: tuple[Kinds, Kinds] = {}, {}
    features = default = list_features((items, context), schema)
    parse = _parser(path, parser, schema, features)
    numbered = enumerate(records(path), start=1)
    while chunk := list(itertools.islice(numbered, _BATCH)):
        try:
            yield parse(chunk)
        except Unreadable:  # at least one record is malformed, or has a feature of a kind not known
            _learn(late, (record for _, record in chunk), parser, default)
            now = list_features(({**late[0], **items}, {**late[1], **context}), schema)
            if now != features:
                features, parse = now, _parser(path, parser, schema, now)
            for number, record in chunk:
                try:
                    yield parse([(number, record)])
                except Unreadable as error:
                    expected = f"a record must be {parser.name}, and text UTF-8"
                    reason = mismatch(record, parser, features)
                    reason = reason or received(expected, first_line(error))
                    yield Rejected(path, "record", number, reason)


def _learn(
    late: tuple[Kinds, Kinds], found: Iterable[bytes], parser: RecordParser, expected: ListFeatures
) -> None:
    """Adds the kind of each feature that is of one in all records; for numbers, no bytes."""
    seen = collections.defaultdict[str, set[str]](set), collections.defaultdict[str, set[str]](set)
    for of_item, of_query in _read(found, parser):
        for kinds, features in zip(seen, (of_item, [of_query]), strict=True):
            for name, kind, _ in _values(features):
                kinds[name].add(kind)
    for into, kinds, stored in zip(late, seen, (expected.items, expected.context), strict=True):
        for name in kinds.keys() & stored:
            kind, *others = kinds[name]
            if not others and (kind != "bytes_list" or stored[name].dtype == tf.string):
                into[name] = kind, 1


def _parser(
    path: str, parser: RecordParser, schema: Schema, features: ListFeatures
) -> Callable[[Sequence[tuple[int, bytes]]], Lists]:
    """Returns the parser of numbered records of a file."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = parser.parse(serialized, features)
        return {**parsed, **typed.pad_sets(parsed, schema.features)}

    def batch(chunk: Sequence[tuple[int, bytes]]) -> Lists:
        parsed = {x: y.numpy() for x, y in parse([record for _, record in chunk]).items()}
        numbers, sizes = [number for number, _ in chunk], parsed[features.size]
        named = zip(parsed[schema.columns.query], chunk, strict=True)
        queries = [text(name) or _digest(record) for name, (_, record) in named]
        context = {
            name: _floats(values).tolist() if is_number else list(map(text, values.tolist()))
            for name, is_number in schema.context.items()
            # what is a feature of items, too, is that of the first: the only one of an example
            for values in [parsed[name] if name in features.context else parsed[name][:, 0]]
        }

        def of_items(name: str) -> np.ndarray:
            values = parsed[name]
            if name in features.context:
                return np.repeat(values, sizes, axis=0)
            return values[parsed[features.mask]]

        origin = (path, np.repeat(numbers, sizes))
        items = _rows(origin, np.repeat(np.array(queries, np.object_), sizes), of_items, schema)
        repeated = {x: np.repeat(np.array(y, np.object_), sizes) for x, y in context.items()}
        items = dataclasses.replace(items, context=repeated)
        return Lists(items, sizes, queries, context)

    return batch


def _rows(
    origin: tuple[str, np.ndarray],
    queries: np.ndarray,
    of_items: Callable[[str], np.ndarray],
    schema: Schema,
) -> Table:
    """Returns items as rows, with their faults."""
    of_items = functools.cache(of_items)  # a feature is taken once, whatever the number of faults
    measures = {"label": np.zeros(len(queries), np.float32)}
    measures |= {role: _floats(of_items(name)) for role, name in schema.columns.measures.items()}
    types = schema.features.items()
    numbers = [_numbers(of_items(name), x) for name, x in types if x.numbers(name)]
    texts = [_texts(of_items(name), canonical) for name, x in types if x.texts(name)]
    features = np.concatenate(numbers or [np.empty([len(queries), 0], np.float32)], axis=1)
    matrix = np.concatenate(texts, axis=1) if texts else None

    def stored_value(name: str, row: int) -> Any:
        value = of_items(name)[row].tolist()
        return None if isinstance(value, int) and means_missing(value) else value

    ids = {"query": queries, "item": _texts(of_items(schema.columns.doc_id))[:, 0]}
    return rows.table_of(origin, schema, measures, (features, matrix), ids, {}, stored_value)


def list_features(of_file: tuple[Kinds, Kinds], schema: Schema) -> ListFeatures:
    """Returns the features to parse, each optional and of the kind in the file.

    Args:
        of_file: The kinds, as `kinds` returns them.
        schema: Schema of the lists.
    """
    (kinds, of_query), columns = of_file, schema.columns
    default = None if schema.types else 0
    items, context = dict[str, Any](), dict[str, Any]()
    for name, feature in schema.features.items():
        into, stored = (context, of_query) if feature.of == "query" else (items, kinds)
        if isinstance(feature, Set):
            into[name] = tf.io.RaggedFeature(DTYPES[stored.get(name, ("bytes_list", 1))[0]])
        elif feature.texts(name):
            into[name] = _fixed_feature(stored, name, "bytes_list")
        else:
            size = feature.size if isinstance(feature, Vector) else 1
            into[name] = _fixed_feature(stored, name, "float_list", size, default)
    for role, name in columns.measures.items():
        into, stored = (context, of_query) if role == "list_weight" else (items, kinds)
        into[name] = _fixed_feature(stored, name, "float_list")
    items[columns.doc_id] = _fixed_feature(kinds, columns.doc_id, "bytes_list")
    for name in schema.context:
        if name not in {*items, *context}:
            default_kind = "float_list" if schema.context[name] else "bytes_list"
            context[name] = _fixed_feature(of_query, name, default_kind)
    context[columns.query] = _fixed_feature(of_query, columns.query, "bytes_list")
    return ListFeatures(items, context)


def _numbers_of(size: int) -> Feature:
    if size == 1:
        return Number(missing=REFUSE)
    return Vector(size=size, missing=REFUSE, within_list=True)


def _fixed_feature(
    kinds: Kinds, name: str, kind: str, size: int = 1, default: Any = None
) -> tf.io.FixedLenFeature:
    """A feature of the kind in the file, with a default, so that it is optional."""
    dtype = DTYPES[kinds.get(name, (kind, 1))[0]]
    default = typed.MISSING[dtype.name] if default is None else default
    if size == 1:
        return tf.io.FixedLenFeature([], dtype, default)
    return tf.io.FixedLenFeature([size], dtype, [default] * size)


def _numbers(values: np.ndarray, feature: Feature) -> np.ndarray:
    """Parsed values as the numbers of a feature, `[items, k]`."""
    if isinstance(feature, Timestamp):
        return arrays.day_and_second(_floats(values, np.float64))
    numbers = _floats(values).reshape(len(values), len(feature.numbers("")))
    return arrays.zero_or_one(numbers) if isinstance(feature, Bool) else numbers


def _floats(values: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    if values.dtype == np.int64:
        return np.where(means_missing(values), np.nan, values).astype(dtype)
    return np.asarray(values, dtype)


def _texts(values: np.ndarray, spell: Callable[[str], str] = str) -> np.ndarray:
    """Parsed values as texts, `[items, k]`."""
    texts = np.array([spell(text(value)) for value in values.ravel().tolist()], np.object_)
    return texts.reshape(len(values), values.shape[1] if values.ndim > 1 else 1)


def _digest(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()[:16]
