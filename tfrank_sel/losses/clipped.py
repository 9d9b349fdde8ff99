"""Squared errors of scores above or below a score, and their errors on held-out scores."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.links.base import ElementaryLink
from tfrank_sel.links.elementary import Identity
from tfrank_sel.links.piecewise import PiecewiseLinear, ReLU, SmeLU
from tfrank_sel.losses.pointwise import MeanSquaredLoss
from tfrank_sel.losses.selective import MatchingLoss

Array = NDArray[Any]

NOISES = (0.5, 1.0, 2.0)  # standard deviations beside the normal score of a rank
MAX_SCORES = 4096
STEPS = 300


class Clip(NamedTuple):
    """Scores between `lower` and `upper` matter, in labels and, but for squares, in predictions."""

    lower: float = -math.inf
    upper: float = math.inf
    of_predictions: bool = True

    @property
    def name(self) -> str:
        if not self.of_predictions:
            is_plain = math.isinf(self.lower) and math.isinf(self.upper)
            return "squares" if is_plain else "clipped squares"
        return type(self.link()).__name__

    def link(self, width: float = 1.0) -> ElementaryLink:
        """A link that rises from `lower` to `upper`, by 1 at `width`."""
        if math.isinf(self.lower) and math.isinf(self.upper):
            return Identity(scale=1.0 / width)
        if math.isinf(self.upper):
            return ReLU(scale=1.0 / width, shift=self.lower)
        if math.isinf(self.lower):
            line = {"slope_below": 1.0, "scale": 1.0 / width, "shift": self.upper}
            return PiecewiseLinear(knots=[0.0], values=[0.0], **line)
        half = (self.upper - self.lower) / 2.0
        return SmeLU(scale=1.0 / half, shift=self.lower + half)

    def mirror(self) -> "Clip":
        """That of negative scores."""
        return Clip(-self.upper, -self.lower, self.of_predictions)

    def loss(self, width: float, **kwargs: Any) -> MeanSquaredLoss | MatchingLoss:
        """The loss of scores that are clipped in this way."""
        if self.of_predictions:
            return MatchingLoss(self.link(width), **kwargs)
        return MeanSquaredLoss(lower=self.lower, upper=self.upper, **kwargs)


def held_out_errors(clips: Sequence[Clip], region: Clip, scores: Array) -> tuple[Array, Array]:
    """Measures the error of models that know the order of scores, but for noise, and no more.

    Each model is a line of one feature, the normal quantile of a score's rank plus noise. It is
    fitted to half of the scores by the loss of each clip. The error is that of the other half:
    the square of the difference of prediction and score, both clipped to the region.

    Args:
        clips: The losses to compare.
        region: The scores that matter.
        scores: Scores `[items]`.

    Returns:
        The root mean square error of each clip, and whether it is level with the best: its mean
        square is within two standard errors.
    """
    random = np.random.default_rng(0)
    ordered = np.sort(scores)
    scores = random.permutation(ordered)[:MAX_SCORES]
    below, through = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    ranks = (below + through) / (2.0 * len(ordered))
    quantiles = np.asarray(xp.ndtri(xp.constant(ranks, xp.float64)))
    mean, deviation = ordered.mean(), ordered.std()
    y, *ends = ((x - mean) / deviation for x in (scores, *np.array([x[:2] for x in clips]).T))
    lower, upper = (x[:, np.newaxis] for x in ends)
    start, end = ((x - mean) / deviation for x in region[:2])
    fitted, other = slice(None, None, 2), slice(1, None, 2)
    targets = np.clip(y[fitted], lower, upper)
    is_label = np.array([[not x.of_predictions] for x in clips])
    lower, upper = np.where(is_label, -np.inf, lower), np.where(is_label, np.inf, upper)
    squares = []
    for noise in NOISES:
        x = quantiles + noise * random.normal(size=len(y))
        features = np.stack([np.ones_like(x), x], axis=1)
        solve = np.linalg.pinv(features[fitted])
        weights = solve @ targets.T
        # a step of majorisation: a link's slope is at most 1
        for _ in range(STEPS):
            values = np.clip((features[fitted] @ weights).T, lower, upper)
            weights = weights + solve @ (targets - values).T
        predictions = (features[other] @ weights).T
        errors = np.clip(predictions, start, end) - np.clip(y[other], start, end)
        squares.append(np.square(errors))
    each = np.mean(squares, axis=0)
    gaps = each - each[each.mean(axis=1).argmin()]
    is_level = gaps.mean(axis=1) <= 2.0 * gaps.std(axis=1) / math.sqrt(gaps.shape[1])
    return np.sqrt(each.mean(axis=1)) * deviation, is_level
