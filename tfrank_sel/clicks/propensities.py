"""Propensities of positions, with intervals: by items at several positions, or by click models."""

import dataclasses
import json
import pathlib
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.clicks.log import Floats, Integers, Log, probabilities
from tfrank_sel.clicks.models import Model, fits


def groups(log: Log) -> list[list[int]]:
    """Returns the groups of positions whose propensities can be compared.

    Two positions are joined if items that were shown at both for the same query were clicked at
    each. Only relative propensities within a group are identified.

    Args:
        log: The log.

    Example:
        >>> log = Log(["q"] * 4, ["a", "a", "b", "b"], [1, 2, 3, 4], [1, 1, 1, 0])
        >>> groups(log)
        [[1, 2], [3], [4]]
    """
    clicks, shown = log.counts
    common = (clicks > 0.0).T.astype(np.float64) @ (shown > 0.0)
    reach = (common * common.T > 0.0) | np.eye(len(log.positions), dtype=bool)
    while not np.array_equal(further := reach @ reach, reach):
        reach = further
    firsts = sorted({int(np.argmax(row)) for row in reach})
    return [log.positions[reach[first]].tolist() for first in firsts]


def check_identified(log: Log, method: str) -> None:
    """Raises an error if the log cannot identify the propensities of all its positions.

    `"all_pairs"`, `"pbm"` and `"ubm"` compare positions by items shown at several of them, so all
    positions must be connected. In `"dbn"`, one probability of reading on connects them all, but
    needs some item at two positions. `"cascade"` and `"dcm"` know that the first position and all
    below it are examined until the first click, which identifies the items without any swap.

    Raises:
        ValueError: If the positions fall into several groups, which the message names.
    """
    if method in ("cascade", "dcm"):
        return
    apart = groups(log)
    if len(apart) == len(log.positions):
        raise ValueError(
            "each clicked item was shown at one position only, as in the log of a single ranker. "
            "Propensities need items at several positions for the same query: "
            "swap items at random, or add the log of another ranker"
        )
    if len(apart) > 1 and method != "dbn":
        named = " and ".join(str(group) for group in apart)
        raise ValueError(
            f"no clicked item was shown in two of these groups of positions: {named}. "
            "Swap items between them, or leave out the positions of all groups but one"
        )


def all_pairs(log: Log, weights: Floats) -> Floats:
    """Estimates propensities by intervention harvesting over all pairs of positions.

    For positions j and k, items shown at both give the ratio of the propensities as that of their
    clicks, where an item with n_j and n_k impressions has the weight n_j n_k / (n_j + n_k). The log
    propensities are the least squares solution for the log ratios of all pairs, weighted by the
    inverse variances of their clicks.

    Args:
        log: A connected log.
        weights: Weights of the groups of rows in each resample, `[resamples, groups]`.

    Returns:
        Propensities relative to the first position, `[resamples, positions]`.

    Reference:
        [Agarwal et al., Estimating position bias without intrusive interventions, WSDM 2019](
        https://doi.org/10.1145/3289600.3291017), with weights of least variance.
    """
    _, shown = log.counts
    size, units = len(log.positions), weights.shape[1]
    rows = np.flatnonzero(log.clicks)
    item, column, clicks = log.items[rows], log.columns[rows], log.clicks[rows]
    place = log.units[rows] * size + column
    sums = np.zeros((units, 2, size, size))
    for k in range(size):
        at_k = shown[item, k]
        share = at_k / (shown[item, column] + at_k)
        # the clicks at all j, and the variance of this sum
        for part, values in enumerate((share * clicks, share**2 * clicks)):
            sums[:, part, :, k] = np.bincount(place, values, units * size).reshape(units, size)
    drawn = (weights @ sums.reshape(units, -1)).reshape(-1, 2, size, size)
    amounts, spread = drawn[:, 0], np.maximum(drawn[:, 1], 1e-12)
    known = (amounts > 0.0) & (amounts.transpose(0, 2, 1) > 0.0) & ~np.eye(size, dtype=bool)
    safe = np.where(known, amounts, 1.0)
    ratios = np.log(safe) - np.log(safe.transpose(0, 2, 1))
    relative = np.where(known, spread / safe**2, 0.0)
    precision = np.where(known, 1.0 / np.maximum(relative + relative.transpose(0, 2, 1), 1e-12), 0)
    laplacian = np.eye(size) * precision.sum(axis=2)[:, None] - precision
    right = (precision * ratios).sum(axis=2)
    solution = np.zeros((len(weights), size))
    for row, (left, value) in enumerate(zip(laplacian, right, strict=True)):
        solution[row, 1:] = np.linalg.lstsq(left[1:, 1:], value[1:], rcond=None)[0]
    return np.exp(solution)


Method = Literal["all_pairs", Model]
METHODS: tuple[str, ...] = get_args(Method)


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
            propensities = cls(np.asarray(fields["positions"]), **arrays, method=fields["method"])
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise ValueError(f"{path}: no propensities that `save` wrote: {error!r}") from None
        probabilities("values", propensities.values)
        return propensities

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
    how clicks depend on items. The others fit a click model by expectation maximisation; see
    `compare`. `"pbm"` is more precise for items with many impressions; in `"ubm"`, examination also
    depends on the last click above. `"cascade"`, `"dcm"` and `"dbn"` are for users who read from
    the top and stop. All of them but `"pbm"` need sessions.

    Args:
        log: The log.
        method: Name of the method, of `METHODS`.
        resamples: Number of resamples of the sessions (Poisson bootstrap) for the intervals. A log
            without sessions has resamples of its queries, and too narrow intervals if these are
            few.
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
    weights = random.poisson(1.0, (resamples + 1, log.num_units)).astype(np.float64)
    weights[0] = 1.0  # the estimate itself
    weights[weights.sum(axis=1) == 0.0] = 1.0
    check_identified(log, method)
    if method == "all_pairs":
        values = all_pairs(log, weights)
    else:
        values = np.stack([fitted.examined for fitted in fits(log, method, weights)])
    values = np.minimum(values, 1.0)
    low, high = np.percentile(values[1:], [2.5, 97.5], axis=0)
    return Propensities(log.positions, values[0], low, high, method)
