"""Mean of a metric or a loss over lists that lie one after the other."""

import functools
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.metrics import ItemMetric, ListwiseMetric
from tfrank_sel.metrics.base import RankedMetric
from tfrank_sel.objectives.labels import check_labels
from tfrank_sel.objectives.lists import DATA_SETS, Lists, as_scores, content

Metric = ListwiseMetric | ItemMetric | ListwiseLoss


class Measured:
    """The weighted mean of a metric or a loss over a set of lists.

    The value of a calibration metric is that of the items of all lists. By default a ranking metric
    is averaged over the orders of items with equal scores, so that the order of the rows does not
    count.

    Args:
        metric: The metric, or the loss, whose `reduction` is ignored.

    Raises:
        TypeError: If `metric` is neither.
    """

    def __init__(self, metric: Metric) -> None:
        if not isinstance(metric, Metric):
            raise TypeError(f"`metric` must be a metric or a loss. Received: metric={metric!r}")
        self.metric = metric.over_ties() if isinstance(metric, RankedMetric) else metric
        self._lists = functools.lru_cache(DATA_SETS)(self._read)

    def __deepcopy__(self, memo: Any) -> "Measured":
        return self  # a function, as `Derivatives`

    def __reduce__(self) -> tuple[type["Measured"], tuple[Any, ...]]:
        return type(self), (self.metric,)

    @property
    def is_maximised(self) -> bool:
        """Whether larger values are better."""
        return getattr(self.metric, "_direction", "down") == "up"

    def __call__(
        self,
        labels: ArrayLike,
        scores: ArrayLike,
        weights: ArrayLike | None = None,
        group: ArrayLike | None = None,
    ) -> float:
        """Computes the mean; the arguments are those of `Derivatives`."""
        lists: Lists = self._lists(*content(labels, weights, group))
        items = np.append(as_scores(scores, len(lists.places)), 0.0)
        batches = (
            (y_true, items[index].reshape(y_true.shape), sample_weight)
            for y_true, sample_weight, index in lists.padded()
        )
        if isinstance(self.metric, ItemMetric):
            return _of_items(self.metric, batches)
        total = weight = 0.0
        for batch in batches:
            values, list_weights = self._of_lists(*batch)
            counted = np.broadcast_to(list_weights, values.shape)
            total += float(np.sum(np.where(counted > 0.0, counted * values, 0.0)))
            weight += float(np.sum(counted))
        return total / weight if weight else 0.0

    def _read(self, labels: bytes, weights: bytes | None, group: bytes) -> Lists:
        lists = Lists.of(labels, weights, group)
        check_labels(self.metric, lists.labels)
        return lists

    def _of_lists(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any]:
        if isinstance(self.metric, ListwiseMetric):
            found = self.metric.evaluate(y_true, y_pred, sample_weight)
            return np.asarray(found.values), np.asarray(found.weights)
        batch = self.metric.batch_of(y_true, y_pred, sample_weight, self.metric.dtype)
        values = self.metric.checked(*batch[:4])
        return np.asarray(values), np.asarray(batch.list_weights)


def _of_items(metric: ItemMetric, batches: Iterable[tuple[Any, Any, Any]]) -> float:
    fresh = type(metric).from_config(metric.get_config())  # keeps the sums of `metric`
    for batch in batches:
        fresh.update_state(*batch)
    return float(fresh.result())
