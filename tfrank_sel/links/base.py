"""Base of links: increasing functions that define the sensitivity of a loss."""

import abc
import functools
import math
import typing
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import numpy as np

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.errors import received
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman
from tfrank_sel.ops.bregman import in_float64
from tfrank_sel.serialization import Frozen

Interval = tuple[float, float]

LINE: Interval = (-math.inf, math.inf)


class Link(Frozen, abc.ABC):
    """An increasing function `h`, with its potential `H`, slope `h'` and inverse.

    A link is a value: two links with the same parameters are equal and have the same hash, and a
    link is saved by its parameters. Every method is elementwise, and keeps the shape and dtype of
    its arguments. Outside the domain of a link its values are NaN, and outside its image those of
    `inverse`; so are their gradients.

    A subclass with an inverse in closed form implements `preimage` and, if its values do not cover
    the line, `image`.

    Raises:
        TypeError: If a subclass overrides `inverse`.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "inverse" in vars(cls):
            expected = "A link must implement `preimage`, from which `inverse` is made"
            raise TypeError(received(expected, f"{cls.__name__}.inverse"))

    @property
    def domain(self) -> Interval:
        """The interval on which `h` is defined and increasing."""
        return LINE

    @property
    def image(self) -> Interval:
        """The interval of the values of `h`, on which `inverse` is defined; without an inverse, an
        interval that contains them.
        """
        return LINE

    @property
    def origin(self) -> float:
        """A score inside the domain, used for padding."""
        low, high = self.domain
        if low < 0.0 < high:
            return 0.0
        if math.isinf(high):
            return low + 1.0
        return high - 1.0 if math.isinf(low) else 0.5 * (low + high)

    @property
    def kinks(self) -> tuple[float, ...]:
        """The scores at which `h` or its slope jumps."""
        return ()

    @property
    def mirror(self) -> float | None:
        """The score about which `h` is odd, `h(mirror - t) = -h(mirror + t)`, if there is one."""
        return None

    @property
    def is_odd(self) -> bool:
        """Whether `h(-s) = -h(s)`."""
        return self.mirror == 0.0

    @property
    def is_invertible(self) -> bool:
        """Whether `inverse` is known in closed form."""
        return type(self).preimage is not Link.preimage

    @property
    def rises_from(self) -> float:
        """The smallest score from which `h` increases: `-inf` for a link; a scaling may have
        another.
        """
        return -math.inf

    @abc.abstractmethod
    def __call__(self, s: Tensor) -> Tensor:
        """Computes `h(s)`."""

    @abc.abstractmethod
    def potential(self, s: Tensor) -> Tensor:
        """Computes `H(s)`, with `H' = h`."""

    @abc.abstractmethod
    def slope(self, s: Tensor) -> Tensor:
        """Computes `h'(s)`, the sensitivity at `s`; the mean of both sides at a kink."""

    @final
    def inverse(self, y: Tensor) -> Tensor:
        """Computes the `s` at which `h(s) = y`: NaN outside `image`, infinite at an end that `h`
        only approaches. A `y` beyond an end by the rounding of its dtype is at the end.

        Raises:
            NotImplementedError: If the link has no inverse in closed form.
        """
        if not self.is_invertible:
            raise NotImplementedError(
                received("`inverse` requires a link with an inverse in closed form", self)
            )
        y = xp.convert_to_tensor(y)

        def score(y: Tensor) -> Tensor:
            s = self.preimage(nearest(y, self.image, y.dtype))
            return xp.clip_by_value(s, *self.reachable(y.dtype))

        return bregman.with_derivative(score, lambda y: 1.0 / self.slope(score(y)), y)

    def preimage(self, y: Tensor) -> Tensor:
        """Computes the `s` at which `h(s) = y`, for `y` in `image`; NaN for NaN."""
        raise NotImplementedError

    def difference(self, z: Tensor, s: Tensor) -> Tensor:
        """Computes `h(z) - h(s)` from float64; a bounded link may have a form that keeps digits."""
        return self(z) - self(s)

    def excess(self, z: Tensor, y: Tensor) -> Tensor:
        """Computes `H(z) - z * y + H*(y)`, the divergence from the score of `y`, from float64."""
        s = self.inverse(y)
        # the limit of an end of the image is reached long before a million
        s = xp.where(xp.is_inf(s), 1e6 * xp.sign(s), s)
        # the last term is the rounding of `s`, which is large where the link is steep
        return xp.maximum(self.area(z, s) + (z - s) * (self(s) - y), 0.0)

    def reachable(self, dtype: xp.DType) -> Interval:
        """The domain without the ends that do not belong to it, to which an inverse may round."""
        digits = np.finfo(np.float64 if dtype == xp.float64 else np.float32)
        low, high = (
            end + side * float(max(4.0 * digits.eps * abs(end), digits.tiny)) if is_open else end
            for end, side, is_open in zip(self.domain, (1.0, -1.0), self._are_open, strict=True)
        )
        return low, high

    @functools.cached_property
    def _are_open(self) -> list[bool]:
        """Whether each end of the domain is a number that does not belong to it."""
        return [math.isfinite(end) and math.isnan(value_at(self, end)) for end in self.domain]

    @abc.abstractmethod
    def area(self, z: Tensor, s: Tensor) -> Tensor:
        """Computes `H(z) - H(s) - (z - s) * h(s)` from float64; a caller uses `divergence`."""

    @in_float64
    def divergence(self, z: Tensor, s: Tensor) -> Tensor:
        """Computes `H(z) - H(s) - (z - s) * h(s)`, the area between the link and its value at `s`.

        It is at least 0, is 0 where `z = s`, and is accurate near there. Its gradient is
        `h(z) - h(s)` in `z` and `-(z - s) * h'(s)` in `s`, in closed form, to any order.

        Args:
            z: Predicted scores.
            s: Observed scores, of the shape of `z`.

        Returns:
            The divergence, of the shape of `z`.
        """

        @xp.custom_gradient
        def f(z: Tensor, s: Tensor) -> tuple[Tensor, object]:
            def gradient(upstream: Tensor) -> tuple[Tensor, Tensor]:
                return upstream * self.difference(z, s), -upstream * (z - s) * self.slope(s)

            return self.area(z, s), gradient

        return f(z, s)

    def rise(self, z: Tensor, s: Tensor) -> Tensor:
        """Computes `H(z) - H(s)` from float64, by the formula with the smaller terms."""
        step, area = self(s) * (z - s), self.area(z, s)
        at_z, at_s = self.potential(z), self.potential(s)
        by_step = xp.abs(step) + area < xp.abs(at_z) + xp.abs(at_s)
        return xp.where(by_step, step + area, at_z - at_s)

    def fold(self, s: Tensor) -> Tensor:
        """Mirrors scores to the side of 0, where floats are more precise; `H` does not change."""
        if self.mirror is None:
            return s
        nearer = xp.minimum if self.mirror > 0.0 else xp.maximum
        return nearer(s, 2.0 * self.mirror - s)


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class ElementaryLink(Link, kw_only=True):
    """A link with a closed form, `h(s) = phi(scale * (s - shift))`.

    A subclass implements `phi`, its primitive and its derivative, and may implement the inverse,
    all of `x = scale * (s - shift)`. Gradients are also in closed form: the gradient of the
    potential is `phi`, and the gradient of `phi` is the slope.

    Args:
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `scale` is not positive and finite, or `shift` is not finite.

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 3.
    """

    scale: Positive = 1.0
    shift: float = 0.0

    phi_domain: ClassVar[Interval] = LINE
    # Whether the ends belong to the domain.
    ends_belong: ClassVar[bool] = False
    phi_is_odd: ClassVar[bool] = False
    phi_rises_from: ClassVar[float] = -math.inf

    def __init_subclass__(cls, kw_only: bool = True, **kwargs: Any) -> None:
        super().__init_subclass__(kw_only=kw_only, **kwargs)

    @property
    def domain(self) -> Interval:
        low, high = self.phi_domain
        return self.shift + low / self.scale, self.shift + high / self.scale

    @property
    def image(self) -> Interval:
        return self.phi_image

    @property
    def kinks(self) -> tuple[float, ...]:
        return tuple(self.shift + x / self.scale for x in self.phi_kinks)

    @property
    def mirror(self) -> float | None:
        return self.shift if self.phi_is_odd else None

    @property
    def is_invertible(self) -> bool:
        return type(self).phi_inverse is not ElementaryLink.phi_inverse

    @property
    def rises_from(self) -> float:
        return self.shift + self.phi_rises_from / self.scale

    @property
    def phi_image(self) -> Interval:
        """The interval of the values of `phi`."""
        return LINE

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        """The `x` at which `phi` or its derivative jumps."""
        return ()

    @abc.abstractmethod
    def phi(self, x: Tensor) -> Tensor:
        """Computes the unscaled link."""

    @abc.abstractmethod
    def phi_potential(self, x: Tensor) -> Tensor:
        """Computes the primitive of `phi`."""

    @abc.abstractmethod
    def phi_slope(self, x: Tensor) -> Tensor:
        """Computes the derivative of `phi`."""

    def phi_inverse(self, y: Tensor) -> Tensor:
        """Computes the `x` at which `phi(x) = y`, for `y` in `phi_image`; a subclass without an
        inverse in closed form does not implement it.
        """
        raise NotImplementedError

    def phi_reach(self, x: Tensor) -> Tensor:
        """The distance over which `phi_slope` changes from its value at `x`, such as that to a
        singularity or a kink: 1, unless a subclass says otherwise.
        """
        return xp.ones_like(x)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        """Computes the divergence of `phi` from float64."""
        return bregman.divergence(self.phi_apart(z, x), self.phi_slope, self.phi_reach(x), z, x)

    def phi_apart(self, z: Tensor, x: Tensor) -> Tensor:
        """Computes the divergence of a `z` that is not near `x`: by the definition, unless a
        subclass has a form with smaller terms.
        """
        return self.phi_potential(z) - self.phi_potential(x) - (z - x) * self.phi(x)

    def __call__(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(lambda s: self.phi(self._x(s)), self.slope, s)

    def potential(self, s: Tensor) -> Tensor:
        return bregman.with_derivative(
            lambda s: self.phi_potential(self._x(s)) / self.scale, self.__call__, s
        )

    def slope(self, s: Tensor) -> Tensor:
        return self.scale * self.phi_slope(self._x(s))

    def preimage(self, y: Tensor) -> Tensor:
        return self.shift + self.phi_inverse(y) / self.scale

    def area(self, z: Tensor, s: Tensor) -> Tensor:
        return self.phi_divergence(self._x(z), self._x(s)) / self.scale

    def _x(self, s: Tensor) -> Tensor:
        x = self.scale * (s - self.shift)
        if self.phi_domain == LINE:
            return x
        low, high = self.phi_domain
        if self.ends_belong:
            return nearest(x, self.phi_domain, x.dtype)
        return xp.where((x > low) & (x < high), x, math.nan)


def nearest(x: Tensor, interval: Interval, dtype: xp.DType) -> Tensor:
    """Casts numbers of an interval: NaN outside it, and an end for those beyond by rounding.

    An end such as `0.1`, or one that was computed, may be rounded outwards in the dtype of `x`.
    """
    wide = xp.cast(x, dtype)
    near = xp.clip_by_value(wide, *(xp.constant(end, dtype) for end in interval))
    slack = 2.0**-50 if x.dtype == xp.float64 else 2.0**-21
    is_near = (wide == near) | (xp.abs(wide - near) <= slack * xp.abs(near))
    return xp.where(is_near, near, math.nan)


def value_at(function: Callable[[Tensor], Tensor], x: float) -> float:
    """Returns a value of a link or of its inverse in float64, also while a graph is traced."""
    with xp.init_scope():
        return float(function(xp.constant(x, xp.float64)))


def freeze(value: object, **fields: Sequence[float]) -> None:
    """Converts fields of numbers to tuples, so that a value is hashable, even after loading."""
    for name, numbers in fields.items():
        object.__setattr__(value, name, tuple(float(x) for x in numbers))
