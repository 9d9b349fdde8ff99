"""The base of every metric."""

from typing import Any

import keras
import tensorflow as tf

from tfrank_sel.listwise import Listwise


class ListwiseMetric(Listwise, keras.metrics.Mean):
    """The weighted mean over lists of a ranking measure; a subclass writes `per_list`.

    A list without a valid item is not counted. A list without a relevant item is 0 and counted, as
    in TREC evaluation.

    Args:
        name: Name of the metric.
        dtype: The dtype of the computation.

    Inputs: `y_true` and `y_pred` are `[batch_size, list_size]`, dense or ragged, of any numeric
    dtype. An item is valid if its label is at least 0 and not NaN, and if the Keras mask of
    `y_pred`, where there is one, is True. `sample_weight` is a scalar, `[batch_size]` or
    `[batch_size, 1]` per list, or `[batch_size, list_size]` per item.

    Raises:
        ValueError: If the shapes do not fit.
    """

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch of lists to the mean."""
        batch = self.batch_of(y_true, y_pred, sample_weight, self.dtype)
        values = self.compiled(batch.labels, batch.scores, batch.mask, batch.weights)
        weights = tf.broadcast_to(batch.list_weights, tf.shape(values))
        super().update_state(values, sample_weight=weights)
