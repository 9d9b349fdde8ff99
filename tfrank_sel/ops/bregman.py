"""Stable divergences `D(z, x) = Phi(z) - Phi(x) - (z - x) * phi(x)`, and their parts.

The plain formulas lose all digits if `z` is near `x`. Every function takes `d = z - x` as an
argument, because it was known before `z` and `x` were rounded.
"""

import functools
from collections.abc import Callable

import numpy as np
import tensorflow as tf

Function = Callable[[tf.Tensor], tf.Tensor]
Pairwise = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


def with_derivative(f: Function, derivative: Function, x: tf.Tensor) -> tf.Tensor:
    """Computes `f(x)` with the gradient `derivative(x)`, for any `f`."""

    @tf.custom_gradient
    def value(x: tf.Tensor) -> tuple[tf.Tensor, object]:
        return f(x), lambda upstream: upstream * derivative(x)

    return value(x)


def softplus(x: tf.Tensor) -> tf.Tensor:
    """Computes `log(1 + exp(x))` accurately, in a third of the time of TensorFlow's function.

    With `e = exp(-abs(x))` at most 1, and `z = e / (2 + e)` at most 1/3, it is
    `max(x, 0) + log(1 + e)`, and `log(1 + e) = 2 * atanh(z) = 2 * (z + z**3 / 3 + z**5 / 5 + ...)`.
    """
    e = tf.exp(-tf.abs(x))
    z = e / (2.0 + e)
    return tf.maximum(x, 0.0) + 2.0 * z * _atanh_series(z, 1)


