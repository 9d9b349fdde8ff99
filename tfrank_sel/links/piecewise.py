"""Piecewise linear links, which can be exactly flat outside a region, and steps."""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Self

import numpy as np
import tensorflow as tf
from numpy.typing import ArrayLike, NDArray
from tensorflow import Tensor

from tfrank_sel.arguments import Positive
from tfrank_sel.links.base import ElementaryLink, Interval, freeze
from tfrank_sel.ops import bregman
from tfrank_sel.refusals import refusal
from tfrank_sel.serialization import register

_ROUNDING = 1e-6  # of the largest value, by which those of an increasing function may fall


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
    """

    phi_image = (0.0, 1.0)

    def phi(self, x: Tensor) -> Tensor:
        c = self.half_width
        return (tf.clip_by_value(x, -c, c) + c) / (2.0 * c)

    def phi_potential(self, x: Tensor) -> Tensor:
        c = self.half_width
        return tf.where(x >= c, x, tf.square(tf.clip_by_value(x, -c, c) + c) / (4.0 * c))

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
        return tf.clip_by_value(x, -self.half_width, self.half_width)

    def phi_potential(self, x: Tensor) -> Tensor:
        return self.phi_divergence(x, tf.zeros_like(x))

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
        return tf.maximum(x, 0.0)

    def phi_potential(self, x: Tensor) -> Tensor:
        return 0.5 * tf.square(tf.maximum(x, 0.0))

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

    phi_has_inverse = False

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
        rises = (w * (tf.clip_by_value(x, a, b) - min(max(first, a), b)) for a, b, w in self.pieces)
        return sum(rises, self.values[0] + tf.zeros_like(x))

    def phi_potential(self, x: Tensor) -> Tensor:
        first = tf.fill(tf.shape(x), tf.cast(self.knots[0], x.dtype))
        return self.values[0] * x + self.phi_divergence(x, first)

    def phi_slope(self, x: Tensor) -> Tensor:
        return sum((w * _clip_slope(x, a, b) for a, b, w in self.pieces), tf.zeros_like(x))

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        areas = (w * bregman.clip_divergence(z, x, a, b) for a, b, w in self.pieces)
        return sum(areas, tf.zeros_like(x))


@register
class Interpolated(ElementaryLink):
    """`h` is smooth through values at points of equal distance: a link from any function.

    Between the points it is a cubic that does not decrease (PCHIP), whose slope is continuous;
    beyond them it is constant. The primitive is exact. A value costs one look-up, whatever the
    number of points.

    Args:
        low: The first point, in units of `x = scale * (s - shift)`.
        high: The last point.
        values: The values of `h` at the points, at least three, which must not decrease.
        scale: Stretches the link; positive.
        shift: Moves the link to the right.

    Raises:
        ValueError: If `low` is not below `high`, there are fewer than three values, `values`
            decrease, a number is not finite, or `scale` is not positive.

    Example:
        >>> link = links.Interpolated.of(lambda x: x + np.sin(x), -6.0, 6.0)
        >>> round(float(link(tf.constant(1.0))), 4)  # 1 + sin(1)
        1.8415
    """

    phi_has_inverse = False

    low: float
    high: float
    values: Sequence[float]

    def __post_init__(self) -> None:
        freeze(self, values=self.values)
        if not self.low < self.high:
            raise refusal("`low` must be below `high`", low=self.low, high=self.high)
        if len(self.values) < 3 or not _rise(self.values):
            raise refusal(
                "`values` must be at least three, and must not decrease", values=self.values
            )

    @classmethod
    def of(
        cls,
        function: Callable[[NDArray[np.float64]], ArrayLike],
        low: float,
        high: float,
        count: int = 1024,
        **kwargs: float,
    ) -> Self:
        """Returns the link of an increasing function, whose primitive need not be known.

        Args:
            function: Takes an array of `x` and returns the values; `np.interp` makes one of a
                table.
            low: The `x` below which the link is constant.
            high: The `x` above which the link is constant.
            count: Number of cubics.
            **kwargs: `scale` and `shift`.

        Raises:
            ValueError: If the function decreases by more than the rounding of float32, a value is
                not finite, or another argument is out of range.
        """
        cls(low=low, high=high, values=[0.0] * 3, **kwargs)  # refuses them before the function
        points = np.linspace(low, high, count + 1)
        values = np.ravel(np.asarray(function(points), np.float64))
        if len(values) != len(points):
            counts = f"{len(values)} values of {len(points)}"
            raise refusal("`function` must return a value for each `x`", counts)
        for place in np.flatnonzero(~np.isfinite(values))[:1]:
            raise refusal(
                "`function` must return finite values", f"{values[place]} at x={points[place]:g}"
            )
        rising = np.maximum.accumulate(values)
        for place in np.flatnonzero(rising - values > _ROUNDING * np.abs(values).max())[:1]:
            fall = f"{rising[place]:g}, then {values[place]:g} at x={points[place]:g}"
            raise refusal("`function` must not decrease", fall)
        return cls(low=low, high=high, values=rising.tolist(), **kwargs)

    @property
    def phi_image(self) -> Interval:
        return self.values[0], self.values[-1]

    @property
    def phi_kinks(self) -> tuple[float, ...]:
        return tuple(np.linspace(self.low, self.high, len(self.values)).tolist())

    @property
    def width(self) -> float:
        """The distance between two points."""
        return (self.high - self.low) / (len(self.values) - 1)

    def phi(self, x: Tensor) -> Tensor:
        _, u, (h, _, *cubic) = self._at(self._inside(x))
        return h + _rise_of(u, *cubic)

    def phi_potential(self, x: Tensor) -> Tensor:
        def within(x: Tensor) -> Tensor:
            _, u, piece = self._at(x)
            return _primitive(u, *piece)

        return bregman.capped_potential(within, self.phi, x, self.low, self.high)

    def phi_slope(self, x: Tensor) -> Tensor:
        _, u, (_, _, first, second, third) = self._at(self._inside(x))
        slope = first + u * (2.0 * second + u * 3.0 * third)
        return slope * _clip_slope(x, self.low, self.high)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return bregman.capped_divergence(self._area, self.phi, z, x, self.low, self.high)

    def _area(self, z: Tensor, x: Tensor) -> Tensor:
        """Adds the areas in the piece of `x`, in that of `z`, and between."""
        (i, u, of_x), (j, v, of_z) = self._at(x), self._at(z)
        (h_x, _, *cubic_x), (h_z, _, *cubic_z) = of_x, of_z
        at_x = h_x + _rise_of(u, *cubic_x)
        # from `x` to the end of its piece that is nearer to `z`, from there to that of `z`
        is_up = tf.cast(j > i, x.dtype)
        a, b = self.width * is_up, self.width * (1.0 - is_up)
        at_a, at_b = h_x + _rise_of(a, *cubic_x), h_z + _rise_of(b, *cubic_z)
        far = self.width * (j - i) + (b - a)
        between = _primitive(b, *of_z) - _primitive(a, *of_x) - far * at_a
        apart = (
            _area(u, a - u, *cubic_x)
            + far * (at_a - at_x)
            + tf.where(tf.abs(j - i) > 1.0, tf.nn.relu(between), tf.zeros_like(u))
            + (v - b) * (at_b - at_x)
            + _area(b, v - b, *cubic_z)
        )
        return tf.where(i == j, _area(u, v - u, *cubic_x), apart)

    def _inside(self, x: Tensor) -> Tensor:
        return tf.clip_by_value(x, self.low, self.high)

    def _at(self, x: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The number of the piece of each `x`, the place within, and the piece."""
        last = len(self.values) - 2.0
        piece = tf.clip_by_value(tf.floor((x - self.low) / self.width), 0.0, last)
        u = x - (self.low + self.width * piece)
        index = tf.cast(tf.where(tf.math.is_nan(piece), tf.zeros_like(piece), piece), tf.int32)
        rows = tf.gather(tf.constant(_cubics(self.values, self.low, self.width), x.dtype), index)
        return piece, u, tf.unstack(rows, axis=-1)


