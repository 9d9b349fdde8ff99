"""Boosted trees of LightGBM on prepared lists."""

import os
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import losses, metrics, models, objectives
from tfrank_sel.data.cache import LABELS, WEIGHTS, Cache
from tfrank_sel.errors import received
from tfrank_sel.ops.ranking import gain_arguments

# The name of LightGBM's objective for ranking.
LAMBDARANK = "lambdarank"
# LightGBM's parameter for the maximum number of trees.
MOST = "num_iterations"
LEAF = "min_data_in_leaf"
# Default values of LightGBM's parameters.
DEFAULTS: Mapping[str, Any] = {
    MOST: 500,
    "learning_rate": 0.05,
    "num_leaves": 7,
    "max_depth": -1,
    LEAF: 30,  # of 120 items or more
    "min_sum_hessian_in_leaf": 1e-3,
    "lambda_l1": 0.0,
    "lambda_l2": 0.0,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 255,
    "num_threads": 0,  # by the size of the data
}
# Number of trees over which the curve is smoothed.
SMOOTHED = 20
PATIENCE = 50
NUMBERS = 10_000_000  # features of items for each thread, fewer of which cost more than they save
LONGEST = 10_000  # items of a list, for LightGBM's own objective
_FIXED = {
    "data_random_seed": 1,  # of the bins, which all seeds share
    "deterministic": True,
    "force_row_wise": True,
    "metric": "None",
    "verbose": -1,
}


class TreesError(ValueError):
    """A parameter or labels that LightGBM rejects."""


def name_of(loss: keras.losses.Loss | str) -> str:
    """The name of a loss, or `LAMBDARANK`."""
    return loss if isinstance(loss, str) else str(loss.name)


class Binned:
    """Lists with binned features, on which trees of several losses are trained.

    Args:
        learned: Lists to learn from.
        held_out: Lists to measure on; None to train all trees of `parameters`.
        parameters: Parameters of LightGBM that differ from `DEFAULTS`. Of few items, a leaf has at
            least a quarter by default.

    Raises:
        TreesError: If LightGBM rejects a parameter.
    """

    def __init__(
        self, learned: Cache, held_out: Cache | None, parameters: Mapping[str, Any]
    ) -> None:
        import lightgbm

        self.items = int(learned.sizes.sum())
        leaf = min(DEFAULTS[LEAF], max(1, self.items // 4))
        options = {**DEFAULTS, LEAF: leaf, **parameters, **_FIXED}
        self.most = int(options.pop(MOST))
        size = learned.items("features").size
        options["num_threads"] = options["num_threads"] or min(
            os.cpu_count() or 1, 1 + size // NUMBERS
        )
        self.parameters: Mapping[str, Any] = options
        self.labels, self.sizes = learned.items(LABELS), learned.sizes
        try:
            self.learned = _dataset(learned, params=options).construct()
            self.held_out = None
            if held_out is not None:
                measured = _dataset(held_out, params=options, reference=self.learned)
                self.held_out = measured.construct()
        except lightgbm.basic.LightGBMError as error:
            raise TreesError(received("must suit LightGBM", error)) from error


def train(
    loss: losses.ListwiseLoss | str,
    lists: Binned,
    seed: int,
    on_tree: Callable[[int, int, float, float], None] = lambda *_: None,
    gain: str | float = "exponential",
) -> tuple[models.BoostedTrees, dict[str, list[float]], float]:
    """Trains trees with a loss, until the NDCG@10 of held-out lists gets no better.

    The NDCG@10 varies from tree to tree, so its mean over the last `SMOOTHED` trees is what counts.
    Training ends if the mean has not risen over `PATIENCE` trees. LightGBM's own objective has the
    same gain as NDCG, for any labels; a list of more than `LONGEST` items is learned in parts.
    Warns if no tree has a split.

    Args:
        loss: The loss, or `LAMBDARANK`.
        lists: Lists to learn from and to measure on.
        seed: Seed of the samples of items and features.
        on_tree: Called after each tree, with its number from 1, the maximum number of trees, the
            NDCG@10 of the held-out lists, and the mean seconds per tree. An exception raised in it
            stops training.
        gain: Gain of NDCG, as in `ranking.gain_arguments`.

    Returns:
        The trees up to the best NDCG@10, the values after each tree by name, and the mean seconds
        per tree.

    Raises:
        TreesError: If LightGBM rejects the labels.
    """
    import lightgbm

    options, most = gain_arguments(gain), lists.most
    parameters = {**lists.parameters, "seed": seed}
    history: list[float] = []
    means: list[float] = []
    began = time.perf_counter()

    def after(state: Any) -> None:
        history.append(state.evaluation_result_list[0][2])
        means.append(statistics.mean(history[-SMOOTHED:]))
        seconds = (time.perf_counter() - began) / len(history)
        on_tree(len(history), most, history[-1], seconds)
        if len(means) - _best(means) >= PATIENCE:
            raise lightgbm.callback.EarlyStopException(len(means), [])

    labels, sizes = lists.labels, lists.sizes
    if isinstance(loss, str):
        amounts, labels = np.unique(labels, return_inverse=True)
        sizes = np.array([part for size in sizes for part in _parts(int(size))])
        if not isinstance(gain, str):
            amounts = np.maximum(amounts - gain, 0.0)
        gains = options["gain"](tf.constant(amounts, tf.float64)).numpy().tolist()
        parameters |= {"objective": loss, "label_gain": gains}
    else:
        parameters["objective"] = objectives.lightgbm(loss)
    data = lists.learned.set_label(labels).set_group(sizes)
    if not any(map(data.feature_num_bin, range(data.num_feature()))):
        parameters["objective"] = "regression"  # gives one score, where an objective of ours fails
    measured: dict[str, Any] = {}
    if lists.held_out is not None:
        measured = {
            "valid_sets": [lists.held_out],
            "feval": objectives.lightgbm_metric(metrics.NDCG(10, **options)),
            "callbacks": [after],
        }
    try:
        booster = lightgbm.train(parameters, data, most, **measured)
    except lightgbm.basic.LightGBMError as error:
        raise TreesError(received("must suit LightGBM", error)) from error
    seconds = (time.perf_counter() - began) / booster.current_iteration()
    booster.best_iteration = _best(means) if means else most
    measures = {"val_ndcg": history} if history else {}
    forest = models.BoostedTrees.from_lightgbm(booster)
    if not forest.depth:
        warnings.warn(
            f"the trees of {name_of(loss)} give all {lists.items} items one score: no feature "
            f"divides them into parts of {LEAF}={parameters[LEAF]}",
            stacklevel=2,
        )
    return forest, measures, seconds


def _best(means: Sequence[float]) -> int:
    """The number of trees with the best mean; the first means are of fewer trees than others."""
    from_whole = means[SMOOTHED - 1 :] or means[-1:]
    return len(means) - len(from_whole) + 1 + int(np.argmax(from_whole))


def _parts(size: int) -> list[int]:
    """Divides a list into equal parts that LightGBM's own objective takes."""
    count = -(size // -LONGEST)
    return [size // count + (part < size % count) for part in range(count)]


def _dataset(cache: Cache, **arguments: Any) -> Any:
    import lightgbm

    weights = cache.items(WEIGHTS) if WEIGHTS in cache.parts else None
    return lightgbm.Dataset(
        cache.items("features"),
        cache.items(LABELS),
        weight=weights,
        group=cache.sizes,
        **arguments,
    )
