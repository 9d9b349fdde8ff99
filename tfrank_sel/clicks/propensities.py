"""Propensities of positions, with intervals: by items at several positions, or by click models."""

import dataclasses
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel import artefacts
from tfrank_sel.clicks.comparison import (
    LEVEL,
    choose,
    compare,
    identifiable_models,
    sample,
    why_unidentified,
)
from tfrank_sel.clicks.log import Floats, Integers, Log, check_choice, numbers, probabilities
from tfrank_sel.clicks.models import READING, Model, fits
from tfrank_sel.clicks.pairs import all_pairs, pool_groups
from tfrank_sel.errors import refusal
from tfrank_sel.metrics.significance import poisson_weights

Method = Literal["auto", Model]
METHODS: tuple[str, ...] = ("auto", *get_args(Model))
_BY_SWAPS = ("pbm", "additive", "ubm")  # they compare an item at several positions
# a model of the choice predicts clicks on logs of theirs as well
_NESTED = ("ubm", "cascade")
_LEAST = 1e-9  # propensity
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
        others: Propensities by each other model that may predict clicks best, `[positions]`.
    """

    positions: Integers
    values: Floats
    low: Floats
    high: Floats
    method: str
    draws: Floats = dataclasses.field(default_factory=lambda: np.zeros((0, 0)))
    compared: Mapping[str, float] = dataclasses.field(default_factory=dict)
    others: Mapping[str, Floats] = dataclasses.field(default_factory=dict)

    def each(self) -> Iterator["Propensities"]:
        """Those of each model that may predict clicks best, of the method first."""
        alone = dataclasses.replace(self, others={})
        yield alone
        for method, x in self.others.items():
            no_draws = np.zeros((0, 0))
            yield dataclasses.replace(alone, values=x, low=x, high=x, method=method, draws=no_draws)

    @property
    def reason(self) -> str:
        """Why the method was taken: the likelihoods of the models that were compared."""
        if not self.compared:
            return f"{self.method}, as asked for"
        others = ", ".join(f"{x} {y:.3f}" for x, y in self.compared.items() if x != self.method)
        is_best = self.compared[self.method] == max(self.compared.values())
        why = "predicts held-out clicks best" if is_best else "may predict held-out clicks best"
        if self.others:
            joined = ", ".join(self.others)
            why += f" ({joined} may be right, too: labels, values and intervals join them)"
        likelihood = f"log-likelihood {self.compared[self.method]:.3f} per session"
        return f"{self.method} {why}: {likelihood} ({others})"

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
        others = {method: values[index] for method, values in self.others.items()}
        return dataclasses.replace(self, positions=positions, draws=draws, others=others, **arrays)

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
        fields["others"] = {name: values.tolist() for name, values in self.others.items()}
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
            others = {x: probabilities("others", y) for x, y in fields.get("others", {}).items()}
            positions = np.asarray(fields["positions"], np.int64)
            if not len(positions) or np.any(np.diff(positions) <= 0):
                raise ValueError("`positions` must increase")
            for name, array in [*arrays.items(), *(("others", x) for x in others.values())]:
                if array.size and array.shape[-1:] != positions.shape:
                    raise ValueError(f"`{name}` must have the length of `positions`")
            probabilities("values", arrays["values"])
            return cls(**{**fields, **arrays, "positions": positions, "others": others})

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

    `"auto"` takes the simplest model that may predict held-out clicks best, which may be `"none"`:
    see `compare`. Others that may be right are kept beside it, widen its intervals, and are joined
    in labels and values. It leaves out `"ubm"` and `"cascade"`, whose users another model predicts.

    `"pbm"` compares the clicks of the same items at different positions, and does not assume how
    clicks depend on items. The others fit a click model. In `"additive"`, the log-odds of position
    and item add up. In `"ubm"`, examination also depends on the last click above.
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
        UserWarning: If the first position is not examined most, if positions are unconnected, if
            an interval is wide or, by `"auto"`, if positions have other effects in some groups.

    Example:
        >>> log = Log(["q"] * 4, list("aabb"), [1, 2, 1, 2], [60, 30, 20, 10], shown=[100] * 4)
        >>> estimate(log, "pbm").values.round(3).tolist()
        [1.0, 0.5]
    """
    check_choice("method", method, METHODS)
    if resamples < 1:
        raise refusal("`resamples` must be at least 1", resamples)
    compared = []
    if method == "auto":
        few = sample(log)
        compared = compare(few, [x for x in identifiable_models(few) if x not in _NESTED])
        _warn_of_groups(compared[0].fits_groups)
    [method, *others] = choose(compared) if compared else [method]
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

    sources = _connect_positions(log, [method, *others])
    examined = _examination(log, method, each())
    # a resample without a position says nothing of it, and nothing at all without the reference
    relative = np.where(np.stack(present), examined, np.nan)[:, sources[method]]
    values, reference = _relate(relative, 0), 0
    if (best := int(values[0].argmax())) and np.percentile(values[1:, best], 2.5) > 1.0:
        values, reference = _relate(relative, best), best
        _warn_of_first(log.positions[best], values[0, 0])
    values = np.minimum(values, 1.0)
    of_others = {}
    for other in others:
        [examined] = _examination(log, other, [np.ones(len(log.items))])[:, sources[other]]
        of_others[other] = np.clip(examined / examined[reference], _LEAST, 1.0)
    low, high = np.percentile(values[1:], [2.5, 97.5], axis=0)
    _warn_if_wide(log.positions, values[0], low, high)
    low, high = np.clip(join(values[0], low, high, of_others.values()), 0.0, 1.0)
    return Propensities(
        log.positions,
        values[0],
        low,
        high,
        method,
        values[1:].round(6),
        {fit.model: fit.log_likelihood for fit in compared},
        of_others,
    )


