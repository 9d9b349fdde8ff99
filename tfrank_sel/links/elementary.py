"""Links of closed form, defined on the whole line.

`Cosh` and `AbsPower` are positive, but not increasing: as a link, or as the scaling of a composite
Softmax, they give a loss that is not convex. As the scaling of a composite Sigmoid, they give a
convex loss for the parameters that `convexity` finds.
"""

import math

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import AtLeast0, Positive
from tfrank_sel.links.base import ElementaryLink, Interval
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register

RANGE: Interval = (-70.0, 70.0)
TOP = math.exp(RANGE[1])


@register
class Identity(ElementaryLink):
    """`h(s) = scale * (s - shift)`: the squared error, equally sensitive everywhere."""

    phi_is_odd = True

    def phi(self, x: Tensor) -> Tensor:
        return x

    def phi_potential(self, x: Tensor) -> Tensor:
        return 0.5 * xp.square(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.where(xp.is_nan(x), x, 1.0)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return y

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return 0.5 * xp.square(z - x)


@register
class Constant(ElementaryLink):
    """`h(s) = 1`: not sensitive anywhere; as a scaling, it gives the standard softmax."""

    phi_image = (1.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        return xp.ones_like(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return x

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.zeros_like(x)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return xp.zeros_like(x)


@register
class Sigmoid(ElementaryLink):
    """`h(s) = 1 / (1 + exp(-scale * (s - shift)))`: most sensitive at `shift`.

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        whose equation 5 is its matching loss.
    """

    phi_image = (0.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        return xp.sigmoid(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return bregman.softplus(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return bregman.sigmoid_slope(x)

    def difference(self, z: Tensor, s: Tensor) -> Tensor:
        return bregman.sigmoid_difference(self._x(z), self._x(s))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.log(y) - xp.log1p(-y)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        # KL of the probabilities of both outcomes
        rise = self.phi_potential(z) - self.phi_potential(x)
        area = bregman.relative_entropy(self.phi(x), self.phi(z), (z - x) - rise)
        return area + bregman.relative_entropy(self.phi(-x), self.phi(-z), -rise)


@register
class Laplace(ElementaryLink):
    """`h(s) = exp(x) / 2` below `x = scale * (s - shift) = 0`, and `1 - exp(-x) / 2` above.

    It is the distribution function of Laplace: like the sigmoid, but with a peak of sensitivity at
    `shift`. Soft ranks that compare scores by it take `O(n log n)` instead of `O(n**2)`.
    """

    phi_image = (0.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        tail = self.phi_slope(x)
        return xp.where(x < 0.0, tail, 1.0 - tail)

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.relu(x) + self.phi_slope(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return 0.5 * xp.exp(-xp.abs(x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        lower, upper = xp.minimum(y, 0.5), xp.minimum(1.0 - y, 0.5)
        return xp.log(2.0 * lower) - xp.log(2.0 * upper)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        # exp(x) / 2 below 0; from there to a z above, that of the mirrored link, and the rise to 0
        z, x = xp.where(x > 0.0, -z, z), -xp.abs(x)
        across = bregman.expm1_remainder(-xp.relu(z)) - xp.expm1(x) * xp.relu(z)
        return 0.5 * (bregman.exp_divergence(xp.minimum(z, 0.0), x) + across)


@register
class Tanh(ElementaryLink):
    """`h(s) = tanh(scale * (s - shift))`: most sensitive at `shift`, like the sigmoid, but odd."""

    phi_is_odd = True

    phi_image = (-1.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        return xp.tanh(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        size = xp.abs(x)
        return size + xp.log1p(xp.exp(-2.0 * size)) - math.log(2.0)

    def phi_slope(self, x: Tensor) -> Tensor:
        return 4.0 * bregman.sigmoid_slope(2.0 * x)

    def difference(self, z: Tensor, s: Tensor) -> Tensor:
        return 2.0 * bregman.sigmoid_difference(2.0 * self._x(z), 2.0 * self._x(s))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.atanh(y)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return Sigmoid().phi_divergence(2.0 * z, 2.0 * x)  # tanh(x) = 2 * sigmoid(2 * x) - 1


@register
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

    phi_is_odd = True

    exponent: Positive

    phi_kinks = (0.0,)

    def phi(self, x: Tensor) -> Tensor:
        return xp.sign(x) * xp.abs(x) ** self.exponent

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.abs(x) ** (self.exponent + 1.0) / (self.exponent + 1.0)

    def phi_slope(self, x: Tensor) -> Tensor:
        return self.exponent * xp.abs(x) ** (self.exponent - 1.0)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.sign(y) * xp.abs(y) ** (1.0 / self.exponent)

    def phi_reach(self, x: Tensor) -> Tensor:
        return xp.abs(x) / max(self.exponent, 1.0)


@register
class SignedLog1p(ElementaryLink):
    """`h(s) = sign(x) * log(1 + abs(x))`, `x = scale * (s - shift)`: sensitive to low norms."""

    phi_is_odd = True

    def phi(self, x: Tensor) -> Tensor:
        return xp.sign(x) * xp.log1p(xp.abs(x))

    def phi_potential(self, x: Tensor) -> Tensor:
        # the divergence of the logarithm from 1
        a = xp.abs(x)
        return bregman.relative_entropy(1.0 + a, xp.ones_like(a), -xp.log1p(a))

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / (1.0 + xp.abs(x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.sign(y) * xp.expm1(xp.abs(y))

    def phi_reach(self, x: Tensor) -> Tensor:
        return xp.abs(x)


@register
class Arctan(ElementaryLink):
    """`h(s) = arctan(scale * (s - shift))`: most sensitive at `shift`, with heavier tails."""

    phi_is_odd = True

    phi_image = (-0.5 * math.pi, 0.5 * math.pi)

    def phi(self, x: Tensor) -> Tensor:
        return xp.atan(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return x * xp.atan(x) - 0.5 * xp.log1p(xp.square(x))

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / (1.0 + xp.square(x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        # at the ends, whose rounding has a finite tangent of either sign
        return xp.where(xp.abs(y) < 0.5 * math.pi, xp.tan(y), math.inf * xp.sign(y))

    def phi_apart(self, z: Tensor, x: Tensor) -> Tensor:
        # x * atan(x), which is far larger for a large x, cancels
        rise = xp.atan2(z - x, 1.0 + z * x)
        return z * rise - xp.log(_hypotenuse(z) / _hypotenuse(x))

    def phi_reach(self, x: Tensor) -> Tensor:
        return _hypotenuse(x)


@register
class Arcsinh(ElementaryLink):
    """`h(s) = arcsinh(scale * (s - shift))`: a logarithm to both sides, sensitive to low norms."""

    phi_is_odd = True

    def phi(self, x: Tensor) -> Tensor:
        return xp.asinh(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return x * xp.asinh(x) - _hypotenuse(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return 1.0 / _hypotenuse(x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.sinh(y)

    def phi_reach(self, x: Tensor) -> Tensor:
        return _hypotenuse(x)


def _hypotenuse(x: Tensor) -> Tensor:
    return xp.sqrt(1.0 + xp.square(x))


class ExponentialLink(ElementaryLink):
    """A link that grows like `exp`, and is constant beyond `abs(x) = 70`.

    Beyond it the potential continues linearly, as for a capped link: losses and gradients are
    finite in float32, and the gradient still points to the optimum.
    """

    def __call__(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(lambda s: self.phi(_clip(self._x(s))), self.slope, s)

    def potential(self, s: Tensor) -> Tensor:
        def cap(s: Tensor) -> Tensor:
            area = bregman.capped_potential(self.phi_potential, self.phi, self._x(s), *RANGE)
            return area / self.scale

        return bregman.with_derivative(cap, self.__call__, s)

    def slope(self, s: Tensor) -> Tensor:
        x = self._x(s)
        beyond = xp.abs(x) > RANGE[1]
        return xp.where(~beyond, self.scale * self.phi_slope(_clip(x)), 0.0)

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        z, x = self._x(z), self._x(s)
        return bregman.capped_divergence(self.phi_divergence, self.phi, z, x, *RANGE) / self.scale

    def fold(self, s: Tensor) -> Tensor:
        return s  # scores within the range are precise, and share the exponentials of the link


@register
class Exp(ExponentialLink):
    """`h(s) = exp(scale * (s - shift))`: the higher the score, the more sensitive.

    Beyond `scale * (s - shift) = 70` it is constant, so that nothing overflows.
    """

    phi_image = (0.0, TOP)

    def phi(self, x: Tensor) -> Tensor:
        return xp.exp(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.exp(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.exp(x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.log(y)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.exp_divergence(z, x)


@register
class AntiExp(ExponentialLink):
    """`h(s) = -exp(-scale * (s - shift))`: the lower the score, the more sensitive.

    Beyond `scale * (s - shift) = -70` it is constant, so that nothing overflows.
    """

    phi_image = (-TOP, 0.0)

    def phi(self, x: Tensor) -> Tensor:
        return -xp.exp(-x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.exp(-x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.exp(-x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return -xp.log(-y)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.exp_divergence(-z, -x)


@register
class Sinh(ExponentialLink):
    """`h(s) = sinh(scale * (s - shift))`: more sensitive the farther a score is from `shift`.

    Beyond `abs(scale * (s - shift)) = 70` it is constant, so that nothing
    overflows.
    """

    phi_is_odd = True

    phi_image = (-0.5 * TOP, 0.5 * TOP)

    def phi(self, x: Tensor) -> Tensor:
        return bregman.sinh(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return bregman.cosh(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return bregman.cosh(x)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.asinh(y)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.sinh_divergence(z, x)


@register
class SignedExpm1(ExponentialLink):
    """`h(s) = sign(x) * (exp(abs(x)) - 1)`, `x = scale * (s - shift)`: as `Sinh`, with a kink.

    It is sensitive to high norms, and near `shift` only half as flat as `Sinh`. Beyond
    `abs(x) = 70` it is constant, so that nothing overflows.
    """

    phi_is_odd = True

    phi_image = (-TOP, TOP)

    def phi(self, x: Tensor) -> Tensor:
        return xp.sign(x) * xp.expm1(xp.abs(x))

    def phi_potential(self, x: Tensor) -> Tensor:
        return bregman.expm1_remainder(xp.abs(x))

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.exp(xp.abs(x))

    def phi_inverse(self, y: Tensor) -> Tensor:
        return xp.sign(y) * xp.log1p(xp.abs(y))

    def phi_reach(self, x: Tensor) -> Tensor:
        return xp.minimum(xp.abs(x), 1.0)


def _clip(x: Tensor) -> Tensor:
    return xp.clip_by_value(x, *RANGE)


@register
class Cosh(ExponentialLink):
    """`h(s) = cosh(scale * (s - shift))`: makes a composite Sigmoid sensitive on both sides.

    Beyond `abs(scale * (s - shift)) = 70` it is constant, so that nothing
    overflows.
    """

    phi_rises_from = 0.0

    phi_image = (1.0, 0.5 * TOP)

    def phi(self, x: Tensor) -> Tensor:
        return bregman.cosh(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return bregman.sinh(x)

    def phi_slope(self, x: Tensor) -> Tensor:
        return bregman.sinh(x)


@register
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

    phi_rises_from = 0.0

    exponent: Positive
    constant: AtLeast0 = 0.0

    @property
    def phi_image(self) -> Interval:
        return (self.constant, math.inf)

    phi_kinks = (0.0,)

    def phi(self, x: Tensor) -> Tensor:
        return xp.abs(x) ** self.exponent + self.constant

    def phi_potential(self, x: Tensor) -> Tensor:
        above = self.exponent + 1.0
        return xp.sign(x) * xp.abs(x) ** above / above + self.constant * x

    def phi_slope(self, x: Tensor) -> Tensor:
        return self.exponent * xp.sign(x) * xp.abs(x) ** (self.exponent - 1.0)

    def phi_reach(self, x: Tensor) -> Tensor:
        return xp.abs(x) / max(self.exponent, 1.0)
