"""Losses of classes: multi-label, and n rows of m classes with rare and common ones balanced."""

import abc
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.errors import refusal
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.bases import ListwiseLoss
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import masking, one_class
from tfrank_sel.serialization import register


@register
class ZLPRLoss(ListwiseLoss):
    """Softmax cross-entropy for multi-label classification (zero-bounded log-sum-exp, ZLPR).

    For each list of label probabilities `t` in `y_true` and scores `s` in `y_pred`:

    ```
    loss = log(1 + sum_i w_i * t_i * exp(threshold - s_i))
         + log(1 + sum_i w_i * (1 - t_i) * exp(s_i - threshold))
    ```

    Hard labels, 0 and 1, push the scores of true labels above the threshold and all others below
    it. The gradient of each side sums to less than one, for any number of labels. For soft labels,
    the minimum is exactly at `sigmoid(2 * (s - threshold)) = t`, not at `sigmoid(s) = t`.

    Args:
        threshold: Score that separates true labels from false ones.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `ListwiseLoss`, but labels are probabilities; a label above 1 counts as 1. An item
    of weight 2 counts like two equal items.

    Example:
        >>> loss = losses.ZLPRLoss()
        >>> y_true = tf.constant([[1.0, 0.0, -1.0]])  # the last item is padding
        >>> y_pred = tf.constant([[0.0, 0.0, 9.0]])
        >>> round(float(loss(y_true, y_pred)), 4)  # 2 * log(2)
        1.3863

    Reference:
        [Su et al., ZLPR: A Novel Loss for Multi-label Classification, 2022](
        https://arxiv.org/abs/2208.02955).
    """

    threshold: float = 0.0

    compares_items = False
    has_class_form = True
    weighs_others = True

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Adds the loss of the class and that of all others."""
        target, has_class = (
            one_class.scores_of(classes, scores),
            one_class.are_there(classes, scores),
        )
        of_one = xp.where(has_class, xp.softplus(self.threshold - target), 0.0)
        return of_one + _softplus(one_class.log_sum_exp_beside(classes, scores) - self.threshold)

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds the losses of the true labels and of the false ones."""
        t = xp.where(mask, xp.minimum(labels, 1.0), 0.0)
        return _zlpr(t, scores - self.threshold, xp.where(mask, weights, 0.0))

    def probabilities(self, y_pred: Any) -> Tensor:
        """Converts scores to the probability of each label, `sigmoid(2 * (s - c))`.

        Args:
            y_pred: Scores `s`, of any shape; `c` is the threshold.

        Returns:
            The probabilities, of the shape of `y_pred`: above 1/2 where the score is above `c`.

        Example:
            >>> losses.ZLPRLoss(threshold=1.0).probabilities(tf.constant([1.0])).numpy().tolist()
            [0.5]
        """
        return xp.sigmoid(2.0 * (xp.convert_to_tensor(y_pred) - self.threshold))


def _softplus(x: Tensor) -> Tensor:
    """`log(1 + exp(x))`, also of -inf."""
    is_some = x > -math.inf
    return xp.where(is_some, xp.softplus(xp.where(is_some, x, 0.0)), 0.0)


