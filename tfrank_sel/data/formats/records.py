"""Parsing of the records of TFRecord files, in batches."""

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel.data.formats import forms, rows, values
from tfrank_sel.data.formats.columns import Columns, Layout
from tfrank_sel.data.formats.rows import Rows
from tfrank_sel.data.lists import InputError, Rejected
from tfrank_sel.data.spec import ListFeatures
from tfrank_sel.features import (
    MISSING_INTEGER,
    REFUSE,
    Bool,
    Feature,
    Number,
    Set,
    Timestamp,
    Vector,
)
from tfrank_sel.spelling import spelled

_BATCH = 64  # records parsed at once
_MISSING = {
    "float_list": (tf.float32, float("nan")),
    "int64_list": (tf.int64, MISSING_INTEGER),
    "bytes_list": (tf.string, b""),
}


@dataclasses.dataclass(frozen=True)
class Batch:
    """Some records.

    Args:
        numbers: Their numbers in the file.
        queries: Identifier of the query of each.
        sizes: Number of items of each.
        rows: The items of all, those of the first record first.
        context: Other values of the query of each, by name.
    """

    numbers: list[int]
    queries: list[str]
    sizes: np.ndarray
    rows: Rows
    context: Mapping[str, Sequence[str | float]]

    def lists(self) -> Iterator[tuple[int, str, range, dict[str, str | float]]]:
        """Yields the number of each record, its query, the range of its rows and its context."""
        stops = np.cumsum(self.sizes).tolist()
        for i, (number, query) in enumerate(zip(self.numbers, self.queries, strict=True)):
            context = {name: found[i] for name, found in self.context.items()}
            yield number, query, range(stops[i] - int(self.sizes[i]), stops[i]), context


def layout(paths: Sequence[str], form: forms.Form, columns: Columns) -> Layout:
    """Returns the layout of the lists of files, from their first records.

    Raises:
        InputError: If a file cannot be read, or a named column is missing or has the wrong kind.
    """
    return layout_of(forms.kinds(paths, form), columns, ", ".join(paths))


