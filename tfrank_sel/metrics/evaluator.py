"""Evaluator of several metrics of the same lists: one sort, one graph."""

import abc
import collections
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar, NamedTuple, Self

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Checked
from tfrank_sel.compilation import in_graph
from tfrank_sel.listwise import ListBatch, Listwise
from tfrank_sel.numerics import Tensor


class ListValues(NamedTuple):
    """A metric of each list of a batch.

    Attributes:
        values: Value of each list, `[batch_size]`.
        weights: Weight of each list in the mean, `[batch_size]`; 0 for a list that does not count.
    """

    values: Tensor
    weights: Tensor

    def mean(self) -> Tensor:
        """Averages the values by weight; 0 if no list counts."""
        total = xp.reduce_sum(xp.multiply_no_nan(self.values, self.weights))
        return xp.divide_no_nan(total, xp.reduce_sum(self.weights))


class Sort(NamedTuple):
    """The order of the items of a batch, for metrics with the same ranking.

    Attributes:
        order: The indices of the items, best first, `[batch_size, ranks]`.
        deepest: The greatest cut-off of these metrics; `None` if they have none.
    """

    order: Tensor
    deepest: int | None


class Measure(Listwise):
    """Input of an `Evaluator`: a formula over lists that may share its sort with others."""

    judged_only: ClassVar[bool] = False  # whether items without a judgement are padding
    compares_pairs: ClassVar[bool] = False  # whether memory grows with the square of a list's size

    @property
    @abc.abstractmethod
    def input_key(self) -> Hashable:
        """Metrics whose `input_key` is equal read the same batch of the same input, and sort alike.

        A subclass adds the parameters that its own `batch_of`, `counted_items` or `shared_sort`
        use.
        """

    @abc.abstractmethod
    def shared_sort(self, batch: ListBatch, group: Sequence[Self]) -> Sort | None:
        """Sorts once for all metrics of the same `input_key`; `None` if they do not sort."""

    @abc.abstractmethod
    def list_values(self, batch: ListBatch, sort: Sort | None) -> ListValues:
        """Computes the value and the weight of each list of a batch that `batch_of` read."""


def by_value(x: Hashable) -> Hashable:
    """Returns a key that is equal for equal objects, or only for the same one without a hash."""
    try:
        hash(x)
    except TypeError:
        return id(x)
    return x


class Evaluator(Checked):
    """Evaluates several metrics of the same lists, in one call that sorts once.

    Metrics that read the same input and rank ties in the same way share the sort. All formulas are
    in one graph, in which common parts are computed once.

    Args:
        metrics: The metrics, with unique names. Their state is not changed.

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

    def __init__(self, metrics: Sequence[Measure]) -> None:
        names = collections.Counter(metric.name for metric in metrics)
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise ValueError(f"metric names must be unique. Received twice: {twice}")
        self.metrics = tuple(metrics)
        alike: dict[Hashable, list[Measure]] = {}
        for metric in self.metrics:
            alike.setdefault(metric.input_key, []).append(metric)
        self._groups = list(alike.values())
        key = [tuple(metric.equality_key for metric in group) for group in self._groups]
        is_fixed = all(None not in group for group in key)
        self._evaluate = in_graph((Evaluator, *key) if is_fixed else None, self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.metrics,)  # a copy has its own graph

    @xp.entry_point
    def __call__(
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> dict[str, ListValues]:
        """Computes each metric of each list, by the name of the metric."""
        batches = [
            first.batch_of(*first.of_positions(*given), first.dtype)
            for first, *_ in self._groups
            for given in [first.of_numbers(y_true, y_pred, sample_weight)]
        ]
        # in eager mode, a sort outside of the graph takes less time
        sorts = [
            group[0].shared_sort(batch, group)
            for group, batch in zip(self._groups, batches, strict=True)
        ]
        names = [metric.name for group in self._groups for metric in group]
        values = dict(zip(names, self._evaluate(batches, sorts), strict=True))
        return {metric.name: values[metric.name] for metric in self.metrics}

    def _values(self, batches: list[ListBatch], sorts: list[Sort | None]) -> list[ListValues]:
        values = []
        for group, batch, sort in zip(self._groups, batches, sorts, strict=True):
            weighs = xp.reduce_any(batch.weights != 0.0, axis=-1)
            weighed = batch._replace(list_weights=xp.where(weighs, batch.list_weights, 0.0))
            values += [metric.list_values(weighed, sort) for metric in group]
        return values
