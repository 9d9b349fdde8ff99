"""Softmax cross-entropies of a list, their variants, and the likelihood of its order."""

from collections.abc import Callable
from typing import Annotated

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import AtLeast0, Positive, Range
from tfrank_sel.losses.bases import LabelOrderedLoss, ListwiseLoss
from tfrank_sel.losses.lambdas import SwapLambdaWeight
from tfrank_sel.losses.targets import BY_SHARES, Targets
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import label_order, masking, one_class, ranking
from tfrank_sel.serialization import register


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

    ignores_level = True

    temperature: Positive = 1.0
    targets: Targets = BY_SHARES
    lambda_weight: SwapLambdaWeight | None = None

    @property
    def largest_label(self) -> float:
        if self.lambda_weight is not None:
            return self.lambda_weight.largest_label(self.dtype)
        return self.targets.largest_label(self.dtype)

    @property
    def has_class_form(self) -> bool:
        return self.lambda_weight is None and self.targets == BY_SHARES

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the cross-entropy of each class."""
        return one_class.cross_entropy(classes, masking.logits(scores, None, self.temperature))

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the cross-entropy of each list."""
        if self.lambda_weight is not None:
            labels = self.lambda_weight.items(labels, scores, mask)
        targets = weights * self.targets(labels, mask)
        return masking.cross_entropy(targets, masking.logits(scores, mask, self.temperature), mask)


