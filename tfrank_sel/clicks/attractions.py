"""Attractions of items: their prior distribution, by the log itself, and posterior means."""

import numpy as np

from tfrank_sel.clicks.log import Floats, Integers, Log

GRID = np.geomspace(0.002, 0.99, 40)  # attractions that an item may have
_WIDTH = np.log(GRID[1] / GRID[0]) / np.sqrt(12.0)  # of a step of the grid, relative
_STEPS, _FEW_STEPS, _TOLERANCE = 60, 5, 1e-4
_COUNT = 1e-3  # of items that each attraction has at least, in each group
_GROUPS, _MEMBERS = 8, 50  # of items, and the least number in a group
_ROWS = 1 << 16  # at once
_SURE = 1e-6  # least probability of what happened


def by_place(log: Log) -> Integers:
    """Groups items by their mean position, `[items]`: what a ranker puts on top attracts more."""
    shown = np.bincount(log.items, log.shown, log.num_items)
    means = np.bincount(log.items, log.shown * log.columns, log.num_items) / np.maximum(shown, 1.0)
    count = int(np.clip(log.num_items // _MEMBERS, 1, _GROUPS))
    edges = np.quantile(means, np.arange(1, count) / count)
    return np.asarray(np.searchsorted(edges, means, side="right"), np.int64)


class Attractions:
    """A discrete distribution of attractions over `GRID` for each group of items of `by_place`.

    Its weights are those of the largest likelihood, by expectation maximisation, which begins at
    those of the last call.

    Args:
        log: The log.
    """

    def __init__(self, log: Log) -> None:
        self.group = by_place(log)
        self.member = np.eye(int(self.group.max()) + 1)[self.group]
        self.weights = np.full((self.member.shape[1], len(GRID)), 1.0 / len(GRID))

    def posterior(self, likelihood: Floats, steps: int = _STEPS) -> Floats:
        """Probability of each attraction of each item, `[items, grid]`.

        Args:
            likelihood: Logarithm of the likelihood of each, `[items, grid]`.
            steps: Largest number of steps.
        """
        scaled = np.exp(likelihood - likelihood.max(axis=1, keepdims=True))
        for _ in range(steps):
            posterior = scaled * self.weights[self.group]
            posterior /= posterior.sum(axis=1, keepdims=True)
            weights = self.member.T @ posterior + _COUNT
            weights /= weights.sum(axis=1, keepdims=True)
            change, self.weights = np.abs(weights - self.weights).max(), weights
            if change < _TOLERANCE:
                break
        return np.asarray(posterior, np.float64)

    def mean(self, amounts: Floats, counts: Floats) -> Floats:
        """Means of the items after `amounts` of `counts` examinations were clicks, `[items]`.

        The prior moves by a few steps, since callers take many.
        """
        others = np.maximum(counts - amounts, 0.0)
        likelihood = np.outer(amounts, np.log(GRID)) + np.outer(others, np.log1p(-GRID))
        return refined(self.posterior(likelihood, _FEW_STEPS), amounts, counts)


def refined(posterior: Floats, amounts: Floats, counts: Floats) -> Floats:
    """Posterior means, `[items]`, which for many examinations are shares and not of the grid."""
    means = posterior @ GRID
    # a beta prior of this mean, as wide as a step: mean * (1 - mean) / strength = (mean *
    # _WIDTH)**2
    strength = (1.0 - means) / (means * _WIDTH**2)
    return np.asarray((amounts + strength * means) / (counts + strength), np.float64)


def log_likelihood(
    table: Floats, items: Integers, of: Integers, clicks: Floats, others: Floats, count: int
) -> Floats:
    """Log-likelihood of each attraction of each item, `[items, grid]`.

    Args:
        table: Probabilities of a click by attraction, `[kinds, grid]`.
        items: Item of each number of clicks, `[rows]`.
        of: Row of `table` of each, `[rows]`.
        clicks: The clicks, `[rows]`.
        others: Impressions without a click, `[rows]`.
        count: Number of items.
    """
    safe = np.clip(table, _SURE, 1.0 - _SURE)
    logs, rest = np.log(safe), np.log1p(-safe)
    sums, order = np.zeros((count, len(GRID))), np.argsort(items, kind="stable")
    for first in range(0, len(order), _ROWS):
        rows = order[first : first + _ROWS]
        each = clicks[rows, np.newaxis] * logs[of[rows]] + others[rows, np.newaxis] * rest[of[rows]]
        starts = np.flatnonzero(np.diff(items[rows], prepend=-1))
        sums[items[rows][starts]] += np.add.reduceat(each, starts, axis=0)
    return sums


def expected(posterior: Floats, table: Floats, items: Integers, pools: Integers) -> Floats:
    """Probability of a click on items at pools of positions, `[rows]`."""
    parts = [
        (posterior[items[i : i + _ROWS]] * table[pools[i : i + _ROWS]]).sum(axis=1)
        for i in range(0, len(items), _ROWS)
    ]
    return np.asarray(np.concatenate(parts), np.float64)
