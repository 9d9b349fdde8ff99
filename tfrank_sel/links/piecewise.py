"""Piecewise linear links, which can be exactly flat outside a region, and steps."""

import dataclasses
import functools
import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import Positive
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import ElementaryLink, Interval, freeze
from tfrank_sel.numerics import Tensor
from tfrank_sel.ops import bregman
from tfrank_sel.serialization import register

_ROUNDING = 1e-6  # of the largest value, by which those of an increasing function may fall
_HALVINGS, _MOST_CUBICS = 100, 8192


class _ClippedLink(ElementaryLink):
    """A link that is linear within `half_width` of `shift`, and flat beyond."""

    half_width: Positive = 1.0

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return (-self.half_width, self.half_width)


@register
class SmeLU(_ClippedLink):
    """`h` rises linearly from 0 to 1 where `abs(scale * (s - shift)) < half_width`.

    Its potential is the smooth rectifier. Use it for sensitivity in one window, or, as a scaling,
    to clip low scores.

    Args:
        half_width: Half the width of the rise; positive.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `half_width` or `scale` is not positive and finite, or `shift` is not finite.

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation 14.
    """

    phi_image = (0.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        c = self.half_width
        return (xp.clip_by_value(x, -c, c) + c) / (2.0 * c)

    def phi_potential(self, x: Tensor) -> Tensor:
        c = self.half_width
        return xp.where(x >= c, x, xp.square(xp.clip_by_value(x, -c, c) + c) / (4.0 * c))

    def phi_slope(self, x: Tensor) -> Tensor:
        return _clip_slope(x, -self.half_width, self.half_width) / (2.0 * self.half_width)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return self.half_width * (2.0 * y - 1.0)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        c = self.half_width
        return bregman.clip_divergence(z, x, -c, c) / (2.0 * c)


@register
class Huber(_ClippedLink):
    """`h(s) = clip(scale * (s - shift), -half_width, half_width)`: squared error in a window.

    Args:
        half_width: Half the width of the window; positive.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `half_width` or `scale` is not positive and finite, or `shift` is not finite.
    """

    phi_is_odd = True

    @property
    def phi_image(self) -> Interval:
        return (-self.half_width, self.half_width)

    def phi(self, x: Tensor) -> Tensor:
        return xp.clip_by_value(x, -self.half_width, self.half_width)

    def phi_potential(self, x: Tensor) -> Tensor:
        return self.phi_divergence(x, xp.zeros_like(x))

    def phi_slope(self, x: Tensor) -> Tensor:
        return _clip_slope(x, -self.half_width, self.half_width)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return y

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.clip_divergence(z, x, -self.half_width, self.half_width)


@register
class ReLU(ElementaryLink):
    """`h(s) = max(0, scale * (s - shift))`: squared error above `shift`, not sensitive below."""

    phi_image = (0.0, math.inf)

    phi_kinks = (0.0,)

    def phi(self, x: Tensor) -> Tensor:
        return xp.maximum(x, 0.0)

    def phi_potential(self, x: Tensor) -> Tensor:
        return 0.5 * xp.square(xp.maximum(x, 0.0))

    def phi_slope(self, x: Tensor) -> Tensor:
        return _clip_slope(x, 0.0, math.inf)

    def phi_inverse(self, y: Tensor) -> Tensor:
        return y

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.clip_divergence(z, x, 0.0, math.inf)


@register
class PiecewiseLinear(ElementaryLink):
    """`h` interpolates `values` between `knots`: any sensitivity profile, one slope per region.

    Args:
        knots: Increasing points, in units of `x = scale * (s - shift)`.
        values: The values of `h` at the knots, which must not decrease.
        slope_below: Slope below the first knot; at least 0.
        slope_above: Slope above the last knot; at least 0.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If the lengths differ, `knots` are not strictly increasing, `values` decrease, a
            slope is negative, a number is not finite, or `scale` is not positive.
    """

    knots: Sequence[float]
    values: Sequence[float]
    slope_below: float = 0.0
    slope_above: float = 0.0

    def __post_init__(self) -> None:
        freeze(self, knots=self.knots, values=self.values)
        if len(self.knots) != len(self.values) or not _rise(self.knots, strictly=True):
            raise refusal(
                "`knots` and `values` must be non-empty and of equal length, and `knots` strictly "
                "increasing",
                f"knots={self.knots}, values={self.values}",
            )
        if not _rise((0.0, self.slope_below), (0.0, self.slope_above), self.values):
            raise refusal(
                "`values` must not decrease, and `slope_below` and `slope_above` must be at least "
                "0",
                f"values={self.values}, slope_below={self.slope_below}, "
                f"slope_above={self.slope_above}",
            )

    @property
    def phi_image(self) -> Interval:
        low = -math.inf if self.slope_below > 0.0 else self.values[0]
        return low, math.inf if self.slope_above > 0.0 else self.values[-1]

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return tuple(self.knots)

    @property
    def pieces(self) -> list[tuple[float, float, float]]:
        """The start, the end and the slope of each piece that is not flat."""
        ends = [-math.inf, *self.knots, math.inf]
        between = [
            (v - u) / (b - a)
            for (a, u), (b, v) in itertools.pairwise(zip(self.knots, self.values, strict=True))
        ]
        slopes = [self.slope_below, *between, self.slope_above]
        pieces = zip(itertools.pairwise(ends), slopes, strict=True)
        return [(a, b, slope) for (a, b), slope in pieces if slope > 0.0]

    def phi(self, x: Tensor) -> Tensor:
        first = self.knots[0]
        rises = (w * (xp.clip_by_value(x, a, b) - min(max(first, a), b)) for a, b, w in self.pieces)
        return sum(rises, self.values[0] + xp.zeros_like(x))

    def phi_potential(self, x: Tensor) -> Tensor:
        first = xp.fill(xp.shape(x), xp.cast(self.knots[0], x.dtype))
        return self.values[0] * x + self.phi_divergence(x, first)

    def phi_slope(self, x: Tensor) -> Tensor:
        return sum((w * _clip_slope(x, a, b) for a, b, w in self.pieces), xp.zeros_like(x))

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        areas = (w * bregman.clip_divergence(z, x, a, b) for a, b, w in self.pieces)
        return sum(areas, xp.zeros_like(x))


@register
class Interpolated(ElementaryLink):
    """`h` is smooth through values at points: a link from any function.

    Between the points it is a cubic that does not decrease (PCHIP), whose slope is continuous;
    beyond them it is constant. The primitive is exact. A value costs one look-up among points of
    equal distance, whatever their number, and one per halving among others.

    Args:
        low: The first point, in units of `x = scale * (s - shift)`.
        high: The last point.
        values: The values of `h` at the points, at least three, which must not decrease.
        knots: The points, from `low` to `high`; of equal distance if `None`.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `low` is not below `high`, there are fewer than three values, `values`
            decrease, `knots` do not increase from `low` to `high` or are not as many, a number is
            not finite, or `scale` is not positive.

    Example:
        >>> link = links.Interpolated.of(lambda x: x + np.sin(x), -6.0, 6.0)
        >>> round(float(link(tf.constant(1.0))), 4)  # 1 + sin(1)
        1.8415
    """

    low: float
    high: float
    values: Sequence[float]
    knots: Sequence[float] | None = None

    def __post_init__(self) -> None:
        freeze(self, values=self.values)
        if not self.low < self.high:
            raise refusal("`low` must be below `high`", low=self.low, high=self.high)
        if len(self.values) < 3 or not _rise(self.values):
            raise refusal(
                "`values` must be at least three, and must not decrease", values=self.values
            )
        if self.knots is None:
            return
        freeze(self, knots=self.knots)
        ends = (self.knots[:1], self.knots[-1:])
        if ends != ((self.low,), (self.high,)) or not _rise(self.knots, strictly=True):
            raise refusal("`knots` must increase from `low` to `high`", knots=self.knots)
        if len(self.knots) != len(self.values):
            counts = f"{len(self.knots)} and {len(self.values)}"
            raise refusal("`knots` and `values` must be of equal length", counts)

    @classmethod
    def of(
        cls,
        function: Callable[[NDArray[np.float64]], ArrayLike],
        low: float,
        high: float,
        count: int = 1024,
        tolerance: float = 1e-6,
        *,
        scale: float = 1.0,
        shift: float = 0.0,
    ) -> Self:
        """Returns the link of an increasing function, whose primitive need not be known.

        Args:
            function: Takes an array of `x` and returns the values; `np.interp` makes one of a
                table.
            low: The `x` below which the link is constant.
            high: The `x` above which the link is constant.
            count: Number of cubics; those that are farther from the function than `tolerance` are
                halved until none is, or 8,192 are left.
            tolerance: Largest difference from the function between the points, as a share of the
                largest absolute value. A warning names a difference that stays larger, such as that
                of a step.
            scale: Stretches the link; positive.
            shift: Moves the link to the right.

        Raises:
            ValueError: If the function decreases by more than the rounding of float32, a value is
                not finite, or another argument is out of range.
        """
        # which refuses them before the function is called
        checked = cls(low=low, high=high, values=[0.0] * 3, scale=scale, shift=shift)
        if count < 2:
            raise refusal("`count` must be at least 2", count=count)
        if not tolerance > 0.0:
            raise refusal("`tolerance` must be positive", tolerance=tolerance)
        knots = np.linspace(low, high, count + 1)
        for _ in range(_HALVINGS):
            x = np.interp(np.arange(4 * len(knots) - 3) / 4.0, np.arange(len(knots)), knots)
            exact = _sample(function, x)
            values, largest = exact[::4], np.abs(exact).max()
            apart = np.abs(_between(values, knots) - exact[:-1].reshape(-1, 4))[:, 1:].max(axis=1)
            middle = x[2::4]
            is_far = (apart > tolerance * largest) & (knots[:-1] < middle) & (middle < knots[1:])
            if not is_far.any() or len(knots) + is_far.sum() > _MOST_CUBICS:
                break
            knots = np.sort(np.append(knots, middle[is_far]))
        if apart.max() > tolerance * largest:
            farthest = middle[np.argmax(apart)]
            warnings.warn(
                f"The link is off by up to {apart.max() / largest:.1e} of the largest value of "
                f"`function`, near x={farthest:g}. Received: tolerance={tolerance:g}",
                stacklevel=2,
            )
        is_even = len(x) == 4 * count + 1
        points = None if is_even else x[::4].tolist()
        return dataclasses.replace(checked, values=values.tolist(), knots=points)

    @property
    def phi_image(self) -> Interval:
        return self.values[0], self.values[-1]

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return tuple(self.knots or np.linspace(self.low, self.high, len(self.values)).tolist())

    def phi(self, x: Tensor) -> Tensor:
        _, t, _, (h, _, *cubic) = self._at(self._inside(x))
        return h + _rise_of(t, *cubic)

    def phi_potential(self, x: Tensor) -> Tensor:
        def within(x: Tensor) -> Tensor:
            _, t, (start, end), piece = self._at(x)
            return _primitive(t, end - start, *piece)

        return bregman.capped_potential(within, self.phi, x, self.low, self.high)

    def phi_slope(self, x: Tensor) -> Tensor:
        _, t, (start, end), (_, _, first, second, third) = self._at(self._inside(x))
        rise = first + t * (2.0 * second + t * 3.0 * third)
        return rise / (end - start) * _clip_slope(x, self.low, self.high)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.capped_divergence(self._area, self.phi, z, x, self.low, self.high)

    def _area(self, z: Tensor, x: Tensor) -> Tensor:
        """Adds the areas in the piece of `x`, in that of `z`, and between."""
        (i, t, ends_x, of_x), (j, v, ends_z, of_z) = self._at(x), self._at(z)
        (h_x, _, *cubic_x), (h_z, _, *cubic_z) = of_x, of_z
        width_x, width_z = ends_x[1] - ends_x[0], ends_z[1] - ends_z[0]
        at_x = h_x + _rise_of(t, *cubic_x)
        # from `x` to the end of its piece that is nearer to `z`, from there to that of `z`
        is_up = j > i
        a, b = xp.cast(is_up, x.dtype), xp.cast(~is_up, x.dtype)
        at_a, at_b = h_x + _rise_of(a, *cubic_x), h_z + _rise_of(b, *cubic_z)
        far = xp.where(is_up, ends_z[0], ends_z[1]) - xp.where(is_up, ends_x[1], ends_x[0])
        between = _primitive(b, width_z, *of_z) - _primitive(a, width_x, *of_x) - far * at_a
        apart = (
            width_x * _area(t, a - t, *cubic_x)
            + far * (at_a - at_x)
            + xp.where(xp.abs(j - i) > 1, xp.relu(between), xp.zeros_like(t))
            + width_z * (v - b) * (at_b - at_x)
            + width_z * _area(b, v - b, *cubic_z)
        )
        return xp.where(i == j, width_x * _area(t, v - t, *cubic_x), apart)

    def _inside(self, x: Tensor) -> Tensor:
        return xp.clip_by_value(x, self.low, self.high)

    def _at(self, x: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], list[Tensor]]:
        """The number of the piece of each `x`, the share of it below `x`, its ends, and it."""
        last = len(self.values) - 2
        if self.knots is None:
            piece = xp.floor((x - self.low) / (self.high - self.low) * (last + 1))
            piece = xp.where(xp.is_nan(piece), xp.zeros_like(piece), piece)
            index = xp.cast(xp.clip_by_value(piece, 0.0, float(last)), xp.int32)
        else:
            index = _last_below(xp.constant(self.knots[: last + 1], x.dtype), x)
        table = _cubics(self.values, self.low, self.high, self.knots)
        start, end, *piece = xp.unstack(xp.gather(xp.constant(table, x.dtype), index), axis=-1)
        # pieces may be narrower than the rounding of their ends
        t = xp.clip_by_value(xp.divide_no_nan(x - start, end - start), 0.0, 1.0)
        return index, t, (start, end), piece


