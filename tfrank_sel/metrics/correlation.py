"""Measures of the order of pairs: correlations, and shares of pairs in the right order."""

import math
from dataclasses import field

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Cutoff
from tfrank_sel.metrics.averaging import DEFINED_LISTS, Averaging
from tfrank_sel.metrics.base import BinaryMetric, ComparingMetric, RankedMetric
from tfrank_sel.metrics.ties import Ranks, retrieved_mask
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class ARP(RankedMetric):
    """Average relevance position: the mean rank, weighted by relevance. Lower is better.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    ARP(y, s) = sum_i w_i * y_i * rank_i(s) / sum_i w_i * y_i
    ```

    A relevant item that is not retrieved, of score -inf, has the rank behind all items of the list.
    A list without a relevant item is not counted.

    Args:
        averaging: Which lists count, as in `ListwiseMetric`.
        **kwargs: `ties` and `dtype`, as in `RankedMetric`.

    Example:
        >>> arp = metrics.ARP()
        >>> y_true = tf.constant([[0.0, 3.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 2.0, 1.0, 9.0]])
        >>> float(arp(y_true, y_pred))  # (3 * 2 + 1 * 3) / 4
        2.25

    Reference:
        [Zhu, Recall, Precision and Average Precision, 2004](
        https://citeseerx.ist.psu.edu/doc/10.1.1.9.8043).
    """

    averaging: Averaging = field(default=DEFINED_LISTS, kw_only=True)

    _direction = "down"

    pooled = True

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the label of each item."""
        return xp.where(mask, labels, 0.0)

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Averages the ranks, weighted by the labels."""
        worth = weights * self.worth(labels, mask)
        at_rank = ranks.at(worth)
        missed = xp.reduce_sum(xp.where(retrieved_mask(ranks.scores, mask), 0.0, worth), axis=-1)
        found = xp.reduce_sum(at_rank * ranking.positions(at_rank), axis=-1)
        behind = 1.0 + xp.reduce_sum(xp.cast(mask, found.dtype), axis=-1)
        return xp.divide_no_nan(found + behind * missed, xp.reduce_sum(worth, axis=-1))


