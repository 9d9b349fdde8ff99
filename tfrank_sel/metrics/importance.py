"""Permutation importance of features: the drop of a metric when a feature is shuffled."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tfrank_sel.metrics.base import ListwiseMetric

_NORMAL = 1.96  # quantile of the 95 % interval


@dataclasses.dataclass(frozen=True)
class Importance:
    """How far a metric drops without what a feature tells.

    Attributes:
        drop: Mean drop over the lists.
        margin: Half the width of the 95 % interval of the mean.
    """

    drop: float
    margin: float


def importances(
    score: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    inputs: Mapping[str, np.ndarray],
    labels: np.ndarray,
    metric: ListwiseMetric,
    columns: Mapping[str, Sequence[tuple[str, int]]],
    *,
    seed: int = 0,
) -> dict[str, Importance]:
    """Returns the permutation importance of each feature, shuffled within lists.

    All features are shuffled in the same order, and each is shuffled once: `score` is called
    once for each feature, and once without a shuffle. A feature of the query has importance 0.

    Args:
        score: Maps inputs to scores `[batch_size, list_size]`.
        inputs: What `score` takes, by name. Those that `columns` names have the shape
            `[batch_size, list_size, number of columns]`.
        labels: Labels `[batch_size, list_size]`; NaN is padding.
        metric: The metric to measure.
        columns: Names of the inputs, and positions in their last axis, of each feature; they
            are shuffled together.
        seed: Seed of the shuffles.

    Example:
        >>> labels = np.array([[1.0, 0.0, 0.0, np.nan]] * 50)
        >>> features = np.stack([np.nan_to_num(labels), np.ones_like(labels)], axis=-1)
        >>> columns = {"good": [("features", 0)], "idle": [("features", 1)]}
        >>> found = importances(lambda inputs: inputs["features"][..., 0], {"features": features},
        ...                     labels, metrics.MRR(), columns)
        >>> found["good"].drop > 0.2, found["idle"].drop
        (True, 0.0)

    Reference:
        [Breiman, Random Forests, 2001](https://doi.org/10.1023/A:1010933404324).
    """

    def values(shuffled: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(metric.evaluate(labels, score(shuffled)).values, np.float64)

    order, whole = _orders(~np.isnan(labels), seed), values(inputs)
    found = {}
    for name, own in columns.items():
        drops = whole - values(_shuffled(inputs, own, order))
        margin = _NORMAL * float(drops.std()) / math.sqrt(len(drops))
        found[name] = Importance(float(drops.mean()), margin)
    return found


def _orders(mask: np.ndarray, seed: int) -> np.ndarray:
    """A random order of the items of each list; padding stays where it is."""
    keys = np.where(mask, np.random.default_rng(seed).random(mask.shape), np.inf)
    orders = np.empty(mask.shape, np.int64)
    places = np.argsort(~mask, axis=1, kind="stable")
    np.put_along_axis(orders, places, np.argsort(keys, axis=1, kind="stable"), axis=1)
    return orders


def _shuffled(
    inputs: Mapping[str, np.ndarray], columns: Sequence[tuple[str, int]], orders: np.ndarray
) -> dict[str, np.ndarray]:
    shuffled = dict(inputs)
    for name, column in columns:
        if shuffled[name] is inputs[name]:
            shuffled[name] = inputs[name].copy()
        values = inputs[name][..., column]
        shuffled[name][..., column] = np.take_along_axis(values, orders, axis=1)
    return shuffled
