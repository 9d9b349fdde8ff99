"""Additive click model: effects of positions on the log-odds of a click."""

import dataclasses

import numpy as np

from tfrank_sel.clicks.attractions import by_place
from tfrank_sel.clicks.log import Floats, Log

_STEPS, _TOLERANCE = 50, 2e-4
_LONGEST = 2.0  # of a step
_LEAST = 1e-9
_ROWS = 1 << 14  # of items at once


@dataclasses.dataclass
class Additive:
    """Fits the model by penalised likelihood, with the variance of items by Laplace's method.

    $$\\log \\frac{P}{1 - P} = b_k + m_g + d_i, \\qquad d_i \\sim N(0, \\sigma^2)$$

    for position k and item i of group g, items of about the same mean position.

    Args:
        log: The log.
    """

    log: Log

    def __post_init__(self) -> None:
        self.group = by_place(self.log)
        self.of_group = np.eye(int(self.group.max()) + 1)[self.group]
        cells = self.log.cells
        self.starts = np.searchsorted(cells.item, np.arange(0, self.log.num_items, _ROWS))
        mean = self.log.clicks.sum() / self.log.shown.sum()
        start = np.log(np.maximum(mean, _LEAST) / np.maximum(1.0 - mean, _LEAST))
        self.places = np.full(cells.num_pools, start)  # b
        self.means = np.zeros(self.of_group.shape[1])  # m
        self.items = np.zeros(self.log.num_items)  # d
        self.variance = 1.0

    def fit(self, weights: Floats) -> None:
        """Fits, from the last solution on, with weights of rows, `[rows]`."""
        cells, log = self.log.cells, self.log
        clicks, shown = cells.sums(weights * log.clicks), cells.sums(weights * log.shown)
        for _ in range(_STEPS):
            items = self.means[self.group] + self.items
            p = sigmoid(self.places[cells.pool] + items[cells.item])
            error, curve = clicks - shown * p, shown * p * (1.0 - p)
            step = self._solved(error, curve)
            size = np.abs(step[0]).max()
            # where probabilities are near 0 or 1, Newton's step overshoots by any amount
            shrink = min(1.0, _LONGEST / max(size, np.abs(step[2]).max(), _LEAST))
            self.places += shrink * step[0]
            self.means += shrink * step[1]
            self.items += shrink * step[2]
            # E[d**2] of each item is its mode squared and, by Laplace, the inverse of its curvature
            bend = np.bincount(cells.item, curve, log.num_items) + 1.0 / self.variance
            self.variance = float(np.clip(np.mean(self.items**2 + 1.0 / bend), 0.01, 25.0))
            if size < _TOLERANCE:
                break

    def _solved(self, error: Floats, curve: Floats) -> tuple[Floats, Floats, Floats]:
        """A Newton step: items are eliminated from the system of positions and groups."""
        cells, count = self.log.cells, self.log.num_items
        size = cells.num_pools
        errors = np.bincount(cells.item, error, count) - self.items / self.variance
        sums = np.bincount(cells.item, curve, count)
        bend = sums + 1.0 / self.variance
        weighted = self.of_group * sums[:, np.newaxis]
        gradient = np.bincount(cells.pool, error, size)
        of_items = np.bincount(cells.item, error, count)
        right = np.concatenate([gradient, of_items @ self.of_group])
        total = np.zeros((len(right), len(right)))
        total[range(size), range(size)] = np.bincount(cells.pool, curve, size)
        total[size:, size:] = self.of_group.T @ weighted
        for first, start, stop in zip(
            range(0, count, _ROWS), self.starts, [*self.starts[1:], len(cells.item)], strict=True
        ):
            rows = slice(first, first + _ROWS)
            at = np.zeros((len(bend[rows]), size))
            at[cells.item[start:stop] - first, cells.pool[start:stop]] = curve[start:stop]
            total[:size, size:] += at.T @ self.of_group[rows]
            # Schur complement: the Hessian of the items is a diagonal
            each = np.hstack([at, weighted[rows]])
            total -= each.T @ (each / bend[rows, np.newaxis])
            right -= each.T @ (errors[rows] / bend[rows])
        total[size:, :size] = total[:size, size:].T
        # a constant may move from all positions to all groups: the shortest step leaves it where it
        # is
        moves = np.linalg.lstsq(total, right, rcond=1e-9)[0]
        places, means = moves[:size], moves[size:]
        shift = np.bincount(cells.item, curve * places[cells.pool], count)
        shift += sums * means[self.group]
        return places, means, (errors - shift) / bend


def sigmoid(x: Floats) -> Floats:
    """The logistic function."""
    # 1 / (1 + exp(-x)) would overflow for large -x
    return np.asarray(0.5 + 0.5 * np.tanh(0.5 * x), np.float64)
