"""Weights of items by popularity, and of users by activity."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.models.als.group import Group


def base_weights(counts: NDArray[Any], exponent: float) -> NDArray[np.float64]:
    """Returns the base weights of items, mean 1: their numbers of positives to a power."""
    popularity = np.maximum(counts, 0.5) ** exponent
    return popularity * (len(counts) / popularity.sum())


def activity_weights(counts: NDArray[Any], exponent: float, group: Group) -> NDArray[np.float64]:
    """Returns the weights of users: their numbers of positives to minus a power.

    The mean over the positives of all processes of the group is 1.
    """
    weights = np.maximum(counts, 1.0) ** -exponent
    positives, weighted = group.total(np.array([counts.sum(), counts @ weights]))
    return weights * (positives / weighted if positives else 1.0)
