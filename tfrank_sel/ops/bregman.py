"""Remainders of Taylor's formula, which divergences of exponential links are made of.

Computed as they stand, `exp(t) - 1 - t` and its kin lose all digits near zero.
"""

import tensorflow as tf


def expm1_remainder(t: tf.Tensor) -> tf.Tensor:
    """Computes `exp(t) - 1 - t`, which is at least 0, without cancellation."""
    near = tf.clip_by_value(t, -0.7, 0.7)
    terms = 18 if t.dtype == tf.float64 else 11
    series = tf.ones_like(t)
    for n in range(terms, 2, -1):  # t**2 / 2 * (1 + t/3 * (1 + t/4 * (1 + ...)))
        series = 1.0 + near * series / n
    return tf.where(tf.abs(t) < 0.7, 0.5 * near * near * series, tf.math.expm1(t) - t)
