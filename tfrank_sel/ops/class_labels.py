"""Labels given as the index of the relevant item, or class, of each list."""

from typing import Any

from tfrank_sel import numerics as xp
from tfrank_sel.errors import received
from tfrank_sel.numerics import Tensor


def of_items(y_true: Any, y_pred: Any, are_relevances: bool) -> Any:
    """Converts indices of the relevant item of each list to labels of items.

    Args:
        y_true: Indices, integers `[batch_size]` or `[batch_size, 1]`; or the labels of items.
        y_pred: Scores, `[batch_size, list_size]`.
        are_relevances: Whether labels are relevances, so that an index means labels 1 and 0.
            Otherwise indices are not accepted.

    Returns:
        The labels of items, unchanged or from `one_hot`.

    Raises:
        ValueError: If there is one label per list, and it is not an integer or labels are not
            relevances.
    """
    if isinstance(y_true, xp.RaggedTensor):
        return y_true
    y_true, shape = xp.convert_to_tensor(y_true), xp.static_shape(y_pred)
    are_indices = _are_indices(xp.static_shape(y_true), shape)
    if are_indices and not (are_relevances and xp.is_integer(y_true.dtype)):
        raise ValueError(_refusal(y_true, shape, are_relevances))
    if are_indices is False or not (are_relevances and xp.is_integer(y_true.dtype)):
        return y_true
    if are_indices:
        return one_hot(xp.reshape(y_true, [-1]), y_pred)
    if isinstance(y_pred, xp.RaggedTensor):
        return y_true  # a row must not be longer than the labels
    y_true = as_matrix(y_true)
    first = xp.reduce_sum(y_true[:, :1], axis=1)  # also for lists without items
    of_first = xp.cast(one_hot(first, y_pred), y_true.dtype)
    return xp.where(are_given(y_true, y_pred), of_first, y_true)


def are_given(y_true: Any, y_pred: Any) -> bool | Tensor:
    """Whether integers `y_true` are indices; a tensor if only a graph that runs knows it."""
    if isinstance(y_true, xp.RaggedTensor):
        return False
    y_true = xp.convert_to_tensor(y_true)
    are_indices = xp.is_integer(y_true.dtype) and _are_indices(
        xp.static_shape(y_true), xp.static_shape(y_pred)
    )
    if are_indices is not None or isinstance(y_pred, xp.RaggedTensor):
        return bool(are_indices)
    # the number of labels of a list is known only when the graph runs
    return (xp.shape(as_matrix(y_true))[1] == 1) & (xp.shape(y_pred)[1] != 1)


def are_alone(y_true: Any, y_pred: Any, sample_weight: Any) -> bool:
    """Whether integers are indices among classes that nothing else tells apart.

    Rows of different lengths, a mask or weights tell items apart.
    """
    tensors = y_true, y_pred, sample_weight
    if any(isinstance(x, xp.RaggedTensor) for x in tensors):
        return False
    if xp.get_keras_mask(y_pred) is not None or are_given(y_true, y_pred) is not True:
        return False
    weights = xp.static_shape(1.0 if sample_weight is None else sample_weight)
    of_lists = weights.rank in (0, 1) or (weights.rank == 2 and weights[1] == 1)
    return of_lists and xp.static_shape(y_pred)[1] != 0


def whole(y_true: Any, y_pred: Any) -> Any:
    """Returns the class index of each list, of any dtype, as an integer; labels are unchanged.

    Args:
        y_true: Indices, `[batch_size]` or `[batch_size, 1]`, or the labels of items.
        y_pred: Scores, of the classes `[batch_size, classes]`, or of items.
    """
    if isinstance(y_true, xp.RaggedTensor):
        return y_true
    y_true = xp.convert_to_tensor(y_true)
    are_indices = _are_indices(xp.static_shape(y_true), xp.static_shape(y_pred))
    is_column = xp.rank(y_true) == 2 and y_true.shape[1] == 1
    if not xp.is_floating(y_true.dtype) or not (are_indices or (are_indices is None and is_column)):
        return y_true
    # one beyond int32, such as a hash, stays beyond all items; NaN is no index
    below = xp.minimum(y_true, min(2.0**30, float(xp.limits(y_true.dtype).max)))
    index = xp.where(y_true >= 0, below, -1)
    if are_indices:
        message = "An index in `y_true` must be a whole number."
        xp.assert_equal(index, xp.floor(index), message)
    return xp.cast(index, xp.int32)


def one_hot(classes: Tensor, y_pred: Any) -> Tensor | xp.RaggedTensor:
    """Converts indices to labels of items: 1 for the class, and -1 for all if it is negative.

    An index beyond the items is that of no relevant item: all labels are 0.
    """
    classes = as_int32(classes)
    nothing = xp.minimum(xp.cast(xp.sign(classes), xp.float32), 0.0)
    if not isinstance(y_pred, xp.RaggedTensor):
        return xp.one_hot(classes, xp.shape(y_pred)[1]) + nothing[:, xp.newaxis]
    rows = y_pred.value_rowids()
    starts = xp.gather(y_pred.row_starts(), rows)
    positions = xp.range(xp.size(rows)) - xp.cast(starts, xp.int32)
    labels = xp.cast(positions == xp.gather(classes, rows), xp.float32)
    return y_pred.with_values(labels + xp.gather(nothing, rows))


