"""Elementary symmetric polynomials of exponentials: their logarithms, and a ratio of them.

The coefficients of `prod_j (1 + w_j z)` are the elementary symmetric polynomials of the odds `w`.
The factors are distributed over lanes, which are multiplied out in parallel in linear space; the
lanes are multiplied in float64. Every term is positive, so coefficients are accurate for any odds.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.refusals import refusal

SCORES = 450_000  # numbers per block, so that inputs and intermediate results stay in cache
UNKNOWN_SIZE = 1024  # the assumed list size if it is known only when the graph runs
FACTORS = 5  # items of a lane per step: the lane is read and written once for all of them
UNROLLED = 16  # terms of a sum that are compiled into one expression
LANES = (8, 16, 32, 64, 128)
# 4**-14 and 4**-27 are below half of the last digit, 2**-24 of float32 and 2**-53 of float64
EXACT_TERMS = {tf.float32: 14, tf.float64: 27}  # of the light series, at odds up to 1/4


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
    nothing = tf.constant(-math.inf, x.dtype)
    empty = tf.zeros([tf.shape(x)[0], 1], x.dtype)
    start = tf.pad(empty, [[0, 0], [0, degree]], constant_values=nothing)

    # sigma_m with an item = sigma_m of the others + exp(item) * sigma_(m-1) of the others
    def add_item(logs: Tensor, item: Tensor) -> Tensor:
        with_item = logs[:, :-1] + item[:, tf.newaxis]
        return log_add(logs, tf.pad(with_item, [[0, 0], [1, 0]], constant_values=nothing))

    return tf.foldl(add_item, tf.transpose(x), start)


def log_add(a: Tensor, b: Tensor) -> Tensor:
    """Computes `log(exp(a) + exp(b))`; -inf, with gradient 0, if both are -inf."""
    # the larger one cancels, so it needs no gradient
    top = tf.stop_gradient(tf.maximum(a, b))
    some = top > -math.inf
    top = tf.where(some, top, 0.0)
    total = tf.exp(a - top) + tf.exp(b - top)
    return tf.where(some, top + tf.math.log(tf.where(some, total, 1.0)), -math.inf)


def in_blocks(
    function: Callable[..., tuple[Tensor, ...]], x: Tensor, *more: Tensor, to: list[tuple[int, ...]]
) -> tuple[Tensor, ...]:
    """Calls a function of the lists of a batch on blocks of them.

    Args:
        function: Maps a block of each argument to tensors of the dtype of `x`.
        x: The lists, `[batch_size, list_size]`.
        *more: Further arguments per list, `[batch_size]`.
        to: Shape of each result of the function for one list.

    Returns:
        The results for the whole batch.
    """
    rows: int | Tensor = _power_of_two(max(SCORES // (x.shape[1] or UNKNOWN_SIZE), 1))
    batch_size = x.shape[0]
    if batch_size is not None and batch_size <= rows:
        return function(x, *more)
    if batch_size is None:
        batch_size = tf.shape(x)[0]
        rows = tf.clip_by_value(batch_size, 1, rows)

    def split(y: Tensor) -> Tensor:
        ends = [[0, -batch_size % rows]] + [[0, 0]] * (y.shape.rank - 1)
        return tf.reshape(tf.pad(y, ends), [-1, rows, *tf.unstack(tf.shape(y)[1:])])

    results = tf.map_fn(
        lambda block: function(*block),
        tuple(split(y) for y in (x, *more)),
        fn_output_signature=tuple(tf.TensorSpec([None, *shape], x.dtype) for shape in to),
    )
    return tuple(
        tf.reshape(y, [-1, *shape])[:batch_size] for y, shape in zip(results, to, strict=True)
    )


def _power_of_two(x: int) -> int:
    """The largest power of two up to `x`, the size of blocks."""
    return 1 << (x.bit_length() - 1)


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
    top = tf.reduce_max(x, axis=1)
    top = tf.where(tf.math.is_finite(top), top, 0.0)
    total = tf.reduce_sum(tf.exp((x - top[:, tf.newaxis]) * inverse_scale), axis=1)
    # then no score is above this t, the minimum is idle, and t solves the equation
    flat = total >= mass
    t = top + _log(total / mass) / inverse_scale
    t = tf.cond(
        tf.reduce_all(flat),
        lambda: t,
        lambda: tf.where(flat, t, _centre_of_peaked(x, top, flat, k, inverse_scale)),
    )
    return t, top


def _centre_of_peaked(
    x: Tensor, top: Tensor, flat: Tensor, k: int, inverse_scale: Tensor
) -> Tensor:
    """Bisects for the `k`-th largest score up to a few scales, then counts what lies below it."""
    bottom = tf.reduce_min(tf.where(tf.math.is_finite(x), x, x.dtype.max), axis=1)
    near = 4.0 / inverse_scale

    def halve(low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        # the sum of two large scores would overflow
        middle = 0.5 * low + 0.5 * high
        few = _count(x > middle[:, tf.newaxis], x.dtype) <= k - 1
        return tf.where(few, low, middle), tf.where(few, middle, high)

    def unfinished(low: Tensor, high: Tensor) -> Tensor:
        return tf.reduce_any((high - low > near) & ~flat)

    # bisection ends at the latest when the bounds are neighbouring numbers
    _, high = tf.while_loop(
        unfinished, halve, (tf.minimum(bottom, top), top), maximum_iterations=64
    )
    above = x > high[:, tf.newaxis]
    odds = tf.exp(tf.minimum(x - high[:, tf.newaxis], 0.0) * inverse_scale)
    below = tf.where(~above, odds, 0.0)
    # at least 1/2, since bisection leaves at most k - 1 scores above `high`
    rest = k - 0.5 - _count(above, x.dtype)
    return high + _log(tf.reduce_sum(below, axis=1) / rest) / inverse_scale


def _count(which: Tensor, dtype: tf.DType) -> Tensor:
    return tf.reduce_sum(tf.cast(which, dtype), axis=1)


def _log(x: Tensor) -> Tensor:
    """The logarithm; a list without items has a finite one."""
    return tf.math.log(tf.maximum(x, 1e-30))


@dataclasses.dataclass(frozen=True)
class Plan:
    """Plan to compute the coefficients from the factors of a list.

    Attributes:
        lanes: Number of lanes.
        degree: Degree at which the lanes are truncated.
        full_degree: Degree at which truncation has no relevant effect.
        below: Number of relevant coefficients below `k`.
        above: Number of relevant coefficients above `k`.
        lost: Maximum share of a coefficient that may be lost.
    """

    lanes: int
    degree: int
    full_degree: int
    below: int
    above: int
    lost: float


@functools.cache
def plan_of(list_size: int | None, k: int, dtype: tf.DType) -> Plan:
    """Chooses the fastest lanes for lists of a size, or of any size if `None`."""
    # The number of sampled items has a variance below k, so coefficients farther from k than this
    # have a share of 1e-9 (1e-17) in the series of the gradient.
    double = dtype == tf.float64
    reach = int((9.0 if double else 6.5) * math.sqrt(k)) + (10 if double else 6)
    size = list_size or UNKNOWN_SIZE
    above = min(reach, max(size - k, 0) + 1) if list_size else reach
    costs = {}
    for lanes in LANES:
        items = -(-size // (lanes * FACTORS)) * FACTORS  # of a lane
        most = min(items, k + above) if list_size else k + above
        degree = min(most, _degree_for(k / lanes, 1e-19 if double else 1e-10))
        # Measured: a step and an item cost as much as 7 coefficients, and narrow lanes more
        narrow = 1.15 if lanes < 64 and size > 4096 else 1.0
        cost = narrow * items * lanes * (degree + 7) + 3.0 * lanes * (degree + 1) * (k + above + 1)
        if lanes == LANES[0] or lanes * FACTORS <= size:
            costs[Plan(lanes, degree, most, min(k, reach), above, 1e-16 if double else 2e-8)] = cost
    return min(costs, key=costs.__getitem__)


def lanes_of(u: Tensor, peaked: Tensor, k: int, plan: Plan) -> Tensor:
    """Multiplies the factors `1 + exp(u) z` of each lane, truncated at `plan.degree`.

    Args:
        u: Logarithms of the odds, `[batch_size, list_size]`; -inf for an absent item. The sum of
            `min(1, exp(u))` must be about `k`.
        peaked: Whether any of the odds is above 1.
        k: The most relevant degree.
        plan: Result of `plan_of` for the list size.

    Returns:
        The coefficients, `[batch_size, plan.degree + 1, plan.lanes]`, up to a factor of each list.
    """
    if k <= 6:  # at most five odds are above 1: clipped, their product cannot overflow
        return _grow(u, plan.degree, plan, signed=False)
    return tf.cond(
        peaked,
        lambda: _grow(u, plan.degree, plan, signed=True),
        lambda: _grow(u, plan.degree, plan, signed=False),
    )


def full_lanes_of(u: Tensor, plan: Plan) -> Tensor:
    """Computes `lanes_of` up to `plan.full_degree`: slower, and for any odds."""
    return _grow(u, plan.full_degree, plan, signed=True)


def coefficients(lanes: Tensor, full_lanes: Callable[[], Tensor], k: int, plan: Plan) -> Tensor:
    """Multiplies the lanes of each list.

    Args:
        lanes: Result of `lanes_of`.
        full_lanes: Function that computes `full_lanes_of`, called if too much was truncated.
        k: The most relevant degree.
        plan: The plan.

    Returns:
        The coefficients of degrees 0 to `k + plan.above`, up to a factor of each list, in float64.
    """
    degree = k + plan.above
    if plan.degree == plan.full_degree:
        return _multiply(lanes, degree)
    return tf.cond(
        _cut_too_much(lanes, plan),
        lambda: _multiply(full_lanes(), degree),
        lambda: _multiply(lanes, degree),
    )


def _grow(u: Tensor, degree: int, plan: Plan, signed: bool) -> Tensor:
    """Computes the polynomial of each lane up to a degree, `[batch_size, degree + 1, lanes]`.

    If `signed`, an item of odds above 1 has the factor `exp(-u) + z`, to avoid overflow.
    """
    rows, step_size = tf.shape(u)[0], FACTORS * plan.lanes
    odds = _signed_odds(u) if signed else tf.exp(tf.minimum(u, _largest_log(u.dtype)))
    if u.shape[1] is None or u.shape[1] < step_size:
        missing = tf.maximum(step_size - tf.shape(u)[1], 0)
        odds = tf.pad(odds, [[0, 0], [0, missing]])
    list_size = odds.shape[1] or tf.shape(odds)[1]
    head = tf.zeros([rows, FACTORS, plan.lanes], u.dtype)
    unit = tf.ones([rows, 1, plan.lanes], u.dtype)
    tail = tf.zeros([rows, degree, plan.lanes], u.dtype)

    def step(start: Tensor, lanes: Tensor) -> tuple[Tensor, Tensor]:
        # The last step reads some items a second time and ignores them. Padding, or a slice of a
        # tensor of rank 4, would be slower: XLA could not vectorise the odds.
        first = tf.minimum(start, list_size - step_size)
        factors = tf.slice(odds, [0, first], [rows, step_size])
        if odds.shape[1] is None or odds.shape[1] % step_size:
            factors = tf.where(tf.range(step_size) >= start - first, factors, 0.0)
        factors = tf.reshape(factors, [rows, FACTORS, plan.lanes])
        product = _expand([factors[:, j : j + 1] for j in range(FACTORS)], signed)
        grown = sum(  # the leading zeros are the coefficients of negative degrees
            coefficient * lanes[:, FACTORS - m : FACTORS - m + degree + 1]
            for m, coefficient in enumerate(product)
        )
        return start + step_size, tf.concat([head, grown], axis=1)

    begin = (tf.constant(0), tf.concat([head, unit, tail], axis=1))
    _, lanes = tf.while_loop(lambda start, _: start < list_size, step, begin)
    return lanes[:, FACTORS:]


def _signed_odds(u: Tensor) -> Tensor:
    """Computes `exp(u)`, or `-exp(-u)` where that is above 1; never quite 0 there."""
    light = u <= 0.0
    # exp(-80) is a normal number of float32; 0 would have no sign
    odds = tf.exp(tf.where(light, u, tf.maximum(-u, -80.0)))
    return tf.where(light, odds, -odds)


def _expand(odds: list[Tensor], signed: bool) -> list[Tensor | float]:
    """Multiplies the factors `a_j + b_j z` of a few items out."""
    product: list[Tensor | float] = [1.0]
    for w in odds:
        if signed:
            a, b = tf.where(w < 0.0, -w, 1.0), tf.where(w >= 0.0, w, 1.0)
            inner = [x * a + y * b for x, y in zip(product[1:], product, strict=False)]
            product = [product[0] * a, *inner, product[-1] * b]
        else:
            inner = [x + y * w for x, y in zip(product[1:], product, strict=False)]
            product = [product[0], *inner, product[-1] * w]
    return product


def _cut_too_much(lanes: Tensor, plan: Plan) -> Tensor:
    """Bounds the truncation error of the lanes, whose coefficients are log-concave."""
    tiny = tf.constant(1e-300 if lanes.dtype == tf.float64 else 1e-37, lanes.dtype)
    largest = tf.reduce_max(lanes, axis=1)
    last, before = lanes[:, plan.degree], lanes[:, plan.degree - 1]
    # by Newton's inequality, c_(m+1) <= c_m**2 / c_(m-1): the first coefficient that is cut off
    lost = tf.reduce_sum(last * last / (tf.maximum(before, tiny) * largest), axis=1)
    overflown = ~tf.math.is_finite(tf.reduce_max(largest))
    # "not below" is also true of NaN
    return ~(tf.reduce_max(lost) < plan.lost) | overflown


def _multiply(lanes: Tensor, degree: int) -> Tensor:
    """Multiplies the lanes of each list up to a degree, `[batch_size, degree + 1]`, in float64."""
    cut = lanes.shape[1] - 1
    # lists innermost, to vectorise over them
    lanes = tf.transpose(tf.cast(lanes, tf.float64), [2, 1, 0])
    # a factor of each lane cancels, and the product of 128 lanes would leave the range of float64
    lanes = lanes / tf.reduce_max(lanes, axis=1, keepdims=True)
    rows = tf.shape(lanes)[2]
    head = tf.zeros([cut, rows], tf.float64)
    unit = tf.ones([1, rows], tf.float64)

    def by_lane(i: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
        lane = tf.gather(lanes, i)

        def term(m: int | Tensor) -> Tensor:
            shifted = tf.slice(product, [cut - m, 0], [degree + 1, rows])
            return tf.gather(lane, m)[tf.newaxis] * shifted

        return i + 1, tf.concat([head, _sum(term, cut + 1)], axis=0)

    tail = tf.zeros([degree, rows], tf.float64)
    start = (tf.constant(0), tf.concat([head, unit, tail], axis=0))
    _, product = tf.while_loop(lambda i, _: i < lanes.shape[0], by_lane, start)
    product = tf.transpose(product[cut:])
    return product / tf.reduce_max(product, axis=1, keepdims=True)


def _sum(term: Callable[[int | Tensor], Tensor], count: int) -> Tensor:
    """Sums `term(0), ..., term(count - 1)`: in one expression if they are few, else in a loop."""
    if count <= UNROLLED:
        return sum(term(m) for m in range(count))
    start = (tf.constant(1), term(0))
    _, total = tf.while_loop(lambda m, _: m < count, lambda m, t: (m + 1, t + term(m)), start)
    return total


def _largest_log(dtype: tf.DType) -> float:
    """Log-odds above which results do not change, and of which five do not overflow."""
    return 100.0 if dtype == tf.float64 else 17.0


def _degree_for(mean: float, lost: float) -> int:
    """The degree at which a lane with a Poisson number of sampled items loses at most a share."""
    degree, term = 0, 1.0
    while term >= lost or degree <= mean:
        degree += 1
        term *= mean / degree
    return max(degree - 1, 4)


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


def series_of(coefficients: Tensor, k: int, plan: Plan, dtype: tf.DType) -> Series:
    """Makes the series of the polynomials of `[batch_size, k + plan.above + 1]` coefficients.

    Args:
        coefficients: Those of degrees 0 to `k + plan.above`; positive at `k - 1` and `k`.
        k: The degree of the ratio's numerator.
        plan: The plan of the coefficients.
        dtype: The dtype of the series.
    """
    at_k, before = coefficients[:, k, tf.newaxis], coefficients[:, k - 1, tf.newaxis]
    ratio = before / at_k
    down = tf.reverse(coefficients[:, k - 1 - plan.below if plan.below < k else 0 : k], axis=[1])
    if plan.below == k:
        down = tf.pad(down, [[0, 0], [0, 1]])  # the coefficient of degree -1
    # w**(i+1) has the factor (-1)**i * (d_i - d_(i+1)), with d_i = P_(k-1-i) / P_(k-1) / ratio**i,
    # for w in units of P_k / P_(k-1). As coefficients are log-concave, every d_i is at most 1
    down = down / before * _powers(1.0 / ratio, plan.below)
    up = coefficients[:, k:] / at_k * _powers(ratio, plan.above)
    return Series(
        shift=tf.cast(tf.math.log(ratio[:, 0]), dtype),
        light=tf.cast(_alternate(down[:, :-1] - down[:, 1:]), dtype),
        heavy=tf.cast(_alternate(up[:, :-1] - up[:, 1:]), dtype),
    )


def derivative(u: Tensor, series: Series) -> Tensor:
    """Evaluates the series at shifted logarithms of odds, `[batch_size, list_size]`."""
    # w or 1 / w, whichever is at most 1: the terms of its series shrink
    v = tf.exp(-tf.abs(u))
    return tf.where(u <= 0.0, _horner(series.light, v), _horner(series.heavy, v))


def derivative_of_light(u: Tensor, series: Series, terms: int) -> Tensor:
    """Evaluates the first terms of the series for lists without heavy items."""
    return _horner(series.light[:, :terms], tf.exp(u))


def _horner(coefficients: Tensor, v: Tensor) -> Tensor:
    value = tf.zeros_like(v)
    for i in reversed(range(coefficients.shape[1])):
        value = (value + coefficients[:, i, tf.newaxis]) * v
    return value


def _powers(x: Tensor, count: int) -> Tensor:
    """Computes `1, x, ..., x^count` of a column, `[batch_size, count + 1]`, by doubling."""
    powers = tf.concat([tf.ones_like(x), x], axis=1)
    while powers.shape[1] <= count:
        powers = tf.concat([powers, powers[:, 1:] * powers[:, -1:]], axis=1)
    return powers[:, : count + 1]


def _alternate(x: Tensor) -> Tensor:
    return x * tf.constant([(-1.0) ** i for i in range(x.shape[1])], x.dtype)


def soft_kth_largest(x: Tensor, k: int, scale: Tensor | float = 1.0) -> Tensor:
    """Computes the soft `k`-th largest score of each list.

    ```
    T = scale * (log sigma_k(exp(x / scale)) - log sigma_{k-1}(exp(x / scale)))
    s_(k) - scale * log(k) <= T <= s_(k) + scale * log(n - k + 1)
    ```

    where `s_(k)` is the `k`-th largest of the `n` scores. With a scale of 1 it is the logarithm of
    the ratio of two elementary symmetric polynomials. Its derivative by `x_j` is the probability
    that item `j` is among `k` items, less that it is among `k - 1`, which are sampled with odds
    `exp(x / scale)`.

    Args:
        x: Scores, `[batch_size, list_size]`, float32 or float64; -inf for an absent item.
        k: The rank; positive.
        scale: Softness, positive: a scalar, which may be a tensor.

    Returns:
        The soft score, `[batch_size]`, in float64 for any dtype of `x`, because it may be compared
        with nearly equal scores; -inf for a list of fewer than `k` items. Gradients take one pass
        over `x`; higher derivatives use `log_symmetric`, at its cost.

    Raises:
        ValueError: If `k` is not positive.
    """
    return soft_kth_largest_beside(x, tf.fill([tf.shape(x)[0]], -1), k, scale)[0]


def soft_kth_largest_beside(
    x: Tensor, item: Tensor, k: int, scale: Tensor | float = 1.0
) -> tuple[Tensor, Tensor]:
    """Computes the soft `k`-th largest score of all items but one, and the score of that item.

    Both are results of one function, so that their gradients take one pass over the scores.

    Args:
        x: As in `soft_kth_largest`.
        item: Index of the item that is left out, `[batch_size]`, int32; -1 for none.
        k: As in `soft_kth_largest`.
        scale: As in `soft_kth_largest`.

    Returns:
        The soft score of the others and the score of the item, both `[batch_size]` and float64.
    """
    if k < 1:
        raise refusal("`k` must be positive", k=k)
    if not tf.is_tensor(scale):
        scale = tf.constant(scale, tf.float64)  # a cast would make it float32 first
    scale = tf.cast(scale, tf.float64)

    @tf.custom_gradient
    def f(x: Tensor) -> tuple[tuple[Tensor, Tensor], object]:
        forward = _forward(x, item, k, scale)

        def vjp(*upstream: Tensor) -> Tensor:
            return _differentiable_gradient(x, item, k, scale, forward, *upstream)

        return (forward.kth, _score_of(x, item)), vjp

    return f(x)


class _Forward(NamedTuple):
    """Results of the forward pass for the gradient; all but `inverse_scale` are per list."""

    kth: Tensor  # the soft score; -inf if there are too few items
    t: Tensor  # the centre
    top: Tensor  # the largest score
    series: Series
    inverse_scale: Tensor


def _forward(x: Tensor, item: Tensor, k: int, scale: Tensor) -> _Forward:
    inverse_scale = tf.cast(1.0 / scale, x.dtype)
    plan = plan_of(x.shape[1], k, x.dtype)

    def log_odds(x: Tensor, t: Tensor) -> Tensor:
        return (x - t[:, tf.newaxis]) * inverse_scale

    def grow(x: Tensor, item: Tensor) -> tuple[Tensor, ...]:
        x = _others(x, item)
        t, top = centre(x, k, inverse_scale)
        # One tensor: without a gradient, unused results are dropped, and XLA can merge the loop
        # with that of the gradient only if both return the same.
        extent = tf.stack([t, top], axis=1)
        return extent, lanes_of(log_odds(x, t), tf.reduce_any(top > t), k, plan)

    def grow_fully(x: Tensor, item: Tensor, t: Tensor) -> tuple[Tensor]:
        return (full_lanes_of(log_odds(_others(x, item), t), plan),)

    def full_lanes() -> Tensor:
        return in_blocks(grow_fully, x, item, t, to=[(plan.full_degree + 1, plan.lanes)])[0]

    extent, cut = in_blocks(grow, x, item, to=[(2,), (plan.degree + 1, plan.lanes)])
    t, top = tf.unstack(extent, axis=1)
    product = coefficients(cut, full_lanes, k, plan)
    exists = (product[:, k] > 0.0) & (product[:, k - 1] > 0.0)
    # any positive numbers: too few items must make no NaN in the logarithm and the series
    product = tf.where(exists[:, tf.newaxis], product, 1.0)
    log_ratio = tf.math.log(product[:, k] / product[:, k - 1])
    kth = tf.where(exists, tf.cast(t, tf.float64) + scale * log_ratio, -math.inf)
    return _Forward(kth, t, top, series_of(product, k, plan, x.dtype), inverse_scale)


def _gradient(
    x: Tensor, item: Tensor, forward: _Forward, for_kth: Tensor, for_item: Tensor
) -> Tensor:
    """Computes the gradient of the scores from those of both outputs, in one pass."""
    of_list, inverse_scale = forward.series, forward.inverse_scale
    for_kth = tf.where(forward.kth > -math.inf, for_kth, 0.0)
    for_kth, for_item = (tf.cast(y, x.dtype)[:, tf.newaxis] for y in (for_kth, for_item))
    top = (forward.top - forward.t) * inverse_scale + of_list.shift
    most = of_list.light.shape[1]
    terms = min(EXACT_TERMS[x.dtype], most)

    def finish(light: bool) -> Tensor:
        u = (x - forward.t[:, tf.newaxis]) * inverse_scale + of_list.shift[:, tf.newaxis]
        slope = derivative_of_light(u, of_list, terms) if light else derivative(u, of_list)
        return tf.where(_is(item, x), for_item, for_kth * slope)

    return tf.cond(
        tf.reduce_all(top <= (0.0 if terms == most else math.log(0.25))),
        lambda: finish(light=True),
        lambda: finish(light=False),
    )


def _differentiable_gradient(
    x: Tensor, item: Tensor, k: int, scale: Tensor, forward: _Forward, *upstream: Tensor
) -> Tensor:
    """Computes the gradient, whose derivatives use the plain form of the function."""

    @tf.custom_gradient
    def f(x: Tensor, *upstream: Tensor) -> tuple[Tensor, object]:
        def vjp(direction: Tensor) -> list[Tensor]:
            with tf.GradientTape() as outer:
                outer.watch([x, *upstream])
                with tf.GradientTape() as inner:
                    inner.watch(x)
                    outputs = _plain(x, item, k, scale)
                slope = inner.gradient(outputs, x, output_gradients=list(upstream))
                along = tf.reduce_sum(slope * direction)
            zero = tf.UnconnectedGradients.ZERO
            return outer.gradient(along, [x, *upstream], unconnected_gradients=zero)

        return _gradient(x, item, forward, *upstream), vjp

    return f(x, *upstream)


def _plain(x: Tensor, item: Tensor, k: int, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Computes both outputs with differentiable operations."""
    logs = log_symmetric(_others(tf.cast(x, tf.float64), item) / scale, k)
    exists = logs[:, k] > -math.inf
    at_k, before = (tf.where(exists, y, 0.0) for y in (logs[:, k], logs[:, k - 1]))
    return tf.where(exists, scale * (at_k - before), -math.inf), _score_of(x, item)


def _others(x: Tensor, item: Tensor) -> Tensor:
    return tf.where(_is(item, x), tf.constant(-math.inf, x.dtype), x)


def _is(item: Tensor, x: Tensor) -> Tensor:
    return tf.range(tf.shape(x)[1], dtype=item.dtype) == item[:, tf.newaxis]


def _score_of(x: Tensor, item: Tensor) -> Tensor:
    scores = tf.gather(x, tf.maximum(item, 0), batch_dims=1)
    return tf.cast(tf.where(item >= 0, scores, 0.0), tf.float64)
