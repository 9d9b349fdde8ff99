"""Pointwise losses, of each item of a list, alone or relative to the others."""

import math
from typing import Annotated

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Bound, Count, Range, Share
from tfrank_sel.errors import refusal
from tfrank_sel.links.elementary import Identity, Sigmoid
from tfrank_sel.losses.bases import (
    ListwiseLoss,
    Normalized,
    Normalizer,
    ScoreVectorLoss,
    mean_over_terms,
    of_items,
)
from tfrank_sel.losses.targets import BY_SHARES
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman, masking
from tfrank_sel.serialization import register


@register
class SigmoidCrossEntropyLoss(Normalized, ListwiseLoss):
    """Cross-entropy of each label, a probability of relevance, with the sigmoid of its score.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_i w_i * (log(1 + exp(s_i)) - y_i * s_i)
    ```

    Labels above 1 are not clipped: the loss of such an item has no minimum; it decreases without
    bound as the score grows.

    Args:
        normalizer: What the sum over the items is divided by: `mean_over_terms`, `sum_over_terms`,
            `mean_over_slots`, or a registered function like these.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Example:
        >>> loss = losses.SigmoidCrossEntropyLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Li et al., Learning to Rank Using Classification and Gradient Boosting, 2007](
        https://papers.nips.cc/paper/2007/hash/b86e8d03fe992d1b0e19656875ee557c-Abstract.html).
    """

    normalizer: Normalizer = mean_over_terms

    compares_items = False

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the cross-entropies of the items, and normalises them."""
        values = sigmoid_cross_entropy(labels, scores)
        return of_items(self.normalizer, weights * values, mask)


@register
class MeanSquaredLoss(Normalized, ListwiseLoss):
    """Squared error of each score from its label.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = mean_i w_i * (s_i - min(max(y_i, lower), upper))**2
    ```

    Args:
        normalizer: What the sum over the items is divided by: `mean_over_terms`, `sum_over_terms`,
            `mean_over_slots`, or a registered function like these.
        min_label: Minimum label of a valid item: 0 if padding has the label -1.
        lower: The score that labels below it count as, where low scores do not matter.
        upper: The score that labels above it count as, such as the cap of a duration.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `lower` is not below `upper`.

    Inputs: as in `ListwiseLoss`, but any real number is a valid label, and NaN is padding, unless
    there is a `min_label`.

    Example:
        >>> loss = losses.MeanSquaredLoss()
        >>> y_true = tf.constant([[-1.0, 2.0, float("nan")]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> float(loss(y_true, y_pred))  # the mean of 1 and 4
        2.5

    Reference:
        [Cossock and Zhang, Subset Ranking Using Regression, 2006](
        https://link.springer.com/chapter/10.1007/11776420_44).
    """

    normalizer: Normalizer = mean_over_terms
    min_label: Bound = -math.inf
    lower: Bound = -math.inf
    upper: Bound = math.inf

    compares_items = False
    takes_classes = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lower < self.upper:
            raise refusal("`lower` must be below `upper`", lower=self.lower, upper=self.upper)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the squared errors of the items, and normalises them."""
        labels = xp.clip_by_value(labels, self.lower, self.upper)
        values = Identity(scale=2.0).potential(scores - labels)
        return of_items(self.normalizer, weights * values, mask)


@register
class OrdinalLoss(Normalized, ScoreVectorLoss):
    """Sum of the cross-entropies of the events that a label is at least 1, at least 2, and so on.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    t_ik = [y_i >= k],  or with use_fraction_label min(max(y_i - k + 1, 0), 1)
    loss = mean_i w_i * sum_{k=1}^K (log(1 + exp(s_ik)) - t_ik * s_ik)
    ```

    Items are ranked by `sum_k sigmoid(s_ik)`, the expected label.

    Args:
        ordinal_size: The number `K` of thresholds, which is the largest label; positive.
        use_fraction_label: Whether the fraction of a label counts, at the first threshold above the
            label.
        normalizer: What the sum over the items is divided by: `mean_over_terms`, `sum_over_terms`,
            `mean_over_slots`, or a registered function like these.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `ordinal_size` is not positive.

    Inputs: as in `ScoreVectorLoss`: an item has a score for each threshold.

    Example:
        >>> loss = losses.OrdinalLoss(ordinal_size=2)
        >>> y_true = tf.constant([[1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[[0.0, 0.0], [9.0, 9.0]]])
        >>> round(float(loss(y_true, y_pred)), 4)  # 2 * log(2)
        1.3863

    Reference:
        [Pobrotyn et al., Context-Aware Learning to Rank with Self-Attention, 2020](
        https://arxiv.org/abs/2005.10084).
    """

    ordinal_size: Count
    use_fraction_label: bool = False
    normalizer: Normalizer = mean_over_terms

    @property
    def num_scores(self) -> int:
        """One for each threshold."""
        return self.ordinal_size

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the cross-entropies of the items, and normalises them."""
        beyond = labels[..., xp.newaxis] - xp.range(self.ordinal_size, dtype=labels.dtype)
        if not self.use_fraction_label:
            beyond = xp.floor(beyond)
        targets = xp.clip_by_value(beyond, 0.0, 1.0)
        values = sigmoid_cross_entropy(targets, scores)
        return of_items(self.normalizer, weights * xp.reduce_sum(values, axis=-1), mask)


@register
class MultiClassLoss(Normalized, ScoreVectorLoss):
    """Softmax cross-entropy of each label, a class index.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`:

    ```
    t_ic = (1 - label_smoothing) * [c = y_i] + label_smoothing / num_classes
    loss = -mean_i w_i * sum_c t_ic * log softmax(s_i)_c
    ```

    Args:
        num_classes: Number of classes, at least 2; labels are 0 to `num_classes - 1`.
        label_smoothing: Share of each target that is spread over all classes; from 0 to 1.
        normalizer: What the sum over the items is divided by: `mean_over_terms`, `sum_over_terms`,
            `mean_over_slots`, or a registered function like these.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If there are fewer than two classes, or `label_smoothing` is not between 0
            and 1.

    Inputs: as in `ScoreVectorLoss`: an item has a score (a logit) for each class.

    Example:
        >>> loss = losses.MultiClassLoss(num_classes=2)
        >>> y_true = tf.constant([[1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[[0.0, 0.0], [9.0, 9.0]]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Li et al., Learning to Rank Using Classification and Gradient Boosting, 2007](
        https://papers.nips.cc/paper/2007/hash/b86e8d03fe992d1b0e19656875ee557c-Abstract.html).
    """

    num_classes: Annotated[int, Range("at least 2", ge=2)]
    label_smoothing: Share = 0.0
    normalizer: Normalizer = mean_over_terms

    @property
    def num_scores(self) -> int:
        """One for each class."""
        return self.num_classes

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the cross-entropies of the items, and normalises them."""
        one_hot = xp.one_hot(xp.cast(labels, xp.int32), self.num_classes, dtype=scores.dtype)
        targets = (1.0 - self.label_smoothing) * one_hot + self.label_smoothing / self.num_classes
        values = masking.cross_entropy(targets, scores, xp.ones_like(scores, xp.bool_))
        return of_items(self.normalizer, weights * values, mask)


def sigmoid_cross_entropy(targets: Tensor, scores: Tensor) -> Tensor:
    """Computes `log(1 + exp(s)) - t * s` without cancellation for `t` of 0 and 1."""
    link = Sigmoid()

    def value(s: Tensor) -> Tensor:
        linear = targets * xp.maximum(-s, 0.0) + (1.0 - targets) * xp.maximum(s, 0.0)
        return link.potential(-xp.abs(s)) + linear

    def slope(s: Tensor) -> Tensor:
        return xp.where(s > 0.0, (1.0 - targets) - link(-s), link(s) - targets)

    return bregman.with_derivative(value, slope, scores)


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

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds the cross-entropies of the items and of the list."""
        values = weights * sigmoid_cross_entropy(labels, scores)
        of_point = of_items(mean_over_terms, values, mask)
        targets = weights * BY_SHARES(labels, mask)
        of_list = masking.cross_entropy(targets, xp.log_sigmoid(scores), mask)
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

    num_scores = 2  # of irrelevance and of relevance

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds the cross-entropies of the items and of the list."""
        of_point = sigmoid_cross_entropy(labels, scores[..., 1] - scores[..., 0])
        total = self.alpha * masking.masked_sum(weights * of_point, mask)
        for targets, logits in ((labels, scores[..., 1]), (1.0 - labels, scores[..., 0])):
            of_list = masking.cross_entropy(weights * targets, logits, mask)
            total = total + (1.0 - self.alpha) * of_list
        return xp.divide_no_nan(total, masking.masked_sum(xp.ones_like(labels), mask))
