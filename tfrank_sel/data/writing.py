"""Writers of lists of named features, in the formats that `tfrank_sel.data.parsing` reads.

Both writers take one list as a dict: for each feature of an item one value per item,
`[list_size, *shape]`, and for each feature of the query its value. A value is a number, a string,
bytes, or nested sequences of these; None or an empty sequence means a missing feature.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfrank_sel import lazy
from tfrank_sel.data.spec import ListFeatures, narrow
from tfrank_sel.errors import received, refusal

if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = lazy.Module("tensorflow")

_KINDS = {"float32": "f", "int64": "iu", "string": "O"}  # of arrays that are written as they are
Features = Mapping[str, Any]  # a value, or those in nested sequences, by name


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
            is missing, a number is beyond its type, or a `RaggedFeature` has partitions or a
            different key.
        TypeError: If a value has the wrong type for its feature.

    Example:
        >>> from tfrank_sel.data import parsing
        >>> features = ListFeatures({"price": tf.io.FixedLenFeature([], tf.float32, 0.0)})
        >>> written = serialize_elwc({"price": [2.5, None]}, features)
        >>> parsing.parse_elwc(tf.constant([written]), features)["price"].numpy().tolist()
        [[2.5, 0.0]]
    """
    context, items = _examples(values, features)
    return elwc(items, context)


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
    columns = [
        _entry(name, b"".join(field(1, _feature(name, item[name])) for item in items))
        for name in sorted(features.items)
    ]
    return field(1, _features(context)) + field(2, b"".join(columns))


def elwc(items: Sequence[Features], context: Features) -> bytes:
    """Writes a `tensorflow.serving.ExampleListWithContext` of values that are checked.

    Args:
        items: The features of each item, as in `example`.
        context: The features of the query.

    Returns:
        The bytes of the message; equal lists give equal bytes.
    """
    return b"".join([*(field(1, example(x)) for x in items), field(2, example(context))])


def example(features: Features) -> bytes:
    """Writes a `tf.train.Example` of values that are checked.

    Args:
        features: By name, a value or a sequence of one type: float, int, text or bytes. None and
            an empty sequence mean a missing feature.

    Returns:
        The bytes of the message; equal features give equal bytes.

    Example:
        >>> example({"price": 1.5, "brand": None})
        b'\\n\\x13\\n\\x11\\n\\x05price\\x12\\x08\\x12\\x06\\n\\x04\\x00\\x00\\xc0?'
    """
    return field(1, _features(features))


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
    return bytes([number << 3 | 2]) + _varint(length)


def _examples(
    values: Mapping[str, Any], features: ListFeatures
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
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
    context = {
        name: _flat_values(name, values.get(name), f) for name, f in features.context.items()
    }
    columns = {name: values.get(name, [None] * size) for name in features.items}
    items = [
        {name: _flat_values(name, columns[name][i], f) for name, f in features.items.items()}
        for i in range(size)
    ]
    return context, items


def _flat_values(name: str, value: Any, feature: Any) -> list[Any]:
    """The values in nested sequences, in order, of the type of the feature."""
    is_own = getattr(feature, "value_key", None) in (None, name)
    if getattr(feature, "partitions", ()) or not is_own:
        raise refusal(f"{name!r} must be stored whole, under its name", feature)
    is_text = feature.dtype == tf.string
    array = np.asarray([] if value is None else value, object if is_text else None)
    try:
        if array.size and array.dtype.kind not in _KINDS[feature.dtype.name]:
            array = array.astype(feature.dtype.as_numpy_dtype, casting="same_kind")
        stored = array.ravel().tolist()
        if is_text and not all(isinstance(x, str | bytes) for x in stored):
            raise TypeError
    except TypeError as error:
        reason = received(f"{name!r} must be of {feature.dtype.name}", repr(value))
        raise TypeError(reason) from error
    if isinstance(feature, tf.io.FixedLenFeature):
        count = tf.TensorShape(feature.shape).num_elements()
        if len(stored) != count and (stored or feature.default_value is None):
            raise refusal(f"{name!r} must have {count} values", repr(value))
    return stored


def _features(features: Features) -> bytes:
    """The message `tf.train.Features`: its map of the features that are not missing."""
    stored = {name: _feature(name, features[name]) for name in sorted(features)}
    return b"".join(_entry(name, value) for name, value in stored.items() if value)


def _entry(name: str, value: bytes) -> bytes:
    return field(1, field(1, name.encode()) + field(2, value))


def _feature(name: str, value: Any) -> bytes:
    """The message `tf.train.Feature`; empty if there is no value."""
    is_one = value is None or isinstance(value, str | bytes | float | int)
    values = ([] if value is None else [value]) if is_one else value
    if not len(values):
        return b""
    if isinstance(values[0], float):
        try:
            octets = struct.pack(f"<{len(values)}f", *values)
        except (OverflowError, struct.error):
            octets = narrow(name, values).tobytes()
        return field(2, field(1, octets))
    if isinstance(values[0], int):
        if not -(2**63) <= min(values) <= max(values) < 2**63:
            raise refusal(f"{name!r} must be within int64", list(values))
        return field(3, field(1, b"".join(map(_varint, values))))
    texts = (x.encode() if isinstance(x, str) else x for x in values)
    return field(1, b"".join(field(1, x) for x in texts))


def _varint(value: int) -> bytes:
    octets, rest = bytearray(), value % 2**64
    while rest > 0x7F:
        octets.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*octets, rest])
