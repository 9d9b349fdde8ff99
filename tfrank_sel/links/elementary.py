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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 0.5 * tf.square(d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return d


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
        return bregman.softplus(x)

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

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.laplace_divergence(z, x, d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return bregman.laplace_difference(z, x, d)


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
