"""Base of the losses that compare scores with scores."""

import abc
import math
from typing import Any

import tensorflow as tf

from tfrank_sel.links.base import Link
from tfrank_sel.listwise import ListBatch
from tfrank_sel.losses.bases.listwise import ListwiseLoss


class ScoreLoss(ListwiseLoss):
    """A loss whose labels are observed scores, or are mapped to scores.

    A subclass implements `per_list`, as any loss does. Padded slots hold a score inside the domain
    of the link, so that no value there is NaN.

    Args:
        link: The link, or scaling, whose domain the scores are in.
        label_map: Link that maps a label to a score, such as `links.labels.gain()`. If `None`,
            labels are scores.
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Raises:
        TypeError: If `link` or `label_map` is not a link, such as a class of links.

    Inputs: as in `ListwiseLoss`, but labels are scores: any real number is valid, and NaN is
    padding. The index of one item is not accepted: it gives no score to the other items. With a
    `label_map`, labels are relevances, and labels below 0 are padding, too. Predictions must lie in
    the domain of the link: outside, the loss is NaN.
    """

    takes_classes = False

    @property
    @abc.abstractmethod
    def link(self) -> Any:
        """The link, or composite link, of the scores."""

    def __post_init__(self) -> None:
        self._origin = self.link.origin

    @property
    @abc.abstractmethod
    def label_map(self) -> Link | None:
        """The link that maps a label to a score; `None` if labels are scores."""

    @property
    def min_label(self) -> float:
        """The minimum label of a valid item; any score is valid."""
        return -math.inf if self.label_map is None else 0.0

    @property
    def padding(self) -> float | None:
        """A score inside the domain."""
        return self._origin

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras, and maps labels to scores."""
        batch = super().batch_of(y_true, y_pred, sample_weight, dtype)
        labels, mask = batch.observed_scores(self.label_map), batch.mask
        return ListBatch(
            labels=tf.where(mask, labels, self._origin),
            scores=tf.where(mask, batch.scores, self._origin),
            mask=mask,
            weights=tf.where(mask, batch.weights, 0.0),
            list_weights=batch.list_weights * tf.cast(tf.reduce_any(mask, axis=1), dtype),
        )
