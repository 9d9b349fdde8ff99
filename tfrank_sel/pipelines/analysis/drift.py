"""How far one split is from another: skew within a run, drift from run to run."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrank_sel.arguments import Bound, Checked
from tfrank_sel.pipelines.analysis.schema import Anomaly
from tfrank_sel.pipelines.analysis.statistics import Statistics


@dataclasses.dataclass(frozen=True)
class Thresholds(Checked):
    """The largest distances that are no anomaly.

    Args:
        label_shares: Largest difference of the share of a label (L-infinity).
        label_divergence: Jensen-Shannon divergence of the labels, in bits.
        list_sizes: Largest gap of the cumulative shares of list sizes (Kolmogorov-Smirnov).
        features: The same for a feature that is a number.
        texts: Largest difference of the share of a value (L-infinity) of a feature of texts.
        missing: Largest difference of the share of missing values of a feature.
    """

    label_shares: Bound = 0.1
    label_divergence: Bound = 0.1
    list_sizes: Bound = 0.2
    features: Bound = 0.2
    texts: Bound = 0.1
    missing: Bound = 0.1


@dataclasses.dataclass(frozen=True)
class Distances:
    """Distances of two splits; `Thresholds` says what each is.

    Args:
        label_shares: Of the labels.
        label_divergence: Of the labels.
        list_sizes: Of the list sizes.
        features: Of each feature that is a number and that both splits have, by name.
        texts: The same for features of texts.
        missing: The same for all features.
    """

    label_shares: float
    label_divergence: float
    list_sizes: float
    features: Mapping[str, float]
    texts: Mapping[str, float]
    missing: Mapping[str, float]


def distances(reference: Statistics, found: Statistics) -> Distances:
    """Measures how far a split is from another.

    Args:
        reference: Statistics of the split to compare with.
        found: Statistics of the split.

    Returns:
        The distances, each from 0, for equal shares, to 1.
    """
    old, new = _shares(reference.labels, found.labels)
    middle = 0.5 * (old + new)
    histograms = _both(*(dict(zip(x.names, x.histograms, strict=True)) for x in (reference, found)))
    texts = _both(reference.texts, found.texts)
    lacking = _both(*(_missing(x) for x in (reference, found)))
    return Distances(
        label_shares=float(np.abs(old - new).max()),
        label_divergence=0.5 * (_relative_entropy(old, middle) + _relative_entropy(new, middle)),
        list_sizes=_largest_gap(reference.list_sizes, found.list_sizes),
        features={name: _largest_gap(*pair) for name, pair in histograms.items() if all(pair)},
        texts={name: _largest_difference(*pair) for name, pair in texts.items()},
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
    thresholds: Thresholds = Thresholds(),
) -> list[Anomaly]:
    """Returns what makes a split another than the reference.

    A distance is an anomaly if it is above its threshold and above what chance makes of two samples
    of as many lists once in a hundred times (Kolmogorov and Smirnov's bound); so is a feature that
    is 0 throughout, and was not, and one that only one of both has. Features are known by their
    names, in whatever order.

    Args:
        reference: Statistics of the split to compare with.
        found: Statistics of the split.
        of: What the reference is called.
        label: Name of the label.
        thresholds: The largest distances that are no anomaly.

    Returns:
        One anomaly for each rule that is broken, with the distance.
    """
    measured = distances(reference, found)
    chance = 1.63 * math.sqrt(1.0 / reference.lists + 1.0 / found.lists)
    cumulative = f"cumulative shares within {{}} of those of {of}"
    checks = [
        (label, f"shares within {{}} of those of {of}", measured.label_shares,
         max(thresholds.label_shares, chance), found.items),
        (label, f"a Jensen-Shannon divergence of at most {{}} from {of}",
         measured.label_divergence, thresholds.label_divergence, found.items),
        ("list_size", cumulative, measured.list_sizes, max(thresholds.list_sizes, chance),
         found.lists),
        *(
            (name, rule, distance, max(bound, chance), found.items)
            for rule, distances, bound in (
                (cumulative, measured.features, thresholds.features),
                (f"shares of values within {{}} of those of {of}", measured.texts,
                 thresholds.texts),
                (f"a share of missing values within {{}} of that of {of}", measured.missing,
                 thresholds.missing),
            )
            for name, distance in distances.items()
        ),
    ]  # fmt: skip
    drifted = [
        Anomaly(name, rule.format(f"{bound:.3g}"), count, distance)
        for name, rule, distance, bound, count in checks
        if distance > bound
    ]
    zeros = _both(
        *(dict(zip(x.names, x.features["zeros"], strict=True)) for x in (reference, found))
    )
    zero = [
        Anomaly(name, f"not 0 throughout, as in {of}", found.items)
        for name, (before, now) in zeros.items()
        if before < reference.items and now == found.items
    ]
    old, new = ({*x.names, *x.texts} for x in (reference, found))
    unknown = [Anomaly(name, f"a feature that {of} has", found.items) for name in sorted(new - old)]
    absent = [Anomaly(name, f"there, as in {of}", found.items) for name in sorted(old - new)]
    return drifted + zero + unknown + absent


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


def _largest_difference(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    """Of the shares of values, among those that are told and not missing."""
    totals = [max(sum(x.values()) - x.get("", 0), 1) for x in (one, other)]
    values = {*one, *other} - {""}
    return max(
        (abs(one.get(x, 0) / totals[0] - other.get(x, 0) / totals[1]) for x in values), default=0.0
    )


def _largest_gap(one: Mapping[Any, int], other: Mapping[Any, int]) -> float:
    old, new = _shares(one, other)
    return float(np.abs(np.cumsum(old - new)).max())


def _relative_entropy(one: np.ndarray, other: np.ndarray) -> float:
    held = one > 0.0
    return float(np.sum(one[held] * np.log2(one[held] / other[held])))
