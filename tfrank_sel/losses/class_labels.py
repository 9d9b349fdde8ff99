"""Labels that are the index of the one relevant class of each list."""

from typing import Any

import tensorflow as tf


def indices(y_true: Any, y_pred: Any) -> tf.Tensor | None:
    """Reads `y_true` as the index of a class of each list, if it is one.

    Args:
        y_true: Indices, `[batch_size]` or `[batch_size, 1]`, or the labels of items.
        y_pred: Scores, of the classes `[batch_size, classes]`, or of items.

    Returns:
        The indices, `[batch_size]`; `None` if `y_true` holds the labels of items.
    """
    if isinstance(y_true, tf.RaggedTensor) or isinstance(y_pred, tf.RaggedTensor):
        return None
    y_true, shape = tf.convert_to_tensor(y_true), tf.convert_to_tensor(y_pred).shape
    column = y_true.shape.rank == 2 and y_true.shape[1] == 1 and shape[1:] != [1]
    if shape.rank != 2 or not (y_true.shape.rank == 1 or column):
        return None
    if not y_true.shape[:1].is_compatible_with(shape[:1]):
        return None
    return tf.reshape(y_true, [-1])


def one_hot(classes: tf.Tensor, y_pred: Any) -> tf.Tensor:
    """Makes labels of items of indices: 1 for the class; an index out of range is no class."""
    return tf.one_hot(tf.cast(classes, tf.int32), tf.shape(y_pred)[1])
