"""The base of the losses that go through a list in the order of its labels."""

import abc
import functools

import tensorflow as tf

from tfrank_sel.listwise import Formula, under_xla
from tfrank_sel.losses.base import ListwiseLoss
from tfrank_sel.ops import ranking


class LabelOrderedLoss(ListwiseLoss):
    """A loss over lists that are sorted by descending labels.

    A subclass writes `of_sorted`. Lists are sorted before the formula is compiled: XLA sorts more
    slowly than TensorFlow.

    Args:
        name: Name of the loss.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `ListwiseLoss`.
    """

    @abc.abstractmethod
    def of_sorted(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Computes the loss of each list, whose labels descend and whose padding is last."""

    def per_list(
        self, labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
    ) -> tf.Tensor:
        """Sorts each list and computes its loss."""
        return self.of_sorted(*_by_label(labels, scores, mask, weights))

    @functools.cached_property
    def compiled(self) -> Formula:
        """`per_list`, all but the sorting under XLA."""
        of_sorted = under_xla(self.of_sorted, in_one_pass=True)
        return lambda *fields: of_sorted(*_by_label(*fields))


def _by_label(
    labels: tf.Tensor, scores: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor
) -> list[tf.Tensor]:
    return ranking.sort_by(labels, labels, scores, mask, weights, mask=mask)
