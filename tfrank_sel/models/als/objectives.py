"""Quadratic losses that alternating least squares minimises exactly; weights of users and items."""

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tfrank_sel.arguments import AtLeast0, Positive
from tfrank_sel.distribution import Group
from tfrank_sel.serialization import Frozen, register

Affine: TypeAlias = tuple[float, float]

Float64s: TypeAlias = NDArray[np.float64]

_CHUNK = 1 << 12  # rows of random numbers at a time


class Objective(Frozen, abc.ABC):
    """A loss that is quadratic in the scores of a user, with separate terms for the positives.

    With scores `o`, gains `g` of the positives and base weights `v` of all `N` items, which sum to
    `N`, a user of weight `w` adds

    ```
    w * (sum_j c_j / 2 * o_j**2 - sum_j l_j * o_j)
    + w * a * sum_i v_i * (lift * o_i + o_i**2 / 2) - w * a * kappa / (2 * N) * (sum_i v_i o_i)**2
    ```

    with `j` over the positives, `c_j = curvature[0] + curvature[1] * g_j`,
    `l_j = slope[0] + slope[1] * g_j`, and `a` the user's `scale`.
    """

    kappa: ClassVar[float]
    lift: ClassVar[float]

    @property
    def joint(self) -> bool:
        """Whether the half-sweep over items minimises over all items together."""
        return False

    @property
    @abc.abstractmethod
    def curvature(self) -> Affine:
        """The curvature at a positive: a constant, and a factor of the gain."""

    @property
    @abc.abstractmethod
    def slope(self) -> Affine:
        """The slope at a positive: a constant, and a factor of the gain."""

    @property
    @abc.abstractmethod
    def offset(self) -> Affine:
        """The loss of a positive at score 0: a constant, and a factor of the gain."""

    @abc.abstractmethod
    def scale(self, gain_sums: Float64s, num_items: int) -> Float64s:
        """Returns the weight of all items in the loss of each user."""


class _Anchored(Objective):
    """Base of RG^2 and RG^x: the anchor of the positives."""

    alpha: AtLeast0 = 1.0
    target: float = 1.0

    lift = 1.0

    @property
    def curvature(self) -> Affine:
        return self.alpha, 0.0

    @property
    def slope(self) -> Affine:
        return self.alpha * self.target, 1.0

    @property
    def offset(self) -> Affine:
        return self.alpha * self.target**2 / 2.0, 0.0

    def scale(self, gain_sums: Float64s, num_items: int) -> Float64s:
        return gain_sums / num_items


@register
class RG2(_Anchored):
    """RG^2, as `losses.RG2Loss` over all items; the weight of a user is the sum of its gains.

    ```
    L_u = G * (mu + m2 / 2) - sum_j g_j * o_j + alpha / 2 * sum_j (o_j - target)**2
    ```

    Args:
        alpha: Weight of the anchor of the positives, not negative. With 0, all rows share one
            matrix: this is fastest, and finds a thresholded singular value decomposition.
        target: Score to which the anchor draws positives.

    Raises:
        ValueError: If `alpha` is negative.
    """

    kappa = 0.0


@register
class RGCross(_Anchored):
    """RG^x, as `losses.RGCrossLoss` over all items: invariant to a shift of a user's scores.

    ```
    L_u = G * (mu + (m2 - mu**2) / 2) - sum_j g_j * o_j + alpha / 2 * sum_j (o_j - target)**2
    ```

    The squared mean couples the items. The half-sweep over items replaces it by its tangent at the
    current factors, which is an upper bound, so that the objective never increases. With `joint`,
    it solves all items together, in a few passes over the items instead of one.

    Args:
        alpha: Weight of the anchor of the positives, not negative.
        target: Score to which the anchor draws positives.
        joint: Whether the half-sweep over items minimises over all items together.

    Raises:
        ValueError: If `alpha` is negative.
    """

    joint: bool = False

    kappa = 1.0


@register
class WeightedSquare(Objective):
    """Weighted squared error (WRMF, implicit ALS) to a target for positives and to 0 for all items.

    ```
    L_u = alpha / 2 * sum_j g_j * (o_j - target)**2 + unobserved / 2 * sum_i v_i * o_i**2
    ```

    Args:
        alpha: Weight of the positives, positive.
        target: The score of a positive.
        unobserved: Weight of every item, positive.

    Raises:
        ValueError: If a weight is not positive.
    """

    alpha: Positive = 1.0
    target: float = 1.0
    unobserved: Positive = 0.1

    kappa = 0.0
    lift = 0.0

    @property
    def curvature(self) -> Affine:
        return 0.0, self.alpha

    @property
    def slope(self) -> Affine:
        return 0.0, self.alpha * self.target

    @property
    def offset(self) -> Affine:
        return 0.0, self.alpha * self.target**2 / 2.0

    def scale(self, gain_sums: Float64s, num_items: int) -> Float64s:
        return np.full_like(gain_sums, self.unobserved)


def base_weights(counts: NDArray[Any], exponent: float) -> Float64s:
    """Returns the base weights of items, mean 1: their numbers of positives to a power."""
    popularity = np.maximum(counts, 0.5) ** exponent
    return popularity * (len(counts) / popularity.sum())


def activity_weights(counts: NDArray[Any], exponent: float, group: Group) -> Float64s:
    """Returns the weights of users: their numbers of positives to minus a power.

    The mean over the positives of all processes of the group is 1.
    """
    weights = np.maximum(counts, 1.0) ** -exponent
    positives, weighted = group.total(np.array([counts.sum(), counts @ weights]))
    return weights * (positives / weighted if positives else 1.0)


def random_factors(
    shapes: Sequence[tuple[int, int]], scale: float, seed: int, dtype: str, first_user: int = 0
) -> list[NDArray[np.floating[Any]]]:
    """Draws factors of users and of items, without a copy of all of them.

    Args:
        shapes: Numbers of users and of items, each with the number of factors.
        scale: Standard deviation.
        seed: Seed of both sides.
        dtype: The dtype of the factors.
        first_user: Number of users that preceding processes drew.
    """
    of_users, of_items = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(2))
    # the numbers of preceding processes are drawn and dropped: all have those of one process
    for begin in range(0, first_user, _CHUNK):
        of_users.normal(size=(min(_CHUNK, first_user - begin), shapes[0][1]))
    drawn = [np.empty(shape, dtype) for shape in shapes]
    for rng, side in zip((of_users, of_items), drawn, strict=True):
        for begin in range(0, len(side), _CHUNK):
            part = side[begin : begin + _CHUNK]
            part[:] = rng.normal(0.0, scale, part.shape)
    return drawn
