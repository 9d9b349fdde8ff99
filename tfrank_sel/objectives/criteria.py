"""Losses in the form of PyTorch."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from tfrank_sel.losses import ListwiseLoss
from tfrank_sel.objectives.lists import check_labels
from tfrank_sel.refusals import needed, received, refusal

# from scores, and whether their gradient is needed, to the value and the gradient
Evaluate = Callable[[NDArray[Any], bool], tuple[float, NDArray[Any] | None]]


def torch(loss: ListwiseLoss) -> Callable[..., Any]:
    """Makes a loss of PyTorch; needs the extra `[torch]`.

    The result is `criterion(scores, labels, weights=None, mask=None, group=None)`, and returns a
    scalar for `backward`, of the dtype of the scores. Value and gradient are those of `loss`, in
    its dtype: pass `dtype="float64"` to the loss for scores in double precision. TensorFlow
    computes both in the forward pass, from copies. The gradient has no gradient of its own.

    The arguments are tensors on the CPU, or arrays:

    * `scores`: `[batch_size, list_size]`, or `[num_items]` with `group`.
    * `labels`: a label for each item, or as `loss` takes them. NaN is padding. No other label of an
      item is: one that `loss` would take for padding is an error.
    * `weights`: per list, `[batch_size]`, or per item; 1 if `None`.
    * `mask`: True for the valid items, `[batch_size, list_size]`. If `None`, labels alone tell.
    * `group`: number of items of each list, `[batch_size]`, if the lists lie one after the other.

    Args:
        loss: The loss, with any reduction to a scalar. If each item has several scores, these are
            the last axis of `scores`.

    Raises:
        TypeError: If `loss` is not a loss of this package.
        ValueError: If `loss` has no reduction; when called, if `mask` and `group` are both given,
            the sizes in `group` do not add up, or shapes do not match.
        ImportError: If PyTorch is not installed.

    Example:
        ```python
        criterion = objectives.torch(losses.LambdaLoss())
        criterion(model(features), labels).backward()
        ```
    """
    if not isinstance(loss, ListwiseLoss):
        raise TypeError(received("`loss` must be a `losses.ListwiseLoss`", loss=loss))
    if loss.reduction in (None, "none"):
        raise refusal(
            "`loss` must have a reduction to a scalar, such as 'sum'", reduction=loss.reduction
        )
    node = _node()
    value_and_gradient = tf.function(
        functools.partial(evaluated, loss), autograph=False, reduce_retracing=True
    )

    def criterion(
        scores: Any, labels: Any, weights: Any = None, mask: Any = None, group: Any = None
    ) -> Any:
        weights, mask, group = (
            None if x is None else np.asarray(x) for x in (weights, mask, group)
        )
        if group is not None:
            weights = _checked(weights, mask, group, len(scores))
        labels = np.asarray(labels)
        is_dense = labels.ndim > 1 and labels.shape == tuple(scores.shape[: labels.ndim])
        if is_dense or group is not None:
            valid = labels if mask is None else labels[mask]
            if (valid < loss.min_label).any():  # cheap, because it is done at each step
                check_labels(loss, valid)
        given = [labels, weights, mask, group]

        def evaluate(scores: NDArray[Any], has_gradient: bool) -> tuple[float, Any]:
            tensors = (None if x is None else tf.constant(x) for x in (scores, *given))
            value, gradient = value_and_gradient(has_gradient, *tensors)
            return float(value), None if gradient is None else gradient.numpy()

        return node.apply(scores, evaluate, loss.dtype)

    return criterion


@functools.cache
def _node() -> Any:
    """Makes the class of a node of PyTorch's graph, whose gradient is known with its value."""
    with needed("`objectives.torch`", "torch", "PyTorch"):
        import torch

    class Evaluated(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, scores: Any, evaluate: Evaluate, dtype: str) -> Any:
            given = np.asarray(scores.detach().to(getattr(torch, dtype)))
            value, gradient = evaluate(given, context.needs_input_grad[0])
            if gradient is not None:
                context.save_for_backward(torch.from_numpy(gradient).to(scores))
            return scores.new_tensor(value)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(context: Any, slope: Any) -> Any:
            (gradient,) = context.saved_tensors
            return slope * gradient, None, None

    return Evaluated


def evaluated(
    loss: ListwiseLoss,
    has_gradient: bool,
    scores: tf.Tensor,
    labels: tf.Tensor,
    weights: tf.Tensor | None,
    mask: tf.Tensor | None,
    group: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor | None]:
    """Computes the value of a loss, and its gradient in the scores if it is needed.

    Args:
        loss: The loss.
        has_gradient: Whether the gradient is needed.
        scores: As in `torch`.
        labels: As in `torch`.
        weights: As in `torch`, but with a `group` those per list are `[batch_size, 1]`.
        mask: As in `torch`.
        group: As in `torch`.
    """
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        if has_gradient:
            tape.watch(scores)
        if group is not None:
            y_true, y_pred = _rows(labels, group), _rows(scores, group)
            if weights is not None and weights.shape.rank == 1:
                weights = _rows(weights, group)
        else:
            y_true, y_pred = labels, tf.identity(scores)
            if mask is not None:
                y_pred._keras_mask = mask
        value = loss(y_true, y_pred, weights)
    if not has_gradient:
        return value, None
    gradient = tape.gradient(value, scores, unconnected_gradients="zero")
    return value, tf.convert_to_tensor(gradient)  # that of ragged rows is sparse


def _checked(
    weights: NDArray[Any] | None, mask: NDArray[Any] | None, group: NDArray[Any], count: int
) -> NDArray[Any] | None:
    """Checks lists that lie one after the other, and makes a column of weights per list."""
    if mask is not None:
        raise refusal("`mask` is for padded lists, and `group` for others", "both")
    if group.sum() != count:
        raise refusal(
            "The sizes in `group` must add up to the number of scores",
            f"sum(group)={group.sum()}, len(scores)={count}",
        )
    if weights is not None and len(weights) not in (count, len(group)):
        raise refusal(
            "`weights` must have one number per item or per list",
            f"len(weights)={len(weights)}, for {count} items in {len(group)} lists",
        )
    return weights[:, np.newaxis] if weights is not None and len(weights) == len(group) else weights


def _rows(values: tf.Tensor, group: tf.Tensor) -> tf.RaggedTensor:
    return tf.RaggedTensor.from_row_lengths(values, group)
