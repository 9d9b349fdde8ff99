"""Reductions over the valid items of a list.

Every function takes a boolean `mask` of the shape of its input and reduces the last axis. A list
without a valid item reduces to zero, never to NaN, and so does its gradient. What a masked slot
holds, NaN and infinity included, changes nothing.
"""

import tensorflow as tf


def masked_sum(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sums the valid items of each list."""
    return tf.reduce_sum(tf.where(mask, x, tf.zeros_like(x)), axis=-1)


def masked_mean(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Averages the valid items of each list."""
    count = tf.reduce_sum(tf.cast(mask, x.dtype), axis=-1)
    return tf.math.divide_no_nan(masked_sum(x, mask), count)


def log_softmax(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes `x_i - log(sum_j exp(x_j))` over the valid items, and 0 on padding.

    Both ends are exact: where an item has nearly all the probability its logarithm is `log1p` of
    the rest, not the logarithm of a number that was rounded to 1, and so is its gradient.

    Args:
        x: Logits, `[..., list_size]`.
        mask: True for the valid items, of the shape of `x`.

    Returns:
        Logarithms of probabilities, of the shape of `x`.
    """

    @tf.custom_gradient
    def f(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            log_p = log_softmax(x, mask)  # again, so that second derivatives see it
            upstream = tf.where(mask, upstream, 0.0)
            total = tf.reduce_sum(upstream, axis=-1, keepdims=True)
            # u - p * total = (u - total) + (1 - p) * total, by whichever side does not cancel
            near_one = (upstream - total) - tf.math.expm1(log_p) * total
            near_zero = upstream - tf.exp(log_p) * total
            return tf.where(mask, tf.where(log_p > -0.69, near_one, near_zero), 0.0)

        return _log_softmax(x, mask), gradient

    return f(x)


def _log_softmax(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    top = tf.reduce_max(tf.where(mask, x, x.dtype.min), axis=-1, keepdims=True)
    centred = tf.where(mask, x - top, 0.0)
    tops = mask & (centred >= 0.0)
    # log sum exp = top + log(count) + log1p(rest / count), `count` items being tied at the top
    rest = tf.reduce_sum(tf.where(mask & ~tops, tf.exp(centred), 0.0), axis=-1, keepdims=True)
    count = tf.reduce_sum(tf.cast(tops, x.dtype), axis=-1, keepdims=True)
    count = tf.maximum(count, 1.0)
    log_sum = tf.math.log(count) + tf.math.log1p(rest / count)
    return tf.where(mask, centred - log_sum, 0.0)
