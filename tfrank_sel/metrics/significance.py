"""Tests of the hypothesis that paired differences have mean 0."""

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel.metrics.bootstrap import random_bits

Array = NDArray[np.float64]

_CHUNK = 1024  # queries with signs at once


def t_test(differences: Array) -> Array:
    """Computes the two-sided p value of the paired t test.

    Args:
        differences: The differences, `[queries, values]`. For a single query, p is 1.

    Returns:
        The p value of each column, `[values]`.

    Example:
        >>> t_test(np.array([[1.0], [2.0], [3.0], [0.0]])).round(4)
        array([0.1027])
    """
    count, mean = len(differences), differences.mean(axis=0)
    if count < 2:
        return np.ones_like(mean)
    error = differences.std(axis=0, ddof=1) ** 2 / count
    degrees = float(count - 1)
    # P(|T| > t) is the regularised incomplete beta function at degrees / (degrees + t^2)
    below = degrees * error
    with np.errstate(invalid="ignore"):
        x = np.where(mean == 0.0, 1.0, below / (below + mean**2))
    halves = np.full_like(x, degrees / 2.0), np.full_like(x, 0.5)
    return np.asarray(tf.math.betainc(*halves, x))


def randomisation_test(keys: NDArray[np.uint64], differences: Array, seed: int, n: int) -> Array:
    """Computes the two-sided p value of the paired randomisation test.

    Under the hypothesis, each difference has either sign with the same probability. The p value is
    `(1 + extreme) / (1 + n)`, where `extreme` is the number of random assignments of signs whose
    mean is at least as far from 0 as the observed one.

    Args:
        keys: A number for each query, which determines its signs, uint64 `[queries]`.
        differences: The differences, `[queries, values]`.
        seed: Seed of the signs.
        n: Number of assignments.

    Returns:
        The p value of each column, `[values]`.
    """
    positive = np.zeros([n, differences.shape[1]])
    for start in range(0, len(keys), _CHUNK):
        words = random_bits(keys[start : start + _CHUNK], seed, -(-n // 64))
        bits = np.unpackbits(words.view(np.uint8), axis=1)[:, :n]
        positive += bits.T.astype(np.float64) @ differences[start : start + _CHUNK]
    observed = differences.sum(axis=0)
    slack = 1e-12 * np.abs(differences).sum(axis=0)  # rounding must not separate equal sums
    extreme = np.abs(2.0 * positive - observed) >= np.abs(observed) - slack
    return np.asarray((1.0 + extreme.sum(axis=0)) / (1.0 + n))


def holm(p: Array) -> Array:
    """Adjusts p values for the number of tests, by Holm's method.

    Example:
        >>> holm(np.array([0.03, 0.01, 0.04]))
        array([0.06, 0.03, 0.06])

    Reference:
        [Holm, A simple sequentially rejective multiple test procedure, 1979](
        https://www.jstor.org/stable/4615733).
    """
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    factors = np.arange(len(p), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(factors * p[order]), 1.0)
    return adjusted
