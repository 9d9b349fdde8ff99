"""Odd links that grow more slowly than an exponential, defined on the whole line."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink, Interval
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Power(ElementaryLink):
    """`h(s) = sign(x) * abs(x)**exponent`, `x = scale * (s - shift)`: sensitive to high norms.

    With an `exponent` below 1 it is sensitive to low norms, and its slope at `shift` is infinite.

    Args:
        exponent: The power; positive.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `exponent` or `scale` is not positive and finite, or `shift` is not finite.
    """

    phi_is_odd: ClassVar[bool] = True

    exponent: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_exponent(self.exponent)

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return (0.0,)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sign(x) * tf.abs(x) ** self.exponent

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x) ** (self.exponent + 1.0) / (self.exponent + 1.0)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return self.exponent * tf.abs(x) ** (self.exponent - 1.0)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.sign(y) * tf.abs(y) ** (1.0 / self.exponent)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.power_divergence(z, x, d, self.exponent)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.power_difference(z, x, d, self.exponent)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SignedLog1p(ElementaryLink):
    """`h(s) = sign(x) * log(1 + abs(x))`, `x = scale * (s - shift)`: sensitive to low norms."""

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sign(x) * tf.math.log1p(tf.abs(x))

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        a = tf.abs(x)
        return bregman.log_divergence(1.0 + a, tf.ones_like(a), a)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 1.0 / (1.0 + tf.abs(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.sign(y) * tf.math.expm1(tf.abs(y))

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        a, b, e = tf.abs(x), tf.abs(z), tf.where(x + z < 0.0, -d, d)
        same = bregman.log_divergence(1.0 + b, 1.0 + a, e)
        # for opposite signs, all terms are at least 0; the second is a * h(a) - H(a) = a - log1p(a)
        rise = tf.math.log1p(a)
        across = self.phi_potential(b) + bregman.expm1_remainder(rise) + b * rise
        return tf.where(x * z >= 0.0, same, across)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        sign = tf.where(x + z < 0.0, -tf.ones_like(x), tf.ones_like(x))
        same = sign * bregman.log_difference(1.0 + tf.abs(z), 1.0 + tf.abs(x), sign * d)
        return tf.where(x * z >= 0.0, same, self.phi(z) - self.phi(x))


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Arctan(ElementaryLink):
    """`h(s) = arctan(scale * (s - shift))`: most sensitive at `shift`, with heavier tails."""

    phi_is_odd: ClassVar[bool] = True

    @property
    def phi_image(self) -> Interval:
        return (-0.5 * math.pi, 0.5 * math.pi)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.atan(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        near = 0.5 * tf.math.log1p(tf.square(tf.clip_by_value(x, -1.0, 1.0)))
        return x * tf.atan(x) - tf.where(tf.abs(x) < 1.0, near, tf.math.log(_hypotenuse(x)))

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.square(1.0 / _hypotenuse(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.tan(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        near = _is_near(z, x, d)
        hx, hz = _hypotenuse(x), _hypotenuse(z)
        # log(hz / hx), hz**2 - hx**2 being d * (z + x)
        rise = 0.5 * tf.math.log1p((d / hx) * ((z + x) / hx))
        alike = (hz < 2.0 * hx) & (hx < 2.0 * hz)
        rise = tf.where(alike, rise, tf.math.log(hz) - tf.math.log(hx))
        far = z * self.phi_difference(z, x, d) - rise
        return tf.where(
            near, bregman.taylor_remainder(self.phi_slope, x, tf.where(near, d, 0.0)), far
        )

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        hx, hz = _hypotenuse(x), _hypotenuse(z)
        # the sine and the cosine of the difference, whose quotient is d / (1 + x * z)
        return tf.atan2(d / hx / hz, (x / hx) * (z / hz) + 1.0 / hx / hz)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Arcsinh(ElementaryLink):
    """`h(s) = arcsinh(scale * (s - shift))`: a logarithm to both sides, sensitive to low norms."""

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.asinh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return x * tf.asinh(x) - _hypotenuse(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 1.0 / _hypotenuse(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.sinh(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        near = _is_near(z, x, d)
        rise = d * ((z + x) / (_hypotenuse(z) + _hypotenuse(x)))
        far = z * self.phi_difference(z, x, d) - rise
        return tf.where(
            near, bregman.taylor_remainder(self.phi_slope, x, tf.where(near, d, 0.0)), far
        )

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        # sinh of the difference, z * hx - x * hz, without its cancellation
        hx, hz = _hypotenuse(x), _hypotenuse(z)
        same = tf.sign(x) * tf.sign(z) > 0.0
        scale = tf.where(same, x + hx * (z / hz), 1.0)
        sinh = d * (((x + z) / hz) / scale)
        return tf.where(same, tf.asinh(sinh), tf.asinh(z) - tf.asinh(x))


def check_exponent(exponent: float) -> None:
    """Raises a ValueError unless `exponent` is positive."""
    if not exponent > 0.0:
        raise ValueError(f"`exponent` must be positive. Received: exponent={exponent}")


def _hypotenuse(x: tf.Tensor) -> tf.Tensor:
    """Computes `sqrt(1 + x**2)`, also if the square overflows."""
    large = tf.maximum(tf.abs(x), 1.0)
    small = tf.minimum(tf.abs(x), 1.0)
    return large * tf.sqrt(1.0 + tf.square(small / large))


def _is_near(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    """Whether the singularities at `+i` and `-i` are far enough for quadrature."""
    return tf.abs(d) < 0.6 * _hypotenuse(tf.minimum(tf.abs(x), tf.abs(z)))
