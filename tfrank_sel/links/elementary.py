"""The simplest links: linear, constant, sigmoid and hyperbolic tangent."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink, Interval
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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.square(z - x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Constant(ElementaryLink):
    """`h(s) = 1`: not sensitive anywhere; as a scaling, it gives the standard softmax."""

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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sigmoid(ElementaryLink):
    """`h(s) = 1 / (1 + exp(-scale * (s - shift)))`: most sensitive at `shift`."""

    @property
    def phi_image(self) -> Interval:
        return (0.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.sigmoid(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.softplus(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.sigmoid(x) * bregman.sigmoid(-x)  # 1 - sigmoid(x), without cancellation

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y) - tf.math.log1p(-y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        # KL of the probabilities of both outcomes
        rise = self.phi_potential(z) - self.phi_potential(x)
        area = bregman.relative_entropy(self.phi(x), self.phi(z), (z - x) - rise)
        return area + bregman.relative_entropy(self.phi(-x), self.phi(-z), -rise)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Laplace(ElementaryLink):
    """`h(s) = exp(x) / 2` below `x = scale * (s - shift) = 0`, and `1 - exp(-x) / 2` above.

    It is the distribution function of Laplace: like the sigmoid, but with a peak of sensitivity at
    `shift`. Soft ranks that compare scores by it take `O(n log n)` instead of `O(n**2)`.
    """

    @property
    def phi_image(self) -> Interval:
        return (0.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        tail = self.phi_slope(x)
        return tf.where(x < 0.0, tail, 1.0 - tail)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(x) + self.phi_slope(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.exp(-tf.abs(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        lower, upper = tf.minimum(y, 0.5), tf.minimum(1.0 - y, 0.5)
        return tf.math.log(2.0 * lower) - tf.math.log(2.0 * upper)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        # exp(x) / 2 below 0; from there to a z above, that of the mirrored link, and the rise to 0
        z, x = tf.where(x > 0.0, -z, z), -tf.abs(x)
        across = bregman.expm1_remainder(-tf.nn.relu(z)) - tf.math.expm1(x) * tf.nn.relu(z)
        return 0.5 * (bregman.exp_divergence(tf.minimum(z, 0.0), x) + across)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tanh(ElementaryLink):
    """`h(s) = tanh(scale * (s - shift))`: most sensitive at `shift`, like the sigmoid, but odd."""

    phi_is_odd: ClassVar[bool] = True

    @property
    def phi_image(self) -> Interval:
        return (-1.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.tanh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        size = tf.abs(x)
        return size + tf.math.log1p(tf.exp(-2.0 * size)) - math.log(2.0)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 4.0 * bregman.sigmoid(2.0 * x) * bregman.sigmoid(-2.0 * x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.atanh(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return Sigmoid().phi_divergence(2.0 * z, 2.0 * x)  # tanh(x) = 2 * sigmoid(2 * x) - 1
