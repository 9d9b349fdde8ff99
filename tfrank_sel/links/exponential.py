"""Exponential links, without overflow."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink, Interval
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


class ExponentialLink(ElementaryLink):
    """A link that grows like `exp`, and is constant beyond the largest `x` of its dtype.

    The limit is `abs(x) = 70`, or 640 in float64. Beyond it the potential continues linearly, as
    for a capped link: losses and gradients stay finite, and the gradient still points to the
    optimum.
    """

    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        return bregman.with_derivative(lambda s: self._capped_phi(self._x(s)), self.slope, s)

    def potential(self, s: tf.Tensor) -> tf.Tensor:
        def capped(s: tf.Tensor) -> tf.Tensor:
            x = self._x(s)
            area = bregman.capped_potential(self.phi_potential, self.phi, x, *_range(x))
            return area / self.scale

        return bregman.with_derivative(capped, self.__call__, s)

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        x = self._x(s)
        c = tf.clip_by_value(x, *_range(x))
        return tf.where(x == c, self.scale * self.phi_slope(c), 0.0)

    def stable_divergence(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        z, x, d = self._x(z), self._x(s), self.scale * d
        area = bregman.capped_divergence(
            self.phi_divergence, self.phi_difference, z, x, d, *_range(x)
        )
        return area / self.scale

    def stable_difference(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        z, x, d = self._x(z), self._x(s), self.scale * d
        return bregman.capped_difference(self.phi_difference, z, x, d, *_range(x))

    def _capped_phi(self, x: tf.Tensor) -> tf.Tensor:
        return self.phi(tf.clip_by_value(x, *_range(x)))


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Exp(ExponentialLink):
    """`h(s) = exp(scale * (s - shift))`: the higher the score, the more sensitive.

    Beyond `scale * (s - shift) = 70` (640 in float64) it is constant, so that nothing overflows.
    """

    @property
    def phi_image(self) -> Interval:
        return (0.0, math.inf)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.exp_divergence(z, x, d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.exp_difference(z, x, d)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class AntiExp(ExponentialLink):
    """`h(s) = -exp(-scale * (s - shift))`: the lower the score, the more sensitive.

    Beyond `scale * (s - shift) = -70` (-640 in float64) it is constant, so that nothing overflows.
    """

    @property
    def phi_image(self) -> Interval:
        return (-math.inf, 0.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return -tf.exp(-x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(-x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(-x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return -tf.math.log(-y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.exp_divergence(-z, -x, -d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return -bregman.exp_difference(-z, -x, -d)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinh(ExponentialLink):
    """`h(s) = sinh(scale * (s - shift))`: more sensitive the farther a score is from `shift`.

    Beyond `abs(scale * (s - shift)) = 70` (640 in float64) it is constant, so that nothing
    overflows.
    """

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.sinh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.cosh(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.cosh(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.asinh(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.sinh_divergence(z, x, d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.sinh_difference(z, x, d)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SignedExpm1(ExponentialLink):
    """`h(s) = sign(x) * (exp(abs(x)) - 1)`, `x = scale * (s - shift)`: as `Sinh`, with a kink.

    It is sensitive to high norms, and near `shift` only half as flat as `Sinh`. Beyond
    `abs(x) = 70` (640 in float64) it is constant, so that nothing overflows.
    """

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sign(x) * tf.math.expm1(tf.abs(x))

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.expm1_remainder(tf.abs(x))

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(tf.abs(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.sign(y) * tf.math.log1p(tf.abs(y))

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        a, b, e = tf.abs(x), tf.abs(z), tf.where(x + z < 0.0, -d, d)
        same = bregman.exp_divergence(b, a, e)
        # for opposite signs, all terms are at least 0; the second is a * h(a) - H(a)
        across = bregman.expm1_remainder(b) + tf.exp(a) * bregman.expm1_remainder(-a)
        return tf.where(x * z >= 0.0, same, across + b * tf.math.expm1(a))

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        sign = tf.where(x + z < 0.0, -tf.ones_like(x), tf.ones_like(x))
        same = sign * bregman.exp_difference(tf.abs(z), tf.abs(x), sign * d)
        return tf.where(x * z >= 0.0, same, self.phi(z) - self.phi(x))


def _range(x: tf.Tensor) -> Interval:
    limit = 640.0 if x.dtype == tf.float64 else 70.0
    return -limit, limit
