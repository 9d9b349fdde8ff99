"""Distances between splits: skew within a run, and drift between runs."""

import collections
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tfrank_sel.pipelines.analysis.gates import (
    NUMBERS,
    TEXTS,
    WARN_ALL,
    Anomaly,
    check_rule,
    compare_types,
)
from tfrank_sel.pipelines.analysis.statistics import Statistics
from tfrank_sel.pipelines.configuration.data import Gates

GRADES = 100  # of more different labels, shares are those of ranges


def distances(
    reference: Statistics, now: Statistics, label: str = "relevance"
) -> dict[str, dict[str, float]]:
    """Computes the distances between two splits, each from 0 (equal) to 1, by rule and name.

    `label_shares` is the largest difference in the share of a label (L-infinity); labels of more
    than `GRADES` values are counted by tenths of the first split. `label_divergence` is the
    Jensen-Shannon divergence of the labels, in bits. `list_sizes` is the largest difference in the
    cumulative distribution of list sizes (Kolmogorov-Smirnov), `numbers` the same for each column
    of numbers that both splits have, `texts` the largest difference in the share of a value among
    the items with a value, and `missing` the difference in the share of missing values.

    Args:
        reference: Statistics of the split to compare with.
        now: Statistics of the split.
        label: Name of the label.
    """
    old, new = _shares(*_of_grades(*(_round_labels(x.labels) for x in (reference, now))))
    middle = 0.5 * (old + new)
    histograms = _both(*(dict(zip(x.names, x.histograms, strict=True)) for x in (reference, now)))
    lacking = _both(*(_missing_counts(x) for x in (reference, now)))
    divergence = 0.5 * (_relative_entropy(old, middle) + _relative_entropy(new, middle))
    return {
        "label_shares": {label: float(np.abs(old - new).max())},
        "label_divergence": {label: divergence},
        "list_sizes": {"list_size": _largest_gap(reference.list_sizes, now.list_sizes)},
        "numbers": {name: _largest_gap(*pair) for name, pair in histograms.items() if all(pair)},
        "texts": {
            name: _largest_difference(reference, now, name)
            for name in reference.texts
            if name in now.texts
        },
        "missing": {
            name: abs(old / reference.items - new / now.items)
            for name, (old, new) in lacking.items()
        },
    }


def anomalies(
    reference: Statistics,
    now: Statistics,
    *,
    of: str = "training",
    label: str = "relevance",
    gates: Gates = WARN_ALL,
) -> list[Anomaly]:
    """Returns the anomalies of a split relative to a reference.

    A distance is an anomaly if it is above its threshold and significant at the 1 % level for two
    samples of these sizes (Kolmogorov-Smirnov bound). Other anomalies are: a feature that is now
    always 0; a feature that is only in one split; and a feature that is a number in one split and a
    text in the other. Features are matched by name, in any order.

    Args:
        reference: Statistics of the split to compare with.
        now: Statistics of the split.
        of: Name of the reference in messages.
        label: Name of the label.
        gates: Action and threshold of each rule.

    Returns:
        One anomaly for each rule that is broken and not off.
    """
    chance = 1.63 * math.sqrt(1.0 / reference.lists + 1.0 / now.lists)
    cumulative = f"cumulative shares within {{}} of those of {of}"
    shares = f"shares within {{}} of those of {of}"
    expected = {
        "label_shares": shares,
        "label_divergence": f"a Jensen-Shannon divergence of at most {{}} from {of}",
        "list_sizes": cumulative,
        "numbers": cumulative,
        "texts": shares,
        "missing": f"a share of missing values within {{}} of that of {of}",
    }
    drifted = [
        anomaly
        for rule, by_name in distances(reference, now, label).items()
        for name, x in by_name.items()
        for anomaly in check_rule(
            gates,
            rule,
            name,
            expected[rule],
            f"a distance of {x:.3f}",
            now.lists if rule == "list_sizes" else now.items,
            x,
            0.0 if rule == "label_divergence" else chance,
        )
    ]
    named = compare_types(_kinds(reference), _kinds(now), of, gates, now.items)
    return [*drifted, *_zero_anomalies(reference, now, of, gates), *named]


