"""Links with a closed form on the whole line."""

import dataclasses

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity(ElementaryLink):
    """`h(s) = scale * (s - shift)`: the squared error, equally sensitive everywhere."""

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
class Sigmoid(ElementaryLink):
    """`h(s) = 1 / (1 + exp(-scale * (s - shift)))`: most sensitive at `shift`."""

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.math.softplus(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sigmoid(x) * tf.sigmoid(-x)  # 1 - sigmoid(x), without cancellation

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y) - tf.math.log1p(-y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        p, q = tf.sigmoid(x), tf.sigmoid(-x)
        near = tf.clip_by_value(d, -1.0, 1.0)
        # exp of the divergence is the mean of exp(q*d) and exp(-p*d) under p and q
        rest = p * bregman.expm1_remainder(q * near) + q * bregman.expm1_remainder(-p * near)
        # far away the potential itself, mirrored so that the flat side is the small one
        sign = tf.where(x > 0.0, -tf.ones_like(x), tf.ones_like(x))
        far = tf.math.softplus(sign * z) - tf.math.softplus(sign * x) - sign * d * tf.minimum(p, q)
        return tf.where(tf.abs(d) < 1.0, tf.math.log1p(rest), far)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        # mirrored to x <= 0, where sigmoid(z) - p = p * q * expm1(d) / (1 + p * expm1(d))
        sign = tf.where(x > 0.0, -tf.ones_like(x), tf.ones_like(x))
        p, q = tf.sigmoid(sign * x), tf.sigmoid(-sign * x)
        growth = tf.math.expm1(tf.clip_by_value(sign * d, -1.0, 1.0))
        near = sign * p * q * growth / (1.0 + p * growth)
        far = sign * (tf.sigmoid(sign * z) - p)
        return tf.where(tf.abs(d) < 1.0, near, far)


class _ExponentialLink(ElementaryLink):
    """A link that grows like `exp`, and is constant beyond the largest `x` of its dtype.

    There its potential continues linearly, as that of a capped link: losses and gradients stay
    finite for scores of any size, and the gradient still points home.
    """

    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        return self.phi(_capped(self._x(s)))

    def potential(self, s: tf.Tensor) -> tf.Tensor:
        x = self._x(s)
        c = _capped(x)
        return (self.phi_potential(c) + self.phi(c) * (x - c)) / self.scale

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        x = self._x(s)
        c = _capped(x)
        return tf.where(x == c, self.scale * self.phi_slope(c), 0.0)

    def stable_divergence(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        z, x, d = self._x(z), self._x(s), self.scale * d
        a, b = _capped(x), _capped(z)
        e = tf.where((a == x) & (b == z), d, b - a)
        inside = self.phi_divergence(b, a, e)
        return (inside + (z - b) * self.phi_difference(b, a, e)) / self.scale

    def stable_difference(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        z, x, d = self._x(z), self._x(s), self.scale * d
        a, b = _capped(x), _capped(z)
        return self.phi_difference(b, a, tf.where((a == x) & (b == z), d, b - a))


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Exp(_ExponentialLink):
    """`h(s) = exp(scale * (s - shift))`: the higher the score, the more sensitive.

    Beyond `scale * (s - shift) = 70` (640 in float64) it is constant, so that nothing overflows.
    """

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.exp(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.math.log(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return _exp_divergence(z, x, d)

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        near = tf.exp(x) * tf.math.expm1(tf.clip_by_value(d, -1.0, 1.0))
        return tf.where(tf.abs(d) < 1.0, near, tf.exp(z) - tf.exp(x))


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sinh(_ExponentialLink):
    """`h(s) = sinh(scale * (s - shift))`: ever more sensitive away from `shift`, to either side.

    Beyond `abs(scale * (s - shift)) = 70` (640 in float64) it is constant, so that nothing
    overflows.
    """

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sinh(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cosh(x)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.cosh(x)

    def phi_inverse(self, y: tf.Tensor) -> tf.Tensor:
        return tf.asinh(y)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 0.5 * (_exp_divergence(z, x, d) + _exp_divergence(-z, -x, -d))

    def phi_difference(self, z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return 2.0 * tf.cosh(x + 0.5 * d) * tf.sinh(0.5 * d)


def _capped(x: tf.Tensor) -> tf.Tensor:
    limit = 640.0 if x.dtype == tf.float64 else 70.0
    return tf.clip_by_value(x, -limit, limit)


def _exp_divergence(z: tf.Tensor, x: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
    near = tf.exp(x) * bregman.expm1_remainder(tf.minimum(d, 1.0))
    return tf.where(d > 1.0, tf.exp(z) - tf.exp(x) * (1.0 + d), near)