def layout_of(kinds: tuple[forms.Kinds, forms.Kinds], columns: Columns, place: str) -> Layout:
    """Returns the layout of lists from the kinds of the features of their items and queries.

    Args:
        kinds: As `forms.kinds` returns them.
        columns: Names of the parts.
        place: Where they are, for errors.

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
        raise InputError(place, f"{reason}. Received: {sorted({*items, *context})}")
    types = columns.types or {name: Number() for name in names}
    wanted = [(name, items) for role, name in columns.measures.items() if role != "list_weight"]
    wanted += [(name, context if x.of == "query" else items) for name, x in types.items()]
    wanted += [(name, context) for name in columns.context]
    if columns.list_weight is not None:
        wanted.append((columns.list_weight, context))
    for name, found in wanted:
        if name not in found:
            where = "the items" if found is items else "the query"
            reason = f"expected {name!r} in {where}. Received: {sorted(found)}"
            raise InputError(place, reason)
    for name, feature in types.items():
        kind, _ = (context if feature.of == "query" else items)[name]
        if kind == "bytes_list" and feature.numbers(name):
            raise InputError(place, f"expected numbers in {name!r}. Received: bytes")
    return Layout(
        columns.types or {name: _numbers_of(items[name][1]) for name in names},
        {name: context[name][0] != "bytes_list" for name in columns.context},
    )


def batches(
    path: str, form: forms.Form, columns: Columns, layout: Layout
) -> Iterator[Batch | Rejected]:
    """Reads a file in batches of records.

    Args:
        path: The file.
        form: How its records are parsed.
        columns: Names of the parts.
        layout: Layout of the lists.

    Yields:
        The records, with the faults of their items, and malformed records.

    Raises:
        InputError: If the file cannot be read.
    """
    features = list_features(forms.kinds([path], form), columns, layout)
    parse = _parser(path, form, columns, layout, features)
    numbered = enumerate(forms.records(path), start=1)
    while chunk := list(itertools.islice(numbered, _BATCH)):
        try:
            yield parse(chunk)
        except forms.Unreadable:  # at least one record is malformed: find out which, and why
            for one in chunk:
                try:
                    yield parse([one])
                except forms.Unreadable as error:
                    reason = f"a record must be {form.name}, and text UTF-8. "
                    reason += f"Received: {forms.first_line(error)}"
                    reason = forms.mismatch(one[1], form, features) or reason
                    yield Rejected(path, "record", one[0], reason)


def _parser(
    path: str, form: forms.Form, columns: Columns, layout: Layout, features: ListFeatures
) -> Callable[[Sequence[tuple[int, bytes]]], Batch]:
    """Returns the parser of numbered records of a file."""
    sets = {x: y.max_values for x, y in layout.features.items() if isinstance(y, Set)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
        parsed = form.parse(serialized, features)
        for name, size in sets.items():
            found = parsed[name]
            shape = [*[None] * (found.shape.rank - 1), size]
            parsed[name] = found.to_tensor(_default(found.dtype), shape=shape)
        return parsed

    def batch(chunk: Sequence[tuple[int, bytes]]) -> Batch:
        parsed = {x: y.numpy() for x, y in parse([record for _, record in chunk]).items()}
        numbers, sizes = [number for number, _ in chunk], parsed[features.size]
        named = zip(parsed[columns.query], chunk, strict=True)
        queries = [forms.text(name) or _digest(record) for name, (_, record) in named]
        context = {
            name: _floats(found).tolist() if is_number else list(map(forms.text, found.tolist()))
            for name, is_number in layout.context.items()
            # what is a feature of items, too, is that of the first: the only one of an example
            for found in [parsed[name] if name in features.context else parsed[name][:, 0]]
        }

        def of_items(name: str) -> np.ndarray:
            found = parsed[name]
            if name in features.context:
                return np.repeat(found, sizes, axis=0)
            return found[parsed[features.mask]]

        place = (path, np.repeat(numbers, sizes))
        items = _rows(
            place, np.repeat(np.array(queries, np.object_), sizes), of_items, columns, layout
        )
        repeated = {x: np.repeat(np.array(y, np.object_), sizes) for x, y in context.items()}
        items = dataclasses.replace(items, context=repeated)
        return Batch(numbers, queries, sizes, items, context)

    return batch


def _rows(
    place: tuple[str, np.ndarray],
    queries: np.ndarray,
    of_items: Callable[[str], np.ndarray],
    columns: Columns,
    layout: Layout,
) -> Rows:
    """Returns items as rows, with their faults."""
    measures = {"label": np.zeros(len(queries), np.float32)}
    measures |= {role: _floats(of_items(name)) for role, name in columns.measures.items()}
    types = layout.features.items()
    numbers = [_numbers(of_items(name), x) for name, x in types if x.numbers(name)]
    texts = [_texts(of_items(name), spelled) for name, x in types if x.texts(name)]
    features = np.concatenate(numbers or [np.empty([len(queries), 0], np.float32)], axis=1)
    matrix = np.concatenate(texts, axis=1) if texts else None

    def received(name: str, row: int) -> Any:
        found = of_items(name)[row].tolist()
        return None if found == MISSING_INTEGER else found

    return Rows(
        place,
        queries,
        measures["label"],
        features,
        _texts(of_items(columns.doc_id))[:, 0],
        {},
        matrix,
        rows.weights(measures),
        rows.faults(columns, layout, measures, features, matrix, received),
    )


def list_features(
    found: tuple[forms.Kinds, forms.Kinds], columns: Columns, layout: Layout
) -> ListFeatures:
    """Returns the features to parse, each optional and of the kind in the file.

    Args:
        found: The kinds, as `forms.kinds` returns them.
        columns: Names of the parts.
        layout: Layout of the lists.
    """
    kinds, of_query = found
    default = None if columns.types is not None else 0
    items, context = dict[str, Any](), dict[str, Any]()
    for name, feature in layout.features.items():
        into, known = (context, of_query) if feature.of == "query" else (items, kinds)
        if isinstance(feature, Set):
            into[name] = tf.io.RaggedFeature(_MISSING[known.get(name, ("bytes_list", 1))[0]][0])
        elif feature.texts(name):
            into[name] = _fixed(known, name, "bytes_list")
        else:
            size = feature.size if isinstance(feature, Vector) else 1
            into[name] = _fixed(known, name, "float_list", size, default)
    for role, name in columns.measures.items():
        into, known = (context, of_query) if role == "list_weight" else (items, kinds)
        into[name] = _fixed(known, name, "float_list")
    items[columns.doc_id] = _fixed(kinds, columns.doc_id, "bytes_list")
    for name in layout.context:
        if name not in {*items, *context}:
            context[name] = _fixed(of_query, name, "float_list")
    context[columns.query] = _fixed(of_query, columns.query, "bytes_list")
    return ListFeatures(items, context)


def _numbers_of(size: int) -> Feature:
    if size == 1:
        return Number(missing=REFUSE)
    return Vector(size=size, missing=REFUSE, within_list=True)


def _fixed(
    kinds: forms.Kinds, name: str, kind: str, size: int = 1, default: Any = None
) -> tf.io.FixedLenFeature:
    """A feature of the kind in the file, with a default, so that it is optional."""
    dtype, missing = _MISSING[kinds.get(name, (kind, 1))[0]]
    default = missing if default is None else default
    if size == 1:
        return tf.io.FixedLenFeature([], dtype, default)
    return tf.io.FixedLenFeature([size], dtype, [default] * size)


def _default(dtype: tf.DType) -> Any:
    return next(missing for kind, missing in _MISSING.values() if kind == dtype)


def _numbers(found: np.ndarray, feature: Feature) -> np.ndarray:
    """Parsed values as the numbers of a feature, `[items, k]`."""
    if isinstance(feature, Timestamp):
        return values.day_and_second(_floats(found, np.float64))
    numbers = _floats(found).reshape(len(found), len(feature.numbers("")))
    return values.zero_or_one(numbers) if isinstance(feature, Bool) else numbers


def _floats(found: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    if found.dtype == np.int64:
        return np.where(found == MISSING_INTEGER, np.nan, found).astype(dtype)
    return np.asarray(found, dtype)


def _texts(found: np.ndarray, spell: Callable[[str], str] = str) -> np.ndarray:
    """Parsed values as texts, `[items, k]`."""
    texts = np.array([spell(forms.text(one)) for one in found.ravel().tolist()], np.object_)
    return texts.reshape(len(found), found.shape[1] if found.ndim > 1 else 1)


def _digest(record: bytes) -> str:
    return hashlib.sha256(record).hexdigest()[:16]
