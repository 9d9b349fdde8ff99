"""Differentiable ranking metrics, all by the same relaxation of the rank."""

import abc
from collections.abc import Callable

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.links.base import Link
from tfrank_sel.links.elementary import Sigmoid
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.listwise import relaxation
from tfrank_sel.ops import masking, ranking
from tfrank_sel.serialization import register

SIGMOID = Sigmoid()


class RelaxedLoss(ListwiseLoss):
    """A loss of soft ranks.

    Args:
        temperature: Divides the scores; positive. As it goes to 0 the ranks become those of the
            order by scores, and their gradient vanishes.
        link: Smooth comparison of two scores: it rises from 0 to 1, with `link(-d) = 1 - link(d)`.
            `links.Laplace()` takes `O(n log n)` time and memory, any other `O(n**2)`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].
    """

    @property
    @abc.abstractmethod
    def temperature(self) -> float:
        """Divides the scores."""

    @property
    @abc.abstractmethod
    def link(self) -> Link:
        """Smooth comparison of two scores."""

    def __post_init__(self) -> None:
        relaxation.check_link(self.link)

    def ranks(self, scores: tf.Tensor, among: tf.Tensor) -> tf.Tensor:
        """Computes the soft rank of each item among the items `among` of its list."""
        return relaxation.ranks(scores / self.temperature, among, self.link)


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
    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Computes the metric of each list, `[batch_size]`, at soft ranks."""

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the weighted metric of each list."""
        weight = ranking.mean_weight(labels, mask, weights)
        return -weight * self.metric(labels, scores, mask)


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
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].

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
    gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain
    discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount
    link: Link = SIGMOID

    @property
    def largest_label(self) -> float:
        return ranking.largest_label(self.gain, self.dtype)

    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
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
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].

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
    gain: Callable[[tf.Tensor], tf.Tensor] = ranking.exponential_gain
    discount: Callable[[tf.Tensor], tf.Tensor] = ranking.log2_discount
    link: Link = SIGMOID

    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Divides the DCG at soft ranks by that of the best order."""
        gains = ranking.relative_gains(self.gain, labels, mask)
        [best] = ranking.sort_by(gains, gains, mask=mask)
        ideal = tf.reduce_sum(best * self.discount(ranking.positions(best)), axis=-1)
        dcg = masking.masked_sum(gains * self.discount(self.ranks(scores, mask)), mask)
        return tf.math.divide_no_nan(dcg, ideal)


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
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].

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

    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
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
        ValueError: If `temperature` is not positive, or values of `link` are outside [0, 1].

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

    def metric(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Averages the precisions at the soft ranks of the relevant items."""
        relevant = mask & (labels > 0.0)
        precisions = self.ranks(scores, relevant) / self.ranks(scores, mask)
        return masking.masked_mean(precisions, relevant)
