"""Sums over the items behind each item, in lists sorted by descending labels.

Labels, scores and masks are `[batch_size, list_size]`, padding is last, and items of equal labels
form a group. Time is linear in the list size, up to a logarithmic factor. On a GPU, each item of
short lists is compared with all others instead, in one operation in place of a sequence of them.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

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
    size = tf.shape(labels)[1]
    position = tf.range(size)
    differs = (labels[:, 1:] != labels[:, :-1]) | (mask[:, 1:] != mask[:, :-1])
    starts = tf.pad(differs, [[0, 0], [1, 0]], constant_values=True)
    ends = tf.pad(differs, [[0, 0], [0, 1]], constant_values=True)
    first, behind = _least_behind(
        tf.reverse(tf.where(starts, -position, 0), [1]), tf.where(ends, position + 1, size)
    )
    return LabelGroups(-tf.reverse(first, [1]), behind)


def mean_ranks(labels: Tensor, mask: Tensor) -> Tensor:
    """Computes ranks by descending labels, in any order and of any sign; ties have their mean.

    It is 0 on padding.
    """
    indices = ranking.order(labels, mask)
    among = groups(at(labels, indices), at(mask, indices))
    ranks = tf.cast(among.first + among.behind + 1, labels.dtype) / 2.0
    return tf.where(mask, ranking.unsort(ranks, indices), 0.0)


def num_pairs(labels: Tensor, mask: Tensor) -> Tensor:
    """Counts the pairs of items of different labels of each list, `[batch_size]`."""
    labels, mask = ranking.sort_by(labels, labels, mask, mask=mask)
    batch_size, size = tf.unstack(tf.shape(labels))
    differs = tf.cast(labels[:, 1:] != labels[:, :-1], tf.int32)
    group = tf.pad(tf.cumsum(differs, axis=1), [[0, 0], [1, 0]])[:, :size]
    group += size * tf.range(batch_size)[:, tf.newaxis]
    items = tf.cast(mask, labels.dtype)
    items = tf.math.unsorted_segment_sum(items, group, batch_size * size)
    items = tf.reshape(items, [batch_size, size])
    return tf.reduce_sum(items * tf.cumsum(items, axis=1, exclusive=True), axis=1)


def sort(labels: Tensor, scores: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    """Sorts labels, at least 0, and scores and mask of each list; ties keep their order."""
    size = tf.shape(labels)[1]
    # abs, because both the bits of -0 and the order of XLA put it below 0
    if labels.dtype == tf.float32:
        # one number for label and position: the bits of non-negative floats sort like the floats
        positions = tf.range(tf.cast(size, tf.int64) - 1, -1, -1)
        bits = tf.cast(tf.bitcast(tf.abs(labels), tf.int32), tf.int64)
        keys = tf.where(mask, bits * 2**32 + positions, -1)
        keys = tf.math.top_k(keys, k=size).values
        mask = keys >= 0
        keys = tf.where(mask, keys, 0)
        bits = tf.bitwise.right_shift(keys, 32)
        labels = tf.bitcast(tf.cast(bits, tf.int32), tf.float32)
        order = size - 1 - tf.cast(keys - bits * 2**32, tf.int32)
    else:
        keys = tf.where(mask, tf.abs(labels), tf.constant(-math.inf, labels.dtype))
        top = tf.math.top_k(keys, k=size)
        mask, order = top.values > -math.inf, top.indices
        labels = tf.where(mask, top.values, 0.0)
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
    least = tf.constant(x.dtype.min, x.dtype)
    x = tf.where(mask, x, least)
    [negative_top] = _least_behind(tf.stop_gradient(-x))
    top = -negative_top
    if _is_compared(x):
        counts = _is_behind(x) & mask[:, tf.newaxis, :]
        exponents = x[:, tf.newaxis, :] - top[:, :, tf.newaxis]
        exp = tf.exp(tf.where(counts, exponents, tf.zeros_like(exponents)))
        total = tf.reduce_sum(tf.where(counts, exp, tf.zeros_like(exp)), axis=2)
    else:
        exp = tf.where(mask, tf.exp(x - top), tf.zeros_like(x))
        total = _decayed_sums(exp, tf.exp(top[:, 1:] - top[:, :-1]))
    behind_all = [[0, 0], [0, 1]]
    return tf.pad(top, behind_all, constant_values=least), tf.pad(total, behind_all)


def log_sum_exp_below(x: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Computes `log sum_j exp(x_j)` over the items of lower labels than each, in two terms.

    The first is the largest `x_j`, -inf for none. Their sum is rounded if it is far from 0.
    """
    behind = groups(labels, mask).behind
    top, total = (at(part, behind) for part in sum_exp_behind(x, mask))
    some = total > 0.0
    log_sum = tf.math.log(tf.where(some, total, tf.ones_like(total)))
    return tf.where(some, top, tf.constant(-math.inf, x.dtype)), log_sum


