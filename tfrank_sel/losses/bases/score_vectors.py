"""Base of the losses whose items have several scores each."""

import math
from typing import Any

import tensorflow as tf

from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.bases.listwise import ListwiseLoss


class ScoreVectorLoss(ListwiseLoss):
    """A loss over lists of items that each have one label and a vector of scores.

    A subclass implements `per_list`, whose scores are `[batch_size, list_size, num_scores]`, and
    may set `num_scores` to the number of scores that it takes.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `ListwiseLoss`, but `y_pred` is `[batch_size, list_size, num_scores]`, where
    `list_size` may be ragged.

    Raises:
        ValueError: If the shapes do not fit.
    """

    compares_items = False
    takes_classes = False

    @property
    def num_scores(self) -> int | None:
        """The number of scores of an item; `None` if any number is accepted."""
        return None

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras: an item either has all its scores or is padding."""
        keras_mask = getattr(y_pred, "_keras_mask", None)
        scores = y_pred if isinstance(y_pred, tf.RaggedTensor) else tf.convert_to_tensor(y_pred)
        shape = tf.TensorShape([None, None, self.num_scores])
        if not scores.shape.is_compatible_with(shape):
            raise ValueError(
                "`y_pred` must have shape [batch_size, list_size, "
                f"{self.num_scores or 'num_scores'}]. Received: y_pred.shape={scores.shape}"
            )
        scores = tf.cast(scores, dtype)
        if isinstance(scores, tf.RaggedTensor):
            vectors = scores.values
            if isinstance(vectors, tf.RaggedTensor):
                vectors = vectors.to_tensor(math.nan)
            items = scores.with_values(tf.zeros(tf.shape(vectors)[:1], dtype))
            scores = scores.with_values(vectors)
        else:
            items = tf.zeros(tf.shape(scores)[:2], dtype)
            items.set_shape(scores.shape[:2])
        if keras_mask is not None:
            items._keras_mask = keras_mask
        batch = super().batch_of(y_true, items, sample_weight, dtype)
        if isinstance(scores, tf.RaggedTensor):
            scores = scores.to_tensor(math.nan, shape=[None, tf.shape(batch.mask)[1], None])
        return batch._replace(scores=tf.where(batch.mask[..., tf.newaxis], scores, 0.0))
