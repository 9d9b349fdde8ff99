"""The softmax cross-entropy."""

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.lambdas import SwapLambdaWeight
from tfrank_sel.losses.targets import Shares, Targets
from tfrank_sel.ops import masking
from tfrank_sel.serialization import register

BY_SHARES = Shares()


@register
class SoftmaxLoss(ListwiseLoss):
    """Softmax cross-entropy of each list, also known as ListNet.

    For each list of relevances `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = -sum_i w_i * t_i * log softmax(s / temperature)_i
    ```

    where `t` are the targets: by default `t_i = y_i / sum_j y_j`, so that the loss is 0 for a list
    without a relevant item. For binary relevances, `exp(-loss)` is then a lower bound of the
    reciprocal rank, the average precision and the NDCG of the list: see `tfrank_sel.bounds`.

    Args:
        temperature: Divides the scores; positive.
        targets: Map from the labels of a list to its targets: `targets.Shares()`, of the labels or
            of their gains, `targets.Gains()`, the gains themselves, or
            `targets.Softmax(temperature)`.
        lambda_weight: Replaces the labels by `G_i * D(r_i)`, the gain and the discount of each item
            at its current rank: `lambdas.NDCGLambdaWeight()`, or `lambdas.DCGLambdaWeight()`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.
        TypeError: If `lambda_weight` has weights for pairs only.

    Example:
        >>> loss = losses.SoftmaxLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Cao et al., Learning to Rank: From Pairwise Approach to Listwise Approach, 2007](
        https://dl.acm.org/doi/10.1145/1273496.1273513); [Bruch et al., An Analysis of the Softmax
        Cross Entropy Loss for Learning-to-Rank with Binary Relevance, 2019](
        https://dl.acm.org/doi/10.1145/3341981.3344221).
    """

    temperature: Positive = 1.0
    targets: Targets = BY_SHARES
    lambda_weight: SwapLambdaWeight | None = None

    @property
    def largest_label(self) -> float:
        if self.lambda_weight is not None:
            return self.lambda_weight.largest_label(self.dtype)
        return self.targets.largest_label(self.dtype)

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the cross-entropy of each list."""
        if self.lambda_weight is not None:
            labels = self.lambda_weight.items(labels, scores, mask)
        targets = weights * self.targets(labels, mask)
        return masking.cross_entropy(targets, scores / self.temperature, mask)