def times_sigmoid(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
    """Computes `sigmoid(x) * y`, also if the sigmoid underflows but the product does not."""
    root = tf.exp(0.5 * tf.minimum(x, 0.0))
    return root * (y / (1.0 + tf.exp(-tf.abs(x)))) * root


def expm1_remainder(t: tf.Tensor) -> tf.Tensor:
    """Computes `exp(t) - 1 - t`, which is at least 0, without cancellation."""
    return tf.where(tf.abs(t) < 1.0, expm1_series(t), (tf.exp(t) - 1.0) - t)


def exp_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of `exp`."""
    near = tf.exp(x) * expm1_series(d)
    return tf.where(tf.abs(d) < 1.0, near, tf.exp(z) - tf.exp(x) * (1.0 + d))


def exp_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes `exp(z) - exp(x)`."""
    near = tf.exp(x) * (_clip(d, 1.0) + expm1_series(d))
    return tf.where(tf.abs(d) < 1.0, near, tf.exp(z) - tf.exp(x))


# Written out, the hyperbolic functions of one number share their exponential.
def sinh(x: tf.Tensor) -> tf.Tensor:
    """Computes `sinh(x)`."""
    exp = tf.exp(x)
    far = 0.5 * (exp - 1.0 / exp)
    return tf.where(tf.abs(x) < 1.0, _clip(x, 1.0) + _sinh_remainder(x), far)


def cosh(x: tf.Tensor) -> tf.Tensor:
    """Computes `cosh(x)`."""
    exp = tf.exp(x)
    return 0.5 * (exp + 1.0 / exp)


def sinh_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of `sinh`, whose potential is `cosh`."""
    near = cosh(x) * _coshm1_series(d) + sinh(x) * _sinh_remainder(d)
    return tf.where(tf.abs(d) < 1.0, near, cosh(z) - cosh(x) - d * sinh(x))


def sinh_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes `sinh(z) - sinh(x)`."""
    near = sinh(x) * _coshm1_series(d) + cosh(x) * (_clip(d, 1.0) + _sinh_remainder(d))
    return tf.where(tf.abs(d) < 1.0, near, sinh(z) - sinh(x))


def cosh_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of `cosh`, whose potential is `sinh`."""
    near = sinh(x) * _coshm1_series(d) + cosh(x) * _sinh_remainder(d)
    return tf.where(tf.abs(d) < 1.0, near, sinh(z) - sinh(x) - d * cosh(x))


def cosh_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes `cosh(z) - cosh(x)`, from the difference of their sizes."""
    across = z * x < 0.0
    d = tf.where(across, tf.sign(z) * (z + x), tf.where(z + x < 0.0, -d, d))
    near = cosh(x) * _coshm1_series(d) + tf.abs(sinh(x)) * (_clip(d, 1.0) + _sinh_remainder(d))
    return tf.where(tf.abs(d) < 1.0, near, cosh(z) - cosh(x))


def laplace_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of the distribution function of Laplace.

    It is even, so `x` is mirrored below 0, where the function is `exp(x) / 2`. The divergence of a
    `z` above 0 is that from `x` to 0, that from 0 to `z`, and the rise to 0 times `z`.
    """
    z, x, d = _below(z, x, d)
    areas = expm1_remainder(-z) + exp_divergence(tf.zeros_like(x), x, -x)
    across = 0.5 * (areas - tf.math.expm1(x) * z)
    return tf.where(z > 0.0, across, 0.5 * exp_divergence(z, x, d))


def laplace_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the difference of the distribution function of Laplace."""
    low_z, low_x, low_d = _below(z, x, d)
    across = -0.5 * (tf.math.expm1(-tf.nn.relu(low_z)) + tf.math.expm1(low_x))
    rise = tf.where(low_z > 0.0, across, 0.5 * exp_difference(low_z, low_x, low_d))
    return tf.where(x > 0.0, -rise, rise)


def _below(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Mirrors `z`, `x` and `d = z - x` so that `x` is at most 0."""
    return tf.where(x > 0.0, -z, z), -tf.abs(x), tf.where(x > 0.0, -d, d)


def sigmoid_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of the sigmoid, whose potential is softplus."""
    z, d, p, q, exp_z, p_times_d = _mirrored(z, x, d)
    # softplus(z) - softplus(x) = log1p(growth), and growth = p * d + rest
    growth, rest = _sigmoid_growth(z, d, p, q, exp_z, p_times_d)
    near = growth < 0.4
    # rest - (growth - log1p(growth)), which does not cancel, as p <= 1/2
    r = tf.where(near, growth, 0.0)
    r = r / (2.0 + r)  # log1p(growth) = 2 * artanh(r)
    small = rest - r * (growth - 2.0 * r * r * _atanh_series(r, 3))
    large = tf.nn.relu(z) + tf.math.log(q * (1.0 + exp_z)) - p_times_d
    return tf.where(near, small, large)


def sigmoid_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes `sigmoid(z) - sigmoid(x)`."""
    mirrored_z, d, p, q, exp_z, p_times_d = _mirrored(z, x, d)
    growth, _ = _sigmoid_growth(mirrored_z, d, p, q, exp_z, p_times_d)
    near = q * growth / (1.0 + growth)
    far = tf.where(mirrored_z > 0.0, tf.ones_like(z), exp_z) / (1.0 + exp_z) - p
    difference = tf.where(tf.abs(d) < 1.0, near, far)
    return tf.where(x > 0.0, -difference, difference)


def _sigmoid_growth(
    z: tf.Tensor,
    d: tf.Tensor,
    p: tf.Tensor,
    q: tf.Tensor,
    exp_z: tf.Tensor,
    p_times_d: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes `p * expm1(d)` and `p * (expm1(d) - d)`, of which the second is at least 0.

    If both `z` and `d` are large, so is the growth, and 1 is returned instead.
    """
    series = expm1_series(d)
    far = tf.where(z > 0.0, tf.ones_like(z), q * exp_z - p)
    is_near = tf.abs(d) < 1.0
    growth = tf.where(is_near, p * (_clip(d, 1.0) + series), far)
    return growth, tf.where(is_near, p * series, growth - p_times_d)


def _mirrored(
    z: tf.Tensor, x: tf.Tensor, d: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Mirrors all arguments to `x <= 0`, where the sigmoid `p` and `q = 1 - p` are accurate.

    The last two are `exp(-abs(z))`, and `p * d`, also where `p` underflows.
    """
    root = tf.exp(-0.5 * tf.abs(x))
    q = 1.0 / (1.0 + root * root)
    exp_z = tf.exp(-tf.abs(z))
    d = tf.where(x > 0.0, -d, d)
    return tf.where(x > 0.0, -z, z), d, root * root * q, q, exp_z, root * d * root * q


def _atanh_series(z: tf.Tensor, first: int) -> tf.Tensor:
    """Computes `1 / n + z**2 / (n + 2) + ...`, `n = first` odd, for `abs(z)` up to 1/3.

    From 1 on, that is `atanh(z) / z`.
    """
    square = z * z
    series = tf.zeros_like(z)
    for n in range(31 if z.dtype == tf.float64 else 15, first - 1, -2):
        series = 1.0 / n + square * series
    return series


def expm1_series(t: tf.Tensor) -> tf.Tensor:
    """Computes `exp(t) - 1 - t` for `abs(t) < 1`."""
    t = _clip(t, 1.0)
    series = tf.ones_like(t)
    for n in range(19 if t.dtype == tf.float64 else 11, 2, -1):  # 1 + t/3 * (1 + t/4 * (1 + ...))
        series = 1.0 + t * (1.0 / n) * series
    return 0.5 * t * t * series


def _coshm1_series(t: tf.Tensor) -> tf.Tensor:
    """Computes `cosh(t) - 1` for `abs(t) < 1`."""
    square = tf.square(_clip(t, 1.0))
    series = tf.ones_like(t)
    for n in range(18 if t.dtype == tf.float64 else 10, 2, -2):
        series = 1.0 + square * (1.0 / (n * (n - 1))) * series
    return 0.5 * square * series


def _sinh_remainder(t: tf.Tensor) -> tf.Tensor:
    """Computes `sinh(t) - t` for `abs(t) < 1`."""
    t = _clip(t, 1.0)
    series = tf.ones_like(t)
    for n in range(19 if t.dtype == tf.float64 else 11, 3, -2):
        series = 1.0 + t * t * (1.0 / (n * (n - 1))) * series
    return t * t * t * (1.0 / 6.0) * series


def log_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of the logarithm, `z * log(z / x) - d`, for positive `z` and `x`."""
    r = tf.clip_by_value(d / x, -0.2, 0.2)
    terms = 24 if x.dtype == tf.float64 else 12
    series = tf.zeros_like(r)
    for n in range(terms, 1, -1):  # r**2 * (1/2 - r/6 + r**2/12 - ...)
        series = 1.0 / (n * (n - 1)) - r * series
    near = x * r * r * series
    return tf.where(tf.abs(d) < 0.2 * x, near, tf.math.xlogy(z, z / x) - d)


def log_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes `log(z) - log(x)` for positive `z` and `x`."""
    near = tf.math.log1p(tf.clip_by_value(d / x, -0.5, 0.5))
    return tf.where(tf.abs(d) < 0.5 * x, near, tf.math.log(z / x))


def power_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor, exponent: float) -> tf.Tensor:
    """Computes the divergence of `sign(x) * abs(x)**exponent`."""
    n, above = exponent, exponent + 1.0
    size_z, size_x = tf.abs(z), tf.abs(x)
    same = tf.sign(z) * tf.sign(x) > 0.0  # the product of small numbers may be 0
    r = tf.where(same, d / tf.where(same, x, tf.ones_like(x)), 0.0)
    # z**above = x**above * (1 + r)**above
    near = taylor_remainder(lambda u: n * u ** (n - 1.0), tf.ones_like(r), _clip(r, 0.5))
    middle = tf.math.expm1(above * tf.math.log1p(tf.clip_by_value(r, -1.0, 8.0))) / above - r
    relative = size_x**above * tf.where(tf.abs(r) < 0.5, near, middle)
    relative = tf.where(r == 0.0, r, relative)  # also where the power overflows
    far = (size_z**above - size_x**above) / above - tf.abs(d) * size_x**n
    # for opposite signs, all terms are at least 0
    across = (size_z**above + n * size_x**above) / above + size_z * size_x**n
    return tf.where(same, tf.where(r > 8.0, far, relative), across)


def power_difference(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor, exponent: float) -> tf.Tensor:
    """Computes the difference of `sign(x) * abs(x)**exponent` between `z` and `x`."""
    r = d / tf.where(x == 0.0, d, x)
    power_x = tf.sign(x) * tf.abs(x) ** exponent
    near = power_x * tf.math.expm1(exponent * tf.math.log1p(_clip(r, 0.5)))
    return tf.where(tf.abs(r) < 0.5, near, tf.sign(z) * tf.abs(z) ** exponent - power_x)


def taylor_remainder(slope: Function, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Computes the divergence of any link from its slope, by quadrature.

        D(x + d, x) = d**2 * integral over t in [0, 1] of (1 - t) * slope(x + t * d)

    Exact to rounding where `slope` is analytic around the points within `abs(d)` of the middle of
    the interval. Where the slope is positive, so is every term.
    """
    nodes, weights = _quadrature(12 if d.dtype == tf.float64 else 6)
    return d * d * sum(w * slope(x + t * d) for t, w in zip(nodes, weights, strict=True))


@functools.cache
def _quadrature(size: int) -> tuple[list[float], list[float]]:
    """Gauss' nodes and weights for the integral of `(1 - t) * f(t)` over [0, 1]."""
    k = np.arange(1.0, size)
    # Golub and Welsch: the eigenvalues of the recurrence of Jacobi's polynomials
    diagonal = -1.0 / ((2.0 * np.arange(size) + 1.0) * (2.0 * np.arange(size) + 3.0))
    beside = np.sqrt(k * (k + 1.0)) / (2.0 * k + 1.0)
    u, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    return list((1.0 + u) / 2.0), list(vectors[0] ** 2 / 2.0)


def capped_potential(
    potential: Function, link: Function, x: tf.Tensor, lower: float, upper: float
) -> tf.Tensor:
    """Computes the potential of a link that is constant beyond `lower` and `upper`."""
    c = tf.clip_by_value(x, lower, upper)
    return potential(c) + link(c) * (x - c)


def capped_divergence(
    divergence: Pairwise,
    difference: Pairwise,
    z: tf.Tensor,
    x: tf.Tensor,
    d: tf.Tensor,
    lower: float,
    upper: float,
) -> tf.Tensor:
    """Computes the divergence of a link that is constant beyond `lower` and `upper`.

    Inside, it is the divergence of the link. Beyond, it adds the remaining distance of `z` times
    the rise.
    """
    b, a, e = _clipped(z, x, d, lower, upper)
    return divergence(b, a, e) + (z - b) * difference(b, a, e)


def capped_difference(
    difference: Pairwise, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor, lower: float, upper: float
) -> tf.Tensor:
    """Computes the difference of a link that is constant beyond `lower` and `upper`."""
    return difference(*_clipped(z, x, d, lower, upper))


def clip_divergence(
    z: tf.Tensor, x: tf.Tensor, d: tf.Tensor, lower: float, upper: float
) -> tf.Tensor:
    """Computes the divergence of `clip(x, lower, upper)`."""
    return capped_divergence(lambda b, a, e: 0.5 * e * e, lambda b, a, e: e, z, x, d, lower, upper)


def clip_difference(
    z: tf.Tensor, x: tf.Tensor, d: tf.Tensor, lower: float, upper: float
) -> tf.Tensor:
    """Computes `clip(z, lower, upper) - clip(x, lower, upper)`."""
    return _clipped(z, x, d, lower, upper)[2]


def _clipped(
    z: tf.Tensor, x: tf.Tensor, d: tf.Tensor, lower: float, upper: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    b, a = tf.clip_by_value(z, lower, upper), tf.clip_by_value(x, lower, upper)
    return b, a, tf.where((a == x) & (b == z), d, b - a)


def _clip(x: tf.Tensor, limit: float) -> tf.Tensor:
    return tf.clip_by_value(x, -limit, limit)
