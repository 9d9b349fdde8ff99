"""Reductions over the valid items of a list.

Every function takes a boolean `mask` of the shape of its input and reduces the last axis. A list
without a valid item reduces to zero, never to NaN, and so does its gradient. The values in masked
slots, including NaN and infinity, have no effect.
"""

import math

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor


def centre(scores: Tensor, mask: Tensor, axis: int | None = -1) -> Tensor:
    """Subtracts from each list its largest score, if all differences to it are exact.

    Formulas that do not change if a constant is added to a list then keep their digits far from 0,
    and lose none near 0: the result is the same.

    Args:
        scores: Scores, `[..., list_size]`, 0 where masked.
        mask: True for the valid items.
        axis: The axis of a list; `None` for one constant for all scores.
    """
    top = xp.reduce_max(xp.where(mask, scores, xp.limits(scores.dtype).min), axis, keepdims=True)
    below = scores - top
    # a difference is exact if each of the two numbers follows from it and the other
    is_exact = (below + top == scores) & (scores - below == top)
    is_exact = xp.reduce_all(is_exact, axis, keepdims=True)
    return scores - xp.stop_gradient(xp.where(mask & is_exact, top, 0.0))


def at_temperature(scores: Tensor, mask: Tensor, temperature: float) -> Tensor:
    """Divides scores, which are 0 where masked, by a temperature; up to a constant of each list."""
    return (scores if is_power_of_2(temperature) else centre(scores, mask)) / temperature


def is_power_of_2(x: float) -> bool:
    """Whether quotients by a number are not rounded."""
    return math.frexp(x)[0] == 0.5


def masked_sum(x: Tensor, mask: Tensor) -> Tensor:
    """Sums the valid items of each list."""
    return xp.reduce_sum(xp.where(mask, x, xp.zeros_like(x)), axis=-1)


def masked_mean(x: Tensor, mask: Tensor) -> Tensor:
    """Averages the valid items of each list."""
    count = xp.reduce_sum(xp.cast(mask, x.dtype), axis=-1)
    return xp.divide_no_nan(masked_sum(x, mask), count)


def softmax(x: Tensor, mask: Tensor) -> Tensor:
    """Computes the softmax over the valid items of each list, and 0 on padding."""
    exp, _, rest, count = _exponentials(x, mask)
    return exp / (rest + count)


def softmax_complement(x: Tensor, mask: Tensor) -> Tensor:
    """Computes `1 - softmax(x)`, accurate if an item has nearly all the probability."""
    exp, centred, rest, count = _exponentials(x, mask)
    # the top item depends only on `rest`
    term = xp.where((centred < 0.0) | (count > 1.0), exp, 1.0)
    return (rest + (count - term)) / (rest + count)


def log_sum_exp(x: Tensor, mask: Tensor) -> Tensor:
    """Computes `log sum_i exp(x_i)` over the valid items of each list; 0 if there are none."""
    top = xp.where(mask, x, xp.constant(float("-inf"), x.dtype))
    top = xp.stop_gradient(xp.reduce_max(top, axis=-1, keepdims=True))
    top = xp.where(xp.reduce_any(mask, axis=-1, keepdims=True), top, 0.0)
    exp = xp.exp(xp.where(mask, x, top) - top)
    total = masked_sum(exp, mask)
    return top[..., 0] + xp.log(xp.where(total > 0.0, total, 1.0))


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
    x, log_mass = xp.where(counts, x, 0.0), xp.log(xp.where(counts, masses, 1.0))
    exponent = xp.where(counts, x + log_mass, xp.limits(x.dtype).min)
    top = xp.reduce_max(exponent, axis=axis, keepdims=True)
    # relative to the top item, whose sum of both was rounded
    is_top = counts & (exponent == top) & (top > 0.0)
    some = xp.reduce_any(is_top, axis=axis, keepdims=True)
    x_top = xp.reduce_max(xp.where(is_top, x, xp.limits(x.dtype).min), axis=axis, keepdims=True)
    is_top = is_top & (x == x_top)
    mass_top = xp.reduce_max(
        xp.where(is_top, log_mass, xp.limits(x.dtype).min), axis=axis, keepdims=True
    )
    x_top, mass_top, top = (
        xp.stop_gradient(xp.where(some, part, 0.0)) for part in (x_top, mass_top, top)
    )
    exp = xp.exp((x - x_top) + (log_mass - mass_top))
    total = xp.reduce_sum(xp.where(counts, exp, 0.0), axis=axis)
    top = xp.squeeze(top, axis)
    # if top = 0 this is log1p of the sum, otherwise the total is at least 1: nothing cancels
    return top + xp.log1p(xp.expm1(-top) + total)


