"""The reciprocal rank of the first relevant item."""

from typing import Any

import tensorflow as tf

from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.ops import ranking
from tfrank_sel.serialization import register


@register
class MRR(ListwiseMetric):
    """Mean reciprocal rank: how far down the first relevant item stands.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    RR@k(y, s) = w_i / rank_i(s) if rank_i(s) <= k else 0
    ```

    where `i` is the relevant item of the least rank: the first with `w_i * y_i > 0`. The value of
    an unweighted list lies in [0, 1], and is 0 where no item is relevant, as in TREC evaluation.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        name: Name of the metric.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Inputs: as in `ListwiseMetric`. Ties in `y_pred` keep the order of the list.

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

    def __init__(self, k: int | None = None, name: str = "mrr", **kwargs: Any) -> None:
        ranking.check_cutoff(k)
        super().__init__(name=name, **kwargs)
        self.k = k

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the weight of the first relevant item by its rank."""
        weights = ranking.relevant_weights(labels, mask, weights)
        [weights] = ranking.sort_by(scores, weights, mask=mask, k=self.k)
        relevant = weights > 0.0
        first = relevant & (tf.cumsum(tf.cast(relevant, tf.int32), axis=-1) == 1)
        return tf.reduce_sum(tf.where(first, weights / ranking.positions(weights), 0.0), axis=-1)
