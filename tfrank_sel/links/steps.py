"""Step links: only the side of a threshold on which a score lies counts."""

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import tensorflow as tf

from tfrank_sel.links.base import ElementaryLink, Interval, freeze
from tfrank_sel.serialization import register


class _StepLink(ElementaryLink):
    """A sum of steps, with half the height at each threshold."""

    phi_has_inverse: ClassVar[bool] = False

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

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return sum(0.5 * height * (1.0 + tf.sign(x - t)) for t, height in self.steps)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return sum(height * tf.maximum(x - t, 0.0) for t, height in self.steps)

    def phi_slope(self, x: tf.Tensor) -> tf.Tensor:
        return tf.zeros_like(x)

    def phi_divergence(self, z: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        return sum(
            0.5 * height * tf.abs(z - t) * tf.abs(tf.sign(z - t) - tf.sign(x - t))
            for t, height in self.steps
        )


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Step(_StepLink):
    """`h(s) = 0` below `shift`, 1 above, 1/2 there: the perceptron's link."""


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
class Sign(_StepLink):
    """`h(s) = -1` below `shift`, 1 above, 0 there: like `Step`, but odd."""

    phi_is_odd: ClassVar[bool] = True

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        return ((0.0, 2.0),)

    @property
    def phi_image(self) -> Interval:
        return (-1.0, 1.0)

    def phi(self, x: tf.Tensor) -> tf.Tensor:
        return tf.sign(x)

    def phi_potential(self, x: tf.Tensor) -> tf.Tensor:
        return tf.abs(x)


@register
@dataclasses.dataclass(frozen=True, kw_only=True)
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
            raise ValueError(
                "`jumps` must be positive and as long as `thresholds`. "
                f"Received: thresholds={self.thresholds}, jumps={self.jumps}"
            )

    @property
    def steps(self) -> tuple[tuple[float, float], ...]:
        return tuple(zip(self.thresholds, self.jumps, strict=True))
