"""Soft ranks: by the distribution function of Laplace, in `O(n log n)`, and of noisy scores.

For scores `x` of a list, and the items `among` which are counted, the former are

```
rank_i = 1/2 + sum_j F(x_j - x_i),  F(d) = exp(d) / 2 for d < 0, and 1 - exp(-d) / 2 for d >= 0
```

Once the scores are sorted, the exponential of a difference is the product of those of the steps
between neighbours. Sums over all items above, or below, are therefore a recurrence, which takes
`log2(n)` steps over the whole list. No exponential exceeds 1.

The latter treat the pairs of items as independent: item `i` is ahead of item `j` with probability
`ahead[b, i, j]`, and behind with `behind`; both are `[batch_size, list_size, list_size]`. With
probability 1, an item is behind itself and padding is behind all. Their time is cubic in the list
size, their memory quadratic. If the discount of a rank is a sum of few powers, `sum_q c_q z_q**r`,
its expectation is one of the generating function of the rank, a product over the other items, and
the time is quadratic, too.

Reference:
    [Struski et al., LapSum: One Method to Differentiate Them All, 2025](
    https://arxiv.org/abs/2503.06242).
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import layout, ranking

_MOST_STEPS = 31  # of doubling, up to the longest list
_WINDOW = 256  # ranks from which the bases of powers are found
_MOST_POWERS = 24
_STEPS_APART = 1e-5  # share of the smallest step of a discount that powers may be wrong by


def laplace_ranks(x: Tensor, among: Tensor) -> Tensor:
    """Computes the soft rank of each item; NaN where it is compared with one that is not finite.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        among: True for the items `j` to count.

    Returns:
        The soft ranks, of the shape of `x`, with a gradient in closed form.
    """

    @xp.custom_gradient
    def f(x: Tensor) -> tuple[Tensor, object]:
        is_finite, lost = xp.is_finite(x), xp.constant(math.nan, x.dtype)
        is_lost = ~is_finite | xp.reduce_any(among & ~is_finite, axis=1, keepdims=True)
        finite = xp.where(is_finite, x, 0.0)
        order = ranking.order(finite, xp.ones_like(among))
        scores, counts = (
            xp.gather(y, order, batch_dims=1) for y in (finite, xp.cast(among, x.dtype))
        )
        above, below = _sums(scores, counts)
        # an item above counts 1, less half an exponential; one below, or a tie, half of it
        ahead = xp.cumsum(counts, axis=1, exclusive=True) + 0.5 * (counts - above + below)
        ranks = ranking.unsort(0.5 + ahead, order)

        def gradient(upstream: Tensor) -> Tensor:
            # the slope is even, so a pair changes both ranks by the same amount
            moved = xp.gather(upstream, order, batch_dims=1)
            moved_above, moved_below = _sums(scores, moved)
            slope = counts * (moved_above + moved_below) - moved * (above + below)
            return xp.where(is_lost, lost, ranking.unsort(0.5 * slope, order))

        return xp.where(is_lost, lost, ranks), gradient

    return f(x)


def _sums(scores: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Sums `weights_j * exp(-abs(x_i - x_j))` over the items above, and over those below.

    Args:
        scores: Scores `x` in descending order.
        weights: A number for each item.
    """
    steps = xp.exp(scores[:, 1:] - scores[:, :-1])
    from_above = xp.pad(steps, [[0, 0], [1, 0]])
    from_below = xp.reverse(xp.pad(steps, [[0, 0], [0, 1]]), [1])
    below = _accumulate(from_below, xp.reverse(weights, [1]))
    return _accumulate(from_above, weights), xp.reverse(below, [1])


