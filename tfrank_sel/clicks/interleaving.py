"""Interleaving: two rankings mixed into one, and tests of the clicks on it."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.clicks.log import Floats, Integers, codes_of, numbers
from tfrank_sel.errors import refusal

T = TypeVar("T", bound=Hashable)
DEPTH = 10
_PENALTY = 1e4  # of bias; entropies are smaller
_ROUNDING = 1e-9
_PIVOTS = 1000


def team_draft(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> tuple[Integers, Integers]:
    """Mixes two rankings of the same items.

    In each round, a coin decides which ranker picks first; each adds its best item that is not yet
    in the list.

    Args:
        first: Scores of the first ranker, `[list_size]`.
        second: Scores of the second ranker, `[list_size]`.
        seed: Seed of the coins, such as a hash of the session.

    Returns:
        Indices of the items in the mixed order, and the team (0 or 1) of each, `[list_size]` each.

    Raises:
        ValueError: If the scores differ in length.

    Reference:
        [Radlinski, Kurup and Joachims, How does clickthrough data reflect retrieval quality?,
        CIKM 2008](https://doi.org/10.1145/1458082.1458092).

    Example:
        >>> items, teams = team_draft([3.0, 2.0, 1.0], [1.0, 2.0, 3.0])
        >>> sorted(items.tolist())
        [0, 1, 2]
    """
    items, teams = _mix_orders(drafted, first, second, seed)
    return items, teams.astype(np.int64)


def optimised(first: ArrayLike, second: ArrayLike, *, seed: int = 0) -> tuple[Integers, Floats]:
    r"""Mixes two rankings of the same items by optimised interleaving.

    Each of the first ten items is the best one left of either ranker. An item of ranks r and s,
    11 beyond the tenth, gives its clicks the credit

    $$\frac{1}{r} - \frac{1}{s}$$

    so that items of equal ranks decide nothing. The probabilities of the lists make the expected
    credit of each position 0, so that users who click without regard to items prefer neither
    ranker; among these, they maximise the expected entropy of the winner for users who click on
    position k in proportion to 1 / k. Further items are a team draft with credit 0, and so are all
    if no probabilities are unbiased.

    Args:
        first: Scores of the first ranker, `[list_size]`.
        second: Scores of the second ranker, `[list_size]`.
        seed: Seed of the choice of a list, such as a hash of the session.

    Returns:
        Indices of the items in the mixed order, and the credit that a click on each gives the first
        ranker (if negative, the second one), `[list_size]` each.

    Raises:
        ValueError: If the scores differ in length.

    Reference:
        [Radlinski and Craswell, Optimized interleaving for online retrieval evaluation, WSDM 2013](
        https://doi.org/10.1145/2433396.2433429).

    Example:
        >>> items, credits = optimised([3.0, 2.0, 1.0], [3.0, 1.0, 2.0])
        >>> sorted(zip(items.tolist(), credits.round(4).tolist()))
        [(0, 0.0), (1, 0.1667), (2, -0.1667)]
    """
    return _mix_orders(credited, first, second, seed)


def _mix_orders(
    mix: Callable[..., dict[int, Any]], first: ArrayLike, second: ArrayLike, seed: int
) -> tuple[Integers, Floats]:
    """Items and values of a mix of the orders of scores."""
    scores = numbers("first", first), numbers("second", second)
    if scores[0].shape != scores[1].shape:
        raise refusal(
            f"`second` must have the shape of `first`, {scores[0].shape}", scores[1].shape
        )
    taken = mix(*(np.argsort(-x, kind="stable").tolist() for x in scores), seed=seed)
    return np.array(list(taken), np.int64), np.array(list(taken.values()), np.float64)


def drafted(first: Sequence[T], second: Sequence[T], *, seed: int) -> dict[T, int]:
    """Returns the team of each item in the order of `team_draft`.

    Args:
        first: Items by the first ranker, best first, each once, `[list_size]`.
        second: Items by the second ranker, `[list_size]`; for the best of longer lists, these may
            be others.
        seed: As in `team_draft`.
    """
    size = len(first)
    free = iter(first), iter(second)
    taken: dict[T, int] = {}
    for starts in np.random.default_rng(seed).integers(2, size=(size + 1) // 2).tolist():
        for team in (starts, 1 - starts):
            best = next((item for item in free[team] if item not in taken), None)
            if best is not None and len(taken) < size:
                taken[best] = team
    return taken


def credited(first: Sequence[T], second: Sequence[T], *, seed: int) -> dict[T, float]:
    """Returns the credit of each item in the order of `optimised`.

    Args:
        first: As in `drafted`.
        second: As in `drafted`. For the best of longer lists, the first ten items and credits are
            those of the longer lists if these are ten or more.
        seed: As in `optimised`.
    """
    depth = min(len(first), len(second), DEPTH)
    names = list(dict.fromkeys((*first[:depth], *second[:depth])))
    places = {name: place for place, name in enumerate(names)}
    orders = [np.array([places[x] for x in order[:depth]], int) for order in (first, second)]
    credits = inverse_rank_credits(orders, len(names))
    lists = interleavings(orders, len(names))
    probable = allocation(credits[lists])
    chosen: dict[T, float] = {}
    if probable is not None:
        best = lists[np.random.default_rng(seed).choice(len(lists), p=probable)]
        chosen = {names[i]: float(credits[i]) for i in best}
    size = len(first) - len(chosen)
    rest = ([x for x in order if x not in chosen][:size] for order in (first, second))
    return chosen | dict.fromkeys(drafted(*rest, seed=seed), 0.0)


def inverse_rank_credits(orders: Sequence[Integers], num_items: int) -> Floats:
    """Credits of items, as in `optimised`, by two orders of the best of these, `[items]`."""
    depth = len(orders[0])
    inverse = np.full([2, num_items], 1.0 / (depth + 1))
    for row, order in zip(inverse, orders, strict=True):
        row[order] = 1.0 / np.arange(1, depth + 1)
    difference: Floats = inverse[0] - inverse[1]
    return difference


def interleavings(orders: Sequence[Integers], num_items: int) -> Integers:
    """All lists whose every item is the best one left of an order, `[lists, depth]`."""
    lists = np.empty([1, 0], int)
    for _ in orders[0]:
        free = np.ones([len(lists), num_items], bool)
        np.put_along_axis(free, lists, False, axis=1)
        first, second = (order[free[:, order].argmax(axis=1)] for order in orders)
        differ = first != second
        lists = np.concatenate(
            [np.column_stack([lists, first]), np.column_stack([lists, second])[differ]]
        )
    return lists


def allocation(credits: Floats) -> Floats | None:
    """Probabilities of lists with these credits by position, `[lists]`; None if none are unbiased.

    The linear programme has a column for each list and, with a penalty, for each constraint alone.
    The simplex method exchanges columns of the basis; slightly shifted constraints, which the
    result does not have, keep it from cycles.
    """
    count, depth = credits.shape
    columns = np.hstack([np.vstack([np.ones(count), credits.T]), np.eye(1 + depth)])
    gains = np.concatenate([_sensitivity(credits), np.full(1 + depth, -_PENALTY)])
    shifted = np.concatenate([[1.0], _ROUNDING * np.sqrt(np.arange(2, depth + 2))])
    basis = np.arange(count, count + 1 + depth)
    for _ in range(_PIVOTS):
        inverse = np.linalg.inv(columns[:, basis])
        # reduced costs: what a unit of each list would gain, less what it displaces
        better = gains - gains[basis] @ inverse @ columns
        best = better.argmax()
        if better[best] < _ROUNDING:
            break
        step = inverse @ columns[:, best]
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(step > _ROUNDING, inverse @ shifted / step, np.inf)
        basis[ratios.argmin()] = best
    solution = np.zeros(len(gains))
    solution[basis] = np.linalg.solve(columns[:, basis], columns[:, count])
    if np.abs(solution[count:]).max() > _ROUNDING:
        return None
    probable = np.maximum(solution[:count], 0.0)
    return probable / probable.sum()


def _sensitivity(credits: Floats) -> Floats:
    """Entropy of the winner, but for a factor, by the credits of each position, `[lists]`."""
    clicked = 1.0 / np.arange(1, credits.shape[1] + 1)
    won = np.stack([(sign * credits > 0.0) @ clicked for sign in (1.0, -1.0)])
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(won > 0.0, won * np.log(won / won.sum(axis=0)), 0.0)
    return -terms.sum(axis=0)


def sign_test(first: ArrayLike, second: ArrayLike, query: ArrayLike | None = None) -> float:
    """Tests whether two rankers win equally many sessions: the sign test, two-sided.

    Args:
        first: Clicks on the team of the first ranker in each session, `[sessions]`.
        second: Clicks on the other team. Sessions of equal numbers of clicks are left out.
        query: Query of each session, `[sessions]`. Sessions of one query are not independent: a
            ranker that is better for a few frequent queries wins many. If given, the test is that
            of the mean of `mean_test`, with a win as a credit of 1.

    Returns:
        The p-value.

    Raises:
        ValueError: If a length differs.

    Example:
        >>> round(sign_test([1] * 8, [0] * 8), 4)
        0.0078
        >>> round(sign_test([1] * 8, [0] * 8, query=list("aaaaaabc")), 4)
        0.1944
    """
    difference = numbers("first", first) - _of_length("second", numbers("second", second), first)
    if query is not None:
        return mean_test(np.sign(difference), query)
    wins, count = int((difference > 0.0).sum()), int((difference != 0.0).sum())
    fewer = min(wins, count - wins)
    logs = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        for k in range(fewer + 1)
    ]
    tail = math.fsum(math.exp(x - count * math.log(2.0)) for x in logs)
    return min(2.0 * tail, 1.0)


def mean_test(credits: ArrayLike, query: ArrayLike | None = None) -> float:
    r"""Tests whether the expected credit of sessions is 0: two-sided, by the normal distribution of

    $$\frac{\sum_i x_i}{\sqrt{\sum_i x_i^2}}$$

    where x_i is the credit of a session or, with `query`, of all sessions of a query.

    Args:
        credits: Sum of the credits of clicks in each session, `[sessions]`.
        query: As in `sign_test`.

    Returns:
        The p-value; 1 if all credits are 0.

    Raises:
        ValueError: If a length differs.

    Example:
        >>> round(mean_test([0.5, 0.25, 0.0, 0.5]), 4)
        0.0956
    """
    values = numbers("credits", credits)
    if query is not None:
        queries = _of_length("query", np.asarray(query), values)
        values = np.asarray(np.bincount(codes_of(queries), values), np.float64)
    norm = math.sqrt(values @ values)
    return math.erfc(abs(values.sum()) / norm / math.sqrt(2.0)) if norm else 1.0


def _of_length(name: str, values: NDArray[Any], like: ArrayLike) -> NDArray[Any]:
    if values.shape != np.shape(like):
        raise refusal(
            f"`{name}` must have a value for each of {np.shape(like)} sessions",
            f"shape {values.shape}",
        )
    return values