def join(value: Any, low: Any, high: Any, others: Iterable[Any]) -> tuple[Any, Any]:
    """Ends of an interval, widened by how far values of other models are from its own."""
    every = np.stack([value, *others])
    return low - (value - every.min(axis=0)), high + (every.max(axis=0) - value)


def _examination(log: Log, method: str, weights: Iterable[Floats]) -> Floats:
    """Examination of each position by each weight, up to a factor, `[weights, positions]`."""
    if method == "pbm":
        return all_pairs(log, weights)[:, log.pools]
    return np.stack([fitted.examined for fitted in fits(log, method, weights)])


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


def _connect_positions(log: Log, methods: Iterable[str]) -> dict[str, Integers]:
    """By method, index of the position from which each one has its propensity, `[positions]`."""
    every = np.arange(len(log.positions))
    sources = dict.fromkeys(methods, every)
    if sources.keys().isdisjoint(_BY_SWAPS):
        return sources
    group = pool_groups(log)[log.pools]
    clicks = np.bincount(group, np.bincount(log.columns, log.clicks, len(every)))
    inside = np.flatnonzero(group == clicks.argmax())
    if len(inside) == len(every):
        return sources
    outside = log.positions[group != clicks.argmax()]
    rows = np.isin(log.columns, inside, invert=True).sum()
    warnings.warn(
        f"no clicked item connects positions {_format_positions(outside)} "
        f"({rows} of {len(log.columns)} rows) to the other ones: they have "
        "that of the nearest position",
        stacklevel=3,
    )
    distance = np.abs(log.positions[:, np.newaxis] - log.positions[inside])
    nearest = inside[distance.argmin(axis=1)]
    return {x: nearest if x in _BY_SWAPS else every for x in sources}


def _warn_of_groups(p: float) -> None:
    if p < LEVEL:
        warnings.warn(
            f"positions have other effects in some groups than in others (p-value {p:.2g}): "
            "correct the log of each group by itself",
            stacklevel=3,
        )


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
