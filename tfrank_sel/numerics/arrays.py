"""What tensors without graphs share: functions that NumPy has, and JAX under the same names.

All sizes are known, as whole numbers of Python. A process has one of both backends.
"""

import builtins
import functools
import importlib
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tfrank_sel.numerics.backend import NAME

if not hasattr(np, "asin"):
    raise ImportError("losses and metrics on NumPy need NumPy 2: pip install 'numpy>=2'")
xnp: Any = importlib.import_module("jax.numpy" if NAME == "jax" else "numpy")

DType = np.dtype
F = TypeVar("F", bound=Callable[..., Any])
newaxis = None

bool_, float32, float64, int32, int64, uint32 = map(
    np.dtype, ("bool", "float32", "float64", "int32", "int64", "uint32")
)
string = np.dtype("S")
_NO_NUMBERS = "OSUmM"  # kinds of dtypes

abs, exp, expm1, log, log1p = xnp.abs, xnp.exp, xnp.expm1, xnp.log, xnp.log1p
asin, asinh, atan, atan2, atanh = xnp.asin, xnp.asinh, xnp.atan, xnp.atan2, xnp.atanh
cos, sin, sinh, tan, tanh = xnp.cos, xnp.sin, xnp.sinh, xnp.tan, xnp.tanh
floor, pow, sign, sqrt, square = xnp.floor, xnp.pow, xnp.sign, xnp.sqrt, xnp.square
bitwise_xor, right_shift, searchsorted = xnp.bitwise_xor, xnp.right_shift, xnp.searchsorted
is_finite, is_inf, is_nan = xnp.isfinite, xnp.isinf, xnp.isnan
matrix_transpose, ones_like, zeros_like = xnp.matrix_transpose, xnp.ones_like, xnp.zeros_like
broadcast_to, repeat, reshape, roll = xnp.broadcast_to, xnp.repeat, xnp.reshape, xnp.roll
squeeze, tile, transpose, where = xnp.squeeze, xnp.tile, xnp.transpose, xnp.where

# products of matrices in float32: a GPU would take TF32, of 11 bits
_EXACT: dict[str, Any] = {"precision": "highest"} if NAME == "jax" else {}
einsum = functools.partial(xnp.einsum, **_EXACT)
tensordot = functools.partial(xnp.tensordot, **_EXACT)


class RaggedTensor:
    """No tensor is ragged."""


class TensorSpec(NamedTuple):
    """The shape and the dtype of an array."""

    shape: Sequence[int | None]
    dtype: Any