@register
class CalibratedSoftmaxLoss(ListwiseLoss):
    """Softmax cross-entropy of each list and a virtual item of score 0, which anchors the scores.

    For each list of relevances `y` in `y_true` and scores `s` in `y_pred`, with one more item, of
    label `virtual_label`, score 0 and weight 1:

    ```
    loss = -sum_i w_i * t_i * log softmax(s / temperature)_i
    ```

    where `t` are the targets, by default `t_i = y_i / sum_j y_j`. A softmax alone does not change
    if a constant is added to all scores of a list. Here, items that are more relevant than the
    virtual item get scores above 0, so that scores of different lists are comparable. With
    `virtual_label=0`, a list without a relevant item has no effect; with a positive
    `virtual_label`, its scores fall below 0.

    Args:
        virtual_label: The label of the virtual item, at least 0.
        temperature: Divides the scores; positive.
        targets: Makes the targets of the labels, as in `SoftmaxLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `virtual_label` is negative, or `temperature` is not positive.

    Example:
        >>> loss = losses.CalibratedSoftmaxLoss(virtual_label=1.0)
        >>> y_true = tf.constant([[1.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2)
        0.6931

    Reference:
        [Yan et al., Scale Calibration of Deep Ranking Models, 2022](
        https://dl.acm.org/doi/10.1145/3534678.3539072).
    """

    virtual_label: AtLeast0 = 0.0
    temperature: Positive = 1.0
    targets: Targets = BY_SHARES

    compares_items = False

    @property
    def largest_label(self) -> float:
        return self.targets.largest_label(self.dtype)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the cross-entropy of each list with its virtual item."""
        labels, scores, weights = (
            xp.pad(x, [[0, 0], [0, 1]], constant_values=xp.constant(virtual, x.dtype))
            for x, virtual in ((labels, self.virtual_label), (scores, 0.0), (weights, 1.0))
        )
        mask = xp.concat([mask, xp.reduce_any(mask, axis=1, keepdims=True)], axis=1)
        targets = weights * self.targets(labels, mask)
        return masking.cross_entropy(targets, scores / self.temperature, mask)


@register
class PolyOneSoftmaxLoss(ListwiseLoss):
    """Softmax cross-entropy with another weight of the first polynomial term (Poly-1).

    For each list of relevances `y` in `y_true` and scores `s` in `y_pred`, with
    `p = softmax(s / temperature)`:

    ```
    loss = sum_i w_i * t_i * (-log(p_i) + epsilon * (1 - p_i))
    ```

    where `t` are the targets, by default `t_i = y_i / sum_j y_j`, so that the loss is 0 for a list
    without a relevant item. As `-log(p) = (1 - p) + (1 - p)**2 / 2 + ...`, a positive `epsilon`
    gives more weight to the first term, the only one whose gradient does not vanish as `p` nears 1.

    Args:
        epsilon: Number added to the coefficient of `1 - p`; at least -1.
        temperature: Divides the scores; positive.
        targets: Makes the targets of the labels, as in `SoftmaxLoss`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `epsilon` is below -1, or `temperature` is not positive.

    Example:
        >>> loss = losses.PolyOneSoftmaxLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(2) + 1/2
        1.1931

    Reference:
        [Leng et al., PolyLoss: A Polynomial Expansion Perspective of Classification Loss Functions,
        2022](https://arxiv.org/abs/2204.12511).
    """

    ignores_level = True

    epsilon: Annotated[float, Range("at least -1", ge=-1.0)] = 1.0
    temperature: Positive = 1.0
    targets: Targets = BY_SHARES

    @property
    def largest_label(self) -> float:
        return self.targets.largest_label(self.dtype)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds the cross-entropy and the gap between the probabilities and 1."""
        x = masking.logits(scores, mask, self.temperature)
        targets = weights * self.targets(labels, mask)
        return masking.cross_entropy(targets, x, mask) + self.epsilon * _missing_mass(
            targets, x, mask
        )


def _missing_mass(targets: Tensor, x: Tensor, mask: Tensor) -> Tensor:
    """Computes `sum_i t_i * (1 - p_i)` of each list, `p = softmax(x)`.

    Its gradient, `p_i * sum_j p_j * (t_j - t_i)`, is computed relative to the target of the largest
    score, so that items tied there cancel.
    """

    @xp.custom_gradient
    def f(x: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            p, scores = masking.softmax(x, mask), xp.where(mask, x, xp.limits(x.dtype).min)
            at_top = mask & (scores == xp.reduce_max(scores, axis=-1, keepdims=True))
            top = xp.reduce_max(xp.where(at_top, targets, 0.0), axis=-1, keepdims=True)
            below = xp.where(mask, top - targets, 0.0)
            mean = xp.reduce_sum(p * below, axis=-1, keepdims=True)
            return upstream[:, xp.newaxis] * p * (below - mean)

        return masking.masked_sum(targets * masking.softmax_complement(x, mask), mask), gradient

    return f(x)


@register
class UniqueSoftmaxLoss(LabelOrderedLoss):
    """Softmax cross-entropy of each item among those less relevant than itself.

    For each list of relevances `y` in `y_true` and scores `s` in `y_pred`, for
    `x = s / temperature`:

    ```
    loss = w * sum_i gain(y_i) * log(1 + sum_{j: y_j < y_i} exp(x_j - x_i))
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    Relevant items do not compete with others of their label. It is 0 for a list without a relevant
    item.

    Args:
        temperature: Divides the scores; positive.
        gain: Maps labels to gains, at least 0.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> loss = losses.UniqueSoftmaxLoss()
        >>> y_true = tf.constant([[1.0, 1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[2.0, 2.0, 2.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # 2 * log(2)
        1.3863

    Reference:
        [Zhu and Klabjan, Listwise Learning to Rank by Exploring Unique Ratings, 2020](
        https://arxiv.org/abs/2001.01828).
    """

    ignores_level = True

    temperature: Positive = 1.0
    gain: Callable[[Tensor], Tensor] = ranking.exponential_gain

    @property
    def largest_label(self) -> float:
        return ranking.largest_label(self.gain, self.dtype)

    def of_sorted(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Adds up the contrasts of each item with those less relevant."""
        x = masking.at_temperature(scores, mask, self.temperature)
        top, log_sum = label_order.log_sum_exp_below(x, labels, mask)
        return masking.masked_sum(self.gain(labels) * xp.softplus((top - x) + log_sum), mask)


@register
class ListMLELoss(LabelOrderedLoss):
    """Negative log-likelihood of the order of the labels (ListMLE and p-ListMLE).

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, in the order `1, ..., n` of
    descending labels, and for `x = s / temperature`:

    ```
    loss = w * sum_r c(r) * (log sum_{i >= r} exp(x_i) - x_r)
    w    = sum_i w_i * y_i / sum_i y_i
    ```

    where `c` is the weight of a position, 1 by default. It is 0 for a list without a relevant item.

    Items of equal labels have no order among themselves, but a model would learn the order in which
    the list holds them. Here tied items share their positions (Efron's method for ties). Let `G` be
    a group of `m` items of equal labels. The position `r` of the `l`-th of them, counted from 0,
    has their mean score, and the group counts in the sum with the fraction that is left of it:

    ```
    x_r                      ->  mean_{i in G} x_i
    sum_{i >= r} exp(x_i)    ->  (1 - l / m) * sum_{i in G} exp(x_i) + sum_{i behind G} exp(x_i)
    ```

    The order of the items of a list is then irrelevant. The value lies between the mean and the
    maximum of those of all orders of the ties, and is their mean where tied items have equal
    scores.

    Args:
        position_weight: Maps 1-based positions to their weights `c`, at least 0; 1 if `None`. A
            decreasing one, such as `ops.ranking.log2_discount`, makes it p-ListMLE.
        temperature: Divides the scores; positive.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `temperature` is not positive.

    Example:
        >>> loss = losses.ListMLELoss()
        >>> y_true = tf.constant([[2.0, 1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[3.0, 3.0, 3.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # log(3) + log(2)
        1.7918
        >>> y_true = tf.constant([[1.0, 0.0]])
        >>> float(loss(y_true, tf.constant([[500.0, -500.0]])))  # exact, however sure the model is
        0.0

    Reference:
        [Xia et al., Listwise Approach to Learning to Rank, 2008](
        https://dl.acm.org/doi/10.1145/1390156.1390306); [Lan et al., Position-Aware ListMLE, 2014](
        https://auai.org/uai2014/proceedings/individuals/164.pdf); for ties, [Efron, The Efficiency
        of Cox's Likelihood Function for Censored Data, 1977](https://doi.org/10.2307/2286217).
    """

    ignores_level = True

    position_weight: Callable[[Tensor], Tensor] | None = None
    temperature: Positive = 1.0

    def of_sorted(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Adds up the positions of each list."""
        x = masking.at_temperature(scores, mask, self.temperature)
        group = label_order.groups(labels, mask)
        positions = ranking.positions(x)
        first, behind = (xp.cast(place, x.dtype) for place in group)
        passed = (positions - 1.0 - first) / (behind - first)
        sums = label_order.sum_exp_behind(x, mask)
        top, total = (label_order.at(part, group.first) for part in sums)
        top_below, below = (label_order.at(part, group.behind) for part in sums)
        left = (1.0 - passed) * total + passed * xp.exp(top_below - top) * below
        log_left = xp.log(xp.where(mask, left, 1.0))
        if self.position_weight is None:
            return masking.masked_sum((top - x) + log_left, mask)
        c = xp.broadcast_to(self.position_weight(positions), xp.shape(x))
        up_to = xp.pad(xp.cumsum(c, axis=-1), [[0, 0], [1, 0]])
        # tied items have the mean score, so each has the mean weight of the positions of its group
        share = label_order.at(up_to, group.behind) - label_order.at(up_to, group.first)
        return masking.masked_sum(c * log_left + share / (behind - first) * (top - x), mask)
