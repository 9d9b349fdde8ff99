"""Diversity metrics: coverage of the subtopics of a query by the top items."""

from typing import Any

import tensorflow as tf

from tfrank_sel.arguments import Cutoff
from tfrank_sel.listwise import ListBatch, check_row_lengths
from tfrank_sel.metrics.base import BinaryMetric
from tfrank_sel.metrics.ties import Ranks
from tfrank_sel.serialization import register


class DiversityMetric(BinaryMetric):
    """A measure of items that cover subtopics; a subclass implements `at_ranks`.

    Args:
        **kwargs: As in `BinaryMetric`.

    Inputs: as in `ListwiseMetric`, but `y_true` is `[batch_size, list_size, subtopics]`: the
    relevance of each item to each subtopic. A label below 0 or NaN is padding; an item is padding
    if all its labels are.
    """

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras, with labels of three axes."""
        if isinstance(y_true, tf.RaggedTensor):
            if isinstance(y_pred, tf.RaggedTensor):
                check_row_lengths(y_true, y_pred)
            y_true = tf.cast(y_true, dtype).to_tensor(float("nan"))
        labels = tf.cast(tf.convert_to_tensor(y_true), dtype)
        if not labels.shape.is_compatible_with([None, None, None]):
            raise ValueError(
                "`y_true` must have shape [batch_size, list_size, subtopics]. "
                f"Received: y_true.shape={labels.shape}"
            )
        labels = tf.ensure_shape(labels, [None, None, None])
        valid = labels >= self.min_label
        items = tf.where(tf.reduce_any(valid, axis=-1), tf.ones([], dtype), float("nan"))
        batch = super().batch_of(items, y_pred, sample_weight, dtype)
        valid &= batch.mask[:, :, tf.newaxis]
        return batch._replace(labels=tf.where(valid, labels, tf.zeros_like(labels)))

    def counted(self, batch: ListBatch) -> tf.Tensor:
        """Returns the valid items; also an item of weight 0 covers its subtopics."""
        return batch.mask

    def worth(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns 1 for an item that is relevant to a subtopic and 0 for another."""
        return tf.reduce_max(self.covered(labels, mask), axis=-1)

    def covered(self, labels: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
        """Returns 1 for each subtopic that an item covers, `[batch_size, list_size, subtopics]`."""
        # an item covers none if there is no subtopic
        labels = tf.pad(labels, [[0, 0], [0, 0], [0, 1]])
        return super().worth(labels, mask[:, :, tf.newaxis])


@register
class PrecisionIA(DiversityMetric):
    """Intent-aware precision at `k`: the precision for a subtopic, averaged over subtopics.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with `T` subtopics that any
    item of the list is relevant to:

    ```
    P-IA@k(y, s) = sum_t sum_i [y_it > 0] * [rank_i(s) <= k] * w_i / (T * k)
    ```

    It is 0 for a list without a relevant item.

    Args:
        k: Number of top ranks that count; if `None`, the number of items of each list.
        clip_k: Whether to divide a list of fewer than `k` items by their number.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive.

    Example:
        >>> precision = metrics.PrecisionIA(k=1)
        >>> y_true = tf.constant([[[0.0, 1.0], [1.0, 0.0], [-1.0, -1.0]]])  # the last is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0]])
        >>> float(precision(y_true, y_pred))  # one of two subtopics
        0.5

    Reference:
        [Clarke et al., Overview of the TREC 2009 Web Track, 2009](
        https://trec.nist.gov/pubs/trec18/papers/WEB09.OVERVIEW.pdf).
    """

    k: Cutoff = None
    clip_k: bool = False

    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the number of subtopics that the top items cover by the maximum."""
        covered = self.covered(labels, mask)
        found = tf.reduce_sum(ranks.at(weights * tf.reduce_sum(covered, axis=-1)), axis=-1)
        return tf.math.divide_no_nan(found, ranks.depths(self.clip_k) * _subtopics(covered))


@register
class SubtopicRecall(DiversityMetric):
    """Share of the subtopics that any of the top `k` items covers.

    For each list of labels `y` in `y_true` and scores `s` in `y_pred`, with `T` subtopics that any
    item of the list is relevant to:

    ```
    S-recall@k(y, s) = sum_t max_i [y_it > 0] * [rank_i(s) <= k] * w_i / T
    ```

    It is 0 for a list without a relevant item.

    Args:
        k: Number of top ranks that count; all of them if `None`.
        **kwargs: `relevance_level`, `ties`, `averaging` and `dtype`, as in `BinaryMetric`.

    Raises:
        ValueError: If `k` is not positive, or ties are to be averaged.

    Example:
        >>> recall = metrics.SubtopicRecall(k=1)
        >>> y_true = tf.constant([[[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]])  # the last is padding
        >>> y_pred = tf.constant([[3.0, 1.0, 9.0]])
        >>> float(recall(y_true, y_pred))
        0.5

    Reference:
        [Zhai et al., Beyond independent relevance, 2003](https://doi.org/10.1145/860435.860440).
    """

    k: Cutoff = None

    averages_ties = False
    weighs_items = False

    def at_ranks(
        self, labels: tf.Tensor, mask: tf.Tensor, weights: tf.Tensor, ranks: Ranks
    ) -> tf.Tensor:
        """Divides the number of subtopics covered by the top items by that of the whole list."""
        covered = weights[:, :, tf.newaxis] * self.covered(labels, mask)
        # a row of zeros in front: no item covers no subtopic
        on_top = tf.pad(ranks.gathered(covered), [[0, 0], [1, 0], [0, 0]])
        found = tf.reduce_sum(tf.reduce_max(on_top, axis=1), axis=-1)
        return tf.math.divide_no_nan(found, _subtopics(self.covered(labels, mask)))


def _subtopics(covered: tf.Tensor) -> tf.Tensor:
    """Counts the subtopics that at least one item of each list covers."""
    return tf.reduce_sum(tf.cast(tf.reduce_any(covered > 0.0, axis=1), covered.dtype), axis=-1)
