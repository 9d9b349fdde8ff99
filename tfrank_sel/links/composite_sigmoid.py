"""Composite Sigmoid: a scaling times a probability, as a link."""

import dataclasses
import math

import tensorflow as tf

from tfrank_sel.arguments import Positive
from tfrank_sel.links import convexity
from tfrank_sel.links.base import Interval, Link
from tfrank_sel.links.elementary import Sigmoid
from tfrank_sel.ops import bregman
from tfrank_sel.ops.precision import in_float64
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
    gamma: Positive = 1.0
    offset: float = 0.0
    allow_nonconvex: bool = False

    def __post_init__(self) -> None:
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
            lambda s: self.gamma * bregman.softplus(self._log_odds(s)), self.__call__, s
        )

    def slope(self, s: tf.Tensor) -> tf.Tensor:
        log_odds, q = self._log_odds(s), self.scaling(s)
        spread = q * (bregman.sigmoid(-log_odds) * q / self.gamma)  # equation B.1
        return bregman.sigmoid(log_odds) * (self.scaling.slope(s) + spread)

    def probability(self, s: tf.Tensor) -> tf.Tensor:
        """Computes `p(s) = sigmoid(Q(s) / gamma)`."""
        return bregman.sigmoid(self._log_odds(s))

    def area(self, z: tf.Tensor, s: tf.Tensor) -> tf.Tensor:
        # the divergence of softplus between the two Q, plus that of Q
        at_z, at_s = self._log_odds(z), self._log_odds(s)
        area = self.gamma * Sigmoid().phi_divergence(at_z, at_s)
        return area + bregman.sigmoid(at_s) * self.scaling.area(z, s)

    @in_float64
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
            def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
                change = self.probability(z) - self.probability(s)
                spread = p * bregman.sigmoid(-self._log_odds(s)) * self.scaling(s)
                return upstream * self.scaling(z) * change, -upstream * self._log_odds(z) * spread

            at_z, p = self._log_odds(z), self.probability(s)
            rest = bregman.sigmoid(-self._log_odds(s))  # 1 - p
            value = p * bregman.softplus(-at_z) + rest * bregman.softplus(at_z)
            return self.gamma * value, gradient

        return f(z, s)

    def _log_odds(self, s: tf.Tensor) -> tf.Tensor:
        return (self.scaling.potential(s) + self.offset) / self.gamma
