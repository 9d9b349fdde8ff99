"""Parsers of lists with named features, from four formats into dense tensors.

All four parsers return the same dict: for each `FixedLenFeature` of an item a tensor
`[batch_size, list_size, *shape]`, for each `VarLenFeature` a `tf.SparseTensor` and for each
`RaggedFeature` a `tf.RaggedTensor` with the same first two axes, the features of the query
`[batch_size, ...]`, the mask (bool `[batch_size, list_size]`, True for an item), and the number of
items (int32 `[batch_size]`, before truncation).

Only items are parsed; padding is filled in afterwards. So a default replaces only missing values of
items, and an item without a required feature is an error, regardless of padding.
"""

import collections
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import tensorflow as tf
from google.protobuf import descriptor_pb2

from tfrank_sel.data import writing
from tfrank_sel.data.spec import ListFeatures
from tfrank_sel.errors import refusal

IntLike: TypeAlias = int | tf.Tensor | None

_SAMPLE = 32  # items that are compared first
# A float32 takes 4 bytes.
_FLOAT = 4


def parse_elwc(
    serialized: tf.Tensor,
    features: ListFeatures,
    *,
    list_size: IntLike = None,
    shuffle: bool = False,
    seed: IntLike = None,
) -> dict[str, Any]:
    """Reads a batch of serialized `tensorflow.serving.ExampleListWithContext`.

    Runs eagerly, in a `tf.function` and in `tf.data`, using only operations of stock TensorFlow.

    Args:
        serialized: Serialized lists, strings of shape `[batch_size]`; `batch_size` may be 0.
        features: The features of the query and of the items.
        list_size: Number of items to truncate and pad every list to; None for the length of the
            longest list of the batch. A longer list keeps its first items (after shuffling).
        shuffle: Whether to shuffle the items of each list, before truncation.
        seed: Seed of the shuffling, an integer or a scalar tensor: the same seed shuffles the same
            batch in the same way. None for another order each time. For a reproducible order that
            differs between epochs, zip the lists with `tf.data.Dataset.random(seed)`.

    Returns:
        The features by name, the mask and the sizes, as described in this module.

    Raises:
        ValueError: If `list_size` is not positive.
        tf.errors.DataLossError: If an element is not such a message.
        tf.errors.InvalidArgumentError: If a required feature of an item or a query is missing, or a
            feature has the wrong type or length.

    Example:
        >>> from tfrank_sel.data import ListFeatures, parsing, writing
        >>> price = tf.train.Feature(float_list=tf.train.FloatList(value=[2.5]))
        >>> item = tf.train.Example(features=tf.train.Features(feature={"price": price}))
        >>> lists = tf.constant([2 * writing.field(1, item.SerializeToString()), b""])
        >>> features = ListFeatures({"price": tf.io.FixedLenFeature([], tf.float32)})
        >>> parsed = parsing.parse_elwc(lists, features, list_size=3)
        >>> parsed["price"].numpy().tolist()
        [[2.5, 2.5, 0.0], [0.0, 0.0, 0.0]]
        >>> parsed["size"].numpy().tolist()
        [2, 0]
    """
    _check(list_size)
    examples, context, sizes = split(serialized)
    return _parse(examples, context, sizes, features, list_size, shuffle, seed)


def parse_example_in_example(
    serialized: tf.Tensor,
    features: ListFeatures,
    *,
    list_size: IntLike = None,
    shuffle: bool = False,
    seed: IntLike = None,
) -> dict[str, Any]:
    """Reads a batch of serialized `tf.train.Example` that contain other examples (EIE).

    The feature `serialized_context` is the example of the query, and the feature
    `serialized_examples` is the list of those of the items. Without the context, the query has no
    features.

    Args:
        serialized: As in `parse_elwc`.
        features: As in `parse_elwc`.
        list_size: As in `parse_elwc`.
        shuffle: As in `parse_elwc`.
        seed: As in `parse_elwc`.

    Returns:
        As `parse_elwc` does.

    Raises:
        ValueError: If `list_size` is not positive.
        tf.errors.InvalidArgumentError: If an element is not such a message, or as in `parse_elwc`.
    """
    _check(list_size)
    parsed = tf.io.parse_example(
        serialized,
        {
            "serialized_context": tf.io.FixedLenFeature([], tf.string, ""),
            "serialized_examples": tf.io.RaggedFeature(tf.string),
        },
    )
    examples = parsed["serialized_examples"]
    return _parse(
        examples.to_tensor(),
        parsed["serialized_context"],
        examples.row_lengths(),
        features,
        list_size,
        shuffle,
        seed,
    )


