"""Arrays of NumPy under the names of TensorFlow's functions: values, without gradients."""

import builtins
import functools
import itertools
import math
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from tfrank_sel.numerics.arrays import *  # noqa: F403
from tfrank_sel.numerics.arrays import (
    F,
    TopK,
    abs,
    convert_to_tensor,
    exp,
    identity,
    int32,
    limits,
    log,
    log1p,
    places,
    reduce_max,
    reduction,
    where,
    zeros,
)

Tensor = np.ndarray
HAS_GRADIENTS = False

jit = stop_gradient = identity  # nothing is compiled, and nothing is traced
init_scope = functools.partial(np.errstate, all="ignore")
reduce_logsumexp = reduction(np.logaddexp.reduce)


def entry_point(function: F) -> F:
    """Lets a function that users call compute infinities and NaN without warnings."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with init_scope():
            return function(*args, **kwargs)

    return run  # type: ignore[return-value]


graph = graph_of_lists = differentiable = entry_point


def vjp(function: Callable[..., Any], *inputs: Any, has_aux: bool = False) -> Any:
    """Refuses to compute a gradient."""
    raise NotImplementedError(
        "NumPy has no gradients: set KERAS_BACKEND=tensorflow or jax, which must be installed"
    )


def custom_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the value of a function that returns a gradient beside it."""
    return lambda *inputs: function(*map(convert_to_tensor, inputs))[0]


def is_on_host(x: Tensor) -> bool:
    """Whether NumPy computes faster: always."""
    return True


def has_gpu() -> bool:
    """Whether this process has a GPU for these arrays: never."""
    return False


def argmax(x: Tensor, axis: int = 0) -> Tensor:
    """The place of the largest number, of equal ones the first."""
    return np.argmax(x, axis).astype(int32)


def argmin(x: Tensor, axis: int = 0) -> Tensor:
    """The place of the least number, of equal ones the first."""
    return np.argmin(x, axis).astype(int32)


def slice(x: Tensor, begin: Any, size: Any) -> Tensor:
    """A part of a known size."""
    return x[tuple(builtins.slice(i, i + n) for i, n in zip(begin, size, strict=True))]


def gather(x: Any, indices: Any, axis: int | None = None, batch_dims: int = 0) -> Tensor:
    """Takes parts by their indices along an axis, by default the first behind those of batches."""
    x, indices = convert_to_tensor(x), np.asarray(indices)
    axis = batch_dims if axis is None else axis
    if batch_dims == 0:
        return np.take(x, indices, axis, mode="clip")
    # the place in each axis of batches, beside the index
    rest = [1] * (indices.ndim - batch_dims)
    rows = (i.reshape([*i.shape, *rest]) for i in np.ogrid[*map(builtins.slice, x.shape[:axis])])
    return x[*rows, indices.clip(0, x.shape[axis] - 1)]


def scatter_nd(indices: Tensor, updates: Tensor, shape: Any) -> Tensor:
    """Adds numbers to zeros, at places of all axes."""
    return tensor_scatter_nd_add(zeros(shape, updates.dtype), indices, updates)


