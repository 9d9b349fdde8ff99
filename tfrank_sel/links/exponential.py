"""Exponential links, without overflow."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink, Interval
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register

RANGE: Interval = (-70.0, 70.0)


class ExponentialLink(ElementaryLink):
    """A link that grows like `exp`, and is constant beyond `abs(x) = 70`.

    Beyond it the potential continues linearly, as for a capped link: losses and gradients are
    finite in float32, and the gradient still points to the optimum.
    """

    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        return bregman.with_derivative(lambda s: self.phi(_clip(self._x(s))), self.slope, s)

    def potential(self, s: tf.Tensor) -> tf.Tensor:
        def capped(s: tf.Tensor) -> tf.Tensor:
            area = bregman.capped_potential(self.phi_potential, self.phi, self._x(s), *RANGE)
            return area / self.scale

        return bregman.with_derivative(capped, self.__call__, s)

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        x = self._x(s)
        return tf.where(x == _clip(x), self.scale * self.phi_slope(_clip(x)), 0.0)

    def area(self, z: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        z, x = self._x(z), self._x(s)
        return bregman.capped_divergence(self.phi_divergence, self.phi, z, x, *RANGE) / self.scale

    def folded(self, s: tf.Tensor) -> tf.Tensor:
        return s  # scores within the range are precise, and share the exponentials of the link


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Exp(ExponentialLink):
    """`h(s) = exp(scale * (s - shift))`: the higher the score, the more sensitive.

    Beyond `scale * (s - shift) = 70` it is constant, so that nothing overflows.
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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return bregman.exp_divergence(z, x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class AntiExp(ExponentialLink):
    """`h(s) = -exp(-scale * (s - shift))`: the lower the score, the more sensitive.

    Beyond `scale * (s - shift) = -70` it is constant, so that nothing overflows.
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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return bregman.exp_divergence(-z, -x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinh(ExponentialLink):
    """`h(s) = sinh(scale * (s - shift))`: more sensitive the farther a score is from `shift`.

    Beyond `abs(scale * (s - shift)) = 70` it is constant, so that nothing
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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return bregman.sinh_divergence(z, x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SignedExpm1(ExponentialLink):
    """`h(s) = sign(x) * (exp(abs(x)) - 1)`, `x = scale * (s - shift)`: as `Sinh`, with a kink.

    It is sensitive to high norms, and near `shift` only half as flat as `Sinh`. Beyond
    `abs(x) = 70` it is constant, so that nothing overflows.
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

    def phi_reach(self, x: tf.Tensor) -> tf.Tensor:
        return tf.minimum(tf.abs(x), 1.0)


def _clip(x: tf.Tensor) -> tf.Tensor:
    return tf.clip_by_value(x, *RANGE)
