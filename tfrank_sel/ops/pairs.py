"""Sums over the pairs of items of each list, in memory that does not grow with their number.

The matrix of pairs is computed in blocks, each pair once, and only sums are stored. Value and
gradient are sums of the same kind, so you can train on lists of any size: the sums are exact,
without sampling of pairs.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import layout

WIDTH = 32  # of a block, at least: operations on short rows are slow


class Items(NamedTuple):
    """Items of lists, or the items on one side of pairs.

    Every field is `[batch_size, list_size]`; on one side of pairs they are of such shapes that
    those of both sides broadcast to `[..., rows, columns]`.

    Attributes:
        scores: Their scores.
        labels: Their labels.
        mask: True for the valid ones.
        weights: Their weights.
        ranks: Their ranks by score, 1-based; of batch size 1, because items are in that order.
        gains: Their gains for a lambda weight.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor
    weights: Tensor
    ranks: Tensor
    gains: Tensor


Sums = tuple[Tensor, Tensor]
# Maps the items on both sides and the differences of their scores to the cost and the weight of
# each pair.
PairFunction = Callable[[Items, Items, Tensor], Sums]
# Adds up two functions of some of the pairs: the first by list, `[batch_size]`, the second by item.
# The latter stays the same when the items of a pair swap if the number is 1, and changes its sign
# if it is -1.
Pairing = Callable[[PairFunction, Items, float], Sums]


def sums_over_pairs(function: PairFunction, items: Items, pairing: Pairing) -> Tensor:
    """Sums the weighted costs of the unordered pairs of each list.

    Args:
        function: Computes cost and weight of each pair, from the first items, the second items,
            and the score of the first less that of the second. It must be symmetric in the two
            items, with weight 0 for an item with itself and for padding. No gradient flows through
            weights.
        items: The items.
        pairing: The pairs to sum over: `all_pairs`, `neighbours` or those of `with_top`.

    Returns:
        The sum of each list, `[batch_size]`. Its gradient flows only to `items.scores`, through the
        differences; it is computed together with the sum.
    """

    def with_slope(first: Items, second: Items, difference: Tensor) -> Sums:
        if not xp.HAS_GRADIENTS:
            cost, weight = function(first, second, difference)
            return xp.multiply_no_nan(cost, weight), xp.zeros_like(cost)
        cost, pull_back, weight = xp.vjp(
            lambda d: function(first, second, d), difference, has_aux=True
        )
        # the weight is the upstream gradient, so that none flows through it
        [slope] = pull_back(weight)
        # a pair that does not count may have an infinite cost, and 0 * inf is NaN
        return xp.multiply_no_nan(cost, weight), slope

    @xp.custom_gradient
    def slopes_again(scores: Tensor, slopes: Tensor) -> tuple[Tensor, object]:
        # only a Hessian times a vector runs through the pairs a second time
        def gradient(upstream: Tensor) -> tuple[Tensor, None]:
            def again(scores: Tensor) -> Tensor:
                return pairing(with_slope, items._replace(scores=scores), -1.0)[1]

            return xp.vjp(again, scores)[1](upstream)[0], None

        return slopes, gradient

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        costs, slopes = pairing(with_slope, items._replace(scores=scores), -1.0)

        def gradient(upstream: Tensor) -> Tensor:
            return upstream[:, xp.newaxis] * slopes_again(scores, slopes)

        return costs, gradient

    return f(items.scores)


def curvatures(function: PairFunction, items: Items, pairing: Pairing) -> Tensor:
    """Sums the second derivatives of the costs of the pairs of each item.

    Args:
        function: As in `sums_over_pairs`.
        items: The items.
        pairing: As in `sums_over_pairs`.

    Returns:
        The second derivative of the `sums_over_pairs` in each score, `[batch_size, list_size]`.
    """

    def with_curvature(first: Items, second: Items, difference: Tensor) -> Sums:
        def slope_of(difference: Tensor) -> Sums:
            cost, pull_back, weight = xp.vjp(
                lambda d: function(first, second, d), difference, has_aux=True
            )
            return pull_back(weight)[0], cost

        slope, pull_back, cost = xp.vjp(slope_of, difference, has_aux=True)
        return cost, pull_back(xp.ones_like(slope))[0]

    return pairing(with_curvature, items, 1.0)[1]


