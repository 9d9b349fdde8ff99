"""Truncation of long lists."""

from collections.abc import Callable

import tensorflow as tf

# Maps labels `[batch_size, longer]`, NaN at padding, and a number of items to the positions of #
# the items to keep, `[batch_size, number of items]`.
Truncation = Callable[[tf.Tensor, int], tf.Tensor]


def head(labels: tf.Tensor, list_size: int) -> tf.Tensor:
    """Truncation that keeps the first `list_size` items, in the order of the file.

    Example:
        >>> head(tf.constant([[0.0, 2.0, 1.0]]), 2).numpy().tolist()
        [[0, 1]]
    """
    positions = tf.range(list_size)
    return tf.broadcast_to(positions, [tf.shape(labels)[0], list_size])


def top(labels: tf.Tensor, list_size: int) -> tf.Tensor:
    """Truncation that keeps the `list_size` items with the highest labels, in file order.

    Among equal labels, the first items are kept.

    Example:
        >>> top(tf.constant([[0.0, 1.0, 0.0, 2.0, float("nan")]]), 3).numpy().tolist()
        [[0, 1, 3]]
    """
    lowest_at_padding = tf.where(tf.math.is_nan(labels), -float("inf"), labels)
    best = tf.argsort(lowest_at_padding, axis=1, direction="DESCENDING", stable=True)
    return tf.sort(best[:, :list_size], axis=1)


def shuffled(mask: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """Returns the positions of the items of each list in random order, followed by padding.

    Args:
        mask: True for an item, `[batch_size, list_size]`.
        seed: Two integers.
    """
    # keys are below 1, so that padding comes last
    keys = tf.random.stateless_uniform(tf.shape(mask), seed)
    return tf.argsort(tf.where(mask, keys, 1.0), axis=1)
