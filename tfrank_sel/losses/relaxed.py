"""Losses of soft ranks and soft permutations: differentiable ranking metrics."""

import abc
import functools
from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Count, Cutoff, Positive
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import Link
from tfrank_sel.links.elementary import Laplace, Sigmoid
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, ranking, soft_ranks
from tfrank_sel.serialization import register

Elementwise: TypeAlias = Callable[[Tensor], Tensor]

SIGMOID = Sigmoid()
_SMOOTH = (ranking.log2_discount, ranking.inverse_discount)  # few powers equal each of them
SHORTEST, LONGEST = 32, 400  # numbers of ranks: 8 powers for lists of up to 32, 16 for up to 400


class RelaxedLoss(ListwiseLoss):
    """A loss of soft ranks.

    Args:
        temperature: Divides the scores; positive. As it goes to 0 the ranks become those of the
            order by scores, and their gradient vanishes.
        link: Smooth comparison of two scores: it rises from 0 to 1, with `link(-d) = 1 - link(d)`.
            `links.Laplace()` takes `O(n log n)` time and memory, any other `O(n**2)`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, values of `link` are outside [0, 1], or those
            of two opposite differences do not add up to 1.
    """

    ignores_level = True

    @property
    @abc.abstractmethod
    def temperature(self) -> float:
        """Divides the scores."""

    @property
    @abc.abstractmethod
    def link(self) -> Link:
        """Smooth comparison of two scores."""

    def __post_init__(self) -> None:
        low, high = self.link.image
        if not 0.0 <= low <= high <= 1.0:
            raise refusal("`link` must have its values in [0, 1]", link=self.link)
        with xp.init_scope():
            far = xp.constant(np.logspace(-3.0, 3.0, 61))
            both = self.link(far) + self.link(-far)
        if not np.allclose(both, 1.0, rtol=0.0, atol=1e-5):
            expected = "`link` must be defined everywhere, with link(-d) = 1 - link(d)"
            raise refusal(expected, link=self.link)

    def ranks(self, x: Tensor, among: Tensor) -> Tensor:
        """Computes soft ranks among the items `among`, by scores over the temperature."""
        return relaxed_ranks(x, among, self.link)


class RelaxedMetricLoss(RelaxedLoss):
    """Negative ranking metric of a list, at soft ranks.

    For each list of scores `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = -w * metric(rank)
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    It is 0 for a list without a relevant item. A subclass implements `metric`.
    """

    @abc.abstractmethod
    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Computes the metric of each list, `[batch_size]`; scores are over the temperature."""

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the weighted metric of each list."""
        weight = ranking.mean_weight(labels, mask, weights)
        x = masking.at_temperature(scores, mask, self.temperature)
        return -weight * self.metric(labels, x, mask)


