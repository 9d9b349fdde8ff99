"""Top-k losses, which are small if the relevant items are among the `k` best."""

import abc
import math
import warnings
from typing import Any

import tensorflow as tf

from tfrank_sel.arguments import AtLeast0, Count, Positive
from tfrank_sel.listwise import ListBatch, as_lists
from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.losses.topk.forms import Form, mean_over_relevant
from tfrank_sel.ops import class_labels, masking
from tfrank_sel.ops.selection import HardSelection, Selection, SoftSelection
from tfrank_sel.serialization import register


class _TopKLoss(ListwiseLoss):
    """A loss of the `k` best items of a list, or of the `k` most likely classes."""

    takes_minus_infinity = True

    k: Count
    margin: AtLeast0 = 1.0
    form: Form = mean_over_relevant

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"`dtype` must be float32 or float64. Received: dtype={self.dtype}")

    @property
    @abc.abstractmethod
    def selection(self) -> Selection:
        """The selection of the `k` best items."""

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads labels of items, as any loss does, or class labels, as `of_class` takes them."""
        y_pred = as_lists(y_pred)
        classes = class_labels.indices(y_true, y_pred)
        if classes is None:
            batch = super().batch_of(y_true, y_pred, sample_weight, dtype)
        elif _tells_classes_apart(y_pred, sample_weight):
            y_true = class_labels.one_hot(classes, y_pred)
            batch = super().batch_of(y_true, y_pred, sample_weight, dtype)
        else:
            labels, scores = classes[:, tf.newaxis], tf.cast(y_pred, dtype)
            valid = tf.zeros_like(labels, dtype)
            batch = ListBatch.of(valid, scores[:, :1], sample_weight, min_label=0.0, dtype=dtype)
            batch = batch._replace(labels=labels, scores=scores)
        size = batch.scores.shape[1]
        if size is not None and self.k >= size:
            warnings.warn(
                f"{type(self).__name__} is 0 for lists of up to `k` items. Received: k={self.k}, "
                f"y_pred.shape={batch.scores.shape}",
                stacklevel=3,
            )
        return batch

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the loss of each list; for class labels, all but the scores are columns."""
        size = scores.shape[1]
        if size is not None and self.k >= size:
            return masking.masked_sum(scores, tf.zeros_like(scores, tf.bool))
        if labels.shape[1] == 1 and size != 1:
            return weights[:, 0] * self._of_class(tf.cast(labels[:, 0], tf.int32), scores)
        return self.form(self.selection, self.margin, labels, scores, mask, weights)

    def _of_class(self, label: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        """Computes the loss of one relevant item, equal in all forms, without a one-hot row."""
        valid = (label >= 0) & (label < tf.shape(scores)[1])
        kth, score = self.selection.kth_largest_beside(scores, tf.where(valid, label, -1))
        valid &= kth > -math.inf
        missing = self.margin + (tf.where(valid, kth, 0.0) - score) / self.k
        return tf.cast(tf.where(valid, self.selection.hinge(missing), 0.0), scores.dtype)


@register
class SmoothTopKLoss(_TopKLoss):
    """Smooth top-k loss: small if the relevant item is among the `k` best.

    For each list of scores `s` and a relevant item `y`, whose competitors are the other items:

    ```
    T    = k * tau * (log sigma_k(e) - log sigma_{k-1}(e)), e_j = exp(s_j / (k * tau)), j != y
    loss = tau * softplus((margin + (T - s_y) / k) / tau)
    ```

    where `sigma_m` is the elementary symmetric polynomial of degree `m`, the sum over all sets of
    `m` competitors of the product of their `e_j`. So `T` is a soft `k`-th largest score of the
    competitors. With `k = 1`, `tau = 1` and `margin = 0` the loss is the softmax cross-entropy.
    With a small `tau` it is close to `TopKHingeLoss`, whose gradient is non-zero for at most
    `k + 1` items; with a large `tau`, more items have a gradient. The loss is 0 for a list of up to
    `k` items, because all of them are among the `k` best.

    The guide to top-k losses, `docs/topk.md`, tells when to use `TopKCrossEntropyLoss` or
    `SoftmaxLoss` instead: if labels are right, this loss has a low top-1 accuracy.

    Args:
        k: Number of best items; positive.
        tau: Temperature, positive. `callbacks.AnnealTau` changes `current_tau` as training goes.
        margin: Margin by which the relevant item must be ahead, in units of the mean score of `k`
            items; at least 0.
        form: Loss of a list with several relevant items. `losses.mean_over_relevant` (the default)
            requires each of them to be among the `k` best of itself and the irrelevant items;
            `losses.hit_at_k` requires one; `losses.recall_structured` requires as many as possible.
            The default averages the original loss over the relevant items: it is as fast, uses
            graded labels and item weights, and its value does not grow with the number of items.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`; `dtype` is float32 or float64.

    Raises:
        ValueError: If `k` or `tau` is not positive, or `margin` is negative.

    Inputs: as in `ListwiseLoss`, where an item is relevant if its label is positive, and in the
    mean over relevant items a label is a weight. For classification, `y_true` is the index of the
    relevant class, `[batch_size]` or `[batch_size, 1]`, and `y_pred` has the scores of all classes,
    `[batch_size, classes]`; a negative index means no relevant class, and the loss is 0.

    Example:
        >>> loss = losses.SmoothTopKLoss(2, tau=0.1)
        >>> y_pred = tf.constant([[5.0, 4.0, 1.0, 0.0]])
        >>> round(float(loss(tf.constant([1]), y_pred)), 4)  # second, by more than k * margin
        0.0007
        >>> round(float(loss(tf.constant([2]), y_pred)), 4)  # third: 1 + (4 - 1) / 2
        2.4993
        >>> float(loss(tf.constant([[0.0, 0.0, 1.0, 0.0]]), y_pred)) == float(
        ...     loss(tf.constant([2]), y_pred)
        ... )
        True

    Reference:
        [Berrada et al., Smooth Loss Functions for Deep Top-k Classification, 2018](
        https://arxiv.org/abs/1802.07595).
    """

    def __init__(
        self,
        k: Count,
        tau: Positive = 1.0,
        margin: AtLeast0 = 1.0,
        form: Form = mean_over_relevant,
        **kwargs: Any,
    ) -> None:
        super().__init__(k, margin, form, **kwargs)
        self.tau = tau
        # A variable, so that a compiled training step reads the value that a callback has set
        self.current_tau = tf.Variable(tau, trainable=False, dtype=tf.float64, name="tau")

    @property
    def selection(self) -> Selection:
        """A sample of `k` items at the current temperature."""
        return SoftSelection(self.k, tf.convert_to_tensor(self.current_tau))


@register
class TopKHingeLoss(_TopKLoss):
    """Top-k hinge loss: 0 if the relevant item is among the `k` best by a margin.

    For each list of scores `s` and a relevant item `y`:

    ```
    loss = max(0, margin + (s_(k) - s_y) / k)
    ```

    where `s_(k)` is the `k`-th largest score of the other items. It is the limit of
    `SmoothTopKLoss` as `tau` goes to 0.

    Args:
        k: Number of best items; positive.
        margin: As in `SmoothTopKLoss`.
        form: As in `SmoothTopKLoss`.
        **kwargs: `reduction` and `dtype`, as in `SmoothTopKLoss`.

    Raises:
        ValueError: If `k` is not positive, or `margin` is negative.

    Inputs: as in `SmoothTopKLoss`.

    Example:
        >>> loss = losses.TopKHingeLoss(2)
        >>> y_pred = tf.constant([[5.0, 4.0, 1.0, 0.0]])
        >>> float(loss(tf.constant([2]), y_pred))  # third: 1 + (4 - 1) / 2
        2.5

    Reference:
        [Lapin et al., Top-k Multiclass SVM, 2015](https://arxiv.org/abs/1511.06683); [Berrada et
        al., Smooth Loss Functions for Deep Top-k Classification, 2018](
        https://arxiv.org/abs/1802.07595), equation 4.
    """

    k: Count
    margin: AtLeast0 = 1.0
    form: Form = mean_over_relevant

    @property
    def selection(self) -> Selection:
        """The `k` items with the largest scores."""
        return HardSelection(self.k)


def _tells_classes_apart(y_pred: Any, sample_weight: Any) -> bool:
    """Whether rows, a mask or weights differ between classes, as they do between items."""
    if getattr(y_pred, "_keras_mask", None) is not None:
        return True
    if isinstance(y_pred, tf.RaggedTensor) or isinstance(sample_weight, tf.RaggedTensor):
        return True
    shape = (
        tf.TensorShape([]) if sample_weight is None else tf.convert_to_tensor(sample_weight).shape
    )
    return shape.rank == 2 and shape[1] != 1