@functools.lru_cache(maxsize=16)
def _cubics(values: tuple[float, ...], low: float, width: float) -> NDArray[np.float64]:
    """The value and the primitive at the start of each piece, and the cubic of its rise."""
    h, w = np.array(values), width
    rise = np.diff(h) / w
    with np.errstate(divide="ignore"):  # slopes of Fritsch and Butland, 1984
        inner = 2.0 / (1.0 / rise[:-1] + 1.0 / rise[1:])
    ends = np.maximum(1.5 * rise[[0, -1]] - 0.5 * rise[[1, -2]], 0.0)
    slopes = np.concatenate([ends[:1], inner, ends[1:]])
    start, end = slopes[:-1], slopes[1:]
    second = (3.0 * rise - 2.0 * start - end) / w
    third = (start + end - 2.0 * rise) / w**2
    areas = w * (h[:-1] + w * (start / 2.0 + w * (second / 3.0 + w * third / 4.0)))
    primitive = h[0] * low + np.append(0.0, np.cumsum(areas[:-1]))
    return np.stack([h[:-1], primitive, start, second, third], axis=1)


def _primitive(u: Tensor, h: Tensor, primitive: Tensor, *cubic: Tensor) -> Tensor:
    """The primitive at `u` within a piece."""
    return primitive + h * u + _area(tf.zeros_like(u), u, *cubic)


def _rise_of(u: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """The rise of a cubic from 0 to `u`."""
    return u * (first + u * (second + u * third))


def _area(u: Tensor, d: Tensor, first: Tensor, second: Tensor, third: Tensor) -> Tensor:
    """The integral of the rise of a cubic from `u`, between `u` and `u + d`."""
    curved = second * (u + d / 3.0) + third * (1.5 * u * u + u * d + d * d / 4.0)
    return tf.square(d) * (first / 2.0 + curved)


def _clip_slope(x: Tensor, low: float, high: float) -> Tensor:
    """Computes the slope of `clip(x, low, high)`: 1 between, 0 beyond, 1/2 at both ends."""
    return 0.5 * (tf.sign(x - low) - tf.sign(x - high))


def _rise(*series: Sequence[float], strictly: bool = False) -> bool:
    """Whether no series decreases, or all increase; a series without numbers does neither."""
    return all(
        len(x) > 0 and all(b > a or (b == a and not strictly) for a, b in itertools.pairwise(x))
        for x in series
    )


class _StepLink(ElementaryLink):
    """A sum of steps, with half the height at each threshold."""

    phi_has_inverse = False

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
        return sum(0.5 * height * (1.0 + tf.sign(x - t)) for t, height in self.steps)

    def phi_potential(self, x: Tensor) -> Tensor:
        return sum(height * tf.maximum(x - t, 0.0) for t, height in self.steps)

    def phi_slope(self, x: Tensor) -> Tensor:
        return tf.zeros_like(x)

    def phi_divergence(self, z: Tensor, x: Tensor) -> Tensor:
        return sum(
            0.5 * height * tf.abs(z - t) * tf.abs(tf.sign(z - t) - tf.sign(x - t))
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
        return tf.sign(x)

    def phi_potential(self, x: Tensor) -> Tensor:
        return tf.abs(x)


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