class TensorShape(tuple[int | None, ...]):
    """A shape, as that of TensorFlow."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        part = super().__getitem__(index)
        return TensorShape(part) if isinstance(index, builtins.slice) else part

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self)

    def is_compatible_with(self, other: Sequence[int | None]) -> bool:
        """Whether the sizes agree, as far as both are known."""
        sizes = tuple(other)
        return len(sizes) == len(self) and all(
            a == b or None in (a, b) for a, b in zip(self, sizes, strict=True)
        )


class Variable:
    """Numbers that may change between calls."""

    def __init__(
        self, value: Any, trainable: bool = False, dtype: Any = None, name: str | None = None
    ) -> None:
        self._value = np.asarray(value, dtype)
        self.name = name

    @property
    def dtype(self) -> "DType[Any]":
        """The dtype of the numbers."""
        return self._value.dtype

    def assign(self, value: Any) -> None:
        """Changes the numbers."""
        self._value = np.asarray(value, self.dtype)

    def assign_add(self, value: Any) -> Any:
        """Adds to the numbers, and returns what they are then."""
        self.assign(self._value + value)
        return self._value

    def numpy(self) -> np.ndarray:
        """Returns the numbers."""
        return self._value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._value, dtype)


class TensorArray:
    """Tensors of one shape, of which a loop writes one after the other."""

    def __init__(self, dtype: Any, size: int, element_shape: Any = None) -> None:
        self._values = zeros([size, *(element_shape or ())], dtype)

    def write(self, index: Any, value: Any) -> Any:
        """Returns the array with another value at an index."""
        self._values[index] = value
        return self

    def stack(self) -> Any:
        """Returns all values as one tensor."""
        return self._values


class TopK(NamedTuple):
    """The largest numbers, and where they are."""

    values: Any
    indices: Any


def identity(x: Any) -> Any:
    """Returns its argument."""
    return x


def shape(x: Any) -> tuple[int, ...]:
    """The sizes of the axes."""
    return tuple(np.shape(x))


def static_shape(x: Any) -> TensorShape:
    """The sizes of the axes of what may be a tensor."""
    return TensorShape(np.shape(x))


def rank(x: Any) -> int:
    """The number of axes."""
    return len(x.shape)


def size(x: Any) -> int:
    """The number of numbers."""
    return math.prod(np.shape(x))


def ensure_shape(x: Any, shape: Any) -> Any:
    """Returns its argument: its shape is known."""
    return x


def are_sizes(*values: Any) -> bool:
    """Whether these are whole numbers of Python, or bits."""
    return all(isinstance(x, (int, np.integer, np.bool_)) for x in values)


def executing_eagerly() -> bool:
    """Whether no graph is made; a program of JAX knows all sizes, and needs no graph in it."""
    return True


def limits(dtype: Any) -> Any:
    """The attributes `min` and `max` are the least and the largest finite number of a dtype."""
    return xnp.iinfo(dtype) if is_integer(dtype) else xnp.finfo(dtype)


def is_integer(dtype: Any) -> bool:
    """Whether a dtype is one of whole numbers, with a sign or without."""
    return bool(xnp.issubdtype(dtype, np.integer))


def is_unsigned(dtype: Any) -> bool:
    """Whether a dtype is one of whole numbers without a sign."""
    return bool(xnp.issubdtype(dtype, np.unsignedinteger))


def is_floating(dtype: Any) -> bool:
    """Whether a dtype is one of floating-point numbers."""
    return bool(xnp.issubdtype(dtype, np.floating))


def is_tensor(x: Any) -> bool:
    """Whether this is an array, or stands for one while a program is traced."""
    return isinstance(x, xnp.ndarray)


def constant(value: Any, dtype: Any = None) -> Any:
    """Makes a tensor; numbers of Python are in float32 or int32, as those of TensorFlow.

    Raises:
        TypeError: If it holds no numbers.
    """
    array = value if hasattr(value, "dtype") else np.asarray(value)
    kind = np.dtype(array.dtype).kind  # variables of Keras have the name of theirs
    if kind in _NO_NUMBERS:
        raise TypeError("no array of numbers")
    leaf = value
    while isinstance(leaf, list | tuple) and leaf:
        leaf = leaf[0]
    if dtype is None and not hasattr(leaf, "dtype"):
        fits = kind != "i" or np.all(np.abs(array) <= np.iinfo(np.int32).max)
        dtype = {"f": float32, "i": int32 if fits else int64}.get(kind)
    return xnp.asarray(value, dtype)


def convert_to_tensor(value: Any, dtype: Any = None) -> Any:
    """Makes a tensor of what is none."""
    is_done = is_tensor(value) and dtype is None
    return value if is_done and np.dtype(value.dtype).kind in "biufcV" else constant(value, dtype)


def cast(x: Any, dtype: Any) -> Any:
    """Converts to a dtype; sizes stay whole numbers of Python."""
    if are_sizes(x) and is_integer(dtype):
        return int(x)
    return convert_to_tensor(x).astype(dtype)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None) -> Any:
    """Numbers from `start` to before `limit`."""
    start, limit = (0, start) if limit is None else (start, limit)
    return xnp.arange(
        start, limit, delta, dtype or (int32 if are_sizes(start, limit, delta) else float32)
    )


def add_n(values: Any) -> Any:
    """Sums tensors."""
    return sum(values)


def maximum(x: Any, y: Any) -> Any:
    """The larger number, whose gradient is that of the first of two equal ones."""
    return max(x, y) if are_sizes(x, y) else where((x >= y) | is_nan(x), x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller number, whose gradient is that of the first of two equal ones."""
    return min(x, y) if are_sizes(x, y) else where((x <= y) | is_nan(x), x, y)


def clip_by_value(x: Any, low: Any, high: Any) -> Any:
    """The nearest number between two."""
    return minimum(maximum(x, low), high)


def zeros(shape: Any, dtype: Any = float32) -> Any:
    """Zeros of a shape."""
    return xnp.zeros(tuple(shape), dtype)


def ones(shape: Any, dtype: Any = float32) -> Any:
    """Ones of a shape."""
    return xnp.ones(tuple(shape), dtype)


def fill(shape: Any, value: Any) -> Any:
    """Equal numbers of a shape."""
    return xnp.full(tuple(shape), convert_to_tensor(value))


def pad(x: Any, paddings: Any, constant_values: Any = 0) -> Any:
    """Adds equal numbers before and behind."""
    return xnp.pad(x, paddings, constant_values=constant_values)


def stack(values: Any, axis: int = 0) -> Any:
    """Joins tensors along a new axis; sizes become a shape."""
    values = list(values)
    if are_sizes(*values):
        return tuple(values)
    return xnp.stack([*map(convert_to_tensor, values)], axis)


def unstack(x: Any, axis: int = 0) -> list[Any]:
    """Takes a tensor apart along an axis, or a shape into sizes."""
    return list(x if isinstance(x, tuple) else xnp.moveaxis(x, axis, 0))


def concat(values: Any, axis: int) -> Any:
    """Joins tensors along an axis, or shapes."""
    if not any(map(is_tensor, values)):
        return sum(map(tuple, values), ())
    return xnp.concatenate(list(values), axis)


