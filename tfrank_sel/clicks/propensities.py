"""Propensities of positions, with intervals: by items at several positions, or by click models."""

import dataclasses
import pathlib
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel import artefacts
from tfrank_sel.clicks.comparison import compare, sample, why_unidentified
from tfrank_sel.clicks.log import Floats, Integers, Log, check_choice, numbers, probabilities
from tfrank_sel.clicks.models import READING, Model, fits
from tfrank_sel.clicks.pairs import all_pairs, pool_groups
from tfrank_sel.errors import refusal
from tfrank_sel.metrics.significance import poisson_weights

Method = Literal["auto", Model]
METHODS: tuple[str, ...] = ("auto", *get_args(Model))
_LISTED = 5
_TOP = 10  # positions whose intervals are looked at
_WIDE = 1.0  # width of an interval, relative to the propensity


@dataclasses.dataclass(frozen=True, eq=False)
class Propensities:
    """Probabilities of examination of positions, relative to the one examined most.

    Args:
        positions: The positions, increasing, `[positions]`.
        values: Their propensities, `[positions]`; estimates above 1 are reported as 1.
        low: Lower ends of their 95 % intervals, `[positions]`.
        high: Upper ends, `[positions]`.
        method: Name of the method.
        draws: Propensities of each resample, `[resamples, positions]`.
        compared: Log-likelihood per held-out session of each click model that was compared.
    """

    positions: Integers
    values: Floats
    low: Floats
    high: Floats
    method: str
    draws: Floats = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    compared: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why the method was taken: the likelihoods of the models that were compared."""
        if not self.compared:
            return f"{self.method}, as asked for"
        others = ", ".join(f"{x} {y:.3f}" for x, y in self.compared.items() if x != self.method)
        best = f"log-likelihood {self.compared[self.method]:.3f} per session"
        return f"{self.method} predicts held-out clicks best: {best} ({others})"

    @property
    def are_of_items(self) -> bool:
        """Whether a click at another place needs the model fitted to a log, not these alone."""
        return self.method in ("additive", *READING)

    def nearest(self, positions: Integers) -> "Propensities":
        """Returns those of given positions, which are the nearest ones where these have none.

        Args:
            positions: The positions, increasing, `[positions]`.
        """
        index = np.abs(np.asarray(positions)[:, np.newaxis] - self.positions).argmin(axis=1)
        names = ("values", "low", "high")
        arrays = {name: getattr(self, name)[index] for name in names}
        draws = self.draws[:, index] if self.draws.size else self.draws
        return dataclasses.replace(self, positions=positions, draws=draws, **arrays)

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
        artefacts.write_json(pathlib.Path(path), fields)

    @classmethod
    def load(cls, path: str | pathlib.Path) -> "Propensities":
        """Reads a file that `save` wrote.

        Raises:
            ValueError: If the file is no such file, or a propensity is 0 or below, or above 1.
        """
        with artefacts.name_file_in_errors(path, "propensities that `save` wrote"):
            fields = artefacts.read_json(pathlib.Path(path))
            names = ("values", "low", "high", "draws")
            arrays = {x: numbers(x, fields[x]) for x in names if x in fields}
            positions = np.asarray(fields["positions"], np.int64)
            if not len(positions) or np.any(np.diff(positions) <= 0):
                raise ValueError("`positions` must increase")
            for name, array in arrays.items():
                if array.size and array.shape[-1:] != positions.shape:
                    raise ValueError(f"`{name}` must have the length of `positions`")
            probabilities("values", arrays["values"])
            return cls(**{**fields, **arrays, "positions": positions})

    def draw(self, axes: Any) -> None:
        """Draws the propensities with their intervals.

        Args:
            axes: Matplotlib axes.
        """
        [line] = axes.plot(self.positions, self.values, marker="o", label=self.method)
        axes.fill_between(self.positions, self.low, self.high, alpha=0.2, color=line.get_color())
        axes.set(xlabel="position", ylabel="propensity", ylim=(0.0, None))


def estimate(
    log: Log,
    method: str = "auto",
    *,
    resamples: int = 100,
    seed: int = 0,
) -> Propensities:
    """Estimates the propensities of the positions of a log.

    `"auto"` takes the model that best predicts held-out clicks, which may be `"none"`: see
    `compare`. `"pbm"` compares the clicks of the same items at different positions, and does not
    assume how clicks depend on items. The others fit a click model. In `"additive"`, the log-odds
    of position and item add up. In `"ubm"`, examination also depends on the last click above.
    `"cascade"`, `"dcm"` and `"dbn"` are for users who read from the top and stop. These and `"ubm"`
    need sessions.

    Beyond the tenth position, positions of few clicks are pooled: they have equal propensities.
    Positions that no clicked item connects to the largest group have that of the nearest position
    of the group.

    Args:
        log: The log.
        method: Name of the method, of `METHODS`.
        resamples: Number of resamples of the sessions (Poisson bootstrap) for the intervals. A log
            without sessions has resamples of its queries, and too narrow intervals if these are
            few.
        seed: Seed of the resamples.

    Returns:
        Propensities relative to the first position or, if another one is examined significantly
        more often, to the one examined most.

    Raises:
        ValueError: If the log does not identify the propensities, or an argument is invalid.

    Warns:
        UserWarning: If the first position is not examined most, if positions are unconnected, or
            if an interval is wide.

    Example:
        >>> log = Log(["q"] * 4, list("aabb"), [1, 2, 1, 2], [60, 30, 20, 10], shown=[100] * 4)
        >>> estimate(log, "pbm").values.round(3).tolist()
        [1.0, 0.5]
    """
    check_choice("method", method, METHODS)
    if resamples < 1:
        raise refusal("`resamples` must be at least 1", resamples)
    compared = compare(sample(log)) if method == "auto" else []
    method = compared[0].model if compared else method
    if reason := why_unidentified(log, "pbm" if compared else method):
        if not compared:
            raise ValueError(reason)
        warnings.warn(f"{reason}. The method is {method}", stacklevel=2)
    present = []  # whether a weight shows each pool of positions

    def each() -> Iterator[Floats]:
        for weight in _weights(log, resamples, seed):
            shown = np.bincount(log.pools[log.columns], weight, log.cells.num_pools)
            present.append((shown > 0.0)[log.pools])
            yield weight

    weights = each()
    if method == "pbm":
        examined = all_pairs(log, weights)[:, log.pools]
    else:
        examined = np.stack([fitted.examined for fitted in fits(log, method, weights)])
    # a resample without a position says nothing of it, and nothing at all without the reference
    source = _connect_positions(log, method)
    relative = np.where(np.stack(present), examined, np.nan)[:, source]
    values = _relate(relative, 0)
    if (best := int(values[0].argmax())) and np.percentile(values[1:, best], 2.5) > 1.0:
        values = _relate(relative, best)
        _warn_of_first(log.positions[best], values[0, 0])
    values = np.minimum(values, 1.0)
    low, high = np.percentile(values[1:], [2.5, 97.5], axis=0)
    _warn_if_wide(log.positions, values[0], low, high)
    return Propensities(
        log.positions,
        values[0],
        low,
        high,
        method,
        values[1:].round(6),
        {fit.model: fit.log_likelihood for fit in compared},
    )


def _relate(examined: Floats, reference: int) -> Floats:
    """Propensities relative to a position: the estimate, and the resamples that show it."""
    values = examined / examined[:, reference : reference + 1]
    estimate, drawn = values[0], values[1:][~np.isnan(values[1:, reference])]
    drawn = np.where(np.isnan(drawn), estimate, drawn)
    return np.stack([estimate, *(drawn if len(drawn) else [estimate])])


def _weights(log: Log, resamples: int, seed: int) -> Iterator[Floats]:
    """Weights of rows, `[rows]`: 1 for the estimate itself, and those of each resample."""
    yield np.ones(len(log.items))
    for drawn in poisson_weights(np.arange(log.num_units, dtype=np.uint64), seed, resamples).T:
        yield (drawn if drawn.any() else np.ones_like(drawn))[log.units]


def _connect_positions(log: Log, method: str) -> Integers:
    """Index of the position from which each position has its propensity, `[positions]`."""
    every = np.arange(len(log.positions))
    if method not in ("pbm", "additive", "ubm"):
        return every
    group = pool_groups(log)[log.pools]
    clicks = np.bincount(group, np.bincount(log.columns, log.clicks, len(every)))
    inside = np.flatnonzero(group == clicks.argmax())
    if len(inside) == len(every):
        return every
    outside = log.positions[group != clicks.argmax()]
    rows = np.isin(log.columns, inside, invert=True).sum()
    warnings.warn(
        f"no clicked item connects positions {_format_positions(outside)} "
        f"({rows} of {len(log.columns)} rows) to the other ones: they have "
        "that of the nearest position",
        stacklevel=3,
    )
    distance = np.abs(log.positions[:, np.newaxis] - log.positions[inside])
    return inside[distance.argmin(axis=1)]


def _warn_if_wide(positions: Integers, values: Floats, low: Floats, high: Floats) -> None:
    top = positions <= _TOP
    if (wide := top & (high - low > _WIDE * values)).any():
        k = int(np.argmax(wide))
        warnings.warn(
            f"too few clicks: the propensity of position {positions[k]} is {values[k]:.3f}, with a "
            f"95 % interval of {low[k]:.3f} to {high[k]:.3f}. Add sessions",
            stacklevel=3,
        )


def _warn_of_first(best: int, first: float) -> None:
    warnings.warn(
        f"position {best} is examined most, the first one {first:.2f} times as often: propensities "
        f"are relative to position {best}",
        stacklevel=3,
    )


def _format_positions(positions: Integers) -> str:
    """The first few positions, and how many more there are."""
    more = len(positions) - _LISTED
    return ", ".join(map(str, positions[:_LISTED])) + (f" and {more} more" if more > 0 else "")
