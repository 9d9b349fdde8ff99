"""Typed features in examples, by name."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrank_sel import lazy
from tfrank_sel.data.lists import ItemList
from tfrank_sel.data.spec import ListFeatures, input_names
from tfrank_sel.features import (
    DAY,
    MISSING_INTEGER,
    Category,
    Feature,
    FeatureTypes,
    Hash,
    Set,
    Timestamp,
    Vector,
    means_missing,
    spans,
)

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = lazy.Module("tensorflow")

# stored for a missing value, by the name of the type
MISSING = {"float32": float("nan"), "int64": MISSING_INTEGER, "string": ""}
_MASK, _SIZE = "\0mask", "\0size"  # features may be named `mask` and `size`


def dtype(feature: Feature) -> "tf.DType":
    """Returns the type of the values of a feature: float32, int64 or string."""
    if isinstance(feature, Timestamp):
        return tf.int64
    return tf.as_dtype(getattr(feature, "dtype", "float32"))


def list_features(features: FeatureTypes, doc_id: str | None = None) -> ListFeatures:
    """Returns the features of examples.

    Numbers, Booleans and vectors are floats, timestamps integers of seconds, all others strings or
    integers.

    Args:
        features: Type of each feature. A feature that must not be missing has no default.
        doc_id: Name of the item identifier, to read it, too.
    """
    kinds = {name: _kind(feature) for name, feature in features.items()}
    of_query = [name for name, feature in features.items() if feature.of == "query"]
    items = {name: kind for name, kind in kinds.items() if name not in of_query}
    if doc_id is not None:
        items.setdefault(doc_id, tf.io.FixedLenFeature([], tf.string, ""))
    context = {name: kinds[name] for name in of_query}
    return ListFeatures(items, context, mask=_MASK, size=_SIZE)


def structure(features: FeatureTypes) -> "dict[str, tf.TensorSpec]":
    """Returns the shape and type of each feature of a batch, as `pad_sets` gives it: of the query
    `[batch_size, ...]`, of items `[batch_size, list_size, ...]`; and its `input_name`."""
    specs, names = {}, input_names(features)
    for name, feature in features.items():
        shape: list[int | None] = [None, None] if feature.of == "item" else [None]
        if isinstance(feature, Vector | Set):
            shape.append(feature.size if isinstance(feature, Vector) else feature.max_values)
        specs[name] = tf.TensorSpec(shape, dtype(feature), name=names[name])
    return specs


def pad_sets(parsed: Mapping[str, Any], features: FeatureTypes) -> "dict[str, tf.Tensor]":
    """Returns features parsed by `list_features`, with padded sets.

    Args:
        parsed: The features by name, and anything else.
        features: Type of each feature.
    """
    by_name = {}
    for name, feature in features.items():
        value = parsed[name]
        if isinstance(feature, Set):
            shape = [None] * (value.shape.rank - 1) + [feature.max_values]
            value = value.to_tensor(MISSING[value.dtype.name], shape=shape)
        by_name[name] = value
    return by_name


def matrices(values: "Mapping[str, tf.Tensor]", features: FeatureTypes) -> "dict[str, tf.Tensor]":
    """Returns a batch as inputs of `tfrank_sel.models.Preparation`, without the mask.

    Args:
        values: The features as `structure` has them.
        features: Type of each feature, in the order of the columns.

    Returns:
        `features`, numbers `[batch_size, list_size, num_features]`, and `texts` `[batch_size,
        list_size, num_texts]` if there are any.

    Raises:
        tf.errors.InvalidArgumentError: If a number is infinite, a required number is NaN, or a
            value has the wrong shape.
    """
    shapes = structure(features)
    item = next(name for name, feature in features.items() if feature.of == "item")
    numbers, texts, may_be_missing = [], [], list[bool]()
    for name, feature in features.items():
        value = tf.ensure_shape(values[name], shapes[name].shape)
        if feature.of == "query":
            shape = tf.concat([tf.shape(values[item])[:2], tf.shape(value)[1:]], 0)
            value = tf.broadcast_to(value[:, tf.newaxis], shape)
        if isinstance(feature, Category | Hash):
            value = value if isinstance(feature, Set) else value[..., tf.newaxis]
            if value.dtype == tf.int64:
                value = tf.where(means_missing(value), "", tf.strings.as_string(value))
            texts.append(value)
            continue
        value = value if isinstance(feature, Vector) else value[..., tf.newaxis]
        if isinstance(feature, Timestamp):
            parts = tf.concat([value // DAY, value % DAY], axis=-1)
            value = tf.where(means_missing(value), float("nan"), tf.cast(parts, tf.float32))
        numbers.append(_check_finite(name, feature, value))
        may_be_missing += [feature.may_be_missing] * len(feature.numbers(name))
    nothing = tf.zeros(tf.concat([tf.shape(values[item])[:2], [0]], axis=0))
    matrix = tf.concat(numbers or [nothing], axis=-1)
    # once for all: an operation for each of 136 features would take longer than its values
    is_missing = means_missing(matrix) & tf.constant(may_be_missing, tf.bool)
    batch = {"features": tf.where(is_missing, float("nan"), matrix)}
    return {**batch, "texts": tf.concat(texts, axis=-1)} if texts else batch


def split_matrices(
    batch: "Mapping[str, tf.Tensor]", features: FeatureTypes
) -> "dict[str, tf.Tensor]":
    """Returns a batch of `matrices` as named features; the inverse of `matrices`.

    Args:
        batch: `features`, and `texts` if there are any, as `matrices` returns them.
        features: Type of each feature, in the order of the columns.

    Returns:
        The features by name, as in `structure`; a missing value is NaN, the empty string or
        `MISSING_INTEGER`.

    Example:
        >>> from tfrank_sel.features import Number
        >>> batch = {"features": tf.constant([[[20.0, 1.0], [20.0, 2.0]]])}
        >>> values = split_matrices(batch, {"age": Number(of="query"), "price": Number()})
        >>> values["age"].numpy().tolist(), values["price"].numpy().tolist()
        ([20.0], [[1.0, 2.0]])
    """
    by_name = {}
    for name, feature, is_text, span in spans(features):
        value = batch["texts" if is_text else "features"][:, :, span]
        value = _of_texts(value, feature) if is_text else _of_numbers(value, feature)
        if feature.of == "query":  # of the first item, and lists may have none
            value = tf.pad(value, [[0, 0], [0, 1], *[[0, 0]] * (value.shape.rank - 2)])[:, 0]
        by_name[name] = value
    return by_name


def values(item_list: ItemList, features: FeatureTypes) -> dict[str, Any]:
    """Returns the features of a list by name, as `tfrank_sel.data.writing` takes them.

    Args:
        item_list: The list.
        features: Type of each feature, in the order of its numbers and texts.

    Example:
        >>> from tfrank_sel.features import Category, Number
        >>> numbers, texts = np.array([[1.5], [np.nan]], "f"), np.array([["a"], [""]], object)
        >>> one = ItemList("q", np.zeros(2), numbers, ("x", "y"), texts)
        >>> values(one, {"price": Number(), "brand": Category()})
        {'price': [1.5, None], 'brand': ['a', None]}
    """
    by_name: dict[str, Any] = {}
    for name, feature, is_text, span in spans(features):
        if is_text:
            assert item_list.texts is not None
            by_name[name] = [_text(row, feature) for row in item_list.texts[:, span].tolist()]
        else:
            by_name[name] = [_number(row, feature) for row in item_list.features[:, span]]
        if feature.of == "query":
            by_name[name] = by_name[name][0]
    return by_name


def text(item_list: ItemList, features: FeatureTypes) -> str:
    """Returns a list as JSON lines: a line of features by name, and `doc_id`, for each item."""
    named = values(item_list, features)
    columns = {
        name: [x] * len(item_list.doc_ids) if features[name].of == "query" else x
        for name, x in named.items()
    }
    items = zip(*columns.values(), item_list.doc_ids, strict=True)
    rows = (dict(zip([*columns, "doc_id"], item, strict=True)) for item in items)
    return "".join(json.dumps(row) + "\n" for row in rows)


def _of_numbers(value: "tf.Tensor", feature: Feature) -> "tf.Tensor":
    if isinstance(feature, Timestamp):
        is_missing = tf.math.is_nan(value)
        day, second = tf.unstack(tf.cast(tf.where(is_missing, 0.0, value), tf.int64), axis=-1)
        return tf.where(is_missing[..., 0], MISSING_INTEGER, day * DAY + second)
    return value if isinstance(feature, Vector) else value[..., 0]


def _of_texts(value: "tf.Tensor", feature: Feature) -> "tf.Tensor":
    if dtype(feature) == tf.int64:
        integers = tf.strings.to_number(tf.where(value == "", "0", value), tf.int64)
        value = tf.where(value == "", MISSING_INTEGER, integers)
    return value if isinstance(feature, Set) else value[..., 0]


def _kind(feature: Feature) -> Any:
    kind = dtype(feature)
    if isinstance(feature, Set):
        return tf.io.RaggedFeature(kind, row_splits_dtype=tf.int64)
    shape = [feature.size] if isinstance(feature, Vector) else []
    if not feature.may_be_missing:
        return tf.io.FixedLenFeature(shape, kind)
    missing = MISSING[kind.name]
    return tf.io.FixedLenFeature(shape, kind, [missing] * shape[0] if shape else missing)


def _check_finite(name: str, feature: Feature, value: "tf.Tensor") -> "tf.Tensor":
    if not feature.may_be_missing:
        return tf.debugging.check_numerics(value, f"`{name}` must be finite")
    # NaN is a missing value
    present = tf.where(tf.math.is_nan(value), tf.zeros_like(value), value)
    checked = tf.debugging.check_numerics(present, f"`{name}` must not be infinite")
    with tf.control_dependencies([checked]):
        return tf.identity(value)


def _number(row: np.ndarray, feature: Feature) -> Any:
    if np.isnan(row).all():
        return None
    if isinstance(feature, Timestamp):
        day, second = row.tolist()
        return int(day) * DAY + int(second)
    return row.tolist() if isinstance(feature, Vector) else float(row[0])


def _text(row: list[str], feature: Feature) -> Any:
    present: list[Any] = [text for text in row if text]
    if getattr(feature, "dtype", None) == "int64":
        present = [int(text) for text in present]
    if isinstance(feature, Set):
        return present
    return present[0] if present else None
