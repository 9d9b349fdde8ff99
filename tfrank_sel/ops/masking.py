"""Reductions over the valid items of a list.

Every function takes a boolean `mask` of the shape of its input and reduces the last axis. A list
without a valid item reduces to zero, never to NaN, and so does its gradient. The values in masked
slots, including NaN and infinity, have no effect.
"""

import math

import tensorflow as tf
from tensorflow import Tensor


def centre(scores: Tensor, mask: Tensor, axis: int | None = -1) -> Tensor:
    """Subtracts from each list its largest score, if all differences to it are exact.

    Formulas that do not change if a constant is added to a list then keep their digits far from 0,
    and lose none near 0: the result is the same.

    Args:
        scores: Scores, `[..., list_size]`, 0 where masked.
        mask: True for the valid items.
        axis: The axis of a list; `None` for one constant for all scores.
    """
    top = tf.reduce_max(tf.where(mask, scores, scores.dtype.min), axis, keepdims=True)
    below = scores - top
    # a difference is exact if each of the two numbers follows from it and the other
    is_exact = (below + top == scores) & (scores - below == top)
    is_exact = tf.reduce_all(is_exact, axis, keepdims=True)
    return scores - tf.stop_gradient(tf.where(mask & is_exact, top, 0.0))


def at_temperature(scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Divides scores, which are 0 where masked, by a temperature; up to a constant of each list."""
    return (scores if is_power_of_2(temperature) else centre(scores, mask)) / temperature


def is_power_of_2(x: float) -> bool:
    """Whether quotients by a number are not rounded."""
    return math.frexp(x)[0] == 0.5


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sums the valid items of each list."""
    return tf.reduce_sum(tf.where(mask, x, tf.zeros_like(x)), axis=-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Averages the valid items of each list."""
    count = tf.reduce_sum(tf.cast(mask, x.dtype), axis=-1)
    return tf.math.divide_no_nan(masked_sum(x, mask), count)


def softmax(x: Tensor, mask: Tensor) -> Tensor:
    """Computes the softmax over the valid items of each list, and 0 on padding."""
    exp, _, rest, count = _exponentials(x, mask)
    return exp / (rest + count)


def softmax_complement(x: Tensor, mask: Tensor) -> Tensor:
    """Computes `1 - softmax(x)`, accurate if an item has nearly all the probability."""
    exp, centred, rest, count = _exponentials(x, mask)
    # the top item depends only on `rest`
    term = tf.where((centred < 0.0) | (count > 1.0), exp, 1.0)
    return (rest + (count - term)) / (rest + count)


def log_sum_exp(x: Tensor, mask: Tensor) -> Tensor:
    """Computes `log sum_i exp(x_i)` over the valid items of each list; 0 if there are none."""
    top = tf.where(mask, x, tf.constant(float("-inf"), x.dtype))
    top = tf.stop_gradient(tf.reduce_max(top, axis=-1, keepdims=True))
    top = tf.where(tf.reduce_any(mask, axis=-1, keepdims=True), top, 0.0)
    exp = tf.exp(tf.where(mask, x, top) - top)
    total = masked_sum(exp, mask)
    return top[..., 0] + tf.math.log(tf.where(total > 0.0, total, 1.0))


def log1p_sum_exp(x: Tensor, masses: Tensor, axis: int = -1) -> Tensor:
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


def logits(scores: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Divides scores by a temperature, up to a constant of each list, for a softmax.

    The differences to the largest score are rounded, as a softmax rounds them. Without a mask, all
    items are valid, also those of -inf.
    """
    if temperature == 1.0:  # which would be a pass over all items
        return scores
    if is_power_of_2(temperature):
        return scores / temperature
    held = scores if mask is None else tf.where(mask, scores, scores.dtype.min)
    top = tf.reduce_max(held, axis=-1, keepdims=True)
    is_shifted = top > -math.inf if mask is None else mask
    return (scores - tf.stop_gradient(tf.where(is_shifted, top, 0.0))) / temperature


def cross_entropy(targets: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
    """Computes `-sum_i t_i * log softmax(x)_i` over the valid items of each list.

    It is accurate at both ends: if an item has nearly all the probability, its logarithm is `log1p`
    of the rest, not the logarithm of a number rounded to 1. The gradient,
    `softmax(x)_i * sum_j t_j - t_i`, is equally accurate.

    Args:
        targets: Weight `t` of each item, `[..., list_size]`; they need not sum to 1.
        logits: Logits `x`, of the shape of `targets`.
        mask: True for the valid items, of the shape of `targets`.

    Returns:
        The cross-entropy of each list, `[...]`.
    """
    targets = tf.where(mask, targets, 0.0)

    @tf.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            return upstream[..., tf.newaxis] * _residual(targets, logits, mask)

        _, centred, rest, count = _exponentials(logits, mask)
        log_sum = tf.math.log(count) + tf.math.log1p(rest / count)
        total = tf.reduce_sum(targets, axis=-1, keepdims=True)
        return (total * log_sum)[..., 0] - masked_sum(targets * centred, mask), gradient

    return f(logits)


def _residual(targets: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
    """Computes `softmax(x)_i * sum_j t_j - t_i`, with a custom gradient."""

    @tf.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        total = tf.reduce_sum(targets, axis=-1, keepdims=True)

        def gradient(upstream: Tensor) -> Tensor:
            p = softmax(logits, mask)
            return total * p * (upstream - tf.reduce_sum(p * upstream, axis=-1, keepdims=True))

        exp, centred, rest, count = _exponentials(logits, mask)
        # at the top, p * total = (below + tied) / (rest + count): relative to one of the tied
        # targets, equal targets cancel
        is_below = centred < 0.0
        below = masked_sum(targets, is_below)[..., tf.newaxis]
        top = tf.reduce_max(tf.where(is_below, targets.dtype.min, targets), axis=-1, keepdims=True)
        tied = tf.where(is_below, tf.zeros_like(targets), targets - top)
        among = tf.reduce_sum(tied, axis=-1, keepdims=True) - count * tied
        at_top = (below + among - rest * targets) / (rest + count)
        return tf.where(is_below, total / (rest + count) * exp - targets, at_top), gradient

    return f(logits)


def _exponentials(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes `exp(x - max x)`, `x - max x`, the sum of the former below its top, and tie counts.

    The sum of all is the sum below the top and the number of items tied at the top (at least 1).
    """
    x = tf.where(mask, x, tf.constant(float("-inf"), x.dtype))
    # The lower bound keeps a list without items finite.
    top = tf.maximum(tf.reduce_max(x, axis=-1, keepdims=True), x.dtype.min)
    centred = x - top
    exp = tf.exp(centred)
    below = centred < 0.0
    rest = tf.reduce_sum(tf.where(below, exp, 0.0), axis=-1, keepdims=True)
    ties = tf.reduce_sum(tf.where(below, tf.zeros_like(x), 1.0), axis=-1, keepdims=True)
    return exp, centred, rest, tf.maximum(ties, 1.0)
