"""Reductions over the valid items of a list.

Every function takes a boolean `mask` of the shape of its input and reduces the last axis. A list
without a valid item reduces to zero, never to NaN, and so does its gradient. The values in masked
slots, including NaN and infinity, have no effect.
"""

import tensorflow as tf

from tfrank_sel.ops.precision import in_float64


def masked_sum(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Sums the valid items of each list."""
    return tf.reduce_sum(tf.where(mask, x, tf.zeros_like(x)), axis=-1)


def masked_mean(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Averages the valid items of each list."""
    count = tf.reduce_sum(tf.cast(mask, x.dtype), axis=-1)
    return tf.math.divide_no_nan(masked_sum(x, mask), count)


def softmax(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes the softmax over the valid items of each list, and 0 on padding."""
    return tf.where(mask, tf.nn.softmax(tf.where(mask, x, x.dtype.min)), 0.0)


def log_softmax(x: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Computes `log(exp(x_i) / sum_j w_j * exp(x_j))` of the items of each list.

    The sum is that of the largest exponents times 1 plus a rest, so that the logarithm of an item
    with nearly all of it is `log1p` of the rest, not the logarithm of a number rounded to 1.

    Args:
        x: Exponents, `[..., list_size]`.
        weights: Weight of each item, of the shape of `x`; 0 for padding.

    Returns:
        The logarithms, of the shape of `x`; 0 for items of weight 0.
    """
    valid = weights > 0.0
    x = tf.where(valid, x, x.dtype.min)
    x -= tf.stop_gradient(tf.reduce_max(x, axis=-1, keepdims=True))
    mass, is_top = weights * tf.exp(x), x == 0.0
    at_top, rest = (
        tf.reduce_sum(tf.where(part, mass, 0.0), axis=-1, keepdims=True)
        for part in (is_top, ~is_top)
    )
    at_top = tf.where(at_top > 0.0, at_top, 1.0)
    return tf.where(valid, x - tf.math.log(at_top) - tf.math.log1p(rest / at_top), 0.0)


def log_sum_exp(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes `log sum_i exp(x_i)` over the valid items of each list; 0 if there are none."""
    top = tf.where(mask, x, tf.constant(float("-inf"), x.dtype))
    top = tf.stop_gradient(tf.reduce_max(top, axis=-1, keepdims=True))
    top = tf.where(tf.reduce_any(mask, axis=-1, keepdims=True), top, 0.0)
    exp = tf.exp(tf.where(mask, x, top) - top)
    total = masked_sum(exp, mask)
    return top[..., 0] + tf.math.log(tf.where(total > 0.0, total, 1.0))


def log1p_sum_exp(x: tf.Tensor, masses: tf.Tensor, axis: int = -1) -> tf.Tensor:
    """Computes `log(1 + sum_i m_i * exp(x_i))`, accurate for tiny and for huge sums.

    Args:
        x: Exponents.
        masses: Factor of each exponential, at least 0; where it is 0, `x` has no effect.
        axis: The axis to sum over.

    Returns:
        The logarithm, of the shape of `x` without `axis`.
    """
    counts = masses > 0.0
    x, log_mass = tf.where(counts, x, 0.0), tf.math.log(tf.where(counts, masses, 1.0))
    exponent = tf.where(counts, x + log_mass, x.dtype.min)
    top = tf.reduce_max(exponent, axis=axis, keepdims=True)
    # relative to the top item, whose sum of both was rounded
    is_top = counts & (exponent == top) & (top > 0.0)
    some = tf.reduce_any(is_top, axis=axis, keepdims=True)
    x_top = tf.reduce_max(tf.where(is_top, x, x.dtype.min), axis=axis, keepdims=True)
    is_top &= x == x_top
    mass_top = tf.reduce_max(tf.where(is_top, log_mass, x.dtype.min), axis=axis, keepdims=True)
    x_top, mass_top, top = (
        tf.stop_gradient(tf.where(some, part, 0.0)) for part in (x_top, mass_top, top)
    )
    exp = tf.exp((x - x_top) + (log_mass - mass_top))
    total = tf.reduce_sum(tf.where(counts, exp, 0.0), axis=axis)
    top = tf.squeeze(top, axis)
    # if top = 0 this is log1p of the sum, otherwise the total is at least 1: nothing cancels
    return top + tf.math.log1p(tf.math.expm1(-top) + total)


@in_float64
def cross_entropy(targets: tf.Tensor, logits: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes `-sum_i t_i * log softmax(x)_i` over the valid items of each list.

    Args:
        targets: Weight `t` of each item, `[..., list_size]`; they need not sum to 1.
        logits: Logits `x`, of the shape of `targets`.
        mask: True for the valid items, of the shape of `targets`.

    Returns:
        The cross-entropy of each list, `[...]`.
    """
    log_shares = log_softmax(logits, tf.cast(mask, logits.dtype))
    return -tf.reduce_sum(tf.where(mask, targets, 0.0) * log_shares, axis=-1)
