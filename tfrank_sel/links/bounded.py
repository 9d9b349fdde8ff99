"""Links on an interval or a half-line, with NaN elsewhere.

If predictions can leave the domain, wrap the link in `Capped` with bounds inside the domain.
"""

import math

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.links.base import ElementaryLink
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
class Sin(ElementaryLink):
    """`h(s) = sin(x)`, `x = scale * (s - shift)` in `[-pi/2, pi/2]`: flat at both ends."""

    phi_domain = (-0.5 * math.pi, 0.5 * math.pi)
    phi_is_odd = True
    ends_belong = True

    phi_image = (-1.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        return xp.sin(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return -xp.cos(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.cos(x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.asin(y)


@register
class Arcsin(ElementaryLink):
    """`h(s) = arcsin(x)`, `x = scale * (s - shift)` in `[-1, 1]`: infinitely steep at both ends."""

    phi_domain = (-1.0, 1.0)
    phi_is_odd = True
    ends_belong = True

    phi_image = (-0.5 * math.pi, 0.5 * math.pi)

    def phi(self, x: Tensor) -> Tensor:
        return xp.asin(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return x * xp.asin(x) + _leg(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / _leg(x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.sin(y)

    def phi_apart(self, z: Tensor, x: Tensor) -> Tensor:
        return Sin().phi_divergence(xp.asin(x), xp.asin(z))  # the dual link, between angles

    def phi_reach(self, x: Tensor) -> Tensor:
        return 1.0 - xp.abs(x)


@register
class Arctanh(ElementaryLink):
    """`h(s) = arctanh(x)`, `x = scale * (s - shift)` in `(-1, 1)`: sensitive at both ends."""

    phi_domain = (-1.0, 1.0)
    phi_is_odd = True

    def phi(self, x: Tensor) -> Tensor:
        return xp.atanh(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return 0.5 * (xp.xlog1py(1.0 + x, x) + xp.xlog1py(1.0 - x, -x))

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / ((1.0 - x) * (1.0 + x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.tanh(y)

    def phi_apart(self, z: Tensor, x: Tensor) -> Tensor:
        # arctanh(x) = (log(1 + x) - log(1 - x)) / 2
        up = bregman.log_divergence(1.0 + z, 1.0 + x)
        return 0.5 * (up + bregman.log_divergence(1.0 - z, 1.0 - x))

    def phi_reach(self, x: Tensor) -> Tensor:
        return 1.0 - xp.abs(x)


@register
class Tan(ElementaryLink):
    """`h(s) = tan(x)`, `x = scale * (s - shift)` in `(-pi/2, pi/2)`: sensitive at both ends."""

    phi_domain = (-0.5 * math.pi, 0.5 * math.pi)
    phi_is_odd = True

    def phi(self, x: Tensor) -> Tensor:
        return xp.tan(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return -xp.log(xp.cos(x))

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / xp.square(xp.cos(x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.atan(y)

    def phi_reach(self, x: Tensor) -> Tensor:
        return 0.5 * math.pi - xp.abs(x)


@register
class Logit(ElementaryLink):
    """`h(s) = log(x / (1 - x))`, `x = scale * (s - shift)` in `(0, 1)`: for probabilities."""

    phi_domain = (0.0, 1.0)

    @property
    def mirror(self) -> float | None:
        return self.shift + 0.5 / self.scale

    def phi(self, x: Tensor) -> Tensor:
        return xp.log(x) - xp.log1p(-x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.xlogy(x, x) + xp.xlog1py(1.0 - x, -x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / (x * (1.0 - x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.sigmoid(y)

    def phi_apart(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.log_divergence(z, x) + bregman.log_divergence(1.0 - z, 1.0 - x)

    def phi_reach(self, x: Tensor) -> Tensor:
        return xp.minimum(x, 1.0 - x)


@register
class NegLog1m(ElementaryLink):
    """`h(s) = -log(1 - x)`, `x = scale * (s - shift)` below 1: sensitive near the upper end."""

    phi_domain = (-math.inf, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        return -xp.log1p(-x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.xlog1py(1.0 - x, -x) + x

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / (1.0 - x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return -xp.expm1(-y)

    def phi_apart(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.log_divergence(1.0 - z, 1.0 - x)

    def phi_reach(self, x: Tensor) -> Tensor:
        return 1.0 - x


@register
class Log(ElementaryLink):
    """`h(s) = log(x)`, `x = scale * (s - shift)` above 0: the lower, the more sensitive."""

    phi_domain = (0.0, math.inf)

    def phi(self, x: Tensor) -> Tensor:
        return xp.log(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return x * xp.log(x) - x

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / x

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.exp(y)

    def phi_reach(self, x: Tensor) -> Tensor:
        return x


@register
class Monomial(ElementaryLink):
    """`h(s) = x**exponent`, `x = scale * (s - shift)` at least 0: as `Power`, for positive scores.

    Args:
        exponent: The power; positive.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `exponent` or `scale` is not positive and finite, or `shift` is not finite.
    """

    phi_domain = (0.0, math.inf)
    ends_belong = True

    exponent: Positive

    phi_image = (0.0, math.inf)

    def phi(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def phi_potential(self, x: Tensor) -> Tensor:
        return x ** (self.exponent + 1.0) / (self.exponent + 1.0)

    def phi_slope(self, x: Tensor) -> Tensor:
        return self.exponent * x ** (self.exponent - 1.0)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return y ** (1.0 / self.exponent)

    def phi_reach(self, x: Tensor) -> Tensor:
        return x / max(self.exponent, 1.0)


def _leg(x: Tensor) -> Tensor:
    """Computes `sqrt(1 - x**2)`, the cosine of `arcsin(x)`, without cancellation near 1."""
    return xp.sqrt((1.0 - x) * (1.0 + x))