def _accumulate(steps: Tensor, x: Tensor) -> Tensor:
    """Solves `y_i = steps_i * (y_{i-1} + x_{i-1})`, by sums over twice as many items each time."""

    def double(width: Tensor | int, steps: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return steps * _shift(steps, width), y + steps * _shift(y, width)

    y, list_size = steps * _shift(x, 1), steps.shape[1]
    if list_size is not None:
        for power in range(max(0, list_size - 1).bit_length()):
            steps, y = double(2**power, steps, y)
        return y
    _, _, y = xp.while_loop(
        lambda width, *_: width < xp.shape(x)[1],
        lambda width, steps, y: (2 * width, *double(width, steps, y)),
        (xp.constant(1), steps, y),
        maximum_iterations=_MOST_STEPS,
    )
    return y


def _shift(x: Tensor, width: Tensor | int) -> Tensor:
    """Moves all columns to the right, and fills with 0."""
    if isinstance(width, int):  # in a quarter of the time
        return xp.pad(x, [[0, 0], [width, 0]])[:, :-width]
    is_left = xp.range(xp.shape(x)[1]) < width
    return xp.where(is_left, xp.zeros_like(x), xp.roll(x, width, axis=1))


def ahead_and_behind(scores: Tensor, mask: Tensor, sigma: float) -> tuple[Tensor, Tensor]:
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
    ahead = xp.where(pairs, 0.5 * xp.erfc(-x), xp.zeros_like(x))
    return ahead, xp.where(pairs, 0.5 * xp.erfc(x), xp.ones_like(x))


def rank_distributions(ahead: Tensor, behind: Tensor) -> Tensor:
    """Computes the probability of each 0-based rank of each item.

    Args:
        ahead: Probability that item `i` is ahead of item `j`.
        behind: Probability that it is not.

    Returns:
        The probability that item `j` has rank `r`, `[batch_size, list_size, list_size]`.
    """
    size = xp.shape(ahead)[-1]

    def add(i: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
        # the last rank is not reached before all other items are added, so 0 goes out of it
        later = xp.pad(p[:, :-1], [[0, 0], [1, 0], [0, 0]])
        return i + 1, p * behind[:, i, xp.newaxis] + later * ahead[:, i, xp.newaxis]

    # ranks before items: rows of items take their factors as they are
    first = xp.one_hot(0, size, dtype=ahead.dtype)[:, xp.newaxis]
    start = xp.broadcast_to(first, xp.shape(ahead))
    p = xp.while_loop(lambda i, _: i < size, add, (xp.constant(0), start))[1]
    return xp.transpose(p, [0, 2, 1])


class Powers(NamedTuple):
    """A discount of 0-based ranks, `sum_q factors[q] * bases[q] ** r`; all numbers are positive."""

    factors: np.ndarray
    bases: np.ndarray


@functools.lru_cache(maxsize=64)
def powers_of(discount: Callable[[Tensor], Tensor], size: int) -> Powers | None:
    """Finds powers that equal a discount of 1-based ranks to the digits of float32.

    Args:
        discount: The discount.
        size: The number of ranks.

    Returns:
        The powers, or `None` if it takes more than 24, or than a quarter of the number of ranks.
    """
    with xp.init_scope():
        values = np.asarray(discount(xp.range(1.0, size + 1.0, dtype=xp.float64)))
    windows = np.lib.stride_tricks.sliding_window_view(values, max(min(size // 2, _WINDOW), 1))
    directions = np.linalg.svd(windows, full_matrices=False)[2].T
    ranks = np.arange(size)[:, np.newaxis]
    for count in range(1, min(size // 4, _MOST_POWERS) + 1):
        # ESPRIT: a power is multiplied by its base if all ranks move by 1
        basis = directions[:, :count]
        bases = np.linalg.eigvals(np.linalg.pinv(basis[:-1]) @ basis[1:])
        if np.isrealobj(bases) and bases.min() > 0.0 and bases.max() < 1.0:
            # an error of a base would grow with the rank; the factors make up for the rounding
            bases = bases.astype(np.float32).astype(np.float64)
            factors = np.linalg.lstsq(bases**ranks, values, rcond=None)[0]
            error = np.abs(np.diff(bases**ranks @ factors - values)).max()
            if error <= _STEPS_APART * np.abs(np.diff(values)).min() and factors.min() > 0.0:
                return Powers(factors, bases)
    return None


def expected_discounts(scores: Tensor, mask: Tensor, sigma: float, discounts: Tensor) -> Tensor:
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

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            steps = _discount_steps(p, ahead, behind, discounts)
            return _scores_gradient(upstream, steps, scores, mask, sigma)

        ahead, behind = ahead_and_behind(scores, mask, sigma)
        p = rank_distributions(ahead, behind)
        return xp.matvec(p, xp.broadcast_to(discounts, xp.shape(scores))), gradient

    return f(scores)


def expected_powers(scores: Tensor, mask: Tensor, sigma: float, powers: Powers) -> Tensor:
    """Computes `expected_discounts` by the powers of a discount, for a few lists at a time."""

    def of_powers(scores: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        ahead, behind = ahead_and_behind(scores, mask, sigma)
        return (
            xp.stack(
                [xp.reduce_prod(behind + z * ahead, axis=1) for z in powers.bases.tolist()], axis=1
            ),
        )

    def slopes(scores: Tensor, mask: Tensor, p: Tensor, upstream: Tensor) -> tuple[Tensor, ...]:
        steps = _steps_of_powers(powers, p, *ahead_and_behind(scores, mask, sigma))
        return (_scores_gradient(upstream, steps, scores, mask, sigma),)

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            return layout.in_blocks(slopes, scores, mask, p, upstream, rows=rows, to=[of_item])[0]

        [p] = layout.in_blocks(of_powers, scores, mask, rows=rows, to=[of_power])
        return xp.tensordot(p, xp.constant(powers.factors, p.dtype), [[1], [0]]), gradient

    size = scores.shape[1] or xp.maximum(xp.shape(scores)[1], 1)
    rows = layout.terms() // size**2
    rows = max(rows, 1) if isinstance(rows, int) else xp.maximum(rows, 1)
    of_power = xp.TensorSpec([None, len(powers.bases), scores.shape[1]], scores.dtype)
    of_item = xp.TensorSpec([None, scores.shape[1]], scores.dtype)
    return f(scores)


def _scores_gradient(
    upstream: Tensor, steps: Tensor, scores: Tensor, mask: Tensor, sigma: float
) -> Tensor:
    """Computes the gradient of the scores from the change of each item by each other."""
    x = _differences(scores) / (2.0 * sigma)
    # the derivative of `ahead` in s_i - s_j
    density = xp.exp(-xp.square(x)) / (2.0 * sigma * math.sqrt(math.pi))
    slope = upstream[:, xp.newaxis, :] * steps * density
    slope = xp.where(_pairs(mask), slope, xp.zeros_like(slope))
    return xp.reduce_sum(slope, axis=2) - xp.reduce_sum(slope, axis=1)


def _discount_steps(p: Tensor, ahead: Tensor, behind: Tensor, discounts: Tensor) -> Tensor:
    """Computes the expected change of the discount of `j` if `i` is ahead of it.

    With `q` the distribution of `j` without `i`, `p_r = behind * q_r + ahead * q_(r-1)`. This is
    solved forward from the first rank if `behind` is larger, else backward from the last rank, so
    that errors shrink: `q` is then a power series in `-ratio`, of the smaller to the larger, and so
    is the result, whose coefficients depend on `j` only.
    """
    steps = discounts[1:] - discounts[:-1]
    size, rank = xp.size(steps), xp.range(xp.size(discounts))[:, xp.newaxis]
    larger = xp.maximum(ahead, behind)
    ratio, from_last = xp.minimum(ahead, behind) / larger, ahead > behind

    def coefficients(at_rank: Tensor) -> Tensor:
        is_rank = (at_rank >= 0) & (at_rank < size)
        factors = xp.gather(xp.pad(steps, [[0, 1]]), xp.where(is_rank, at_rank, size))
        # a GPU would round factors of float32, and the series would lose what cancels
        product = xp.matmul(xp.cast(p, xp.float64), xp.cast(factors, xp.float64))
        return xp.transpose(xp.cast(product, p.dtype), [2, 0, 1])[:, :, xp.newaxis]

    forward = coefficients(rank + xp.range(size))
    backward = coefficients(rank - 1 - xp.range(size))

    def add(t: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        return t - 1, xp.where(from_last, backward[t], forward[t]) - ratio * total

    state = (size - 1, xp.zeros_like(ahead))
    return xp.while_loop(lambda t, _: t >= 0, add, state)[1] / larger


def _steps_of_powers(powers: Powers, p: Tensor, ahead: Tensor, behind: Tensor) -> Tensor:
    """Computes `_discount_steps` from the expectation of each power, `[batch, power, item]`.

    The expectation without item `i` has the factor of `i` removed, which is never near 0.
    """
    steps = xp.constant(powers.factors * (powers.bases - 1.0), p.dtype)[:, xp.newaxis] * p
    return xp.add_n(
        [
            steps[:, q, xp.newaxis] / (behind + z * ahead)
            for q, z in enumerate(powers.bases.tolist())
        ]
    )


def _differences(scores: Tensor) -> Tensor:
    return scores[:, :, xp.newaxis] - scores[:, xp.newaxis, :]


def _pairs(mask: Tensor) -> Tensor:
    """Returns a mask of the pairs of two different valid items."""
    pairs = mask[:, :, xp.newaxis] & mask[:, xp.newaxis, :]
    return xp.set_diag(pairs, xp.zeros_like(mask))
