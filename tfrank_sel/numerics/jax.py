"""Arrays of JAX under the names of TensorFlow's functions, with which they agree.

Formulas compute in float64 inside, which JAX knows only in the scope of an `entry_point`; what
comes in and goes out of it is of the user's dtypes. The state of what changes between calls is on
the host: a program that `jax.jit` compiled reads it at each call.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor, lax, vjp as vjp
from jax.experimental import io_callback
from jax.lax import stop_gradient as stop_gradient
from jax.nn import (
    log_sigmoid as log_sigmoid,
    relu as relu,
    sigmoid as sigmoid,
    softmax as softmax,
    softplus as softplus,
)
from jax.scipy.special import (
    betainc as betainc,
    erfc as erfc,
    ndtri as ndtri,
    xlog1py as xlog1py,
    xlogy as xlogy,
)

from tfrank_sel.numerics import arrays
from tfrank_sel.numerics.arrays import *  # noqa: F403
from tfrank_sel.numerics.arrays import (
    F,
    TopK,
    cast,
    constant,
    convert_to_tensor,
    int32,
    limits,
    places,
    reduction,
    reshape,
    uint32,
    zeros,
    zeros_like,
)

HAS_GRADIENTS = True
reduce_logsumexp = reduction(jax.scipy.special.logsumexp)


class Variable(arrays.Variable):  # type: ignore[no-redef]
    """Numbers that may change between the calls of a compiled program, which asks the host."""

    def assign_add(self, value: Any) -> Tensor:
        """Adds to the numbers, and returns what they are then."""
        return self._read(lambda: self.assign(self._value + value))

    def __jax_array__(self) -> Tensor:
        return self._read(lambda: None)

    def _read(self, change: Callable[[], None]) -> Tensor:
        def bits() -> np.ndarray:
            change()
            return self._value.reshape([*self._value.shape, 1]).view(np.uint32)

        # a callback knows no numbers of 64 bits
        shape = (*self._value.shape, self.dtype.itemsize // 4)
        read = io_callback(bits, jax.ShapeDtypeStruct(shape, np.uint32))
        return bitcast(read if shape[-1] > 1 else read[..., 0], self.dtype)


@jax.tree_util.register_pytree_node_class
class TensorArray(arrays.TensorArray):  # type: ignore[no-redef]
    """Tensors of one shape, of which a loop writes one after the other."""

    def write(self, index: Any, value: Tensor) -> "TensorArray":
        """Returns the array with another value at an index."""
        return self.tree_unflatten(None, [self._values.at[index].set(value)])

    def tree_flatten(self) -> tuple[list[Tensor], None]:
        """Tells JAX what is inside."""
        return [self._values], None

    @classmethod
    def tree_unflatten(cls, _: None, values: list[Tensor]) -> "TensorArray":
        """Makes the array of what is inside."""
        array = object.__new__(cls)
        [array._values] = values
        return array


@contextlib.contextmanager
def init_scope() -> Iterator[None]:
    """Computes now what is not of the arguments of the program that is being traced."""
    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        yield


def entry_point(function: F) -> F:
    """Lets a function that users call compute in float64 inside."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


graph = graph_of_lists = entry_point


def differentiable(formula: F) -> F:
    """Lets a formula, and its gradient in the scores, the second argument, compute in float64."""

    @entry_point
    def forward(first: Any, scores: Tensor, *others: Tensor) -> tuple[Tensor, Any]:
        return vjp(lambda scores: formula(first, scores, *others), scores)

    @entry_point
    def of_fields(*fields: Any) -> Tensor:
        others = [None] * (len(fields) - 2)
        run = jax.custom_vjp(formula)
        run.defvjp(forward, entry_point(lambda back, x: (None, *back(x), *others)))
        return run(*fields)

    return of_fields  # type: ignore[return-value]


# numbers of places have 32 bits, as JAX lowers a program outside the scope in which it traces it
def argmax(x: Tensor, axis: int = 0) -> Tensor:
    """The place of the largest number, of equal ones the first."""
    return lax.argmax(x, axis % x.ndim, int32)


def argmin(x: Tensor, axis: int = 0) -> Tensor:
    """The place of the least number, of equal ones the first."""
    return lax.argmin(x, axis % x.ndim, int32)


def slice(x: Tensor, begin: Any, size: Any) -> Tensor:
    """A part of a known size."""
    return lax.dynamic_slice(x, [constant(i, int32) for i in begin], size)


def gather(x: Any, indices: Any, axis: int | None = None, batch_dims: int = 0) -> Tensor:
    """Takes parts by their indices along an axis, by default the first behind those of batches."""
    axis = batch_dims if axis is None else axis
    if batch_dims:
        part = functools.partial(gather, axis=axis - 1, batch_dims=batch_dims - 1)
        return jax.vmap(part)(x, indices)
    return jnp.take(convert_to_tensor(x), indices, axis=axis, mode="clip")


