"""Logarithms of elementary symmetric polynomials of all degrees."""

import math

import tensorflow as tf


def log_symmetric(x: tf.Tensor, degree: int) -> tf.Tensor:
    """Computes `log sigma_m(exp(x))` of each list for `m = 0, ..., degree`.

    The elementary symmetric polynomial `sigma_m` is the sum over all subsets of `m` items of the
    product of their `exp(x_j)`. The polynomials are computed item by item, in logarithms: all
    summands are positive, so no digits are lost for any range of `x`. Derivatives of any order are
    those of the additions, and equally accurate. Time and memory are of the order of
    `batch_size * list_size * degree`.

    Args:
        x: Logarithms, `[batch_size, list_size]`; -inf for an absent item.
        degree: The highest degree; at least 0.

    Returns:
        The logarithms, `[batch_size, degree + 1]`; -inf for a degree above the number of items.
    """
    if degree < 0:
        raise ValueError(f"`degree` must be at least 0. Received: degree={degree}")
    nothing = tf.constant(-math.inf, x.dtype)
    empty = tf.zeros([tf.shape(x)[0], 1], x.dtype)
    start = tf.pad(empty, [[0, 0], [0, degree]], constant_values=nothing)

    def add_item(logs: tf.Tensor, item: tf.Tensor) -> tf.Tensor:
        with_item = logs[:, :-1] + item[:, tf.newaxis]
        return log_add(logs, tf.pad(with_item, [[0, 0], [1, 0]], constant_values=nothing))

    return tf.foldl(add_item, tf.transpose(x), start)


def log_add(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
    """Computes `log(exp(a) + exp(b))`; -inf, with gradient 0, if both are -inf."""
    # the larger one cancels, so it needs no gradient
    top = tf.stop_gradient(tf.maximum(a, b))
    some = top > -math.inf
    top = tf.where(some, top, 0.0)
    total = tf.exp(a - top) + tf.exp(b - top)
    return tf.where(some, top + tf.math.log(tf.where(some, total, 1.0)), -math.inf)
