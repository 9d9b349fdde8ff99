"""Arrays of JAX under the names of TensorFlow's functions, with which they agree.

Formulas compute in float64 inside, which JAX knows only in the scope of an `entry_point`; what
comes in and goes out of it is of the user's dtypes. The state of what changes between calls is on
the host: a program that `jax.jit` compiled reads it at each call.
"""

import contextlib
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array as Tensor, lax, vjp as vjp
from jax.experimental import io_callback
from jax.lax import slice_in_dim, stop_gradient as stop_gradient
from jax.nn import (
    log_sigmoid as log_sigmoid,
    relu as relu,
    sigmoid as sigmoid,
    softmax as softmax,
    softplus as softplus,
)
from jax.numpy import (
    abs as abs,
    asin as asin,
    asinh as asinh,
    atan as atan,
    atan2 as atan2,
    atanh as atanh,
    bitwise_xor as bitwise_xor,
    broadcast_to as broadcast_to,
    cos as cos,
    exp as exp,
    expm1 as expm1,
    floor as floor,
    log as log,
    log1p as log1p,
    matrix_transpose as matrix_transpose,
    ones_like as ones_like,
    pow as pow,
    repeat as repeat,
    reshape as reshape,
    right_shift as right_shift,
    roll as roll,
    searchsorted as searchsorted,
    sign as sign,
    sin as sin,
    sinh as sinh,
    sqrt as sqrt,
    square as square,
    squeeze as squeeze,
    tan as tan,
    tanh as tanh,
    tile as tile,
    transpose as transpose,
    where as where,
    zeros_like as zeros_like,
)
from jax.scipy.special import (
    betainc as betainc,
    erfc as erfc,
    ndtri as ndtri,
    xlog1py as xlog1py,
    xlogy as xlogy,
)

from tfrank_sel.numerics import arrays
from tfrank_sel.numerics.arrays import (
    DType as DType,
    F,
    RaggedTensor as RaggedTensor,
    TensorShape as TensorShape,
    TensorSpec as TensorSpec,
    TopK,
    add_n as add_n,
    are_sizes,
    bool_ as bool_,
    ensure_shape as ensure_shape,
    executing_eagerly as executing_eagerly,
    float32 as float32,
    float64 as float64,
    identity as identity,
    int32 as int32,
    int64 as int64,
    newaxis as newaxis,
    rank as rank,
    shape as shape,
    size as size,
    static_shape as static_shape,
    string as string,
    uint32 as uint32,
)

# products of matrices in float32: a GPU would take TF32, of 11 bits
_EXACT = {"precision": "highest"}
is_finite, is_inf, is_nan = jnp.isfinite, jnp.isinf, jnp.isnan
einsum = functools.partial(jnp.einsum, **_EXACT)
tensordot = functools.partial(jnp.tensordot, **_EXACT)


class Variable(arrays.Variable):
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
class TensorArray:
    """Tensors of one shape, of which a loop writes one after the other."""

    def __init__(self, dtype: Any, size: int, element_shape: Any = None) -> None:
        self._values = zeros([size, *(element_shape or ())], dtype)

    def write(self, index: Any, value: Tensor) -> "TensorArray":
        """Returns the array with another value at an index."""
        return self.tree_unflatten(None, [self._values.at[index].set(value)])

    def stack(self) -> Tensor:
        """Returns all values as one tensor."""
        return self._values

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


def limits(dtype: Any) -> Any:
    """The attributes `min` and `max` are the least and the largest finite number of a dtype."""
    is_whole = jnp.issubdtype(dtype, jnp.integer)
    return jnp.iinfo(dtype) if is_whole else jnp.finfo(dtype)


def is_integer(dtype: Any) -> bool:
    """Whether a dtype is one of whole numbers, with a sign or without."""
    return bool(jnp.issubdtype(dtype, jnp.integer))


def is_unsigned(dtype: Any) -> bool:
    """Whether a dtype is one of whole numbers without a sign."""
    return bool(jnp.issubdtype(dtype, jnp.unsignedinteger))