def tensor_scatter_nd_add(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Adds numbers at places of all axes."""
    sums = np.array(x)
    np.add.at(sums, places(indices), updates)
    return sums


def tensor_scatter_nd_update(x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Replaces numbers at places of all axes."""
    changed = np.array(x)
    changed[places(indices)] = updates
    return changed


def top_k(x: Tensor, k: int) -> TopK:
    """The largest numbers of the last axis, of equal ones the first."""
    ascending = np.argsort(x[..., ::-1], kind="stable")[..., ::-1]
    indices = (x.shape[-1] - 1 - ascending[..., : int(k)]).astype(int32)
    return TopK(np.take_along_axis(x, indices, -1), indices)


def unsorted_segment_sum(x: Tensor, segments: Tensor, count: int) -> Tensor:
    """Sums the rows of each segment."""
    return _by_segment(np.add, x, segments, count, 0)


def unsorted_segment_min(x: Tensor, segments: Tensor, count: int) -> Tensor:
    """The least row of each segment."""
    return _by_segment(np.minimum, x, segments, count, limits(x.dtype).max)


def _by_segment(function: Any, x: Tensor, segments: Tensor, count: int, start: Any) -> Tensor:
    results = np.full([count, *x.shape[segments.ndim :]], start, x.dtype)
    function.at(results, segments, x)
    return results


def bitcast(x: Tensor, dtype: Any) -> Tensor:
    """The same bits as numbers of another dtype."""
    x, size = np.ascontiguousarray(x), np.dtype(dtype).itemsize
    if x.itemsize > size:
        return x[..., np.newaxis].view(dtype)
    return x.view(dtype) if x.itemsize == size else x.view(dtype)[..., 0]


def sigmoid(x: Any) -> Tensor:
    """`1 / (1 + exp(-x))`, with all digits also near 0."""
    small = exp(-abs(x))
    return where(x >= 0, 1, small) / (1 + small)


def softplus(x: Any) -> Tensor:
    """`log(1 + exp(x))`."""
    return np.logaddexp(x, 0)


def log_sigmoid(x: Any) -> Tensor:
    """`log(sigmoid(x))`."""
    return -softplus(-x)


def relu(x: Any) -> Tensor:
    """`max(x, 0)`."""
    return np.maximum(x, 0)


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """`exp(x)` over its sum."""
    powers = exp(x - reduce_max(x, axis, keepdims=True))
    return powers / np.sum(powers, axis, keepdims=True)


def xlogy(x: Any, y: Any) -> Tensor:
    """`x * log(y)`, and 0 where `x` is 0."""
    return where(x == 0, 0, x * log(where(x == 0, 1, y)))


def xlog1py(x: Any, y: Any) -> Tensor:
    """`x * log(1 + y)`, and 0 where `x` is 0."""
    return where(x == 0, 0, x * log1p(where(x == 0, 0, y)))


def _by_number(function: Callable[..., float]) -> Callable[..., Tensor]:
    """Applies a function of numbers of Python, in float64."""
    apply = np.frompyfunc(function, function.__code__.co_argcount, 1)
    return lambda *xs: np.asarray(apply(*xs)).astype(np.result_type(*xs))


@_by_number
def erfc(x: float) -> float:
    """`1 - erf(x)`."""
    return math.erfc(x)


@_by_number
def ndtri(p: float) -> float:
    """The quantile of the normal distribution."""
    if 0.0 < p < 1.0:
        return statistics.NormalDist().inv_cdf(p)
    return {0.0: -math.inf, 1.0: math.inf}.get(p, math.nan)


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if not 0.0 < x < 1.0:
        return x if x in (0.0, 1.0) else math.nan
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction converges slowly
        return 1.0 - _incomplete_beta(b, a, 1.0 - x)
    # Lentz's method for the continued fraction of DLMF 8.17.22
    fraction, c, d = 1.0, 1.0, 0.0
    for n in itertools.count(1):
        m = n // 2
        term = -(a + m) * (a + b + m) / (a + 2 * m + 1) if n % 2 else m * (b - m) / (a + 2 * m - 1)
        term *= x / (a + 2 * m)
        c, d = 1.0 + term / c, 1.0 / (1.0 + term * d)
        fraction *= c * d
        if math.fabs(c * d - 1.0) < 1e-15:
            break
    logs = a * math.log(x) + b * math.log1p(-x)
    scale = math.exp(logs + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))
    return scale / (a * fraction)


betainc = _by_number(_incomplete_beta)


def cond(condition: Any, on_true: Callable[[], Any], on_false: Callable[[], Any]) -> Any:
    """Computes one of two functions."""
    return on_true() if condition else on_false()


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    state: Any,
    maximum_iterations: Any = None,
    parallel_iterations: int = 1,
) -> tuple[Any, ...]:
    """Computes a body as long as a condition holds."""
    state, most = tuple(state), math.inf if maximum_iterations is None else maximum_iterations
    number = 0
    while number < most and condition(*state):
        number, state = number + 1, tuple(body(*state))
    return state


def foldl(function: Callable[..., Any], rows: Tensor, start: Any) -> Any:
    """Computes a function of the result for all earlier rows, and of the next."""
    return functools.reduce(function, rows, start)


def map_fn(function: Callable[..., Any], rows: Any, **_: Any) -> Any:
    """Computes a function of one row after the other."""
    results = [*map(function, zip(*rows, strict=True) if isinstance(rows, tuple) else rows)]
    if isinstance(results[0], tuple):
        return tuple(map(np.stack, zip(*results, strict=True)))
    return np.stack(results)


def stateless_uniform(
    shape: Any, seed: Tensor, minval: Any, maxval: Any, dtype: Any, alg: str
) -> Tensor:
    """Random numbers, other ones than those of TensorFlow for the same seed."""
    generator = np.random.Generator(np.random.Philox(key=seed.view(np.uint64)))
    drawn = generator.uniform(minval, maxval, tuple(shape)).astype(dtype)
    # rounding must not reach the end, whose logarithm is infinite
    return np.minimum(drawn, np.nextafter(*(np.asarray(x, dtype) for x in (maxval, minval))))


def assert_equal(x: Any, y: Any, message: str) -> None:
    """Raises an error if numbers differ."""
    _check(np.equal(x, y), message)


def assert_less_equal(x: Any, y: Any, message: str) -> None:
    """Raises an error if a number is larger than another."""
    _check(np.less_equal(x, y), message)


def _check(holds: Any, message: str) -> None:
    if not np.all(holds):
        raise ValueError(message)