def _zlpr(t: Tensor, s: Tensor, weights: Tensor) -> Tensor:
    """Computes the loss, with a gradient that is also accurate near the optimum."""

    def value(s: Tensor) -> Tensor:
        held = masking.log1p_sum_exp(-s, weights * t)
        return held + masking.log1p_sum_exp(s, weights * (1.0 - t))

    @xp.custom_gradient
    def f(s: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            [far] = xp.vjp(value, s)[1](upstream)
            is_near, near = _slope_near_optimum(t, s, weights)
            return xp.where(is_near, upstream[:, xp.newaxis] * near, far)

        return value(s), gradient

    return f(s)


def _slope_near_optimum(t: Tensor, s: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the gradient of lists near their optimum, and a mask of these lists.

    With `d = 2 * s - logit(t)`, both terms of the gradient, and the sums `S` of either side, are
    multiples of each other:

    ```
    (1 - t_i) * exp(s_i) = t_i * exp(-s_i) * exp(d_i)
    log(1 + S_neg) = log(1 + S_pos) + log1p(sum_i t_i * exp(-s_i) * expm1(d_i) / (1 + S_pos))
    ```
    """
    counts = weights > 0.0
    soft = counts & (t > 0.0) & (t < 1.0)
    t = xp.where(soft, t, 0.5)
    d = 2.0 * s - (xp.log(t) - xp.log1p(-t))
    is_near = xp.reduce_all(xp.where(soft, xp.abs(d) < 1.0, ~counts), axis=-1, keepdims=True)
    use = soft & is_near
    s, d = xp.where(use, s, 0.0), xp.where(use, d, 0.0)
    positive = xp.where(use, weights * t * xp.exp(-s), 0.0)
    total = 1.0 + xp.reduce_sum(positive, axis=-1, keepdims=True)
    excess = xp.reduce_sum(positive * xp.expm1(d), axis=-1, keepdims=True)
    return is_near, positive / total * xp.expm1(d - xp.log1p(excess / total))


class NWayLoss(ListwiseLoss):
    """A loss over the rows of a batch; each row has a score for every class.

    A subclass implements `per_class`: each class sums over all rows inside one logarithm, so that
    its share of the gradient is bounded for any number of rows.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: `y_true` and `y_pred` are `[batch_size, num_rows, num_classes]`, where `num_rows` may be
    ragged. The labels of a row are probabilities that sum to 1, or one-hot. A row is valid if no
    label of it is below 0 or NaN, and if the Keras mask of `y_pred`, `[batch_size, num_rows]`, if
    any, is True. `sample_weight` is a scalar, `[batch_size]` or `[batch_size, 1]`, or
    `[batch_size, num_rows]`: a row of weight 2 counts like two equal rows. If all rows of a batch
    form one group, inputs are `[num_rows, num_classes]`, and weights `[num_rows]`.

    Raises:
        ValueError: If the shapes do not fit, or there are fewer than two classes.
    """

    compares_items = False
    takes_classes = False

    @abc.abstractmethod
    def per_class(self, masses: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss of each class, `[batch_size, num_classes]`.

        Args:
            masses: The label of each row and class times the weight of the row, 0 on padding;
                `[batch_size, num_rows, num_classes]`.
            scores: The scores of each row, 0 on padding; of the shape of `masses`.
        """

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras: the items are rows, and labels and scores have classes."""
        keras_mask = xp.get_keras_mask(y_pred)
        labels, scores = (_dense(x, dtype) for x in (y_true, y_pred))
        if xp.rank(labels) is None:  # a function was traced for labels of several ranks
            labels = xp.ensure_shape(labels, scores.shape)
        if xp.rank(scores) == 2 and xp.rank(labels) == 2:
            labels, scores = labels[xp.newaxis], scores[xp.newaxis]
            keras_mask = None if keras_mask is None else xp.reshape(keras_mask, [1, -1])
            if sample_weight is not None:
                sample_weight = xp.reshape(_dense(sample_weight, dtype), [1, -1])
        if xp.rank(scores) != 3 or not xp.static_shape(labels).is_compatible_with(scores.shape):
            raise refusal(
                "`y_true` and `y_pred` must have shape [batch_size, num_rows, num_classes]",
                f"y_true.shape={labels.shape}, y_pred.shape={scores.shape}",
            )
        if scores.shape[-1] is not None and scores.shape[-1] < 2:
            raise refusal("There must be at least two classes", f"y_pred.shape={scores.shape}")
        # a row is treated as an item with the smallest of its labels: NaN or below 0 is padding
        is_labelled = xp.reduce_all(labels >= 0.0, axis=-1)
        rows = xp.where(is_labelled, xp.zeros_like(scores[..., 0]), -1.0)
        items = xp.zeros_like(rows)
        if keras_mask is not None:
            items = xp.set_keras_mask(items, keras_mask)
        batch = super().batch_of(rows, items, sample_weight, dtype)
        mask = batch.mask[..., xp.newaxis]
        return batch._replace(
            labels=xp.where(mask, labels, 0.0),
            scores=masking.centre(xp.where(mask, scores, 0.0), mask),
        )

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Adds up the losses of the classes."""
        weights = xp.where(mask, weights, 0.0)[..., xp.newaxis]
        return xp.reduce_sum(self.per_class(weights * labels, scores), axis=-1)


@register
class NWayJointLoss(NWayLoss):
    """All competitors of a class inside one logarithm, which rebalances rare classes.

    For rows `i` of probabilities `t_ij` in `y_true` and scores `s_ij` in `y_pred`:

    ```
    loss = sum_j log(1 + sum_i w_i * t_ij * sum_{k != j} exp(s_ik - s_ij))
    ```

    Its optimum is not `t`, but `softmax(2 * s_i)_j = t_ij / A_j / sum_k t_ik / A_k`, where
    `log A_j` is the loss of class `j`: `A_j` grows with the number of rows of a class, so that rare
    classes win. `probabilities` undoes this. Memory is
    `O(batch_size * num_rows * num_classes)`.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `NWayLoss`.

    Example:
        >>> loss = losses.NWayJointLoss()
        >>> y_true = tf.constant([[[0.0, 1.0], [0.0, 1.0]]])  # two rows of one class
        >>> round(float(loss(y_true, tf.zeros([1, 2, 2]))), 4)  # log(3)
        1.0986

    Reference:
        [Su, n-way m-class softmax, 2022](https://kexue.fm/archives/9158).
    """

    def per_class(self, masses: Tensor, scores: Tensor) -> Tensor:
        """Computes `log A_j`."""
        return masking.log1p_sum_exp(log_sum_exp_of_others(scores) - scores, masses, axis=1)

    def class_factors(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        """Computes the factor `A_j` of each class, `[batch_size, num_classes]`.

        Args:
            y_true: Labels that the model was trained on.
            y_pred: Its scores of them.
            sample_weight: Their weights.

        Returns:
            The factors that `probabilities` takes.
        """
        batch = self.batch_of(y_true, y_pred, sample_weight, self.dtype)
        masses = batch.weights[..., xp.newaxis] * batch.labels
        return xp.exp(self.per_class(masses, batch.scores))

    def probabilities(self, y_pred: Any, class_factors: Any) -> Tensor:
        """Converts scores to probabilities, proportional to `A_j * exp(2 * s_ij)`.

        Args:
            y_pred: Scores, `[batch_size, num_rows, num_classes]`.
            class_factors: The factors `A_j` of the training set, `[batch_size, num_classes]`.

        Returns:
            The probabilities, of the shape of `y_pred`.
        """
        log_factors = xp.log(xp.convert_to_tensor(class_factors))[..., xp.newaxis, :]
        return xp.softmax(2.0 * xp.convert_to_tensor(y_pred) + log_factors)


@register
class NWayMeanLoss(NWayLoss):
    """Each class against the mean score of its row: exact for soft labels, too weak for hard ones.

    For rows `i` of probabilities `t_ij` in `y_true` and scores `s_ij` in `y_pred`:

    ```
    loss = sum_j log(1 + sum_i w_i * t_ij * exp(mean_k s_ik - s_ij))
    ```

    Its optimum is `softmax(s_i) = t_i`. For hard labels, the loss is already small if the score of
    the class is above the mean of the row, even if another class has a higher score.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `NWayLoss`.

    Example:
        >>> loss = losses.NWayMeanLoss()
        >>> y_true = tf.constant([[[0.0, 1.0], [0.0, 1.0]]])
        >>> round(float(loss(y_true, tf.zeros([1, 2, 2]))), 4)  # log(3)
        1.0986

    Reference:
        [Su, n-way m-class softmax, 2022](https://kexue.fm/archives/9158).
    """

    def per_class(self, masses: Tensor, scores: Tensor) -> Tensor:
        """Computes the logarithm of each class."""
        mean = xp.reduce_mean(scores, axis=-1, keepdims=True)
        return masking.log1p_sum_exp(mean - scores, masses, axis=1)

    def probabilities(self, y_pred: Any) -> Tensor:
        """Converts scores to probabilities, `softmax(s)`.

        Args:
            y_pred: Scores, of which the last axis holds the classes.

        Returns:
            The probabilities, of the shape of `y_pred`.
        """
        return xp.softmax(xp.convert_to_tensor(y_pred))


@register
class NWayPairwiseLoss(NWayLoss):
    """One logarithm for each pair of classes: exact for soft and for hard labels.

    For rows `i` of probabilities `t_ij` in `y_true` and scores `s_ij` in `y_pred`:

    ```
    loss = sum_{j != k} log(1 + sum_i w_i * c_j * t_ij * exp((s_ik - s_ij) / scale))
    ```

    It is convex, with the optimum `softmax(2 * s_i / scale)_j` proportional to `c_j * t_ij`. For
    two classes and `scale=1` it is the `ZLPRLoss` of the difference of their scores. It equalises
    the gradient of the classes, but its optimum is the label: only `c` rebalances the classes, such
    as one over the number of their rows.

    Unlike the joint loss, a pair has no row-wise form that is stable for all scores. So the classes
    `j` are computed one at a time, in both directions: memory is
    `O(batch_size * num_rows * num_classes)`, and time is `num_classes` times that.

    Args:
        scale: Divides the scores; positive. With 2, the optimum is `softmax(s_i) = t_i`.
        class_weights: The weight `c_j` of each class, positive; 1 if `None`.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        ValueError: If `scale` or a class weight is not positive.

    Inputs: as in `NWayLoss`.

    Example:
        >>> loss = losses.NWayPairwiseLoss(class_weights=[0.5, 1.0])
        >>> y_true = tf.constant([[[1.0, 0.0], [1.0, 0.0]]])
        >>> round(float(loss(y_true, tf.zeros([1, 2, 2]))), 4)  # log(1 + 0.5 * 2)
        0.6931

    Reference:
        It answers the question that [Su, n-way m-class softmax, 2022](
        https://kexue.fm/archives/9158) leaves open.
    """

    scale: Positive = 1.0
    class_weights: Sequence[float] | None = None

    def __post_init__(self) -> None:
        if self.class_weights is None:
            return
        if not all(c > 0.0 for c in self.class_weights):
            raise refusal("`class_weights` must be positive", class_weights=self.class_weights)
        self.class_weights = [float(c) for c in self.class_weights]

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras, and checks that the number of class weights matches."""
        batch = super().batch_of(y_true, y_pred, sample_weight, dtype)
        self._weights(batch.scores)
        return batch

    def per_class(self, masses: Tensor, scores: Tensor) -> Tensor:
        """Computes, for each class, the sum of its pairs."""
        return pair_sums(self._weights(scores) * masses, scores / self.scale)

    def probabilities(self, y_pred: Any) -> Tensor:
        """Converts scores to probabilities, without the effect of the class weights.

        Args:
            y_pred: Scores, of which the last axis holds the classes.

        Returns:
            The probabilities, of the shape of `y_pred`.
        """
        scores = xp.convert_to_tensor(y_pred)
        return xp.softmax(2.0 * scores / self.scale - xp.log(self._weights(scores)))

    def _weights(self, scores: Tensor) -> Tensor:
        if self.class_weights is None:
            return xp.ones([1], scores.dtype)
        if scores.shape[-1] not in (None, len(self.class_weights)):
            raise refusal(
                "`class_weights` must have one weight for each class",
                f"class_weights={self.class_weights}, y_pred.shape={scores.shape}",
            )
        return xp.constant(self.class_weights, scores.dtype)


def _dense(x: Any, dtype: str) -> Tensor:
    """Casts to `dtype` and pads ragged rows with NaN."""
    if isinstance(x, xp.RaggedTensor):
        return xp.cast(x, dtype).to_tensor(math.nan)
    return xp.cast(xp.convert_to_tensor(x), dtype)


class JointOptimum(NamedTuple):
    """The minimum of an `NWayJointLoss`.

    Attributes:
        scores: The optimal scores, `[num_rows, num_classes]`, of mean 0 in each row.
        class_factors: The factor `A_j` of each class there, `[num_classes]`; the least loss is the
            sum of their logarithms.
    """

    scores: NDArray[np.float64]
    class_factors: NDArray[np.float64]


def joint_optimum(labels: ArrayLike) -> JointOptimum:
    """Computes the scores that minimise `NWayJointLoss` for soft labels.

    With `A_j = exp(loss_j)` held fixed, the gradient of a row is zero at

    ```
    softmax(2 * s_i)_j = t_ij / A_j / sum_k t_ik / A_k
    ```

    This leaves `num_classes` equations for `B_j = sqrt(A_j)`, with
    `M_jk = sum_i sqrt(t_ij * t_ik)`:

    ```
    B_j - 1 / B_j = sum_{k != j} M_jk / B_k
    ```

    which Newton's method solves in the logarithms of `B`.

    Args:
        labels: Probabilities `t_ij`, `[num_rows, num_classes]`, all of them positive.

    Returns:
        The optimal scores and the factors of the classes.

    Raises:
        ValueError: If a label is not positive: the optimal scores are then infinite.

    Example:
        >>> scores, class_factors = losses.joint_optimum([[0.5, 0.5]])
        >>> scores.tolist(), class_factors.round(9).tolist()
        ([[0.0, 0.0]], [1.5, 1.5])
    """
    t = np.asarray(labels, np.float64)
    if t.ndim != 2 or not np.all(t > 0.0):
        raise refusal(
            "`labels` must be positive, of shape [num_rows, num_classes]",
            f"shape {t.shape}, least label {np.min(t, initial=np.inf)}",
        )
    overlaps = np.sqrt(t).T @ np.sqrt(t)
    np.fill_diagonal(overlaps, 0.0)
    # b = log(B); if all classes were equal, B**2 would be 1 + the sum of overlaps
    b = 0.5 * np.log1p(overlaps.sum(axis=1))
    for _ in range(100):
        slope = np.diag(2.0 * np.cosh(b)) + overlaps * np.exp(-b)
        step = np.linalg.solve(slope, overlaps @ np.exp(-b) - 2.0 * np.sinh(b))
        b += np.clip(step, -1.0, 1.0)
        if np.max(np.abs(step)) < 1e-14:
            break
    scores = 0.5 * np.log(t) - b
    return JointOptimum(scores - scores.mean(axis=1, keepdims=True), np.exp(2.0 * b))


def log_sum_exp_of_others(scores: Tensor) -> Tensor:
    """Computes `log sum_{k != j} exp(s_ik)` for each class `j` of each row `i`."""
    highest = xp.argmax(scores, axis=-1)
    is_top = xp.one_hot(highest, xp.shape(scores)[-1], on_value=True, off_value=False)
    top = xp.stop_gradient(xp.reduce_max(scores, axis=-1, keepdims=True))
    exp = xp.exp(scores - top)
    # without the other class the sum still contains the top, 1, so the difference does not cancel
    others = xp.reduce_sum(exp, axis=-1, keepdims=True) - exp
    below_top = top + xp.log(xp.where(is_top, xp.ones_like(exp), others))
    at_top = masking.log_sum_exp(scores, ~is_top)[..., xp.newaxis]
    return xp.where(is_top, at_top, below_top)


def pair_sums(masses: Tensor, scores: Tensor) -> Tensor:
    """Computes `sum_{k != j} log(1 + sum_i m_ij * exp(s_ik - s_ij))` for each class `j`.

    One class is compared at a time, also in the gradient, so memory is that of the scores.

    Args:
        masses: The mass `m_ij` of each row in each class, at least 0.
        scores: The scores `s_ij`.

    Returns:
        The sum of each class, `[batch_size, num_classes]`, differentiable in the scores.
    """
    classes = xp.range(xp.shape(scores)[-1])

    def of_class(j: Tensor, scores: Tensor) -> Tensor:
        is_j = classes == j
        target, mass = (
            xp.reduce_sum(xp.where(is_j, x, xp.zeros_like(x)), axis=-1, keepdims=True)
            for x in (scores, masses)
        )
        pairs = masking.log1p_sum_exp(scores - target, mass, axis=1)
        return masking.masked_sum(pairs, xp.broadcast_to(~is_j, xp.shape(pairs)))

    @xp.custom_gradient
    def f(scores: Tensor) -> tuple[Tensor, object]:
        def gradient(upstream: Tensor) -> Tensor:
            def add(j: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
                here = xp.reduce_sum(xp.where(classes == j, upstream, 0.0), axis=-1)
                return j + 1, total + xp.vjp(lambda s: of_class(j, s), scores)[1](here)[0]

            return _loop(classes, add, xp.zeros_like(scores))

        def add(j: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            value = of_class(j, scores)[:, xp.newaxis]
            return j + 1, total + xp.where(classes == j, value, xp.zeros_like(total))

        return _loop(classes, add, xp.reduce_sum(xp.zeros_like(scores), axis=1)), gradient

    return f(scores)


def _loop(classes: Tensor, body: object, start: Tensor) -> Tensor:
    size = xp.size(classes)
    return xp.while_loop(lambda j, _: j < size, body, (xp.constant(0), start))[1]
