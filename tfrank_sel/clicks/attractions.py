"""Attractions of items: their prior distribution, posterior means, and the additive model."""

import dataclasses

import numpy as np

from tfrank_sel.clicks.log import Floats, Integers, Log

_LOWEST, _HIGHEST = 0.002, 0.99  # attraction of the grid
_STEP = np.log(_HIGHEST / _LOWEST) / 39.0  # of the grid, relative
_WIDTH = _STEP / np.sqrt(12.0)  # standard deviation within a step
_STEPS, _FEW_STEPS, _TOLERANCE = 60, 5, 1e-4
_COUNT = 1e-3  # of items that each attraction has at least, in each group
_GROUPS, _MEMBERS = 8, 50  # of items, and the least number in a group
# Rows that are summed at once.
_ROWS = 1 << 16
_SURE = 1e-9  # least probability of what happened
_NEWTON_STEPS, _NEWTON_TOLERANCE = 50, 2e-4
_LONGEST = 2.0  # of a step of Newton's method
_LEAST = 1e-9
_ROUNDING = 1e-6


def by_place(log: Log) -> Integers:
    """Groups items by their mean position, `[items]`: what a ranker puts on top attracts more."""
    shown = np.bincount(log.items, log.shown, log.num_items)
    means = np.bincount(log.items, log.shown * log.columns, log.num_items) / shown.clip(_LEAST)
    seen = means[shown > 0.0]  # the part of a log has items without a row
    count = int(np.clip(len(seen) // _MEMBERS, 1, _GROUPS))
    edges = np.quantile(seen, np.arange(1, count) / count)
    return np.asarray(np.searchsorted(edges, means, side="right"), np.int64)


class Attractions:
    """A discrete distribution of attractions over a grid for each group of items of `by_place`.

    Its weights are those of the largest likelihood, by expectation maximisation, which begins at
    those of the last call. The grid has equal ratios, up to 0.99; it begins at 0.002 or, if clicks
    are rarer, at the least share of clicks that an item of the log can tell from none.

    Args:
        log: The log.

    Attributes:
        grid: Attractions that an item may have, increasing, `[grid]`.
        variance: Variance of the posterior distributions of the last means, `[items]`.
        is_fixed: Whether the distribution stays as it is.
    """

    def __init__(self, log: Log) -> None:
        shown = np.bincount(log.items, log.shown, log.num_items)
        clicks = np.bincount(log.items, log.clicks, log.num_items)
        is_shown = shown > 0.0
        least = ((clicks + 0.5)[is_shown] / shown[is_shown]).min()
        steps = np.ceil(np.log(_HIGHEST / min(least, _LOWEST)) / _STEP - _ROUNDING)
        self.grid: Floats = _HIGHEST * np.exp(-_STEP * np.arange(steps, -1.0, -1.0))
        group = by_place(log)
        self.order = np.argsort(group, kind="stable")
        self.is_shown = is_shown[self.order]
        sizes = np.bincount(group)
        ends = np.cumsum(sizes).tolist()
        self.groups = [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]
        self.weights = np.full((len(sizes), len(self.grid)), 1.0 / len(self.grid))
        self.variance = np.zeros(log.num_items)
        self.is_fixed = False

    def posterior(self, likelihood: Floats, steps: int = _STEPS) -> Floats:
        """Probability of each attraction of each item, `[items, grid]`.

        Args:
            likelihood: Logarithm of the likelihood of each, `[items, grid]`.
            steps: Largest number of steps.
        """
        scaled = likelihood[self.order]
        weights, total = self._fit_weights(scaled, steps)
        posterior = np.empty_like(scaled)
        each = zip(self.groups, weights, strict=True)
        posterior[self.order] = np.concatenate([scaled[x] * y for x, y in each]) / total[:, None]
        return posterior

    def mean(self, amounts: Floats, counts: Floats) -> Floats:
        """Means of the items after `amounts` of `counts` examinations were clicks, `[items]`.

        The prior moves by a few steps, since callers take many.
        """
        others = np.maximum(counts - amounts, 0.0)[self.order]
        scaled = np.outer(amounts[self.order], np.log(self.grid))
        scaled += np.outer(others, np.log1p(-self.grid))
        weights, total = self._fit_weights(scaled, _FEW_STEPS)
        means, squares = np.empty((2, len(total)))
        for moments, power in ((means, 1.0), (squares, 2.0)):
            moments[self.order] = self._products(scaled, weights * self.grid**power) / total
        self.variance = squares - means**2
        return self.refine_means(means, amounts, counts)

    def _fit_weights(self, scaled: Floats, steps: int) -> tuple[Floats, Floats]:
        """Scales likelihoods and fits the weights; returns those of the last posterior and its sum.

        Args:
            scaled: Logarithms of likelihoods of the items in order, `[items, grid]`, which become
                likelihoods relative to the largest one of each.
            steps: Largest number of steps.
        """
        scaled -= scaled.max(axis=1, keepdims=True)
        np.exp(scaled, out=scaled)
        for _ in range(steps):
            used = self.weights
            total = self._products(scaled, used)
            if self.is_fixed:
                break
            shares = self.is_shown / total
            sums = [np.einsum("ij,i->j", scaled[x], shares[x]) for x in self.groups]
            weights = used * np.stack(sums) + _COUNT
            weights /= weights.sum(axis=1, keepdims=True)
            change, self.weights = np.abs(weights - used).max(), weights
            if change < _TOLERANCE:
                break
        return used, total

    def _products(self, scaled: Floats, of_groups: Floats) -> Floats:
        """Products of the rows of items in order with the vector of their group, `[items]`."""
        # a product of matrices has threads, which wait for each other on a busy machine
        each = zip(self.groups, of_groups, strict=True)
        return np.concatenate([np.einsum("ij,j->i", scaled[x], y) for x, y in each])

    def refine_means(self, means: Floats, amounts: Floats, counts: Floats) -> Floats:
        """Posterior means, `[items]`, which for many examinations are shares and not of the grid.

        Args:
            means: Posterior means over the grid, `[items]`.
            amounts: Clicks of each item, `[items]`.
            counts: Examinations of each, `[items]`.
        """
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
    sums, order = np.zeros((count, table.shape[1])), np.argsort(items, kind="stable")
    for first in range(0, len(order), _ROWS):
        rows = order[first : first + _ROWS]
        each = clicks[rows, np.newaxis] * logs[of[rows]] + others[rows, np.newaxis] * rest[of[rows]]
        starts = np.flatnonzero(np.diff(items[rows], prepend=-1))
        sums[items[rows][starts]] += np.add.reduceat(each, starts, axis=0)
    return sums


def click_probabilities(
    posterior: Floats, table: Floats, items: Integers, pools: Integers
) -> Floats:
    """Probability of a click on items at pools of positions, `[rows]`."""
    parts = [
        (posterior[items[i : i + _ROWS]] * table[pools[i : i + _ROWS]]).sum(axis=1)
        for i in range(0, len(items), _ROWS)
    ]
    return np.asarray(np.concatenate(parts), np.float64)


@dataclasses.dataclass
class Additive:
    """Fits the model by penalised likelihood, with the variance of items by Laplace's method.

    $$\\log \\frac{P}{1 - P} = b_k + m_g + d_i, \\qquad d_i \\sim N(0, \\sigma^2)$$

    for position k and item i of group g, items of about the same mean position. A position
    without a click has one impression more, of the mean, so that it has an end.

    Args:
        log: The log.
    """

    log: Log

    def __post_init__(self) -> None:
        self.group = by_place(self.log)
        cells = self.log.cells
        self.mean = self.log.clicks.sum() / self.log.shown.sum()
        start = np.log(np.maximum(self.mean, _LEAST) / np.maximum(1.0 - self.mean, _LEAST))
        # These are the b, m and d of the model.
        self.places = np.full(cells.num_pools, start)
        self.means = np.zeros(int(self.group.max()) + 1)
        self.items = np.zeros(self.log.num_items)
        self.is_shown = np.bincount(self.log.items, minlength=self.log.num_items) > 0
        self.variance = 1.0

    def fit(self, weights: Floats) -> None:
        """Fits, from the last solution on, with weights of rows, `[rows]`."""
        cells, log = self.log.cells, self.log
        clicks, shown = cells.sums(weights * log.clicks), cells.sums(weights * log.shown)
        counts = np.bincount(cells.pool, shown, cells.num_pools).clip(_LEAST)
        # where nothing was clicked, the largest likelihood is at minus infinity
        more = np.bincount(cells.pool, clicks, cells.num_pools) == 0.0
        for _ in range(_NEWTON_STEPS):
            items = self.means[self.group] + self.items
            p = sigmoid(self.places[cells.pool] + items[cells.item])
            error, curve = clicks - shown * p, shown * p * (1.0 - p)
            level = np.bincount(cells.pool, shown * items[cells.item], cells.num_pools)
            alone = sigmoid(self.places + level / counts)
            # the largest curvature, since its own is 0 far from the end, and a step without bound
            # there would shrink those of all other positions
            step = self._newton_step(error, curve, more * (self.mean - alone), more * 0.25)
            size = np.abs(step[0]).max()
            # where probabilities are near 0 or 1, Newton's step overshoots by any amount
            shrink = min(1.0, _LONGEST / max(size, np.abs(step[2]).max(), _LEAST))
            self.places += shrink * step[0]
            self.means += shrink * step[1]
            self.items += shrink * step[2]
            # E[d**2] of each item is its mode squared and, by Laplace, the inverse of its curvature
            bend = np.bincount(cells.item, curve, log.num_items) + 1.0 / self.variance
            second = (self.items**2 + 1.0 / bend)[self.is_shown]
            self.variance = float(np.clip(np.mean(second), 0.01, 25.0))
            if size < _NEWTON_TOLERANCE:
                break

    def _newton_step(
        self, error: Floats, curve: Floats, of_places: Floats, bends: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """A Newton step: items are eliminated from the system of positions and groups.

        Args:
            error: Slope of the likelihood in each cell, `[cells]`.
            curve: Its curvature, `[cells]`.
            of_places: Slope in each pool of positions beside that of its cells, `[pools]`.
            bends: The curvature of that, `[pools]`.
        """
        cells, count = self.log.cells, self.log.num_items
        size, groups = cells.num_pools, len(self.means)
        of_items, sums = (np.bincount(cells.item, x, count) for x in (error, curve))
        errors, bend = of_items - self.items / self.variance, sums + 1.0 / self.variance
        # Schur complement: the Hessian of the items is a diagonal
        rest = 1.0 - sums / bend
        gradient = np.bincount(cells.pool, error - curve * (errors / bend)[cells.item], size)
        of_groups = np.bincount(self.group, of_items - sums * errors / bend, groups)
        right = np.concatenate([gradient + of_places, of_groups])
        total = np.zeros((size + groups, size + groups))
        for k in range(size):  # a product of matrices has threads, which wait for each other
            at = cells.pool == k
            here = np.zeros(count)
            here[cells.item[at]] = curve[at]
            total[k, size:] = np.bincount(self.group, here * rest, groups)
            total[k, :size] = -np.bincount(cells.pool, curve * (here / bend)[cells.item], size)
            total[k, k] += here.sum() + bends[k]
        total[size:, :size] = total[:size, size:].T
        total[range(size, size + groups), range(size, size + groups)] = np.bincount(
            self.group, sums * rest, groups
        )
        # a constant may move from all positions to all groups: the shortest step leaves it where it
        # is
        moves = np.asarray(np.linalg.lstsq(total, right, rcond=1e-9)[0], np.float64)
        places, means = moves[:size], moves[size:]
        shift = sums * means[self.group]
        shift += np.bincount(cells.item, curve * places[cells.pool], count)
        return places, means, (errors - shift) / bend


def sigmoid(x: Floats) -> Floats:
    """The logistic function."""
    # 1 / (1 + exp(-x)) would overflow for large -x
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x), np.float64)
