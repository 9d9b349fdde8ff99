"""Leakage: features that order the items as the label does, and queries in several splits."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tfrank_sel.pipelines.analysis.gates import WARN_ALL, Anomaly, Gates

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
    the label: the pairs of different labels in the same order, less those in the opposite order, as
    a share of all. Items of equal values count as neither.

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
    agree, total = np.zeros([2, len(names)]), np.zeros([2, len(names)], int)
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
    for i, how in enumerate(("its values", "whether it is missing")):
        values = np.abs(agree[i]).tolist(), total[i].tolist()
        for name, found, pairs in zip(names, *values, strict=True):
            if pairs >= PAIRS:
                expected = "a rank correlation with the label of at most {}: is it known before?"
                received = f"{found / pairs:.3f} of {how} alone, over {pairs} pairs of items"
                yield from gates.held("leak", name, expected, received, pairs, found / pairs)


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
        split: gates.held(
            "shared_queries", "query", expected, f"{n} of {lists[split]} lists", n, n / lists[split]
        )
        for split, n in shared.items()
    }
