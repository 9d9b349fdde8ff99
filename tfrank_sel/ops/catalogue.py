"""The best items of a whole catalogue, by parts of it."""

from typing import Any

import tensorflow as tf
from tensorflow import Tensor

ITEMS_AT_ONCE = 1 << 14
LOGITS_AT_ONCE = 1 << 22  # of a part of the states and one of the items, 16 MiB
GROUP = 32  # items of which the largest logit is taken first


def best_unseen(
    states: Tensor, items: Tensor, seen: Tensor | tf.RaggedTensor, k: int
) -> tuple[Tensor, Tensor]:
    """Returns the items of the largest products with each state, without those that were seen.

    Beside parts of the logits, the memory is linear in the states and in the items that were seen.

    Args:
        states: Vectors, float32 `[batch_size, num_factors]`.
        items: Vectors, `[1 + num_items, num_factors]`; the first row is that of padding.
        seen: Numbers of items, int32 `[batch_size, length]`, dense or ragged, 0 for padding.
        k: Number of items; positive.

    Returns:
        Numbers and scores, int32 and float32 `[batch_size, k]`, in descending order of the scores.
        If fewer items are left, the others are 0, with the lowest finite float32.
    """
    vectors = tf.cast(items, tf.float32)
    batch_size = states.shape[0] or tf.shape(states)[0]
    # at least one, also of no states
    parts = 1 + batch_size // (1 + LOGITS_AT_ONCE // min(ITEMS_AT_ONCE, vectors.shape[0]))
    size = -(-batch_size // parts)
    missing = parts * size - batch_size
    states = tf.pad(states, [[0, missing], [0, 0]])
    if not isinstance(seen, tf.RaggedTensor):
        seen = tf.pad(seen, [[0, missing], [0, 0]])

    def of_part(first: Any) -> tuple[Tensor, Tensor]:
        part = tf.slice(states, [first, 0], [size, states.shape[1]])
        if isinstance(seen, tf.RaggedTensor):
            of_states = seen[first : first + size]
            rows, numbers = tf.cast(of_states.value_rowids(), tf.int32), of_states.values
        else:
            # XLA knows the size of a dense tensor.
            shape = [size, tf.shape(seen)[1]]
            rows = tf.reshape(tf.broadcast_to(tf.range(size)[:, tf.newaxis], shape), [-1])
            numbers = tf.reshape(tf.slice(seen, [first, 0], shape), [-1])
        return _first(part, vectors, rows, numbers, k)

    if isinstance(parts, int) and parts == 1:
        numbers, scores = of_part(0)
    else:
        spec = tf.TensorSpec([None, k], tf.int32), tf.TensorSpec([None, k], tf.float32)
        found = tf.map_fn(
            of_part, tf.range(parts) * size, parallel_iterations=1, fn_output_signature=spec
        )
        numbers, scores = (tf.reshape(x, [-1, k])[:batch_size] for x in found)
    return tf.where(scores > tf.float32.min, numbers, 0), scores


def _first(
    states: Tensor, vectors: Tensor, rows: Tensor, seen: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """The `k` best of all items, without those that were seen, each by the state of a row."""
    num_items, num_factors = vectors.shape[0] - 1, vectors.shape[1]
    in_all = -(-num_items // GROUP) or 1
    groups = -(-in_all // -(-in_all * GROUP // ITEMS_AT_ONCE))  # of parts of one size
    width = groups * GROUP
    if num_items < width:  # otherwise, the last part overlaps: padding copies the catalogue
        vectors = tf.pad(vectors, [[0, width - num_items], [0, 0]])
    last = vectors.shape[0] - width
    count = min(groups, k + 1)  # one group may be large by padding, or by items before the part

    def step(first: Any, numbers: Tensor, scores: Tensor) -> tuple[Tensor, ...]:
        start = tf.minimum(first, last)
        of_part = tf.slice(vectors, [start, 0], [width, num_factors])
        logits = tf.matmul(states, of_part, transpose_b=True)
        columns = seen - start
        is_here = (columns >= 0) & (columns < width)
        places = tf.stack([rows, tf.where(is_here, columns, 0)], axis=1)
        most = tf.where(is_here, tf.float32.min, float("inf"))
        logits = tf.tensor_scatter_nd_min(logits, places, most)
        # the best are in the groups of the largest maxima, which are found in less time
        grouped = tf.reshape(logits, [-1, groups, GROUP])
        part = tf.reshape(start + tf.range(width), [groups, GROUP])
        largest = tf.where(part[:, -1] >= first, tf.reduce_max(grouped, axis=2), tf.float32.min)
        _, best = tf.math.top_k(largest, count)
        best = tf.sort(best, axis=1)  # equal scores keep the order of the items
        part, logits = tf.gather(part, best), tf.gather(grouped, best, batch_dims=1)
        logits = tf.where((part >= first) & (part <= num_items), logits, tf.float32.min)
        part, logits = (tf.reshape(x, [-1, count * GROUP]) for x in (part, logits))
        scores, places = tf.math.top_k(tf.concat([scores, logits], axis=1), k)
        numbers = tf.gather(tf.concat([numbers, part], axis=1), places, batch_dims=1)
        return first + width, numbers, scores

    shape = tf.stack([tf.shape(states)[0], k])
    start = 1, tf.zeros(shape, tf.int32), tf.fill(shape, tf.float32.min)
    if groups == in_all:
        return step(*start)[1:]
    either = tf.TensorShape([None, k])
    _, numbers, scores = tf.while_loop(
        lambda first, *_: first <= num_items,
        step,
        start,
        shape_invariants=(tf.TensorShape([]), either, either),
        # One iteration at a time holds one part in memory.
        parallel_iterations=1,
    )
    return numbers, scores
