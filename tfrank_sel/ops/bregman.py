"""Divergences `D(z, x) = Phi(z) - Phi(x) - (z - x) * phi(x)` of functions `phi`, in float64.

docs/robustness.md explains how they keep their digits.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

from tfrank_sel import numerics as xp
from tfrank_sel.numerics import Tensor

F = TypeVar("F", bound=Callable[..., Tensor])
Function = Callable[[Tensor], Tensor]
Pairwise = Callable[[Tensor, Tensor], Tensor]
NEAR = 2.0**-6  # of the distance over which a slope changes
# Gauss' nodes and weights for the integral of (1 - t) * f(t) over [0, 1], exact for cubic f
NODES = tuple((0.4 + 0.1 * r, (9.0 - r) / 36.0) for r in (-math.sqrt(6.0), math.sqrt(6.0)))


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

    @xp.entry_point
    @functools.wraps(f)
    def wide(*args: Any) -> Tensor:
        owner, tensors = args[:is_method], [xp.convert_to_tensor(x) for x in args[is_method:]]
        casts = (xp.cast(x, xp.float64) if xp.is_floating(x.dtype) else x for x in tensors)
        return xp.cast(f(*owner, *casts), tensors[0].dtype)

    return wide


def with_derivative(f: Function, derivative: Function, x: Tensor) -> Tensor:
    """Computes `f(x)` with the gradient `derivative(x)`, for any `f`."""

    @xp.custom_gradient
    def value(x: Tensor) -> tuple[Tensor, object]:
        return f(x), lambda upstream: upstream * derivative(x)

    return value(x)


def divergence(
    apart: Tensor, slope: Function, reach: Tensor | float, z: Tensor, x: Tensor
) -> Tensor:
    """Computes the divergence of any function with a slope.

    Near `x` it is `d**2` times the integral of `(1 - t) * slope(x + t * d)` over `t` in [0, 1], for
    `d = z - x`, which is exact there.

    Args:
        apart: The divergence elsewhere, such as the definition.
        slope: The derivative of the function.
        reach: The distance from `x` over which the slope changes, such as that to a singularity.
        z: Predicted scores.
        x: Observed scores.
    """
    d = z - x
    is_near = xp.abs(d) < NEAR * reach
    step = xp.where(is_near, d, 0.0)
    near = xp.square(step) * sum(weight * slope(x + t * step) for t, weight in NODES)
    return xp.where(is_near, near, apart)


def relative_entropy(p: Tensor, q: Tensor, d: Tensor) -> Tensor:
    """Computes `q - p - p * d`, for positive `p`, `q` and `d = log(q / p)`; it is at least 0.

    It is the divergence of `exp` from `log p` to `log q`, that of `log` from `q` to `p`, and the
    part of an item in `KL(p || q)`.
    """
    near = xp.clip_by_value(d, -NEAR, NEAR)
    # The series has ten digits near 0.
    series = 1.0 + near * (1.0 / 3.0) * (1.0 + near * 0.25 * (1.0 + near * 0.2))
    return xp.where(d == near, 0.5 * p * xp.square(near) * series, q - p - p * d)


def exp_divergence(z: Tensor, x: Tensor) -> Tensor:
    """Computes the divergence of `exp`."""
    return relative_entropy(xp.exp(x), xp.exp(z), z - x)


def log_divergence(z: Tensor, x: Tensor) -> Tensor:
    """Computes the divergence of the logarithm, for positive `z` and `x`."""
    return relative_entropy(z, x, xp.log(x / z))


def expm1_remainder(t: Tensor) -> Tensor:
    """Computes `exp(t) - 1 - t`, which is at least 0."""
    return relative_entropy(xp.ones_like(t), xp.exp(t), t)


# Written out, functions of the same exponential compute it once.
def sinh_divergence(z: Tensor, x: Tensor) -> Tensor:
    """Computes the divergence of `sinh`, the mean of those of `exp(x)` and `-exp(-x)`."""
    exp_z, exp_x, d = xp.exp(z), xp.exp(x), z - x
    rise = relative_entropy(exp_x, exp_z, d)
    return 0.5 * (rise + relative_entropy(1.0 / exp_x, 1.0 / exp_z, -d))


def cosh(x: Tensor) -> Tensor:
    """Computes `cosh(x)`."""
    exp = xp.exp(x)
    return 0.5 * (exp + 1.0 / exp)


def sinh(x: Tensor) -> Tensor:
    """Computes `sinh(x)`."""
    exp, square = xp.exp(x), xp.square(xp.clip_by_value(x, -NEAR, NEAR))
    near = x * (1.0 + square * (1.0 / 6.0) * (1.0 + square * (1.0 / 20.0)))
    return xp.where(xp.abs(x) < NEAR, near, 0.5 * (exp - 1.0 / exp))


def sigmoid(x: Tensor) -> Tensor:
    """Computes `1 / (1 + exp(-x))`."""

    def value(x: Tensor) -> Tensor:
        exp = xp.exp(-xp.abs(x))
        return xp.where(x < 0.0, exp, 1.0) / (1.0 + exp)

    return with_derivative(value, sigmoid_slope, x)  # an absolute value has none at 0


def sigmoid_difference(z: Tensor, x: Tensor) -> Tensor:
    """Computes `sigmoid(z) - sigmoid(x)`, by the complements of both for a positive `x`."""
    side = xp.where(x > 0.0, -xp.ones_like(x), 1.0)
    return side * (sigmoid(side * z) - sigmoid(side * x))


def sigmoid_slope(x: Tensor) -> Tensor:
    """Computes `sigmoid(x) * (1 - sigmoid(x))`, without cancellation."""
    exp = xp.exp(-xp.abs(x))
    return exp / xp.square(1.0 + exp)


def softplus(x: Tensor) -> Tensor:
    """Computes `log(1 + exp(x))`, in a third of the time of a logarithm.

    With `e = exp(-abs(x))` and `r = e / (2 + e)`, at most 1/3, `log(1 + e)` is `2 * atanh(r)`.
    """
    exp = xp.exp(-xp.abs(x))
    r = exp / (2.0 + exp)
    series = xp.zeros_like(r)
    terms = 27 if x.dtype == xp.float64 else 15
    for n in range(terms, 0, -2):  # 1 + r**2 / 3 + r**4 / 5 + ...
        series = 1.0 / n + xp.square(r) * series
    return xp.relu(x) + 2.0 * r * series


def capped_potential(
    potential: Function, link: Function, x: Tensor, lower: float, upper: float
) -> Tensor:
    """Computes the potential of a link that is constant beyond `lower` and `upper`."""
    c = xp.clip_by_value(x, lower, upper)
    return potential(c) + link(c) * (x - c)


def capped_divergence(
    divergence: Pairwise, link: Function, z: Tensor, x: Tensor, lower: float, upper: float
) -> Tensor:
    """Computes the divergence of a link that is constant beyond `lower` and `upper`.

    Inside, it is the divergence of the link. Beyond, it adds the remaining distance of `z` times
    the rise.
    """
    b, a = (xp.clip_by_value(t, lower, upper) for t in (z, x))
    return divergence(b, a) + (z - b) * (link(b) - link(a))


def clip_divergence(z: Tensor, x: Tensor, lower: float, upper: float) -> Tensor:
    """Computes the divergence of `clip(x, lower, upper)`."""
    return capped_divergence(lambda b, a: 0.5 * xp.square(b - a), xp.identity, z, x, lower, upper)
