"""Computation in float64 of formulas whose terms cancel."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import tensorflow as tf

F = TypeVar("F", bound=Callable[..., tf.Tensor])


def in_float64(f: F) -> F:
    """Computes a function or a method of tensors in float64.

    Two float32 numbers that differ do so within the first 8 of the 16 digits of float64. The
    difference of two smooth functions of them therefore keeps about 8 digits.

    Args:
        f: The function. All its arguments, except `self`, are tensors.

    Returns:
        A function that casts floating-point arguments to float64, and the result to the dtype of
        the first argument.
    """
    is_method = "self" in inspect.signature(f).parameters

    @functools.wraps(f)
    def wide(*args: Any) -> tf.Tensor:
        owner, tensors = args[:is_method], [tf.convert_to_tensor(x) for x in args[is_method:]]
        casts = (tf.cast(x, tf.float64) if x.dtype.is_floating else x for x in tensors)
        return tf.cast(f(*owner, *casts), tensors[0].dtype)

    return wide  # type: ignore[return-value]
