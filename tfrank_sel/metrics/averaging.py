"""How the values of lists become one: which lists count, and what their weights are.

The values here are given to a metric as `averaging`.
"""

import abc
import dataclasses
from typing import NamedTuple

import tensorflow as tf

from tfrank_sel.listwise import ListBatch
from tfrank_sel.serialization import Configurable, register


class Worth(NamedTuple):
    """What a metric says of the items of a batch.

    Attributes:
        items: What each item is worth to the metric: its gain, or 1 for a relevant item and 0 for
            another. A list without worth has no value of its own, which is 0 then.
        weighs_items: Whether the weights of items belong to the formula of the measure.
        pooled: Whether the measure is an average over the worth of all lists, as of all pairs.
    """

    items: tf.Tensor
    weighs_items: bool
    pooled: bool


@dataclasses.dataclass(frozen=True)
class Averaging(Configurable, abc.ABC):
    """What the weights of lists and items mean to a metric.

    It is a value: two with the same parameters are equal, and are saved by their parameters.
    """

    def mask(self, batch: ListBatch) -> tf.Tensor:
        """Returns which items are ranked."""
        return batch.mask

    @abc.abstractmethod
    def weighed(self, batch: ListBatch, worth: Worth) -> ListBatch:
        """Returns a batch of the items of `mask` with the weights that the metric computes with."""


@register
@dataclasses.dataclass(frozen=True)
class AllLists(Averaging):
    """Every list counts by its own weight; the weights of items weigh within the list.

    A list without a relevant item is 0 and counted, as in TREC evaluation.

    Example:
        >>> metric = metrics.MRR(averaging=metrics.averaging.AllLists())
        >>> float(metric([[0.0, 1.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]))
        0.5
    """

    def weighed(self, batch: ListBatch, worth: Worth) -> ListBatch:
        return batch


@register
@dataclasses.dataclass(frozen=True)
class DefinedLists(Averaging):
    """Lists that have a value count: those with a relevant item, or a pair to order.

    Otherwise as `AllLists`.

    Example:
        >>> metric = metrics.MRR(averaging=metrics.averaging.DefinedLists())
        >>> float(metric([[0.0, 1.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]))
        1.0
    """

    def weighed(self, batch: ListBatch, worth: Worth) -> ListBatch:
        counts = tf.reduce_any(batch.mask & (worth.items > 0.0), axis=-1)
        weights = batch.list_weights * tf.cast(counts, batch.list_weights.dtype)
        return batch._replace(list_weights=weights)


@register
@dataclasses.dataclass(frozen=True)
class ByRelevance(Averaging):
    """Weights as in tensorflow-ranking: a list weighs what its relevant items weigh on average.

    ```
    weight of a list = sum_i w_i * worth_i / sum_i worth_i
    ```

    where `w` are the weights of the items times that of their list and `worth` their gains, or
    their relevances if the measure is binary. An item of weight 0 is removed. Measures of gain
    weigh items within the list, too, relative to the weight of the list; other ones do not. ARP
    and OPA average over all relevances and pairs, whatever their lists: there the weight of a list
    is the sum alone.

    A list without a relevant item weighs the mean of its items, and one without an item does not
    count. (tensorflow-ranking replaces both weights by a mean over the batch, so that its results
    depend on the batch size.)

    Example:
        >>> metric = metrics.MRR(averaging=metrics.averaging.ByRelevance())
        >>> y_true, y_pred = [[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]
        >>> float(metric(y_true, y_pred, [[9.0, 1.0], [3.0, 9.0]]))  # (1 * 1 + 3 / 2) / (1 + 3)
        0.625
    """

    def mask(self, batch: ListBatch) -> tf.Tensor:
        return batch.mask & (batch.list_weights[:, tf.newaxis] * batch.weights > 0.0)

    def weighed(self, batch: ListBatch, worth: Worth) -> ListBatch:
        ones = tf.cast(batch.mask, batch.weights.dtype)
        weights = batch.list_weights[:, tf.newaxis] * batch.weights * ones
        items = worth.items * ones
        total = tf.reduce_sum(weights * items, axis=-1)
        of_lists = tf.math.divide_no_nan(total, tf.reduce_sum(items, axis=-1))
        count = tf.reduce_sum(ones, axis=-1)
        plain = tf.math.divide_no_nan(tf.reduce_sum(weights, axis=-1), count)
        of_lists = tf.where(tf.reduce_any(items > 0.0, axis=-1), of_lists, plain)
        return batch._replace(
            weights=tf.math.divide_no_nan(weights, of_lists[:, tf.newaxis])
            if worth.weighs_items
            else ones,
            list_weights=total if worth.pooled else of_lists,
        )


ALL_LISTS = AllLists()
DEFINED_LISTS = DefinedLists()
BY_RELEVANCE = ByRelevance()
