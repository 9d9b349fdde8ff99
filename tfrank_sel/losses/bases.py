"""Bases of losses: over lists of labels, of scores and of score vectors, and in order of labels.

A normalizer takes the sum and the number of the terms of each list, which are its pairs or items,
`[batch_size]`, and the list size with its padding, and returns the loss of each list.
"""

import abc
import functools
import math
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

from tfrank_sel import keras_bases, numerics as xp
from tfrank_sel.compilation import Formula, in_graph
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import Link
from tfrank_sel.listwise import ListBatch, Listwise, list_weights, pad_rows
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import class_labels, label_order, masking
from tfrank_sel.serialization import register

Normalizer = Callable[[Tensor, Tensor, Tensor], Tensor]


@register
def mean_over_terms(total: Tensor, terms: Tensor, list_size: Tensor) -> Tensor:
    """Divides by the number of pairs or items, so that lists of any length count equally."""
    return xp.divide_no_nan(total, terms)


@register
def sum_over_terms(total: Tensor, terms: Tensor, list_size: Tensor) -> Tensor:
    """Returns the sum: for terms that are parts of one number, such as an NDCG."""
    return total


@register
def mean_over_slots(total: Tensor, terms: Tensor, list_size: Tensor) -> Tensor:
    """Divides by the list size, padding included, as tensorflow-ranking does.

    The mean over a batch then equals that of `tfr.keras.losses`. It depends on the padding.
    """
    return xp.divide_no_nan(total, xp.cast(list_size, total.dtype))


class Normalized:
    """Mixin of the losses with a `normalizer`."""

    normalizer: Any

    @property
    def padding(self) -> float | None:
        """As in `Listwise`; a normalizer that divides by the list size counts padding."""
        return 0.0 if self.normalizer in (None, mean_over_terms, sum_over_terms) else None


def of_items(normalizer: Normalizer, values: Tensor, mask: Tensor) -> Tensor:
    """Sums the values of the valid items of each list, and normalises the sums."""
    items = xp.reduce_sum(xp.cast(mask, values.dtype), axis=-1)
    return normalizer(masking.masked_sum(values, mask), items, xp.shape(values)[1])


def weights_of_valid(
    weights: Tensor, is_valid: Tensor, reduction: str | None, are_indices: bool | Tensor = True
) -> Tensor:
    """Returns weights with which a mean is over the lists that an index, not -1, was given for.

    Keras divides by the number of all lists: the weights make up for those that do not count.
    """
    if are_indices is False or reduction not in ("mean", "sum_over_batch_size"):
        return weights
    size = xp.cast(xp.size(is_valid), weights.dtype)
    counted = xp.reduce_sum(xp.cast(is_valid, weights.dtype))
    factor = xp.divide_no_nan(size, counted)
    return weights * (factor if are_indices is True else xp.where(are_indices, factor, 1.0))


class ReducedLoss(keras_bases.Loss):
    """A loss whose `__call__` computes the values, of which Keras computes the reduction alone.

    Keras would round integers and masks to the `dtype` on their way to `call`.
    """

    def call(self, y_true: Any, y_pred: Tensor) -> Tensor:
        """Returns the values, which `__call__` computed."""
        return y_pred

    def reduce(self, values: Tensor, weights: Tensor, positions: Any) -> Tensor:
        """Reduces values; without a reduction, to the shape of `positions` but its last axis."""
        value = super().__call__(values, values, weights)
        if self.reduction in (None, "none"):
            return value if positions is None else xp.reshape(value, xp.shape(positions)[:-1])
        return xp.reduce_sum(value)  # Keras passes a vector if there are no values


