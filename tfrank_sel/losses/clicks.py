"""Click losses, which model examination or click types besides relevance."""

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import AtLeast0
from tfrank_sel.losses.bases import (
    Normalized,
    Normalizer,
    ScoreVectorLoss,
    mean_over_terms,
    of_items,
)
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, ranking
from tfrank_sel.serialization import register


@register
class ClickEMLoss(Normalized, ScoreVectorLoss):
    """Cross-entropies of examination and relevance with their posteriors given the clicks.

    The model: an item is clicked if it is examined and relevant. For each list of clicks `y` in
    `y_true`, with the scores `e` of examination and `r` of relevance in `y_pred`:

    ```
    p, q = 1, 1                                                  if y >= 1
         = sigmoid(e - softplus(r)), sigmoid(r - softplus(e))    else
    loss = mean_i w_i * (exam_weight * H(p_i, e_i) + relevance_weight * H(q_i, r_i))
    ```

    where `H(p, s) = softplus(s) - p * s` is the cross-entropy. The gradient treats the posteriors
    `p` and `q` as constants, as expectation maximisation does: with weights of 1 it is that of the
    log-likelihood of the clicks, `-log(sigmoid(e) * sigmoid(r))` of an item with a click and
    `-log(1 - sigmoid(e) * sigmoid(r))` of one without. So it is not the derivative of the value.

    Args:
        exam_weight: Weight of the cross-entropy of examination; at least 0.
        relevance_weight: Weight of the cross-entropy of relevance; at least 0.
        normalizer: Divisor of the sum over the items of a list, as in `MeanSquaredLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If a weight is negative.

    Inputs: as in `ScoreVectorLoss`, with two scores per item. The score of examination must not
    depend on the item, only on its position; the score of relevance is the one to rank by.

    Example:
        >>> loss = losses.ClickEMLoss()
        >>> y_true = tf.constant([[1.0, -1.0]])  # a click, and padding
        >>> y_pred = tf.constant([[[0.0, 0.0], [9.0, 9.0]]])
        >>> round(float(loss(y_true, y_pred)), 4)  # 2 * log(2)
        1.3863

    Reference:
        [Wang et al., Position Bias Estimation for Unbiased Learning to Rank in Personal Search,
        2018](https://dl.acm.org/doi/10.1145/3159652.3159732).
    """

    exam_weight: AtLeast0 = 1.0
    relevance_weight: AtLeast0 = 1.0
    normalizer: Normalizer = mean_over_terms

    num_scores = 2  # of examination and of relevance

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the cross-entropies of the items, and normalises them."""
        e, r = scores[..., 0], scores[..., 1]
        exam = self.exam_weight * _cross_entropy(_posterior(labels, e, r), e)
        relevance = self.relevance_weight * _cross_entropy(_posterior(labels, r, e), r)
        return of_items(self.normalizer, weights * (exam + relevance), mask)


@register
class MixtureEMLoss(ScoreVectorLoss):
    """Cross-entropies of a mixture of click models, weighted by their fit to each list.

    For each list of clicks `y` in `y_true`, with the scores `s_m` of models `m` in `y_pred`:

    ```
    c_m  = sum_i (softplus(s_mi) - y_i * s_mi)
    p    = softmax(-alpha * c)
    loss = w * sum_m p_m * c_m
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    It is 0 for a list without a click. The gradient treats `p` as constant, as expectation
    maximisation does: with `alpha=1`, it is that of `-log sum_m exp(-c_m)`. So it is not the
    derivative of the value.

    Args:
        alpha: Sharpness of the assignment of lists to models; at least 0. At 0, all models have the
            same share.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `alpha` is negative.

    Inputs: as in `ScoreVectorLoss`: an item has one score per model.

    Example:
        >>> loss = losses.MixtureEMLoss()
        >>> y_true = tf.constant([[1.0, -1.0]])  # a click, and padding
        >>> y_pred = tf.constant([[[0.0, 0.0, 0.0], [9.0, 9.0, 9.0]]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Yan et al., Revisiting Two-tower Models for Unbiased Learning to Rank, 2022](
        https://dl.acm.org/doi/10.1145/3477495.3531837).
    """

    alpha: AtLeast0 = 1.0

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the losses of the models."""
        models = xp.transpose(scores, [0, 2, 1])  # XLA sums the last axis fastest
        costs = _cross_entropy(labels[:, xp.newaxis, :], models)
        of_model = xp.broadcast_to(mask[:, xp.newaxis, :], xp.shape(models))
        costs = masking.masked_sum(costs, of_model)
        shares = xp.stop_gradient(xp.softmax(-self.alpha * costs))
        return ranking.mean_weight(labels, mask, weights) * xp.reduce_sum(shares * costs, axis=-1)


def _posterior(clicks: Tensor, s: Tensor, other: Tensor) -> Tensor:
    """Computes the probability of one cause of a click, given whether there was one."""
    posterior = xp.sigmoid(s - xp.softplus(other))
    return xp.stop_gradient(xp.where(clicks >= 1.0, xp.ones_like(s), posterior))


def _cross_entropy(p: Tensor, s: Tensor) -> Tensor:
    """Computes the cross-entropy between a probability `p` and a score, the log-odds."""
    return xp.softplus(s) - p * s
