"""Distributions of ranks, with independent pairs of items.

Item `i` is ahead of item `j` with probability `ahead[b, i, j]`, and behind with `behind`; both are
`[batch_size, list_size, list_size]`. With probability 1, an item is behind itself and padding is
behind all. Time is cubic in the list size, memory quadratic.
"""

import math

import tensorflow as tf


def ahead_and_behind(
    scores: tf.Tensor, mask: tf.Tensor, sigma: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes the probabilities of all pairs, for scores with Gaussian noise.

    Args:
        scores: Mean score of each item, `[batch_size, list_size]`.
        mask: True for the valid items.
        sigma: Standard deviation of each score.

    Returns:
        `ahead = Phi((s_i - s_j) / (sigma * sqrt(2)))` and `behind = 1 - ahead`, neither of them
        rounded to 1 less the other.
    """
    x = _differences(scores) / (2.0 * sigma)
    pairs = _pairs(mask)
    ahead = tf.where(pairs, 0.5 * tf.math.erfc(-x), tf.zeros_like(x))
    return ahead, tf.where(pairs, 0.5 * tf.math.erfc(x), tf.ones_like(x))


def rank_distributions(ahead: tf.Tensor, behind: tf.Tensor) -> tf.Tensor:
    """Computes the probability of each 0-based rank of each item.

    Args:
        ahead: Probability that item `i` is ahead of item `j`.
        behind: Probability that it is not.

    Returns:
        The probability that item `j` has rank `r`, `[batch_size, list_size, list_size]`.
    """
    size = tf.shape(ahead)[-1]
    first = tf.one_hot(0, size, dtype=ahead.dtype)

    def add(i: tf.Tensor, p: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        # the last rank is not reached before all other items are added, so the rolled value is 0
        later = tf.roll(p, 1, axis=-1)
        return i + 1, p * behind[:, i, :, tf.newaxis] + later * ahead[:, i, :, tf.newaxis]

    start = tf.broadcast_to(first, tf.shape(ahead))
    return tf.while_loop(lambda i, _: i < size, add, (tf.constant(0), start))[1]


def expected_discounts(
    scores: tf.Tensor, mask: tf.Tensor, sigma: float, discounts: tf.Tensor
) -> tf.Tensor:
    """Computes the expected discount of each item, for scores with Gaussian noise.

    Its gradient needs the rank distribution of each item without each other item. This is computed
    by removing the other item again, without storing intermediate results.

    Args:
        scores: Mean score of each item, `[batch_size, list_size]`.
        mask: True for the valid items.
        sigma: Standard deviation of each score.
        discounts: Discount of each rank, `[list_size]`.

    Returns:
        The expectation for each item, `[batch_size, list_size]`, differentiable in the scores.
    """

    @tf.custom_gradient
    def f(scores: tf.Tensor) -> tuple[tf.Tensor, object]:
        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            x = _differences(scores) / (2.0 * sigma)
            density = tf.exp(-tf.square(x)) / (2.0 * sigma * math.sqrt(math.pi))
            steps = _discount_steps(*ahead_and_behind(scores, mask, sigma), discounts)
            slope = upstream[:, tf.newaxis, :] * steps * density
            slope = tf.where(_pairs(mask), slope, tf.zeros_like(slope))
            return tf.reduce_sum(slope, axis=2) - tf.reduce_sum(slope, axis=1)

        p = rank_distributions(*ahead_and_behind(scores, mask, sigma))
        return tf.linalg.matvec(p, tf.broadcast_to(discounts, tf.shape(scores))), gradient

    return f(scores)


def _discount_steps(ahead: tf.Tensor, behind: tf.Tensor, discounts: tf.Tensor) -> tf.Tensor:
    """Computes the expected change of the discount of `j` if `i` is ahead of it.

    With `q` the distribution of `j` without `i`, `p_r = behind * q_r + ahead * q_(r-1)`. This is
    solved forward from the first rank if `behind` is larger, else backward from the last rank, so
    that errors shrink.
    """
    p = rank_distributions(ahead, behind)
    steps = discounts[1:] - discounts[:-1]
    size = tf.size(steps)
    from_last = ahead > behind
    smaller, larger = tf.minimum(ahead, behind), tf.maximum(ahead, behind)

    def add(t: tf.Tensor, q: tf.Tensor, total: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        here = tf.where(from_last, p[:, tf.newaxis, :, size - t], p[:, tf.newaxis, :, t])
        q = (here - smaller * q) / larger
        return t + 1, q, total + q * tf.where(from_last, steps[size - 1 - t], steps[t])

    zeros = tf.zeros_like(ahead)
    return tf.while_loop(lambda t, *_: t < size, add, (tf.constant(0), zeros, zeros))[2]


def _differences(scores: tf.Tensor) -> tf.Tensor:
    return scores[:, :, tf.newaxis] - scores[:, tf.newaxis, :]


def _pairs(mask: tf.Tensor) -> tf.Tensor:
    """Returns a mask of the pairs of two different valid items."""
    pairs = mask[:, :, tf.newaxis] & mask[:, tf.newaxis, :]
    return tf.linalg.set_diag(pairs, tf.zeros_like(mask))