def parse_example(
    serialized: tf.Tensor, features: ListFeatures, *, list_size: IntLike = None
) -> dict[str, Any]:
    """Reads a batch of serialized `tf.train.Example`, each a list of one item with its query.

    Args:
        serialized: As in `parse_elwc`.
        features: As in `parse_elwc`.
        list_size: Number of items to pad every list to; None for 1.

    Returns:
        As `parse_elwc` does.

    Raises:
        ValueError: If `list_size` is not positive.
        tf.errors.InvalidArgumentError: If an element is not such a message, or as in `parse_elwc`.

    Example:
        >>> from tfrank_sel.data import ListFeatures, parsing
        >>> clicks = tf.io.FixedLenFeature([], tf.int64, default_value=7)
        >>> parsing.parse_example(tf.constant([b""]), ListFeatures({"clicks": clicks}))
        {'clicks': <tf.Tensor: shape=(1, 1), dtype=int64, numpy=array([[7]])>,
         'mask': <tf.Tensor: shape=(1, 1), dtype=bool, numpy=array([[ True]])>,
         'size': <tf.Tensor: shape=(1,), dtype=int32, numpy=array([1], dtype=int32)>}
    """
    _check(list_size)
    sizes = tf.ones_like(serialized, tf.int32)
    return _parse(serialized[:, None], serialized, sizes, features, list_size, False, None)


def parse_sequence_example(
    serialized: tf.Tensor,
    features: ListFeatures,
    *,
    list_size: IntLike = None,
    shuffle: bool = False,
    seed: IntLike = None,
) -> dict[str, Any]:
    """Reads a batch of serialized `tf.train.SequenceExample`.

    The context has the features of the query; each feature list has one feature of all items. The
    number of items is the length of the longest feature list named in `features`. A feature of an
    item is missing if its feature list is shorter or has no values at the item.

    Args:
        serialized: As in `parse_elwc`.
        features: As in `parse_elwc`.
        list_size: As in `parse_elwc`.
        shuffle: As in `parse_elwc`.
        seed: As in `parse_elwc`.

    Returns:
        As `parse_elwc` does.

    Raises:
        ValueError: If `list_size` is not positive.
        tf.errors.InvalidArgumentError: If an element is not such a message, or as in `parse_elwc`.
    """
    _check(list_size)
    context, lists, _ = tf.io.parse_sequence_example(
        serialized,
        context_features=dict(features.context) or None,
        sequence_features={
            name: f if isinstance(f, tf.io.RaggedFeature) else tf.io.RaggedFeature(f.dtype)
            for name, f in features.items.items()
        },
    )
    lengths = [tf.cast(values.row_lengths(), tf.int32) for values in lists.values()]
    sizes = tf.reduce_max(tf.stack(lengths), axis=0)
    kept = sizes if list_size is None else tf.minimum(sizes, list_size)
    order = _order(sizes, kept, shuffle, seed)
    items = {}
    for name, values in lists.items():
        by_item = tf.gather(_by_item(values, sizes), order)
        feature = features.items[name]
        if isinstance(feature, tf.io.FixedLenFeature):
            items[name] = _fixed_size(name, by_item, feature)
        else:
            is_sparse = isinstance(feature, tf.io.VarLenFeature)
            items[name] = by_item.to_sparse() if is_sparse else by_item
    return _lists(items, context, sizes, kept, features, list_size)


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
        >>> from tfrank_sel.data import FeatureSpec, elwc
        >>> spec = FeatureSpec(num_features=1)
        >>> lists = [[[0.5], [1.5]], [[2.5]]]
        >>> split(tf.constant([elwc.serialize(x, spec) for x in lists]))[2].numpy().tolist()
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


def _check(list_size: IntLike) -> None:
    if isinstance(list_size, int) and list_size < 1:
        raise refusal("`list_size` must be positive or None", list_size=list_size)


