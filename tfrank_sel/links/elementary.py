"""Links of the exponential family, and the two that need none: defined on the whole line."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink, ExponentialLink, Interval
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity(ElementaryLink):
    """`h(s) = scale * (s - shift)`: the squared error, equally sensitive everywhere."""

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.square(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return y

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.square(d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return d


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(ElementaryLink):
    """`h(s) = 1`: sensitive nowhere; as a scaling, it makes the standard softmax."""

    phi_has_inverse: ClassVar[bool] = False

    @property
    def phi_image(self) -> Interval:
        return (1.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.ones_like(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return x

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(x)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(d)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sigmoid(ElementaryLink):
    """`h(s) = 1 / (1 + exp(-scale * (s - shift)))`: most sensitive at `shift`."""

    @property
    def phi_image(self) -> Interval:
        return (0.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.math.softplus(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x) * tf.sigmoid(-x)  # 1 - sigmoid(x), without cancellation

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y) - tf.math.log1p(-y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.sigmoid_divergence(z, x, d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.sigmoid_difference(z, x, d)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tanh(ElementaryLink):
    """`h(s) = tanh(scale * (s - shift))`: most sensitive at `shift`, as the sigmoid, but odd."""

    phi_is_odd: ClassVar[bool] = True

    @property
    def phi_image(self) -> Interval:
        return (-1.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        size = tf.abs(x)
        # log cosh x = log(1 + sinh(x)**2) / 2, which is small where x is
        near = 0.5 * tf.math.log1p(tf.square(tf.sinh(tf.minimum(size, 1.0))))
        far = size + tf.math.log1p(tf.exp(-2.0 * size)) - math.log(2.0)
        return tf.where(size < 1.0, near, far)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 4.0 * tf.sigmoid(2.0 * x) * tf.sigmoid(-2.0 * x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.atanh(y)

    # tanh(x) = 2 * sigmoid(2 * x) - 1
    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.sigmoid_divergence(2.0 * z, 2.0 * x, 2.0 * d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 2.0 * bregman.sigmoid_difference(2.0 * z, 2.0 * x, 2.0 * d)


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
    """`h(s) = sinh(scale * (s - shift))`: ever more sensitive away from `shift`, to either side.

    Beyond `abs(scale * (s - shift)) = 70` (640 in float64) it is constant, so that nothing
    overflows.
    """

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sinh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cosh(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cosh(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.asinh(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 0.5 * (bregman.exp_divergence(z, x, d) + bregman.exp_divergence(-z, -x, -d))

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 2.0 * tf.cosh(x + 0.5 * d) * tf.sinh(0.5 * d)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SignedExpm1(ExponentialLink):
    """`h(s) = sign(x) * (exp(abs(x)) - 1)`, `x = scale * (s - shift)`: as `Sinh`, but sharp.

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
        # of opposite signs, all terms are at least 0; the second is a * h(a) - H(a)
        across = bregman.expm1_remainder(b) + tf.exp(a) * bregman.expm1_remainder(-a)
        return tf.where(x * z >= 0.0, same, across + b * tf.math.expm1(a))

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        sign = tf.where(x + z < 0.0, -tf.ones_like(x), tf.ones_like(x))
        same = sign * bregman.exp_difference(tf.abs(z), tf.abs(x), sign * d)
        return tf.where(x * z >= 0.0, same, self.phi(z) - self.phi(x))