def is_floating(dtype: Any) -> bool:
    """Whether a dtype is one of floating-point numbers."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def is_tensor(x: Any) -> bool:
    """Whether this is an array of JAX, or stands for one while a program is traced."""
    return isinstance(x, Tensor)


def constant(value: Any, dtype: Any = None) -> Tensor:
    """Makes a tensor; numbers of Python are in float32 or int32, as those of TensorFlow."""
    if dtype is None and not hasattr(value, "dtype"):
        kind = np.asarray(value).dtype.kind
        dtype = {"f": float32, "i": int32}.get(kind)
    return jnp.asarray(value, dtype)


def convert_to_tensor(value: Any, dtype: Any = None) -> Tensor:
    """Makes a tensor of what is none."""
    return value if is_tensor(value) and dtype is None else constant(value, dtype)


def cast(x: Any, dtype: Any) -> Any:
    """Converts to a dtype; sizes stay whole numbers of Python."""
    if are_sizes(x) and is_integer(dtype):
        return int(x)
    return convert_to_tensor(x).astype(dtype)


# numbers of places have 32 bits, as JAX lowers a program outside the scope in which it traces it
def argmax(x: Tensor, axis: int = 0) -> Tensor:
    """The place of the largest number, of equal ones the first."""
    return lax.argmax(x, axis % x.ndim, int32)


def argmin(x: Tensor, axis: int = 0) -> Tensor:
    """The place of the least number, of equal ones the first."""
    return lax.argmin(x, axis % x.ndim, int32)


def range(start: Any, limit: Any = None, delta: Any = 1, dtype: Any = None) -> Tensor:
    """Numbers from `start` to before `limit`."""
    start, limit = (0, start) if limit is None else (start, limit)
    return jnp.arange(
        start, limit, delta, dtype or (int32 if are_sizes(start, limit, delta) else float32)
    )


def maximum(x: Any, y: Any) -> Any:
    """The larger number, whose gradient is that of the first of two equal ones."""
    return max(x, y) if are_sizes(x, y) else where((x >= y) | is_nan(x), x, y)


def minimum(x: Any, y: Any) -> Any:
    """The smaller number, whose gradient is that of the first of two equal ones."""
    return min(x, y) if are_sizes(x, y) else where((x <= y) | is_nan(x), x, y)


def clip_by_value(x: Any, low: Any, high: Any) -> Any:
    """The nearest number between two."""
    return minimum(maximum(x, low), high)


def zeros(shape: Any, dtype: Any = float32) -> Tensor:
    """Zeros of a shape."""
    return jnp.zeros(tuple(shape), dtype)


def ones(shape: Any, dtype: Any = float32) -> Tensor:
    """Ones of a shape."""
    return jnp.ones(tuple(shape), dtype)


def fill(shape: Any, value: Any) -> Tensor:
    """Equal numbers of a shape."""
    return jnp.full(tuple(shape), convert_to_tensor(value))


def pad(x: Tensor, paddings: Any, constant_values: Any = 0) -> Tensor:
    """Adds equal numbers before and behind."""
    return jnp.pad(x, paddings, constant_values=constant_values)


def stack(values: Any, axis: int = 0) -> Any:
    """Joins tensors along a new axis; sizes become a shape."""
    values = list(values)
    return (
        tuple(values) if are_sizes(*values) else jnp.stack([*map(convert_to_tensor, values)], axis)
    )


def unstack(x: Any, axis: int = 0) -> list[Any]:
    """Takes a tensor apart along an axis, or a shape into sizes."""
    return list(x if isinstance(x, tuple) else jnp.moveaxis(x, axis, 0))


def concat(values: Any, axis: int) -> Any:
    """Joins tensors along an axis, or shapes."""
    if not any(map(is_tensor, values)):
        return sum(map(tuple, values), ())
    return jnp.concatenate(list(values), axis)


def reverse(x: Tensor, axis: Any) -> Tensor:
    """Turns axes round."""
    return jnp.flip(x, tuple(axis))


def slice(x: Tensor, begin: Any, size: Any) -> Tensor:
    """A part of a known size."""
    return lax.dynamic_slice(x, [constant(i, int32) for i in begin], size)


def _reduction(function: Callable[..., Tensor], empty: Callable[[Any], Any] | None = None) -> Any:
    def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Tensor:
        x, axes = convert_to_tensor(x), tuple(axis) if isinstance(axis, list) else axis
        options = {} if empty is None or x.size else {"initial": empty(x.dtype)}
        return function(x, axis=axes, keepdims=keepdims, **options)

    return reduce


def _in_own_dtype(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Sums small whole numbers without a larger dtype."""
    return lambda x, **options: function(x, dtype=x.dtype, **options)


reduce_all, reduce_any, reduce_mean = map(_reduction, (jnp.all, jnp.any, jnp.mean))
reduce_sum, reduce_prod = map(_reduction, map(_in_own_dtype, (jnp.sum, jnp.prod)))
reduce_logsumexp = _reduction(jax.scipy.special.logsumexp)
reduce_max = _reduction(
    jnp.max, lambda dtype: -math.inf if is_floating(dtype) else limits(dtype).min
)
reduce_min = _reduction(
    jnp.min, lambda dtype: math.inf if is_floating(dtype) else limits(dtype).max
)


