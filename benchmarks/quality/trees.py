"""Boosted trees on the same folds, features, seeds and number of settings as the networks."""

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from benchmarks.quality.data import PARTS, Lists
from benchmarks.quality.selection import SEEDS, Scores, Trial, chosen, ndcg
from tfrank_sel import models
from tfrank_sel.data import ItemList

LEARNING_RATES = (0.02, 0.05)
LEAVES = (7, 15)
TREES = 500
STAGE = 10  # trees
DEPTHS = (4, 6)  # of CatBoost, whose trees are symmetric

# features, labels and sizes of lists
Rows = tuple[np.ndarray, np.ndarray, list[int]]
# from features to what each stage adds to the scores
Staged = Callable[[np.ndarray], list[np.ndarray]]
# from rows, seed, learning rate and leaves, or the depth
Fit = Callable[[Rows, int, float, int], Staged]

STAGES = [(first, first + STAGE) for first in range(0, TREES, STAGE)]


def lightgbm(
    train: Rows,
    seed: int,
    rate: float,
    leaves: int,
    objective: str | Callable[..., object] = "lambdarank",
    steepness: float = 0.0,
    categories: Sequence[int] = (),
) -> Staged:
    """LightGBM's lambdarank, or another objective; items have weights `exp(steepness * label)`.

    `categories` are places of columns with codes.
    """
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
    data = lightgbm.Dataset(
        features, labels, weight=weights, group=sizes, categorical_feature=list(categories)
    )
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


def catboost(train: Rows, seed: int, rate: float, depth: int) -> Staged:
    """CatBoost's YetiRank."""
    import catboost

    features, labels, sizes = train
    model = catboost.CatBoost(
        {
            "loss_function": "YetiRank",
            "iterations": TREES,
            "learning_rate": rate,
            "depth": depth,
            "random_seed": seed,
            "thread_count": 1,
            "allow_writing_files": False,
            "logging_level": "Silent",
        }
    )
    queries = np.repeat(np.arange(len(sizes)), sizes)
    model.fit(catboost.Pool(features, labels, group_id=queries))

    def staged(features: np.ndarray) -> list[np.ndarray]:
        totals = list(model.staged_predict(features, eval_period=STAGE, thread_count=1))
        return [totals[0], *np.diff(totals, axis=0)]

    return staged


def histogram_boosting(train: Rows, seed: int, rate: float, leaves: int) -> Staged:
    """scikit-learn's regression of the label."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    features, labels, _ = train
    model = HistGradientBoostingRegressor(
        learning_rate=rate,
        max_iter=TREES,
        max_leaf_nodes=leaves,
        min_samples_leaf=30,
        max_features=0.7,
        early_stopping=False,
        random_state=seed,
    ).fit(features, labels)

    def staged(features: np.ndarray) -> list[np.ndarray]:
        totals = list(model.staged_predict(features))[STAGE - 1 :: STAGE]
        return [totals[0], *np.diff(totals, axis=0)]

    return staged


def train(
    fit: Fit,
    folds: Sequence[dict[str, Lists]],
    *,
    within: bool = False,
    sizes: Sequence[int] = LEAVES,
    seeds: Sequence[int] = SEEDS,
) -> Scores:
    """Returns the scores of the test lists of each fold and seed, by the best setting.

    With `within`, trees have the features of `models.ListScorer`. `sizes` are those of trees.
    """
    trials = []
    for number, fold in enumerate(folds):
        data = {part: rows(fold[part], within) for part in PARTS}
        for seed, rate, size in itertools.product(seeds, LEARNING_RATES, sizes):
            staged = fit(data["train"], seed, rate, size)
            validation, test = (_scores(staged, data[part]) for part in ("vali", "test"))
            values = ndcg(fold["vali"], validation)
            trials.append(Trial(number, seed, (rate, size), values, test))
    return chosen(trials)


def rows(lists: Lists, within: bool) -> Rows:
    """Features, labels and sizes of lists."""
    layer = models.WithinList()

    def features(one: ItemList) -> np.ndarray:
        is_item = tf.ones([1, len(one.labels)], tf.bool)
        return layer(one.features[np.newaxis], is_item)[0].numpy() if within else one.features

    found = np.concatenate([features(x) for x in lists])
    return found, np.concatenate([x.labels for x in lists]), [len(x.labels) for x in lists]


def _scores(staged: Staged, rows: Rows) -> list[list[np.ndarray]]:
    """Scores of each list after each stage."""
    features, _, sizes = rows
    totals = np.cumsum(staged(features), axis=0, dtype=np.float64).astype(np.float32)
    return [np.split(total, np.cumsum(sizes)[:-1]) for total in totals]