class _Correlation(ComparingMetric):
    """A correlation of labels and scores, undefined for a list of equal labels."""

    weighs_pairs = True

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the label of each item less the smallest label of its list."""
        least = xp.reduce_min(
            xp.where(mask, labels, xp.limits(labels.dtype).max), axis=-1, keepdims=True
        )
        return xp.where(mask, labels - least, 0.0)


@register
class KendallTau(_Correlation):
    """Kendall's rank correlation, tau-b, of labels and scores.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with the sums over pairs:

    ```
    tau(y, s) = sum_{i, j} w_i w_j * sign(y_i - y_j) * sign(s_i - s_j)
                / sqrt(sum_{i, j} w_i w_j * [y_i != y_j] * sum_{i, j} w_i w_j * [s_i != s_j])
    ```

    The value lies in [-1, 1]. It is 0 where all scores are equal; a list whose labels are all equal
    is not counted.

    Args:
        **kwargs: `averaging` and `dtype`, as in `ComparingMetric`.

    Example:
        >>> tau = metrics.KendallTau()
        >>> y_true = tf.constant([[0.0, 1.0, 2.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(tau(y_true, y_pred)), 4)  # (2 - 1) / 3
        0.3333

    Reference:
        [Kendall, The treatment of ties in ranking problems, 1945](
        https://doi.org/10.1093/biomet/33.3.239).
    """

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Counts the pairs in the right order less those in the wrong order."""
        weights = xp.where(mask, weights, 0.0)
        y, s = (_signs(xp.where(mask, x, 0.0)) for x in (labels, scores))
        both, of_labels, of_scores = (
            xp.reduce_sum(weights * xp.reduce_sum(x * weights[:, xp.newaxis, :], -1), -1)
            for x in (y * s, xp.abs(y), xp.abs(s))
        )
        return xp.divide_no_nan(both, xp.sqrt(of_labels) * xp.sqrt(of_scores))


@register
class SpearmanRho(_Correlation):
    """Spearman's rank correlation of labels and scores: Pearson's correlation of their ranks.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with ranks `a` of the labels
    and `b` of the scores, where tied items have the mean of their ranks, and weighted means `A`,
    `B`:

    ```
    rho(y, s) = sum_i w_i * (a_i - A) * (b_i - B)
                / sqrt(sum_i w_i * (a_i - A)**2 * sum_i w_i * (b_i - B)**2)
    ```

    The value lies in [-1, 1]. It is 0 where all scores are equal; a list whose labels are all equal
    is not counted.

    Args:
        **kwargs: `averaging` and `dtype`, as in `ComparingMetric`.

    Example:
        >>> rho = metrics.SpearmanRho()
        >>> y_true = tf.constant([[0.0, 1.0, 2.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(rho(y_true, y_pred)), 4)
        0.5

    Reference:
        [Spearman, The proof and measurement of association between two things, 1904](
        https://doi.org/10.2307/1412159).
    """

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Correlates the ranks."""
        weights = xp.where(mask, weights, 0.0)
        y, s = (_centred_ranks(x, mask, weights) for x in (labels, scores))
        both, of_labels, of_scores = (
            xp.reduce_sum(weights * x, axis=-1) for x in (y * s, y * y, s * s)
        )
        return xp.divide_no_nan(both, xp.sqrt(of_labels) * xp.sqrt(of_scores))


def _signs(x: Tensor) -> Tensor:
    """Returns the signs of the differences of all pairs, `[batch_size, i, j]`."""
    # by comparison, since a difference of large numbers may overflow
    x, y = _sides(x)
    return xp.cast(x > y, x.dtype) - xp.cast(x < y, x.dtype)


def _centred_ranks(x: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
    """Ranks by ascending `x`, ties at their mean, less the weighted mean of the ranks."""
    valid = xp.cast(mask, x.dtype)
    # up to a constant of the list, this is half of: the items below less those above
    ranks = 0.5 * xp.reduce_sum(_signs(xp.where(mask, x, 0.0)) * valid[:, xp.newaxis, :], axis=-1)
    total = xp.reduce_sum(weights, axis=-1, keepdims=True)
    mean = xp.divide_no_nan(xp.reduce_sum(weights * ranks, -1, keepdims=True), total)
    return xp.where(mask, ranks - mean, 0.0)


@register
class OPA(ComparingMetric):
    """Ordered pair accuracy: the share of pairs of unequal labels in the right order by score.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    OPA(y, s) = sum_{i, j: y_i > y_j} w_i * [s_i > s_j] / sum_{i, j: y_i > y_j} w_i
    ```

    A pair with tied scores is not in the right order. A list without a pair is not counted.

    Args:
        **kwargs: `averaging` and `dtype`, as in `ComparingMetric`.

    Example:
        >>> opa = metrics.OPA()
        >>> y_true = tf.constant([[0.0, 1.0, 2.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(opa(y_true, y_pred)), 4)  # two pairs of three
        0.6667

    Reference:
        [Herbrich et al., Large Margin Rank Boundaries for Ordinal Regression, 2000](
        https://direct.mit.edu/books/edited-volume/2778/chapter/75626), the share of pairs in order.
    """

    pooled = True

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Counts the items that should rank below each item."""
        return _sum_of_pairs(_pairs(labels, mask), xp.ones_like(labels))

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Divides the weight of the pairs in order by that of all."""
        pairs, ones = _pairs(labels, mask), xp.ones_like(labels)
        in_order, total = (
            xp.reduce_sum(xp.where(mask, weights, 0.0) * _sum_of_pairs(x, ones), axis=-1)
            for x in (pairs & _greater(scores), pairs)
        )
        return xp.divide_no_nan(in_order, total)


@register
class AUC(ComparingMetric):
    """Area under the ROC curve of each list: the share of relevant items above irrelevant ones.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    AUC(y, s) = sum_{i, j: y_i > 0 = y_j} w_i * w_j * ([s_i > s_j] + [s_i = s_j] / 2)
                / sum_{i, j: y_i > 0 = y_j} w_i * w_j
    ```

    A list whose items are all relevant, or all irrelevant, is not counted.

    Args:
        **kwargs: `averaging` and `dtype`, as in `ComparingMetric`.

    Example:
        >>> auc = metrics.AUC()
        >>> y_true = tf.constant([[0.0, 1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 2.0, 2.0, 9.0]])
        >>> float(auc(y_true, y_pred))  # (1 + 1 / 2) / 2
        0.75

    Reference:
        [Fawcett, An introduction to ROC analysis, 2006](
        https://doi.org/10.1016/j.patrec.2005.10.010).
    """

    weighs_pairs = True

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Counts the items that should rank below each item."""
        return _sum_of_pairs(_pairs(xp.sign(labels), mask), xp.ones_like(labels))

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Divides the weight of the pairs in order by that of all."""
        weights = xp.where(mask, weights, 0.0)
        pairs, above = _pairs(xp.sign(labels), mask), _greater(scores)
        # the mean of "above" and "not below" counts a tie as half
        above_or_tied = pairs & (above | ~xp.matrix_transpose(above))
        above, above_or_tied, total = (
            xp.reduce_sum(weights * _sum_of_pairs(x, weights), axis=-1)
            for x in (pairs & above, above_or_tied, pairs)
        )
        return xp.divide_no_nan(0.5 * (above + above_or_tied), total)


@register
class BPref(BinaryMetric):
    """Binary preference: the mean share of irrelevant items below each relevant item.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with `R` relevant and `N`
    irrelevant items, where `n_i` counts the irrelevant items ahead of item `i`:

    ```
    bpref@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * (1 - min(n_i, R) / min(R, N)) * w_i / R
    ```

    It uses judged items only: pass an item without a judgement as padding, as `metrics.compare`
    does. A list without a relevant item is 0, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        of_relevant: Whether to divide by `R` instead of `min(R, N)`, as in the first version of the
            measure.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive, or if ties are to be averaged.

    Example:
        >>> bpref = metrics.BPref()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, 0.0, -1.0]])  # the last item is not judged
        >>> y_pred = tf.constant([[3.0, 4.0, 2.0, 1.0, 9.0]])
        >>> float(bpref(y_true, y_pred))  # (1 + 1 / 2) / 2
        0.75

    Reference:
        [Buckley and Voorhees, Retrieval evaluation with incomplete information, 2004](
        https://doi.org/10.1145/1008992.1009000), with `min(R, N)` as in [Common Evaluation
        Measures, 2006](https://trec.nist.gov/pubs/trec15/appendices/CE.MEASURES06.pdf).
    """

    k: Cutoff = None
    of_relevant: bool = False

    averages_ties = False
    judged_only = True
    weighs_items = False

    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Averages, over the relevant items, the share of irrelevant items below them."""
        relevant = self.worth(labels, mask)
        irrelevant = xp.cast(mask, relevant.dtype) - relevant
        count, others = (xp.reduce_sum(x, -1, keepdims=True) for x in (relevant, irrelevant))
        ahead = xp.minimum(ranks.so_far(irrelevant), count)
        limit = count if self.of_relevant else xp.minimum(count, others)
        share = 1.0 - xp.divide_no_nan(ahead, limit)
        total = xp.reduce_sum(ranks.at(weights * relevant) * share, axis=-1)
        return xp.divide_no_nan(total, count[:, 0])


def _greater(x: Tensor) -> Tensor:
    """Returns where `x_i > x_j`, `[batch_size, i, j]`."""
    x, y = _sides(x)
    return x > y


def _sides(x: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both sides of pairs, for comparison; NaN is as low as -inf, as in rankings."""
    x = xp.where(xp.is_nan(x), -math.inf, x)
    return x[:, :, xp.newaxis], x[:, xp.newaxis, :]


def _pairs(labels: Tensor, mask: Tensor) -> Tensor:
    """Returns the pairs of valid items that should be in this order, `[batch_size, i, j]`."""
    return mask[:, :, xp.newaxis] & mask[:, xp.newaxis, :] & _greater(labels)


def _sum_of_pairs(pairs: Tensor, x: Tensor) -> Tensor:
    """Sums `x_j` over the pairs of each item `i`."""
    return xp.reduce_sum(
        xp.where(pairs, x[:, xp.newaxis, :], xp.zeros_like(x)[:, xp.newaxis, :]), -1
    )
