"""Elementary symmetric polynomials of exponentials: their logarithms, and a ratio of them.

The coefficients of `prod_j (1 + w_j z)`, which `ops.products` multiplies out, are the elementary
symmetric polynomials of the odds `w`.
"""

import functools
import math
from typing import NamedTuple

from tfrank_sel import numerics as xp
from tfrank_sel.errors import refusal
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import layout
from tfrank_sel.ops.products import (
    UNKNOWN_SIZE,
    ProductPlan,
    coefficients,
    full_lanes_of,
    lanes_of,
    plan_of,
    tree_product,
)

SCORES = 450_000  # numbers per block, so that inputs and intermediate results stay in cache
MAXIMA = 16  # so many passes for the largest scores are faster than a sort
# 4**-14 and 4**-27 are below half of the last digit, 2**-24 of float32 and 2**-53 of float64
EXACT_TERMS = {xp.float32: 14, xp.float64: 27}  # of the light series, at odds up to 1/4


def log_symmetric(x: Tensor, degree: int) -> Tensor:
    """Computes `log sigma_m(exp(x))` of each list for `m = 0, ..., degree`.

    The elementary symmetric polynomial `sigma_m` is the sum over all subsets of `m` items of the
    product of their `exp(x_j)`. The polynomials are computed item by item, in logarithms: all
    summands are positive, so no digits are lost for any range of `x`. Derivatives of any order are
    those of the additions, and equally accurate. Time and memory are of the order of
    `batch_size * list_size * degree`.

    Args:
        x: Logarithms, `[batch_size, list_size]`; -inf for an absent item.
        degree: The highest degree; at least 0.

    Returns:
        The logarithms, `[batch_size, degree + 1]`; -inf for a degree above the number of items.
    """
    if degree < 0:
        raise refusal("`degree` must be at least 0", degree=degree)
    nothing = xp.constant(-math.inf, x.dtype)
    empty = xp.zeros([xp.shape(x)[0], 1], x.dtype)
    start = xp.pad(empty, [[0, 0], [0, degree]], constant_values=nothing)

    # sigma_m with an item = sigma_m of the others + exp(item) * sigma_(m-1) of the others
    def add_item(logs: Tensor, item: Tensor) -> Tensor:
        with_item = logs[:, :-1] + item[:, xp.newaxis]
        return log_add(logs, xp.pad(with_item, [[0, 0], [1, 0]], constant_values=nothing))

    return xp.foldl(add_item, xp.transpose(x), start)


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """Computes `log(exp(a) + exp(b))`; -inf, with gradient 0, if both are -inf."""
    # the larger one cancels, so it needs no gradient
    top = xp.stop_gradient(xp.maximum(a, b))
    some = top > -math.inf
    top = xp.where(some, top, 0.0)
    total = xp.exp(a - top) + xp.exp(b - top)
    return xp.where(some, top + xp.log(xp.where(some, total, 1.0)), -math.inf)


