"""Gradient of the ratio of two symmetric polynomials, as a function of each item's odds.

With the polynomial of the other items, `P(z) / (1 + w z)`, the probability that item `j` is among
`m` sampled ones is `w_j P_{m-1}(-j) / P_m`. Polynomial division from the low end gives a series in
`w`, from the high end a series in `1 / w`. Both alternate and need few coefficients.
"""

from typing import NamedTuple

import tensorflow as tf

from tfrank_sel.ops.symmetric.lanes import Plan


class Series(NamedTuple):
    """The derivative of `log P_k - log P_{k-1}` by `log w`, for each list.

    Attributes:
        shift: The logarithm of `P_{k-1} / P_k`; added to that of the odds, it makes `P_{k-1}` and
            `P_k` equal, and the derivative that of a light item up to odds of 1.
        light: Coefficients of `w, w^2, ...`, `[batch_size, plan.below]`.
        heavy: Coefficients of `1/w, 1/w^2, ...`, `[batch_size, plan.above]`.
    """

    shift: tf.Tensor
    light: tf.Tensor
    heavy: tf.Tensor


def series_of(coefficients: tf.Tensor, k: int, plan: Plan, dtype: tf.DType) -> Series:
    """Makes the series of the polynomials of `[batch_size, k + plan.above + 1]` coefficients.

    Args:
        coefficients: Those of degrees 0 to `k + plan.above`; positive at `k - 1` and `k`.
        k: The degree of the ratio's numerator.
        plan: The plan of the coefficients.
        dtype: The dtype of the series.
    """
    at_k, before = coefficients[:, k, tf.newaxis], coefficients[:, k - 1, tf.newaxis]
    ratio = before / at_k
    down = tf.reverse(coefficients[:, k - 1 - plan.below if plan.below < k else 0 : k], axis=[1])
    if plan.below == k:
        down = tf.pad(down, [[0, 0], [0, 1]])  # the coefficient of degree -1
    down = down / before * _powers(1.0 / ratio, plan.below)
    up = coefficients[:, k:] / at_k * _powers(ratio, plan.above)
    return Series(
        shift=tf.cast(tf.math.log(ratio[:, 0]), dtype),
        light=tf.cast(_alternate(down[:, :-1] - down[:, 1:]), dtype),
        heavy=tf.cast(_alternate(up[:, :-1] - up[:, 1:]), dtype),
    )


def derivative(u: tf.Tensor, series: Series) -> tf.Tensor:
    """Evaluates the series at shifted logarithms of odds, `[batch_size, list_size]`."""
    v = tf.exp(-tf.abs(u))
    return tf.where(u <= 0.0, _horner(series.light, v), _horner(series.heavy, v))


def derivative_of_light(u: tf.Tensor, series: Series, terms: int) -> tf.Tensor:
    """Evaluates the first terms of the series for lists without heavy items."""
    return _horner(series.light[:, :terms], tf.exp(u))


def _horner(coefficients: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    value = tf.zeros_like(v)
    for i in reversed(range(coefficients.shape[1])):
        value = (value + coefficients[:, i, tf.newaxis]) * v
    return value


def _powers(x: tf.Tensor, count: int) -> tf.Tensor:
    """Computes `1, x, ..., x^count` of a column, `[batch_size, count + 1]`, by doubling."""
    powers = tf.concat([tf.ones_like(x), x], axis=1)
    while powers.shape[1] <= count:
        powers = tf.concat([powers, powers[:, 1:] * powers[:, -1:]], axis=1)
    return powers[:, : count + 1]


def _alternate(x: tf.Tensor) -> tf.Tensor:
    return x * tf.constant([(-1.0) ** i for i in range(x.shape[1])], x.dtype)