def of_positions(y_true: Any, y_pred: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """Reads positions of sequences as lists of their own.

    Args:
        y_true: Index of the relevant item at each position, integers `[batch_size, length]`.
        y_pred: Scores of all items at each position, `[batch_size, length, items]`.
        sample_weight: Of each sequence, position or item; or `None`.

    Returns:
        The arguments with one axis for both `batch_size` and `length`; unchanged if they are not
        sequences. The index is -1 where the Keras mask of `y_pred` is False.
    """
    tensors = y_true, y_pred, sample_weight
    if any(isinstance(x, xp.RaggedTensor) for x in tensors):
        return tensors
    shape = xp.static_shape(y_pred)
    if shape.rank != 3 or shape[2] == 1:
        return tensors
    indices = xp.convert_to_tensor(y_true)
    weights = xp.convert_to_tensor(1.0 if sample_weight is None else sample_weight)
    of_position = [*shape[:2]]
    allowed = [[], shape[:1], [*shape[:1], 1], of_position, [*of_position, 1], shape]
    if not xp.is_integer(indices.dtype) or xp.rank(indices) != 2:
        return tensors
    if not xp.static_shape(indices).is_compatible_with(of_position):
        return tensors
    if not any(xp.static_shape(weights).is_compatible_with(x) for x in allowed):
        return tensors
    indices, of_all, weights = flatten_sequences(indices, y_pred, weights)
    return indices, of_all, None if sample_weight is None else weights


def flatten_sequences(
    y_true: Tensor, y_pred: Any, weights: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gives sequences one axis for both `batch_size` and `length`.

    Args:
        y_true: Index of each position, `[batch_size, length]`.
        y_pred: Scores or states of each position, `[batch_size, length, size]`, possibly with a
            Keras mask.
        weights: Of all, of each sequence or position; or as `y_pred`.

    Returns:
        The indices, -1 where the mask is False; `y_pred` and the weights.
    """
    scores, y_true = xp.convert_to_tensor(y_pred), apply_mask(as_int32(y_true), y_pred)
    of_all = xp.reshape(scores, [-1, scores.shape[2] or xp.shape(scores)[2]])
    if xp.rank(weights) == 3:
        weights = xp.reshape(xp.broadcast_to(weights, xp.shape(scores)), xp.shape(of_all))
    else:
        weights = weights if xp.rank(weights) == 2 else weights[..., xp.newaxis]
        weights = xp.reshape(xp.broadcast_to(weights, xp.shape(scores)[:2]), [-1])
    return xp.reshape(y_true, [-1]), of_all, weights


def apply_mask(indices: Tensor, y_pred: Any) -> Tensor:
    """Returns indices, int32, with -1 where the Keras mask of `y_pred` is False."""
    if (mask := xp.get_keras_mask(y_pred)) is None:
        return indices
    mask = xp.cast(mask, xp.bool_)
    is_one = xp.rank(mask) == xp.rank(indices)
    return xp.where(mask if is_one else mask[..., xp.newaxis], indices, -1)


def as_int32(indices: Tensor) -> Tensor:
    """Casts indices; one beyond int32, such as a hash, stays beyond all items."""
    dtype = indices.dtype
    if xp.is_integer(dtype) and xp.limits(dtype).max > xp.limits(xp.int32).max:
        indices = xp.minimum(indices, xp.constant(xp.limits(xp.int32).max, dtype))
        indices = indices if xp.is_unsigned(dtype) else xp.maximum(indices, xp.constant(-1, dtype))
    return xp.cast(indices, xp.int32)


def as_matrix(x: Tensor) -> Tensor:
    """Adds a column axis to a scalar or a vector, also if the rank is not static."""
    shape = xp.ensure_shape(xp.concat([xp.shape(x), [1, 1]], axis=0)[:2], [2])
    return xp.reshape(x, shape)


def _are_indices(labels: xp.TensorShape, scores: xp.TensorShape) -> bool | None:
    """Whether there is one label per list, not per item; `None` if the shapes are ambiguous."""
    if scores.rank != 2 or not labels[:1].is_compatible_with(scores[:1]):
        return False
    if labels.rank == 1:
        return True
    if not labels.is_compatible_with([None, 1]) or scores[1] == 1:
        return False
    return None if labels.rank is None or None in (labels[1], scores[1]) else True


def _refusal(y_true: Tensor, scores: xp.TensorShape, are_relevances: bool) -> str:
    accepted, advice = "", f"tf.one_hot(y_true, {scores[1]})"
    if are_relevances:
        accepted = ", or the index of its relevant item, one integer per list"
        advice = "tf.cast(y_true, tf.int32)"
    return received(
        f"`y_true` must have a label for each item, [batch_size, list_size]{accepted}",
        f"y_true.shape={y_true.shape}, {y_true.dtype.name}, y_pred.shape={scores}. "
        f"If these are indices of relevant items, write {advice}",
    )
