"""Batch of lists and base of all losses and metrics.

`ListBatch.of` converts the arguments of Keras for the formulas. Its result has no `None`, no ragged
tensor, no padding label and no unknown rank, so that no formula has to handle them.
"""

import abc
import enum
import functools
import math
import numbers
import types
import warnings
from collections.abc import Hashable
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import Link
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import class_labels
from tfrank_sel.serialization import UNSET, Frozen, Named

LONGEST_TEXT = 60  # characters of a value in a message
_FUNCTIONS = types.FunctionType, types.BuiltinFunctionType, np.ufunc, type
_VALUES = (*_FUNCTIONS, numbers.Number, str, bytes, type(None), xp.DType, enum.Enum)


class ListBatch(NamedTuple):
    """A batch of lists of items: dense, masked, of one dtype.

    Attributes:
        labels: Label of each item, `[batch_size, list_size]`; zero where masked.
        scores: Score of each item, `[batch_size, list_size]`; zero where masked.
        mask: True for the valid items, `[batch_size, list_size]`.
        weights: Weight of each item, `[batch_size, list_size]`; zero where masked.
        list_weights: Weight of each list, `[batch_size]`; zero for a list without a valid item.
    """

    labels: Tensor
    scores: Tensor
    mask: Tensor
    weights: Tensor
    list_weights: Tensor

    @classmethod
    def of(
        cls, y_true: Any, y_pred: Any, sample_weight: Any, *, min_label: float, dtype: str
    ) -> "ListBatch":
        """Reads the arguments of a Keras loss or metric.

        Args:
            y_true: Labels, `[batch_size, list_size]` or ragged.
            y_pred: Scores, of the shape of `y_true`. If it has a Keras mask `[batch_size,
                list_size]`, an item is valid only if the mask is True. Any of the three arguments
                may have a third axis of size 1.
            sample_weight: Weights per list (a scalar, `[batch_size]` or `[batch_size, 1]`), or per
                item (`[batch_size, list_size]` or ragged); 1 if `None`.
            min_label: Minimum label of a valid item. Items with a smaller label or NaN are padding.
            dtype: The dtype of the batch.

        Raises:
            ValueError: If the shapes do not match.
            tf.errors.InvalidArgumentError: If ragged labels and scores differ in row lengths, or a
                ragged row or one of weights is longer than the dense rows of another argument.
        """
        y_pred = as_lists(y_pred)
        keras_mask = xp.get_keras_mask(y_pred)
        labels, scores, weights = _dense(as_lists(y_true), y_pred, sample_weight, dtype)
        mask = labels >= min_label
        if keras_mask is not None:
            mask = mask & xp.cast(keras_mask, xp.bool_)
        item_weights, list_weights = _split_weights(weights)
        labels = xp.where(mask, labels, 0.0)
        is_held = xp.reduce_max(labels, axis=1) < math.inf
        if min_label < 0.0:
            is_held = is_held & (xp.reduce_min(labels, axis=1) > -math.inf)
        list_weights = xp.where(is_held | (list_weights == 0.0), list_weights, math.nan)
        return cls(
            labels=labels,
            scores=xp.where(mask, scores, 0.0),
            mask=mask,
            weights=xp.where(mask, item_weights, 0.0),
            list_weights=xp.where(xp.reduce_any(mask, axis=1), list_weights, 0.0),
        )

    def observed_scores(self, label_map: Link | None) -> Tensor:
        """Returns the scores of the labels by `label_map`; if it is `None`, labels are scores."""
        if label_map is None:
            return self.labels
        return label_map(xp.where(self.mask, self.labels, label_map.origin))


