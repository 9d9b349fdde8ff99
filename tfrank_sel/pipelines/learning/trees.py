"""Boosted trees of LightGBM on the prepared lists of a candidate."""

import dataclasses
import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import keras
import numpy as np
import tensorflow as tf

from tfrank_sel import losses, metrics, models, objectives
from tfrank_sel.arguments import Checked
from tfrank_sel.data.cache import LABELS, WEIGHTS, Cache
from tfrank_sel.data.lists import InputError
from tfrank_sel.losses import lambdas
from tfrank_sel.ops.ranking import GAINS
from tfrank_sel.pipelines import interrupts

SMOOTHED = 20  # trees
PATIENCE = 100
NUMBERS = 10_000_000  # features of items for each thread, fewer of which cost more than they save
MOST = "num_iterations"  # maximum number of trees
LAMBDARANK = "lambdarank"  # LightGBM's own objective
LONGEST = 10_000  # items of a list, for LightGBM's own objective
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
    "num_threads": 0,  # by the size of the data
}
_FIXED = {"deterministic": True, "force_row_wise": True, "metric": "None", "verbose": -1}


def default_losses() -> tuple[losses.ListwiseLoss, ...]:
    """Losses of trees: `LambdaLoss` has the weights of LambdaRank, which suit trees better."""
    weight = lambdas.NDCGLambdaWeight(k=30, smooth_fraction=1.0)
    rank = losses.LambdaLoss(weight, name="lambda_rank")
    return losses.SoftmaxLoss(), losses.RGCrossLoss(), rank


def name_of(loss: keras.losses.Loss | str) -> str:
    """The name of a loss, or `LAMBDARANK`."""
    return loss if isinstance(loss, str) else str(loss.name)


def check_names(argument: str, given: Sequence[keras.losses.Loss | str]) -> None:
    """Raises a `ValueError` if there is no loss, or two have the same name."""
    names = [name_of(loss) for loss in given]
    if not names or len(set(names)) < len(names):
        raise ValueError(
            f"`{argument}` must be one or several with unique names. Received: {names}"
        )


@dataclasses.dataclass(frozen=True)
class Trees(Checked):
    """Boosted trees of LightGBM, one model for each loss.

    Args:
        losses: Losses of this package with unique names, or `LAMBDARANK` for LightGBM's own
            objective. By default `SoftmaxLoss`, `RGCrossLoss` and `LambdaLoss` with the weights of
            LambdaRank.
        parameters: Parameters of LightGBM that differ from `DEFAULTS`.

    Raises:
        ImportError: If LightGBM is not installed.
        TypeError: If a loss is not of this package.
        ValueError: If there is no loss, two have the same name, or one cannot be an objective (see
            `objectives.Derivatives`); or if a parameter is not one of `DEFAULTS`, which LightGBM
            would ignore or prefer to its other name, or not a number.
    """

    losses: Sequence[keras.losses.Loss | str] = dataclasses.field(default_factory=default_losses)
    parameters: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if importlib.util.find_spec("lightgbm") is None:
            raise ImportError("boosted trees require LightGBM: install `tfrank_sel[lightgbm]`")
        check_names("losses", self.losses)
        for loss in self.losses:
            if not isinstance(loss, str):
                objectives.Derivatives(loss)
            elif loss != LAMBDARANK:
                raise ValueError(f"losses must be objects, or {LAMBDARANK!r}. Received: {loss!r}")
        if unknown := sorted(self.parameters.keys() - DEFAULTS.keys()):
            accepted = ", ".join(DEFAULTS)
            raise ValueError(f"parameters must be among {accepted}. Received: {unknown}")
        values = {**DEFAULTS, **self.parameters}
        if not all(isinstance(x, (int, float)) for x in values.values()) or values[MOST] < 1:
            received = dict(self.parameters)
            raise ValueError(
                f"parameters must be numbers, and {MOST} at least 1. Received: {received}"
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the losses and parameters as JSON-ready values."""
        found = [
            x if isinstance(x, str) else keras.saving.serialize_keras_object(x) for x in self.losses
        ]
        return {"losses": found, "parameters": dict(self.parameters)}

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """Creates trees from the result of `get_config`."""
        found = [
            x if isinstance(x, str) else keras.saving.deserialize_keras_object(x)
            for x in config["losses"]
        ]
        return cls(found, config["parameters"])


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
