"""Differentiable top-k selection with Laplace distributions (LapSum).

For scores `s` of a list, the membership of item `i` in the top `k` is

```
p_i = F(s_i - b),  sum_i p_i = k,  F(x) = exp(x) / 2 for x < 0, and 1 - exp(-x) / 2 for x >= 0
```

Divide the scores by a temperature: as it goes to 0, `p` becomes the indicator of the top `k`.
Scores and masks are `[batch_size, list_size]`. `k` is positive, and need not be an integer. In a
list of at most `k` valid items, all have membership 1.

The paper sorts the scores to find the threshold `b`. This module needs no sort, which would take
ten times as long under XLA on a CPU. Between two neighbouring scores, the equation is quadratic in
`exp(b)`; its solution selects the next two neighbours. A few steps of `O(n)` suffice. At most
`2 * k` items are above `b`, since their memberships are at least 1/2: in a long list, the steps
need the best `2 * k + 1` items, and one sum for all others.

Reference:
    [Struski et al., LapSum: One Method to Differentiate Them All, 2025](
    https://arxiv.org/abs/2503.06242).
"""

import math
from typing import TypeAlias

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, one_class

Pair: TypeAlias = tuple[Tensor, Tensor]

QUICK_STEPS = 8  # before every second step halves the range
LONG = 32  # times the items that steps need, from which on a list is long
MOST_STEPS = 200  # no more are needed until the range of float64 is halved to its digits


def memberships(scores: Tensor, k: float, mask: Tensor) -> Tensor:
    """Returns the membership of each item in the top `k`, and 0 on padding."""
    gaps, has_more = _gaps(scores, k, mask)
    above, below = xp.maximum(gaps, 0.0), xp.minimum(gaps, 0.0)
    p = xp.where(gaps >= 0.0, 1.0 - xp.exp(-above) / 2.0, xp.exp(below) / 2.0)
    return xp.where(mask, xp.where(has_more, p, 1.0), 0.0)


def log_memberships(scores: Tensor, k: float, mask: Tensor) -> Tensor:
    """Returns the logarithm of `memberships`, exact where they are tiny, and 0 on padding."""
    gaps, has_more = _gaps(scores, k, mask)
    return xp.where(mask & has_more, _log_distribution(gaps), 0.0)


def log_memberships_of(classes: Tensor, scores: Tensor, k: float) -> Tensor:
    """Returns `log_memberships` of one item of each list, `[batch_size]`.

    Args:
        classes: The items, int32 `[batch_size]`; outside of the list for none.
        scores: Scores, of which those of -inf exclude items.
        k: Number of items.
    """
    least = xp.reduce_min(scores, axis=1, keepdims=True)
    count = xp.cond(
        xp.reduce_all(least > -math.inf),
        lambda: xp.fill(xp.shape(least), xp.cast(xp.shape(scores)[1], scores.dtype)),
        lambda: _count(scores > -math.inf, scores.dtype),
    )
    taken, needed, has_more = _taken_count(scores, k, count)

    @xp.custom_gradient
    def over_threshold(scores: Tensor) -> tuple[Tensor, object]:
        # whose exponential is 0, without a mask of all
        held = xp.maximum(scores, xp.limits(scores.dtype).min / 4.0)
        centre, offset = _solve(held, taken, count, scores > -math.inf, needed)
        score = one_class.scores_of(classes, held)[:, xp.newaxis]

        def gradient(upstream: Tensor) -> Tensor:
            gaps = _over_threshold(held, taken, count, None, needed, (held - centre) - offset)
            shares = _shares(gaps, None) * -upstream[:, xp.newaxis]
            return one_class.add(shares, classes, upstream)

        return ((score - centre) - offset)[:, 0], gradient

    is_there = (one_class.scores_of(classes, scores) > -math.inf) & has_more[:, 0]
    return xp.where(is_there, _log_distribution(over_threshold(scores)), 0.0)


def _log_distribution(gaps: Tensor) -> Tensor:
    """Returns the logarithm of `F`."""
    above, below = xp.maximum(gaps, 0.0), xp.minimum(gaps, 0.0)
    return xp.where(gaps >= 0.0, xp.log1p(-xp.exp(-above) / 2.0), below - math.log(2.0))


def _count(mask: Tensor, dtype: xp.DType) -> Tensor:
    return xp.reduce_sum(xp.cast(mask, dtype), axis=1, keepdims=True)


def _taken_count(scores: Tensor, k: float, count: Tensor) -> tuple[Tensor, int, Tensor]:
    """Returns how many are taken, how many suffice to find `b`, and whether more than `k` exist.

    If they do not, `b` is arbitrary.
    """
    has_more = count > k
    taken = xp.where(has_more, xp.cast(k, scores.dtype), xp.maximum(count, 1.0) / 2.0)
    return taken, 2 * math.ceil(k) + 1, has_more


