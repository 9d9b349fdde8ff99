"""Pairwise losses, which depend on the score differences of pairs of items."""

import abc
import math
from typing import ClassVar, Unpack

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Count, OpenShare, Positive
from tfrank_sel.keras_bases import LossOptions
from tfrank_sel.links.elementary import Identity, Sigmoid
from tfrank_sel.links.piecewise import PiecewiseLinear, Sign
from tfrank_sel.losses.bases import (
    LabelOrderedLoss,
    ListwiseLoss,
    Normalized,
    Normalizer,
    mean_over_terms,
)
from tfrank_sel.losses.lambdas import LambdaWeight, NDCGLambdaWeightV2, YetiDCGLambdaWeight
from tfrank_sel.losses.sampled import GumbelLoss, SampledLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import label_order, masking, pairs, ranking
from tfrank_sel.ops.pairs import Items
from tfrank_sel.serialization import register

LAMBDA_LOSS = NDCGLambdaWeightV2()
NEIGHBOURS = YetiDCGLambdaWeight()


class PairwiseLoss(Normalized, ListwiseLoss):
    """A loss of the pairs of items of each list.

    A subclass implements `surrogate`, the loss of one pair. For each list of labels `y` in `y_true`
    and scores `s` in `y_pred`:

    ```
    loss = normalizer of sum_{y_i > y_j} w_i * lambda_ij * surrogate((s_i - s_j) / temperature)
    ```

    A pair has the weight of its preferred item. Memory does not grow with the number of pairs, so
    the loss is also exact for lists of tens of thousands of items.

    Args:
        lambda_weight: Weighs each pair, such as `lambdas.NDCGLambdaWeight()`; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: Normalisation of the sum: `mean_over_terms`, `sum_over_terms`,
            `mean_over_slots`, or a registered function like these. If `None`, the default of the
            lambda weight: the sum for weights that are parts of a DCG, else the mean over pairs.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.
        TypeError: If `lambda_weight` is not a `lambdas.LambdaWeight`.
    """

    ignores_level = True

    lambda_weight: LambdaWeight | None = None
    temperature: Positive = 1.0
    normalizer: Normalizer | None = None

    # only pairs of different labels count, with the larger label first
    ordered: ClassVar[bool] = True

    @property
    def largest_label(self) -> float:
        weight = self.lambda_weight
        return math.inf if weight is None else weight.largest_label(self.dtype)

    @abc.abstractmethod
    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes the loss of pairs.

        Args:
            x: The score of the first item less that of the second, over the temperature.
            y: The label of the first item less that of the second, above 0 if `ordered`.
        """

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the losses of the pairs, and normalises the sum."""
        x = masking.at_temperature(scores, mask, self.temperature)
        items = self._items(labels, x, mask, weights)
        total = pairs.sums_over_pairs(self._pair, items, self._pairing)
        return self._normalizer(total, self._terms(labels, mask), xp.shape(scores)[1])

    def curvature(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the second derivative of `per_list` in each score, `[batch_size, list_size]`.

        Lambda weights and ranks count as constants, as in the gradient.
        """
        x = xp.where(mask, scores, xp.zeros_like(scores))
        x = masking.at_temperature(x, mask, self.temperature)
        items = self._items(labels, x, mask, weights)
        by_rank = pairs.curvatures(self._pair, items, self._pairing)
        if self.lambda_weight is not None:
            ranks = xp.cast(ranking.ranks(x, mask), xp.int32)
            # from the order of the scores, in which `_items` put them
            by_rank = xp.gather(by_rank, ranks - 1, batch_dims=1)
        terms = self._terms(labels, mask)
        total = xp.ones_like(terms)
        _, pull_back = xp.vjp(lambda x: self._normalizer(x, terms, xp.shape(scores)[1]), total)
        # of a normalizer that is linear in the total; two derivatives divide by the temperature
        # twice
        factor = pull_back(total)[0] / self.temperature**2
        return factor[:, xp.newaxis] * by_rank

    @property
    def _normalizer(self) -> Normalizer:
        if self.normalizer is not None:
            return self.normalizer
        return mean_over_terms if self.lambda_weight is None else self.lambda_weight.normalizer

    @property
    def _pairing(self) -> pairs.Pairing:
        return pairs.all_pairs if self.lambda_weight is None else self.lambda_weight.pairing

    def _terms(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Counts the pairs of each list, also those of weight 0."""
        if self.ordered:
            return label_order.num_pairs(labels, mask)
        items = xp.reduce_sum(xp.cast(mask, labels.dtype), axis=-1)
        return items * (items - 1.0)

    def _items(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Items:
        """The items in the order of their scores, so that all lists share the same ranks."""
        scores = xp.where(mask, scores, xp.zeros_like(scores))
        ranks = ranking.positions(scores)[xp.newaxis]
        if self.lambda_weight is None:
            return Items(scores, labels, mask, weights, ranks, labels)
        gains = self.lambda_weight.gains(labels, mask)
        fields = (scores, labels, mask, weights, gains)
        scores, labels, mask, weights, gains = ranking.sort_by(scores, *fields, mask=mask)
        return Items(scores, labels, mask, weights, ranks, gains)

    def _pair(self, first: Items, second: Items, x: Tensor) -> pairs.Sums:
        """Computes loss and weight of a pair, in both directions if both count."""
        y = first.labels - second.labels
        is_pair = first.mask & second.mask
        if self.ordered:
            count = xp.cast(is_pair & (y != 0.0), x.dtype)
            weights = xp.where(y > 0.0, first.weights, second.weights)
            # turned so that the larger label comes first: each pair is computed once
            values = self.surrogate(xp.sign(y) * x, xp.abs(y))
        else:
            # (i, j) and (j, i) have equal costs, and each the weight of its first item
            count = 2.0 * xp.cast(is_pair & (first.ranks != second.ranks), x.dtype)
            weights = 0.5 * (first.weights + second.weights)
            values = self.surrogate(x, y)
        if self.lambda_weight is not None:
            weights = weights * xp.stop_gradient(self.lambda_weight.pairs(first, second))
        return values, xp.multiply_no_nan(weights, count)


@register
class PairwiseLogisticLoss(PairwiseLoss):
    """Logistic loss of each pair, also known as RankNet.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{y_i > y_j} w_i * lambda_ij * log(1 + exp(-(s_i - s_j) / temperature))
    ```

    The surrogate is the potential of the `Sigmoid` link. With `temperature=1 / beta`, on lists of a
    preferred and a rejected answer, whose scores are the log ratios of the probabilities of a
    policy and its reference, it is the loss of DPO (direct preference optimisation).

    Args:
        lambda_weight: Weight of each pair: `lambdas.NDCGLambdaWeight(smooth_fraction=1.0)` makes
            this LambdaRank. All are equal if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseLogisticLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Burges et al., Learning to Rank using Gradient Descent, 2005](
        https://dl.acm.org/doi/10.1145/1102351.1102363); [Rafailov et al., Direct Preference
        Optimization, 2023](https://arxiv.org/abs/2305.18290), equation 7.
    """

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes `log(1 + exp(-x))`."""
        return Sigmoid().potential(-x)


@register
class LambdaLoss(PairwiseLoss):
    """LambdaLoss: logistic loss of each pair, weighted by the effect of the pair on the NDCG.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    G_i      = gain(y_i) / DCG@k(y, gain(y))
    loss     = sum_{y_i > y_j} w_i * lambda_ij * log(1 + exp(-(s_i - s_j) / temperature))
    lambda_ij = (G_i - G_j) * (D(t) - D(t + 1)), where t = abs(r_i - r_j)
    ```

    where `r` are the ranks by score and `D` is the discount; for the effect of `k`, and for other
    weights, see `losses.lambdas`. It is a `PairwiseLogisticLoss` with these weights.

    Args:
        lambda_weight: Weighs each pair.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.LambdaLoss(losses.lambdas.NDCGLambdaWeightV2(k=10))
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # (1 - 1 / log2(3)) * log(2)
        0.2558

    Reference:
        [Wang et al., The LambdaLoss Framework for Ranking Metric Optimization, 2018](
        https://research.google/pubs/pub47258/).
    """

    lambda_weight: LambdaWeight = LAMBDA_LOSS

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes `log(1 + exp(-x))`."""
        return Sigmoid().potential(-x)


@register
class PairwiseHingeLoss(PairwiseLoss):
    """Hinge loss of each pair, also known as RankSVM.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{y_i > y_j} w_i * lambda_ij * max(0, 1 - (s_i - s_j) / temperature)
    ```

    A pair on the margin has gradient 0.

    Args:
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseHingeLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.5, 9.0]])
        >>> float(loss(y_true, y_pred))
        1.5

    Reference:
        [Joachims, Optimizing Search Engines using Clickthrough Data, 2002](
        https://dl.acm.org/doi/10.1145/775047.775067).
    """

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes `max(0, 1 - x)`."""
        return xp.relu(1.0 - x)


@register
class PairwiseSoftZeroOneLoss(PairwiseLoss):
    """Smoothed share of pairs in the wrong order.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{y_i > y_j} w_i * lambda_ij * sigmoid(-(s_i - s_j) / temperature)
    ```

    It is bounded, so it is not convex. As the temperature goes to 0, it becomes the share itself.

    Args:
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseSoftZeroOneLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> float(loss(y_true, y_pred))
        0.5

    Reference:
        [Wang et al., The LambdaLoss Framework for Ranking Metric Optimization, 2018](
        https://research.google/pubs/pub47258/).
    """

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes `1 / (1 + exp(x))`."""
        return Sigmoid()(-x)


@register
class PairwiseMSELoss(PairwiseLoss):
    """Squared error between the score difference and the label difference of each pair.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_{i != j} w_i * lambda_ij * ((s_i - s_j) / temperature - (y_i - y_j))**2
    ```

    over all ordered pairs of items, including pairs of equal labels.

    Args:
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.PairwiseMSELoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[4.0, 1.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # (3 - 1)**2
        4.0

    Reference:
        `tfr.keras.losses.PairwiseMSELoss` of [TensorFlow Ranking](
        https://github.com/tensorflow/ranking).
    """

    ordered = False

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes `(x - y)**2`."""
        return Identity(scale=2.0).potential(x - y)


@register
class PairwiseQuantileLoss(PairwiseLoss):
    """Quantile regression of the score difference of each pair.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    u_ij = (s_i - s_j) / temperature - (y_i - y_j)
    loss = mean_{y_i > y_j} w_i * lambda_ij * (tau * max(0, -u_ij) + (1 - tau) * max(0, u_ij))
    ```

    or, `squared`, with the squares of both maxima: then it is expectile regression.

    Args:
        tau: The quantile, between 0 and 1: the larger, the more a difference that is too small
            costs.
        squared: Whether errors are squared.
        lambda_weight: Weighs each pair; all alike if `None`.
        temperature: Divides the scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `tau` is not between 0 and 1.

    Example:
        >>> loss = losses.PairwiseQuantileLoss(tau=0.75)
        >>> y_true = tf.constant([[3.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 1.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # 0.75 * 2
        1.5

    Reference:
        [Koenker and Bassett, Regression Quantiles, 1978](https://www.jstor.org/stable/1913643), of
        pairs, as in [Rax](https://github.com/google/rax).
    """

    def __init__(
        self,
        tau: OpenShare = 0.5,
        squared: bool = False,
        lambda_weight: LambdaWeight | None = None,
        temperature: Positive = 1.0,
        normalizer: Normalizer | None = None,
        **kwargs: Unpack[LossOptions],
    ) -> None:
        super().__init__(lambda_weight, temperature, normalizer, **kwargs)
        self.tau = tau
        self.squared = squared

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes the tilted absolute or squared error between `x` and `y`."""
        u, tau = x - y, self.tau
        if not self.squared:
            # (1 - tau) * u above 0, and -tau * u below
            return 0.5 * Sign().potential(u) + (0.5 - tau) * u
        slopes = {"slope_below": 2.0 * tau, "slope_above": 2.0 * (1.0 - tau)}
        return PiecewiseLinear(knots=[0.0], values=[0.0], **slopes).potential(u)


@register
class MarginMSELoss(PairwiseLoss):
    """Squared error between the differences of a student's and of a teacher's scores.

    For each list of a teacher's scores `y` in `y_true` and a student's `s` in `y_pred`:

    ```
    loss = mean_{i != j} w_i * ((s_i - s_j) / temperature - (y_i - y_j))**2
    ```

    over all ordered pairs of items. The loss does not change if the same number is added to all
    scores of a list. It is `PairwiseMSELoss` for labels of any sign.

    Args:
        temperature: Divides the student's scores; positive.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, and NaN is
    padding.

    Example:
        >>> loss = losses.MarginMSELoss()
        >>> y_true = tf.constant([[-1.0, -2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[4.0, 1.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # (3 - 1)**2
        4.0

    Reference:
        [Hofstätter et al., Improving Efficient Neural Ranking Models with Cross-Architecture
        Knowledge Distillation, 2020](https://arxiv.org/abs/2010.02666), over all pairs of a list.
    """

    min_label = -math.inf
    takes_classes = False
    ordered = False

    def __init__(
        self,
        temperature: Positive = 1.0,
        normalizer: Normalizer | None = None,
        **kwargs: Unpack[LossOptions],
    ) -> None:
        super().__init__(None, temperature, normalizer, **kwargs)

    def surrogate(self, x: Tensor, y: Tensor) -> Tensor:
        """Computes `(x - y)**2`."""
        return Identity(scale=2.0).potential(x - y)


@register
class CircleLoss(LabelOrderedLoss):
    """Soft maximum over the pairs of a list, with each side scaled by its own distance.

    For each list of labels `y` in `y_true` and similarities in `y_pred`, clipped to `s` in [0, 1]:

    ```
    a_i  = max(0, 1 + margin - s_i) * (1 - margin - s_i)
    b_j  = max(0, s_j + margin) * (s_j - margin)
    loss = w * log(1 + sum_{y_i > y_j} exp(gamma * (a_i + b_j)))
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    It is 0 for a list without a pair of different labels. The gradient treats the first factors of
    `a` and `b` as constants, as the authors do: they set the speed of each side. So the gradient is
    not the derivative of the value, and outside [0, 1] it is 0.

    Args:
        gamma: Sharpness of the maximum; positive.
        margin: Distance from 1 and 0 that similarities may keep.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `gamma` is not positive.

    Inputs: as in `ListwiseLoss`, but scores are similarities in [0, 1].

    Example:
        >>> loss = losses.CircleLoss(gamma=4.0)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.75, 0.25, 0.5]])
        >>> round(float(loss(y_true, y_pred)), 4)  # both are where they should be: log(2)
        0.6931

    Reference:
        [Sun et al., Circle Loss: A Unified Perspective of Pair Similarity Optimization, 2020](
        https://arxiv.org/abs/2002.10857).
    """

    gamma: Positive = 64.0
    margin: float = 0.25

    def of_sorted(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Computes the soft maximum, in which the two sides of a pair are factors."""
        s, m = xp.clip_by_value(scores, 0.0, 1.0), self.margin
        above = self.gamma * xp.stop_gradient(xp.relu(1.0 + m - s)) * (1.0 - m - s)
        below = self.gamma * xp.stop_gradient(xp.relu(s + m)) * (s - m)
        # sum_ij exp(a_i + b_j) = sum_i exp(a_i) * sum_(j below i) exp(b_j): no matrix of pairs
        top, log_sum = label_order.log_sum_exp_below(below, labels, mask)
        x = above + (top + log_sum)
        has_pair = xp.cast(mask & (x > xp.limits(x.dtype).min), x.dtype)
        return masking.log1p_sum_exp(x, has_pair)


@register
class YetiLogisticLoss(SampledLoss):
    """Logistic loss of the neighbours in noisy rankings of each list.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    z_k  = (s + g_k) / gumbel_temperature
    loss = mean_k sum_{y_i > y_j} w_i * lambda_ij(z_k) * log(1 + exp(-(z_ki - z_kj) / temperature))
    ```

    where `g_k` is Gumbel noise, and `lambda_ij` is by default 0 for items that are not next to each
    other in the order of `z_k`. It is a `GumbelLoss` of the `PairwiseLogisticLoss`.

    Args:
        lambda_weight: Weight of each pair, such as `lambdas.YetiDCGLambdaWeight()`.
        temperature: Divides the noisy scores; positive.
        sample_size: Number of samples of each list; positive.
        gumbel_temperature: Divides the noisy scores before they are ranked; positive.
        seed: Seed of the noise, as in `GumbelLoss`.
        normalizer: As in `PairwiseLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `sample_size` or a temperature is not positive.

    Example:
        >>> loss = losses.YetiLogisticLoss(sample_size=64, seed=1)
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[9.0, -9.0, 9.0]])
        >>> float(loss(y_true, y_pred)) < 1e-3  # noise hardly ever turns the order round
        True

    Reference:
        [Lyzhin et al., Which Tricks are Important for Learning to Rank?, 2022](
        https://arxiv.org/abs/2204.01500).
    """

    lambda_weight: LambdaWeight = NEIGHBOURS
    temperature: Positive = 1.0
    sample_size: Count = 8
    gumbel_temperature: Positive = 1.0
    seed: int | None = None
    normalizer: Normalizer | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        pairwise = PairwiseLogisticLoss(self.lambda_weight, self.temperature, self.normalizer)
        self._noisy = GumbelLoss(pairwise, self.sample_size, self.gumbel_temperature, self.seed)

    @property
    def largest_label(self) -> float:
        return self.lambda_weight.largest_label(self.dtype)

    def of_noise(
        self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor, noise: Tensor
    ) -> Tensor:
        """Averages the pairwise loss over the samples of each list."""
        return self._noisy.of_noise(labels, scores, mask, weights, noise)
