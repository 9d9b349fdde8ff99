"""Base of every loss."""

import functools
import math
from dataclasses import field
from typing import Any, ClassVar

import tensorflow as tf

from tfrank_sel import stack
from tfrank_sel.compilation import Formula, differentiable, in_graph
from tfrank_sel.listwise import Listwise


class ListwiseLoss(Listwise, stack.Loss):
    """A loss over lists of scored items.

    A subclass is final: it declares the arguments of its constructor as annotated attributes, like
    a dataclass, and implements `per_list`, nothing else. `Listwise` handles masks, ragged inputs,
    weights and saving; Keras handles the reduction.

    Args:
        reduction: Reduction of the losses of the lists, as in `keras.losses.Loss`. A list without
            a valid item has loss and weight zero: it counts in the mean over the batch, but not
            under `"mean_with_sample_weight"` (Keras 3).
        name: Name of the loss, under which Keras reports it if the outputs of the model have no
            names. The default is made of the class and the options that differ from their defaults,
            such as `softmax_loss_temperature_0_5`. Give equal losses of one model unique names.
        dtype: The dtype of the computation; `keras.config.floatx()` if `None`, also under mixed
            precision.

    Inputs: `y_true` and `y_pred` are `[batch_size, list_size]`, dense or ragged, of any numeric
    dtype. Where labels are relevances, `y_true` may also be integers `[batch_size]` or
    `[batch_size, 1]`, the index of the item of label 1 in each list: the other items have label 0,
    and a negative index means no item. An item is valid if its label is at least `min_label` (0
    unless a subclass sets another) and not NaN, and if the Keras mask of `y_pred`, if any, is True.
    `sample_weight` is a scalar, `[batch_size]` or `[batch_size, 1]` per list, or
    `[batch_size, list_size]` per item. Gradients flow only to `y_pred`. If the score of a valid
    item is NaN or infinite, the loss of its list is NaN, even if the formula ignores that item;
    other lists are unaffected. To exclude an item, make it padding; in the top-k losses only, the
    score `-inf` also excludes it.

    Raises:
        ValueError: If the shapes do not match, or `y_true` is an index but labels are scores.
    """

    reduction: str | None = field(default="sum_over_batch_size", kw_only=True)

    takes_minus_infinity: ClassVar[bool] = False  # True if an item with that score is excluded

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        batch = self.batch_of(y_true, y_pred, sample_weight, self.dtype)
        y_true = (batch.labels, batch.mask, batch.weights)
        value = super().__call__(y_true, batch.scores, batch.list_weights)
        # Keras passes a vector if there are no lists
        return value if self.reduction in (None, "none") else tf.reduce_sum(value)

    def call(self, y_true: Any, y_pred: tf.Tensor) -> tf.Tensor:
        """Computes the loss of each list; `y_true` is the batch that `__call__` read."""
        labels, mask, weights = y_true
        return self.checked(labels, y_pred, tf.cast(mask, tf.bool), weights)  # Keras cast the mask

    @functools.cached_property
    def checked(self) -> Formula:
        """`or_nan`, which equal losses share as graphs in eager mode."""
        return in_graph(self.meaning, self.or_nan, differentiable)

    def or_nan(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes `per_list`, but NaN for a list with a valid item of score NaN or infinity.

        The formula could return a number for such scores: every comparison with NaN is False, and
        an infinite score can have a finite loss with an infinite gradient.
        """
        values = self.per_list(labels, scores, mask, weights)
        is_held = scores < math.inf if self.takes_minus_infinity else tf.math.is_finite(scores)
        is_held = tf.reduce_all(is_held, axis=list(range(1, len(scores.shape))))
        return values * tf.where(is_held, tf.ones([], values.dtype), math.nan)
