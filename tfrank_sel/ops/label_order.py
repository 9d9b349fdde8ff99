"""Sums over the items behind each item, in lists sorted by descending labels.

Labels, scores and masks are `[batch_size, list_size]`, padding is last, and items of equal labels
form a group. Time is linear in the list size, up to a logarithmic factor. On a GPU, each item of
short lists is compared with all others instead, in one operation in place of a sequence of them.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import layout, ranking


class LabelGroups(NamedTuple):
    """The group of each item.

    Attributes:
        first: The position of the first item of the group, `[batch_size, list_size]`, int32.
        behind: The position behind the last item of the group.
    """

    first: Tensor
    behind: Tensor


def groups(labels: Tensor, mask: Tensor) -> LabelGroups:
    """Finds the groups of equal labels; padding is a separate group."""
    size = xp.shape(labels)[1]
    position = xp.range(size)
    differs = (labels[:, 1:] != labels[:, :-1]) | (mask[:, 1:] != mask[:, :-1])
    starts = xp.pad(differs, [[0, 0], [1, 0]], constant_values=True)
    ends = xp.pad(differs, [[0, 0], [0, 1]], constant_values=True)
    first, behind = _least_behind(
        xp.reverse(xp.where(starts, -position, 0), [1]), xp.where(ends, position + 1, size)
    )
    return LabelGroups(-xp.reverse(first, [1]), behind)


def mean_ranks(labels: Tensor, mask: Tensor) -> Tensor:
    """Computes ranks by descending labels, in any order and of any sign; ties have their mean.

    It is 0 on padding.
    """
    indices = ranking.order(labels, mask)
    among = groups(at(labels, indices), at(mask, indices))
    ranks = xp.cast(among.first + among.behind + 1, labels.dtype) / 2.0
    return xp.where(mask, ranking.unsort(ranks, indices), 0.0)


def num_pairs(labels: Tensor, mask: Tensor) -> Tensor:
    """Counts the pairs of items of different labels of each list, `[batch_size]`."""
    labels, mask = ranking.sort_by(labels, labels, mask, mask=mask)
    batch_size, size = xp.unstack(xp.shape(labels))
    differs = xp.cast(labels[:, 1:] != labels[:, :-1], xp.int32)
    group = xp.pad(xp.cumsum(differs, axis=1), [[0, 0], [1, 0]])[:, :size]
    group = group + size * xp.range(batch_size)[:, xp.newaxis]
    items = xp.cast(mask, labels.dtype)
    items = xp.unsorted_segment_sum(items, group, batch_size * size)
    items = xp.reshape(items, [batch_size, size])
    return xp.reduce_sum(items * xp.cumsum(items, axis=1, exclusive=True), axis=1)


def sort(labels: Tensor, scores: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Sorts labels, at least 0, and scores and mask of each list; ties keep their order."""
    size = xp.shape(labels)[1]
    # abs, because both the bits of -0 and the order of XLA put it below 0
    if labels.dtype == xp.float32:
        # one number for label and position: the bits of non-negative floats sort like the floats
        positions = xp.range(xp.cast(size, xp.int64) - 1, -1, -1)
        bits = xp.cast(xp.bitcast(xp.abs(labels), xp.int32), xp.int64)
        keys = xp.where(mask, bits * 2**32 + positions, -1)
        keys = xp.top_k(keys, k=size).values
        mask = keys >= 0
        keys = xp.where(mask, keys, 0)
        bits = xp.right_shift(keys, 32)
        labels = xp.bitcast(xp.cast(bits, xp.int32), xp.float32)
        order = size - 1 - xp.cast(keys - bits * 2**32, xp.int32)
    else:
        keys = xp.where(mask, xp.abs(labels), xp.constant(-math.inf, labels.dtype))
        top = xp.top_k(keys, k=size)
        mask, order = top.values > -math.inf, top.indices
        labels = xp.where(mask, top.values, 0.0)
    return labels, at(scores, order), mask


