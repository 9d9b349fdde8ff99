"""Metrics of cumulative gain."""

from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.arguments import Cutoff
from tfrank_sel.metrics.base import RankedMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


class _GainMetric(RankedMetric):
    """A measure of the gains of the items."""

    k: Cutoff = None
    gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain
    discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount


@register
class DCG(_GainMetric):
    """Discounted cumulative gain at `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    DCG@k(y, s) = sum_i [rank_i(s) <= k] * w_i * gain(y_i) * discount(rank_i(s))
    ```

    With the gain `2**y - 1`, labels must be at most 100, or 996 in float64.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        **kwargs: `ties`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` is not positive.

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

    @property
    def largest_label(self) -> float:
        return ranking.largest_label(self.gain, self.dtype)

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the gain of each item."""
        return tf.where(mask, self.gain(labels), 0.0)

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Adds up the discounted gains."""
        gains = ranks.at(weights * self.worth(labels, mask))
        return tf.reduce_sum(gains * self.discount(ranking.positions(gains)), axis=-1)


@register
class NDCG(_GainMetric):
    """Normalized discounted cumulative gain at `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    DCG@k(y, s)  = sum_i [rank_i(s) <= k] * w_i * gain(y_i) * discount(rank_i(s))
    NDCG@k(y, s) = DCG@k(y, s) / DCG@k(y, w * gain(y))
    ```

    The value lies in [0, 1]. A list without a relevant item has NDCG 0, as in TREC evaluation.
    The value is finite for all finite labels, such as counts or seconds: gains are scaled by
    the largest of the list. But `2**y - 1` gives all the weight to the largest labels: pass
    `ranking.linear_gain` for labels that are amounts.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        **kwargs: `ties`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` is not positive.

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

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the gain of each item, relative to those of its list."""
        return ranking.relative_gains(self.gain, labels, mask)

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the DCG of the scores by that of the gains."""
        gains = weights * self.worth(labels, mask)
        dcg, ideal = (
            tf.reduce_sum(x * self.discount(ranking.positions(x)), axis=-1)
            for x in (ranks.at(gains), ranks.best(gains))
        )
        return tf.math.divide_no_nan(dcg, ideal)


@register
class PWA(RankedMetric):
    """Position-weighted average of the labels of the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    PWA@k(y, s) = sum_i [rank_i(s) <= k] * w_i * y_i / rank_i(s) / sum_{r <= min(k, n)} 1 / r
    ```

    where `n` is the number of items of the list.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `ties`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> pwa = metrics.PWA(k=2)
        >>> y_true = tf.constant([[0.0, 3.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 3.0, 2.0, 9.0]])
        >>> round(float(pwa(y_true, y_pred)), 4)  # (3 / 1 + 1 / 2) / (1 / 1 + 1 / 2)
        2.3333

    Reference:
        [Järvelin and Kekäläinen, Cumulated gain-based evaluation of IR techniques, 2002](
        https://dl.acm.org/doi/10.1145/582415.582418), with the discount `1 / r`, over its sum.
    """

    k: Cutoff = 5

    weighs_items = False

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the label of each item."""
        return tf.where(mask, labels, 0.0)

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Averages the labels, weighted by the reciprocals of their ranks."""
        found = ranks.at(weights * self.worth(labels, mask))
        positions = ranking.positions(found)
        held = positions <= ranks.counts()[:, tf.newaxis]
        total = tf.reduce_sum(tf.where(held, 1.0 / positions, 0.0), axis=-1)
        return tf.math.divide_no_nan(tf.reduce_sum(found / positions, axis=-1), total)
