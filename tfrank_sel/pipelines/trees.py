"""Boosted trees of LightGBM, trained with the losses of a candidate on its prepared lists."""

import importlib.util
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tfrank_sel import metrics, models, objectives
from tfrank_sel.data.cache import LABELS, WEIGHTS, Cache
from tfrank_sel.data.lists import InputError
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.pipelines import interrupts

SMOOTHED = 20  # trees
PATIENCE = 50
MOST = "num_iterations"  # maximum number of trees
# parameters of LightGBM
DEFAULTS: Mapping[str, Any] = {
    MOST: 500,
    "learning_rate": 0.05,
    "num_leaves": 7,
    "max_depth": -1,
    "min_data_in_leaf": 30,
    "min_sum_hessian_in_leaf": 1e-3,
    "lambda_l1": 0.0,
    "lambda_l2": 0.0,
    "feature_fraction": 0.7,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "max_bin": 255,
    "num_threads": 0,
}
_FIXED = {"deterministic": True, "force_row_wise": True, "metric": "None", "verbose": -1}


def check(parameters: Mapping[str, Any], losses: Sequence[Any]) -> None:
    """Checks that trees can be trained with parameters and losses.

    Raises:
        ImportError: If LightGBM is not installed.
        TypeError: If a loss is not of this package.
        ValueError: If a parameter is not one of `DEFAULTS`, which LightGBM would ignore or prefer
            to its other name, or is not a number, or if a loss cannot be an objective: see
            `objectives.Derivatives`.
    """
    if importlib.util.find_spec("lightgbm") is None:
        raise ImportError("`trees` require LightGBM: install `tfrank_sel[lightgbm]`")
    if unknown := sorted(parameters.keys() - DEFAULTS.keys()):
        accepted = ", ".join(DEFAULTS)
        raise ValueError(f"`trees` must have keys among {accepted}. Received: {unknown}")
    values = {**DEFAULTS, **parameters}
    if not all(isinstance(x, (int, float)) for x in values.values()) or values[MOST] < 1:
        received = dict(parameters)
        raise ValueError(f"`trees` must be numbers, and {MOST} at least 1. Received: {received}")
    for loss in losses:
        objectives.Derivatives(loss)


def train(
    loss: ListwiseLoss,
    learned: Cache,
    held_out: Cache,
    parameters: Mapping[str, Any],
    seed: int,
    on_tree: Callable[[int, int, float, float], None],
) -> tuple[models.BoostedTrees, dict[str, list[float]], float]:
    """Trains trees with a loss, until the NDCG@10 of held-out lists gets no better.

    The NDCG@10 varies from tree to tree, so its mean over the last `SMOOTHED` trees is what counts.
    Training ends if the mean has not risen over `PATIENCE` trees.

    Args:
        loss: The loss.
        learned: Lists to learn from.
        held_out: Lists to measure on.
        parameters: Parameters of LightGBM that differ from `DEFAULTS`.
        seed: Seed of the samples of items and features.
        on_tree: Called after each tree, with its number from 1, the maximum number of trees, the
            NDCG@10 of the held-out lists, and the mean seconds per tree. An exception raised in it
            stops training.

    Returns:
        The trees up to the best NDCG@10, the values after each tree, and the mean seconds per tree.

    Raises:
        tfrank_sel.data.InputError: If LightGBM rejects a parameter.
    """
    import lightgbm

    given = {**DEFAULTS, **parameters, **_FIXED, "seed": seed}
    most = int(given.pop(MOST))
    history: list[float] = []
    means: list[float] = []
    began = time.perf_counter()

    def after(state: Any) -> None:
        interrupts.check()
        history.append(state.evaluation_result_list[0][2])
        means.append(statistics.mean(history[-SMOOTHED:]))
        seconds = (time.perf_counter() - began) / len(history)
        on_tree(len(history), most, history[-1], seconds)
        if len(means) - _best(means) >= PATIENCE:
            raise lightgbm.callback.EarlyStopException(len(means), [])

    data = _dataset(learned)
    try:
        booster = lightgbm.train(
            {**given, "objective": objectives.lightgbm(loss)},
            data,
            most,
            [_dataset(held_out, data)],
            ["validation"],
            feval=objectives.lightgbm_metric(metrics.NDCG(10)),
            callbacks=[after],
        )
    except lightgbm.basic.LightGBMError as error:
        raise InputError("model.trees", f"must suit LightGBM. Received: {error}") from error
    seconds = (time.perf_counter() - began) / len(history)
    booster.best_iteration = _best(means)
    return models.BoostedTrees.from_lightgbm(booster), {"val_ndcg": history}, seconds


def _best(means: Sequence[float]) -> int:
    """The number of trees with the best mean; the first means are of fewer trees than others."""
    from_whole = means[SMOOTHED - 1 :] or means[-1:]
    return len(means) - len(from_whole) + 1 + int(np.argmax(from_whole))


def _dataset(cache: Cache, reference: Any = None) -> Any:
    import lightgbm

    weights = cache.items(WEIGHTS) if WEIGHTS in cache.parts else None
    return lightgbm.Dataset(
        cache.items("features"), cache.items(LABELS), reference, weights, cache.sizes
    )
