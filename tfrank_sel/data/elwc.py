"""Lists as `ExampleListWithContext` (ELWC): written in NumPy, read in the graph.

The wire format is that of `tensorflow.serving.ExampleListWithContext`: a list of serialized
`tf.train.Example`, one for each item, and one more for the query. The reader has its own
descriptor, so neither this package nor a server needs the protos of tensorflow-serving-api.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2

from tfrank_sel.data.spec import FeatureSpec


def serialize(
    features: np.ndarray,
    spec: FeatureSpec,
    *,
    labels: Sequence[float] | np.ndarray | None = None,
    doc_ids: Sequence[bytes] | None = None,
    query_id: bytes = b"",
) -> bytes:
    """Writes one list as a serialized `ExampleListWithContext`.

    Args:
        features: Features of the items, of shape `[list_size, spec.num_features]`; `list_size` may
            be 0.
        spec: Names of the parts and number of features.
        labels: Relevance labels, of shape `[list_size]`, or None to leave them out.
        doc_ids: Identifiers of the items, `list_size` of them, or None to leave them out.
        query_id: Identifier of the query.

    Returns:
        The bytes of the message.

    Raises:
        ValueError: If `features`, `labels` or `doc_ids` do not have the sizes above.

    Example:
        >>> spec = FeatureSpec(num_features=2)
        >>> written = serialize(np.array([[1.0, 2.0], [3.0, 4.0]]), spec, labels=[1.0, 0.0])
        >>> parse(tf.constant([written]), spec)["relevance"].numpy().tolist()
        [[1.0, 0.0]]
    """
    features = spec.checked(features, labels, doc_ids)
    context = tf.train.Example()
    context.features.feature[spec.query_id].bytes_list.value.append(query_id)
    parts = []
    for item in range(len(features)):
        example = tf.train.Example()
        parts_of_item = example.features.feature
        # A Python list: protobuf extends from a NumPy array ten times more slowly.
        parts_of_item[spec.features].float_list.value.extend(features[item].tolist())
        if labels is not None:
            parts_of_item[spec.label].float_list.value.append(float(labels[item]))
        if doc_ids is not None:
            parts_of_item[spec.doc_id].bytes_list.value.append(doc_ids[item])
        parts.append(field(1, example.SerializeToString(deterministic=True)))
    parts.append(field(2, context.SerializeToString(deterministic=True)))
    return b"".join(parts)


def parse(
    serialized: tf.Tensor, spec: FeatureSpec, *, list_size: int | tf.Tensor | None = None
) -> dict[str, tf.Tensor]:
    """Reads a batch of serialized `ExampleListWithContext` into dense tensors.

    Runs eagerly, in a `tf.function` and in `tf.data`, using only operations of stock TensorFlow.

    Args:
        serialized: Serialized lists, strings of shape `[batch_size]`; `batch_size` may be 0.
        spec: Names of the parts and number of features.
        list_size: Number of items to truncate and pad every list to; None for the length of the
            longest list of the batch. A longer list keeps its first items.

    Returns:
        A dict:

        * `spec.features`: float32 of shape `[batch_size, list_size, num_features]`, 0 at padding.
        * `spec.label`: float32 of shape `[batch_size, list_size]`, NaN if missing.
        * `spec.doc_id`: strings of shape `[batch_size, list_size]`, empty if missing.
        * `"mask"`: bool of shape `[batch_size, list_size]`, True for an item, False for padding.

    Raises:
        tf.errors.DataLossError: If an element is not such a message.
        tf.errors.InvalidArgumentError: If an item has no `spec.features`, or not `num_features`
            floats there, or has a label or identifier of the wrong type.

    Example:
        >>> spec = FeatureSpec(num_features=1)
        >>> lists = [np.array([[0.5], [1.5]]), np.array([[2.5]])]
        >>> parsed = parse(tf.constant([serialize(x, spec) for x in lists]), spec)
        >>> parsed["features"][:, :, 0].numpy().tolist()
        [[0.5, 1.5], [2.5, 0.0]]
        >>> parsed["mask"].numpy().tolist()
        [[True, True], [True, False]]
    """
    examples, _, sizes = split(serialized)
    # Only items are parsed, so that a default never replaces a missing feature of an item.
    items = tf.boolean_mask(examples, tf.sequence_mask(sizes, tf.shape(examples)[1]))
    parsed = tf.io.parse_example(items, dict(spec.named().items))
    padding = {spec.features: 0.0, spec.label: float("nan"), spec.doc_id: b""}
    if list_size is None:
        list_size = tf.shape(examples)[1]
    dense = {}
    for name, value in padding.items():
        ragged = tf.RaggedTensor.from_row_lengths(parsed[name], sizes, validate=False)
        shape = parsed[name].shape[1:]
        dense[name] = ragged.to_tensor(value, shape=tf.stack([-1, list_size, *shape]))
        dense[name] = tf.ensure_shape(dense[name], [None, None, *shape])
    return {**dense, "mask": tf.sequence_mask(sizes, list_size)}


def split(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Splits a batch of serialized `ExampleListWithContext`, without reading the examples.

    Args:
        serialized: Serialized lists, strings of shape `[batch_size]`; `batch_size` may be 0.

    Returns:
        The serialized examples, `[batch_size, list_size]`, empty at padding; the serialized context
        of each list, `[batch_size]`; and the number of items of each list, `[batch_size]`.

    Raises:
        tf.errors.DataLossError: If an element is not such a message.

    Example:
        >>> spec = FeatureSpec(num_features=1)
        >>> lists = [np.array([[0.5], [1.5]]), np.array([[2.5]])]
        >>> split(tf.constant([serialize(x, spec) for x in lists]))[2].numpy().tolist()
        [2, 1]
    """
    if serialized.shape[0]:
        return _decode(serialized)
    # The operation does not accept an empty batch.
    return tf.cond(
        tf.size(serialized) > 0,
        lambda: _decode(serialized),
        lambda: (tf.zeros([0, 0], tf.string), serialized, tf.zeros_like(serialized, tf.int32)),
    )


def _decode(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    sizes, [examples, context] = tf.io.decode_proto(
        serialized,
        _MESSAGE_TYPE,
        field_names=["examples", "context"],
        output_types=[tf.string, tf.string],
        descriptor_source=_DESCRIPTOR,
    )
    sizes = sizes[:, 0]  # of the examples
    longest = tf.reduce_max(sizes)  # when all are empty, the operation pads to one item
    return examples[:, :longest], tf.strings.reduce_join(context, axis=1), sizes


def _descriptor() -> bytes:
    """Returns the descriptor of an ELWC whose examples and context stay bytes."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="tfrank_sel_elwc.proto", package="tfrank_sel")
    message = file.message_type.add(name="SerializedExampleListWithContext")
    for number, name, label in (
        (1, "examples", field.LABEL_REPEATED),
        (2, "context", field.LABEL_OPTIONAL),
    ):
        message.field.add(name=name, number=number, label=label, type=field.TYPE_BYTES)
    return b"bytes://" + descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()


_MESSAGE_TYPE = "tfrank_sel.SerializedExampleListWithContext"
_DESCRIPTOR = _descriptor()


"""Wire format of protocol buffers, for nested messages and bytes."""


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
