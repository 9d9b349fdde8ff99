"""What tensors without graphs share: all sizes are known, as whole numbers of Python."""

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

DType = np.dtype
F = TypeVar("F", bound=Callable[..., Any])
newaxis = None

bool_, float32, float64, int32, int64, uint32 = map(
    np.dtype, ("bool", "float32", "float64", "int32", "int64", "uint32")
)
string = np.dtype("S")


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


def add_n(values: Any) -> Any:
    """Sums tensors."""
    return sum(values)


def executing_eagerly() -> bool:
    """Whether no graph is made; a program of JAX knows all sizes, and needs no graph in it."""
    return True
