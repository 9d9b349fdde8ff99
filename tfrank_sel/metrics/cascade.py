"""Metrics of user models that stop at some rank: cascade and persistence models."""

import tensorflow as tf

from tfrank_sel.arguments import Cutoff, OpenShare, Positive
from tfrank_sel.metrics.base import BinaryMetric, RankedMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class ERR(RankedMetric):
    """Expected reciprocal rank of the item that satisfies a user who reads down the list.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with the items in rank order
    `1, 2, ...`:

    ```
    R_r         = w_r * (2**y_r - 1) / 2**max_label
    ERR@k(y, s) = sum_{r <= k} 1 / r * R_r * prod_{q < r} (1 - R_q)
    ```

    Args:
        k: Number of top ranks that count; all of them if `None`.
        max_label: Greatest possible label; greater labels count as this.
        **kwargs: `ties`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: If `k` or `max_label` is not positive, or if ties are to be averaged.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list. Weights of items
    should be at most 1: `R_r` is a probability, and clipped to 1.

    Example:
        >>> err = metrics.ERR(max_label=1.0)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> round(float(err(y_true, y_pred)), 4)  # 1/2 * 1/2 + 1/3 * 1/2 * 1/2
        0.3333

    Reference:
        [Chapelle et al., Expected Reciprocal Rank for Graded Relevance, 2009](
        https://doi.org/10.1145/1645953.1646033).
    """

    k: Cutoff = None
    max_label: Positive = 4.0

    averages_ties = False

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns the probability that each item satisfies the user."""
        largest = tf.constant(self.max_label, labels.dtype)
        base = tf.constant(2.0, labels.dtype)
        gains = tf.pow(base, tf.minimum(labels, largest) - largest) - tf.pow(base, -largest)
        return tf.where(mask, gains, 0.0)

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Sums the reciprocal ranks, weighted by the probability to stop there."""
        stops = tf.clip_by_value(ranks.at(weights * self.worth(labels, mask)), 0.0, 1.0)
        reaches = tf.math.cumprod(1.0 - stops, axis=-1, exclusive=True)
        return tf.reduce_sum(reaches * stops / ranking.positions(stops), axis=-1)


@register
class RBP(BinaryMetric):
    """Rank-biased precision, for a user who continues to the next rank with a fixed probability.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    RBP@k(y, s) = (1 - p) * sum_i [y_i > 0] * [rank_i(s) <= k] * w_i * p**(rank_i(s) - 1)
    ```

    Args:
        persistence: The probability `p` to continue, in (0, 1).
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive, or `persistence` not in (0, 1).

    Example:
        >>> rbp = metrics.RBP(persistence=0.5)
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> float(rbp(y_true, y_pred))  # 0.5 * (0.5 + 0.25)
        0.375

    Reference:
        [Moffat and Zobel, Rank-biased precision for measurement of retrieval effectiveness, 2008](
        https://doi.org/10.1145/1416950.1416952).
    """

    persistence: OpenShare = 0.8
    k: Cutoff = None

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Sums the probabilities to reach the relevant items."""
        found = ranks.at(weights * self.worth(labels, mask))
        reaches = tf.pow(tf.constant(self.persistence, found.dtype), ranking.positions(found) - 1.0)
        return (1.0 - self.persistence) * tf.reduce_sum(found * reaches, axis=-1)
