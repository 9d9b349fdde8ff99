"""Differentiable metrics of the first `k` ranks, with a soft cutoff."""

import tensorflow as tf

from tfrank_sel.arguments import Count, Positive
from tfrank_sel.links.base import Link
from tfrank_sel.losses.listwise.relaxed import SIGMOID, RelaxedMetricLoss
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


@register
class ApproxPrecisionLoss(RelaxedMetricLoss):
    """The precision of the first `k` soft ranks, negative.

    For each list of labels `y` in `y_true`, whose relevant items have labels above 0, and of scores
    `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = -w / k * sum_{i relevant} link(k + 1/2 - rank_i)
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    Args:
        k: Number of top ranks that count.
        temperature: Divides the scores; positive. The cutoff has a temperature of one rank.
        link: What makes the comparison of two scores smooth, as in `RelaxedMetricLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `k` or `temperature` is not positive, or values of `link` are outside [0, 1].

    Example:
        >>> loss = losses.ApproxPrecisionLoss(k=1)
        >>> y_true = tf.constant([[0.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 8.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -sigmoid(1/2)
        -0.6225

    Reference:
        [Qin et al., A General Approximation Framework for Direct Optimization of Information
        Retrieval Measures, 2010](https://doi.org/10.1007/s10791-009-9124-x).
    """

    k: Count
    temperature: Positive = 0.1
    link: Link = SIGMOID

    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Divides the number of relevant items in the top ranks by the number of ranks."""
        return _found(self, labels, scores, mask, self.k) / float(self.k)


@register
class ApproxRecallLoss(RelaxedMetricLoss):
    """The recall of the first `k` soft ranks, negative.

    For each list of labels `y` in `y_true`, whose `R` relevant items have labels above 0, and of
    scores `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = -w / R * sum_{i relevant} link(k + 1/2 - rank_i)
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    It is 0 for a list without a relevant item.

    Args:
        k: Number of top ranks that count.
        temperature: Divides the scores; positive. The cutoff has a temperature of one rank.
        link: What makes the comparison of two scores smooth, as in `RelaxedMetricLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `k` or `temperature` is not positive, or values of `link` are outside [0, 1].

    Example:
        >>> loss = losses.ApproxRecallLoss(k=1)
        >>> y_true = tf.constant([[0.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 8.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -sigmoid(1/2)
        -0.6225

    Reference:
        [Qin et al., A General Approximation Framework for Direct Optimization of Information
        Retrieval Measures, 2010](https://doi.org/10.1007/s10791-009-9124-x).
    """

    k: Count
    temperature: Positive = 0.1
    link: Link = SIGMOID

    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Divides the number of relevant items in the top ranks by their total number."""
        relevant = tf.reduce_sum(tf.cast(mask & (labels > 0.0), scores.dtype), axis=-1)
        return tf.math.divide_no_nan(_found(self, labels, scores, mask, self.k), relevant)


def _found(
    loss: RelaxedMetricLoss, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, k: int
) -> tf.Tensor:
    """Counts the relevant items with a soft rank up to `k`."""
    inside = loss.link(float(k) + 0.5 - loss.ranks(scores, mask))
    return masking.masked_sum(inside, mask & (labels > 0.0))
