"""Distillation of one ranker into another."""

import tensorflow as tf

from tfrank_sel.arguments import Count, Cutoff, Positive
from tfrank_sel.losses.bases.sampled import SampledLoss
from tfrank_sel.ops import label_order, masking, ranking
from tfrank_sel.serialization import register


@register
class CoupledRankDistilLoss(SampledLoss):
    """Cross-entropy of the top of an order, between a teacher's model and a student's (RankDistil).

    For each list of a teacher's scores `y` in `y_true` and a student's `s` in `y_pred`, for
    `x = s / temperature` and orders that are samples of the Plackett-Luce model of `y`, each the
    order of `y` with Gumbel noise:

    ```
    loss = w * mean_{orders} sum_{r <= k} (log sum_{i >= r} exp(x_i) - x_r)
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    where `1, ..., n` are the items in that order. The loss is 0 for a list whose labels are all 0.

    Args:
        sample_size: Number of samples of each list; positive.
        k: Number of top ranks that count; all of them if `None`.
        temperature: Divides the student's scores; positive.
        seed: Seed of the noise: the n-th call on inputs of one shape then has the same noise in
            every run. If `None`, a seed is drawn from Python's random numbers, which
            `keras.utils.set_random_seed` seeds.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `sample_size`, `k` or `temperature` is not positive.

    Inputs: as in `ListwiseLoss`: the teacher's scores are at least 0.

    Example:
        >>> loss = losses.CoupledRankDistilLoss(sample_size=4, seed=1)
        >>> y_true = tf.constant([[3.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2), in either order
        0.6931

    Reference:
        [Reddi et al., RankDistil: Knowledge Distillation for Ranking, 2021](
        https://proceedings.mlr.press/v130/reddi21a.html).
    """

    sample_size: Count = 8
    k: Cutoff = None
    temperature: Positive = 1.0
    seed: int | None = None

    def of_noise(
        self,
        labels: tf.Tensor,
        scores: tf.Tensor,
        mask: tf.Tensor,
        weights: tf.Tensor,
        noise: tf.Tensor,
    ) -> tf.Tensor:
        """Averages the loss over the sampled orders of each list."""
        labels, scores, mask, weights = self.samples_of(labels, scores, mask, weights)
        noisy = labels + tf.reshape(noise, tf.shape(labels))
        fields = ranking.sort_by(noisy, labels, scores, mask, weights, mask=mask)
        return self.mean_of(self._of_order(*fields))

    def _of_order(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the loss of one order, that of the list."""
        x = scores / self.temperature
        top, total = (part[:, :-1] for part in label_order.sum_exp_behind(x, mask))
        costs = top + tf.math.log(tf.where(mask, total, 1.0)) - x
        counted = mask if self.k is None else mask & (ranking.positions(x) <= float(self.k))
        return ranking.mean_weight(labels, mask, weights) * masking.masked_sum(costs, counted)
