"""Sums over the pairs of items of each list, in memory that does not grow with their number.

The matrix of pairs is computed in blocks, each pair once, and only sums are stored. Value and
gradient are sums of the same kind, so you can train on lists of any size: the sums are exact,
without sampling of pairs.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

PAIRS_AT_A_TIME = 2**15  # what operations leave in a cache is there for the next
PAIRS_ON_GPU = 2**22
WIDTH = 32  # of a block, at least: operations on short rows are slow


class Items(NamedTuple):
    """Items of lists, or the items on one side of pairs.

    Every field is `[batch_size, list_size]`; on one side of pairs they are of such shapes that
    those of both sides broadcast to `[..., rows, columns]`.

    Attributes:
        scores: Their scores.
        labels: Their labels.
        mask: True for the valid ones.
        weights: Their weights.
        ranks: Their ranks by score, 1-based; of batch size 1, because items are in that order.
        gains: Their gains for a lambda weight.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor
    weights: Tensor
    ranks: Tensor
    gains: Tensor


Sums = tuple[Tensor, Tensor, Tensor]
# Maps the items on both sides and the differences of their scores to the cost, the weight and the
# count of each pair.
PairFunction = Callable[[Items, Items, Tensor], Sums]


def sums_over_pairs(function: PairFunction, items: Items) -> tuple[Tensor, Tensor]:
    """Sums the weighted costs and the counts of the unordered pairs of each list.

    Args:
        function: Computes cost, weight and count of each pair, from the first items, the second
            items, and the score of the first less that of the second. It must be symmetric in the
            two items, with weight and count 0 for an item with itself and for padding. No gradient
            flows through weights.
        items: The items.

    Returns:
        The two sums of each list, `[batch_size]`. The gradient of the first flows only to
        `items.scores`, through the differences; it is computed together with the sums.
    """

    def with_slope(first: Items, second: Items, difference: Tensor) -> Sums:
        with tf.GradientTape() as tape:
            tape.watch(difference)
            cost, weight, count = function(first, second, difference)
        slope = tape.gradient(cost, difference, weight)
        return tf.math.multiply_no_nan(cost, weight), count, slope

    @tf.custom_gradient
    def slopes_again(scores: Tensor, slopes: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> tuple[Tensor, None]:
            with tf.GradientTape() as tape:
                tape.watch(scores)
                slopes = _sums(with_slope, items._replace(scores=scores), -1.0)[2]
            return tape.gradient(slopes, scores, upstream), None

        return slopes, gradient

    @tf.custom_gradient
    def f(scores: Tensor) -> tuple[tuple[Tensor, Tensor], object]:
        costs, counts, slopes = _sums(with_slope, items._replace(scores=scores), -1.0)

        def gradient(upstream: Tensor, _: Tensor) -> Tensor:
            return upstream[:, tf.newaxis] * slopes_again(scores, slopes)

        return (costs, counts), gradient

    return f(items.scores)


def curvatures(function: PairFunction, items: Items) -> tuple[Tensor, Tensor]:
    """Sums the second derivatives of the costs of the pairs of each item.

    Args:
        function: As in `sums_over_pairs`.
        items: The items.

    Returns:
        The second derivative of the first of the `sums_over_pairs` in each score,
        `[batch_size, list_size]`, and the second of these sums, `[batch_size]`.
    """

    def with_curvature(first: Items, second: Items, difference: Tensor) -> Sums:
        with tf.GradientTape() as outer:
            outer.watch(difference)
            with tf.GradientTape() as inner:
                inner.watch(difference)
                cost, weight, count = function(first, second, difference)
            slope = inner.gradient(cost, difference, weight)
        return cost, count, outer.gradient(slope, difference, unconnected_gradients="zero")

    _, counts, curvature = _sums(with_curvature, items, 1.0)
    return curvature, counts


def _sums(function: Callable[[Items, Items, Tensor], Sums], items: Items, parity: float) -> Sums:
    """Adds up three functions of the pairs: two by list, `[batch_size]`, the third by item.

    Lists are split into an odd number of blocks. Each block is paired with itself, from both sides,
    and with those behind it, cyclically, up to half way round: so two blocks meet once.

    Args:
        function: Computes the functions of each pair.
        items: The items.
        parity: 1 if the third function stays the same when the items swap, -1 if its sign changes.
    """
    batch_size, list_size = tf.unstack(tf.shape(items.scores))
    size = PAIRS_ON_GPU if tf.config.list_logical_devices("GPU") else PAIRS_AT_A_TIME
    widest = tf.maximum(size // tf.maximum(batch_size * list_size, 1), WIDTH)
    half = -(-list_size // widest) // 2
    num_blocks = 2 * half + 1
    width = -(-list_size // num_blocks)

    def blocks(x: Tensor) -> Tensor:
        x = tf.pad(x, [[0, 0], [0, num_blocks * width - list_size]])
        return tf.reshape(x, [tf.shape(x)[0], num_blocks, width])

    def paired(second: Items) -> tuple[Tensor, Tensor, Tensor]:
        second = Items(*(x[:, :, tf.newaxis, :] for x in second))
        cost, count, by_item = function(first, second, first.scores - second.scores)
        of_rows = (tf.reduce_sum(x, axis=-1) for x in (cost, count))
        return *(tf.reduce_sum(x, axis=[1, 2]) for x in of_rows), by_item

    def add(step: Tensor, cost: Tensor, count: Tensor, total: Tensor) -> tuple[Tensor, ...]:
        more_cost, more_count, by_item = paired(
            Items(*(tf.roll(x, -step, axis=1) for x in blocked))
        )
        behind = tf.roll(tf.reduce_sum(by_item, axis=-2), step, axis=1)
        total += tf.reduce_sum(by_item, axis=-1) + parity * behind
        return step + 1, cost + more_cost, count + more_count, total

    blocked = Items(*map(blocks, items))
    first = Items(*(x[..., tf.newaxis] for x in blocked))
    cost, count, by_item = paired(blocked)
    sums = 0.5 * cost, 0.5 * count, tf.reduce_sum(by_item, axis=-1)
    if items.scores.shape[1] is None or items.scores.shape[1] > WIDTH:
        _, *sums = tf.while_loop(
            lambda step, *_: step <= half, add, (1, *sums), maximum_iterations=half
        )
    cost, count, total = sums
    return cost, count, tf.reshape(total, [batch_size, num_blocks * width])[:, :list_size]