def scatter_nd(indices: Tensor, updates: Tensor, shape: Any) -> Tensor:
    """Adds numbers to zeros, at places of all axes."""
    return tensor_scatter_nd_add(zeros(shape, updates.dtype), indices, updates)


def tensor_scatter_nd_add(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Adds numbers at places of all axes."""
    return x.at[places(indices)].add(updates)


def tensor_scatter_nd_update(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Replaces numbers at places of all axes."""
    return x.at[places(indices)].set(updates)


def top_k(x: Tensor, k: int) -> TopK:
    """The largest numbers of the last axis, of equal ones the first."""
    return TopK(*lax.top_k(x, int(k)))


def unsorted_segment_sum(x: Tensor, segments: Tensor, count: int) -> Tensor:
    """Sums the rows of each segment."""
    rows = reshape(x, [-1, *x.shape[segments.ndim :]])
    return jax.ops.segment_sum(rows, segments.ravel(), count)


def unsorted_segment_min(x: Tensor, segments: Tensor, count: int) -> Tensor:
    """The least row of each segment."""
    rows = reshape(x, [-1, *x.shape[segments.ndim :]])
    return jax.ops.segment_min(rows, segments.ravel(), count)


def bitcast(x: Tensor, dtype: Any) -> Tensor:
    """The same bits as numbers of another dtype."""
    return lax.bitcast_convert_type(x, dtype)


def cond(condition: Any, on_true: Callable[[], Any], on_false: Callable[[], Any]) -> Any:
    """Computes one of two functions."""
    if isinstance(condition, (bool, np.bool_)):
        return on_true() if condition else on_false()
    return lax.cond(condition, on_true, on_false)


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    state: Any,
    maximum_iterations: Any = None,
    parallel_iterations: int = 1,
) -> tuple[Any, ...]:
    """Computes a body as long as a condition holds."""
    start = jax.tree.map(convert_to_tensor, tuple(state))
    most = limits(int32).max if maximum_iterations is None else maximum_iterations

    def step(carried: Any) -> Any:
        number, old = carried
        new = jax.tree.map(lambda x, y: cast(y, x.dtype), old, tuple(body(*old)))
        return number + 1, new

    def goes_on(carried: Any) -> Any:
        return (carried[0] < most) & condition(*carried[1])

    return tuple(lax.while_loop(goes_on, step, (constant(0), start))[1])


def foldl(function: Callable[..., Any], rows: Tensor, start: Any) -> Any:
    """Computes a function of the result for all earlier rows, and of the next."""
    return lax.scan(lambda state, row: (function(state, row), None), start, rows)[0]


def map_fn(function: Callable[..., Any], rows: Any, **_: Any) -> Any:
    """Computes a function of one row after the other."""
    return lax.map(function, rows)


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a function the gradient that it returns beside its value."""

    @functools.wraps(function)
    def run(*inputs: Any) -> Any:
        @jax.custom_gradient
        def of_tensors(*tensors: Tensor) -> Any:
            value, gradient = function(*tensors)

            def pull_back(upstream: Any) -> Any:
                back = gradient(*(upstream if isinstance(upstream, tuple) else (upstream,)))
                slopes = back if isinstance(back, (tuple, list)) else (back,)
                pairs = zip(tensors, slopes, strict=True)
                return tuple(zeros_like(x) if slope is None else slope for x, slope in pairs)

            return value, pull_back

        return of_tensors(*map(convert_to_tensor, inputs))

    return run


def jit(function: F) -> F:
    """Compiles a function."""
    return jax.jit(function)


def is_on_host(x: Tensor) -> bool:
    """Whether NumPy computes faster, as it does for TensorFlow."""
    return False


def has_gpu() -> bool:
    """Whether this process has a GPU."""
    return jax.default_backend() == "gpu"


def stateless_uniform(
    shape: Any, seed: Tensor, minval: Any, maxval: Any, dtype: Any, alg: str
) -> Tensor:
    """Random numbers, other ones than those of TensorFlow for the same seed."""
    # 32 bits at a time, as a program is lowered outside the scope that knows 64
    key = functools.reduce(
        jax.random.fold_in, bitcast(seed, uint32).ravel(), jax.random.key(np.uint32(0))
    )
    return jax.random.uniform(key, tuple(shape), dtype, minval, maxval)


def assert_equal(x: Any, y: Any, message: str) -> None:
    """Raises an error if numbers differ, where they are known."""
    _check(jnp.all(jnp.equal(x, y)), message)


def assert_less_equal(x: Any, y: Any, message: str) -> None:
    """Raises an error if a number is larger than another, where they are known."""
    _check(jnp.all(jnp.less_equal(x, y)), message)


def _check(holds: Tensor, message: str) -> None:
    if not isinstance(holds, jax.core.Tracer) and not holds:
        raise ValueError(message)
