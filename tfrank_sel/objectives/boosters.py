"""Objectives and metrics in the forms of LightGBM, XGBoost and CatBoost."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel import numerics
from tfrank_sel.errors import received, refusal, require_extra
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.metrics import ItemMetric, ListwiseMetric
from tfrank_sel.metrics.base import RankedMetric
from tfrank_sel.objectives import closed_forms
from tfrank_sel.objectives.derivatives import Derivatives
from tfrank_sel.objectives.lists import (
    DATA_SETS,
    Array,
    Batch,
    arrays,
    as_scores,
    batches,
    check_labels,
    content,
)

Metric = ListwiseMetric | ItemMetric | ListwiseLoss


class Measured:
    """The weighted mean of a metric or a loss over a set of lists.

    The weights of items count within their list. A list whose items all have weight 0 is left out.

    The value of a calibration metric is that of the items of all lists. By default a ranking metric
    is averaged over the orders of items with equal scores, so that the order of the rows does not
    count.

    Args:
        metric: The metric, or the loss, whose `reduction` is ignored.

    Raises:
        TypeError: If `metric` is neither.
    """

    def __init__(self, metric: Metric) -> None:
        if not isinstance(metric, Metric):
            raise TypeError(received("`metric` must be a metric or a loss", metric=metric))
        measure: Any = metric.over_ties() if isinstance(metric, RankedMetric) else metric
        self.metric = measure
        self._lists = functools.lru_cache(DATA_SETS)(functools.partial(batches, measure))
        self._ndcg = functools.lru_cache(DATA_SETS)(self._measure)
        if isinstance(metric, ListwiseMetric):
            # called after each tree, where operations one by one take three times as long
            self._evaluate = numerics.graph(measure.evaluate)

    def __deepcopy__(self, memo: Any) -> "Measured":
        # Like a function, it is copied as itself: see `Derivatives`.
        return self

    def __reduce__(self) -> tuple[type["Measured"], tuple[Any, ...]]:
        return type(self), (self.metric,)

    @property
    def is_maximised(self) -> bool:
        """Whether larger values are better."""
        return getattr(self.metric, "_direction", "down") == "up"

    def __call__(
        self,
        labels: ArrayLike,
        scores: ArrayLike,
        weights: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> float:
        """Computes the mean; the arguments are those of `Derivatives`."""
        contents, flat = content(labels, weights, group), as_scores(scores, np.size(labels))
        if closed_forms.measures(self.metric):
            values, counted = self._ndcg(*contents)(flat)
            return float(np.average(values, weights=counted)) if counted.any() else 0.0
        lists: list[Batch] = self._lists(*contents)
        items = np.append(flat, 0.0)
        scored = (
            (y_true, items[index].reshape(y_true.shape), sample_weight)
            for y_true, sample_weight, index in lists
        )
        if isinstance(self.metric, ItemMetric):
            return _of_items(self.metric, scored)
        total = weight = 0.0
        for y_true, y_pred, sample_weight in scored:
            values, list_weights = self._of_lists(y_true, y_pred, sample_weight)
            counted = np.broadcast_to(list_weights, values.shape)
            if sample_weight is not None:  # a list whose items all have weight 0 is not there
                counted = counted * np.any(sample_weight > 0.0, axis=1)
            total += float(np.sum(np.where(counted > 0.0, counted * values, 0.0)))
            weight += float(np.sum(counted))
        return total / weight if weight else 0.0

    def _measure(self, *lists: Any) -> closed_forms.ListMeasure:
        labels, weights, sizes = arrays(*lists)
        check_labels(self.metric, labels)
        return closed_forms.ndcg(self.metric, labels, weights, sizes)

    def _of_lists(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any]:
        if isinstance(self.metric, ListwiseMetric):
            result = self._evaluate(y_true, y_pred, sample_weight)
            return np.asarray(result.values), np.asarray(result.weights)
        batch = self.metric.batch_of(y_true, y_pred, sample_weight, self.metric.dtype)
        values = self.metric.shared_formula(*batch[:4])
        return np.asarray(values), np.asarray(batch.list_weights)


def _of_items(metric: ItemMetric, batches: Iterable[tuple[Any, Any, Any]]) -> float:
    fresh = type(metric).from_config(metric.get_config())  # keeps the sums of `metric`
    for batch in batches:
        fresh.update_state(*batch)
    return float(fresh.result())


Found = tuple[Array, Array]


def lightgbm(loss: ListwiseLoss, **options: Any) -> Callable[..., Found]:
    """Makes an objective of LightGBM.

    The result is a value of `objective` in the parameters of `lightgbm.train` and `lightgbm.cv`,
    and the `objective` of `lightgbm.LGBMRanker`. The data need a `group`; `weight` has one number
    per item. Set `metric` to `"None"`, or to a metric of your choice: LightGBM has none for it.

    Args:
        loss: The loss.
        **options: `probes`, `floor` and `seed`, as in `Derivatives`.

    Raises:
        TypeError: As in `Derivatives`.
        ValueError: As in `Derivatives`; when called, if the data have no groups.

    Example:
        ```python
        params = {"objective": objectives.lightgbm(losses.RGCrossLoss()), "metric": "None"}
        model = lightgbm.train(params, lightgbm.Dataset(features, labels, group=group))
        ```
    """
    return functools.partial(_call_by_lightgbm, Derivatives(loss, **options))


def lightgbm_metric(metric: Metric) -> Callable[..., tuple[str, float, bool]]:
    """Makes an evaluation function of LightGBM from a metric or a loss.

    The result is `feval` of `lightgbm.train` and `lightgbm.cv`, and `eval_metric` of the method
    `fit` of `lightgbm.LGBMRanker`. It is averaged over the orders of items with equal scores.
    Early stopping maximises a metric, and minimises a loss, a calibration metric, `ARP`,
    `LogitNorm`, `RegionAbsoluteError` and `RegionDivergence`. Do not stop early by `PCOC`,
    whose best value is 1.

    Args:
        metric: The metric, or the loss, which is averaged over the lists.

    Raises:
        TypeError: If `metric` is neither a metric nor a loss of this package.
    """
    return functools.partial(_call_by_lightgbm, Measured(metric))


def xgboost(loss: ListwiseLoss, **options: Any) -> Callable[[Any, Any], Found]:
    """Makes an objective of XGBoost.

    The result is `obj` of `xgboost.train` and `xgboost.cv`. The data need `group` or `qid`, and may
    have a weight per list. `xgboost.XGBRanker` takes no objective of one's own. The second
    derivatives of a list sum to about its gain, or 1: choose `min_child_weight` and `lambda`, which
    are 1 by default, accordingly. Set `disable_default_eval_metric` to 1.

    Args:
        loss: The loss.
        **options: `probes`, `floor` and `seed`, as in `Derivatives`.

    Raises:
        TypeError: As in `Derivatives`.
        ValueError: As in `Derivatives`; when called, if the data have no groups.

    Example:
        ```python
        data = xgboost.DMatrix(features, labels, group=group)
        params = {"disable_default_eval_metric": 1, "min_child_weight": 0.01}
        model = xgboost.train(params, data, 500, obj=objectives.xgboost(losses.RGCrossLoss()))
        ```
    """
    return functools.partial(_call_by_xgboost, Derivatives(loss, **options))


def xgboost_metric(metric: Metric) -> Callable[[Any, Any], tuple[str, float]]:
    """Makes a metric of XGBoost, `custom_metric` of `xgboost.train`, from a metric or a loss.

    It is averaged over the orders of items with equal scores.

    To stop early by a metric that is to be maximised, set `maximize` of
    `xgboost.callback.EarlyStopping`.

    Args:
        metric: The metric, or the loss, which is averaged over the lists.

    Raises:
        TypeError: If `metric` is neither a metric nor a loss of this package.
    """
    return functools.partial(_call_by_xgboost, Measured(metric))


def _call_by_lightgbm(
    function: Derivatives | Measured,
    y_true: NDArray[Any],
    y_pred: Any,
    weight: NDArray[Any] | None = None,
    group: NDArray[Any] | None = None,
) -> Any:
    """Takes the arguments of scikit-learn, or scores and a data set, as `lightgbm.train` passes."""
    if hasattr(y_pred, "get_label"):
        scores, data = y_true, y_pred
        y_true, y_pred = data.get_label(), scores
        weight, group = data.get_weight(), data.get_group()
    value = function(y_true, y_pred, weight, group)
    if isinstance(function, Derivatives):
        return value
    return function.metric.name, value, function.is_maximised


def _call_by_xgboost(function: Derivatives | Measured, scores: NDArray[Any], data: Any) -> Any:
    weights, bounds = data.get_weight(), data.get_uint_info("group_ptr")
    value = function(
        data.get_label(),
        scores,
        weights if weights.size else None,
        np.diff(bounds.astype(np.int64)) if bounds.size else None,
    )
    return value if isinstance(function, Derivatives) else (function.metric.name, value)


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
    with require_extra("`train_catboost`", "catboost", "CatBoost"):
        import catboost
    derivatives = Derivatives(loss, **options)
    _check(pool)
    labels = np.asarray(pool.get_label(), np.float64)
    pool_weights = np.asarray(pool.get_weight(), np.float64)
    group = _sizes(pool)
    # `predict` adds the baseline of its pool
    ignored = np.asarray(pool.get_baseline()).sum(axis=-1)
    copied = pool.slice(np.arange(len(labels)))
    if not copied.is_quantized():
        copied.quantize(**{k: v for k, v in params.items() if k == "border_count"})
    seed, models = params.get("random_seed", 0), []
    scores = np.zeros(len(labels))
    for i in range(iterations):
        gradient, diagonal = derivatives(labels, scores, pool_weights, group)
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
        raise refusal(
            "CatBoost cannot sum trees with text or embedding features",
            f"a pool with features {unsummed} of these kinds. Replace them by numerical or "
            "categorical ones.",
        )
    categorical = pool.get_cat_feature_indices()
    if categorical and pool.is_quantized():
        raise refusal(
            "A pool with categorical features must not be quantized",
            f"a quantized pool with categorical features {categorical}. Pass the pool without "
            "`quantize`.",
        )


def _sizes(pool: Any) -> Any:
    """Returns the sizes of the lists of a pool."""
    hashes = pool.get_group_id_hash()
    if hashes is None:
        raise refusal("Lists are needed: give the pool `group_id`", "a pool without it")
    ids = np.asarray(hashes)
    starts = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
    return np.diff(np.append(starts, len(ids)))