def at(x: Tensor, indices: Tensor) -> Tensor:
    """Gathers the values at some `indices` of each list."""
    return tf.gather(x, indices, axis=1, batch_dims=1)


def _least_behind(*x: Tensor) -> list[Tensor]:
    """Computes `min_{j >= i} x_j` of each of some tensors."""
    if _is_compared(x[0]):
        return [
            tf.reduce_min(tf.where(_is_behind(y), y[:, tf.newaxis, :], y.dtype.max), 2) for y in x
        ]

    def double(step: Tensor | int, *x: Tensor) -> list[Tensor]:
        return [tf.minimum(y, _shift(y, step, y.dtype.max)) for y in x]

    return _double(double, *x)


def _is_compared(x: Tensor) -> bool:
    """Whether each item is compared with all of its list, for a GPU."""
    return layout.is_wide() and layout.at_once(x.shape, x.shape[1])


def _is_behind(x: Tensor) -> Tensor:
    """Whether item `j` is item `i` or behind it, `[list_size, list_size]`."""
    position = tf.range(x.shape[1])
    return position >= position[:, tf.newaxis]


def _decayed_sums(x: Tensor, decay: Tensor) -> Tensor:
    """Computes `y_i = x_i + decay_i * y_(i+1)`, where `decay` has one column less than `x`."""

    @tf.custom_gradient
    def f(x: Tensor) -> tuple[Tensor, object]:
        # its transpose runs in the other direction: x_j gets decayed values from each i before it
        def gradient(upstream: Tensor) -> Tensor:
            reached = _decayed_sums(tf.reverse(upstream, [1]), tf.reverse(decay, [1]))
            return tf.reverse(reached, [1])

        def double(step: Tensor | int, y: Tensor, d: Tensor) -> list[Tensor]:
            return [y + d * _shift(y, step, 0.0), d * _shift(d, step, 0.0)]

        return _double(double, x, tf.pad(decay, [[0, 0], [0, 1]]))[0], gradient

    return f(x)


def _shift(x: Tensor, step: Tensor | int, fill: float) -> Tensor:
    """Shifts values by `step` positions to the front."""
    shape = tf.shape(x)
    # XLA slices at any place, but only where the shape of the padded values is known
    width = step if isinstance(step, int) else shape[1]
    padded = tf.pad(x, [[0, 0], [0, width]], constant_values=tf.constant(fill, x.dtype))
    return padded[:, step:] if isinstance(step, int) else tf.slice(padded, [0, step], shape)


def _double(double: Callable[..., list[Tensor]], *state: Tensor) -> list[Tensor]:
    """Repeats a part of a scan with steps of 1, 2, 4, ... that are shorter than a list."""
    static_size, scanned = state[0].shape[1], list(state)
    if static_size is not None:
        for power in range(max(0, static_size - 1).bit_length()):
            scanned = double(2**power, *scanned)
        return scanned
    size = tf.shape(state[0])[1]
    return tf.while_loop(
        lambda step, *_: step < size,
        lambda step, *state: (2 * step, *double(step, *state)),
        (tf.constant(1), *state),
    )[1:]
