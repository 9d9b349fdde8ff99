"""Soft ranks by the distribution function of Laplace, in `O(n log n)`.

For scores `x` of a list, and the items `among` which are counted,

```
rank_i = 1/2 + sum_j F(x_j - x_i),  F(d) = exp(d) / 2 for d < 0, and 1 - exp(-d) / 2 for d >= 0
```

Once the scores are sorted, the exponential of a difference is the product of those of the steps
between neighbours. Sums over all items above, or below, are therefore a recurrence, which takes
`log2(n)` steps over the whole list. No exponential exceeds 1.

Reference:
    [Struski et al., LapSum: One Method to Differentiate Them All, 2025](
    https://arxiv.org/abs/2503.06242).
"""

import math

import tensorflow as tf

from tfrank_sel.ops import ranking

_MOST_STEPS = 31  # of doubling, up to the longest list


def laplace_ranks(x: tf.Tensor, among: tf.Tensor) -> tf.Tensor:
    """Computes the soft rank of each item; NaN where it is compared with one that is not finite.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        among: True for the items `j` to count.

    Returns:
        The soft ranks, of the shape of `x`, with a gradient in closed form.
    """

    @tf.custom_gradient
    def f(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        is_finite, lost = tf.math.is_finite(x), tf.constant(math.nan, x.dtype)
        is_lost = ~is_finite | tf.reduce_any(among & ~is_finite, axis=1, keepdims=True)
        finite = tf.where(is_finite, x, 0.0)
        places = ranking.order(finite, tf.ones_like(among))
        scores, counts = (
            tf.gather(y, places, batch_dims=1) for y in (finite, tf.cast(among, x.dtype))
        )
        above, below = _sums(scores, counts)
        # an item above counts 1, less half an exponential; one below, or a tie, half of it
        ahead = tf.cumsum(counts, axis=1, exclusive=True) + 0.5 * (counts - above + below)
        found = ranking.unsorted(0.5 + ahead, places)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            # the slope is even, so a pair changes both ranks by the same amount
            moved = tf.gather(upstream, places, batch_dims=1)
            moved_above, moved_below = _sums(scores, moved)
            slope = counts * (moved_above + moved_below) - moved * (above + below)
            return tf.where(is_lost, lost, ranking.unsorted(0.5 * slope, places))

        return tf.where(is_lost, lost, found), gradient

    return f(x)


def _sums(scores: tf.Tensor, weights: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Sums `weights_j * exp(-abs(x_i - x_j))` over the items above, and over those below.

    Args:
        scores: Scores `x` in descending order.
        weights: A number for each item.
    """
    steps = tf.exp(scores[:, 1:] - scores[:, :-1])
    from_above = tf.pad(steps, [[0, 0], [1, 0]])
    from_below = tf.reverse(tf.pad(steps, [[0, 0], [0, 1]]), [1])
    below = _accumulated(from_below, tf.reverse(weights, [1]))
    return _accumulated(from_above, weights), tf.reverse(below, [1])


def _accumulated(steps: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Solves `y_i = steps_i * (y_{i-1} + x_{i-1})`, by sums over twice as many items each time."""

    def doubled(width: tf.Tensor | int, steps: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, ...]:
        return steps * _shifted(steps, width), y + steps * _shifted(y, width)

    y, list_size = steps * _shifted(x, 1), steps.shape[1]
    if list_size is not None:
        for power in range(max(0, list_size - 1).bit_length()):
            steps, y = doubled(2**power, steps, y)
        return y
    _, _, y = tf.while_loop(
        lambda width, *_: width < tf.shape(x)[1],
        lambda width, steps, y: (2 * width, *doubled(width, steps, y)),
        (tf.constant(1), steps, y),
        maximum_iterations=_MOST_STEPS,
    )
    return y


def _shifted(x: tf.Tensor, places: tf.Tensor | int) -> tf.Tensor:
    """Moves all columns to the right, and fills with 0."""
    if isinstance(places, int):  # in a quarter of the time
        return tf.pad(x, [[0, 0], [places, 0]])[:, :-places]
    is_left = tf.range(tf.shape(x)[1]) < places
    return tf.where(is_left, tf.zeros_like(x), tf.roll(x, places, axis=1))
