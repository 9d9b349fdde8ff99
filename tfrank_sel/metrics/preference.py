"""Pairwise metrics: shares of pairs in the right order."""

import tensorflow as tf

from tfrank_sel.arguments import Cutoff
from tfrank_sel.metrics.base import BinaryMetric, ComparingMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.serialization import register


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

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Counts the items that should rank below each item."""
        return _sum_of_pairs(_pairs(labels, mask), tf.ones_like(labels))

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the weight of the pairs in order by that of all."""
        pairs, ones = _pairs(labels, mask), tf.ones_like(labels)
        found, total = (
            tf.reduce_sum(tf.where(mask, weights, 0.0) * _sum_of_pairs(x, ones), axis=-1)
            for x in (pairs & _greater(scores), pairs)
        )
        return tf.math.divide_no_nan(found, total)


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

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Counts the items that should rank below each item."""
        return _sum_of_pairs(_pairs(tf.sign(labels), mask), tf.ones_like(labels))

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the weight of the pairs in order by that of all."""
        weights = tf.where(mask, weights, 0.0)
        pairs, above = _pairs(tf.sign(labels), mask), _greater(scores)
        above_or_tied = pairs & (above | ~tf.linalg.matrix_transpose(above))
        above, above_or_tied, total = (
            tf.reduce_sum(weights * _sum_of_pairs(x, weights), axis=-1)
            for x in (pairs & above, above_or_tied, pairs)
        )
        return tf.math.divide_no_nan(0.5 * (above + above_or_tied), total)


@register
class BPref(BinaryMetric):
    """Binary preference: the mean share of irrelevant items below each relevant item.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with `R` relevant and `N`
    irrelevant items, where `n_i` counts the irrelevant items ahead of item `i`:

    ```
    bpref@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * (1 - min(n_i, R) / min(R, N)) * w_i / R
    ```

    It uses judged items only: pass an item without a judgement as padding. A list without a
    relevant item is 0, as in TREC evaluation.

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
    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Averages, over the relevant items, the share of irrelevant items below them."""
        relevant = self.worth(labels, mask)
        irrelevant = tf.cast(mask, relevant.dtype) - relevant
        count, others = (tf.reduce_sum(x, -1, keepdims=True) for x in (relevant, irrelevant))
        ahead = tf.minimum(ranks.so_far(irrelevant), count)
        limit = count if self.of_relevant else tf.minimum(count, others)
        share = 1.0 - tf.math.divide_no_nan(ahead, limit)
        total = tf.reduce_sum(ranks.at(weights * relevant) * share, axis=-1)
        return tf.math.divide_no_nan(total, count[:, 0])


def _greater(x: tf.Tensor) -> tf.Tensor:
    """Returns where `x_i > x_j`, `[batch_size, i, j]`."""
    return x[:, :, tf.newaxis] > x[:, tf.newaxis, :]


def _pairs(labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """Returns the pairs of valid items that should be in this order, `[batch_size, i, j]`."""
    return mask[:, :, tf.newaxis] & mask[:, tf.newaxis, :] & _greater(labels)


def _sum_of_pairs(pairs: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    """Sums `x_j` over the pairs of each item `i`."""
    return tf.reduce_sum(
        tf.where(pairs, x[:, tf.newaxis, :], tf.zeros_like(x)[:, tf.newaxis, :]), -1
    )
