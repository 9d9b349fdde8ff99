"""Sums over the pairs of items of each list, in memory that does not grow with their number.

Rows of the matrix of pairs are computed in chunks, and within a chunk nothing but the sums of its
rows is kept. Value and gradient are sums of the same kind, so that a list of any size can be
trained on: the sums are exact, and no pair is sampled.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

# Summands of a row are added up in lanes first: adding along a row is a chain of operations of
# which each waits for the one before, and lanes are independent of one another.
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
        ranks: Their ranks by score, 1-based; of batch size 1, since items are in that order.
        gains: What each is worth to a lambda weight.
    """

    scores: tf.Tensor
    labels: tf.Tensor
    mask: tf.Tensor
    weights: tf.Tensor
    ranks: tf.Tensor
    gains: tf.Tensor


# of the items on both sides and the differences of their scores, a number for each pair
PairFunction = Callable[[Items, Items, tf.Tensor], tf.Tensor]


def sum_over_pairs(function: PairFunction, items: Items) -> tf.Tensor:
    """Adds up a function of the unordered pairs of each list, differentiable in the scores.

    Args:
        function: Computes a number for each pair, of the first items, the second items, and the
            score of the first less that of the second. It must be symmetric: the same for a pair
            the other way round. It must be 0 for an item with itself, and where one is padding.
        items: The items.

    Returns:
        The sum of each list, `[batch_size]`. Its gradient flows to `items.scores` alone, through
        the differences.
    """

    def slope(first: Items, second: Items, difference: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            tape.watch(difference)
            value = function(first, second, difference)
        return tape.gradient(value, difference)

    @tf.custom_gradient
    def f(scores: tf.Tensor) -> tuple[tf.Tensor, object]:
        here = items._replace(scores=scores)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            return upstream[:, tf.newaxis] * _row_sums(slope, here, symmetric=False)

        return tf.reduce_sum(_row_sums(function, here, symmetric=True), axis=-1), gradient

    return f(items.scores)


def _row_sums(function: PairFunction, items: Items, *, symmetric: bool) -> tf.Tensor:
    """Adds up a function of each item with the others, `[batch_size, list_size]`.

    If it is symmetric, only one item of a pair counts the pair. Lists are cut into as many blocks
    as there are lanes; a lane pairs each block with the one that lies so many blocks behind it,
    where the first follows the last.
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

    def blocks(x: tf.Tensor) -> tf.Tensor:
        x = tf.pad(x, [[0, 0], [0, num_lanes * width - list_size]])
        return tf.reshape(x, [tf.shape(x)[0], num_lanes, width])

    blocked = Items(*map(blocks, items))
    lanes = range(num_lanes // 2 + 1 if symmetric else num_lanes)
    behind = [Items(*(tf.roll(x, -k, axis=1)[:, :, tf.newaxis, :] for x in blocked)) for k in lanes]

    def row_sums(chunk: Items) -> tf.Tensor:
        first = Items(*(x[..., tf.newaxis] for x in chunk))
        # the block itself holds each pair twice, and the opposite one is met from both sides
        halves = {0, num_lanes // 2} if symmetric else {}
        terms = (
            (0.5 if k in halves else 1.0) * function(first, x, first.scores - x.scores)
            for k, x in zip(lanes, behind, strict=True)
        )
        return tf.reduce_sum(sum(terms, tf.zeros([], items.scores.dtype)), axis=-1)

    sums = row_sums(blocked) if is_short else _in_chunks(row_sums, blocked, rows)
    return tf.reshape(sums, [batch_size, num_lanes * width])[:, :list_size]


def _in_chunks(
    row_sums: Callable[[Items], tf.Tensor], blocked: Items, rows: tf.Tensor
) -> tf.Tensor:
    """Computes the sums of so many rows of each block at a time."""

    def chunks(x: tf.Tensor) -> tf.Tensor:
        batch_size, num_lanes, width = tf.unstack(tf.shape(x))
        x = tf.reshape(x, [batch_size, num_lanes, width // rows, rows])
        return tf.transpose(x, [2, 0, 1, 3])

    sums = tf.map_fn(
        row_sums,
        Items(*map(chunks, blocked)),
        fn_output_signature=blocked.scores.dtype,
        parallel_iterations=1,
    )
    return tf.transpose(sums, [1, 2, 0, 3])
