"""Propensities of positions, with intervals."""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.clicks import models, swaps
from tfrank_sel.clicks.log import Floats, Integers, Log, probabilities

METHODS = ("all_pairs", "pbm", "cascade", "dbn")


@dataclasses.dataclass(frozen=True, eq=False)
class Propensities:
    """Probabilities of examination of positions, relative to the first position.

    Args:
        positions: The positions, increasing, `[positions]`.
        values: Their propensities, `[positions]`; estimates above 1 are reported as 1.
        low: Lower ends of their 95 % intervals, `[positions]`.
        high: Upper ends, `[positions]`.
        method: Name of the method.
    """

    positions: Integers
    values: Floats
    low: Floats
    high: Floats
    method: str

    def at(self, positions: ArrayLike) -> Floats:
        """Returns the propensities of positions, of the same shape.

        Raises:
            ValueError: If a position has no estimate.

        Example:
            >>> ends = np.array([1.0, 0.5])
            >>> Propensities(np.array([1, 2]), ends, ends, ends, "pbm").at([2, 1]).tolist()
            [0.5, 1.0]
        """
        asked = np.asarray(positions)
        index = np.minimum(np.searchsorted(self.positions, asked), len(self.positions) - 1)
        if (unknown := asked[self.positions[index] != asked]).size:
            raise ValueError(
                f"position {unknown.flat[0]} has no propensity. "
                f"Known positions: {self.positions.tolist()}"
            )
        return self.values[index]

    def save(self, path: str | pathlib.Path) -> None:
        """Writes a JSON file."""
        fields = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(self).items()
        }
        pathlib.Path(path).write_text(json.dumps(fields, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | pathlib.Path) -> "Propensities":
        """Reads a file that `save` wrote.

        Raises:
            ValueError: If the file is no such file, or a propensity is 0 or below, or above 1.
        """
        try:
            fields = json.loads(pathlib.Path(path).read_text())
            names = ("values", "low", "high")
            arrays = {name: np.asarray(fields[name], np.float64) for name in names}
            found = cls(np.asarray(fields["positions"]), **arrays, method=fields["method"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: no propensities that `save` wrote: {error!r}") from None
        probabilities("values", found.values)
        return found

    def draw(self, axes: Any) -> None:
        """Draws the propensities with their intervals.

        Args:
            axes: Matplotlib axes.
        """
        [line] = axes.plot(self.positions, self.values, marker="o", label=self.method)
        axes.fill_between(self.positions, self.low, self.high, alpha=0.2, color=line.get_color())
        axes.set(xlabel="position", ylabel="propensity", ylim=(0.0, None))


def estimate(
    log: Log, method: str = "all_pairs", *, resamples: int = 100, seed: int = 0
) -> Propensities:
    """Estimates the propensities of the positions of a log.

    `"all_pairs"` compares the clicks of the same items at different positions, and does not assume
    how clicks depend on items. `"pbm"` fits the position-based model by expectation maximisation;
    it is more precise for items with many impressions. Both need items at several positions.
    `"cascade"` and `"dbn"` are for users who read from the top and stop; they need sessions.

    Args:
        log: The log.
        method: Name of the method, of `METHODS`.
        resamples: Number of resamples of the queries (Poisson bootstrap) for the intervals.
        seed: Seed of the resamples.

    Raises:
        ValueError: If the log does not identify the propensities, or an argument is invalid.

    Example:
        >>> log = Log(["q"] * 4, list("aabb"), [1, 2, 1, 2], [60, 30, 20, 10], shown=[100] * 4)
        >>> estimate(log).values.round(3).tolist()
        [1.0, 0.5]
    """
    if method not in METHODS:
        raise ValueError(f"`method` must be one of {', '.join(METHODS)}. Received: {method!r}")
    if resamples < 1:
        raise ValueError(f"`resamples` must be at least 1. Received: {resamples}")
    random = np.random.default_rng(seed)
    weights = random.poisson(1.0, (resamples + 1, log.num_queries)).astype(np.float64)
    weights[0] = 1.0  # the estimate itself
    weights[weights.sum(axis=1) == 0.0] = 1.0
    if method in ("all_pairs", "pbm"):
        swaps.check_connected(log)
    if method == "all_pairs":
        values = swaps.all_pairs(log, weights)
    else:
        fits: dict[str, Callable[[Log, Floats], Floats]] = {
            "pbm": models.pbm,
            "cascade": functools.partial(models.dbn, cascade=True),
            "dbn": models.dbn,
        }
        values = np.stack([fits[method](log, drawn) for drawn in weights])
    values = np.minimum(values, 1.0)
    low, high = np.percentile(values[1:], [2.5, 97.5], axis=0)
    return Propensities(log.positions, values[0], low, high, method)
