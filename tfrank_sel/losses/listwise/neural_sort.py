"""Losses of soft permutations (NeuralSort)."""

from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.listwise import relaxation
from tfrank_sel.ops import masking, ranking
from tfrank_sel.serialization import register


@register
class NeuralSortCrossEntropyLoss(ListwiseLoss):
    """Cross-entropy between the soft permutations of the labels and of the scores.

    For each list of `n` labels `y` in `y_true` and scores `s` in `y_pred`, for
    `x = s / temperature`:

    ```
    P(x)_r = softmax_j((n + 1 - 2 * r) * x_j - sum_k abs(x_j - x_k))
    loss   = -w / n * sum_{r, j} P(y)_rj * log P(x)_rj
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    Row `r` of `P(x)` is a soft one-hot of the item at rank `r`. The loss is 0 for a list without a
    relevant item. Work and memory are quadratic in the list size.

    Args:
        temperature: Divides the scores; positive. As it goes to 0 the permutation becomes a hard
            one.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> loss = losses.NeuralSortCrossEntropyLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Grover et al., Stochastic Optimization of Sorting Networks via Continuous Relaxations,
        2019](https://arxiv.org/abs/1903.08850).
    """

    temperature: Positive = 1.0

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Averages the cross-entropies of the ranks of each list."""
        logits, pairs = relaxation.neural_sort(scores / self.temperature, mask)
        targets = masking.softmax(relaxation.neural_sort(labels, mask)[0], pairs)
        at_ranks = masking.cross_entropy(targets, logits, pairs)
        mean = masking.masked_mean(at_ranks, tf.reduce_any(pairs, axis=-1))
        return ranking.mean_weight(labels, mask, weights) * mean


@register
class NeuralSortNDCGLoss(ListwiseLoss):
    """Negative NDCG of a soft permutation of the scores (PiRank).

    For each list of `n` labels `y` in `y_true` and scores `s` in `y_pred`, for
    `x = s / temperature`:

    ```
    P(x)_r = softmax_j((n + 1 - 2 * r) * x_j - sum_k abs(x_j - x_k))
    loss   = -w * sum_r discount(r) * sum_j P(x)_rj * gain(y_j) / max DCG
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    Row `r` of `P(x)` is a soft one-hot of the item at rank `r`. The loss is 0 for a list without a
    relevant item. Work and memory are quadratic in the list size.

    Args:
        temperature: Divides the scores; positive. As it goes to 0 the permutation becomes a hard
            one, and its gradient vanishes.
        gain: Maps labels to gains.
        discount: Maps 1-based ranks to discounts.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> loss = losses.NeuralSortNDCGLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -(1 + 1 / log2(3)) / 2
        -0.8155

    Reference:
        [Swezey et al., PiRank: Scalable Learning To Rank via Differentiable Sorting, 2021](
        https://arxiv.org/abs/2012.06731).
    """

    temperature: Positive = 1.0
    gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain
    discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Divides the DCG of the soft permutation by that of the best order."""
        logits, pairs = relaxation.neural_sort(scores / self.temperature, mask)
        gains = ranking.relative_gains(self.gain, labels, mask)
        permutation = tf.nn.softmax(tf.where(pairs, logits, logits.dtype.min))
        soft = tf.linalg.matvec(permutation, gains)
        [best] = ranking.sort_by(gains, gains, mask=mask)
        discounts = self.discount(ranking.positions(gains))
        ndcg = tf.math.divide_no_nan(
            masking.masked_sum(soft * discounts, tf.reduce_any(pairs, axis=-1)),
            tf.reduce_sum(best * discounts, axis=-1),
        )
        return -ranking.mean_weight(labels, mask, weights) * ndcg
