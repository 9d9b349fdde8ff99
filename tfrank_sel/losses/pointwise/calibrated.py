"""Losses of the probability of relevance of an item and of the order of its list together."""

import tensorflow as tf

from tfrank_sel.arguments import Share
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.bases.score_vectors import ScoreVectorLoss
from tfrank_sel.losses.listwise.softmax import BY_SHARES
from tfrank_sel.losses.normalization import mean_over_terms, of_items
from tfrank_sel.losses.pointwise.losses import sigmoid_cross_entropy
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register


@register
class RCRLoss(ListwiseLoss):
    """Regression compatible ranking: sigmoid cross-entropy and a listwise one of the same optimum.

    For each list of labels `y` in `y_true`, in [0, 1], and scores `s` in `y_pred`, with
    `p = sigmoid(s)`:

    ```
    point = mean_i w_i * (-y_i * log(p_i) - (1 - y_i) * log(1 - p_i))
    list = -sum_i w_i * y_i / sum_j y_j * log(p_i / sum_j p_j)
    loss = (1 - alpha) * point + alpha * list
    ```

    Both parts are least if `p` are the probabilities of relevance. With the softmax of the scores
    in place of `p_i / sum_j p_j`, as in a sum of `SigmoidCrossEntropyLoss` and `SoftmaxLoss`, the
    parts have different optima. A list without a relevant item has only the first part.

    Args:
        alpha: Share of the listwise part; from 0 to 1. With 1, the loss does not fix the scale of
            the probabilities.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `alpha` is not between 0 and 1.

    Example:
        >>> loss = losses.RCRLoss(alpha=0.5)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # both parts are log(2)
        0.6931

    Reference:
        [Bai et al., Regression Compatible Listwise Objectives for Calibrated Ranking with Binary
        Relevance, 2023](https://arxiv.org/abs/2211.01494).
    """

    alpha: Share = 0.5

    compares_items = False

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Adds the cross-entropies of the items and of the list."""
        values = weights * sigmoid_cross_entropy(labels, scores)
        of_point = of_items(mean_over_terms, values, mask)
        targets = weights * BY_SHARES(labels, mask)
        of_list = masking.cross_entropy(targets, tf.math.log_sigmoid(scores), mask)
        return (1.0 - self.alpha) * of_point + self.alpha * of_list


@register
class JRCLoss(ScoreVectorLoss):
    """Joint ranking and calibration: two scores of an item that classify it, and compare its list.

    For each list of labels `y` in `y_true`, in [0, 1], and pairs of scores `s` in `y_pred`, where
    `s_i1` is the logit of relevance and `s_i0` that of irrelevance:

    ```
    point = -y_i * log softmax(s_i)_1 - (1 - y_i) * log softmax(s_i)_0
    list = -y_i * log softmax_j(s_j1)_i - (1 - y_i) * log softmax_j(s_j0)_i
    loss = mean_i w_i * (alpha * point + (1 - alpha) * list)
    ```

    The probability of relevance is `sigmoid(s_i1 - s_i0)`, which ranks the items, too: serve the
    difference as the score.

    Args:
        alpha: Share of the first part; from 0 to 1.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `alpha` is not between 0 and 1.

    Inputs: as in `ScoreVectorLoss`: an item has two scores.

    Example:
        >>> loss = losses.JRCLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[[0.0, 0.0], [0.0, 0.0], [9.0, 9.0]]])
        >>> round(float(loss(y_true, y_pred)), 4)  # both parts are log(2)
        0.6931

    Reference:
        [Sheng et al., Joint Optimization of Ranking and Calibration with Contextualized Hybrid
        Model, 2023](https://arxiv.org/abs/2208.06164).
    """

    alpha: Share = 0.5

    @property
    def num_scores(self) -> int:
        """One for irrelevance and one for relevance."""
        return 2

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Adds the cross-entropies of the items and of the list."""
        of_point = sigmoid_cross_entropy(labels, scores[..., 1] - scores[..., 0])
        total = self.alpha * masking.masked_sum(weights * of_point, mask)
        for targets, logits in ((labels, scores[..., 1]), (1.0 - labels, scores[..., 0])):
            of_list = masking.cross_entropy(weights * targets, logits, mask)
            total += (1.0 - self.alpha) * of_list
        return tf.math.divide_no_nan(total, masking.masked_sum(tf.ones_like(labels), mask))
