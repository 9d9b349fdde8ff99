"""Distillation losses: a student learns from the order of a teacher."""

import abc
import math
from collections.abc import Callable

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Count, Cutoff, Positive
from tfrank_sel.links.base import Link
from tfrank_sel.losses.relaxed import SIGMOID, RelaxedLoss
from tfrank_sel.losses.sampled import SampledLoss
from tfrank_sel.numerics import Tensor
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
        self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor, noise: Tensor
    ) -> Tensor:
        """Averages the loss over the sampled orders of each list."""
        labels, scores, mask, weights = self.samples_of(labels, scores, mask, weights)
        noisy = labels + xp.reshape(noise, xp.shape(labels))
        fields = ranking.sort_by(noisy, labels, scores, mask, weights, mask=mask)
        return self.mean_of(self._of_order(*fields))

    def _of_order(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the loss of one order, that of the list."""
        x = masking.at_temperature(scores, mask, self.temperature)
        top, total = (part[:, :-1] for part in label_order.sum_exp_behind(x, mask))
        costs = (top - x) + xp.log(xp.where(mask, total, 1.0))
        counted = mask if self.k is None else mask & (ranking.positions(x) <= float(self.k))
        return ranking.mean_weight(labels, mask, weights) * masking.masked_sum(costs, counted)


class RankErrorLoss(RelaxedLoss):
    """A loss of the differences between soft ranks by scores and ranks by labels.

    Only the order of the labels counts; tied labels have the mean of their ranks. A subclass
    implements `distance`.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, and NaN is
    padding. The index of one item is not accepted: it gives no order to the other items.
    """

    min_label = -math.inf
    takes_classes = False

    @abc.abstractmethod
    def distance(self, squares: Tensor, ranks: Tensor, mask: Tensor) -> Tensor:
        """Computes the loss of each list from weighted squared errors and ranks by labels."""

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Compares the ranks of each list."""
        ranks = label_order.mean_ranks(labels, mask)
        x = masking.at_temperature(scores, mask, self.temperature)
        errors = self.ranks(x, mask) - ranks
        return self.distance(weights * errors**2, ranks, mask)


@register
class SpearmanLoss(RankErrorLoss):
    """One minus Spearman's rank correlation, at soft ranks.

    For each list of `n` labels `y` in `y_true`, whose ranks are `a`, and scores `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = 6 / (n * (n**2 - 1)) * sum_i w_i * (rank_i - a_i)**2
    ```

    Without ties in labels, the loss goes to 1 less the correlation as `temperature` goes to 0. It
    is 0 for a list of one item. All ranks count equally, the last as much as the first; in
    `ADRMSELoss` the first ones count more.

    Args:
        temperature: Divides the scores; positive.
        link: Smooth comparison of two scores, as in `ApproxNDCGLoss`; `links.Laplace()` for long
            lists.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, and NaN is
    padding.

    Example:
        >>> loss = losses.SpearmanLoss(temperature=0.1)
        >>> y_true = tf.constant([[0.3, -0.1, 0.1, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[9.0, 5.0, 1.0, 7.0]])  # of ranks 1, 2, 3; labels have 1, 3, 2
        >>> round(float(loss(y_true, y_pred)), 4)  # 6 / 24 * 2
        0.5

    Reference:
        [Blondel et al., Fast Differentiable Sorting and Ranking, 2020](
        https://arxiv.org/abs/2002.08871), with other soft ranks.
    """

    temperature: Positive = 1.0
    link: Link = SIGMOID

    def distance(self, squares: Tensor, ranks: Tensor, mask: Tensor) -> Tensor:
        """Divides the sum by its mean over all orders."""
        n = xp.reduce_sum(xp.cast(mask, squares.dtype), axis=-1)
        total = 6.0 * masking.masked_sum(squares, mask)
        return xp.divide_no_nan(total, n * (n + 1.0) * (n - 1.0))


@register
class ADRMSELoss(RankErrorLoss):
    """Mean squared error of soft ranks, discounted by a teacher's ranks (Rank-DistiLLM).

    For each list of a teacher's scores `y` in `y_true`, whose ranks are `a`, and a student's `s` in
    `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = mean_i w_i * discount(a_i) * (rank_i - a_i)**2
    ```

    Args:
        temperature: Divides the scores; positive.
        discount: Maps the teacher's ranks to discounts.
        link: Smooth comparison of two scores, as in `ApproxNDCGLoss`; `links.Laplace()` for long
            lists.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, and NaN is
    padding. Where a teacher gives only an order, the labels are the negative ranks.

    Example:
        >>> loss = losses.ADRMSELoss()
        >>> y_true = tf.constant([[-1.0, -2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])  # both have a soft rank of 1.5
        >>> round(float(loss(y_true, y_pred)), 4)  # 0.25 * (1 + 1 / log2(3)) / 2
        0.2039

    Reference:
        [Schlatt et al., Rank-DistiLLM: Closing the Effectiveness Gap Between Cross-Encoders and
        LLMs for Passage Re-Ranking, 2024](https://arxiv.org/abs/2405.07920).
    """

    temperature: Positive = 1.0
    discount: Callable[[Tensor], Tensor] = ranking.log2_discount
    link: Link = SIGMOID

    def distance(self, squares: Tensor, ranks: Tensor, mask: Tensor) -> Tensor:
        """Averages the discounted squares."""
        discounts = self.discount(xp.where(mask, ranks, 1.0))
        return masking.masked_mean(discounts * squares, mask)
