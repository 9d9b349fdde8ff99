"""Sums over the items behind each item, in lists that are sorted by descending labels.

Labels, scores and masks are `[batch_size, list_size]`, padding stands last, and items of equal
labels form a group. All work is linear in the list size, but for a logarithm of it.
"""

import math
from typing import NamedTuple

import tensorflow as tf


class Groups(NamedTuple):
    """The group of each item.

    Attributes:
        first: The place of the first item of the group, `[batch_size, list_size]`, int32.
        behind: The place behind the last item of the group.
    """

    first: tf.Tensor
    behind: tf.Tensor


def groups(labels: tf.Tensor, mask: tf.Tensor) -> Groups:
    """Finds the groups of equal labels; padding is a group of its own."""
    size = tf.shape(labels)[1]
    place = tf.range(size)
    differs = (labels[:, 1:] != labels[:, :-1]) | (mask[:, 1:] != mask[:, :-1])
    starts = tf.pad(differs, [[0, 0], [1, 0]], constant_values=True)
    ends = tf.pad(differs, [[0, 0], [0, 1]], constant_values=True)
    first = -_least_behind(tf.reverse(tf.where(starts, -place, 0), [1]))
    return Groups(tf.reverse(first, [1]), _least_behind(tf.where(ends, place + 1, size)))


def log_sum_exp_behind(x: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Computes `log sum_{j >= i} exp(x_j)` for each place `i`, and behind the last place.

    Each sum is relative to its own largest term, so that it is exact wherever that lies, and its
    gradient, `exp(x_j)` over the sum, is so, too.

    Args:
        x: Exponents.
        mask: True for those that count.

    Returns:
        The logarithms, `[batch_size, list_size + 1]`; -inf where no item counts.
    """
    x = tf.where(mask, x, tf.constant(x.dtype.min, x.dtype))
    top = -_least_behind(tf.stop_gradient(-x))
    exp = tf.where(mask, tf.exp(x - top), tf.zeros_like(x))
    total = _decayed_sums(exp, tf.exp(top[:, 1:] - top[:, :-1]))
    some = total > 0.0
    logs = tf.where(some, top + tf.math.log(tf.where(some, total, tf.ones_like(total))), -math.inf)
    return tf.pad(logs, [[0, 0], [0, 1]], constant_values=tf.constant(-math.inf, x.dtype))


def at(x: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    """Gathers what stands at `places` of each list."""
    return tf.gather(x, places, axis=1, batch_dims=1)


def _least_behind(x: tf.Tensor) -> tf.Tensor:
    """Computes `min_{j >= i} x_j`."""

    def double(step: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return 2 * step, tf.minimum(x, _moved(x, step, x.dtype.max))

    return _doubling(double, tf.shape(x)[1], x)[0]


def _decayed_sums(x: tf.Tensor, decay: tf.Tensor) -> tf.Tensor:
    """Computes `y_i = x_i + decay_i * y_(i+1)`, where `decay` has one column less than `x`."""

    @tf.custom_gradient
    def f(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        # its transpose runs the other way: what reaches x_j has decayed from each i before it
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            reached = _decayed_sums(tf.reverse(upstream, [1]), tf.reverse(decay, [1]))
            return tf.reverse(reached, [1])

        def double(step: tf.Tensor, y: tf.Tensor, d: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return 2 * step, y + d * _moved(y, step, 0.0), d * _moved(d, step, 0.0)

        padded = tf.pad(decay, [[0, 0], [0, 1]])
        return _doubling(double, tf.shape(x)[1], x, padded)[0], gradient

    return f(x)


def _moved(x: tf.Tensor, step: tf.Tensor, fill: float) -> tf.Tensor:
    """Moves what stands `step` places behind to each place."""
    left = tf.range(tf.shape(x)[1]) < tf.shape(x)[1] - step
    return tf.where(left, tf.roll(x, -step, axis=1), tf.constant(fill, x.dtype))


def _doubling(body: object, size: tf.Tensor, *state: tf.Tensor) -> list[tf.Tensor]:
    """Repeats a scan's body with steps of 1, 2, 4, ... as long as they are shorter than a list."""
    return tf.while_loop(lambda step, *_: step < size, body, (tf.constant(1), *state))[1:]
