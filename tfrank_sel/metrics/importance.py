"""Permutation importance of features: the drop of a metric when a feature is shuffled."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

REPEATS = 5
_NORMAL = 1.96  # quantile of the 95 % interval


@dataclasses.dataclass(frozen=True)
class Importance:
    """Drop of a metric when a feature is shuffled.

    Attributes:
        drop: Mean drop over the lists and the shuffles.
        margin: Half the width of the 95 % interval of the mean over the lists.
    """

    drop: float
    margin: float


def importances(
    values: Callable[[Mapping[str, np.ndarray]], np.ndarray],
    items: Mapping[str, np.ndarray],
    sizes: np.ndarray,
    columns: Mapping[str, Sequence[tuple[str, int]]],
    *,
    seed: int = 0,
    repeats: int = REPEATS,
) -> dict[str, Importance]:
    """Returns the permutation importance of each feature, shuffled within lists.

    Each feature is shuffled `repeats` times, in the same orders as all others. `values` is called
    once for each shuffle, and once without. A feature of the query has importance 0.

    Args:
        values: Maps `items` to the metric of each list, `[num_lists]`.
        items: Arrays `[num_items, num_columns]` by name, list by list.
        sizes: Number of items of each list, `[num_lists]`.
        columns: Columns of each feature, as the name of an array and an index; they are shuffled
            together. A feature without columns has importance 0.
        seed: Seed of the shuffles.
        repeats: Number of shuffles; positive.

    Example:
        >>> features = np.stack([np.tile([1.0, 0.0, 0.0], 50), np.ones(150)], axis=1)
        >>> def first_is_best(items):
        ...     return items["features"][:, 0].reshape(50, 3).argmax(axis=1) == 0
        >>> columns = {"good": [("features", 0)], "idle": [("features", 1)]}
        >>> found = importances(first_is_best, {"features": features}, [3] * 50, columns)
        >>> found["good"].drop > 0.5, found["idle"].drop
        (True, 0.0)

    Reference:
        [Breiman, Random Forests, 2001](https://doi.org/10.1023/A:1010933404324).
    """

    def measure(items: Mapping[str, np.ndarray]) -> np.ndarray:
        return np.asarray(values(items), np.float64)

    random, whole = np.random.default_rng(seed), measure(items)
    of_list = np.repeat(np.arange(len(sizes)), sizes)
    orders = [np.lexsort((random.random(len(of_list)), of_list)) for _ in range(repeats)]
    results = {}
    for name, numbers in columns.items():
        shuffled = [measure(_shuffle_columns(items, numbers, order)) for order in orders if numbers]
        drops = whole - np.mean(shuffled or [whole], axis=0)
        margin = _NORMAL * float(drops.std()) / math.sqrt(len(drops))
        results[name] = Importance(float(drops.mean()), margin)
    return results


def _shuffle_columns(
    items: Mapping[str, np.ndarray], columns: Sequence[tuple[str, int]], order: np.ndarray
) -> dict[str, np.ndarray]:
    shuffled = dict(items)
    for name, column in columns:
        if shuffled[name] is items[name]:
            shuffled[name] = items[name].copy()
        shuffled[name][:, column] = items[name][order, column]
    return shuffled