def _parse(
    examples: tf.Tensor,
    context: tf.Tensor,
    sizes: tf.Tensor,
    features: ListFeatures,
    list_size: IntLike,
    shuffle: bool,
    seed: IntLike,
) -> dict[str, Any]:
    """Parses lists of serialized examples, `[batch_size, longest]`, with their context."""
    sizes = tf.cast(sizes, tf.int32)
    kept = sizes if list_size is None else tf.minimum(sizes, list_size)
    if shuffle:
        is_item = tf.sequence_mask(sizes, tf.shape(examples)[1])
        serialized = tf.gather(tf.boolean_mask(examples, is_item), _order(sizes, kept, True, seed))
    else:
        serialized = tf.boolean_mask(examples, tf.sequence_mask(kept, tf.shape(examples)[1]))
    items = parse_items(serialized, features.items)
    parsed = tf.io.parse_example(context, dict(features.context)) if features.context else {}
    return _lists(items, parsed, sizes, kept, features, list_size)


def _order(sizes: tf.Tensor, kept: tf.Tensor, shuffle: bool, seed: IntLike) -> tf.Tensor:
    """The items to keep, in order, as positions among the items of all lists."""
    longest = tf.maximum(tf.reduce_max(sizes), 0)
    positions = tf.tile(tf.range(longest)[None], [tf.size(sizes), 1])
    if shuffle:
        if seed is None:
            keys = tf.random.uniform(tf.shape(positions))
        else:
            seed = tf.stack([tf.cast(seed, tf.int64), 0])
            keys = tf.random.stateless_uniform(tf.shape(positions), seed)
        # Keys are below 1, so that padding comes last.
        positions = tf.argsort(tf.where(tf.sequence_mask(sizes, longest), keys, 1.0), axis=1)
    positions += tf.cumsum(sizes, exclusive=True)[:, None]
    return tf.boolean_mask(positions, tf.sequence_mask(kept, longest))


def _by_item(values: tf.RaggedTensor, sizes: tf.Tensor) -> tf.RaggedTensor:
    """Values `[batch_size, (length), ...]` as `[items of all lists, ...]`, empty if missing."""
    rows = values.values  # for each item that has a place in the list of this feature
    longest = tf.maximum(tf.reduce_max(sizes), 0)  # the maximum of no lists is below 0
    lengths = values.with_values(rows.row_lengths()).to_tensor(shape=tf.stack([-1, longest]))
    is_item = tf.sequence_mask(sizes, longest)
    return tf.RaggedTensor.from_row_lengths(
        rows.values, tf.boolean_mask(lengths, is_item), validate=False
    )


def _fixed_size(name: str, values: tf.RaggedTensor, feature: Any) -> tf.Tensor:
    """Values `[items, (length)]` as `[items, *shape]`, with the default if missing."""
    shape, lengths = tf.TensorShape(feature.shape).as_list(), values.row_lengths()
    count = math.prod(shape)
    is_right = lengths == count
    default = tf.zeros([count], feature.dtype)
    if feature.default_value is not None:
        is_right |= lengths == 0
        default = tf.reshape(tf.convert_to_tensor(feature.default_value, feature.dtype), [-1])
    message = f"{name!r} must have {count} values in each item. Received numbers of values:"
    tf.debugging.Assert(tf.reduce_all(is_right), [message, lengths])
    rows = tf.RaggedTensor.from_row_lengths(  # of no or one value `[count]`
        tf.reshape(values.values, [-1, count]), lengths // count, validate=False
    )
    return tf.reshape(rows.to_tensor(default, shape=[None, 1, count]), [-1, *shape])


def _lists(
    items: dict[str, Any],
    context: dict[str, Any],
    sizes: tf.Tensor,
    kept: tf.Tensor,
    features: ListFeatures,
    list_size: IntLike,
) -> dict[str, Any]:
    """Puts features `[items of all lists, ...]` into lists, and fills in the padding."""
    longest = tf.maximum(tf.reduce_max(kept), 0)
    mask = tf.sequence_mask(kept, longest if list_size is None else list_size)
    # Source of each item; padding is the row after all items.
    source = tf.cumsum(kept, exclusive=True)[:, None] + tf.range(tf.shape(mask)[1])
    source = tf.where(mask, source, tf.reduce_sum(kept))
    lists, alike = {}, collections.defaultdict(list)
    for name, values in items.items():
        if isinstance(values, tf.SparseTensor):
            lists[name] = _sparse_lists(values, mask)
        elif isinstance(values, tf.RaggedTensor):
            lists[name] = _ragged_lists(values, source)
        else:
            alike[values.dtype, *values.shape[1:]].append(name)
    for (_, *shape), names in alike.items():
        # All at once, because a hundred scalar features would be hundreds of small operations.
        stacked = tf.stack([items[name] for name in names], axis=1)
        padding = [tf.broadcast_to(features.padding_value(name), shape) for name in names]
        gathered = tf.gather(tf.concat([stacked, [tf.stack(padding)]], axis=0), source)
        lists |= zip(names, tf.unstack(gathered, axis=2), strict=True)
    return {**lists, **context, features.mask: mask, features.size: sizes}