class Listwise(Named, abc.ABC):
    """Mixin of every loss and metric: one formula over lists."""

    name: str = field(default=UNSET, kw_only=True)
    dtype: str = field(default=UNSET, kw_only=True)

    compares_items: ClassVar[bool] = True  # False for a formula that is meaningful for one item
    # False if labels 1 and 0 do not mean relevant and irrelevant
    takes_classes: ClassVar[bool] = True
    takes_any_index: ClassVar[bool] = False  # True if an index may be a whole number of any dtype

    @property
    def min_label(self) -> float:
        """The minimum label of a valid item: 0 for relevances."""
        return 0.0

    @property
    def padding(self) -> float | None:
        """The label and score of padding; `None` if padding, or another list, affects a value."""
        return 0.0

    @property
    def equality_key(self) -> Hashable | None:
        """A key that is equal for objects that compute the same; `None` if that may change."""
        try:
            values = [_value(getattr(self, name)) for name in self._own]
        except TypeError:
            return None
        return (type(self), self.dtype, *zip(self._own, values, strict=True))

    @property
    def largest_label(self) -> float:
        """The largest label for which the formula is finite."""
        return math.inf

    @abc.abstractmethod
    def per_list(self, labels: Tensor, scores: Tensor, mask: Tensor, weights: Tensor) -> Tensor:
        """Computes the value of each list, `[batch_size]`, from the fields of a `ListBatch`."""

    def of_numbers(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Converts all but arrays of numbers, and removes a last axis of 1 of indices' scores."""
        y_true, y_pred = _numbers("y_true", y_true), _numbers("y_pred", y_pred)
        if sample_weight is not None:
            sample_weight = _numbers("sample_weight", sample_weight)
        if not self.takes_classes:
            return y_true, y_pred, sample_weight
        y_true, y_pred = (
            # NumPy arrays of other ranks pass without a copy.
            x if isinstance(x, np.ndarray) and x.ndim != 3 else as_lists(x)
            for x in (y_true, y_pred)
        )
        if self.takes_any_index:
            y_true = class_labels.whole(y_true, y_pred)
        return y_true, y_pred, sample_weight

    def of_positions(self, y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
        """Reads positions of sequences, from `of_numbers`, as lists of indices."""
        # Flat NumPy arrays pass without a copy.
        is_flat = isinstance(y_pred, np.ndarray) and y_pred.ndim != 3
        if is_flat or not self.takes_classes:
            return y_true, y_pred, sample_weight
        return class_labels.of_positions(y_true, y_pred, sample_weight)

    def batch_of(self, y_true: Any, y_pred: Any, sample_weight: Any, dtype: str) -> ListBatch:
        """Reads the arguments of Keras for this formula."""
        y_pred = as_lists(y_pred)
        y_true = class_labels.of_items(as_lists(y_true), y_pred, self.takes_classes)
        batch = ListBatch.of(y_true, y_pred, sample_weight, min_label=self.min_label, dtype=dtype)
        if self.largest_label < math.inf:
            xp.assert_less_equal(
                batch.labels,
                xp.constant(self.largest_label, dtype),
                f"Labels of {self.name} must be at most {self.largest_label:g}, since the gain "
                "2**y - 1 of a greater label is not finite. Use the gain ranking.linear_gain.",
            )
        self.check_size(batch.scores.shape)
        return batch

    def check_size(self, shape: xp.TensorShape) -> None:
        """Warns of scores of a shape for which the formula has no meaning."""
        if self.compares_items and shape[1] == 1:
            warnings.warn(
                f"{type(self).__name__} compares the items of a list, but every list has one item: "
                f"y_pred.shape={shape}. Expected [batch_size, list_size].",
                stacklevel=4,
            )


def _value(x: Any) -> Hashable:
    """Returns a key of an attribute that never changes, and raises TypeError for any other."""
    if isinstance(x, (tuple, Frozen)):
        parts = x if isinstance(x, tuple) else x.arguments().values()
        return (type(x), *map(_value, parts))
    if isinstance(x, types.MethodType):
        return x.__func__, _value(x.__self__)
    if isinstance(x, functools.partial):
        return functools.partial, _value(x.func), _value(x.args), _value(tuple(x.keywords.items()))
    if isinstance(x, Listwise) and x.equality_key is not None:
        return x.equality_key
    if isinstance(x, xp.Variable) or xp.is_tensor(getattr(x, "value", x)):
        return "of this identity", id(x)  # a graph reads the current value of a variable
    if isinstance(x, _VALUES):
        return type(x), x
    raise TypeError(f"{type(x).__name__} may change")


def _numbers(name: str, x: Any) -> Any:
    """Returns an argument, of which all but an array of numbers is converted."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "biuf":
        # The value is returned without a copy.
        return x
    try:
        is_tensor = xp.is_tensor(x) and not isinstance(x, np.ndarray)
        is_tensor = is_tensor or isinstance(x, xp.RaggedTensor)
        tensor = x if is_tensor else xp.convert_to_tensor(x)
        if tensor.dtype != xp.string:
            return tensor
    except (TypeError, ValueError):
        # What cannot become a tensor is no array: the error below shows it.
        pass
    text = " ".join(repr(x).split())
    shown = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    library = type(x).__module__.partition(".")[0]
    hint = _for_boosters(library) if library in ("lightgbm", "xgboost") else ""
    raise refusal(f"`{name}` must be an array of numbers{hint}", shown)


def _for_boosters(library: str) -> str:
    write = f"`objectives.{library}(loss)`, or `objectives.{library}_metric(metric)` to measure"
    return f"; in {library}, write {write}"


def as_lists(x: Any) -> Any:
    """Removes the last axis of `[batch_size, list_size, 1]`, as of `Dense(1)`; keeps the mask."""
    x = x if isinstance(x, xp.RaggedTensor) else xp.convert_to_tensor(x)
    if xp.rank(x) != 3 or x.shape[2] != 1:
        return x
    squeezed, mask = xp.squeeze(x, axis=2), xp.get_keras_mask(x)
    return squeezed if mask is None else xp.set_keras_mask(squeezed, mask)


def list_weights(sample_weight: Any, scores: Tensor) -> Tensor:
    """Reads weights of lists: a scalar, or one for each list."""
    weights = xp.cast(as_lists(1.0 if sample_weight is None else sample_weight), scores.dtype)
    _check_shapes(scores, scores, weights)
    return xp.reshape(weights, [-1])


def check_row_lengths(y_true: xp.RaggedTensor, y_pred: xp.RaggedTensor) -> None:
    """Raises unless the rows of two ragged tensors have the same lengths."""
    message = "`y_true` and `y_pred` must have equal row lengths."
    if not xp.static_shape(y_true)[:1].is_compatible_with(y_pred.shape[:1]):
        raise refusal(message, f"y_true.shape={y_true.shape}, y_pred.shape={y_pred.shape}")
    lengths = (xp.cast(x.row_lengths(), xp.int64) for x in (y_true, y_pred))
    xp.assert_equal(*lengths, message=message)


def _dense(
    y_true: Any, y_pred: Any, sample_weight: Any, dtype: str
) -> tuple[Tensor, Tensor, Tensor]:
    """Casts to `dtype` and pads ragged rows with NaN, to the width of the dense ones."""
    weights = as_lists(1.0 if sample_weight is None else sample_weight)
    tensors = [xp.cast(x, dtype) for x in (y_true, y_pred, weights)]
    _check_shapes(*tensors)
    # a function traced for several ranks has no static rank
    tensors[:2] = (x if xp.rank(x) else xp.ensure_shape(x, [None, None]) for x in tensors[:2])
    labels, scores, _ = tensors
    if isinstance(labels, xp.RaggedTensor) and isinstance(scores, xp.RaggedTensor):
        check_row_lengths(labels, scores)
        width = labels.bounding_shape(axis=1)
    else:
        width = xp.shape(scores if isinstance(labels, xp.RaggedTensor) else labels)[1]
    is_unknown = xp.rank(weights) == 2 and None in (scores.shape[1], weights.shape[1])
    if is_unknown and not isinstance(weights, xp.RaggedTensor):
        xp.assert_less_equal(  # weights of lists of one item would broadcast
            xp.shape(weights)[1],
            xp.maximum(xp.cast(width, xp.int32), 1),
            message="A row of `sample_weight` must not be longer than a list.",
        )
    return tuple(pad_rows(x, width) if isinstance(x, xp.RaggedTensor) else x for x in tensors)


def pad_rows(x: xp.RaggedTensor, width: Tensor) -> Tensor:
    """Pads rows of numbers, or of vectors, with NaN to a width."""
    xp.assert_less_equal(
        x.row_lengths(),
        xp.cast(width, x.row_splits.dtype),
        message="A ragged row must not be longer than the dense rows of the other argument.",
    )
    # a list of None and a tensor fails in graphs
    sizes = [-1, xp.cast(width, xp.int32), *[-1] * (x.shape.rank - 2)]
    return x.to_tensor(math.nan, shape=xp.stack(sizes))


def _split_weights(weights: Tensor) -> tuple[Tensor, Tensor]:
    """Splits weights into per-item weights, `[batch_size, list_size]`, and per-list weights."""
    if xp.rank(weights) in (0, 1):
        return xp.ones([1, 1], weights.dtype), xp.reshape(weights, [-1])
    if xp.rank(weights) is None:  # if a function was traced for weights of several ranks
        weights = class_labels.as_matrix(weights)
    per_list = xp.shape(weights)[1] == 1
    item_weights = xp.where(per_list, xp.ones_like(weights), weights)
    first = xp.reduce_sum(weights[:, :1], axis=1)  # also for lists without items
    return item_weights, xp.where(per_list, first, xp.ones_like(first))


def _check_shapes(labels: Tensor, scores: Tensor, weights: Tensor) -> None:
    fit = xp.static_shape(scores).is_compatible_with([None, None])
    if not fit or not xp.static_shape(labels).is_compatible_with(scores.shape):
        is_flat = xp.rank(labels) == xp.rank(scores) == 1
        raise refusal(
            "`y_true` and `y_pred` must both have shape [batch_size, list_size], or also a last "
            f"axis of 1{_for_boosters('lightgbm') if is_flat else ''}",
            f"y_true.shape={labels.shape}, y_pred.shape={scores.shape}",
        )
    batch_size, list_size = scores.shape if xp.rank(scores) else (None, None)
    allowed: list[list[int | None]]
    allowed = [[], [batch_size], [batch_size, 1], [batch_size, list_size]]
    if not any(xp.static_shape(weights).is_compatible_with(shape) for shape in allowed):
        raise refusal(
            "`sample_weight` must be a scalar or have shape [batch_size], [batch_size, 1] or "
            "[batch_size, list_size]",
            f"sample_weight.shape={weights.shape}, y_pred.shape={scores.shape}",
        )
