"""Metrics of cumulated gain."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class DCG(ListwiseMetric):
    """Discounted cumulative gain at `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    DCG@k(y, s) = sum_i [rank_i(s) <= k] * w_i * gain(y_i) * discount(rank_i(s))
    ```

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        name: Name of the metric.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list.

    Example:
        >>> dcg = metrics.DCG(k=2)
        >>> y_true = tf.constant([[0.0, 2.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(dcg(y_true, y_pred)), 4)  # 3 + 1 / log2(3)
        3.6309

    Reference:
        [Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002](
        https://dl.acm.org/doi/10.1145/582415.582418).
    """

    def __init__(
        self,
        k: int | None = None,
        gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain,
        discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount,
        name: str = "dcg",
        **kwargs: Any,
    ) -> None:
        ranking.check_cutoff(k)
        super().__init__(name=name, **kwargs)
        self.k = k
        self.gain = gain
        self.discount = discount

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Adds up the discounted gains."""
        return _dcg(scores, weights * self.gain(labels), mask, self.k, self.discount)


@register
class NDCG(ListwiseMetric):
    """Normalized discounted cumulative gain at `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    DCG@k(y, s)  = sum_i [rank_i(s) <= k] * w_i * gain(y_i) * discount(rank_i(s))
    NDCG@k(y, s) = DCG@k(y, s) / DCG@k(y, w * gain(y))
    ```

    The value lies in [0, 1]. A list without a relevant item has NDCG 0, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        name: Name of the metric.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list.

    Example:
        >>> ndcg = metrics.NDCG(k=2)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> round(float(ndcg(y_true, y_pred)), 4)  # (1 / log2(3)) / (1 + 1 / log2(3))
        0.3869

    Reference:
        [Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002](
        https://dl.acm.org/doi/10.1145/582415.582418).
    """

    def __init__(
        self,
        k: int | None = None,
        gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain,
        discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount,
        name: str = "ndcg",
        **kwargs: Any,
    ) -> None:
        ranking.check_cutoff(k)
        super().__init__(name=name, **kwargs)
        self.k = k
        self.gain = gain
        self.discount = discount

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the DCG of the scores by that of the gains."""
        gains = weights * self.gain(labels)
        dcg, ideal = (_dcg(x, gains, mask, self.k, self.discount) for x in (scores, gains))
        return tf.math.divide_no_nan(dcg, ideal)


def _dcg(
    keys: tf.Tensor,
    gains: tf.Tensor,
    mask: tf.Tensor,
    k: int | None,
    discount: Callable[[tf.Tensor], tf.Tensor],
) -> tf.Tensor:
    [gains] = ranking.sort_by(keys, tf.where(mask, gains, 0.0), mask=mask, k=k)
    return tf.reduce_sum(gains * discount(ranking.positions(gains)), axis=-1)