def cumsum(x: Tensor, axis: int = 0, exclusive: bool = False) -> Tensor:
    """Sums up to each place, or up to before it."""
    sums = jnp.cumsum(x, axis, dtype=x.dtype)
    return _behind(sums, axis, 0) if exclusive else sums


def cumprod(x: Tensor, axis: int = 0, exclusive: bool = False) -> Tensor:
    """Multiplies up to each place, or up to before it."""
    products = jnp.cumprod(x, axis, dtype=x.dtype)
    return _behind(products, axis, 1) if exclusive else products


def _behind(x: Tensor, axis: int, first: int) -> Tensor:
    rest = slice_in_dim(x, 0, max(x.shape[axis] - 1, 0), axis=axis)
    head = jnp.full_like(slice_in_dim(x, 0, min(x.shape[axis], 1), axis=axis), first)
    return jnp.concatenate([head, rest], axis)


def gather(x: Any, indices: Any, axis: int | None = None, batch_dims: int = 0) -> Tensor:
    """Takes parts by their indices along an axis, by default the first behind those of batches."""
    axis = batch_dims if axis is None else axis
    if batch_dims:
        part = functools.partial(gather, axis=axis - 1, batch_dims=batch_dims - 1)
        return jax.vmap(part)(x, indices)
    return jnp.take(convert_to_tensor(x), indices, axis=axis, mode="clip")


def gather_nd(x: Tensor, indices: Tensor) -> Tensor:
    """Takes numbers at places of all axes."""
    return x[_places(indices)]


def scatter_nd(indices: Tensor, updates: Tensor, shape: Any) -> Tensor:
    """Adds numbers to zeros, at places of all axes."""
    return tensor_scatter_nd_add(zeros(shape, updates.dtype), indices, updates)


def tensor_scatter_nd_add(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Adds numbers at places of all axes."""
    return x.at[_places(indices)].add(updates)


def tensor_scatter_nd_update(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Replaces numbers at places of all axes."""
    return x.at[_places(indices)].set(updates)


def _places(indices: Tensor) -> tuple[Tensor, ...]:
    return tuple(jnp.moveaxis(indices, -1, 0))


def one_hot(
    indices: Any,
    depth: int,
    on_value: Any = 1,
    off_value: Any = 0,
    axis: int = -1,
    dtype: Any = None,
) -> Tensor:
    """One value where the place along a new axis is the index, and another elsewhere."""
    is_on = jnp.expand_dims(convert_to_tensor(indices), -1) == range(depth)
    kind = dtype or (bool_ if isinstance(on_value, bool) else float32)
    return jnp.moveaxis(where(is_on, on_value, off_value).astype(kind), -1, axis)


def matmul(a: Tensor, b: Tensor, transpose_a: bool = False, transpose_b: bool = False) -> Tensor:
    """Multiplies matrices."""
    a = matrix_transpose(a) if transpose_a else a
    return jnp.matmul(a, matrix_transpose(b) if transpose_b else b, **_EXACT)


def matvec(a: Tensor, b: Tensor) -> Tensor:
    """Multiplies matrices with vectors."""
    return einsum("...ij,...j->...i", a, b)


def set_diag(x: Tensor, diagonal: Tensor) -> Tensor:
    """Replaces the diagonals of square matrices."""
    return where(jnp.eye(x.shape[-1], dtype=bool), diagonal[..., newaxis], x)


def divide_no_nan(x: Any, y: Any) -> Tensor:
    """Divides; 0 where the divisor is 0."""
    is_zero = y == 0
    return where(is_zero, 0, where(is_zero, 0, x) / where(is_zero, 1, y))


def multiply_no_nan(x: Any, y: Any) -> Tensor:
    """Multiplies; 0 where the second factor is 0, whatever the first."""
    return where(y == 0, 0, x) * y


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


def softmax_cross_entropy(logits: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Computes the cross-entropy of one class of each row, and its gradient in the logits."""
    logs, is_class = jax.nn.log_softmax(logits), one_hot(classes, logits.shape[-1], dtype=bool_)
    return -where(is_class, logs, 0).sum(axis=-1), exp(logs) - is_class.astype(logs.dtype)


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
    key = jax.random.fold_in(jax.random.key(seed[0]), seed[1].astype(uint32))
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


def get_keras_mask(x: Any) -> Tensor | None:
    """The mask that a layer of Keras attached to its output."""
    return _keras().get_keras_mask(x) if "keras" in sys.modules else None


def set_keras_mask(x: Tensor, mask: Tensor) -> Tensor:
    """Attaches a mask to a tensor, and returns the tensor."""
    _keras().set_keras_mask(x, mask)
    return x


def _keras() -> Any:
    from keras.src import backend

    return backend
