"""Centre of a list: the score that about `k - 1/2` items reach."""

import tensorflow as tf


def centre(x: tf.Tensor, k: int, inverse_scale: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds `t` such that `sum_j min(1, exp((x_j - t) / scale))` is about `k - 1/2`.

    With odds relative to the centre, neither the coefficients around degree `k` nor their ratios
    overflow. It need not be exact, because its value cancels in all results.

    Args:
        x: Scores, `[batch_size, list_size]`; -inf for an absent item.
        k: Number of items; positive.
        inverse_scale: `1 / scale`, in the dtype of `x`.

    Returns:
        The centre of each list and its largest score, both `[batch_size]`.
    """
    mass = k - 0.5
    top = tf.reduce_max(x, axis=1)
    top = tf.where(tf.math.is_finite(top), top, 0.0)
    total = tf.reduce_sum(tf.exp((x - top[:, tf.newaxis]) * inverse_scale), axis=1)
    flat = total >= mass
    t = top + _log(total / mass) / inverse_scale
    t = tf.cond(
        tf.reduce_all(flat),
        lambda: t,
        lambda: tf.where(flat, t, _centre_of_peaked(x, top, flat, k, inverse_scale)),
    )
    return t, top


def _centre_of_peaked(
    x: tf.Tensor, top: tf.Tensor, flat: tf.Tensor, k: int, inverse_scale: tf.Tensor
) -> tf.Tensor:
    """Bisects for the `k`-th largest score up to a few scales, then counts what lies below it."""
    bottom = tf.reduce_min(tf.where(tf.math.is_finite(x), x, x.dtype.max), axis=1)
    near = 4.0 / inverse_scale

    def halve(low: tf.Tensor, high: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        middle = 0.5 * low + 0.5 * high
        few = _count(x > middle[:, tf.newaxis], x.dtype) <= k - 1
        return tf.where(few, low, middle), tf.where(few, middle, high)

    def unfinished(low: tf.Tensor, high: tf.Tensor) -> tf.Tensor:
        return tf.reduce_any((high - low > near) & ~flat)

    # bisection ends at the latest when the bounds are neighbouring numbers
    _, high = tf.while_loop(
        unfinished, halve, (tf.minimum(bottom, top), top), maximum_iterations=64
    )
    above = x > high[:, tf.newaxis]
    odds = tf.exp(tf.minimum(x - high[:, tf.newaxis], 0.0) * inverse_scale)
    below = tf.where(~above, odds, 0.0)
    rest = k - 0.5 - _count(above, x.dtype)
    return high + _log(tf.reduce_sum(below, axis=1) / rest) / inverse_scale


def _count(which: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    return tf.reduce_sum(tf.cast(which, dtype), axis=1)


def _log(x: tf.Tensor) -> tf.Tensor:
    """The logarithm; a list without items has a finite one."""
    return tf.math.log(tf.maximum(x, 1e-30))
