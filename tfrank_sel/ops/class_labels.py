"""Labels that are the index of the one relevant item, or class, of each list."""

from typing import Any

import tensorflow as tf


def of_items(y_true: Any, y_pred: Any, are_relevances: bool) -> Any:
    """Makes labels of items of indices of the one relevant item of each list.

    Args:
        y_true: Indices, integers `[batch_size]` or `[batch_size, 1]`; or the labels of items.
        y_pred: Scores, `[batch_size, list_size]`.
        are_relevances: Whether labels are relevances, of which an index gives 1 and 0. Otherwise
            indices are refused.

    Returns:
        The labels of items, as they are or as `one_hot` makes them.

    Raises:
        ValueError: If there is one label a list, and it is no integer or labels are no relevances.
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
        return y_true  # a row is no longer than the labels beside it
    # how many labels a list has shows when the graph runs
    y_true = as_matrix(y_true)
    is_one = (tf.shape(y_true)[1] == 1) & (tf.shape(y_pred)[1] != 1)
    first = tf.reduce_sum(y_true[:, :1], axis=1)  # of lists without items, too
    return tf.where(is_one, tf.cast(one_hot(first, y_pred), y_true.dtype), y_true)


def indices(y_true: Any, y_pred: Any) -> tf.Tensor | None:
    """Reads `y_true` as the index of a class of each list, of any dtype, if it is one.

    Args:
        y_true: Indices, `[batch_size]` or `[batch_size, 1]`, or the labels of items.
        y_pred: Scores, of the classes `[batch_size, classes]`, or of items.

    Returns:
        The indices, `[batch_size]`; `None` if `y_true` holds the labels of items.
    """
    if isinstance(y_true, tf.RaggedTensor):
        return None
    y_true = tf.convert_to_tensor(y_true)
    are_indices = _are_indices(y_true.shape, _shape(y_pred))
    is_column = y_true.shape.rank == 2 and y_true.shape[1] == 1
    if are_indices or (are_indices is None and is_column):
        return tf.reshape(y_true, [-1])
    return None


def one_hot(classes: tf.Tensor, y_pred: Any) -> tf.Tensor | tf.RaggedTensor:
    """Makes labels of items of indices: 1 for the class; an index out of range is no class."""
    classes = tf.cast(classes, tf.int32)
    if not isinstance(y_pred, tf.RaggedTensor):
        return tf.one_hot(classes, tf.shape(y_pred)[1])
    places = tf.cast(tf.ragged.range(y_pred.row_lengths()).values, tf.int32)
    of_rows = tf.gather(classes, y_pred.value_rowids())
    return y_pred.with_values(tf.cast(places == of_rows, tf.float32))


def as_matrix(x: tf.Tensor) -> tf.Tensor:
    """Gives a scalar or a vector one column, where a graph may not know the number of axes."""
    shape = tf.ensure_shape(tf.concat([tf.shape(x), [1, 1]], axis=0)[:2], [2])
    return tf.reshape(x, shape)


def _are_indices(labels: tf.TensorShape, scores: tf.TensorShape) -> bool | None:
    """Whether there is one label a list, not one an item; `None` if the shapes do not tell."""
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


def _refusal(y_true: tf.Tensor, scores: tf.TensorShape, are_relevances: bool) -> str:
    accepted, advice = "", f"tf.one_hot(y_true, {scores[1]})"
    if are_relevances:
        accepted = ", or the index of its relevant item, an integer a list"
        advice = "tf.cast(y_true, tf.int32)"
    return (
        f"`y_true` must hold a label of each item, [batch_size, list_size]{accepted}. Received: "
        f"y_true.shape={y_true.shape}, {y_true.dtype.name}, y_pred.shape={scores}. "
        f"If these are indices of relevant items, write {advice}"
    )
