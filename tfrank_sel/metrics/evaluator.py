"""Evaluator of several metrics of the same lists: one sort, one compiled call."""

import abc
import collections
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Self

import tensorflow as tf

from tfrank_sel import compilation
from tfrank_sel.arguments import Checked
from tfrank_sel.listwise import ListBatch, Listwise


class ListValues(NamedTuple):
    """A metric of each list of a batch.

    Attributes:
        values: Value of each list, `[batch_size]`.
        weights: Weight of each list in the mean, `[batch_size]`; 0 for a list that does not count.
    """

    values: tf.Tensor
    weights: tf.Tensor

    def mean(self) -> tf.Tensor:
        """Averages the values by weight; 0 if no list counts."""
        total = tf.reduce_sum(self.values * self.weights)
        return tf.math.divide_no_nan(total, tf.reduce_sum(self.weights))


class Sort(NamedTuple):
    """The order of the items of a batch, for metrics with the same ranking.

    Attributes:
        order: The places of the items, best first, `[batch_size, ranks]`.
        deepest: The greatest cut-off of these metrics; `None` if they have none.
    """

    order: tf.Tensor
    deepest: int | None


class Measure(Listwise):
    """Input of an `Evaluator`: a formula over lists that may share its sort with others."""

    name: str
    dtype: str

    @property
    @abc.abstractmethod
    def reading(self) -> Hashable:
        """Metrics whose `reading` is equal read the same batch of the same input."""

    @abc.abstractmethod
    def shared_sort(self, batch: ListBatch, group: Sequence[Self]) -> Sort | None:
        """Sorts once for all metrics of the same `reading`; `None` if they do not sort."""

    @abc.abstractmethod
    def list_values(self, batch: ListBatch, sort: Sort | None) -> ListValues:
        """Computes the value and the weight of each list of a batch that `batch_of` read."""


class Evaluator(Checked):
    """Evaluates several metrics of the same lists, in one call that sorts once.

    Metrics that read the same input and rank ties in the same way share the sort. XLA compiles all
    formulas together, so that common parts are computed once.

    Args:
        metrics: The metrics, with unique names. Their state is not changed.
        jit_compile: Whether XLA compiles them, for shapes that are rounded up as for losses. This
            is faster from the second call on, or for many lists.

    Raises:
        TypeError: If a metric is not one of `tfrank_sel.metrics`.
        ValueError: If two metrics have the same name.

    Inputs: `y_true`, `y_pred` and `sample_weight`, as in `ListwiseMetric`.

    Example:
        >>> evaluate = metrics.Evaluator([metrics.NDCG(k=10, name="ndcg@10"), metrics.MRR()])
        >>> found = evaluate([[0.0, 1.0], [1.0, 0.0]], [[1.0, 2.0], [1.0, 2.0]])
        >>> found["mrr"].values.numpy().tolist()
        [1.0, 0.5]
        >>> float(found["mrr"].mean())
        0.75
    """

    def __init__(self, metrics: Sequence[Measure], jit_compile: bool = True) -> None:
        names = collections.Counter(metric.name for metric in metrics)
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise ValueError(f"metric names must be unique. Received twice: {twice}")
        self.metrics = list(metrics)
        self.jit_compile = jit_compile
        alike: dict[Hashable, list[Measure]] = {}
        for metric in self.metrics:
            alike.setdefault(metric.reading, []).append(metric)
        self._groups = list(alike.values())
        self._evaluate: Callable[..., list[list[ListValues]]] = self._values
        if jit_compile:
            key = (Evaluator, *(metric.meaning for metric in self.metrics))
            self._evaluate = compilation.shared(key, lambda: compilation.jit(self._values))

    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, ListValues]:
        """Computes each metric of each list, by the name of the metric."""
        batches = [
            group[0].batch_of(y_true, y_pred, sample_weight, group[0].dtype)
            for group in self._groups
        ]
        batch_size = tf.shape(batches[0].scores)[0]
        if self.jit_compile:
            batches = [batch.rounded_up() for batch in batches]
        sorts: list[Sort | None] = [None] * len(batches)
        if tf.executing_eagerly():  # a sort outside of XLA takes less time
            sorts = [_sort(*x) for x in zip(self._groups, batches, strict=True)]
        values = self._evaluate(batches, sorts)
        found = {
            metric.name: ListValues(*(x[:batch_size] for x in value)) if self.jit_compile else value
            for group, of_group in zip(self._groups, values, strict=True)
            for metric, value in zip(group, of_group, strict=True)
        }
        return {metric.name: found[metric.name] for metric in self.metrics}

    def _values(self, batches: list[ListBatch], sorts: list[Sort | None]) -> list[list[ListValues]]:
        found = []
        for group, batch, sort in zip(self._groups, batches, sorts, strict=True):
            of_group = sort or _sort(group, batch)
            found.append([metric.list_values(batch, of_group) for metric in group])
        return found


def _sort(group: list[Measure], batch: ListBatch) -> Sort | None:
    return group[0].shared_sort(batch, group)