@register
class ApproxDCGLoss(RelaxedMetricLoss):
    """Negative discounted cumulative gain at soft ranks.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = -w * sum_i gain(y_i) * discount(rank_i)
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    A list counts in proportion to its gains; in `ApproxNDCGLoss`, all lists count equally.

    Args:
        temperature: Divides the scores; positive.
        gain: Maps labels to gains.
        discount: Maps ranks to discounts.
        link: Smooth comparison of two scores, as in `RelaxedMetricLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, values of `link` are outside [0, 1], or those
            of two opposite differences do not add up to 1.

    Example:
        >>> loss = losses.ApproxDCGLoss()
        >>> y_true = tf.constant([[2.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[8.0, 1.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)
        -3.0

    Reference:
        [Qin et al., A General Approximation Framework for Direct Optimization of Information
        Retrieval Measures, 2010](https://doi.org/10.1007/s10791-009-9124-x).
    """

    temperature: Positive = 0.1
    gain: Elementwise = ranking.exponential_gain
    discount: Elementwise = ranking.log2_discount
    link: Link = SIGMOID

    @property
    def largest_label(self) -> float:
        return ranking.largest_label(self.gain, self.dtype)

    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Adds up the discounted gains."""
        discounts = self.discount(self.ranks(scores, mask))
        return masking.masked_sum(self.gain(labels) * discounts, mask)


@register
class ApproxNDCGLoss(RelaxedMetricLoss):
    """Negative normalised discounted cumulative gain at soft ranks (ApproxNDCG).

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = -w * sum_i gain(y_i) * discount(rank_i) / max DCG
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    The loss is in [-1, 0] for weights of 1, and 0 for a list without a relevant item.

    Args:
        temperature: Divides the scores; positive.
        gain: Maps labels to gains.
        discount: Maps ranks to discounts.
        link: Smooth comparison of two scores, as in `RelaxedMetricLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, values of `link` are outside [0, 1], or those
            of two opposite differences do not add up to 1.

    Example:
        >>> loss = losses.ApproxNDCGLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 8.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -1 / log2(3)
        -0.6309

    Reference:
        [Qin et al., A General Approximation Framework for Direct Optimization of Information
        Retrieval Measures, 2010](https://doi.org/10.1007/s10791-009-9124-x); [Bruch et al.,
        Revisiting Approximate Metric Optimization in the Age of Deep Neural Networks, 2019](
        https://dl.acm.org/doi/10.1145/3331184.3331347).
    """

    temperature: Positive = 0.1
    gain: Elementwise = ranking.exponential_gain
    discount: Elementwise = ranking.log2_discount
    link: Link = SIGMOID

    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Divides the DCG at soft ranks by that of the best order."""
        gains = ranking.relative_gains(self.gain, labels, mask)
        [best] = ranking.sort_by(gains, gains, mask=mask)
        ideal = xp.reduce_sum(best * self.discount(ranking.positions(best)), axis=-1)
        dcg = masking.masked_sum(gains * self.discount(self.ranks(scores, mask)), mask)
        return xp.divide_no_nan(dcg, ideal)


@register
class ApproxMRRLoss(RelaxedMetricLoss):
    """Negative reciprocal rank at soft ranks (ApproxMRR).

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    rank_i = 1/2 + sum_j link((s_j - s_i) / temperature)
    loss   = -w * sum_i (y_i / rank_i) / sum_i y_i
    w      = sum_i w_i * y_i / sum_i y_i
    ```

    If a list has several relevant items, this is the mean of their reciprocal ranks, not the
    reciprocal of the smallest rank. It is 0 for a list without a relevant item.

    Args:
        temperature: Divides the scores; positive.
        link: Smooth comparison of two scores, as in `RelaxedMetricLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, values of `link` are outside [0, 1], or those
            of two opposite differences do not add up to 1.

    Example:
        >>> loss = losses.ApproxMRRLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[1.0, 8.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)
        -0.5

    Reference:
        [Qin et al., A General Approximation Framework for Direct Optimization of Information
        Retrieval Measures, 2010](https://doi.org/10.1007/s10791-009-9124-x).
    """

    temperature: Positive = 0.1
    link: Link = SIGMOID

    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Averages the reciprocal ranks by label."""
        return ranking.mean_weight(labels, mask, 1.0 / self.ranks(scores, mask))


@register
class ApproxAPLoss(RelaxedMetricLoss):
    """Negative average precision at soft ranks.

    For each list of labels `y` in `y_true`, whose `R` relevant items have labels above 0, and of
    scores `s` in `y_pred`:

    ```
    rank_i  = 1/2 + sum_j link((s_j - s_i) / temperature)
    among_i = 1/2 + sum_{j relevant} link((s_j - s_i) / temperature)
    loss    = -w / R * sum_{i relevant} among_i / rank_i
    w       = sum_i w_i * y_i / sum_i y_i
    ```

    It is 0 for a list without a relevant item.

    Args:
        temperature: Divides the scores; positive.
        link: Smooth comparison of two scores, as in `RelaxedMetricLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, values of `link` are outside [0, 1], or those
            of two opposite differences do not add up to 1.

    Example:
        >>> loss = losses.ApproxAPLoss()
        >>> y_true = tf.constant([[1.0, 0.0, 1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[9.0, 5.0, 1.0, 7.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # -(1 + 2/3) / 2
        -0.8333

    Reference:
        [Qin et al., A General Approximation Framework for Direct Optimization of Information
        Retrieval Measures, 2010](https://doi.org/10.1007/s10791-009-9124-x).
    """

    temperature: Positive = 0.1
    link: Link = SIGMOID

    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Averages the precisions at the soft ranks of the relevant items."""
        relevant = mask & (labels > 0.0)
        precisions = self.ranks(scores, relevant) / self.ranks(scores, mask)
        return masking.masked_mean(precisions, relevant)


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

    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Divides the number of relevant items in the top ranks by the number of ranks."""
        return _hits(self, labels, scores, mask, self.k) / float(self.k)


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

    def metric(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Divides the number of relevant items in the top ranks by their total number."""
        relevant = xp.reduce_sum(xp.cast(mask & (labels > 0.0), scores.dtype), axis=-1)
        return xp.divide_no_nan(_hits(self, labels, scores, mask, self.k), relevant)


def _hits(loss: RelaxedMetricLoss, labels: Tensor, scores: Tensor, mask: Tensor, k: int) -> Tensor:
    """Counts the relevant items with a soft rank up to `k`."""
    inside = loss.link(float(k) + 0.5 - loss.ranks(scores, mask))
    return masking.masked_sum(inside, mask & (labels > 0.0))


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

    ignores_level = True

    temperature: Positive = 1.0

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Averages the cross-entropies of the ranks of each list."""
        logits, pairs = neural_sort(masking.centre(scores, mask) / self.temperature, mask)
        targets = masking.softmax(neural_sort(labels, mask)[0], pairs)
        at_ranks = masking.cross_entropy(targets, logits, pairs)
        mean = masking.masked_mean(at_ranks, xp.reduce_any(pairs, axis=-1))
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

    ignores_level = True

    temperature: Positive = 1.0
    gain: Elementwise = ranking.exponential_gain
    discount: Elementwise = ranking.log2_discount

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Divides the DCG of the soft permutation by that of the best order."""
        logits, pairs = neural_sort(masking.centre(scores, mask) / self.temperature, mask)
        gains = ranking.relative_gains(self.gain, labels, mask)
        permutation = xp.softmax(xp.where(pairs, logits, xp.limits(logits.dtype).min))
        soft = xp.matvec(permutation, gains)
        [best] = ranking.sort_by(gains, gains, mask=mask)
        discounts = self.discount(ranking.positions(gains))
        ndcg = xp.divide_no_nan(
            masking.masked_sum(soft * discounts, xp.reduce_any(pairs, axis=-1)),
            xp.reduce_sum(best * discounts, axis=-1),
        )
        return -ranking.mean_weight(labels, mask, weights) * ndcg


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

    The time is cubic in the list size, the memory quadratic. In float32, without `k` and with the
    default discount or `1 / r`, lists of up to 400 items, and many longer ones whose size the graph
    knows, take quadratic time, and the memory of a few lists.

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

    ignores_level = True

    sigma: Positive = 1.0
    k: Cutoff = None
    gain: Elementwise = ranking.exponential_gain
    discount: Elementwise = ranking.log2_discount

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the relative gap between the ideal and the expected DCG."""
        gains = weights * ranking.relative_gains(self.gain, labels, mask)
        ranks = ranking.positions(scores)
        discounts = self.discount(ranks)
        if self.k is not None:
            discounts = xp.where(ranks <= float(self.k), discounts, 0.0)
        expected = self._expected_discounts(scores, mask, discounts)
        [best] = ranking.sort_by(gains, gains, mask=mask)
        ideal = xp.reduce_sum(best * discounts, axis=-1)
        lacking = ideal - xp.reduce_sum(gains * expected, axis=-1)
        return xp.divide_no_nan(lacking, ideal)

    def _expected_discounts(self, scores: Tensor, mask: Tensor, discounts: Tensor) -> Tensor:
        """Computes the expected discount of each item, in quadratic time if powers equal it."""
        exactly = functools.partial(
            soft_ranks.expected_discounts, scores, mask, self.sigma, discounts
        )
        if self.k is not None or self.discount not in _SMOOTH or scores.dtype != xp.float32:
            return exactly()
        size = scores.shape[1]
        # the powers of many ranks equal the discounts of fewer, too, but there are more of them
        most = LONGEST if size is None else max(size, SHORTEST)
        powers = soft_ranks.powers_of(self.discount, most)
        if powers is None:
            return exactly()
        by_powers = functools.partial(soft_ranks.expected_powers, scores, mask, self.sigma, powers)
        if size is not None:
            return by_powers()
        return xp.cond(xp.shape(scores)[1] <= LONGEST, by_powers, exactly)


def relaxed_ranks(x: Tensor, among: Tensor, link: Link) -> Tensor:
    """Computes `1/2 + sum_j link(x_j - x_i)`, the soft rank of each item.

    A link that rises from 0 to 1 counts the items that are ahead. A tie counts 1/2, also that of
    the item with itself.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        among: True for the items `j` to count.
        link: Link that compares two scores, with `link(-d) = 1 - link(d)`. `Laplace` takes
            `O(n log n)` time and memory, any other `O(n**2)`.

    Returns:
        The soft ranks, of the shape of `x`; at least 1 for the counted items.
    """
    if isinstance(link, Laplace) and link.shift == 0.0:
        return soft_ranks.laplace_ranks(link.scale * x, among)

    @xp.custom_gradient
    def f(x: Tensor) -> tuple[Tensor, object]:
        counts = xp.cast(among, x.dtype)

        def gradient(upstream: Tensor) -> Tensor:
            # the slope is even, so a pair changes both ranks by the same amount
            slope = link.slope(_differences(x))
            moved, met = (
                xp.reduce_sum(slope * y[:, xp.newaxis, :], axis=-1) for y in (upstream, counts)
            )
            return counts * moved - upstream * met

        ahead = link(_differences(x)) * counts[:, xp.newaxis, :]
        return 0.5 + xp.reduce_sum(ahead, axis=-1), gradient

    return f(x)


def neural_sort(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the logits of a soft permutation, `(n + 1 - 2 * r) * x_j - sum_k abs(x_j - x_k)`.

    For each rank `r` up to the number `n` of valid items, the `r`-th largest `x_j` has the largest
    logit: the softmax over the items is the soft one-hot of that item.

    Args:
        x: Scores over the temperature, `[batch_size, list_size]`.
        mask: True for the valid items.

    Returns:
        The logits, `[batch_size, list_size, list_size]`, of each rank and item, and a mask of that
        shape: True for the ranks up to `n` and valid items.
    """
    x, ranks = xp.where(mask, x, 0.0), xp.range(1, xp.shape(x)[1] + 1)
    size = xp.reduce_sum(xp.cast(mask, xp.int32), axis=1, keepdims=True)
    slope = xp.cast(size + 1 - 2 * ranks, x.dtype)
    logits = slope[:, :, xp.newaxis] * x[:, xp.newaxis, :]
    logits = logits - _distances(x, mask)[:, xp.newaxis, :]
    return logits, (ranks <= size)[:, :, xp.newaxis] & mask[:, xp.newaxis, :]


def _distances(x: Tensor, mask: Tensor) -> Tensor:
    """Computes `sum_k abs(x_j - x_k)` for each item; padding is 0."""
    pairs = mask[:, :, xp.newaxis] & mask[:, xp.newaxis, :]

    @xp.custom_gradient
    def f(x: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            # a distance is in the sums of both of its items
            moved = upstream[:, :, xp.newaxis] + upstream[:, xp.newaxis, :]
            return -masking.masked_sum(moved * xp.sign(_differences(x)), pairs)

        return masking.masked_sum(xp.abs(_differences(x)), pairs), gradient

    return f(x)


def _differences(x: Tensor) -> Tensor:
    """Computes `x_j - x_i` for each item `i` and item `j`."""
    return x[:, xp.newaxis, :] - x[:, :, xp.newaxis]
