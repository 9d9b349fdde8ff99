"""The best items of a whole catalogue, by parts of it."""

from typing import Any

import tensorflow as tf
from tensorflow import Tensor

ITEMS_AT_ONCE = 1 << 16
GROUP = 32  # items of which the largest logit is taken first


def best_unseen(states: Tensor, items: Tensor, seen: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Returns the items of the largest products with each state, without those that were seen.

    Args:
        states: Vectors, float32 `[batch_size, num_factors]`.
        items: Vectors, `[1 + num_items, num_factors]`; the first row is that of padding.
        seen: Numbers of items, int32 `[batch_size, length]`, 0 for padding.
        k: Number of items; positive.

    Returns:
        Numbers and scores, int32 and float32 `[batch_size, k]`, in descending order of the scores.
        If fewer items are left, the others are 0, with the lowest finite float32.
    """
    # as many as could be seen are found in addition
    numbers, scores = _first(states, tf.cast(items, tf.float32), k + _size(seen, 1))
    is_seen = tf.reduce_any(numbers[:, :, tf.newaxis] == seen[:, tf.newaxis], axis=2)
    scores, places = tf.math.top_k(tf.where(is_seen, tf.float32.min, scores), k)
    numbers = tf.gather(numbers, places, batch_dims=1)
    return tf.where(scores > tf.float32.min, numbers, 0), scores


def _size(x: Tensor, axis: int) -> Any:
    return x.shape[axis] or tf.shape(x)[axis]


def _first(states: Tensor, vectors: Tensor, k: Any) -> tuple[Tensor, Tensor]:
    """The `k` best of all items."""
    num_items, num_factors = vectors.shape[0] - 1, vectors.shape[1]
    groups = -(-min(ITEMS_AT_ONCE, num_items) // GROUP)
    width = groups * GROUP
    vectors = tf.pad(vectors, [[0, max(width - num_items, 0)], [0, 0]])
    last = vectors.shape[0] - width
    count = min(groups, k) if isinstance(k, int) else tf.minimum(groups, k)

    def step(first: Tensor, numbers: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        start = tf.minimum(first, last)  # the last part overlaps
        part = start + tf.range(width)
        of_part = tf.slice(vectors, [start, 0], [width, num_factors])
        logits = tf.matmul(states, of_part, transpose_b=True)
        logits = tf.where((part >= first) & (part <= num_items), logits, tf.float32.min)
        # the best are in the groups of the largest maxima, which are found in less time
        grouped = tf.reshape(logits, [-1, groups, GROUP])
        _, best = tf.math.top_k(tf.reduce_max(grouped, axis=2), count)
        best = tf.sort(best, axis=1)  # equal scores keep the order of the items
        part = tf.gather(tf.reshape(part, [-1, GROUP]), best)
        logits = tf.gather(grouped, best, batch_dims=1)
        part, logits = (tf.reshape(x, [-1, count * GROUP]) for x in (part, logits))
        scores, places = tf.math.top_k(tf.concat([scores, logits], axis=1), k)
        numbers = tf.gather(tf.concat([numbers, part], axis=1), places, batch_dims=1)
        return first + width, numbers, scores

    shape = tf.stack([tf.shape(states)[0], k])
    start = tf.constant(1), tf.zeros(shape, tf.int32), tf.fill(shape, tf.float32.min)
    either = tf.TensorShape([None, k if isinstance(k, int) else None])
    _, numbers, scores = tf.while_loop(
        lambda first, *_: first <= num_items,
        step,
        start,
        shape_invariants=(tf.TensorShape([]), either, either),
        parallel_iterations=1,  # one part in memory
    )
    return numbers, scores
