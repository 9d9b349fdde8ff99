"""Derivatives of losses and NDCG on lists that lie one after the other, by NumPy.

Boosters call them once a tree: no graph is traced, and lists are not padded. All is computed in
float64; scores are compared in float32.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrank_sel import losses
from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.losses.bases import mean_over_terms, sum_over_terms
from tfrank_sel.metrics import NDCG
from tfrank_sel.metrics.averaging import ALL_LISTS
from tfrank_sel.metrics.ties import AVERAGED
from tfrank_sel.ops import ranking

Values = NDArray[np.float64]
ItemDerivatives = Callable[[Values], tuple[Values, Values]]
ListMeasure = Callable[[Values], tuple[Values, Values]]


class _Items(NamedTuple):
    """The valid items of lists, and sums over these.

    Args:
        valid: Which of all items have a valid label.
        labels: Labels of the valid items.
        weights: Weights of these within their list.
        starts: The first valid item of each list that has one.
        sizes: Number of valid items of each of these lists.
        list_weights: Weight of each of these lists.
    """

    valid: NDArray[np.bool_]
    labels: Values
    weights: Values
    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]
    list_weights: Values

    @classmethod
    def of(
        cls, labels: Values, weights: Values | None, sizes: NDArray[np.int64], min_label: float
    ) -> "_Items":
        """Reads labels, weights and sizes, as those of `Derivatives`."""
        valid = labels >= min_label  # NaN is not
        lists = np.repeat(np.arange(len(sizes)), sizes)[valid]
        starts = np.flatnonzero(np.diff(lists, prepend=-1))
        of_items, of_lists = np.ones(len(lists)), np.ones(len(starts))
        # as for padded lists, as many weights as lists are those of lists
        if weights is not None and len(weights) == len(sizes):
            of_lists = weights[lists[starts]]
        elif weights is not None:
            of_items = weights[valid]
        counts = np.diff(starts, append=len(lists))
        return cls(valid, labels[valid], of_items, starts, counts, of_lists)

    def sum(self, values: Values) -> Values:
        """Sums the values of the items of each list."""
        return np.add.reduceat(values, self.starts) if len(self.starts) else np.zeros(0)

    def spread(self, values: Any) -> Any:
        """Gives each item the value of its list."""
        return np.repeat(values, self.sizes)

    def total(self, values: Values) -> Values:
        """Gives each item the sum over its list."""
        return self.spread(self.sum(values))


def derivatives(
    loss: ListwiseLoss,
    labels: Values,
    weights: Values | None,
    sizes: NDArray[np.int64],
    floor: float,
) -> ItemDerivatives:
    """Returns a function from scores to gradient and diagonal of a loss that `has_derivatives`.

    Args:
        loss: The loss.
        labels: Label of each item.
        weights: Weights per item or per list; 1 if `None`.
        sizes: Number of items of each list.
        floor: Minimum of the diagonal, as in `Derivatives`.
    """
    items = _Items.of(labels, weights, sizes, loss.min_label)
    slope, diagonal = _slope(loss, items)
    of_list, count = items.spread(items.list_weights), items.spread(items.sizes)
    diagonal = np.abs(diagonal * of_list)
    mean = items.total(diagonal) / count

    def at(scores: Values) -> tuple[Values, Values]:
        gradient, curvature = np.zeros((2, len(labels)))
        of_valid = of_list * slope(scores[items.valid])
        least = np.where(mean > 0.0, floor * mean, items.total(np.abs(of_valid)) / count)
        gradient[items.valid], curvature[items.valid] = of_valid, np.maximum(diagonal, least)
        return gradient, curvature

    return at


def has_derivatives(loss: Any) -> bool:
    """Whether `derivatives` are those of a loss; a subclass may have others."""
    if type(loss) is losses.MeanSquaredLoss:
        return loss.normalizer in (mean_over_terms, sum_over_terms)
    return type(loss) is losses.RGCrossLoss and loss.gain is ranking.linear_gain


@functools.singledispatch
def _slope(loss: ListwiseLoss, items: _Items) -> tuple[Callable[[Values], Values], Values]:
    """Returns the gradient as a function of scores, and the diagonal, which has none."""
    raise NotImplementedError


@_slope.register
def _(loss: losses.MeanSquaredLoss, items: _Items) -> tuple[Callable[[Values], Values], Values]:
    targets = items.labels.clip(loss.lower, loss.upper)
    factors = 2.0 * items.weights
    if loss.normalizer is mean_over_terms:
        factors /= items.spread(items.sizes)
    return lambda scores: factors * (scores - targets), factors


@_slope.register
def _(loss: losses.RGCrossLoss, items: _Items) -> tuple[Callable[[Values], Values], Values]:
    total = items.total(items.weights)
    has_weight = total > 0.0
    shares = items.weights / np.where(has_weight, total, 1.0)
    gains = np.where(has_weight, items.labels, 0.0)
    parts = items.total(gains) * shares
    anchor = loss.alpha * (items.labels > 0.0)

    def slope(scores: Values) -> Values:
        gaps = scores - items.total(shares * scores)
        return parts * (1.0 + gaps) - gains + anchor * (scores - loss.target)

    return slope, parts * (1.0 - shares) + anchor


def computes(formula: Any) -> bool:
    """Whether this module computes a loss or a metric."""
    return has_derivatives(formula) or measures(formula)


def measures(formula: Any) -> bool:
    """Whether `ndcg` computes a metric; a subclass may be another one."""
    return (
        type(formula) is NDCG
        and formula.dtype == "float32"  # of which scores are equal
        and formula.gain in ranking.GAINS.values()
        and formula.discount is ranking.log2_discount
        and formula.above is None
        and formula.ties == AVERAGED
        and formula.averaging == ALL_LISTS
    )


def ndcg(
    metric: NDCG, labels: Values, weights: Values | None, sizes: NDArray[np.int64]
) -> ListMeasure:
    """Returns a function from scores to the value and the weight of each list with an item.

    Args:
        metric: A metric that this module `measures`.
        labels: Label of each item.
        weights: As in `derivatives`.
        sizes: As in `derivatives`.
    """
    items = _Items.of(labels, weights, sizes, metric.min_label)
    gains = items.weights * _relative_gains(metric, items)
    of_item = items.spread(np.arange(len(items.sizes)))
    ranks = np.arange(len(gains)) - items.spread(items.starts)
    discounts = np.log(2.0) / np.log1p(ranks + 1.0)
    if metric.k is not None:
        discounts[ranks >= metric.k] = 0.0
    ideal = items.sum(gains[np.lexsort((-gains, of_item))] * discounts)
    total = items.sum(np.maximum(items.weights, 0.0))
    # a list whose items all have weight 0 does not count; what no number measures is NaN
    unknown = np.isnan(total) | (items.sum(1.0 * np.isinf(items.labels)) > 0.0)
    counted = np.maximum(items.list_weights, 0.0) * np.where(unknown, np.nan, total > 0.0)

    def at(scores: Values) -> tuple[Values, Values]:
        ranked = scores[items.valid].astype(np.float32)
        # an item of score -inf has no rank; one of NaN is last of the others, equal to none
        finite = np.fmax(ranked, np.finfo(np.float32).min)
        order = np.lexsort((-finite, np.isneginf(ranked), of_item))
        in_order = np.where(np.isneginf(ranked), np.nan, ranked)[order]
        gained = np.where(np.isneginf(ranked), 0.0, gains)[order]
        is_first = np.append(True, in_order[1:] != in_order[:-1])
        is_first[items.starts] = True
        blocks = np.flatnonzero(is_first)
        size = np.diff(blocks, append=len(order))
        # items of equal scores share their ranks
        dcg = np.repeat(np.add.reduceat(gained, blocks) / size, size) * discounts
        values = np.divide(items.sum(dcg), ideal, out=np.zeros(len(ideal)), where=ideal != 0.0)
        return values, counted

    return at if len(gains) else lambda scores: (np.zeros(0), np.zeros(0))


def _relative_gains(metric: NDCG, items: _Items) -> Values:
    """`ranking.relative_gains`, in float64."""
    if metric.gain is ranking.linear_gain:
        return items.labels
    top = np.maximum.reduceat(items.labels, items.starts) if len(items.starts) else np.zeros(0)
    scale = items.spread(np.maximum(np.floor(top) - 512.0, 0.0))
    return np.exp2(items.labels - scale) - np.exp2(-scale)
