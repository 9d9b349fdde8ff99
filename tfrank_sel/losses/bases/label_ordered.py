"""Base of the losses that process a list in the order of its labels."""

import abc
import functools

import tensorflow as tf

from tfrank_sel.compilation import Formula, shared, under_xla
from tfrank_sel.losses.bases.listwise import ListwiseLoss, or_nan
from tfrank_sel.ops import label_order


class LabelOrderedLoss(ListwiseLoss):
    """A loss over lists that are sorted by descending labels.

    A subclass implements `of_sorted`. The loss of a list is multiplied by
    `sum_i w_i * y_i / sum_i y_i`. It is 0 for a list without a relevant item. Lists are sorted
    before the formula is compiled: XLA sorts more slowly than TensorFlow.

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
        return self._weighted(*_sorted(labels, scores, mask, weights))

    @functools.cached_property
    def compiled(self) -> Formula:
        """`per_list` with everything but the sorting compiled by XLA."""
        weighted = shared(self.meaning, lambda: under_xla(or_nan(self._weighted), self.padding))
        return lambda *fields: weighted(*_sorted(*fields))

    def _weighted(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weighted_labels: tf.Tensor
    ) -> tf.Tensor:
        weight, total = (tf.reduce_sum(x, axis=-1) for x in (weighted_labels, labels))
        return tf.math.divide_no_nan(weight, total) * self.of_sorted(labels, scores, mask)


def _sorted(
    labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
) -> tuple[tf.Tensor, ...]:
    """Sorts all but the weights, of which only a sum is needed."""
    weighted = tf.where(mask, weights * labels, 0.0)
    return (*label_order.sort(labels, scores, mask), weighted)
