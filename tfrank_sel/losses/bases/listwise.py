"""The base of every loss."""

import functools
import math
from typing import Any, ClassVar

import tensorflow as tf

from tfrank_sel import stack
from tfrank_sel.compilation import Formula, shared, under_xla
from tfrank_sel.listwise import Listwise


class ListwiseLoss(Listwise, stack.Loss):
    """A loss over lists of scored items.

    A subclass is final: it keeps its constructor's arguments as attributes and writes `per_list`,
    nothing else. Masks, ragged inputs, weights, XLA and saving are done in `Listwise`, reduction
    in Keras.

    Args:
        reduction: How the losses of the lists become one, as in `keras.losses.Loss`. A list without
            a valid item has loss and weight zero: it counts in the mean over the batch, but not
            under `"mean_with_sample_weight"` (Keras 3).
        name: Name of the loss, under which Keras reports it if a model names no outputs; by default
            that of the class and of the options that are not the default, such as
            `softmax_loss_temperature_0_5`. Equal losses of such a model need names of their own.
        dtype: The dtype of the computation; `keras.config.floatx()` if `None`, also under mixed
            precision.

    Inputs: `y_true` and `y_pred` are `[batch_size, list_size]`, dense or ragged, of any numeric
    dtype. Where labels are relevances, `y_true` may also be integers `[batch_size]` or
    `[batch_size, 1]`, the index of the item of label 1 in each list: the other items have label 0,
    and a negative index is no item. An item is valid if its label is at least `min_label` (0,
    unless a subclass says otherwise) and not NaN, and if the Keras mask of `y_pred`, where there is
    one, is True. `sample_weight` is a scalar, `[batch_size]` or `[batch_size, 1]` per list, or
    `[batch_size, list_size]` per item. Gradients flow to `y_pred` alone. Where the score of a valid
    item is NaN or infinite, the loss of its list is NaN, even if the formula ignores that item;
    other lists are unaffected. To leave an item out, make it padding; in the top-k losses alone,
    the score `-inf` leaves it out, too.

    Raises:
        ValueError: If the shapes do not fit, or `y_true` is an index where labels are scores.
    """

    takes_minus_infinity: ClassVar[bool] = False  # True if an item of that score is left out

    def __init__(
        self,
        name: str | None = None,
        *,
        reduction: str | None = "sum_over_batch_size",
        dtype: str | None = None,
    ) -> None:
        super().__init__(name=name or self.default_name, reduction=reduction, dtype=dtype)

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        batch = self.batch_of(y_true, y_pred, sample_weight, self.dtype)
        y_true = (batch.labels, batch.mask, batch.weights)
        value = super().__call__(y_true, batch.scores, batch.list_weights)
        # Keras gives a vector where there are no lists
        return value if self.reduction in (None, "none") else tf.reduce_sum(value)

    def call(self, y_true: Any, y_pred: tf.Tensor) -> tf.Tensor:
        """Computes the loss of each list; `y_true` holds what `__call__` read."""
        labels, mask, weights = y_true
        return self.compiled(labels, y_pred, tf.cast(mask, tf.bool), weights)  # Keras cast the mask

    @functools.cached_property
    def compiled(self) -> Formula:
        """`per_list` under XLA, in whatever mode the caller runs; gradients flow to the scores.

        Equal losses share it. It is NaN for a list with a score that is not finite.
        """
        formula = or_nan(self.per_list, self.takes_minus_infinity)
        return shared(self.meaning, lambda: under_xla(formula, self.padding))


def or_nan(formula: Formula, takes_minus_infinity: bool = False) -> Formula:
    """Makes the value of a list NaN where a score of a valid item is NaN or infinite.

    A formula that compares such scores may well find a number: no comparison holds for NaN, and
    an infinite score can have a finite loss whose gradient is not.
    """

    def checked(
        labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        values = formula(labels, scores, mask, weights)
        is_held = scores < math.inf if takes_minus_infinity else tf.math.is_finite(scores)
        is_held = tf.reduce_all(is_held, axis=list(range(1, len(scores.shape))))
        return values * tf.where(is_held, tf.ones([], values.dtype), math.nan)

    return checked
