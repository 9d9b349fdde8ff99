"""Labels given as the index of the relevant item, or class, of each list."""

from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.errors import received


def of_items(y_true: Any, y_pred: Any, are_relevances: bool) -> Any:
    """Converts indices of the relevant item of each list to labels of items.

    Args:
        y_true: Indices, integers `[batch_size]` or `[batch_size, 1]`; or the labels of items.
        y_pred: Scores, `[batch_size, list_size]`.
        are_relevances: Whether labels are relevances, so that an index means labels 1 and 0.
            Otherwise indices are not accepted.

    Returns:
        The labels of items, unchanged or from `one_hot`.

    Raises:
        ValueError: If there is one label per list, and it is not an integer or labels are not
            relevances.
    """
    if isinstance(y_true, tf.RaggedTensor):
        return y_true
    y_true, shape = tf.convert_to_tensor(y_true), _shape(y_pred)
    are_indices = _are_indices(y_true.shape, shape)
    if are_indices and not (are_relevances and y_true.dtype.is_integer):
        raise ValueError(_refusal(y_true, shape, are_relevances))
    if are_indices is False or not (are_relevances and y_true.dtype.is_integer):
        return y_true
    if are_indices:
        return one_hot(tf.reshape(y_true, [-1]), y_pred)
    if isinstance(y_pred, tf.RaggedTensor):
        return y_true  # a row must not be longer than the labels
    y_true = as_matrix(y_true)
    first = tf.reduce_sum(y_true[:, :1], axis=1)  # also for lists without items
    of_first = tf.cast(one_hot(first, y_pred), y_true.dtype)
    return tf.where(are_given(y_true, y_pred), of_first, y_true)


def are_given(y_true: Any, y_pred: Any) -> bool | Tensor:
    """Whether integers `y_true` are indices; a tensor if only a graph that runs knows it."""
    if isinstance(y_true, tf.RaggedTensor):
        return False
    y_true = tf.convert_to_tensor(y_true)
    are_indices = y_true.dtype.is_integer and _are_indices(y_true.shape, _shape(y_pred))
    if are_indices is not None or isinstance(y_pred, tf.RaggedTensor):
        return bool(are_indices)
    # the number of labels of a list is known only when the graph runs
    return (tf.shape(as_matrix(y_true))[1] == 1) & (tf.shape(y_pred)[1] != 1)


def are_alone(y_true: Any, y_pred: Any, sample_weight: Any) -> bool:
    """Whether integers are indices among classes that nothing else tells apart.

    Rows of different lengths, a mask or weights tell items apart.
    """
    tensors = y_true, y_pred, sample_weight
    if any(isinstance(x, tf.RaggedTensor) for x in tensors):
        return False
    if getattr(y_pred, "_keras_mask", None) is not None or are_given(y_true, y_pred) is not True:
        return False
    weights = tf.convert_to_tensor(1.0 if sample_weight is None else sample_weight).shape
    of_lists = weights.rank in (0, 1) or (weights.rank == 2 and weights[1] == 1)
    return of_lists and _shape(y_pred)[1] != 0


def whole(y_true: Any, y_pred: Any) -> Any:
    """Returns the class index of each list, of any dtype, as an integer; labels are unchanged.

    Args:
        y_true: Indices, `[batch_size]` or `[batch_size, 1]`, or the labels of items.
        y_pred: Scores, of the classes `[batch_size, classes]`, or of items.
    """
    if isinstance(y_true, tf.RaggedTensor):
        return y_true
    y_true = tf.convert_to_tensor(y_true)
    are_indices = _are_indices(y_true.shape, _shape(y_pred))
    is_column = y_true.shape.rank == 2 and y_true.shape[1] == 1
    if not y_true.dtype.is_floating or not (are_indices or (are_indices is None and is_column)):
        return y_true
    # one beyond int32, such as a hash, stays beyond all items; NaN is no index
    below = tf.minimum(y_true, min(2.0**30, float(y_true.dtype.max)))
    index = tf.where(y_true >= 0, below, -1)
    if are_indices:
        message = "An index in `y_true` must be a whole number."
        tf.debugging.assert_equal(index, tf.floor(index), message)
    return tf.cast(index, tf.int32)


def one_hot(classes: Tensor, y_pred: Any) -> Tensor | tf.RaggedTensor:
    """Converts indices to labels of items: 1 for the class, and -1 for all if it is negative.

    An index beyond the items is that of no relevant item: all labels are 0.
    """
    classes = as_int32(classes)
    nothing = tf.minimum(tf.cast(tf.sign(classes), tf.float32), 0.0)
    if not isinstance(y_pred, tf.RaggedTensor):
        return tf.one_hot(classes, tf.shape(y_pred)[1]) + nothing[:, tf.newaxis]
    positions = tf.cast(tf.ragged.range(y_pred.row_lengths()).values, tf.int32)
    rows = y_pred.value_rowids()
    labels = tf.cast(positions == tf.gather(classes, rows), tf.float32)
    return y_pred.with_values(labels + tf.gather(nothing, rows))


