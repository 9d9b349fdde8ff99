"""Products of the factors `1 + w_j z` of the items of each list: their coefficients.

On a CPU, the factors are distributed over lanes, which are multiplied out in parallel in linear
space; the lanes are multiplied in float64. On a GPU, a tree multiplies all pairs of nodes at once,
in float64 above its leaves. All terms are positive, so coefficients are accurate for any odds.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor

UNKNOWN_SIZE = 1024  # the assumed list size if it is known only when the graph runs
FACTORS = 5  # items of a lane per step: the lane is read and written once for all of them
UNROLLED = 16  # terms of a sum that are compiled into one expression
LANES = (8, 16, 32, 64, 128)
LEAF = 8  # items of a leaf of the tree, whose product has the range of float32
NODES = 64  # leaves come in such numbers, so that the large levels of the tree have no rest
BITS = 900  # of the largest number of the tree, whose products have the range of float64


@dataclasses.dataclass(frozen=True)
class ProductPlan:
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
def plan_of(list_size: int | None, k: int, dtype: xp.DType) -> ProductPlan:
    """Chooses the fastest lanes for lists of a size, or of any size if `None`."""
    # The number of sampled items has a variance below k, so coefficients farther from k than this
    # have a share of 1e-9 (1e-17) in the series of the gradient.
    double = dtype == xp.float64
    reach = int((9.0 if double else 6.5) * math.sqrt(k)) + (10 if double else 6)
    size = list_size or UNKNOWN_SIZE
    above = min(reach, max(size - k, 0) + 1) if list_size else reach
    costs = {}
    for lanes in LANES:
        # The number of items of a lane, rounded up to whole factors.
        items = -(-size // (lanes * FACTORS)) * FACTORS
        most = min(items, k + above) if list_size else k + above
        degree = min(most, _degree_for(k / lanes, 1e-19 if double else 1e-10))
        # Measured: a step and an item cost as much as 7 coefficients, and narrow lanes more
        narrow = 1.15 if lanes < 64 and size > 4096 else 1.0
        cost = narrow * items * lanes * (degree + 7) + 3.0 * lanes * (degree + 1) * (k + above + 1)
        if lanes == LANES[0] or lanes * FACTORS <= size:
            costs[
                ProductPlan(lanes, degree, most, min(k, reach), above, 1e-16 if double else 2e-8)
            ] = cost
    return min(costs, key=costs.__getitem__)


def lanes_of(u: Tensor, peaked: Tensor, k: int, plan: ProductPlan) -> Tensor:
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
    return xp.cond(
        peaked,
        lambda: _grow(u, plan.degree, plan, signed=True),
        lambda: _grow(u, plan.degree, plan, signed=False),
    )


def full_lanes_of(u: Tensor, plan: ProductPlan) -> Tensor:
    """Computes `lanes_of` up to `plan.full_degree`: slower, and for any odds."""
    return _grow(u, plan.full_degree, plan, signed=True)


def coefficients(
    lanes: Tensor, full_lanes: Callable[[], Tensor], k: int, plan: ProductPlan
) -> Tensor:
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
    return xp.cond(
        _cut_too_much(lanes, plan),
        lambda: _multiply(full_lanes(), degree),
        lambda: _multiply(lanes, degree),
    )


def _grow(u: Tensor, degree: int, plan: ProductPlan, signed: bool) -> Tensor:
    """Computes the polynomial of each lane up to a degree, `[batch_size, degree + 1, lanes]`.

    If `signed`, an item of odds above 1 has the factor `exp(-u) + z`, to avoid overflow.
    """
    rows, step_size = xp.shape(u)[0], FACTORS * plan.lanes
    odds = _signed_odds(u) if signed else xp.exp(xp.minimum(u, _largest_log(u.dtype)))
    if u.shape[1] is None or u.shape[1] < step_size:
        missing = xp.maximum(step_size - xp.shape(u)[1], 0)
        odds = xp.pad(odds, [[0, 0], [0, missing]])
    list_size = odds.shape[1] or xp.shape(odds)[1]
    head = xp.zeros([rows, FACTORS, plan.lanes], u.dtype)
    unit = xp.ones([rows, 1, plan.lanes], u.dtype)
    tail = xp.zeros([rows, degree, plan.lanes], u.dtype)

    def step(start: Tensor, lanes: Tensor) -> tuple[Tensor, Tensor]:
        # The last step reads some items a second time and ignores them. Padding, or a slice of a
        # tensor of rank 4, would be slower: XLA could not vectorise the odds.
        first = xp.minimum(start, list_size - step_size)
        factors = xp.slice(odds, [0, first], [rows, step_size])
        if odds.shape[1] is None or odds.shape[1] % step_size:
            factors = xp.where(xp.range(step_size) >= start - first, factors, 0.0)
        factors = xp.reshape(factors, [rows, FACTORS, plan.lanes])
        product = _expand([factors[:, j : j + 1] for j in range(FACTORS)], signed)
        grown = sum(  # the leading zeros are the coefficients of negative degrees
            coefficient * lanes[:, FACTORS - m : FACTORS - m + degree + 1]
            for m, coefficient in enumerate(product)
        )
        return start + step_size, xp.concat([head, grown], axis=1)

    begin = (xp.constant(0), xp.concat([head, unit, tail], axis=1))
    _, lanes = xp.while_loop(lambda start, _: start < list_size, step, begin)
    return lanes[:, FACTORS:]


def _signed_odds(u: Tensor) -> Tensor:
    """Computes `exp(u)`, or `-exp(-u)` where that is above 1; never quite 0 there."""
    light = u <= 0.0
    # exp(-80) is a normal number of float32; 0 would have no sign
    odds = xp.exp(xp.where(light, u, xp.maximum(-u, -80.0)))
    return xp.where(light, odds, -odds)


def _expand(odds: list[Tensor], signed: bool) -> list[Tensor | float]:
    """Multiplies the factors `a_j + b_j z` of a few items out."""
    product: list[Tensor | float] = [1.0]
    for w in odds:
        if signed:
            a, b = xp.where(w < 0.0, -w, 1.0), xp.where(w >= 0.0, w, 1.0)
            inner = [x * a + y * b for x, y in zip(product[1:], product, strict=False)]
            product = [product[0] * a, *inner, product[-1] * b]
        else:
            inner = [x + y * w for x, y in zip(product[1:], product, strict=False)]
            product = [product[0], *inner, product[-1] * w]
    return product


def _cut_too_much(lanes: Tensor, plan: ProductPlan) -> Tensor:
    """Bounds the truncation error of the lanes, whose coefficients are log-concave."""
    tiny = xp.constant(1e-300 if lanes.dtype == xp.float64 else 1e-37, lanes.dtype)
    largest = xp.reduce_max(lanes, axis=1)
    last, before = lanes[:, plan.degree], lanes[:, plan.degree - 1]
    # by Newton's inequality, c_(m+1) <= c_m**2 / c_(m-1): the first coefficient that is cut off
    lost = xp.reduce_sum(last * last / (xp.maximum(before, tiny) * largest), axis=1)
    overflown = ~xp.is_finite(xp.reduce_max(largest))
    # "not below" is also true of NaN
    return ~(xp.reduce_max(lost) < plan.lost) | overflown


def _multiply(lanes: Tensor, degree: int) -> Tensor:
    """Multiplies the lanes of each list up to a degree, `[batch_size, degree + 1]`, in float64."""
    cut = lanes.shape[1] - 1
    # lists innermost, to vectorise over them
    lanes = xp.transpose(xp.cast(lanes, xp.float64), [2, 1, 0])
    # a factor of each lane cancels, and the product of 128 lanes would leave the range of float64
    lanes = lanes / xp.reduce_max(lanes, axis=1, keepdims=True)
    rows = xp.shape(lanes)[2]
    head = xp.zeros([cut, rows], xp.float64)
    unit = xp.ones([1, rows], xp.float64)

    def by_lane(i: Tensor, product: Tensor) -> tuple[Tensor, Tensor]:
        lane = xp.gather(lanes, i)

        def term(m: int | Tensor) -> Tensor:
            shifted = xp.slice(product, [cut - m, 0], [degree + 1, rows])
            return xp.gather(lane, m)[xp.newaxis] * shifted

        return i + 1, xp.concat([head, _sum(term, cut + 1)], axis=0)

    tail = xp.zeros([degree, rows], xp.float64)
    start = (xp.constant(0), xp.concat([head, unit, tail], axis=0))
    _, product = xp.while_loop(lambda i, _: i < lanes.shape[0], by_lane, start)
    product = xp.transpose(product[cut:])
    return product / xp.reduce_max(product, axis=1, keepdims=True)


def tree_product(u: Tensor, degree: int) -> Tensor:
    """Multiplies the factors `1 + exp(u) z` of each list by a tree, `[batch_size, degree + 1]`.

    Args:
        u: As in `lanes_of`; the list size is known.
        degree: Degree at which the product is truncated.

    Returns:
        The coefficients in float64, up to a factor of each list.
    """
    nodes = -(-u.shape[1] // LEAF)
    nodes += -nodes % min(1 << (nodes - 1).bit_length(), NODES)
    u = xp.pad(u, [[0, 0], [0, nodes * LEAF - u.shape[1]]], constant_values=-math.inf)
    odds = xp.unstack(xp.reshape(_signed_odds(u), [-1, LEAF, nodes]), axis=1)
    # `[coefficient, list, node]`; the largest factor of an item is 1, so eight add up to 2**8
    product = xp.cast(xp.stack(_expand(odds, signed=True)[: degree + 1]), xp.float64)
    bits = LEAF
    while nodes > 1:
        if nodes % 2:
            unit = xp.one_hot([[0]], product.shape[0], axis=0, dtype=product.dtype)
            unit = xp.tile(unit, [1, xp.shape(product)[1], 1])
            product = xp.concat([product, unit], axis=2)
        if 2 * bits > BITS:
            product = product / xp.reduce_max(product, axis=0, keepdims=True)
            bits = product.shape[0].bit_length()
        nodes, bits = product.shape[2] // 2, 2 * bits
        product = _convolve(product[:, :, :nodes], product[:, :, nodes:], degree)
    product = xp.transpose(product[:, :, 0])
    product = xp.pad(product, [[0, 0], [0, degree + 1 - product.shape[1]]])
    return product / xp.reduce_max(product, axis=1, keepdims=True)


def _convolve(a: Tensor, b: Tensor, degree: int) -> Tensor:
    """Multiplies polynomials of equal degrees, whose coefficients are rows, up to a degree."""
    highest = a.shape[0] - 1
    rows = min(2 * highest, degree) + 1
    other = np.arange(rows) - np.arange(highest + 1)[:, np.newaxis]
    # outside of the polynomial, the row of zeros behind it
    shifted = xp.gather(
        xp.pad(b, [[0, 1], [0, 0], [0, 0]]),
        np.where((other < 0) | (other > highest), highest + 1, other).astype(np.int32),
    )
    return xp.reduce_sum(a[:, xp.newaxis] * shifted, axis=0)


def _sum(term: Callable[[int | Tensor], Tensor], count: int) -> Tensor:
    """Sums `term(0), ..., term(count - 1)`: in one expression if they are few, else in a loop."""
    if count <= UNROLLED:
        return sum(term(m) for m in range(count))
    start = (xp.constant(1), term(0))
    _, total = xp.while_loop(lambda m, _: m < count, lambda m, t: (m + 1, t + term(m)), start)
    return total


def _largest_log(dtype: xp.DType) -> float:
    """Log-odds above which results do not change, and of which five do not overflow."""
    return 100.0 if dtype == xp.float64 else 17.0


def _degree_for(mean: float, lost: float) -> int:
    """The degree at which a lane with a Poisson number of sampled items loses at most a share."""
    degree, term = 0, 1.0
    while term >= lost or degree <= mean:
        degree += 1
        term *= mean / degree
    return max(degree - 1, 4)
