"""Averaging of a metric over lists: which lists count, and their weights.

Pass one of these values to a metric as `averaging`.
"""

import abc
from typing import NamedTuple

from tfrank_sel import numerics as xp
from tfrank_sel.listwise import ListBatch
from tfrank_sel.numerics import Tensor
from tfrank_sel.serialization import Frozen, register


class Worth(NamedTuple):
    """The worth of the items of a batch to a metric.

    Attributes:
        items: Worth of each item to the metric: its gain, or 1 for a relevant item and 0 for
            another. For a list without worth, the metric is not defined and its value is 0.
        weighs_items: Whether the formula of the measure contains the weights of items.
        pooled: Whether the measure is an average over the worth of all lists together, such as over
            all pairs.
    """

    items: Tensor
    weighs_items: bool
    pooled: bool


class Averaging(Frozen, abc.ABC):
    """The meaning of the weights of lists and items for a metric.

    It is a value: two objects with the same parameters are equal. Its parameters are saved.
    """

    def mask(self, batch: ListBatch) -> Tensor:
        """Returns which items are ranked."""
        return batch.mask

    @abc.abstractmethod
    def weigh(self, batch: ListBatch, worth: Worth) -> ListBatch:
        """Returns a batch of the items of `mask` with the weights that the metric uses."""


@register
class AllLists(Averaging):
    """Every list counts with its own weight; the weights of items count within their list.

    A list without a relevant item has the value 0 and counts, as in TREC evaluation.

    Example:
        >>> metric = metrics.MRR(averaging=metrics.averaging.AllLists())
        >>> float(metric([[0.0, 1.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]))
        0.5
    """

    def weigh(self, batch: ListBatch, worth: Worth) -> ListBatch:
        return batch


@register
class DefinedLists(Averaging):
    """Only lists for which the metric is defined count: those with a relevant item, or a pair.

    An item of weight 0 makes no metric defined. Otherwise as `AllLists`.

    Example:
        >>> metric = metrics.MRR(averaging=metrics.averaging.DefinedLists())
        >>> float(metric([[0.0, 1.0], [0.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]))
        1.0
    """

    def weigh(self, batch: ListBatch, worth: Worth) -> ListBatch:
        counts = xp.reduce_any((worth.items > 0.0) & (batch.weights != 0.0), axis=-1)
        weights = batch.list_weights * xp.cast(counts, batch.list_weights.dtype)
        return batch._replace(list_weights=weights)


@register
class ByRelevance(Averaging):
    """Weights as in tensorflow-ranking: the mean weight of the relevant items of each list.

    ```
    weight of a list = sum_i w_i * worth_i / sum_i worth_i
    ```

    where `w` are the weights of the items times that of their list and `worth` their gains, or
    their relevances if the measure is binary. An item of weight 0 is removed. Measures of gain
    also weight items within the list, relative to the weight of the list; other measures do not.
    ARP and OPA average over all relevances and pairs, regardless of their lists: for these, the
    weight of a list is only the sum.

    The weight of a list without a relevant item is the mean weight of its items, and a list without
    an item does not count. (tensorflow-ranking replaces both weights by a mean over the batch, so
    that its results depend on the batch size.)

    Example:
        >>> metric = metrics.MRR(averaging=metrics.averaging.ByRelevance())
        >>> y_true, y_pred = [[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]]
        >>> float(metric(y_true, y_pred, [[9.0, 1.0], [3.0, 9.0]]))  # (1 * 1 + 3 / 2) / (1 + 3)
        0.625
    """

    def mask(self, batch: ListBatch) -> Tensor:
        return batch.mask & (batch.list_weights[:, xp.newaxis] * batch.weights > 0.0)

    def weigh(self, batch: ListBatch, worth: Worth) -> ListBatch:
        ones = xp.cast(batch.mask, batch.weights.dtype)
        weights = batch.list_weights[:, xp.newaxis] * batch.weights * ones
        items = worth.items * ones
        total = xp.reduce_sum(weights * items, axis=-1)
        of_lists = xp.divide_no_nan(total, xp.reduce_sum(items, axis=-1))
        count = xp.reduce_sum(ones, axis=-1)
        plain = xp.divide_no_nan(xp.reduce_sum(weights, axis=-1), count)
        of_lists = xp.where(xp.reduce_any(items > 0.0, axis=-1), of_lists, plain)
        return batch._replace(
            weights=xp.divide_no_nan(weights, of_lists[:, xp.newaxis])
            if worth.weighs_items
            else ones,
            list_weights=total if worth.pooled else of_lists,
        )


ALL_LISTS = AllLists()
DEFINED_LISTS = DefinedLists()
BY_RELEVANCE: Averaging = ByRelevance()
