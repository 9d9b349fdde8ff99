"""Base of the losses that process a list in the order of its labels."""

import abc

import tensorflow as tf

from tfrank_sel.losses.bases.listwise import ListwiseLoss
from tfrank_sel.ops import label_order


class LabelOrderedLoss(ListwiseLoss):
    """A loss over lists that are sorted by descending labels.

    A subclass implements `of_sorted`. The loss of a list is multiplied by
    `sum_i w_i * y_i / sum_i y_i`. It is 0 for a list without a relevant item.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.
    """

    @abc.abstractmethod
    def of_sorted(self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Computes the loss of each list, sorted by descending labels, with the padding last."""

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Sorts each list, and computes its weighted loss."""
        weight = tf.reduce_sum(tf.where(mask, weights * labels, 0.0), axis=-1)
        weight = tf.math.divide_no_nan(weight, tf.reduce_sum(labels, axis=-1))
        return weight * self.of_sorted(*label_order.sort(labels, scores, mask))
