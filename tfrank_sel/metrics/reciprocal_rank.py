"""Metrics of the first relevant item: its reciprocal rank, and success at `k`."""

import tensorflow as tf

from tfrank_sel.arguments import Cutoff
from tfrank_sel.metrics.base import BinaryMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class MRR(BinaryMetric):
    """Mean reciprocal rank of the first relevant item.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    RR@k(y, s) = w_i / rank_i(s) if rank_i(s) <= k else 0
    ```

    where `i` is the relevant item of the smallest rank: the first with `w_i * y_i > 0`. The value
    of an unweighted list lies in [0, 1], and is 0 if no item is relevant, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> mrr = metrics.MRR()
        >>> y_true = tf.constant([[0.0, 1.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 2.0, 9.0]])
        >>> float(mrr(y_true, y_pred))
        0.5

    Reference:
        [Voorhees, The TREC-8 Question Answering Track Report, 1999](
        https://trec.nist.gov/pubs/trec8/papers/qa_report.pdf).
    """

    k: Cutoff = None

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the weight of the first relevant item by its rank."""
        first = ranks.first(weights * self.worth(labels, mask))
        return tf.reduce_sum(first / ranking.positions(first), axis=-1)


@register
class Hits(BinaryMetric):
    """Success at `k`: whether a relevant item is among the top `k`.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    Hits@k(y, s) = w_i if rank_i(s) <= k else 0
    ```

    where `i` is the relevant item of the smallest rank: the first with `w_i * y_i > 0`.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> hits = metrics.Hits(k=1)
        >>> y_true = tf.constant([[0.0, 1.0, -1.0], [0.0, 1.0, 1.0]])
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0], [1.0, 3.0, 2.0]])
        >>> float(hits(y_true, y_pred))
        0.5

    Reference:
        [Craswell and Hawking, Overview of the TREC-2004 Web Track, 2004](
        https://trec.nist.gov/pubs/trec13/papers/WEB.OVERVIEW.pdf), success at `n`.
    """

    k: Cutoff = None

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Returns the weight of the first relevant item if it is among the top `k`, else 0."""
        first = ranks.first(weights * self.worth(labels, mask))
        return tf.reduce_sum(first, axis=-1)