def logits(scores: Tensor, mask: Tensor | None, temperature: float) -> Tensor:
    """Divides scores by a temperature, up to a constant of each list, for a softmax.

    The differences to the largest score are rounded, as a softmax rounds them. Without a mask, all
    items are valid, also those of -inf.
    """
    if temperature == 1.0:  # which would be a pass over all items
        return scores
    if is_power_of_2(temperature):
        return scores / temperature
    held = scores if mask is None else xp.where(mask, scores, xp.limits(scores.dtype).min)
    top = xp.reduce_max(held, axis=-1, keepdims=True)
    is_shifted = top > -math.inf if mask is None else mask
    return (scores - xp.stop_gradient(xp.where(is_shifted, top, 0.0))) / temperature


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
    targets = xp.where(mask, targets, 0.0)

    @xp.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            return upstream[..., xp.newaxis] * _residual(targets, logits, mask)

        _, centred, rest, count = _exponentials(logits, mask)
        log_sum = xp.log(count) + xp.log1p(rest / count)
        total = xp.reduce_sum(targets, axis=-1, keepdims=True)
        return (total * log_sum)[..., 0] - masked_sum(targets * centred, mask), gradient

    return f(logits)


def _residual(targets: Tensor, logits: Tensor, mask: Tensor) -> Tensor:
    """Computes `softmax(x)_i * sum_j t_j - t_i`, with a custom gradient."""

    @xp.custom_gradient
    def f(logits: Tensor) -> tuple[Tensor, object]:
        total = xp.reduce_sum(targets, axis=-1, keepdims=True)

        def gradient(upstream: Tensor) -> Tensor:
            p = softmax(logits, mask)
            return total * p * (upstream - xp.reduce_sum(p * upstream, axis=-1, keepdims=True))

        exp, centred, rest, count = _exponentials(logits, mask)
        # at the top, p * total = (below + tied) / (rest + count): relative to one of the tied
        # targets, equal targets cancel
        is_below = centred < 0.0
        below = masked_sum(targets, is_below)[..., xp.newaxis]
        top = xp.reduce_max(
            xp.where(is_below, xp.limits(targets.dtype).min, targets), axis=-1, keepdims=True
        )
        tied = xp.where(is_below, xp.zeros_like(targets), targets - top)
        among = xp.reduce_sum(tied, axis=-1, keepdims=True) - count * tied
        at_top = (below + among - rest * targets) / (rest + count)
        return xp.where(is_below, total / (rest + count) * exp - targets, at_top), gradient

    return f(logits)


def _exponentials(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Computes `exp(x - max x)`, `x - max x`, the sum of the former below its top, and tie counts.

    The sum of all is the sum below the top and the number of items tied at the top (at least 1).
    """
    x = xp.where(mask, x, xp.constant(float("-inf"), x.dtype))
    # The lower bound keeps a list without items finite.
    top = xp.maximum(xp.reduce_max(x, axis=-1, keepdims=True), xp.limits(x.dtype).min)
    centred = x - top
    exp = xp.exp(centred)
    below = centred < 0.0
    rest = xp.reduce_sum(xp.where(below, exp, 0.0), axis=-1, keepdims=True)
    ties = xp.reduce_sum(xp.where(below, xp.zeros_like(x), 1.0), axis=-1, keepdims=True)
    return exp, centred, rest, xp.maximum(ties, 1.0)
