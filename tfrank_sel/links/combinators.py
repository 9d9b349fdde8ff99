"""Combinators of links: multiplication, capping, inverse and sum."""

import math
from collections.abc import Sequence
from functools import cached_property

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Bound, Positive
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import Interval, Link, value_at
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register


@register
class Scaled(Link):
    """`h(s) = factor * link(s)`: the same sensitivities, `factor` times as large.

    The scaling `Q(z) = Phi(scale * (z - shift))` of a composite Softmax, as the paper writes it,
    is `Scaled(link, link.scale)`.

    Args:
        link: The link to multiply.
        factor: The factor; positive.

    Raises:
        ValueError: If `factor` is not positive and finite.
    """

    link: Link
    factor: Positive

    @property
    def domain(self) -> Interval:
        return self.link.domain

    @property
    def image(self) -> Interval:
        low, high = self.link.image
        return self.factor * low, self.factor * high

    @property
    def kinks(self) -> tuple[float, ...]:
        return self.link.kinks

    @property
    def mirror(self) -> float | None:
        return self.link.mirror

    @property
    def is_invertible(self) -> bool:
        return self.link.is_invertible

    @property
    def rises_from(self) -> float:
        return self.link.rises_from

    def __call__(self, s: Tensor) -> Tensor:
        return self.factor * self.link(s)

    def potential(self, s: Tensor) -> Tensor:
        return self.factor * self.link.potential(s)

    def slope(self, s: Tensor) -> Tensor:
        return self.factor * self.link.slope(s)

    def preimage(self, y: Tensor) -> Tensor:
        return self.link.inverse(y / self.factor)

    def difference(self, z: Tensor, s: Tensor) -> Tensor:
        return self.factor * self.link.difference(z, s)

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        return self.factor * self.link.area(z, s)


