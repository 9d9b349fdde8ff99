"""How far one split is from another: skew within a run, drift from run to run."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
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
        features: The same for a feature.
    """

    label_shares: Bound = 0.1
    label_divergence: Bound = 0.1
    list_sizes: Bound = 0.2
    features: Bound = 0.2


@dataclasses.dataclass(frozen=True)
class Distances:
    """Distances of two splits; `Thresholds` says what each is.

    Args:
        label_shares: Of the labels.
        label_divergence: Of the labels.
        list_sizes: Of the list sizes.
        features: Of each feature.
    """

    label_shares: float
    label_divergence: float
    list_sizes: float
    features: list[float]


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
    histograms = zip(reference.histograms, found.histograms, strict=True)
    return Distances(
        label_shares=float(np.abs(old - new).max()),
        label_divergence=0.5 * (_relative_entropy(old, middle) + _relative_entropy(new, middle)),
        list_sizes=_largest_gap(reference.list_sizes, found.list_sizes),
        features=[_largest_gap(*pair) for pair in histograms],
    )


def anomalies(
    reference: Statistics,
    found: Statistics,
    names: Sequence[str],
    *,
    of: str = "training",
    label: str = "relevance",
    thresholds: Thresholds = Thresholds(),
) -> list[Anomaly]:
    """Returns what makes a split another than the reference.

    A distance is an anomaly if it is above its threshold and above what chance makes of two samples
    of as many lists once in a hundred times (Kolmogorov and Smirnov's bound); so is a feature that
    is 0 throughout, and was not.

    Args:
        reference: Statistics of the split to compare with.
        found: Statistics of the split.
        names: Names of the features.
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
            (name, cumulative, distance, max(thresholds.features, chance), found.items)
            for name, distance in zip(names, measured.features, strict=True)
        ),
    ]  # fmt: skip
    drifted = [
        Anomaly(name, rule.format(f"{bound:.3g}"), count, distance)
        for name, rule, distance, bound, count in checks
        if distance > bound
    ]
    zeros = zip(names, reference.features["zeros"], found.features["zeros"], strict=True)
    missing = [
        Anomaly(name, f"not 0 throughout, as in {of}", found.items)
        for name, before, now in zeros
        if before < reference.items and now == found.items
    ]
    return drifted + missing


def _shares(one: Mapping[Any, int], other: Mapping[Any, int]) -> tuple[np.ndarray, np.ndarray]:
    """Shares of each value that either has, in increasing order."""
    values = sorted({*one, *other}, key=float)
    counts = [np.array([part.get(value, 0) for value in values]) for part in (one, other)]
    old, new = (count / count.sum() for count in counts)
    return old, new


def _largest_gap(one: Mapping[Any, int], other: Mapping[Any, int]) -> float:
    old, new = _shares(one, other)
    return float(np.abs(np.cumsum(old - new)).max())


def _relative_entropy(one: np.ndarray, other: np.ndarray) -> float:
    held = one > 0.0
    return float(np.sum(one[held] * np.log2(one[held] / other[held])))