def sum_exp_behind(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Computes `sum_{j >= i} exp(x_j)` for each position `i`, and behind the last.

    Each sum is relative to its largest term, so that the sum and its gradient, `exp(x_j)` divided
    by the sum, are accurate for any size of the terms.

    Args:
        x: Exponents.
        mask: True for the items that count.

    Returns:
        The largest exponents `t` and the sums of `exp(x_j - t)`, `[batch_size, list_size + 1]`:
        the least number of the dtype, and 0, where no item counts.
    """
    least = xp.constant(xp.limits(x.dtype).min, x.dtype)
    x = xp.where(mask, x, least)
    [negative_top] = _least_behind(xp.stop_gradient(-x))
    top = -negative_top
    if _is_compared(x):
        counts = _is_behind(x) & mask[:, xp.newaxis, :]
        exponents = x[:, xp.newaxis, :] - top[:, :, xp.newaxis]
        exp = xp.exp(xp.where(counts, exponents, xp.zeros_like(exponents)))
        total = xp.reduce_sum(xp.where(counts, exp, xp.zeros_like(exp)), axis=2)
    else:
        exp = xp.where(mask, xp.exp(x - top), xp.zeros_like(x))
        total = _decayed_sums(exp, xp.exp(top[:, 1:] - top[:, :-1]))
    behind_all = [[0, 0], [0, 1]]
    return xp.pad(top, behind_all, constant_values=least), xp.pad(total, behind_all)


def log_sum_exp_below(x: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Computes `log sum_j exp(x_j)` over the items of lower labels than each, in two terms.

    The first is the largest `x_j`, -inf for none. Their sum is rounded if it is far from 0.
    """
    behind = groups(labels, mask).behind
    top, total = (at(part, behind) for part in sum_exp_behind(x, mask))
    some = total > 0.0
    log_sum = xp.log(xp.where(some, total, xp.ones_like(total)))
    return xp.where(some, top, xp.constant(-math.inf, x.dtype)), log_sum


def at(x: Tensor, indices: Tensor) -> Tensor:
    """Gathers the values at some `indices` of each list."""
    return xp.gather(x, indices, axis=1, batch_dims=1)


def _least_behind(*x: Tensor) -> list[Tensor]:
    """Computes `min_{j >= i} x_j` of each of some tensors."""
    if _is_compared(x[0]):
        return [
            xp.reduce_min(xp.where(_is_behind(y), y[:, xp.newaxis, :], xp.limits(y.dtype).max), 2)
            for y in x
        ]

    def double(step: Tensor | int, *x: Tensor) -> list[Tensor]:
        return [xp.minimum(y, _shift(y, step, xp.limits(y.dtype).max)) for y in x]

    return _double(double, *x)


def _is_compared(x: Tensor) -> bool:
    """Whether each item is compared with all of its list, for a GPU."""
    return layout.is_wide() and layout.at_once(x.shape, x.shape[1])


def _is_behind(x: Tensor) -> Tensor:
    """Whether item `j` is item `i` or behind it, `[list_size, list_size]`."""
    position = xp.range(x.shape[1])
    return position >= position[:, xp.newaxis]


def _decayed_sums(x: Tensor, decay: Tensor) -> Tensor:
    """Computes `y_i = x_i + decay_i * y_(i+1)`, where `decay` has one column less than `x`."""

    @xp.custom_gradient
    def f(x: Tensor) -> tuple[Tensor, object]:
        # its transpose runs in the other direction: x_j gets decayed values from each i before it
        def gradient(upstream: Tensor) -> Tensor:
            reached = _decayed_sums(xp.reverse(upstream, [1]), xp.reverse(decay, [1]))
            return xp.reverse(reached, [1])

        def double(step: Tensor | int, y: Tensor, d: Tensor) -> list[Tensor]:
            return [y + d * _shift(y, step, 0.0), d * _shift(d, step, 0.0)]

        return _double(double, x, xp.pad(decay, [[0, 0], [0, 1]]))[0], gradient

    return f(x)


def _shift(x: Tensor, step: Tensor | int, fill: float) -> Tensor:
    """Shifts values by `step` positions to the front."""
    shape = xp.shape(x)
    # XLA slices at any place, but only where the shape of the padded values is known
    width = step if isinstance(step, int) else shape[1]
    padded = xp.pad(x, [[0, 0], [0, width]], constant_values=xp.constant(fill, x.dtype))
    return padded[:, step:] if isinstance(step, int) else xp.slice(padded, [0, step], shape)


def _double(double: Callable[..., list[Tensor]], *state: Tensor) -> list[Tensor]:
    """Repeats a part of a scan with steps of 1, 2, 4, ... that are shorter than a list."""
    static_size, scanned = state[0].shape[1], list(state)
    if static_size is not None:
        for power in range(max(0, static_size - 1).bit_length()):
            scanned = double(2**power, *scanned)
        return scanned
    size = xp.shape(state[0])[1]
    return xp.while_loop(
        lambda step, *_: step < size,
        lambda step, *state: (2 * step, *double(step, *state)),
        (xp.constant(1), *state),
    )[1:]