def reverse(x: Any, axis: Any) -> Any:
    """Turns axes round."""
    return xnp.flip(x, tuple(axis))


def reduction(function: Callable[..., Any], empty: Callable[[Any], Any] | None = None) -> Any:
    """Takes the axes as TensorFlow does, and gives an empty tensor a value."""

    def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x, axes = convert_to_tensor(x), tuple(axis) if isinstance(axis, list) else axis
        options = {} if empty is None or x.size else {"initial": empty(x.dtype)}
        return function(x, axis=axes, keepdims=keepdims, **options)

    return reduce


def _in_own_dtype(function: Callable[..., Any]) -> Callable[..., Any]:
    """Sums small whole numbers without a larger dtype."""
    return lambda x, **options: function(x, dtype=x.dtype, **options)


reduce_all, reduce_any, reduce_mean = map(reduction, (xnp.all, xnp.any, xnp.mean))
reduce_sum, reduce_prod = map(reduction, map(_in_own_dtype, (xnp.sum, xnp.prod)))
reduce_max = reduction(
    xnp.max, lambda dtype: -math.inf if is_floating(dtype) else limits(dtype).min
)
reduce_min = reduction(xnp.min, lambda dtype: math.inf if is_floating(dtype) else limits(dtype).max)


def cumsum(x: Any, axis: int = 0, exclusive: bool = False) -> Any:
    """Sums up to each place, or up to before it."""
    sums = xnp.cumsum(x, axis, dtype=x.dtype)
    return _behind(sums, axis, 0) if exclusive else sums


def cumprod(x: Any, axis: int = 0, exclusive: bool = False) -> Any:
    """Multiplies up to each place, or up to before it."""
    products = xnp.cumprod(x, axis, dtype=x.dtype)
    return _behind(products, axis, 1) if exclusive else products


def _behind(x: Any, axis: int, first: int) -> Any:
    before = (builtins.slice(None),) * (axis % x.ndim)
    head, rest = (x[(*before, builtins.slice(end))] for end in (1, -1))
    return xnp.concatenate([xnp.full_like(head, first), rest], axis)


def places(indices: Any) -> tuple[Any, ...]:
    """Indices of all axes, as NumPy takes them, from those in the last axis."""
    return tuple(xnp.moveaxis(indices, -1, 0))


def gather_nd(x: Any, indices: Any) -> Any:
    """Takes numbers at places of all axes."""
    return x[places(indices)]


def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = 1,
    off_value: Any = 0,
    axis: int = -1,
    dtype: Any = None,
) -> Any:
    """One value where the place along a new axis is the index, and another elsewhere."""
    is_on = xnp.expand_dims(convert_to_tensor(indices), -1) == range(depth)
    kind = dtype or (bool_ if isinstance(on_value, bool) else float32)
    return xnp.moveaxis(where(is_on, on_value, off_value).astype(kind), -1, axis)


def matmul(a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False) -> Any:
    """Multiplies matrices."""
    a = matrix_transpose(a) if transpose_a else a
    return xnp.matmul(a, matrix_transpose(b) if transpose_b else b, **_EXACT)


def matvec(a: Any, b: Any) -> Any:
    """Multiplies matrices with vectors."""
    return einsum("...ij,...j->...i", a, b)


def set_diag(x: Any, diagonal: Any) -> Any:
    """Replaces the diagonals of square matrices."""
    return where(xnp.eye(x.shape[-1], dtype=bool), diagonal[..., newaxis], x)


def divide_no_nan(x: Any, y: Any) -> Any:
    """Divides; 0 where the divisor is 0."""
    is_zero = y == 0
    return where(is_zero, 0, where(is_zero, 0, x) / where(is_zero, 1, y))


def multiply_no_nan(x: Any, y: Any) -> Any:
    """Multiplies; 0 where the second factor is 0, whatever the first."""
    return where(y == 0, 0, x) * y


def softmax_cross_entropy(logits: Any, classes: Any) -> tuple[Any, Any]:
    """Computes the cross-entropy of one class of each row, and its gradient in the logits."""
    logits = logits - reduce_max(logits, axis=-1, keepdims=True)
    logs = logits - log(reduce_sum(exp(logits), axis=-1, keepdims=True))
    is_class = one_hot(classes, logits.shape[-1], dtype=bool_)
    return -where(is_class, logs, 0).sum(axis=-1), exp(logs) - is_class.astype(logs.dtype)


def get_keras_mask(x: Any) -> Any:
    """The mask that a layer of Keras attached to its output."""
    return _keras().get_keras_mask(x) if "keras" in sys.modules else None


def set_keras_mask(x: Any, mask: Any) -> Any:
    """Attaches a mask to a tensor, and returns the tensor."""
    _keras().set_keras_mask(x, mask)
    return x


def _keras() -> Any:
    from keras.src import backend

    return backend
