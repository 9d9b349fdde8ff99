"""Bases of the metrics."""

import abc
import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any, ClassVar, Self

from tfrank_sel import keras_bases, numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.errors import refusal
from tfrank_sel.listwise import ListBatch, as_lists
from tfrank_sel.metrics.averaging import ALL_LISTS, DEFINED_LISTS, Averaging, Worth
from tfrank_sel.metrics.evaluator import Evaluator, ListValues, Measure, Sort, by_value
from tfrank_sel.metrics.ties import (
    AVERAGED,
    IN_ORDER,
    SHUFFLED,
    Averaged,
    Ranks,
    Ties,
    retrieved_mask,
)
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import class_labels


def relevances(y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
    """Reads the arguments of Keras: relevances, or the index of the relevant item of each list."""
    y_true, y_pred, sample_weight = class_labels.of_positions(y_true, y_pred, sample_weight)
    y_pred = as_lists(y_pred)
    y_true = class_labels.of_items(as_lists(y_true), y_pred, are_relevances=True)
    return ListBatch.of(y_true, y_pred, sample_weight, min_label=0.0, dtype=dtype)


class ListwiseMetric(Measure, keras_bases.Mean):
    """The weighted mean of a measure over lists; a subclass implements `per_list`.

    A list without a valid item is not counted. `averaging` sets which other lists count, and their
    weights.

    Args:
        name: Name of the metric, under which Keras and TensorBoard report it. The default is made
            of the class, the cutoff and the options that differ from their defaults, such as
            `ndcg_at_5` or `precision_at_10_relevance_level_2`. The metrics of a model need unique
            names: for two metrics of one name, Keras 3 returns the first twice.
        averaging: Which lists count, and the meaning of weights: a value of `metrics.averaging`. By
            default every list counts with its own weight, and a list without a relevant item is 0,
            as in TREC evaluation.
        dtype: The dtype of the computation.

    Inputs: `y_true` and `y_pred` are `[batch_size, list_size]`, dense or ragged, of any numeric
    dtype. `y_true` may also be integers `[batch_size]` or `[batch_size, 1]`, the index of the item
    of label 1 in each list, as in `losses.ListwiseLoss`. An item is valid if its label is at least
    0 and not NaN, and if the Keras mask of `y_pred`, if any, is True. `sample_weight`
    is a scalar, `[batch_size]` or `[batch_size, 1]` per list, or `[batch_size, list_size]` per
    item. Weights per item count within their list, not for the list: multiplied by a constant
    above 0, they give the same mean of a ratio such as NDCG. A list of weight 0, or whose items all
    have weight 0, is not counted. A valid item whose score is NaN ranks last; a measure that uses
    the score values is NaN for its list.

    Raises:
        ValueError: If the shapes do not match.
    """

    averaging: Averaging = field(default=ALL_LISTS, kw_only=True)

    # `Worth` says what this changes.
    weighs_items: ClassVar[bool] = True
    weighs_pairs: ClassVar[bool] = False  # whether a pair has the weights of both items
    pooled: ClassVar[bool] = False
    _direction: ClassVar[str] = "up"  # better values, as callbacks of Keras read it; or "down"

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Adds a batch of lists to the mean."""
        values, weights = self.evaluate(y_true, y_pred, sample_weight)
        values = xp.where(weights != 0.0, values, 0.0)  # NaN * 0 is NaN
        super().update_state(values, sample_weight=weights)

    def evaluate(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> ListValues:
        """Computes the value and the weight of each list, without changing the mean."""
        return self._evaluator(y_true, y_pred, sample_weight)[self.name]

    def counted_items(self, batch: ListBatch) -> Tensor:
        """Returns which items of a batch count."""
        return self.averaging.mask(batch)

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns the worth of each item to the measure, `[batch_size, list_size]`.

        It is 0 for an irrelevant item. A list without worth has no value.
        """
        return xp.cast(mask, labels.dtype)

    def shared_sort(self, batch: ListBatch, group: Sequence[Self]) -> Sort | None:
        """Sorts once for all metrics of the same `input_key`; `None` if they do not sort."""
        return None

    def list_values(self, batch: ListBatch, sort: Sort | None) -> ListValues:
        """Computes the value and the weight of each list of a batch that `batch_of` read."""
        batch = batch._replace(mask=self.counted_items(batch))
        compared = batch.mask & (batch.weights != 0.0) if self.weighs_pairs else batch.mask
        worth = Worth(self.worth(batch.labels, compared), self.weighs_items, self.pooled)
        batch = self.averaging.weigh(batch, worth)
        values = self.measure_lists(batch, sort)
        return ListValues(values, xp.broadcast_to(batch.list_weights, xp.shape(values)))

    def measure_lists(self, batch: ListBatch, sort: Sort | None) -> Tensor:
        """Computes the value of each list, `[batch_size]`."""
        return self.per_list(batch.labels, batch.scores, batch.mask, batch.weights)

    @functools.cached_property
    def _evaluator(self) -> Evaluator:
        return Evaluator([self])

    @property
    def input_key(self) -> Hashable:
        """Metrics whose `input_key` is equal read and sort the same input alike."""
        cls, values = type(self), (self.min_label, self.largest_label, self.dtype)
        how = cls.of_positions, cls.batch_of, cls.counted_items, cls.shared_sort, cls.takes_classes
        masks = type(self.averaging).mask is not Averaging.mask
        return how, values, by_value(self.averaging) if masks else None


class ComparingMetric(ListwiseMetric):
    """A measure of pairs of items; a list without a pair does not count.

    An item whose score is NaN is below all others, as in a ranking.

    Args:
        name: Name of the metric.
        averaging: As in `ListwiseMetric`, but by default a list counts if it has a pair to order.
        dtype: The dtype of the computation.

    Inputs: as in `ListwiseMetric`.
    """

    averaging: Averaging = field(default=DEFINED_LISTS, kw_only=True)

    compares_pairs = True


class RankedMetric(ListwiseMetric):
    """A measure of the items at each rank; a subclass implements `at_ranks`.

    An item with score -inf is not retrieved: it has no rank, but counts among the relevant items of
    its list, like a relevant document that a search did not return.

    Args:
        name: Name of the metric.
        ties: Order of items with equal scores: a value of `metrics.ties`. By default they keep the
            order of the list.
        above: For labels that are scores, such as seconds, the score above which an item is
            relevant: labels `y`, which may then be negative, are read as `max(y - above, 0)`.
        **kwargs: `averaging` and `dtype`, as in `ListwiseMetric`.

    Raises:
        ValueError: If `ties` are to be averaged and the measure has no closed form for that.

    Inputs: as in `ListwiseMetric`.
    """

    ties: Ties = field(default=IN_ORDER, kw_only=True)
    above: float | None = field(default=None, kw_only=True)

    averages_ties: ClassVar[bool] = True

    @property
    def k(self) -> int | None:
        """The cut-off, of measures that have one."""
        return None

    def __post_init__(self) -> None:
        if isinstance(self.ties, Averaged) and not self.averages_ties:
            raise refusal(
                f"{type(self).__name__} has no closed form for the average over ties",
                ties=self.ties,
            )

    def over_ties(self) -> Self:
        """Returns the same measure, independent of the order of items with equal scores.

        It is averaged over these orders or, for a measure without a closed form for that, of a
        random order. A measure whose `ties` is not the default is returned unchanged.
        """
        if self.ties != IN_ORDER:
            return self
        ties = AVERAGED if self.averages_ties else SHUFFLED
        config = {**self.get_config(), "ties": ties}
        return type(self).from_config(config)

    @property
    def min_label(self) -> float:
        """The minimum label of a valid item: 0, or with `above` any number."""
        return 0.0 if self.above is None else -math.inf

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras, and the labels by `above`."""
        batch = super().batch_of(y_true, y_pred, sample_weight, dtype)
        if self.above is None:
            return batch
        return batch._replace(labels=self.labels_above(batch.labels, batch.mask))

    def labels_above(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Reads labels by `above`; 0 on padding."""
        labels = labels if self.above is None else xp.maximum(labels - self.above, 0.0)
        return xp.where(mask, labels, 0.0)

    @property
    def input_key(self) -> Hashable:
        """Metrics whose `input_key` is equal give the same ranking of the same input."""
        return super().input_key, by_value(self.ties), self.above

    def shared_sort(self, batch: ListBatch, group: Sequence[Self]) -> Sort:
        """Sorts down to the greatest cut-off in the group of metrics."""
        depths = [metric.ties.depth(metric.k) for metric in group]
        held = retrieved_mask(batch.scores, self.counted_items(batch))
        deepest = None if None in depths else max(k for k in depths if k is not None)
        cutoffs = [metric.k for metric in group if metric.k is not None]
        order = self.ties.order(batch.scores, held, deepest)
        return Sort(order, max(cutoffs, default=None))

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Ranks the items and measures them."""
        order = self.ties.order(scores, retrieved_mask(scores, mask), self.ties.depth(self.k))
        ranks = Ranks(self.ties, scores, mask, order, self.k, self.k)
        return self.at_ranks(labels, mask, weights, ranks)

    def measure_lists(self, batch: ListBatch, sort: Sort | None) -> Tensor:
        if sort is None:
            return super().measure_lists(batch, sort)
        ranks = Ranks(self.ties, batch.scores, batch.mask, sort.order, self.k, sort.deepest)
        return self.at_ranks(batch.labels, batch.mask, batch.weights, ranks)

    @abc.abstractmethod
    def at_ranks(self, labels: Tensor, mask: Tensor, weights: Tensor, ranks: Ranks) -> Tensor:
        """Computes the measure of each list, `[batch_size]`, of items at their ranks."""


class BinaryMetric(RankedMetric):
    """A measure of binary relevance.

    Args:
        name: Name of the metric.
        relevance_level: Minimum label of a relevant item, as trec_eval's option of that name
            (1 there and in tensorflow-ranking); if `None`, every positive label is relevant.
        **kwargs: `ties`, `above`, `averaging` and `dtype`, as in `RankedMetric`.

    Raises:
        ValueError: As in `RankedMetric`, or if `relevance_level` is not positive.

    Inputs: as in `ListwiseMetric`.
    """

    relevance_level: Positive | None = field(default=None, kw_only=True)

    def worth(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Returns 1 for a relevant item and 0 for another."""
        relevant = labels > 0.0
        if self.relevance_level is not None:
            relevant = labels >= self.relevance_level
        return xp.cast(mask & relevant, labels.dtype)
