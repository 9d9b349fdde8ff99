"""Composite Sigmoid: a scaling times a probability, as a link."""

import dataclasses
import math
from collections.abc import Sequence

import tensorflow as tf

from tfrank_sel.links import convexity
from tfrank_sel.links.base import Interval, Link
from tfrank_sel.links.elementary import Sigmoid
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
@dataclasses.dataclass(frozen=True)
class CompositeSigmoid(Link):
    """`h(s) = q(s) * p(s)`, `p = sigmoid(Q(s) / gamma)`: a composite Softmax of two items, one
    fixed.

    `q` is the scaling, and `Q` its potential plus `offset`; the potential of the link is
    `gamma * softplus(Q / gamma)`. Where `q` is large, the link is sensitive to scores.

    Args:
        scaling: The function `q`; increasing, or such that `h` is.
        gamma: Temperature of the sigmoid; positive.
        offset: Constant of `Q`, which moves the scores at which `p` is 1/2.
        allow_nonconvex: Whether to accept a `q` for which `h` is not increasing.

    Raises:
        ValueError: If `gamma` is not positive, or `h` is not increasing and this is not allowed.
    """

    scaling: Link
    gamma: float = 1.0
    offset: float = 0.0
    allow_nonconvex: bool = False

    def __post_init__(self) -> None:
        check_gamma(self.gamma)
        convexity.check_sigmoid(self.scaling, self.gamma, self.offset, self.allow_nonconvex)

    @property
    def domain(self) -> Interval:
        return self.scaling.domain

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.scaling.kinks

    @property
    def is_invertible(self) -> bool:
        return False

    @property
    def rises_from(self) -> float:
        margin = convexity.sigmoid_margin(self.scaling, self.gamma, self.offset)
        return -math.inf if margin >= -convexity.TOLERANCE else math.inf

    def __call__(self, s: tf.Tensor) -> tf.Tensor:
        return bregman.with_derivative(
            lambda s: self.scaling(s) * self.probability(s), self.slope, s
        )

    def potential(self, s: tf.Tensor) -> tf.Tensor:
        return bregman.with_derivative(
            lambda s: self.gamma * tf.math.softplus(self._log_odds(s)), self.__call__, s
        )

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        log_odds, q = self._log_odds(s), self.scaling(s)
        # equation B.1; in this order a large q meets the small 1 - p before it is squared
        spread = q * (tf.sigmoid(-log_odds) * q / self.gamma)
        return tf.sigmoid(log_odds) * (self.scaling.slope(s) + spread)

    def probability(self, s: tf.Tensor) -> tf.Tensor:
        """Computes `p(s) = sigmoid(Q(s) / gamma)`."""
        return tf.sigmoid(self._log_odds(s))

    def stable_divergence(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        # the divergence of softplus between the two Q, plus the divergence of Q
        area = self.scaling.stable_divergence(z, s, d)
        at_z, at_s, rise = self._log_odds(z), self._log_odds(s), self._rise(z, s, d)
        near = (
            self.gamma * bregman.sigmoid_divergence(at_z, at_s, rise),
            bregman.times_sigmoid(at_s, area),
        )
        return _by_smaller(near, (self.potential(z), -self.potential(s), -d * self(s)))

    def stable_difference(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        at_z, at_s, rise = self._log_odds(z), self._log_odds(s), self._rise(z, s, d)
        near = (
            bregman.times_sigmoid(at_z, self.scaling.stable_difference(z, s, d)),
            self.scaling(s) * bregman.sigmoid_difference(at_z, at_s, rise),
        )
        return _by_smaller(near, (self(z), -self(s)))

    def cross_entropy(self, z: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        """Computes `gamma * softplus(Q(z) / gamma) - p(s) * Q(z)`, at least 0.

        Args:
            z: Predicted scores.
            s: Observed scores, of the shape of `z`.

        Returns:
            The cross-entropy, of the shape of `z`. Its gradient in `z` is
            `q(z) * (p(z) - p(s))`, in closed form, to any order.
        """

        @tf.custom_gradient
        def f(z: tf.Tensor, s: tf.Tensor) -> tuple[tf.Tensor, object]:
            at_z, at_s = self._log_odds(z), self._log_odds(s)

            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                at_z, at_s = self._log_odds(z), self._log_odds(s)
                change = Sigmoid().difference(at_z, at_s, self._rise(z, s, z - s))
                spread = tf.sigmoid(at_s) * tf.sigmoid(-at_s) * self.scaling(s)
                return upstream * (self.scaling(z) * change), -upstream * at_z * spread

            return self.gamma * (
                bregman.times_sigmoid(at_s, bregman.softplus(-at_z))
                + bregman.times_sigmoid(-at_s, bregman.softplus(at_z))
            ), gradient

        return f(z, s)

    def _log_odds(self, s: tf.Tensor) -> tf.Tensor:
        return (self.scaling.potential(s) + self.offset) / self.gamma

    def _rise(self, z: tf.Tensor, s: tf.Tensor, d: tf.Tensor) -> tf.Tensor:
        return self.scaling.rise(z, s, d) / self.gamma


def check_gamma(gamma: float) -> None:
    """Raises a ValueError unless `gamma` is positive."""
    if not gamma > 0.0:
        raise ValueError(f"`gamma` must be positive. Received: gamma={gamma}")


def _by_smaller(near: Sequence[tf.Tensor], direct: Sequence[tf.Tensor]) -> tf.Tensor:
    """Adds the smaller terms: of two equal sums, the one with the smaller rounding error."""
    smaller = sum(map(tf.abs, near)) <= sum(map(tf.abs, direct))
    return tf.where(smaller, sum(near), sum(direct))