def of_positions(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Reads positions of sequences as lists of their own.

    Args:
        y_true: Index of the relevant item at each position, integers `[batch_size, length]`.
        y_pred: Scores of all items at each position, `[batch_size, length, items]`.
        sample_weight: Of each sequence, position or item; or `None`.

    Returns:
        The arguments with one axis for both `batch_size` and `length`; unchanged if they are not
        sequences. The index is -1 where the Keras mask of `y_pred` is False.
    """
    tensors = y_true, y_pred, sample_weight
    if any(isinstance(x, tf.RaggedTensor) for x in tensors):
        return tensors
    scores = tf.convert_to_tensor(y_pred)
    shape = scores.shape
    if shape.rank != 3 or shape[2] == 1:
        return tensors
    indices = tf.convert_to_tensor(y_true)
    weights = tf.convert_to_tensor(1.0 if sample_weight is None else sample_weight)
    of_position = [*shape[:2]]
    allowed = [[], shape[:1], [*shape[:1], 1], of_position, [*of_position, 1], shape]
    if not indices.dtype.is_integer or indices.shape.rank != 2:
        return tensors
    if not indices.shape.is_compatible_with(of_position):
        return tensors
    if not any(weights.shape.is_compatible_with(x) for x in allowed):
        return tensors
    indices, of_all, weights = flatten_sequences(indices, y_pred, weights)
    return indices, of_all, None if sample_weight is None else weights


def flatten_sequences(
    y_true: Tensor, y_pred: Any, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives sequences one axis for both `batch_size` and `length`.

    Args:
        y_true: Index of each position, `[batch_size, length]`.
        y_pred: Scores or states of each position, `[batch_size, length, size]`, possibly with a
            Keras mask.
        weights: Of all, of each sequence or position; or as `y_pred`.

    Returns:
        The indices, -1 where the mask is False; `y_pred` and the weights.
    """
    scores, y_true = tf.convert_to_tensor(y_pred), apply_mask(as_int32(y_true), y_pred)
    of_all = tf.reshape(scores, [-1, scores.shape[2] or tf.shape(scores)[2]])
    if weights.shape.rank == 3:
        weights = tf.reshape(tf.broadcast_to(weights, tf.shape(scores)), tf.shape(of_all))
    else:
        weights = weights if weights.shape.rank == 2 else weights[..., tf.newaxis]
        weights = tf.reshape(tf.broadcast_to(weights, tf.shape(scores)[:2]), [-1])
    return tf.reshape(y_true, [-1]), of_all, weights


def apply_mask(indices: Tensor, y_pred: Any) -> Tensor:
    """Returns indices, int32, with -1 where the Keras mask of `y_pred` is False."""
    if (mask := getattr(y_pred, "_keras_mask", None)) is None:
        return indices
    mask = tf.cast(mask, tf.bool)
    is_one = mask.shape.rank == indices.shape.rank
    return tf.where(mask if is_one else mask[..., tf.newaxis], indices, -1)


def as_int32(indices: Tensor) -> Tensor:
    """Casts indices; one beyond int32, such as a hash, stays beyond all items."""
    dtype = indices.dtype
    if dtype.is_integer and dtype.max > tf.int32.max:
        indices = tf.minimum(indices, tf.constant(tf.int32.max, dtype))
        indices = indices if dtype.is_unsigned else tf.maximum(indices, tf.constant(-1, dtype))
    return tf.cast(indices, tf.int32)


def as_matrix(x: Tensor) -> Tensor:
    """Adds a column axis to a scalar or a vector, also if the rank is not static."""
    shape = tf.ensure_shape(tf.concat([tf.shape(x), [1, 1]], axis=0)[:2], [2])
    return tf.reshape(x, shape)


def _are_indices(labels: tf.TensorShape, scores: tf.TensorShape) -> bool | None:
    """Whether there is one label per list, not per item; `None` if the shapes are ambiguous."""
    if scores.rank != 2 or not labels[:1].is_compatible_with(scores[:1]):
        return False
    if labels.rank == 1:
        return True
    if not labels.is_compatible_with([None, 1]) or scores[1] == 1:
        return False
    return None if labels.rank is None or None in (labels[1], scores[1]) else True


def _shape(y_pred: Any) -> tf.TensorShape:
    is_ragged = isinstance(y_pred, tf.RaggedTensor)
    return (y_pred if is_ragged else tf.convert_to_tensor(y_pred)).shape


def _refusal(y_true: Tensor, scores: tf.TensorShape, are_relevances: bool) -> str:
    accepted, advice = "", f"tf.one_hot(y_true, {scores[1]})"
    if are_relevances:
        accepted = ", or the index of its relevant item, one integer per list"
        advice = "tf.cast(y_true, tf.int32)"
    return received(
        f"`y_true` must have a label for each item, [batch_size, list_size]{accepted}",
        f"y_true.shape={y_true.shape}, {y_true.dtype.name}, y_pred.shape={scores}. "
        f"If these are indices of relevant items, write {advice}",
    )