class ListwiseLoss(Listwise, ReducedLoss):
    """A loss over lists of scored items.

    A subclass is final: it declares the arguments of its constructor as annotated attributes, like
    a dataclass, and implements `per_list`, nothing else. `Listwise` handles masks, ragged inputs,
    weights and saving; Keras handles the reduction.

    Args:
        reduction: Reduction of the losses of the lists, as in `keras.losses.Loss`. A list without
            a valid item has loss and weight zero: it counts in the mean over the batch, but not
            under `"mean_with_sample_weight"` (Keras 3).
        name: Name of the loss, under which Keras reports it if the outputs of the model have no
            names. The default is made of the class and the options that differ from their defaults,
            such as `softmax_loss_temperature_0_5`. Give equal losses of one model unique names.
        dtype: The dtype of the computation; `keras.config.floatx()` if `None`, also under mixed
            precision.

    Inputs: `y_true` and `y_pred` are `[batch_size, list_size]`, dense or ragged, of any numeric
    dtype. Where labels are relevances, `y_true` may also be integers `[batch_size]` or
    `[batch_size, 1]`, the index of the item of label 1 in each list: the other items have label 0.
    A list of a negative index counts neither in the sum nor in the mean. In sequences, `y_true` has
    the index at each position, `[batch_size, length]`, `y_pred` is `[batch_size, length,
    list_size]`, possibly with a Keras mask `[batch_size, length]`, and `sample_weight` may be
    `[batch_size, length]`: each position is a list. An item is valid if its label is at least
    `min_label` (0 unless a subclass sets another) and not NaN, and if the Keras mask of `y_pred`,
    if any, is True. `sample_weight` is a scalar, `[batch_size]` or `[batch_size, 1]` per list, or
    `[batch_size, list_size]` per item. Gradients flow only to `y_pred`. If the score of a valid
    item is NaN or infinite, the loss of its list is NaN, even if the formula ignores that item;
    other lists are unaffected. Watch the loss, since gradients of a list whose loss is NaN may be
    finite. To exclude an item, make it padding; in the top-k losses only, the score `-inf` also
    excludes it.

    Raises:
        ValueError: If the shapes do not match, or `y_true` is an index but labels are scores.
    """

    reduction: str | None = field(default="sum_over_batch_size", kw_only=True)

    # True if the weight of an irrelevant item counts
    weighs_others: ClassVar[bool] = False
    # True if the formula ignores a constant that is added to all scores of a list
    ignores_level: ClassVar[bool] = False

    @property
    def takes_minus_infinity(self) -> bool:
        """Whether an item with that score is excluded."""
        return False

    @property
    def has_class_form(self) -> bool:
        """Whether `of_classes` is implemented."""
        return False

    @xp.entry_point
    def __call__(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Tensor:
        numbers = self.of_numbers(y_true, y_pred, sample_weight)
        lists = self.of_positions(*numbers)
        is_of_classes = self.has_class_form and class_labels.are_alone(*lists)
        values, weights = (self._of_classes if is_of_classes else self._of_labels)(*lists)
        return self.reduce(values, weights, None if lists[1] is numbers[1] else numbers[1])

    def _of_labels(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Tensor, Tensor]:
        """Computes the loss and the weight of each list from labels of items."""
        batch = self.batch_of(y_true, y_pred, sample_weight, self.dtype)
        is_valid = xp.reduce_any(batch.mask, axis=1)
        are_indices = self.takes_classes and class_labels.are_given(y_true, y_pred)
        weights = weights_of_valid(batch.list_weights, is_valid, self.reduction, are_indices)
        return self.shared_formula(batch.labels, batch.scores, batch.mask, batch.weights), weights

    def _of_classes(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Tensor, Tensor]:
        """Computes the loss and the weight of each list from the index of its relevant item."""
        scores = xp.cast(y_pred, self.dtype)
        self.check_size(scores.shape)
        classes = class_labels.as_int32(xp.reshape(y_true, [-1]))
        is_valid = (classes >= 0) & (xp.shape(scores)[1] > 0)
        weights = xp.where(is_valid, list_weights(sample_weight, scores), 0.0)
        weights = weights_of_valid(weights, is_valid, self.reduction)
        return self.checked_classes(xp.where(is_valid, classes, -1), scores), weights

    def of_classes(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes the loss of lists with one relevant item, of label 1, without their labels.

        Args:
            classes: Index of the relevant item, `[batch_size]`, int32; outside for none.
            scores: Scores, `[batch_size, list_size]`, all valid, of at least one item.

        Returns:
            The losses, `[batch_size]`.
        """
        raise NotImplementedError

    @functools.cached_property
    def shared_formula(self) -> Formula:
        """`or_nan`, which equal losses share as graphs in eager mode."""
        return in_graph(self.equality_key, self.or_nan, xp.differentiable)

    @functools.cached_property
    def checked_classes(self) -> Formula:
        """`classes_or_nan`, shared as `shared_formula`."""
        meaning = self.equality_key and (self.equality_key, "of classes")
        return in_graph(meaning, self.classes_or_nan, xp.differentiable)

    def classes_or_nan(self, classes: Tensor, scores: Tensor) -> Tensor:
        """Computes `of_classes`, but NaN as in `or_nan`, and 0 for a list of a negative index."""
        is_valid, size = classes >= 0, scores.shape[1] or xp.shape(scores)[1]
        known = scores.shape if scores.shape[1] else [scores.shape[0], None]
        # padding may hold NaN; the formulas need a class
        missing = [[0, 0], [0, xp.cast(size < 1, xp.int32)]]
        scores = xp.cond(
            xp.reduce_all(is_valid) & (size > 0),
            lambda: scores,
            lambda: xp.pad(xp.where(is_valid[:, xp.newaxis], scores, 0.0), missing),
        )
        scores = xp.ensure_shape(scores, known)
        values = self.nan_unless_held(self.of_classes(classes, scores), scores)
        return xp.where(is_valid, values, 0.0)

    def or_nan(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes `per_list`, but NaN for a list with a valid item of score NaN or infinity."""
        return self.nan_unless_held(self.per_list(labels, scores, mask, weights), scores)

    def nan_unless_held(self, values: Tensor, scores: Tensor) -> Tensor:
        """Makes the values of lists NaN that have a score of NaN or infinity.

        The formula could return a number for such scores: every comparison with NaN is False, and
        an infinite score can have a finite loss with an infinite gradient.
        """
        is_held = scores < math.inf if self.takes_minus_infinity else xp.is_finite(scores)
        is_held = xp.reduce_all(is_held, axis=list(range(1, len(scores.shape))))
        return values * xp.where(is_held, xp.ones([], values.dtype), math.nan)


class LabelOrderedLoss(ListwiseLoss):
    """A loss over lists that are sorted by descending labels.

    A subclass implements `of_sorted`. The loss of a list is multiplied by
    `sum_i w_i * y_i / sum_i y_i`. It is 0 for a list without a relevant item.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.
    """

    @abc.abstractmethod
    def of_sorted(self, labels: Tensor, scores: Tensor, mask: Tensor) -> Tensor:
        """Computes the loss of each list, sorted by descending labels, with the padding last."""

    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Sorts each list, and computes its weighted loss."""
        weight = xp.reduce_sum(xp.where(mask, weights * labels, 0.0), axis=-1)
        weight = xp.divide_no_nan(weight, xp.reduce_sum(labels, axis=-1))
        return weight * self.of_sorted(*label_order.sort(labels, scores, mask))


class ScoreVectorLoss(ListwiseLoss):
    """A loss over lists of items that each have one label and a vector of scores.

    A subclass implements `per_list`, whose scores are `[batch_size, list_size, num_scores]`, and
    may set `num_scores` to the number of scores that it takes.

    Args:
        **kwargs: `reduction` and `dtype`, as in `ListwiseLoss`.

    Inputs: as in `ListwiseLoss`, but `y_pred` is `[batch_size, list_size, num_scores]`, where
    `list_size` may be ragged.

    Raises:
        ValueError: If the shapes do not fit.
    """

    compares_items = False
    takes_classes = False

    @property
    def num_scores(self) -> int | None:
        """The number of scores of an item; `None` if any number is accepted."""
        return None

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras: an item either has all its scores or is padding."""
        keras_mask = xp.get_keras_mask(y_pred)
        scores = y_pred if isinstance(y_pred, xp.RaggedTensor) else xp.convert_to_tensor(y_pred)
        shape = xp.TensorShape([None, None, self.num_scores])
        if not xp.static_shape(scores).is_compatible_with(shape):
            raise refusal(
                "`y_pred` must have shape [batch_size, list_size, "
                f"{self.num_scores or 'num_scores'}]",
                f"y_pred.shape={scores.shape}",
            )
        scores = xp.cast(scores, dtype)
        if isinstance(scores, xp.RaggedTensor):
            vectors = scores.values
            if isinstance(vectors, xp.RaggedTensor):
                vectors = vectors.to_tensor(math.nan)
            items = scores.with_values(xp.zeros(xp.shape(vectors)[:1], dtype))
            scores = scores.with_values(vectors)
        else:
            items = xp.zeros(xp.shape(scores)[:2], dtype)
            items = xp.ensure_shape(items, scores.shape[:2])
        if keras_mask is not None:
            items = xp.set_keras_mask(items, keras_mask)
        batch = super().batch_of(y_true, items, sample_weight, dtype)
        if isinstance(scores, xp.RaggedTensor):
            scores = pad_rows(scores, xp.shape(batch.mask)[1])
        return batch._replace(scores=xp.where(batch.mask[..., xp.newaxis], scores, 0.0))


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
            labels=xp.where(mask, labels, self._origin),
            scores=xp.where(mask, batch.scores, self._origin),
            mask=mask,
            weights=xp.where(mask, batch.weights, 0.0),
            list_weights=xp.where(xp.reduce_any(mask, axis=1), batch.list_weights, 0.0),
        )
