"""The base of every loss."""

from typing import Any

import tensorflow as tf

from tfrank_sel import stack
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
        name: Name of the loss.
        dtype: The dtype of the computation; `keras.config.floatx()` if `None`, also under mixed
            precision.

    Inputs: `y_true` and `y_pred` are `[batch_size, list_size]`, dense or ragged, of any numeric
    dtype. An item is valid if its label is at least `min_label` (0, unless a subclass says
    otherwise) and not NaN, and if the Keras mask of `y_pred`, where there is one, is True.
    `sample_weight` is a scalar, `[batch_size]` or `[batch_size, 1]` per list, or
    `[batch_size, list_size]` per item. Gradients flow to `y_pred` alone.

    Raises:
        ValueError: If the shapes do not fit.
    """

    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> tf.Tensor:
        batch = self.batch_of(y_true, y_pred, sample_weight, self.dtype)
        y_true = (batch.labels, batch.mask, batch.weights)
        return super().__call__(y_true, batch.scores, batch.list_weights)

    def call(self, y_true: Any, y_pred: tf.Tensor) -> tf.Tensor:
        """Computes the loss of each list; `y_true` holds what `__call__` read."""
        labels, mask, weights = y_true
        return self.compiled(labels, y_pred, tf.cast(mask, tf.bool), weights)  # Keras cast the mask

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments that make an equal loss."""
        return {**super().get_config(), "dtype": self.dtype}  # which Keras forgets
