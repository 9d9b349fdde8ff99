"""Leakage: features that order the items as the label does, and queries in several splits."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfrank_sel.pipelines.analysis.gates import WARN_ALL, Anomaly, broken
from tfrank_sel.pipelines.configuration.data import Gates

PAIRS = 100  # fewer may agree by chance
LONGEST = 50  # items of a list that are compared


def of_features(
    names: Sequence[str],
    rows: np.ndarray,
    labels: np.ndarray,
    lists: np.ndarray,
    gates: Gates = WARN_ALL,
) -> Iterator[Anomaly]:
    """Finds features that alone order the items of lists as the label does, or the reverse.

    The measure is the absolute value of Somers' D of a feature, or of whether it is missing, given
    the label: `agreement` as a share of the pairs.

    Args:
        names: Names of the columns.
        rows: Values `[items, columns]`; NaN if missing.
        labels: Label of each item.
        lists: Number of the list of each item; those of a list stand together.
        gates: Action and threshold of the rule `leak`.

    Example:
        >>> labels = np.tile([0.0, 1.0, 2.0], 40)
        >>> rows, lists = np.stack([10.0 - labels, labels % 2], axis=1), np.arange(120) // 3
        >>> [(x.feature, x.distance) for x in of_features(["a", "b"], rows, labels, lists)]
        [('a', 1.0)]
    """
    agree, total = agreement(rows, labels, lists)
    for i, how in enumerate(("its values", "whether it is missing")):
        values = np.abs(agree[i]).tolist(), total[i].tolist()
        for name, found, pairs in zip(names, *values, strict=True):
            if pairs >= PAIRS:
                expected = "a rank correlation with the label of at most {}: is it known before?"
                received = f"{found / pairs:.3f} by {how} alone, over {pairs} pairs of items"
                yield from broken(gates, "leak", name, expected, received, pairs, found / pairs)


def agreement(
    rows: np.ndarray, labels: np.ndarray, lists: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Counts the pairs of items of a list that features order as the labels do.

    Args:
        rows: Values `[items, columns]`; NaN if missing.
        labels: Label of each item.
        lists: Number of the list of each item; those of a list stand together.

    Returns:
        The pairs of different labels in the same order less those in the opposite order, and the
        compared pairs, both `[2, columns]`: by the values, if both items have one, and by whether
        they are missing. Items of equal values count as neither order.
    """
    agree, total = np.zeros([2, rows.shape[1]]), np.zeros([2, rows.shape[1]], int)
    for own in np.split(np.arange(len(lists)), np.flatnonzero(np.diff(lists)) + 1):
        first, second = np.triu_indices(min(len(own), LONGEST), 1)
        sign = np.sign(labels[own[first]] - labels[own[second]])
        differ = sign != 0.0
        one, other = (rows[own[x[differ]]] for x in (first, second))
        present = ~np.isnan(one) & ~np.isnan(other)
        for i, (a, b, counted) in enumerate(
            ((one, other, present), (1.0 * np.isnan(one), np.isnan(other), True))
        ):
            agree[i] += np.where(counted, sign[differ, np.newaxis] * np.sign(a - b), 0.0).sum(0)
            total[i] += np.sum(np.broadcast_to(counted, one.shape), axis=0)
    return agree, total


def of_texts(texts: np.ndarray, labels: np.ndarray, lists: np.ndarray) -> np.ndarray:
    """Returns texts as numbers: the mean label of the items of other lists with the same text.

    Args:
        texts: Texts `[items, columns]`; empty if missing.
        labels: Label of each item.
        lists: Number of the list of each item. Lists of an even number are the others of those of
            an odd number, and the reverse.

    Returns:
        Values `[items, columns]`; NaN if missing, and the mean label of all items if no other list
        has the text.
    """
    found = np.full(texts.shape, labels.mean())
    for column, own in zip(found.T, texts.T, strict=True):
        _, values = np.unique(own, return_inverse=True)
        for half in (lists % 2 == 0, lists % 2 == 1):
            counts = np.bincount(values[~half], minlength=values.max() + 1)
            sums = np.bincount(values[~half], labels[~half], minlength=len(counts))
            known = half & (counts[values] > 0)
            column[known] = sums[values[known]] / counts[values[known]]
    return np.where(texts == b"", np.nan, found)


def of_splits(
    shared: Mapping[str, int], lists: Mapping[str, int], gates: Gates = WARN_ALL
) -> dict[str, list[Anomaly]]:
    """Finds splits with queries of the training split.

    Args:
        shared: Number of lists of each split whose query is in the training split too.
        lists: Number of lists of each split.
        gates: Action and threshold of the rule `shared_queries`.

    Example:
        >>> found = of_splits({"test": 3}, {"test": 4})["test"]
        >>> found[0].expected, found[0].received
        ('a share of at most 0 of lists whose query is in train', '3 of 4 lists')
    """
    expected = "a share of at most {} of lists whose query is in train"
    return {
        split: broken(
            gates,
            "shared_queries",
            "query",
            expected,
            f"{n} of {lists[split]} lists",
            n,
            n / lists[split],
        )
        for split, n in shared.items()
    }
