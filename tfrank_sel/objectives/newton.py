"""Training of CatBoost with losses of whole lists."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.objectives.derivatives import Derivatives

# A Newton step on any loss is a step on squared errors, whose targets and weights are of the loss.
NEWTON = {
    "loss_function": "RMSE",
    "boost_from_average": False,
    "leaf_estimation_method": "Newton",
    "leaf_estimation_iterations": 1,
    "allow_writing_files": False,
    "logging_level": "Silent",
}


def train_catboost(
    params: Mapping[str, Any], pool: Any, loss: ListwiseLoss, iterations: int, **options: Any
) -> Any:
    """Trains CatBoost with a loss; needs the extra `[catboost]`.

    CatBoost tells an objective of one's own neither lists nor the scores of all items. So each tree
    is trained alone, on squared errors with weights `h` and targets `-g / h`, which is the same
    Newton step: `g` and `h` are the derivatives of the loss. The trees are then summed.

    Args:
        params: Parameters of CatBoost, such as `depth`, `learning_rate`, `l2_leaf_reg` and
            `random_seed`. The loss, the number of trees and the method of leaf values are set here.
        pool: A `catboost.Pool` with `label` and `group_id`, of numerical and categorical features.
            Weights are those of its items; a baseline is ignored. The pool is copied, not changed.
        loss: The loss.
        iterations: Number of trees.
        **options: `probes`, `floor` and `seed`, as in `Derivatives`.

    Returns:
        A `catboost.CatBoost`, for `predict`, `staged_predict` and `save_model`.

    Raises:
        TypeError: As in `Derivatives`.
        ValueError: As in `Derivatives`, or if the pool has no groups, has text or embedding
            features, or is quantized and has categorical features.
    """
    try:
        import catboost
    except ImportError as error:
        raise ImportError(
            "`train_catboost` needs CatBoost: pip install 'tfrank_sel[catboost]'"
        ) from error
    derivatives = Derivatives(loss, **options)
    _check(pool)
    labels = np.asarray(pool.get_label(), np.float64)
    given = np.asarray(pool.get_weight(), np.float64)
    group = _sizes(pool)
    ignored = np.asarray(pool.get_baseline()).sum(axis=-1)
    copied = pool.slice(np.arange(len(labels)))
    if not copied.is_quantized():
        copied.quantize(**{k: v for k, v in params.items() if k == "border_count"})
    seed, models = params.get("random_seed", 0), []
    scores = np.zeros(len(labels))
    for i in range(iterations):
        gradient, diagonal = derivatives(labels, scores, given, group)
        weights = np.maximum(diagonal, np.finfo(np.float32).tiny)
        # less the label, from which CatBoost subtracts it
        baseline = labels + np.where(diagonal > 0.0, gradient / weights, 0.0)
        copied.set_weight(weights)
        copied.set_baseline(baseline[:, np.newaxis])
        model = catboost.CatBoost({**params, **NEWTON, "iterations": 1, "random_seed": seed + i})
        model.fit(copied)
        # not of the copy: CatBoost fails on one-hot features of a quantized pool
        scores += model.predict(pool) - ignored
        models.append(model)
    return catboost.sum_models(models)


def _check(pool: Any) -> None:
    unsummed = [*pool.get_text_feature_indices(), *pool.get_embedding_feature_indices()]
    if unsummed:
        raise ValueError(
            "CatBoost cannot sum trees with text or embedding features. Received: a pool with "
            f"features {unsummed} of these kinds. Replace them by numerical or categorical ones."
        )
    categorical = pool.get_cat_feature_indices()
    if categorical and pool.is_quantized():
        raise ValueError(
            "A pool with categorical features must not be quantized. Received: a quantized pool "
            f"with categorical features {categorical}. Pass the pool without `quantize`."
        )


def _sizes(pool: Any) -> Any:
    """Returns the sizes of the lists of a pool."""
    hashes = pool.get_group_id_hash()
    if hashes is None:
        raise ValueError("Lists are needed: give the pool `group_id`. Received: a pool without it")
    ids = np.asarray(hashes)
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    return np.diff(np.append(starts, len(ids)))
