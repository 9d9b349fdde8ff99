"""Team draft interleaving: a comparison of two rankers by the clicks on mixed lists."""

import math

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.clicks.log import Integers, numbers


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
    scores = numbers("first", first), numbers("second", second)
    if scores[0].shape != scores[1].shape:
        raise ValueError(
            f"`second` must have the shape of `first`, {scores[0].shape}. "
            f"Received: {scores[1].shape}"
        )
    orders = [np.argsort(-x, kind="stable").tolist() for x in scores]
    random = np.random.default_rng(seed)
    taken: dict[int, int] = {}
    while len(taken) < len(scores[0]):
        starts = int(random.integers(2))
        for team in (starts, 1 - starts):
            free = (item for item in orders[team] if item not in taken)
            if (best := next(free, None)) is not None:
                taken[best] = team
    return np.array(list(taken), np.int64), np.array(list(taken.values()), np.int64)


def sign_test(first: ArrayLike, second: ArrayLike) -> float:
    """Tests whether two rankers win equally many sessions: the sign test, two-sided.

    Args:
        first: Clicks on the team of the first ranker in each session, `[sessions]`.
        second: Clicks on the other team. Sessions of equal numbers of clicks are left out.

    Returns:
        The p-value.

    Example:
        >>> round(sign_test([1] * 8, [0] * 8), 4)
        0.0078
    """
    difference = numbers("first", first) - numbers("second", second)
    wins, count = int((difference > 0.0).sum()), int((difference != 0.0).sum())
    fewer = min(wins, count - wins)
    logs = [
        math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1)
        for k in range(fewer + 1)
    ]
    tail = math.fsum(math.exp(x - count * math.log(2.0)) for x in logs)
    return min(2.0 * tail, 1.0)
