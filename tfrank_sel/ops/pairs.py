"""Sums over the pairs of items of each list, in memory that does not grow with their number.

Rows of the matrix of pairs are computed in chunks, and only the sums of rows are stored. Value and
gradient are sums of the same kind, so you can train on lists of any size: the sums are exact,
without sampling of pairs.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

# The summands of a row are first added in lanes: adding along a row is a chain of dependent
# operations, but lanes are independent of one another.
LANES = 4
SHORT = 64  # lists of fewer items have one lane
PAIRS_AT_A_TIME = 2**22


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


# Maps the items on both sides and the differences of their scores to the cost and the count of
# each pair.
PairFunction = Callable[[Items, Items, Tensor], tuple[Tensor, Tensor]]
Sums = tuple[Tensor, Tensor, Tensor]


def sums_over_pairs(function: PairFunction, items: Items) -> tuple[Tensor, Tensor]:
    """Sums the costs and the counts of the unordered pairs of each list.

    Args:
        function: Computes cost and count of each pair, from the first items, the second items, and
            the score of the first less that of the second. It must be symmetric in the two items,
            and 0 for an item with itself and for padding.
        items: The items.

    Returns:
        The two sums of each list, `[batch_size]`. The gradient of the first flows only to
        `items.scores`, through the differences; it is computed together with the sums.
    """

    def with_slope(first: Items, second: Items, difference: Tensor) -> Sums:
        with tf.GradientTape() as tape:
            tape.watch(difference)
            cost, count = function(first, second, difference)
        return cost, count, tape.gradient(cost, difference)

    @tf.custom_gradient
    def slopes_again(scores: Tensor, slopes: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> tuple[Tensor, None]:
            with tf.GradientTape() as tape:
                tape.watch(scores)
                slopes = _row_sums(with_slope, items._replace(scores=scores))[2]
            return tape.gradient(slopes, scores, upstream), None

        return slopes, gradient

    @tf.custom_gradient
    def f(scores: Tensor) -> tuple[tuple[Tensor, Tensor], object]:
        costs, counts, slopes = _row_sums(with_slope, items._replace(scores=scores))

        def gradient(upstream: Tensor, _: Tensor) -> Tensor:
            return upstream[:, tf.newaxis] * slopes_again(scores, slopes)

        # each pair is computed from both sides
        return tuple(0.5 * tf.reduce_sum(x, axis=-1) for x in (costs, counts)), gradient

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
                cost, count = function(first, second, difference)
            slope = inner.gradient(cost, difference)
        return cost, count, outer.gradient(slope, difference, unconnected_gradients="zero")

    _, counts, curvature = _row_sums(with_curvature, items)
    return curvature, 0.5 * tf.reduce_sum(counts, axis=-1)


def _row_sums(function: Callable[[Items, Items, Tensor], Sums], items: Items) -> Sums:
    """Adds up a function of each item with the others, `[batch_size, list_size]`.

    Lists are split into one block per lane; lane `l` pairs each block with the one `l` blocks
    behind it, cyclically.
    """
    is_short = items.scores.shape[1] is not None and items.scores.shape[1] < SHORT
    num_lanes = 1 if is_short else LANES
    batch_size, list_size = tf.unstack(tf.shape(items.scores))
    width = -(-list_size // num_lanes)  # of a block
    if not is_short:
        rows = tf.maximum(PAIRS_AT_A_TIME // tf.maximum(batch_size * list_size, 1), 1)
        chunks = tf.maximum(-(-width // rows), 1)
        rows = tf.maximum(-(-width // chunks), 1)
        width = chunks * rows

    def blocks(x: Tensor) -> Tensor:
        x = tf.pad(x, [[0, 0], [0, num_lanes * width - list_size]])
        return tf.reshape(x, [tf.shape(x)[0], num_lanes, width])

    blocked = Items(*map(blocks, items))
    behind = [
        Items(*(tf.roll(x, -k, axis=1)[:, :, tf.newaxis, :] for x in blocked))
        for k in range(num_lanes)
    ]

    def row_sums(chunk: Items) -> Sums:
        first = Items(*(x[..., tf.newaxis] for x in chunk))
        lanes = (function(first, second, first.scores - second.scores) for second in behind)
        return tuple(tf.reduce_sum(tf.add_n(x), axis=-1) for x in zip(*lanes, strict=True))

    sums = row_sums(blocked) if is_short else _in_chunks(row_sums, blocked, rows)
    return tuple(tf.reshape(x, [batch_size, num_lanes * width])[:, :list_size] for x in sums)


def _in_chunks(row_sums: Callable[[Items], Sums], blocked: Items, rows: Tensor) -> Sums:
    """Computes the sums of a number of rows of each block at a time."""

    def chunks(x: Tensor) -> Tensor:
        batch_size, num_lanes, width = tf.unstack(tf.shape(x))
        x = tf.reshape(x, [batch_size, num_lanes, width // rows, rows])
        return tf.transpose(x, [2, 0, 1, 3])

    sums = tf.map_fn(
        row_sums,
        Items(*map(chunks, blocked)),
        fn_output_signature=(blocked.scores.dtype,) * 3,
        parallel_iterations=1,
    )
    return tuple(tf.transpose(x, [1, 2, 0, 3]) for x in sums)