def _rows(x: Tensor) -> int:
    """The number of lists in a block; a power of two where there are several."""
    size = x.shape[1] or UNKNOWN_SIZE
    if layout.is_wide():
        return max(layout.terms() // size, 1)
    return 1 << (max(SCORES // size, 1).bit_length() - 1)


def centre(x: Tensor, k: int, inverse_scale: Tensor) -> tuple[Tensor, Tensor]:
    """Finds `t` such that `sum_j min(1, exp((x_j - t) / scale))` is about `k - 1/2`.

    With odds relative to the centre, neither the coefficients around degree `k` nor their ratios
    overflow. It need not be exact, because its value cancels in all results.

    Args:
        x: Scores, `[batch_size, list_size]`; -inf for an absent item.
        k: Number of items; positive.
        inverse_scale: `1 / scale`, in the dtype of `x`.

    Returns:
        The centre of each list and its largest score, both `[batch_size]`.
    """
    mass = k - 0.5
    top = xp.reduce_max(x, axis=1)
    top = xp.where(xp.is_finite(top), top, 0.0)
    total = xp.reduce_sum(xp.exp((x - top[:, xp.newaxis]) * inverse_scale), axis=1)
    # then no score is above this t, the minimum is idle, and t solves the equation
    flat = total >= mass
    t = top + _log(total / mass) / inverse_scale
    if layout.is_wide():
        return xp.where(flat, t, _centre_below(x, _kth_largest(x, k), k, inverse_scale)), top
    t = xp.cond(
        xp.reduce_all(flat),
        lambda: t,
        lambda: xp.where(flat, t, _centre_of_peaked(x, top, flat, k, inverse_scale)),
    )
    return t, top


def _kth_largest(x: Tensor, k: int) -> Tensor:
    """Finds the `k`-th largest score without a loop; the least number if there are fewer items."""
    x = xp.maximum(x, xp.limits(x.dtype).min)
    if k > MAXIMA:
        padded = xp.pad(x, [[0, 0], [0, k]], constant_values=xp.limits(x.dtype).min)
        return xp.top_k(padded, k).values[:, -1]
    top = xp.reduce_max(x, axis=1)
    for _ in range(k - 1):
        is_top = x >= top[:, xp.newaxis]
        lower = xp.reduce_max(xp.where(is_top, xp.limits(x.dtype).min, x), axis=1)
        top = xp.where(_count(is_top, x.dtype) < k, lower, top)
    return top


def _centre_of_peaked(
    x: Tensor, top: Tensor, flat: Tensor, k: int, inverse_scale: Tensor
) -> Tensor:
    """Bisects for the `k`-th largest score up to a few scales."""
    bottom = xp.reduce_min(xp.where(xp.is_finite(x), x, xp.limits(x.dtype).max), axis=1)
    near = 4.0 / inverse_scale

    def halve(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        # the sum of two large scores would overflow
        middle = 0.5 * low + 0.5 * high
        few = _count(x > middle[:, xp.newaxis], x.dtype) <= k - 1
        return xp.where(few, low, middle), xp.where(few, middle, high)

    def is_open(low: Tensor, high: Tensor) -> Tensor:
        return xp.reduce_any((high - low > near) & ~flat)

    # bisection ends at the latest when the bounds are neighbouring numbers
    _, high = xp.while_loop(is_open, halve, (xp.minimum(bottom, top), top), maximum_iterations=64)
    return _centre_below(x, high, k, inverse_scale)


def _centre_below(x: Tensor, high: Tensor, k: int, inverse_scale: Tensor) -> Tensor:
    """Centres a list of at most `k - 1` scores above `high` by those below it."""
    above = x > high[:, xp.newaxis]
    odds = xp.exp(xp.minimum(x - high[:, xp.newaxis], 0.0) * inverse_scale)
    below = xp.where(~above, odds, 0.0)
    # The rest is at least 1/2, since at most `k - 1` scores are above.
    rest = k - 0.5 - _count(above, x.dtype)
    return high + _log(xp.reduce_sum(below, axis=1) / rest) / inverse_scale


def _count(which: Tensor, dtype: xp.DType) -> Tensor:
    return xp.reduce_sum(xp.cast(which, dtype), axis=1)


def _log(x: Tensor) -> Tensor:
    """The logarithm; a list without items has a finite one."""
    return xp.log(xp.maximum(x, 1e-30))


class Series(NamedTuple):
    """The derivative of `log P_k - log P_{k-1}` by `log w`, for each list.

    With the polynomial of the other items, `P(z) / (1 + w z)`, the probability that item `j` is
    among `m` sampled ones is `w_j P_{m-1}(-j) / P_m`. Polynomial division from the low end gives a
    series in `w`, from the high end a series in `1 / w`. Both alternate and need few coefficients.

    Attributes:
        shift: The logarithm of `P_{k-1} / P_k`; added to that of the odds, it makes `P_{k-1}` and
            `P_k` equal, and the derivative that of a light item up to odds of 1.
        light: Coefficients of `w, w^2, ...`, `[batch_size, plan.below]`.
        heavy: Coefficients of `1/w, 1/w^2, ...`, `[batch_size, plan.above]`.
    """

    shift: Tensor
    light: Tensor
    heavy: Tensor


def series_of(coefficients: Tensor, k: int, plan: ProductPlan, dtype: xp.DType) -> Series:
    """Makes the series of the polynomials of `[batch_size, k + plan.above + 1]` coefficients.

    Args:
        coefficients: Those of degrees 0 to `k + plan.above`; positive at `k - 1` and `k`.
        k: The degree of the ratio's numerator.
        plan: The plan of the coefficients.
        dtype: The dtype of the series.
    """
    at_k, before = coefficients[:, k, xp.newaxis], coefficients[:, k - 1, xp.newaxis]
    ratio = before / at_k
    down = xp.reverse(coefficients[:, k - 1 - plan.below if plan.below < k else 0 : k], axis=[1])
    if plan.below == k:
        down = xp.pad(down, [[0, 0], [0, 1]])  # the coefficient of degree -1
    # w**(i+1) has the factor (-1)**i * (d_i - d_(i+1)), with d_i = P_(k-1-i) / P_(k-1) / ratio**i,
    # for w in units of P_k / P_(k-1). As coefficients are log-concave, every d_i is at most 1
    down = down / before * _powers(1.0 / ratio, plan.below)
    up = coefficients[:, k:] / at_k * _powers(ratio, plan.above)
    return Series(
        shift=xp.cast(xp.log(ratio[:, 0]), dtype),
        light=xp.cast(_alternate(down[:, :-1] - down[:, 1:]), dtype),
        heavy=xp.cast(_alternate(up[:, :-1] - up[:, 1:]), dtype),
    )


def derivative(u: Tensor, series: Series) -> Tensor:
    """Evaluates the series at shifted logarithms of odds, `[batch_size, list_size]`."""
    # w or 1 / w, whichever is at most 1: the terms of its series shrink
    v = xp.exp(-xp.abs(u))
    return xp.where(u <= 0.0, _horner(series.light, v), _horner(series.heavy, v))


def derivative_of_light(u: Tensor, series: Series, terms: int) -> Tensor:
    """Evaluates the first terms of the series for lists without heavy items."""
    return _horner(series.light[:, :terms], xp.exp(u))


def _horner(coefficients: Tensor, v: Tensor) -> Tensor:
    value = xp.zeros_like(v)
    for i in reversed(range(coefficients.shape[1])):
        value = (value + coefficients[:, i, xp.newaxis]) * v
    return value


def _powers(x: Tensor, count: int) -> Tensor:
    """Computes `1, x, ..., x^count` of a column, `[batch_size, count + 1]`, by doubling."""
    powers = xp.concat([xp.ones_like(x), x], axis=1)
    while powers.shape[1] <= count:
        powers = xp.concat([powers, powers[:, 1:] * powers[:, -1:]], axis=1)
    return powers[:, : count + 1]


def _alternate(x: Tensor) -> Tensor:
    return x * xp.constant([(-1.0) ** i for i in range(x.shape[1])], x.dtype)


def soft_kth_largest_beside(
    x: Tensor, item: Tensor, k: int, scale: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """Computes the soft `k`-th largest score of all items but one, and the score of that item.

    ```
    T = scale * (log sigma_k(exp(x / scale)) - log sigma_{k-1}(exp(x / scale)))
    s_(k) - scale * log(k) <= T <= s_(k) + scale * log(n - k + 1)
    ```

    where `s_(k)` is the `k`-th largest of the `n` scores. With a scale of 1 it is the logarithm of
    the ratio of two elementary symmetric polynomials. Its derivative by `x_j` is the probability
    that item `j` is among `k` items, less that it is among `k - 1`, which are sampled with odds
    `exp(x / scale)`. Both are results of one function, so that their gradients take one pass over
    the scores; higher derivatives use `log_symmetric`, at its cost.

    Args:
        x: Scores, `[batch_size, list_size]`, float32 or float64; -inf for an absent item.
        item: Index of the item that is left out, `[batch_size]`, int32; -1 for none.
        k: The rank; positive.
        scale: Softness, positive: a scalar, which may be a tensor.

    Returns:
        The soft score of the others and the score of the item, both `[batch_size]`, in float64 for
        any dtype of `x`, because they may be nearly equal; -inf for a list of fewer than `k` items.

    Raises:
        ValueError: If `k` is not positive.
    """
    if k < 1:
        raise refusal("`k` must be positive", k=k)
    if not xp.is_tensor(scale):
        scale = xp.constant(scale, xp.float64)  # a cast would make it float32 first
    scale = xp.cast(scale, xp.float64)

    @xp.custom_gradient
    def f(x: Tensor) -> tuple[tuple[Tensor, Tensor], object]:
        forward = _forward(x, item, k, scale)

        def vjp(*upstream: Tensor) -> Tensor:
            return _differentiable_gradient(x, item, k, scale, forward, *upstream)

        return (forward.kth, _score_of(x, item)), vjp

    return f(x)


class _Forward(NamedTuple):
    """Results of the forward pass for the gradient; all but `inverse_scale` are per list."""

    kth: Tensor  # the soft score; -inf if there are too few items
    # The centre of the symmetric function.
    t: Tensor
    # The largest score of each list.
    top: Tensor
    series: Series
    inverse_scale: Tensor


def _forward(x: Tensor, item: Tensor, k: int, scale: Tensor) -> _Forward:
    inverse_scale = xp.cast(1.0 / scale, x.dtype)
    plan = plan_of(x.shape[1], k, x.dtype)

    def log_odds(x: Tensor, t: Tensor) -> Tensor:
        return (x - t[:, xp.newaxis]) * inverse_scale

    def multiply(x: Tensor, item: Tensor) -> tuple[Tensor, ...]:
        x = _others(x, item)
        t, top = centre(x, k, inverse_scale)
        # a plain graph would hold each term of its sums, of which XLA makes one operation
        of_odds = xp.jit(functools.partial(tree_product, degree=k + plan.above))
        return xp.stack([t, top], axis=1), of_odds(log_odds(x, t))

    def grow(x: Tensor, item: Tensor) -> tuple[Tensor, ...]:
        x = _others(x, item)
        t, top = centre(x, k, inverse_scale)
        # One tensor: without a gradient, unused results are dropped, and XLA can merge the loop
        # with that of the gradient only if both return the same.
        extent = xp.stack([t, top], axis=1)
        return extent, lanes_of(log_odds(x, t), xp.reduce_any(top > t), k, plan)

    def grow_fully(x: Tensor, item: Tensor, t: Tensor) -> tuple[Tensor]:
        return (full_lanes_of(log_odds(_others(x, item), t), plan),)

    of_extent = xp.TensorSpec([None, 2], x.dtype)

    def of_lanes(degree: int) -> xp.TensorSpec:
        return xp.TensorSpec([None, degree + 1, plan.lanes], x.dtype)

    if layout.is_wide() and x.shape[1]:
        of_product = xp.TensorSpec([None, k + plan.above + 1], xp.float64)
        extent, product = layout.in_blocks(
            multiply, x, item, rows=_rows(x), to=[of_extent, of_product]
        )
        t, top = xp.unstack(extent, axis=1)
    else:
        extent, cut = layout.in_blocks(
            grow, x, item, rows=_rows(x), to=[of_extent, of_lanes(plan.degree)]
        )
        t, top = xp.unstack(extent, axis=1)

        def full_lanes() -> Tensor:
            return layout.in_blocks(
                grow_fully, x, item, t, rows=_rows(x), to=[of_lanes(plan.full_degree)]
            )[0]

        product = coefficients(cut, full_lanes, k, plan)
    exists = (product[:, k] > 0.0) & (product[:, k - 1] > 0.0)
    # any positive numbers: too few items must make no NaN in the logarithm and the series
    product = xp.where(exists[:, xp.newaxis], product, 1.0)
    log_ratio = xp.log(product[:, k] / product[:, k - 1])
    kth = xp.where(exists, xp.cast(t, xp.float64) + scale * log_ratio, -math.inf)
    return _Forward(kth, t, top, series_of(product, k, plan, x.dtype), inverse_scale)


def _gradient(
    x: Tensor, item: Tensor, forward: _Forward, for_kth: Tensor, for_item: Tensor
) -> Tensor:
    """Computes the gradient of the scores from those of both outputs, in one pass."""
    of_list, inverse_scale = forward.series, forward.inverse_scale
    for_kth = xp.where(forward.kth > -math.inf, for_kth, 0.0)
    for_kth, for_item = (xp.cast(y, x.dtype)[:, xp.newaxis] for y in (for_kth, for_item))
    top = (forward.top - forward.t) * inverse_scale + of_list.shift
    most = of_list.light.shape[1]
    terms = min(EXACT_TERMS[x.dtype], most)

    def finish(light: bool) -> Tensor:
        u = (x - forward.t[:, xp.newaxis]) * inverse_scale + of_list.shift[:, xp.newaxis]
        slope = derivative_of_light(u, of_list, terms) if light else derivative(u, of_list)
        return xp.where(_is(item, x), for_item, for_kth * slope)

    if layout.is_wide():
        return finish(light=False)
    return xp.cond(
        xp.reduce_all(top <= (0.0 if terms == most else math.log(0.25))),
        lambda: finish(light=True),
        lambda: finish(light=False),
    )


def _differentiable_gradient(
    x: Tensor, item: Tensor, k: int, scale: Tensor, forward: _Forward, *upstream: Tensor
) -> Tensor:
    """Computes the gradient, whose derivatives use the plain form of the function."""

    @xp.custom_gradient
    def f(x: Tensor, *upstream: Tensor) -> tuple[Tensor, object]:
        def vjp(direction: Tensor) -> list[Tensor]:
            def slope(x: Tensor, *upstream: Tensor) -> Tensor:
                return xp.vjp(lambda x: _plain(x, item, k, scale), x)[1](upstream)[0]

            return xp.vjp(slope, x, *upstream)[1](direction)

        return _gradient(x, item, forward, *upstream), vjp

    return f(x, *upstream)


def _plain(x: Tensor, item: Tensor, k: int, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Computes both outputs with differentiable operations."""
    logs = log_symmetric(_others(xp.cast(x, xp.float64), item) / scale, k)
    exists = logs[:, k] > -math.inf
    at_k, before = (xp.where(exists, y, 0.0) for y in (logs[:, k], logs[:, k - 1]))
    return xp.where(exists, scale * (at_k - before), -math.inf), _score_of(x, item)


def _others(x: Tensor, item: Tensor) -> Tensor:
    return xp.where(_is(item, x), xp.constant(-math.inf, x.dtype), x)


def _is(item: Tensor, x: Tensor) -> Tensor:
    return xp.range(xp.shape(x)[1], dtype=item.dtype) == item[:, xp.newaxis]


def _score_of(x: Tensor, item: Tensor) -> Tensor:
    scores = xp.cond(
        xp.shape(x)[1] > 0,
        lambda: xp.gather(x, xp.maximum(item, 0), batch_dims=1),
        lambda: xp.zeros_like(item, x.dtype),
    )
    return xp.cast(xp.where(item >= 0, scores, 0.0), xp.float64)