def _zero_anomalies(
    reference: Statistics, now: Statistics, of: str, gates: Gates
) -> Iterator[Anomaly]:
    for name, (was_zero, is_zero) in _both(*(_is_zero(x) for x in (reference, now))).items():
        if is_zero and not was_zero:
            expected = f"values other than 0, as in {of}"
            yield from check_rule(gates, "zero", name, expected, "0 throughout", now.items)


def _is_zero(statistics: Statistics) -> dict[str, bool]:
    """Whether each column of numbers has only values of 0, and at least one."""
    zeros, missing = statistics.features["zeros"], statistics.features["missing"]
    return {
        name: 0 < zero == statistics.items - lacking
        for name, zero, lacking in zip(statistics.names, zeros, missing, strict=True)
    }


def _kinds(statistics: Statistics) -> dict[str, str]:
    """The type of each column or feature."""
    return {**dict.fromkeys(statistics.names, NUMBERS), **dict.fromkeys(statistics.texts, TEXTS)}


def _both(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (value, after[name]) for name, value in before.items() if name in after}


def _missing_counts(statistics: Statistics) -> dict[str, float]:
    """The number of missing values of each feature."""
    texts = {name: counts.get("", 0) for name, counts in statistics.texts.items()}
    return {**dict(zip(statistics.names, statistics.features["missing"], strict=True)), **texts}


def _round_labels(labels: Mapping[str, int]) -> dict[str, int]:
    """Counts of labels to 6 digits, as earlier versions wrote them."""
    counts = collections.Counter[str]()
    for label, count in labels.items():
        counts[f"{np.float32(label):g}"] += count
    return counts


def _of_grades(
    reference: Mapping[str, int], now: Mapping[str, int]
) -> tuple[Mapping[Any, int], Mapping[Any, int]]:
    """Counts of labels; of more than `GRADES` different ones, by tenths of the reference."""
    if len({*reference, *now}) <= GRADES:
        return reference, now
    labels, counts = np.array(sorted((float(x), n) for x, n in reference.items())).T
    edges = labels[np.searchsorted(counts.cumsum(), counts.sum() * np.linspace(0.1, 0.9, 9))]
    tenths = [collections.Counter[int](), collections.Counter[int]()]
    for part, histogram in zip((reference, now), tenths, strict=True):
        for label, count in part.items():
            histogram[int(np.searchsorted(edges, float(label)))] += count
    return tenths[0], tenths[1]


def _shares(before: Mapping[Any, int], after: Mapping[Any, int]) -> tuple[np.ndarray, np.ndarray]:
    """Shares of each value in either of both, in increasing order of the value."""
    values = sorted({*before, *after}, key=float)
    counts = [np.array([part.get(value, 0) for value in values]) for part in (before, after)]
    old, new = (count / count.sum() for count in counts)
    return old, new


def _largest_difference(before: Statistics, after: Statistics, name: str) -> float:
    """Largest difference in the share of a value, among items with a value."""
    counts = [x.texts[name] for x in (before, after)]
    present = [max(x.items - y.get("", 0), 1) for x, y in zip((before, after), counts, strict=True)]
    old, new = (
        {value: n / total for value, n in x.items() if value}
        for x, total in zip(counts, present, strict=True)
    )
    return max((abs(old.get(x, 0.0) - new.get(x, 0.0)) for x in {*old, *new}), default=0.0)


def _largest_gap(before: Mapping[Any, int], after: Mapping[Any, int]) -> float:
    old, new = _shares(before, after)
    return float(np.abs(np.cumsum(old - new)).max())


def _relative_entropy(p: np.ndarray, q: np.ndarray) -> float:
    held = p > 0.0
    return float(np.sum(p[held] * np.log2(p[held] / q[held])))