@register
class Capped(Link):
    """`h(s) = link(clip(s, lower, upper))`: a bounded gradient, which is not 0 outside the bounds.

    Beyond the bounds the potential continues linearly with a constant gradient; clipping the scores
    instead would give a gradient of 0. With bounds inside the domain of `link`, any score is
    allowed. The slope at a bound is 0, as beyond it, not the mean of both sides.

    Args:
        link: The link to cap.
        lower: The score below which it is constant.
        upper: The score above which it is constant.

    Raises:
        ValueError: If `lower` is not below `upper`, or a bound is not inside the domain of `link`.
    """

    link: Link
    lower: Bound = -math.inf
    upper: Bound = math.inf

    def __post_init__(self) -> None:
        if not self.lower < self.upper:
            raise refusal("`lower` must be below `upper`", lower=self.lower, upper=self.upper)
        if math.isnan(sum(self._at_bounds)):
            low, high = self.link.domain
            raise refusal(
                f"`lower` and `upper` must lie in the domain ({low}, {high}) of the link",
                f"lower={self.lower}, upper={self.upper}",
            )

    @property
    def domain(self) -> Interval:
        low, high = self.link.domain
        return (
            low if math.isinf(self.lower) else -math.inf,
            high if math.isinf(self.upper) else math.inf,
        )

    @property
    def image(self) -> Interval:
        # those of a link that also falls are not between those at the bounds
        return self._at_bounds if self.rises_from == -math.inf else self.link.image

    @cached_property
    def _at_bounds(self) -> Interval:
        """The values of the link at the bounds, or its limit where there is none."""
        ends = zip((self.lower, self.upper), self.link.image, strict=True)
        low, high = (end if math.isinf(s) else value_at(self.link, s) for s, end in ends)
        return low, high

    @property
    def kinks(self) -> tuple[float, ...]:
        inside = (s for s in self.link.kinks if self.lower < s < self.upper)
        return tuple(s for s in (self.lower, *inside, self.upper) if math.isfinite(s))

    @property
    def mirror(self) -> float | None:
        middle = self.link.mirror
        return None if middle is None or middle - self.lower != self.upper - middle else middle

    @property
    def is_invertible(self) -> bool:
        return self.link.is_invertible

    @property
    def rises_from(self) -> float:
        return self.link.rises_from if self.lower < self.link.rises_from else -math.inf

    def __call__(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(lambda s: self.link(self._clip(s)), self.slope, s)

    def potential(self, s: Tensor) -> Tensor:
        def cap(s: Tensor) -> Tensor:
            return bregman.capped_potential(
                self.link.potential, self.link, s, self.lower, self.upper
            )

        return bregman.with_derivative(cap, self.__call__, s)

    def slope(self, s: Tensor) -> Tensor:
        beyond = (s <= self.lower) | (s >= self.upper)
        return xp.where(~beyond, self.link.slope(self._clip(s)), 0.0)

    def preimage(self, y: Tensor) -> Tensor:
        return self._clip(self.link.inverse(y))

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        return bregman.capped_divergence(self.link.area, self.link, z, s, self.lower, self.upper)

    def _clip(self, s: Tensor) -> Tensor:
        return xp.clip_by_value(s, self.lower, self.upper)


@register
class Inverse(Link):
    """`h` is the inverse of `link`, and its potential the convex conjugate of that of `link`.

    Its divergence between values of `link` equals the divergence of `link` between the scores, with
    the arguments exchanged. It is steep where `link` is flat.

    Args:
        link: A link with an inverse.

    Raises:
        ValueError: If `link` has no inverse in closed form.
    """

    link: Link

    def __post_init__(self) -> None:
        check_invertible("link", self.link)

    @property
    def domain(self) -> Interval:
        return self.link.image

    @cached_property
    def image(self) -> Interval:
        scores = (value_at(self.link.inverse, end) for end in self.domain)
        reachable = self.link.reachable(xp.float64)
        ends = zip(scores, reachable, self.link.domain, strict=True)
        low, high = (end if s == last else s for s, last, end in ends)
        return low, high

    @property
    def kinks(self) -> tuple[float, ...]:
        low, high = self.domain
        kinks = (value_at(self.link, s) for s in self.link.kinks)
        return tuple(y for y in kinks if low < y < high)

    @property
    def mirror(self) -> float | None:
        return 0.0 if self.link.is_odd else None

    def __call__(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(self._score, self.slope, s)

    def potential(self, s: Tensor) -> Tensor:
        def conjugate(y: Tensor) -> Tensor:
            s = self._score(y)
            return y * s - self.link.potential(s)

        return bregman.with_derivative(conjugate, self.__call__, s)

    def slope(self, s: Tensor) -> Tensor:
        return 1.0 / self.link.slope(self._score(s))

    def preimage(self, y: Tensor) -> Tensor:
        # an end of the domain of the link may not belong to it
        (low, high), (least, most) = self.image, self.domain
        return xp.where(y == low, least, xp.where(y == high, most, self.link(y)))

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        z = xp.where(xp.is_finite(self._score(z)), z, math.nan)
        return self.link.excess(self._score(s), z)

    def _score(self, y: Tensor) -> Tensor:
        """The score at which `link` is `y`; NaN where `link` only approaches `y`."""
        s = self.link.inverse(y)
        return xp.where(xp.is_finite(s), s, math.nan)


@register
class Sum(Link):
    """`h(s) = sum_i links_i(s)`: sensitive where at least one of the links is. It has no inverse.

    Args:
        links: The links to add, at least one.

    Raises:
        ValueError: If `links` is empty, or they have no common domain.
    """

    links: Sequence[Link]

    def __post_init__(self) -> None:
        object.__setattr__(self, "links", tuple(self.links))
        if not self.links:
            raise refusal("`links` must have at least one link", "links=()")
        low, high = self.domain
        if not low < high:
            raise refusal("`links` must have a common domain", links=self.links)

    @property
    def domain(self) -> Interval:
        return max(x.domain[0] for x in self.links), min(x.domain[1] for x in self.links)

    @property
    def image(self) -> Interval:
        return sum(x.image[0] for x in self.links), sum(x.image[1] for x in self.links)

    @property
    def kinks(self) -> tuple[float, ...]:
        low, high = self.domain
        return tuple(sorted({s for x in self.links for s in x.kinks if low < s < high}))

    @property
    def mirror(self) -> float | None:
        first = self.links[0].mirror
        return first if all(x.mirror == first for x in self.links) else None

    @property
    def rises_from(self) -> float:
        return max(x.rises_from for x in self.links)

    def __call__(self, s: Tensor) -> Tensor:
        return sum(x(s) for x in self.links)

    def potential(self, s: Tensor) -> Tensor:
        return sum(x.potential(s) for x in self.links)

    def slope(self, s: Tensor) -> Tensor:
        return sum(x.slope(s) for x in self.links)

    def difference(self, z: Tensor, s: Tensor) -> Tensor:
        return sum(x.difference(z, s) for x in self.links)

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        return sum(x.area(z, s) for x in self.links)


def check_invertible(name: str, link: Link) -> None:
    """Raises a ValueError unless `link`, the argument `name`, has an inverse in closed form."""
    if not link.is_invertible:
        raise refusal(f"`{name}` must have an inverse in closed form", f"{name}={link}")
