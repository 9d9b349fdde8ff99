"""Scaling functions that are positive but not increasing.

As a link, or as the scaling of a composite Softmax, they give a non-convex loss. As the scaling of
a composite Sigmoid, they give a convex loss for the parameters that `convexity` finds.
"""

import dataclasses
import math
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.arguments import AtLeast0, Positive
from tfrank_sel.links.base import ElementaryLink, Interval
from tfrank_sel.links.exponential import ExponentialLink
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Cosh(ExponentialLink):
    """`h(s) = cosh(scale * (s - shift))`: makes a composite Sigmoid sensitive on both sides.

    Beyond `abs(scale * (s - shift)) = 70` it is constant, so that nothing
    overflows.
    """

    phi_has_inverse: ClassVar[bool] = False
    phi_rises_from: ClassVar[float] = 0.0

    @property
    def phi_image(self) -> Interval:
        return (1.0, math.inf)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.cosh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.sinh(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return bregman.sinh(x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class AbsPower(ElementaryLink):
    """`h(s) = abs(x)**exponent + constant`, `x = scale * (s - shift)`: a polynomial form of `Cosh`.

    Args:
        exponent: The power; positive.
        constant: Minimum of the function; at least 0.
        scale: Stretches the function; positive.
        shift: Moves the function to the right.

    Raises:
        ValueError: If `exponent` or `scale` is not positive and finite, `constant` is negative, or
            `shift` is not finite.
    """

    phi_has_inverse: ClassVar[bool] = False
    phi_rises_from: ClassVar[float] = 0.0

    exponent: Positive
    constant: AtLeast0 = 0.0

    @property
    def phi_image(self) -> Interval:
        return (self.constant, math.inf)

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return (0.0,)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x) ** self.exponent + self.constant

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        above = self.exponent + 1.0
        return tf.sign(x) * tf.abs(x) ** above / above + self.constant * x

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return self.exponent * tf.sign(x) * tf.abs(x) ** (self.exponent - 1.0)

    def phi_reach(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x) / max(self.exponent, 1.0)
