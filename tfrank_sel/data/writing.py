"""Writers of lists of named features, in the formats that `tfrank_sel.data.parsing` reads.

All four writers take one list as a dict: for each feature of an item one value per item,
`[list_size, *shape]`, and for each feature of the query its value. A value is a number, a string,
bytes, or nested sequences of these; None or an empty sequence means a missing feature.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel.data.spec import ListFeatures
from tfrank_sel.refusals import received, refusal

Features = dict[str, tf.train.Feature]


def serialize_elwc(values: Mapping[str, Any], features: ListFeatures) -> bytes:
    """Writes one list as a `tensorflow.serving.ExampleListWithContext`.

    Args:
        values: The features by name, in the form described in this module. Names may be missing.
        features: The features of the query and of the items.

    Returns:
        The bytes of the message; equal lists give equal bytes.

    Raises:
        ValueError: If a name is not that of a feature, no feature of an item is given, the features
            have different numbers of items, a value has the wrong size, a feature without default
            is missing, or a `RaggedFeature` has partitions or a different key.
        TypeError: If a value has the wrong type for its feature.

    Example:
        >>> from tfrank_sel.data import parsing
        >>> features = ListFeatures({"price": tf.io.FixedLenFeature([], tf.float32, 0.0)})
        >>> written = serialize_elwc({"price": [2.5, None]}, features)
        >>> parsing.parse_elwc(tf.constant([written]), features)["price"].numpy().tolist()
        [[2.5, 0.0]]
    """
    context, items = _examples(values, features)
    parts = [field(1, _serialized(item)) for item in items]
    return b"".join([*parts, field(2, _serialized(context))])


def serialize_example_in_example(values: Mapping[str, Any], features: ListFeatures) -> bytes:
    """Writes one list as a `tf.train.Example` that contains other examples (EIE).

    Args:
        values: As in `serialize_elwc`.
        features: As in `serialize_elwc`.

    Returns:
        As `serialize_elwc` does.

    Raises:
        ValueError: As `serialize_elwc` does.
        TypeError: As `serialize_elwc` does.
    """
    context, items = _examples(values, features)
    inner = {
        "serialized_context": [_serialized(context)],
        "serialized_examples": [_serialized(item) for item in items],
    }
    return _serialized({name: _feature(x, tf.string) for name, x in inner.items()})


def serialize_sequence_example(values: Mapping[str, Any], features: ListFeatures) -> bytes:
    """Writes one list as a `tf.train.SequenceExample`.

    Args:
        values: As in `serialize_elwc`.
        features: As in `serialize_elwc`.

    Returns:
        As `serialize_elwc` does.

    Raises:
        ValueError: As `serialize_elwc` does.
        TypeError: As `serialize_elwc` does.
    """
    context, items = _examples(values, features)
    made = tf.train.SequenceExample(context=tf.train.Features(feature=context))
    for name in features.items:
        column = [item.get(name, tf.train.Feature()) for item in items]
        made.feature_lists.feature_list[name].feature.extend(column)
    return made.SerializeToString(deterministic=True)


def serialize_example(values: Mapping[str, Any], features: ListFeatures) -> bytes:
    """Writes a list of one item as a `tf.train.Example` that holds its features and the query's.

    Args:
        values: As in `serialize_elwc`, of one item.
        features: As in `serialize_elwc`.

    Returns:
        As `serialize_elwc` does.

    Raises:
        ValueError: As `serialize_elwc` does, and if there is not one item.
        TypeError: As `serialize_elwc` does.
    """
    context, items = _examples(values, features)
    if len(items) != 1:
        raise refusal("A `tf.train.Example` must hold one item", len(items))
    return _serialized(context | items[0])


def field(number: int, value: bytes) -> bytes:
    """Writes a field of bytes, a string or a message.

    Args:
        number: Number of the field; at most 15.
        value: Its value, serialized.

    Returns:
        The bytes of the field.

    Example:
        >>> field(1, b"ab")
        b'\\n\\x02ab'
    """
    return head(number, len(value)) + value


def head(number: int, length: int) -> bytes:
    """Writes the header of a field of bytes, a string or a message.

    Args:
        number: Number of the field; at most 15.
        length: Number of bytes of its value.

    Returns:
        The tag and the length.

    Example:
        >>> head(1, 300)
        b'\\n\\xac\\x02'
    """
    varint = bytearray([number << 3 | 2])
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return bytes(varint)


def _examples(values: Mapping[str, Any], features: ListFeatures) -> tuple[Features, list[Features]]:
    """The features of the query and of each item."""
    names = [*features.items, *features.context]
    if unknown := [name for name in values if name not in names]:
        raise refusal(f"`values` must be named as {names}", unknown)
    sizes = {name: len(values[name]) for name in features.items if name in values}
    if len(set(sizes.values())) != 1:
        expected = (
            "The features of the items must have equal numbers of items, and at least one feature"
        )
        raise ValueError(f"{expected}. Received numbers of items: {sizes}")
    size = next(iter(sizes.values()))
    context = {name: _checked(name, values.get(name), f) for name, f in features.context.items()}
    columns = {name: values.get(name, [None] * size) for name in features.items}
    items = [
        {name: _checked(name, columns[name][i], f) for name, f in features.items.items()}
        for i in range(size)
    ]
    return _present(context), [_present(item) for item in items]


def _checked(name: str, value: Any, feature: Any) -> tf.train.Feature:
    is_own = getattr(feature, "value_key", None) in (None, name)
    if getattr(feature, "partitions", ()) or not is_own:
        raise refusal(f"{name!r} must be stored whole, under its name", feature)
    try:
        stored = _feature(value, feature.dtype)
    except TypeError as error:
        reason = received(f"{name!r} must be of {feature.dtype.name}", repr(value))
        raise TypeError(reason) from error
    if isinstance(feature, tf.io.FixedLenFeature):
        size = 0 if value is None else np.size(np.asarray(value, object))
        count = tf.TensorShape(feature.shape).num_elements()
        if size != count and (size or feature.default_value is None):
            raise refusal(f"{name!r} must have {count} values", repr(value))
    return stored


def _feature(value: Any, dtype: tf.DType) -> tf.train.Feature:
    """A feature of the values in nested sequences, in order; without a kind if there are none."""
    array = np.asarray([] if value is None else value, object if dtype == tf.string else None)
    if not array.size:
        return tf.train.Feature()
    if dtype == tf.string:
        octets = [x.encode() if isinstance(x, str) else x for x in array.ravel()]
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=octets))
    numbers = array.astype(dtype.as_numpy_dtype, casting="same_kind").ravel().tolist()
    if dtype == tf.float32:
        return tf.train.Feature(float_list=tf.train.FloatList(value=numbers))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=numbers))


def _present(features: Features) -> Features:
    return {name: feature for name, feature in features.items() if feature.WhichOneof("kind")}


def _serialized(features: Features) -> bytes:
    made = tf.train.Example(features=tf.train.Features(feature=features))
    return made.SerializeToString(deterministic=True)
