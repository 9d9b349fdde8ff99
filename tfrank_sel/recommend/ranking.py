"""Boosted trees of LightGBM that order the candidates of a user."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrank_sel.recommend.scores import Array

PARAMETERS: Mapping[str, Any] = {
    "learning_rate": 0.05,
    "num_leaves": 15,
    "min_data_in_leaf": 100,
    "lambdarank_truncation_level": 15,
    "metric": "None",
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}


def train(
    features: Array,
    labels: Array,
    sizes: Array,
    loss: Any,
    num_trees: int,
    seed: int,
    num_threads: int,
) -> Any:
    """Trains trees on lists of candidates.

    Args:
        features: Features of each candidate, list by list, float32 `[candidates, features]`.
        labels: 1 for what the user took, 0 for others.
        sizes: Number of candidates of each list.
        loss: A loss of `tfrank_sel.losses`; LightGBM's own `lambdarank`, without TensorFlow, if
            None.
        num_trees: Number of trees.
        seed: Seed of LightGBM.
        num_threads: Number of threads.

    Returns:
        A `lightgbm.Booster`.
    """
    import lightgbm

    objective: Any = "lambdarank"
    if loss is not None:
        from tfrank_sel import objectives

        objective = objectives.lightgbm(loss)
    leaf = min(PARAMETERS["min_data_in_leaf"], max(1, len(labels) // 50))
    options = {**PARAMETERS, "min_data_in_leaf": leaf, "objective": objective, "seed": seed}
    options["num_threads"] = num_threads
    data = lightgbm.Dataset(features, labels, group=sizes)
    return lightgbm.train(options, data, num_trees)


def sort(users: Array, items: Array, scores: Array, shape: tuple[int, int]) -> tuple[Array, Array]:
    """Returns the best candidates of each user, -1 where there are no more, and their scores.

    Equal scores keep the order of the items.

    Args:
        users: Index of the user of each candidate, ascending.
        items: The candidates.
        scores: Their scores.
        shape: Number of users, and of items to return.
    """
    order = np.lexsort((items, -scores, users))
    user = users[order]
    rank = np.arange(len(user)) - np.searchsorted(user, user)
    kept = rank < shape[1]
    ids, best = np.full(shape, -1, np.int32), np.full(shape, -np.inf, np.float32)
    places = user[kept], rank[kept]
    ids[places], best[places] = items[order][kept], scores[order][kept]
    return ids, best
