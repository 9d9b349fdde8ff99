"""The size of logits, to check whether an expansion around zero is accurate."""

import tensorflow as tf

from tfrank_sel.metrics.base import ListwiseMetric
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


@register
class LogitNorm(ListwiseMetric):
    """Root mean square of the logits of a list, to check whether an RG loss approximates softmax.

    For each list of scores `s` in `y_pred`, for any labels:

    ```
    norm = sqrt(sum_i w_i * (s_i - c)**2 / sum_i w_i)
    ```

    where `c` is 0, or the weighted mean of the scores if `centered`. `RG2Loss` expands the softmax
    around 0. Its error is half the squared mean score, at most half the squared norm, for each unit
    of gain; `RGCrossLoss` expands around the mean and has an error of third order. So the expansion
    is accurate if the norm is well below 1. If the norm is larger, the loss penalises high scores
    that softmax would allow, and the ranking gets worse: use more regularisation or a lower
    learning rate.

    Args:
        centered: Whether to measure around the mean, for `RGCrossLoss`, instead of around 0.
        **kwargs: `dtype`, as in `ListwiseMetric`.

    Example:
        >>> norm = metrics.LogitNorm()
        >>> y_true = tf.constant([[0.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 4.0, 9.0]])
        >>> round(float(norm(y_true, y_pred)), 4)  # sqrt((3**2 + 4**2) / 2)
        3.5355

    Reference:
        [NDCG-Consistent Softmax Approximation with Accelerated Convergence, 2025](
        https://arxiv.org/abs/2506.09454).
    """

    centered: bool = False

    _direction = "down"

    compares_items = False

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the weighted mean of the squares."""
        shares = tf.math.divide_no_nan(weights, tf.reduce_sum(weights, axis=-1, keepdims=True))
        centre = masking.masked_sum(shares * scores, mask)[:, None]
        from_centre = scores - centre if self.centered else scores
        return tf.sqrt(masking.masked_sum(shares * tf.square(from_centre), mask))
