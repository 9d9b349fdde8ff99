"""Lists that lie one after the other, as padded lists of a few widths, and their labels."""

import math
from typing import Any, TypeAlias

import keras
import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from tensorflow import Tensor

from tfrank_sel.errors import refusal
from tfrank_sel.listwise import Listwise
from tfrank_sel.metrics import ItemMetric, ListwiseMetric
from tfrank_sel.objectives import closed_forms

# widths to choose from: powers of two, and one size between two of them
SIZES = np.sort(np.outer(2 ** np.arange(3, 31), [1.0, 1.5]).astype(np.int32).ravel())
# A width costs half a second where a loss is compiled, in which 1,000 calls compute so many slots.
SLOTS_PER_WIDTH = 2**13
ITEMS_AT_A_TIME = 2**15  # a loss that compares all items needs this times the list size in memory
DATA_SETS = 16  # the number of sets whose lists are kept, such as the folds of a cross-validation

Array = NDArray[np.float32]
Content = tuple[bytes, bytes | None, bytes]
Batch = tuple[NDArray[Any], NDArray[Any] | None, NDArray[Any]]


def batches(formula: "Formula", labels: bytes, weights: bytes | None, group: bytes) -> list[Batch]:
    """Pads lists of some `content` to a few widths, after `check_labels`.

    Returns:
        For each width: labels, padded with NaN, and weights as Keras takes them; and the index of
        the item in each slot, `[chunks, lists, width]`, which at padding is the number of items.
    """
    y, w, sizes = arrays(labels, weights, group)
    check_labels(formula, y)
    w = None if w is None else np.append(w, 0.0)
    starts, padded_labels = np.append(np.cumsum(sizes) - sizes, 0), np.append(y, np.nan)
    padded, low = [], 0
    for width in _widths(sizes[sizes > 0]):
        members = np.flatnonzero((sizes > low) & (sizes <= width))
        chunks = -(-len(members) * width // ITEMS_AT_A_TIME)
        rows = -(-len(members) // chunks)
        filled = np.pad(members, (0, chunks * rows - len(members)), constant_values=len(sizes))
        # lists that fill up the last chunk begin anywhere and have no item
        index = starts[filled, np.newaxis] + np.arange(width)
        is_item = np.arange(width) < np.append(sizes, 0)[filled, np.newaxis]
        index = np.where(is_item, index, len(y)).astype(np.int32)
        where = filled[:, np.newaxis] if w is not None and len(w) == len(sizes) + 1 else index
        slots = index.reshape(chunks, rows, width)
        padded.append((padded_labels[index], None if w is None else w[where], slots))
        low = width
    return padded


def content(labels: ArrayLike, weights: ArrayLike | None, group: ArrayLike | None) -> Content:
    """Checks labels, weights and sizes of lists, and returns their bytes."""
    if group is None:
        raise refusal(
            "Lists are needed: give the data the sizes of the lists, `group`", "group=None"
        )
    y, sizes = np.asarray(labels, np.float64).ravel(), np.asarray(group, np.int64).ravel()
    if sizes.sum() != len(y) or sizes.min(initial=0) < 0:
        raise refusal(
            "The sizes in `group` must be at least 0 and add up to the number of labels",
            f"sum(group)={sizes.sum()}, len(labels)={len(y)}, sizes from {sizes.min()}",
        )
    if weights is None:
        return y.tobytes(), None, sizes.tobytes()
    w = np.asarray(weights, np.float64).ravel()
    if len(w) not in (len(y), len(sizes)):
        raise refusal(
            "`weights` must have one number per item or per list",
            f"len(weights)={len(w)}, for {len(y)} items in {len(sizes)} lists",
        )
    return y.tobytes(), w.tobytes(), sizes.tobytes()


def arrays(
    labels: bytes, weights: bytes | None, group: bytes
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, NDArray[np.int64]]:
    """Returns labels, weights and sizes of some `content`."""
    w = None if weights is None else np.frombuffer(weights, np.float64)
    return np.frombuffer(labels, np.float64), w, np.frombuffer(group, np.int64)


def as_scores(scores: ArrayLike, count: int) -> NDArray[np.float64]:
    """Checks that there is a score for each item."""
    values = np.ascontiguousarray(scores, np.float64).ravel()
    if len(values) != count:
        raise refusal(
            "`scores` must have one number per label",
            f"len(scores)={len(values)}, len(labels)={count}",
        )
    return values


def _widths(sizes: NDArray[np.int64]) -> list[int]:
    """Chooses the widths of least cost: the slots of all lists, and `SLOTS_PER_WIDTH` of each."""
    ends = np.unique(SIZES[np.searchsorted(SIZES, sizes)])
    tops = [max(int(sizes[sizes <= end].max()), 2) for end in ends]  # losses warn of single items
    below = [0, *(int((sizes <= end).sum()) for end in ends)]
    best: list[tuple[int, list[int]]] = [(0, [])]  # of the lists up to each end
    for i, top in enumerate(tops, start=1):
        # dynamic programming: one width for the lists above end j, the best choice for those below
        costs = [best[j][0] + (below[i] - below[j]) * top + SLOTS_PER_WIDTH for j in range(i)]
        j = int(np.argmin(costs))
        best.append((costs[j], [*best[j][1], top]))
    return best[-1][1]


Formula: TypeAlias = keras.losses.Loss | ListwiseMetric | ItemMetric
TRIED = 7  # the smallest labels, and the largest
PLAIN = 50.0  # labels up to this are finite in all formulas of `closed_forms`, in any dtype


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
    distinct = np.unique(np.asarray(labels, np.float64))
    distinct = distinct[~np.isnan(distinct)]
    if not distinct.size:
        return
    low, high = distinct[0], distinct[-1]
    received = f"Received: labels from {low:g} to {high:g}"
    y_true = tf.constant([[*distinct[:TRIED], high, math.nan]], tf.float32)
    y_pred = tf.zeros_like(y_true)
    if low < _min_label(formula):
        raise ValueError(
            f"{formula.name} requires labels of at least 0. {received}. Shift or map the labels, "
            "or use a loss of scores such as MeanSquaredLoss or MatchingLoss."
        )
    if closed_forms.computes(formula) and max(-low, high) <= PLAIN:
        return
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


def _value(formula: Formula, y_true: Tensor, y_pred: Tensor) -> float:
    if isinstance(formula, ItemMetric):
        return 0.0
    if isinstance(formula, ListwiseMetric):
        return float(tf.reduce_sum(formula.evaluate(y_true, y_pred).values))
    return float(formula(y_true, y_pred))
