"""How far one split is from another: skew within a run, drift from run to run."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfrank_sel.pipelines.analysis.gates import NUMBERS, TEXTS, WARN_ALL, Anomaly, Gates, compared
from tfrank_sel.pipelines.analysis.statistics import Statistics


@dataclasses.dataclass(frozen=True)
class Distances:
    """Distances of two splits, each from 0, for equal shares, to 1.

    Args:
        label_shares: Largest difference of the share of a label (L-infinity).
        label_divergence: Jensen-Shannon divergence of the labels, in bits.
        list_sizes: Largest gap of the cumulative shares of list sizes (Kolmogorov-Smirnov).
        numbers: The same for each column of numbers that both splits have, by name.
        texts: Largest difference of the share of items with a value (L-infinity), among those with
            any, of each feature of texts that both splits have.
        missing: Difference of the share of missing values, of all that both have.
    """

    label_shares: float
    label_divergence: float
    list_sizes: float
    numbers: Mapping[str, float]
    texts: Mapping[str, float]
    missing: Mapping[str, float]


def distances(reference: Statistics, found: Statistics) -> Distances:
    """Measures how far a split is from another.

    Args:
        reference: Statistics of the split to compare with.
        found: Statistics of the split.

    Returns:
        The distances.
    """
    old, new = _shares(reference.labels, found.labels)
    middle = 0.5 * (old + new)
    histograms = _both(*(dict(zip(x.names, x.histograms, strict=True)) for x in (reference, found)))
    lacking = _both(*(_missing(x) for x in (reference, found)))
    return Distances(
        label_shares=float(np.abs(old - new).max()),
        label_divergence=0.5 * (_relative_entropy(old, middle) + _relative_entropy(new, middle)),
        list_sizes=_largest_gap(reference.list_sizes, found.list_sizes),
        numbers={name: _largest_gap(*pair) for name, pair in histograms.items() if all(pair)},
        texts={
            name: _largest_difference(reference, found, name)
            for name in reference.texts
            if name in found.texts
        },
        missing={
            name: abs(old / reference.items - new / found.items)
            for name, (old, new) in lacking.items()
        },
    )


def anomalies(
    reference: Statistics,
    found: Statistics,
    *,
    of: str = "training",
    label: str = "relevance",
    gates: Gates = WARN_ALL,
) -> list[Anomaly]:
    """Returns what makes a split another than the reference.

    A distance is an anomaly if it is above its threshold and above what chance makes of two samples
    of as many lists once in a hundred times (Kolmogorov and Smirnov's bound). So is a feature that
    is 0 throughout, and was not; one that only one of both has; and one that is a number in one and
    texts in the other. Features are known by their names, in whatever order.

    Args:
        reference: Statistics of the split to compare with.
        found: Statistics of the split.
        of: What the reference is called.
        label: Name of the label.
        gates: Action and threshold of each rule.

    Returns:
        One anomaly for each rule that is broken and not off.
    """
    measured = distances(reference, found)
    chance = 1.63 * math.sqrt(1.0 / reference.lists + 1.0 / found.lists)
    cumulative = f"cumulative shares within {{}} of those of {of}"
    divergence = f"a Jensen-Shannon divergence of at most {{}} from {of}"
    shares = f"shares within {{}} of those of {of}"
    missing = f"a share of missing values within {{}} of that of {of}"
    checks = [
        ("label_shares", {label: measured.label_shares}, shares, chance),
        ("label_divergence", {label: measured.label_divergence}, divergence, 0.0),
        ("list_sizes", {"list_size": measured.list_sizes}, cumulative, chance),
        ("numbers", measured.numbers, cumulative, chance),
        ("texts", measured.texts, shares, chance),
        ("missing", measured.missing, missing, chance),
    ]
    drifted = [
        anomaly
        for rule, by_name, expected, least in checks
        for name, x in by_name.items()
        for anomaly in gates.held(
            rule,
            name,
            expected,
            f"a distance of {x:.3f}",
            found.lists if rule == "list_sizes" else found.items,
            x,
            least,
        )
    ]
    named = compared(_kinds(reference), _kinds(found), of, gates, found.items)
    return [*drifted, *_vanished(reference, found, of, gates), *named]


def _vanished(reference: Statistics, found: Statistics, of: str, gates: Gates) -> Iterator[Anomaly]:
    for name, (was_zero, is_zero) in _both(*(_is_zero(x) for x in (reference, found))).items():
        if is_zero and not was_zero:
            expected = f"values other than 0, as in {of}"
            yield from gates.held("zero", name, expected, "0 throughout", found.items)


def _is_zero(found: Statistics) -> dict[str, bool]:
    """Whether each column of numbers has a value, and none but 0."""
    zeros, missing = found.features["zeros"], found.features["missing"]
    return {
        name: 0 < zero == found.items - lacking
        for name, zero, lacking in zip(found.names, zeros, missing, strict=True)
    }


def _kinds(found: Statistics) -> dict[str, str]:
    """What each column or feature is."""
    return {**dict.fromkeys(found.names, NUMBERS), **dict.fromkeys(found.texts, TEXTS)}


def _both(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (value, other[name]) for name, value in one.items() if name in other}


def _missing(found: Statistics) -> dict[str, float]:
    """How many values of each feature are missing."""
    texts = {name: counts.get("", 0) for name, counts in found.texts.items()}
    return {**dict(zip(found.names, found.features["missing"], strict=True)), **texts}


def _shares(one: Mapping[Any, int], other: Mapping[Any, int]) -> tuple[np.ndarray, np.ndarray]:
    """Shares of each value that either has, in increasing order."""
    values = sorted({*one, *other}, key=float)
    counts = [np.array([part.get(value, 0) for value in values]) for part in (one, other)]
    old, new = (count / count.sum() for count in counts)
    return old, new


def _largest_difference(one: Statistics, other: Statistics, name: str) -> float:
    """Of the shares of items that have a value, among those that have any."""
    counts = [x.texts[name] for x in (one, other)]
    there = [max(x.items - y.get("", 0), 1) for x, y in zip((one, other), counts, strict=True)]
    old, new = (
        {value: n / total for value, n in x.items() if value}
        for x, total in zip(counts, there, strict=True)
    )
    return max((abs(old.get(x, 0.0) - new.get(x, 0.0)) for x in {*old, *new}), default=0.0)


def _largest_gap(one: Mapping[Any, int], other: Mapping[Any, int]) -> float:
    old, new = _shares(one, other)
    return float(np.abs(np.cumsum(old - new)).max())


def _relative_entropy(one: np.ndarray, other: np.ndarray) -> float:
    held = one > 0.0
    return float(np.sum(one[held] * np.log2(one[held] / other[held])))