def all_pairs(function: PairFunction, items: Items, parity: float) -> Sums:
    """Pairs each item with each other.

    Lists are split into an odd number of blocks. Each block is paired with itself, from both sides,
    and with those behind it, cyclically, up to half way round: so two blocks meet once.
    """
    batch_size, list_size = xp.unstack(xp.shape(items.scores))
    size = items.scores.shape[1]
    is_whole = size is not None and (size <= WIDTH or layout.at_once(items.scores.shape, size))
    widest = xp.maximum(layout.terms() // xp.maximum(batch_size * list_size, 1), WIDTH)
    half = 0 if is_whole else -(-list_size // widest) // 2
    num_blocks = 2 * half + 1
    width = -(-list_size // num_blocks)

    def pair_costs(second: Items) -> tuple[Tensor, Tensor]:
        second = Items(*(x[:, :, xp.newaxis, :] for x in second))
        cost, by_item = function(first, second, first.scores - second.scores)
        return xp.reduce_sum(xp.reduce_sum(cost, axis=-1), axis=[1, 2]), by_item

    def add(step: Tensor, cost: Tensor, total: Tensor) -> tuple[Tensor, ...]:
        more, by_item = pair_costs(Items(*(xp.roll(x, -step, axis=1) for x in blocked)))
        behind = xp.roll(xp.reduce_sum(by_item, axis=-2), step, axis=1)
        total = total + (xp.reduce_sum(by_item, axis=-1) + parity * behind)
        return step + 1, cost + more, total

    blocked = _blocks(items, num_blocks, width)
    first = Items(*(x[..., xp.newaxis] for x in blocked))
    cost, by_item = pair_costs(blocked)
    # inside a block each pair comes from both sides: half of the cost, and no mirror image
    sums = 0.5 * cost, xp.reduce_sum(by_item, axis=-1)
    if not is_whole:
        _, *sums = xp.while_loop(
            lambda step, *_: step <= half, add, (1, *sums), maximum_iterations=half
        )
    cost, total = sums
    return cost, xp.reshape(total, [batch_size, num_blocks * width])[:, :list_size]


def neighbours(function: PairFunction, items: Items, parity: float) -> Sums:
    """Pairs each item with the next one."""
    following = Items(*(xp.pad(x, [[0, 0], [0, 1]])[:, 1:] for x in items))
    cost, by_item = function(items, following, items.scores - following.scores)
    of_following = xp.pad(by_item, [[0, 0], [1, 0]])[:, :-1]
    return xp.reduce_sum(cost, axis=-1), by_item + parity * of_following


def with_top(k: int | None) -> Pairing:
    """Returns the pairing of the first `k` items with each other item; `all_pairs` if `None`."""
    return all_pairs if k is None else functools.partial(_top_pairs, k)


def _top_pairs(k: int, function: PairFunction, items: Items, parity: float) -> Sums:
    static_size = items.scores.shape[1]
    if static_size is not None and static_size <= max(2 * k, WIDTH):
        # for n up to 2 * k, all n * n / 2 pairs are no more than k * n
        return all_pairs(function, items, parity)
    batch_size, list_size = xp.unstack(xp.shape(items.scores))
    top = xp.minimum(k, list_size)
    rows = xp.clip_by_value(layout.terms() // xp.maximum(batch_size * list_size, 1), 1, top)
    num_blocks = -(-top // xp.maximum(rows, 1))
    blocked = _blocks(Items(*(x[:, :top] for x in items)), num_blocks, rows)
    block = xp.range(num_blocks)[:, xp.newaxis]

    def add(step: Tensor, cost: Tensor, of_top: Tensor, total: Tensor) -> tuple[Tensor, ...]:
        first = Items(*(x[:, step, :, xp.newaxis] for x in blocked))
        second = Items(*(x[:, xp.newaxis, :] for x in items))
        # a pair of two top items comes once, from the better rank
        second = second._replace(mask=second.mask & (second.ranks > first.ranks))
        more, by_item = function(first, second, first.scores - second.scores)
        total_by_item = xp.reduce_sum(by_item, axis=-1)[:, xp.newaxis, :]
        of_top = of_top + xp.where(block == step, total_by_item, xp.zeros_like(total_by_item))
        total = total + parity * xp.reduce_sum(by_item, axis=-2)
        return step + 1, cost + xp.reduce_sum(more, axis=[1, 2]), of_top, total

    zeros = (xp.zeros_like(x) for x in (items.scores[:, 0], blocked.scores, items.scores))
    state = (0, *zeros)
    if layout.at_once(items.scores.shape, k):
        state = add(*state)
    else:
        state = xp.while_loop(
            lambda step, *_: step < num_blocks, add, state, maximum_iterations=num_blocks
        )
    _, cost, of_top, total = state
    of_top = xp.reshape(of_top, [batch_size, num_blocks * rows])[:, :top]
    return cost, total + xp.pad(of_top, [[0, 0], [0, list_size - top]])


def _blocks(items: Items, num_blocks: Tensor, width: Tensor) -> Items:
    """Splits lists into blocks, `[batch_size, num_blocks, width]`, and pads the last."""
    missing = num_blocks * width - xp.shape(items.scores)[1]
    padded = (xp.pad(x, [[0, 0], [0, missing]]) for x in items)
    return Items(*(xp.reshape(x, [xp.shape(x)[0], num_blocks, width]) for x in padded))
