"""Piecewise linear links, which can be exactly flat outside a region, and steps."""

import itertools
import math
from collections.abc import Sequence

import tensorflow as tf
from tensorflow import Tensor

from tfrank_sel.arguments import Positive
from tfrank_sel.links.base import ElementaryLink, Interval, freeze
from tfrank_sel.ops import bregman
from tfrank_sel.refusals import refusal
from tfrank_sel.serialization import register


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
