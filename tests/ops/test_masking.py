"""Masked reductions: zero for empty lists, exact at both ends."""

import math

import numpy as np
import tensorflow as tf

from tfrank_sel.ops import bregman, masking

X = tf.constant([[1.0, math.nan, 3.0], [math.inf, -math.inf, math.nan]])
MASK = tf.constant([[True, False, True], [False, False, False]])


def test_reductions_skip_padding_and_give_zero_for_empty_lists() -> None:
    np.testing.assert_array_equal(masking.masked_sum(X, MASK), [4.0, 0.0])
    np.testing.assert_array_equal(masking.masked_mean(X, MASK), [2.0, 0.0])


def test_gradients_of_reductions_are_zero_on_padding() -> None:
    with tf.GradientTape() as tape:
        tape.watch(X)
        value = masking.masked_mean(X, MASK) + masking.cross_entropy(X, X, MASK)
    grad = tape.gradient(value, X)
    np.testing.assert_array_equal(tf.boolean_mask(grad, ~MASK), 0.0)
    assert np.all(np.isfinite(grad))


def test_cross_entropy_keeps_a_certain_item_exact() -> None:
    x = tf.constant([[40.0, 0.0, 9.0]])
    mask = tf.constant([[True, True, False]])
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = masking.cross_entropy(tf.constant([[1.0, 0.0, 5.0]]), x, mask)
    tail = math.exp(-40.0)
    np.testing.assert_allclose(loss, [math.log1p(tail)], rtol=1e-6)
    np.testing.assert_allclose(tape.gradient(loss, x), [[-tail, tail, 0.0]], rtol=1e-6)


def test_softmax_of_ties_and_huge_scores() -> None:
    x = tf.constant([[1e30, 1e30, -1e30, 0.0], [math.nan] * 4])
    mask = tf.constant([[True] * 3 + [False], [False] * 4])
    np.testing.assert_array_equal(masking.softmax(x, mask), [[0.5, 0.5, 0.0, 0.0], [0.0] * 4])


def test_expm1_remainder_is_exact_near_zero() -> None:
    t = np.array([-30.0, -1.0, -0.7, -1e-3, 0.0, 1e-9, 0.1, 0.699, 0.701, 5.0])
    taylor = [sum(x**n / math.factorial(n) for n in range(2, 30)) for x in t]
    expected = np.where(np.abs(t) < 1.0, taylor, np.expm1(t) - t)
    np.testing.assert_allclose(bregman.expm1_remainder(tf.constant(t)), expected, rtol=1e-9)
