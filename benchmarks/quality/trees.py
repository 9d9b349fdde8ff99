"""Boosted trees on the same folds, seeds and number of settings as the networks."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.quality.data import Lists
from benchmarks.quality.selection import SEEDS, Scores, Trial, chosen, ndcg

LEARNING_RATES = (0.02, 0.05)
LEAVES = (7, 15)
TREES = 500
STAGE = 10  # trees

# features, labels and sizes of lists
Rows = tuple[np.ndarray, np.ndarray, list[int]]
# from features to what each stage adds to the scores
Staged = Callable[[np.ndarray], list[np.ndarray]]
# from rows, seed, learning rate and leaves
Fit = Callable[[Rows, int, float, int], Staged]

STAGES = [(first, first + STAGE) for first in range(0, TREES, STAGE)]


def lightgbm(
    train: Rows,
    seed: int,
    rate: float,
    leaves: int,
    objective: str | Callable[..., object] = "lambdarank",
    steepness: float = 0.0,
) -> Staged:
    """LightGBM's lambdarank, or another objective; items have weights `exp(steepness * label)`."""
    import lightgbm

    features, labels, sizes = train
    weights = np.exp(steepness * labels) if steepness else None
    settings = {
        "objective": objective,
        "learning_rate": rate,
        "num_leaves": leaves,
        "min_data_in_leaf": 30,
        "feature_fraction": 0.7,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "seed": seed,
        "num_threads": 1,
        "verbose": -1,
    }
    data = lightgbm.Dataset(features, labels, weight=weights, group=sizes)
    model = lightgbm.train(settings, data, TREES)
    return lambda x: [
        model.predict(x, start_iteration=first, num_iteration=last - first)
        for first, last in STAGES
    ]


def xgboost(train: Rows, seed: int, rate: float, leaves: int) -> Staged:
    """XGBoost's rank:ndcg."""
    import xgboost

    features, labels, sizes = train
    settings = {
        "objective": "rank:ndcg",
        "eta": rate,
        "max_leaves": leaves,
        "max_depth": 0,
        "grow_policy": "lossguide",
        "tree_method": "hist",
        "min_child_weight": 1.0,
        "colsample_bytree": 0.7,
        "subsample": 0.8,
        "seed": seed,
        "nthread": 1,
    }
    model = xgboost.train(settings, xgboost.DMatrix(features, labels, group=sizes), TREES)
    return lambda x: [
        model.predict(xgboost.DMatrix(x), iteration_range=stage, output_margin=True)
        for stage in STAGES
    ]


def train(fit: Fit, folds: Sequence[dict[str, Lists]]) -> Scores:
    """Returns the scores of the test lists of each fold and seed, by the best setting."""
    trials = []
    for (number, fold), seed, rate, leaves in itertools.product(
        enumerate(folds), SEEDS, LEARNING_RATES, LEAVES
    ):
        staged = fit(_rows(fold["train"]), seed, rate, leaves)
        validation, test = (_scores(staged, fold[part]) for part in ("vali", "test"))
        trials.append(Trial(number, seed, (rate, leaves), ndcg(fold["vali"], validation), test))
    return chosen(trials)


def _rows(lists: Lists) -> Rows:
    features = np.concatenate([x.features for x in lists])
    return features, np.concatenate([x.labels for x in lists]), [len(x.labels) for x in lists]


def _scores(staged: Staged, lists: Lists) -> list[list[np.ndarray]]:
    """Scores of each list after each stage."""
    features, _, sizes = _rows(lists)
    totals = np.cumsum(staged(features), axis=0, dtype=np.float64).astype(np.float32)
    return [np.split(total, np.cumsum(sizes)[:-1]) for total in totals]
