"""Boosted trees of LightGBM on the prepared lists of a candidate."""

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrank_sel import losses, metrics, models, objectives
from tfrank_sel.data.cache import LABELS, WEIGHTS, Cache
from tfrank_sel.data.lists import InputError
from tfrank_sel.ops.ranking import GAINS
from tfrank_sel.pipelines import interrupts
from tfrank_sel.pipelines.candidates import DEFAULTS, MOST

SMOOTHED = 20  # trees
PATIENCE = 100
NUMBERS = 10_000_000  # features of items for each thread, fewer of which cost more than they save
LONGEST = 10_000  # items of a list, for LightGBM's own objective
_FIXED = {"deterministic": True, "force_row_wise": True, "metric": "None", "verbose": -1}


def train(
    loss: losses.ListwiseLoss | str,
    learned: Cache,
    held_out: Cache,
    parameters: Mapping[str, Any],
    seed: int,
    on_tree: Callable[[int, int, float, float], None],
    gain: str = "exponential",
) -> tuple[models.BoostedTrees, dict[str, list[float]], float]:
    """Trains trees with a loss, until the NDCG@10 of held-out lists gets no better.

    The NDCG@10 varies from tree to tree, so its mean over the last `SMOOTHED` trees is what counts.
    Training ends if the mean has not risen over `PATIENCE` trees. LightGBM's own objective has the
    same gain as NDCG, for any labels; a list of more than `LONGEST` items is learned in parts.

    Args:
        loss: The loss, or `LAMBDARANK`.
        learned: Lists to learn from.
        held_out: Lists to measure on.
        parameters: Parameters of LightGBM that differ from `DEFAULTS`.
        seed: Seed of the samples of items and features.
        on_tree: Called after each tree, with its number from 1, the maximum number of trees, the
            NDCG@10 of the held-out lists, and the mean seconds per tree. An exception raised in it
            stops training.
        gain: Name of the gain of NDCG, in `ranking.GAINS`.

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
    given["num_threads"] = given["num_threads"] or min(
        os.cpu_count() or 1, 1 + data.data.size // NUMBERS
    )
    if isinstance(loss, str):
        labels, data.label = np.unique(data.label, return_inverse=True)
        data.group = [part for size in data.group for part in _parts(int(size))]
        gains = GAINS[gain](tf.constant(labels, tf.float64)).numpy().tolist()
        given |= {"objective": loss, "label_gain": gains}
    else:
        given["objective"] = objectives.lightgbm(loss)
    try:
        booster = lightgbm.train(
            given,
            data,
            most,
            [_dataset(held_out, data)],
            ["validation"],
            feval=objectives.lightgbm_metric(metrics.NDCG(10, GAINS[gain])),
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


def _parts(size: int) -> list[int]:
    """Divides a list into equal parts that LightGBM's own objective takes."""
    count = -(size // -LONGEST)
    return [size // count + (part < size % count) for part in range(count)]


def _dataset(cache: Cache, reference: Any = None) -> Any:
    import lightgbm

    weights = cache.items(WEIGHTS) if WEIGHTS in cache.parts else None
    return lightgbm.Dataset(
        cache.items("features"), cache.items(LABELS), reference, weights, cache.sizes
    )
