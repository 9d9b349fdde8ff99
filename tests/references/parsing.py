"""Lists of named features, read item by item with the protos themselves."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import input_pb2

Values = dict[str, list[Any]]
DTYPES = {float: "float32", int: "int64", bytes: "string"}


class Kind(NamedTuple):
    """How a feature is to be read; `shape` is None where any number of values will do."""

    dtype: str
    shape: list[int] | None
    default: Any


class StoredList(NamedTuple):
    context: Values
    items: list[Values]


def values_of(feature: tf.train.Feature) -> list[Any]:
    kind = feature.WhichOneof("kind")
    return [] if kind is None else list(getattr(feature, kind).value)


def named(features: tf.train.Features) -> Values:
    return {name: values_of(feature) for name, feature in features.feature.items()}


def message(kind: Any, serialized: bytes) -> Any:
    try:
        return kind.FromString(serialized)
    except DecodeError as error:
        raise ValueError(str(error)) from error


def example(serialized: bytes) -> Values:
    return named(message(tf.train.Example, serialized).features)


def read(kind: str, serialized: bytes, names: list[str]) -> StoredList:
    """One stored list; the features of its items that matter are those of `names`."""
    if kind == "ELWC":
        found = message(input_pb2.ExampleListWithContext, serialized)
        return StoredList(
            named(found.context.features), [named(e.features) for e in found.examples]
        )
    if kind == "EIE":
        parts = example(serialized)
        [context] = parts.get("serialized_context", [b""])
        return StoredList(
            example(context), [example(x) for x in parts.get("serialized_examples", [])]
        )
    if kind == "SEQ":
        found = message(tf.train.SequenceExample, serialized)
        lists = {n: found.feature_lists.feature_list[n].feature for n in names}
        size = max((len(features) for features in lists.values()), default=0)
        items = [{n: values_of(f[i]) for n, f in lists.items() if i < len(f)} for i in range(size)]
        return StoredList(named(found.context), items)
    return StoredList(example(serialized), [example(serialized)])


def value(found: Values, name: str, kind: Kind) -> Any:
    """A feature as the kind wants it; without values it is missing."""
    values = found.get(name, [])
    if any(DTYPES[type(x)] != kind.dtype for x in values):
        raise ValueError(f"{name} is not of dtype {kind.dtype}")
    if kind.shape is None:
        return values
    if not values:
        if kind.default is None:
            raise ValueError(f"{name} is missing")
        values = np.ravel(kind.default).tolist()
    if len(values) != np.prod(kind.shape):
        raise ValueError(f"{name} has {len(values)} values")
    return np.reshape(np.array(values, object), kind.shape).tolist()


def padding(kind: Kind) -> Any:
    if kind.shape is None:
        return []
    empty = np.full(kind.shape, b"" if kind.dtype == "string" else 0, object).tolist()
    return empty if kind.default is None else np.reshape(kind.default, kind.shape).tolist()


def parse(
    lists: list[StoredList],
    items: Mapping[str, Kind],
    context: Mapping[str, Kind],
    list_size: int | None,
) -> dict[str, Any]:
    """All features as nested lists, and `mask` and `size`."""
    if list_size is not None and list_size < 1:
        raise ValueError(f"list_size is {list_size}")
    if not items:
        raise ValueError("items have no features")
    sizes = [len(x.items) for x in lists]
    width = max(sizes) if list_size is None else list_size
    parsed: dict[str, Any] = {"size": sizes}
    parsed["mask"] = [[place < size for place in range(width)] for size in sizes]
    for name, kind in items.items():
        parsed[name] = [
            [value(item, name, kind) for item in x.items[:width]]
            + [padding(kind)] * (width - len(x.items))
            for x in lists
        ]
    for name, kind in context.items():
        parsed[name] = [value(x.context, name, kind) for x in lists]
    return parsed