def _sample(
    function: Callable[[NDArray[np.float64]], ArrayLike], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The values of an increasing function, checked, and without falls by rounding."""
    values = np.ravel(np.asarray(function(x), np.float64))
    if len(values) != len(x):
        raise refusal(
            "`function` must return a value for each `x`", f"{len(values)} values of {len(x)}"
        )
    for index in np.flatnonzero(~np.isfinite(values))[:1]:
        raise refusal("`function` must return finite values", f"{values[index]} at x={x[index]:g}")
    rising: NDArray[np.float64] = np.maximum.accumulate(values)
    for index in np.flatnonzero(rising - values > _ROUNDING * np.abs(values).max())[:1]:
        fall = f"{rising[index]:g}, then {values[index]:g} at x={x[index]:g}"
        raise refusal("`function` must not decrease", fall)
    return rising


def _between(values: NDArray[np.float64], knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values of the cubics at the start, a quarter, a half and three quarters of each piece."""
    h, first, second, third = _pchip(values, knots)[:, :, np.newaxis]
    t = np.arange(4.0) / 4.0
    quarters: NDArray[np.float64] = h + t * (first + t * (second + t * third))
    return quarters


def _pchip(values: NDArray[np.float64], knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """The value at the start of each piece, and the cubic of its rise, by the share of its width.

    The slopes are those of Fritsch and Butland, 1984.
    """
    width, rise = np.diff(knots), np.diff(values)
    before, after = width[:-1] + 2.0 * width[1:], 2.0 * width[:-1] + width[1:]
    with np.errstate(divide="ignore"):
        slopes = rise / width
        inner = (before + after) / (before / slopes[:-1] + after / slopes[1:])
    outer = slopes[[0, -1]] - slopes[[1, -2]]
    outer *= width[[0, -1]] / (width[[0, -1]] + width[[1, -2]])
    ends = np.maximum(slopes[[0, -1]] + outer, 0.0)
    slopes = np.concatenate([ends[:1], inner, ends[1:]])
    start, end = slopes[:-1] * width, slopes[1:] * width
    return np.stack([values[:-1], start, 3.0 * rise - 2.0 * start - end, start + end - 2.0 * rise])


@functools.lru_cache(maxsize=16)
def _cubics(
    values: tuple[float, ...], low: float, high: float, knots: tuple[float, ...] | None
) -> NDArray[np.float64]:
    """The ends of each piece, the value and the primitive at its start, and the cubic."""
    at = np.linspace(low, high, len(values)) if knots is None else np.array(knots)
    h, first, second, third = _pchip(np.array(values), at)
    areas = np.diff(at) * (h + first / 2.0 + second / 3.0 + third / 4.0)
    primitive = h[0] * low + np.append(0.0, np.cumsum(areas[:-1]))
    return np.stack([at[:-1], at[1:], h, primitive, first, second, third], axis=1)


def _last_below(knots: Tensor, x: Tensor) -> Tensor:
    """The number of the last of increasing knots that is at most `x`; 0 if there is none.

    Under XLA `tf.searchsorted` compares each `x` with each knot.
    """
    index = xp.zeros_like(x, xp.int32)
    for step in (2**n for n in reversed(range((len(knots) - 1).bit_length()))):
        trial = xp.minimum(index + step, len(knots) - 1)
        index = xp.where(xp.gather(knots, trial) <= x, trial, index)
    return index


def _primitive(t: Tensor, width: Tensor, h: Tensor, primitive: Tensor, *cubic: Tensor) -> Tensor:
    """The primitive at a share `t` of a piece."""
    return primitive + width * (h * t + _area(xp.zeros_like(t), t, *cubic))


def _rise_of(t: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """The rise of a cubic from 0 to `t`."""
    return t * (first + t * (second + t * third))


def _area(t: Tensor, d: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """The integral of the rise of a cubic from `t`, between `t` and `t + d`."""
    curved = second * (t + d / 3.0) + third * (1.5 * t * t + t * d + d * d / 4.0)
    return xp.square(d) * (first / 2.0 + curved)


def _clip_slope(x: Tensor, low: float, high: float) -> Tensor:
    """Computes the slope of `clip(x, low, high)`: 1 between, 0 beyond, 1/2 at both ends."""
    return 0.5 * (xp.sign(x - low) - xp.sign(x - high))


def _rise(*series: Sequence[float], strictly: bool = False) -> bool:
    """Whether no series decreases, or all increase; a series without numbers does neither."""
    return all(
        len(x) > 0 and all(b > a or (b == a and not strictly) for a, b in itertools.pairwise(x))
        for x in series
    )


class _StepLink(ElementaryLink):
    """A sum of steps, with half the height at each threshold."""

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        """The threshold and the height of each step."""
        return ((0.0, 1.0),)

    @property
    def phi_image(self) -> Interval:
        return (0.0, sum(height for _, height in self.steps))

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return tuple(threshold for threshold, _ in self.steps)

    def phi(self, x: Tensor) -> Tensor:
        return sum(0.5 * height * (1.0 + xp.sign(x - t)) for t, height in self.steps)

    def phi_potential(self, x: Tensor) -> Tensor:
        return sum(height * xp.maximum(x - t, 0.0) for t, height in self.steps)

    def phi_slope(self, x: Tensor) -> Tensor:
        return xp.where(xp.is_nan(x), x, 0.0)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return sum(
            0.5 * height * xp.abs(z - t) * xp.abs(xp.sign(z - t) - xp.sign(x - t))
            for t, height in self.steps
        )


@register
class Step(_StepLink):
    """`h(s) = 0` below `shift`, 1 above, 1/2 there: the perceptron's link."""


@register
class Sign(_StepLink):
    """`h(s) = -1` below `shift`, 1 above, 0 there: like `Step`, but odd."""

    phi_is_odd = True

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 2.0),)

    phi_image = (-1.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        return xp.sign(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return xp.abs(x)


@register
class Staircase(_StepLink):
    """`h(s) = sum_i jumps_i * [x > thresholds_i]`, `x = scale * (s - shift)`: graded labels.

    The loss of a score outside the step of its label is the distance to that step, times the jump.

    Args:
        thresholds: Positions of the steps, in units of `x`.
        jumps: Heights of the steps; positive.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If the lengths differ, a jump is not positive, a number is not finite, or
            `scale` is not positive.
    """

    thresholds: Sequence[float]
    jumps: Sequence[float]

    def __post_init__(self) -> None:
        freeze(self, thresholds=self.thresholds, jumps=self.jumps)
        if len(self.thresholds) != len(self.jumps) or not all(w > 0.0 for w in self.jumps):
            raise refusal(
                "`jumps` must be positive and as long as `thresholds`",
                f"thresholds={self.thresholds}, jumps={self.jumps}",
            )

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self.thresholds, self.jumps, strict=True))