def _gaps(scores: Tensor, k: float, mask: Tensor) -> Pair:
    """Returns `s - b`, and whether a list has more than `k` items; if not, `b` is arbitrary."""
    count = _count(mask, scores.dtype)
    taken, needed, has_more = _taken_count(scores, k, count)
    return _over_threshold(xp.where(mask, scores, 0.0), taken, count, mask, needed), has_more


def _over_threshold(
    scores: Tensor,
    k: Tensor,
    count: Tensor,
    mask: Tensor | None,
    needed: int,
    solution: Tensor | None = None,
) -> Tensor:
    """Returns `s - b`, solved for or known, whose gradient of any order is exact.

    With the density `f` of `F`, `db / ds_i = f(s_i - b) / sum_j f(s_j - b)`.
    """

    @xp.custom_gradient
    def solve(scores: Tensor) -> tuple[Tensor, object]:
        if solution is None:
            centre, offset = _solve(scores, k, count, mask, needed)
            gaps = (scores - centre) - offset
        else:
            gaps = xp.identity(solution)

        def gradient(upstream: Tensor) -> Tensor:
            shares = _shares(_over_threshold(scores, k, count, mask, needed, gaps), mask)
            of_all = upstream if mask is None else xp.where(mask, upstream, 0.0)
            return upstream - shares * xp.reduce_sum(of_all, axis=1, keepdims=True)

        return gaps, gradient

    return solve(scores)


def _shares(gaps: Tensor, mask: Tensor | None) -> Tensor:
    """Returns `f(s_i - b) / sum_j f(s_j - b)`."""
    return xp.softmax(-xp.abs(gaps)) if mask is None else masking.softmax(-xp.abs(gaps), mask)


def _solve(all_scores: Tensor, k: Tensor, count: Tensor, mask: Tensor, needed: int) -> Pair:
    """Returns the score nearest to `b`, and `b` less it, of each list, `[batch_size, 1]`."""

    def of_all() -> Pair:
        return _steps(
            all_scores, xp.fill(xp.shape(count), xp.limits(all_scores.dtype).min), k, count, mask
        )

    def of_best() -> Pair:
        scores, rest = _best(xp.where(mask, all_scores, xp.limits(all_scores.dtype).min), needed)
        return _steps(scores, rest, k, count, xp.range(needed, dtype=count.dtype) < count)

    size = all_scores.shape[1]
    if size is not None:
        return of_best() if size > LONG * needed else of_all()
    return xp.cond(xp.shape(all_scores)[1] > LONG * needed, of_best, of_all)


def _steps(scores: Tensor, rest: Tensor, k: Tensor, count: Tensor, mask: Tensor) -> Pair:
    """Solves for `b` by scores, and the logarithm of the sum of the exponentials of all others."""
    highest = xp.reduce_max(
        xp.where(mask, scores, xp.limits(scores.dtype).min), axis=1, keepdims=True
    )
    lowest = xp.reduce_min(
        xp.where(mask, scores, xp.limits(scores.dtype).max), axis=1, keepdims=True
    )
    # where all items lie on one side, the sum is below or above k
    margin = xp.log(xp.maximum(count, 1.0) / xp.minimum(k, 0.5)) + 1.0
    low, high = lowest - margin, highest + margin

    def step(
        number: Tensor, low: Tensor, high: Tensor, b: Tensor, done: Tensor
    ) -> tuple[Tensor, ...]:
        shift, excess, _ = _newton(scores - b, rest - b, k, mask)
        low, high = xp.where(excess > 0.0, b, low), xp.where(excess > 0.0, high, b)
        proposal = b + shift
        done = done | (excess == 0.0) | (proposal == b)  # a shift below the digits of b
        # where scores are far apart, a solution passes one of them; halving passes many
        is_taken = (
            (proposal > low) & (proposal < high) & ((number < QUICK_STEPS) | (number % 2 == 0))
        )
        proposal = xp.where(is_taken, proposal, (low + high) / 2.0)
        proposal = xp.where(done, b, proposal)
        same = xp.reduce_all(((scores >= b) == (scores >= proposal)) | ~mask, 1, keepdims=True)
        return number + 1, low, high, proposal, done | (is_taken & same)

    _, _, _, b, _ = xp.while_loop(
        lambda number, low, high, b, done: ~xp.reduce_all(done),
        step,
        (0, low, high, (low + high) / 2.0, count <= 0.0),
        maximum_iterations=MOST_STEPS,
    )
    # relative to the nearest score, since the digits of b are those of its height
    distance, slots = (
        # The extra column serves lists without slots.
        xp.pad(x, [[0, 0], [0, 1]], constant_values=xp.limits(scores.dtype).max)
        for x in (xp.where(mask, xp.abs(scores - b), xp.limits(scores.dtype).max), scores)
    )
    centre = xp.gather(slots, xp.argmin(distance, axis=1)[:, xp.newaxis], batch_dims=1)
    x, rest, offset = scores - centre, rest - centre, b - centre
    for _ in range(2):  # far from 0, where b is rounded by more than 1, the first may pass a score
        shift, _, far = _newton(x - offset, rest - offset, k, mask)
        # scores of 1e9 in float32 are rounded by hundreds
        shift = xp.where(xp.is_finite(shift), shift, far)
        offset = offset + xp.where(xp.is_finite(shift), shift, 0.0)
    return centre, offset


