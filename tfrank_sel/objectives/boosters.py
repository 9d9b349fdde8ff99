"""Objectives and metrics in the forms of LightGBM and XGBoost."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.objectives.derivatives import Derivatives
from tfrank_sel.objectives.lists import Array
from tfrank_sel.objectives.measures import Measured, Metric

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
    return functools.partial(_of_lightgbm, Derivatives(loss, **options))


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
    return functools.partial(_measured_by_lightgbm, Measured(metric))


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
    return functools.partial(_of_xgboost, Derivatives(loss, **options))


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
    return functools.partial(_measured_by_xgboost, Measured(metric))


def _of_lightgbm(
    derivatives: Derivatives,
    y_true: NDArray[Any],
    y_pred: Any,
    weight: NDArray[Any] | None = None,
    group: NDArray[Any] | None = None,
) -> Found:
    return derivatives(**_arguments(y_true, y_pred, weight, group))


def _measured_by_lightgbm(
    measured: Measured,
    y_true: NDArray[Any],
    y_pred: Any,
    weight: NDArray[Any] | None = None,
    group: NDArray[Any] | None = None,
) -> tuple[str, float, bool]:
    value = measured(**_arguments(y_true, y_pred, weight, group))
    return measured.metric.name, value, measured.is_maximised


def _arguments(
    y_true: NDArray[Any], y_pred: Any, weight: ArrayLike | None, group: ArrayLike | None
) -> dict[str, Any]:
    """Reads the arguments of scikit-learn, or scores and a data set, as `lightgbm.train` passes."""
    if hasattr(y_pred, "get_label"):
        scores, data = y_true, y_pred
        y_true, y_pred = data.get_label(), scores
        weight, group = data.get_weight(), data.get_group()
    return {"labels": y_true, "scores": y_pred, "weights": weight, "group": group}


def _of_xgboost(derivatives: Derivatives, scores: NDArray[Any], data: Any) -> Found:
    return derivatives(**_of_matrix(data), scores=scores)


def _measured_by_xgboost(measured: Measured, scores: NDArray[Any], data: Any) -> tuple[str, float]:
    return measured.metric.name, measured(**_of_matrix(data), scores=scores)


def _of_matrix(data: Any) -> dict[str, Any]:
    weights, bounds = data.get_weight(), data.get_uint_info("group_ptr")
    return {
        "labels": data.get_label(),
        "weights": weights if weights.size else None,
        "group": np.diff(bounds.astype(np.int64)) if bounds.size else None,
    }
