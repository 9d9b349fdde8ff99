"""Metrics of binary relevance: precision, recall and their mean over the ranks."""

from typing import Any

import tensorflow as tf

from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class Precision(ListwiseMetric):
    """Share of relevant items among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    P@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i / k
    ```

    A list of fewer than `k` items is divided by `k`, too, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; if `None`, the number of valid items of each list.
        name: Name of the metric.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list.

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

    def __init__(self, k: int | None = None, name: str = "precision", **kwargs: Any) -> None:
        ranking.check_cutoff(k)
        super().__init__(name=name, **kwargs)
        self.k = k

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the weight of the relevant items on top by the number of ranks."""
        relevant = ranking.relevant_weights(labels, mask, weights)
        [relevant] = ranking.sort_by(scores, relevant, mask=mask, k=self.k)
        found = tf.reduce_sum(relevant, axis=-1)
        if self.k is not None:
            return found / float(self.k)
        size = tf.reduce_sum(tf.cast(mask, found.dtype), axis=-1)
        return tf.math.divide_no_nan(found, size)


@register
class Recall(ListwiseMetric):
    """Share of the relevant items that stand among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    R@k(y, s) = sum_i [y_i > 0] * [rank_i(s) <= k] * w_i / sum_i [y_i > 0] * w_i
    ```

    It is 0 for a list without a relevant item, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        name: Name of the metric.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list.

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

    def __init__(self, k: int | None = None, name: str = "recall", **kwargs: Any) -> None:
        ranking.check_cutoff(k)
        super().__init__(name=name, **kwargs)
        self.k = k

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the weight of the relevant items on top by that of all."""
        relevant = ranking.relevant_weights(labels, mask, weights)
        [on_top] = ranking.sort_by(scores, relevant, mask=mask, k=self.k)
        found, total = (tf.reduce_sum(x, axis=-1) for x in (on_top, relevant))
        return tf.math.divide_no_nan(found, total)


@register
class MAP(ListwiseMetric):
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
        name: Name of the metric.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list.

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

    def __init__(self, k: int | None = None, name: str = "map", **kwargs: Any) -> None:
        ranking.check_cutoff(k)
        super().__init__(name=name, **kwargs)
        self.k = k

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Averages the precisions at the ranks of the relevant items."""
        relevant = ranking.relevant_weights(labels, mask, weights)
        [on_top] = ranking.sort_by(scores, relevant, mask=mask, k=self.k)
        found = tf.cumsum(tf.cast(on_top > 0.0, on_top.dtype), axis=-1)
        total = tf.reduce_sum(on_top * found / ranking.positions(on_top), axis=-1)
        return tf.math.divide_no_nan(total, tf.reduce_sum(relevant, axis=-1))
