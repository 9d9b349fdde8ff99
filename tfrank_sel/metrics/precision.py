"""Metrics of binary relevance: precision, recall and average precision."""

import tensorflow as tf

from tfrank_sel.arguments import Cutoff
from tfrank_sel.metrics.base import BinaryMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class Precision(BinaryMetric):
    """Share of relevant items among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    P@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i / k
    ```

    A list of fewer than `k` items is also divided by `k`, as in TREC evaluation, unless `clip_k`.

    Args:
        k: Number of top ranks that count; if `None`, the number of items of each list.
        clip_k: Whether to divide a list of fewer than `k` items by their number, as
            tensorflow-ranking does.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> precision = metrics.Precision(k=2)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> float(precision(y_true, y_pred))
        0.5

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    k: Cutoff = None
    clip_k: bool = False

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the weight of the relevant items in the top ranks by the number of ranks."""
        found = tf.reduce_sum(ranks.at(weights * self.worth(labels, mask)), axis=-1)
        return tf.math.divide_no_nan(found, ranks.depths(self.clip_k))


@register
class Recall(BinaryMetric):
    """Share of the relevant items that are among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    R@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i / sum_i [y_i > 0] * w_i
    ```

    It is 0 for a list without a relevant item, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> recall = metrics.Recall(k=1)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> float(recall(y_true, y_pred))
        0.5

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    k: Cutoff = None

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the weight of the relevant items in the top ranks by that of all."""
        relevant = weights * self.worth(labels, mask)
        found, total = (tf.reduce_sum(x, axis=-1) for x in (ranks.at(relevant), relevant))
        return tf.math.divide_no_nan(found, total)


@register
class MAP(BinaryMetric):
    """Mean average precision: the mean of the precision at the ranks of the relevant items.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    P_i        = sum_j [y_j > 0] * [rank_j(s) <= rank_i(s)] / rank_i(s)
    AP@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i * P_i / sum_i [y_i > 0] * w_i
    ```

    All relevant items count in the denominator, also those below rank `k`; items of weight 0 are
    not relevant. A list without a relevant item is 0, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> average_precision = metrics.MAP()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 3.0, 1.0, 9.0]])
        >>> round(float(average_precision(y_true, y_pred)), 4)  # (1 / 1 + 2 / 3) / 2
        0.8333

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    k: Cutoff = None

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Averages the precisions at the ranks of the relevant items."""
        relevant = weights * self.worth(labels, mask)
        found = ranks.so_far(relevant > 0.0)
        precisions = ranks.at(relevant) * found / ranking.positions(found)
        total = tf.reduce_sum(precisions, axis=-1)
        return tf.math.divide_no_nan(total, tf.reduce_sum(relevant, axis=-1))


@register
class RPrecision(BinaryMetric):
    """R-precision: the precision at `R`, the number of relevant items.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    R           = sum_i [y_i > 0]
    Rprec(y, s) = sum_i [y_i > 0] * [rank_i(s) <= R] * w_i / R
    ```

    It is 0 for a list without a relevant item, as in TREC evaluation.

    Args:
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Example:
        >>> r_precision = metrics.RPrecision()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 3.0, 1.0, 9.0]])
        >>> float(r_precision(y_true, y_pred))  # of the first two, one is relevant
        0.5

    Reference:
        [Manning et al., Introduction to Information Retrieval, 2008, section 8.4](
        https://nlp.stanford.edu/IR-book/).
    """

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the weight of the relevant items in the top ranks by their number in the list."""
        relevant = self.worth(labels, mask)
        count = tf.reduce_sum(relevant, axis=-1)
        found = ranks.at(weights * relevant)
        on_top = ranking.positions(found) <= count[:, tf.newaxis]
        return tf.math.divide_no_nan(tf.reduce_sum(tf.where(on_top, found, 0.0), axis=-1), count)