def _best(scores: Tensor, count: int) -> Pair:
    """Returns the best scores, and the logarithm of the sum of the exponentials of the others."""
    best = _highest(scores, count)
    last = best[:, -1:]
    # with all items of the last score, of which those among the best are taken off again
    sums = xp.reduce_sum(
        xp.where(scores <= last, xp.exp(scores - last), 0.0), axis=1, keepdims=True
    )
    sums = sums - xp.reduce_sum(xp.cast(best == last, best.dtype), axis=1, keepdims=True)
    return best, xp.where(sums > 0.0, xp.log(sums) + last, xp.limits(scores.dtype).min)


def _highest(scores: Tensor, count: int) -> Tensor:
    """Returns the highest scores of long lists, in descending order.

    They are among those of as many groups, those with the highest maximum. XLA sorts for `top_k`.
    """
    size = scores.shape[1]
    if size is None:
        size = xp.shape(scores)[1]
        groups = xp.cast(xp.sqrt(xp.cast(size, xp.float32) * count), xp.int32)
        groups = xp.maximum(groups, count)
    else:
        groups = math.isqrt(size * count)
    width = -(-size // groups)
    missing = [[0, 0], [0, groups * width - size]]
    grouped = xp.pad(scores, missing, constant_values=xp.limits(scores.dtype).min)
    grouped = xp.reshape(grouped, [-1, groups, width])
    _, places = xp.top_k(xp.reduce_max(grouped, axis=2), count)
    few = xp.gather(grouped, places, batch_dims=1)
    return xp.top_k(xp.reshape(few, [-1, count * width]), count).values


def _newton(gaps: Tensor, rest: Tensor, k: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns how far to shift `b` by the items on its two sides, and the sign of `sum p - k`.

    With the `m` items above `b`, `A = sum_{i above} exp(b - s_i)` and
    `B = sum_{i below} exp(s_i - b)`, the shift is `log(w)` of

    ```
    A * w**2 - 2 * (m - k) * w - B = 0
    ```

    `rest` is the logarithm of the part of `B` by items without a gap. Where `m = k`, this is
    `w**2 = B / A`, of which only the logarithms are finite far from `b`. The last is the shift
    where A or B is so far that its exponentials are 0.
    """
    is_above = mask & (gaps >= 0.0)
    exp = xp.where(mask, xp.exp(-xp.abs(gaps)), 0.0)
    above = xp.reduce_sum(xp.where(is_above, exp, 0.0), axis=1, keepdims=True)
    below = xp.reduce_sum(xp.where(is_above, xp.zeros_like(exp), exp), axis=1, keepdims=True)
    below = below + xp.exp(rest)
    many = xp.reduce_sum(xp.cast(is_above, gaps.dtype), axis=1, keepdims=True) - k
    root = xp.sqrt(many**2 + above * below)
    # of two equal forms of the root, the one whose terms have the same sign
    solution = xp.where(many > 0.0, (many + root) / above, below / (root - many))
    of_below = xp.reduce_logsumexp(
        xp.concat([_log_sum(-gaps, mask & ~is_above), rest], axis=1), axis=1, keepdims=True
    )
    of_above = _log_sum(gaps, is_above)
    balanced = (of_below - of_above) / 2.0
    far = xp.where(many > 0.0, xp.log(many + root) - of_above, of_below - xp.log(root - many))
    shift = xp.where(many == 0.0, balanced, xp.log(solution))
    return shift, xp.where(many == 0.0, balanced, many + (below - above) / 2.0), far


def _log_sum(distances: Tensor, mask: Tensor) -> Tensor:
    """Returns the logarithm of the sum of `exp(-distance)`."""
    x = xp.where(mask, -distances, xp.limits(distances.dtype).min)
    return xp.reduce_logsumexp(x, axis=1, keepdims=True)
