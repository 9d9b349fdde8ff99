"""Weights of items by popularity, and of users by activity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.models.als.group import Group

_CHUNK = 1 << 12  # rows at a time


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


def random_factors(
    shapes: Sequence[tuple[int, int]], scale: float, seed: int, first_user: int = 0
) -> list[NDArray[np.floating[Any]]]:
    """Draws factors of users and of items.

    Args:
        shapes: Numbers of users and of items, each with the number of factors.
        scale: Standard deviation.
        seed: Seed of both sides.
        first_user: Number of users that preceding processes drew.
    """
    of_users, of_items = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    for begin in range(0, first_user, _CHUNK):
        of_users.normal(size=(min(_CHUNK, first_user - begin), shapes[0][1]))
    return [
        rng.normal(0.0, scale, shape)
        for rng, shape in zip((of_users, of_items), shapes, strict=True)
    ]