def _ragged_lists(values: tf.RaggedTensor, source: tf.Tensor) -> tf.RaggedTensor:
    """Values `[items of all lists, (length)]` as `[batch_size, list_size, (length)]`."""
    lengths = tf.gather(tf.concat([values.row_lengths(), [0]], axis=0), tf.reshape(source, [-1]))
    rows = tf.RaggedTensor.from_row_lengths(values.values, lengths, validate=False)
    batch_size, list_size = tf.unstack(tf.shape(source, values.row_splits.dtype))
    return tf.RaggedTensor.from_uniform_row_length(
        rows, list_size, nrows=batch_size, validate=False
    )


def _sparse_lists(values: tf.SparseTensor, mask: tf.Tensor) -> tf.SparseTensor:
    """Values `[items of all lists, length]` as `[batch_size, list_size, length]`."""
    places = tf.gather(tf.where(mask), values.indices[:, 0])
    return tf.SparseTensor(
        tf.concat([places, values.indices[:, 1:]], axis=1),
        values.values,
        tf.concat([tf.shape(mask, tf.int64), values.dense_shape[1:]], axis=0),
    )


def parse_items(serialized: tf.Tensor, features: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the result of `tf.io.parse_example`, faster for many items of scalar features.

    An item with one feature per number repeats all names, and a parser reads all names again. If
    all items have the same bytes except for the numbers, it is enough to find the places of the
    numbers once and to check that all other bytes are equal. So it is faster if each feature is a
    `tf.io.FixedLenFeature` of one float32, and all items have exactly these features in the same
    order.

    Args:
        serialized: Serialized `tf.train.Example`, strings of shape `[items]`.
        features: Features by name, as in `tf.io.parse_example`.

    Returns:
        The features by name: tensors `[items, *shape]`, and sparse or ragged ones.

    Raises:
        tf.errors.InvalidArgumentError: As `tf.io.parse_example` does.

    Example:
        >>> price = tf.train.Feature(float_list=tf.train.FloatList(value=[2.5]))
        >>> item = tf.train.Example(features=tf.train.Features(feature={"price": price}))
        >>> items = tf.constant([item.SerializeToString()] * 2)
        >>> parse_items(items, {"price": tf.io.FixedLenFeature([], tf.float32)})
        {'price': <tf.Tensor: shape=(2,), dtype=float32, numpy=array([2.5, 2.5], dtype=float32)>}
    """
    if not all(_is_scalar(feature) for feature in features.values()):
        return tf.io.parse_example(serialized, dict(features))

    def by_name() -> tf.Tensor:
        parsed = tf.io.parse_example(serialized, dict(features))
        return tf.stack([tf.reshape(parsed[name], [-1]) for name in features], axis=1)

    are_alike, values = by_place(serialized, list(features))
    columns = tf.unstack(tf.cond(are_alike, lambda: values, by_name), axis=1)
    return {
        name: tf.reshape(column, [-1, *tf.TensorShape(feature.shape)])
        for (name, feature), column in zip(features.items(), columns, strict=True)
    }


def by_place(serialized: tf.Tensor, names: list[str]) -> tuple[tf.Tensor, tf.Tensor]:
    """Reads items by place if there are many with the same layout.

    Args:
        serialized: Serialized `tf.train.Example`, strings of shape `[items]`.
        names: Names of features of one float each.

    Returns:
        Whether they were read, and if so, their floats, `[items, names]`.
    """
    # The bytes of an entry before its only float32 depend on the name alone. So an item of exactly
    # these features is the header and, in some order, these bytes with 4 bytes of a float each.
    before = [_before_float(name) for name in names]
    size = sum(map(len, before)) + _FLOAT * len(names)
    header = writing.field(1, bytes(size))[:-size]
    lengths = tf.strings.length(serialized)
    # Finding the places takes as long as parsing about a hundred items.
    is_worth_it = tf.size(serialized) >= 4 * _SAMPLE
    is_worth_it &= tf.reduce_all(lengths == len(header) + size)
    nothing = tf.zeros([0, len(names)])

    def read() -> tuple[tf.Tensor, tf.Tensor]:
        # The order is that of a writer's hash map, not of the names: it is found in the first item,
        # and an item of another writer, or with a repeated or missing entry, differs outside of the
        # floats, which sends the batch to the parser.
        starts, are_known = _starts(tf.strings.reduce_join(serialized[:1]), header, before)
        # Words of eight bytes compare faster than bytes; the last is padded with zeros.
        padded = -(-(len(header) + size) // 8) * 8
        words = tf.io.decode_raw(serialized, tf.int64, fixed_length=padded)
        columns = starts[:, None] + tf.range(_FLOAT)
        is_float = tf.scatter_nd(
            tf.reshape(columns, [-1, 1]), tf.fill([_FLOAT * len(names)], True), [padded]
        )
        others = tf.where(is_float, tf.constant(0, tf.uint8), tf.constant(255, tf.uint8))
        others = tf.bitcast(tf.reshape(others, [-1, 8]), tf.int64)

        # x == y outside of the floats if (x XOR y) AND mask == 0: one pass without slices, and NaN
        # floats compare as bytes.
        def are_alike(items: tf.Tensor) -> tf.Tensor:
            differing = tf.bitwise.bitwise_xor(items, words[:1])
            return tf.reduce_all(tf.bitwise.bitwise_and(differing, others) == 0)

        def floats() -> tuple[tf.Tensor, tf.Tensor]:
            items = tf.reshape(tf.bitcast(words, tf.uint8), [-1, padded])
            return are_alike(words), tf.bitcast(tf.gather(items, columns, axis=1), tf.float32)

        # Mixed writers show in the first items: the rest is not compared in vain.
        return tf.cond(are_known & are_alike(words[:_SAMPLE]), floats, lambda: (False, nothing))

    return tf.cond(is_worth_it, read, lambda: (False, nothing))


def _is_scalar(feature: Any) -> bool:
    is_fixed = isinstance(feature, tf.io.FixedLenFeature) and feature.dtype == tf.float32
    return is_fixed and tf.TensorShape(feature.shape).num_elements() == 1


def _before_float(name: str) -> bytes:
    """The bytes of an item between the float of a feature and that of the previous one."""
    feature = tf.train.Feature(float_list=tf.train.FloatList(value=[0.0]))
    return tf.train.Features(feature={name: feature}).SerializeToString()[:-_FLOAT]


def _starts(item: tf.Tensor, header: bytes, before: list[bytes]) -> tuple[tf.Tensor, tf.Tensor]:
    """The start of the float of each feature, and whether the item has the expected layout.

    The item has the layout if it is the header followed by the bytes before each float and the
    float, in any order: an item of its length cannot contain anything else.
    """
    end = before[0][-6:]  # the same for all: lengths of the value, the list and the packed floats
    last = tf.strings.length(item) - len(end) - _FLOAT + 1
    bytes_of_item = tf.io.decode_raw(item, tf.uint8)
    is_end = tf.fill([last], True)
    for offset, byte in enumerate(end):
        is_end &= bytes_of_item[offset : offset + last] == byte
    starts = tf.cast(tf.where(is_end)[:, 0], tf.int32) + len(end)
    begins = tf.concat([[len(header)], starts + _FLOAT], axis=0)[:-1]
    between = tf.strings.substr(tf.fill(tf.shape(starts), item), begins, starts - begins)
    # The shape is `[starts, features]`.
    matches = between[:, None] == tf.constant(before)
    are_known = tf.strings.substr(item, 0, len(header)) == header
    are_known &= tf.reduce_all(tf.reduce_sum(tf.cast(matches, tf.int32), axis=0) == 1)
    return tf.reduce_sum(tf.where(matches, starts[:, None], 0), axis=0), are_known


def _decode(serialized: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    sizes, [examples, context] = tf.io.decode_proto(
        serialized,
        _MESSAGE_TYPE,
        field_names=["examples", "context"],
        output_types=[tf.string, tf.string],
        descriptor_source=_DESCRIPTOR,
    )
    # The first column holds the sizes of the examples.
    sizes = sizes[:, 0]
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
