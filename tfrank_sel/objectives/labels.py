"""Check of the labels of items, before training."""

import math
from typing import TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike

from tfrank_sel.listwise import Listwise
from tfrank_sel.metrics import ItemMetric, ListwiseMetric

Formula: TypeAlias = keras.losses.Loss | ListwiseMetric | ItemMetric
TRIED = 7  # the smallest labels, and the largest


def check_labels(formula: Formula, labels: ArrayLike) -> None:
    """Raises an error if a loss or metric cannot be computed for labels of items.

    Labels of rows are data: one that the formula would take for padding is an error, too. Only NaN
    is padding. A list of the smallest labels and the largest, with equal scores, is tried.

    Args:
        formula: A loss of Keras or of this package, or a metric of this package.
        labels: Labels of items.

    Raises:
        ValueError: If the formula rejects a label, takes it for padding, or is not finite.
    """
    known = np.unique(np.asarray(labels, np.float64))
    known = known[~np.isnan(known)]
    if not known.size:
        return
    low, high = known[0], known[-1]
    received = f"Received: labels from {low:g} to {high:g}"
    y_true = tf.constant([[*known[:TRIED], high, math.nan]], tf.float32)
    y_pred = tf.zeros_like(y_true)
    if low < _min_label(formula):
        raise ValueError(
            f"{formula.name} requires labels of at least 0. {received}. Shift or map the labels, "
            "or use a loss of scores such as MeanSquaredLoss or MatchingLoss."
        )
    try:
        value = _value(formula, y_true, y_pred)
    except (TypeError, ValueError, tf.errors.OpError) as error:
        reason = str(error).partition(" Condition x")[0]
        raise ValueError(f"{formula.name} must accept the labels. {received}. {reason}") from error
    if not math.isfinite(value):
        raise ValueError(
            f"{formula.name} must be finite for the labels, where padding is NaN and all scores "
            f"are 0. {received}, and a value of {value}"
        )


def _min_label(formula: Formula) -> float:
    if isinstance(formula, ItemMetric):
        return 0.0
    return formula.min_label if isinstance(formula, Listwise) else -math.inf


def _value(formula: Formula, y_true: tf.Tensor, y_pred: tf.Tensor) -> float:
    if isinstance(formula, ItemMetric):
        return 0.0
    if isinstance(formula, ListwiseMetric):
        return float(tf.reduce_sum(formula.evaluate(y_true, y_pred).values))
    return float(formula(y_true, y_pred))
