"""SoftRank: the expected NDCG of uncertain scores."""

from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.arguments import Cutoff, Positive
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.ops import rank_distributions, ranking
from tfrank_sel.serialization import register


@register
class SoftRankLoss(ListwiseLoss):
    """One minus the expected NDCG of scores with Gaussian noise (SoftNDCG).

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    a_ij = Phi((s_i - s_j) / (sigma * sqrt(2)))
    loss = 1 - sum_j w_j * gain(y_j) * sum_{r <= k} discount(r) * p_j(r) / DCG@k(y, w * gain(y))
    ```

    where `p_j` is the distribution of the rank of item `j`, one more than the number of items ahead
    of it, and each other item `i` is ahead with probability `a_ij`. The loss is 0 for a list
    without a relevant item. The formula assumes that pairs are independent of one another. For a
    large `sigma` they are not, and the soft NDCG is biased. As `sigma` goes to 0 it becomes the
    NDCG, and its gradient vanishes.

    The time is cubic in the list size, the memory quadratic.

    Args:
        sigma: Standard deviation of the noise of each score; positive.
        k: Number of top ranks that count; all of them if `None`.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `sigma` or `k` is not positive.

    Example:
        >>> loss = losses.SoftRankLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # 1 - (1 + 1 / log2(3)) / 2
        0.1845

    Reference:
        [Taylor et al., SoftRank: Optimizing Non-Smooth Rank Metrics, 2008](
        https://dl.acm.org/doi/10.1145/1341531.1341544).
    """

    sigma: Positive = 1.0
    k: Cutoff = None
    gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain
    discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the relative gap between the ideal and the expected DCG."""
        gains = weights * ranking.relative_gains(self.gain, labels, mask)
        ranks = ranking.positions(scores)
        discounts = self.discount(ranks)
        if self.k is not None:
            discounts = tf.where(ranks <= float(self.k), discounts, 0.0)
        expected = rank_distributions.expected_discounts(scores, mask, self.sigma, discounts)
        [best] = ranking.sort_by(gains, gains, mask=mask)
        ideal = tf.reduce_sum(best * discounts, axis=-1)
        lacking = ideal - tf.reduce_sum(gains * expected, axis=-1)
        return tf.math.divide_no_nan(lacking, ideal)
