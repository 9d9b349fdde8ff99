"""Odd links that grow more slowly than an exponential, defined on the whole line."""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.arguments import Positive
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

    exponent: Positive

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

    def phi_reach(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x) / max(self.exponent, 1.0)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class SignedLog1p(ElementaryLink):
    """`h(s) = sign(x) * log(1 + abs(x))`, `x = scale * (s - shift)`: sensitive to low norms."""

    phi_is_odd: ClassVar[bool] = True

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sign(x) * tf.math.log1p(tf.abs(x))

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        # the divergence of the logarithm from 1
        a = tf.abs(x)
        return bregman.relative_entropy(1.0 + a, tf.ones_like(a), -tf.math.log1p(a))

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 1.0 / (1.0 + tf.abs(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.sign(y) * tf.math.expm1(tf.abs(y))

    def phi_reach(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x)


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
        return x * tf.atan(x) - 0.5 * tf.math.log1p(tf.square(x))

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return 1.0 / (1.0 + tf.square(x))

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.tan(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return tf.maximum(super().phi_divergence(z, x), 0.0)  # it may round to less beyond 1e8

    def phi_reach(self, x: tf.Tensor) -> tf.Tensor:
        return _hypotenuse(x)


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

    def phi_reach(self, x: tf.Tensor) -> tf.Tensor:
        return _hypotenuse(x)


def _hypotenuse(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(1.0 + tf.square(x))
