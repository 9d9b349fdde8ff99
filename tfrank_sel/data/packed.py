"""Packed layout of training records: one `tf.train.Example` per list.

| feature | kind | content |
|---|---|---|
| `spec.features` | one bytes value | little-endian float32, `num_features` an item, item by item |
| `spec.label` | one bytes value, or absent | little-endian float32, one an item |
| `spec.doc_id` | bytes, one value an item, or absent | identifiers of the items |
| `spec.query_id` | one bytes value | identifier of the query |
| `spec.texts` | bytes, `num_texts` values an item | texts of the items, item by item; absent if 0 |
| `spec.weight` | one bytes value, or absent | little-endian float32, one an item; 1 if absent |

Reading numbers one by one would take about ten times as long.
"""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tfrank_sel.data.examples import items as items, serialize as serialize
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.errors import received
from tfrank_sel.numerics import entry_point

# A float32 takes 4 bytes.
_FLOAT = 4
# parts of a list, which may be absent
_FLOATS = tf.io.FixedLenFeature([], tf.string, "")
_RAGGED = tf.io.RaggedFeature(tf.string, row_splits_dtype=tf.int32)


@entry_point
def parse(
    serialized: tf.Tensor, spec: FeatureSpec, *, list_size: int | tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Reads a batch of lists in the packed layout into dense tensors.

    Args:
        serialized: As in `tfrank_sel.data.elwc.parse`, as all others.
        spec: Names of the parts and number of features.
        list_size: Number of items to truncate and pad every list to.

    Returns:
        The result of `tfrank_sel.data.elwc.parse`, by operations of the same kind.

    Raises:
        tf.errors.InvalidArgumentError: If an element is not such a message, has no `spec.features`,
            or the features, labels and identifiers do not have the same whole number of items.

    Example:
        >>> spec = FeatureSpec(num_features=1)
        >>> lists = [np.array([[0.5], [1.5]]), np.array([[2.5]])]
        >>> parsed = parse(tf.constant([serialize(x, spec) for x in lists]), spec)
        >>> parsed["features"][:, :, 0].numpy().tolist()
        [[0.5, 1.5], [2.5, 0.0]]
        >>> parsed["mask"].numpy().tolist()
        [[True, True], [True, False]]
    """
    kinds = {**_kinds(spec), spec.doc_id: _RAGGED}
    if spec.weight is not None:
        kinds[spec.weight] = _FLOATS
    parsed = tf.io.parse_example(serialized, kinds)
    octets, sizes = parsed[spec.features], _sizes(parsed, spec)
    if list_size is None:
        list_size = _longest(sizes)
    features = _floats(octets, spec.num_features, list_size)
    mask = tf.sequence_mask(sizes, list_size)
    octets, doc_ids = parsed[spec.label], parsed[spec.doc_id]
    label_bytes = _check_counts(spec.label, tf.strings.length(octets), _FLOAT * sizes, "bytes")
    ids = _check_counts(spec.doc_id, doc_ids.row_lengths(), sizes, "values")
    list_size = tf.shape(mask)[1]
    labels = _floats(octets, 1, list_size)[:, :, 0]
    is_label = tf.sequence_mask(label_bytes // _FLOAT, list_size)
    doc_ids = tf.RaggedTensor.from_row_lengths(doc_ids.values, ids, validate=False)
    batch = {
        spec.features: features,
        spec.label: tf.where(is_label, labels, float("nan")),
        spec.doc_id: doc_ids.to_tensor(b"", shape=tf.stack([-1, list_size])),
        "mask": mask,
    }
    if spec.num_texts:
        batch[spec.texts] = _texts(parsed[spec.texts], spec, sizes, list_size)
    if spec.weight is not None:
        octets = parsed[spec.weight]
        num_bytes = _check_counts(spec.weight, tf.strings.length(octets), _FLOAT * sizes, "bytes")
        weights = tf.where(
            num_bytes[:, tf.newaxis] > 0, _floats(octets, 1, list_size)[:, :, 0], 1.0
        )
        batch[spec.weight] = tf.where(mask, weights, 0.0)
    return batch


def decode(
    octets: tf.Tensor, spec: FeatureSpec, *, list_size: int | tf.Tensor | None = None
) -> tuple[tf.Tensor, tf.Tensor]:
    """Decodes the features of a batch of lists from their bytes.

    Args:
        octets: The little-endian float32 of each list, item by item, strings `[batch_size]`.
        spec: Number of features, and their name for messages.
        list_size: As in `parse`.

    Returns:
        The features, float32 `[batch_size, list_size, num_features]`, 0 at padding; and the mask,
        bool `[batch_size, list_size]`, True for an item.

    Raises:
        tf.errors.InvalidArgumentError: If a list does not have the bytes of whole items.

    Example:
        >>> octets = tf.constant([np.array([1.5, 2.5, 3.5, 4.5], "<f4").tobytes()])
        >>> decode(octets, FeatureSpec(num_features=2))[0].numpy().tolist()
        [[[1.5, 2.5], [3.5, 4.5]]]
    """
    sizes = _sizes({spec.features: octets}, spec)
    if list_size is None:
        list_size = _longest(sizes)
    return _floats(octets, spec.num_features, list_size), tf.sequence_mask(sizes, list_size)


@entry_point
def list_sizes(serialized: tf.Tensor, spec: FeatureSpec) -> tf.Tensor:
    """Returns the number of items of each list, reading as little as possible.

    Args:
        serialized: As in `parse`.
        spec: As in `parse`.

    Returns:
        The numbers of items, int32 `[batch_size]`.

    Raises:
        tf.errors.InvalidArgumentError: If an element is no such message, or has neither labels nor
            the features of whole items.

    Example:
        >>> spec = FeatureSpec(num_features=2)
        >>> list_sizes(tf.constant([serialize(np.ones([3, 2]), spec)]), spec).numpy().tolist()
        [3]
    """
    # A label has 4 bytes, and the features of an item have 4 each: they are read if need be.
    labels = tf.io.parse_example(serialized, {spec.label: _FLOATS})[spec.label]
    sizes = tf.strings.length(labels) // _FLOAT

    def of_features() -> tf.Tensor:
        kinds = {spec.features: tf.io.FixedLenFeature([], tf.string)}
        if not spec.num_features:
            kinds = {spec.texts: _RAGGED}
        return _sizes(tf.io.parse_example(serialized, kinds), spec)

    return tf.cond(tf.reduce_all(sizes > 0), lambda: sizes, of_features)


def _kinds(spec: FeatureSpec) -> dict[str, Any]:
    """The features and labels of lists, and their texts if there are any."""
    kinds = {spec.features: tf.io.FixedLenFeature([], tf.string), spec.label: _FLOATS}
    return {**kinds, spec.texts: _RAGGED} if spec.num_texts else kinds


def _sizes(parsed: Mapping[str, Any], spec: FeatureSpec) -> tf.Tensor:
    """The number of items in the bytes of each list, or in its texts if there are no others."""
    if not spec.num_features:
        return parsed[spec.texts].row_lengths() // spec.num_texts
    lengths, width = tf.strings.length(parsed[spec.features]), _FLOAT * spec.num_features
    whole = tf.debugging.Assert(
        tf.reduce_all(lengths % width == 0),
        [received(f"`{spec.features}` must be {width} bytes for each item", "bytes"), lengths],
    )
    with tf.control_dependencies([whole]):
        return lengths // width


def _longest(sizes: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(tf.concat([sizes, [0]], 0))


def _floats(octets: tf.Tensor, num_features: int, list_size: tf.Tensor) -> tf.Tensor:
    if not num_features:
        return tf.zeros([tf.size(octets), list_size, 0])
    width = _FLOAT * num_features
    # The operation does not accept a length of 0.
    values = tf.io.decode_raw(octets, tf.float32, fixed_length=width * tf.maximum(list_size, 1))
    return tf.reshape(values, [tf.size(octets), -1, num_features])[:, :list_size]


def _texts(
    texts: tf.RaggedTensor, spec: FeatureSpec, sizes: tf.Tensor, list_size: tf.Tensor
) -> tf.Tensor:
    width = spec.num_texts
    with tf.control_dependencies([_check_texts(texts.row_lengths(), spec, sizes)]):
        flat = texts.to_tensor(b"", shape=tf.stack([-1, width * list_size]))
    return tf.reshape(flat, tf.stack([tf.size(sizes), list_size, width]))


def _check_texts(counts: tf.Tensor, spec: FeatureSpec, sizes: tf.Tensor) -> tf.Operation:
    expected = spec.num_texts * sizes
    message = f"`{spec.texts}` must have {spec.num_texts} values an item."
    return tf.debugging.Assert(
        tf.reduce_all(counts == expected), [message, "Items:", sizes, "Received:", counts]
    )


def _check_counts(name: str, counts: tf.Tensor, expected: tf.Tensor, unit: str) -> tf.Tensor:
    """The counts, if each list has the expected number or none."""
    message = f"`{name}` must have as many {unit} as the items of the list, {unit} or none."
    holds = tf.reduce_all((counts == expected) | (counts == 0))
    is_right = tf.debugging.Assert(holds, [message, "Expected:", expected, "Received:", counts])
    with tf.control_dependencies([is_right]):
        return tf.identity(counts)
