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
MAX_ITEMS = 2**15  # with features
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
    fitted to half of the scores by the loss of each clip, and its error is that of the other half.

    Args:
        clips: The losses to compare.
        region: The scores that matter.
        scores: Scores `[items]`.

    Returns:
        As `compare`.
    """
    random = np.random.default_rng(0)
    ordered = np.sort(scores)
    scores = random.permutation(ordered)[:MAX_SCORES]
    below, through = (np.searchsorted(ordered, scores, side) for side in ("left", "right"))
    ranks = (below + through) / (2.0 * len(ordered))
    quantiles = np.asarray(xp.ndtri(xp.constant(ranks, xp.float64)))
    is_fitted = np.arange(len(scores)) % 2 == 0
    squares = []
    for noise in NOISES:
        x = quantiles + noise * random.normal(size=len(scores))
        predictions = fit_lines(clips, scores, x[:, np.newaxis], is_fitted)
        squares.append(_squares(predictions, scores[~is_fitted], region))
    return _levels(np.mean(squares, axis=0), np.ones(len(scores) - is_fitted.sum()))


def compare(predictions: Array, scores: Array, region: Clip) -> tuple[Array, Array]:
    """Compares held-out predictions by each loss.

    Args:
        predictions: `[losses, lists, items]`.
        scores: `[lists, items]`; NaN is padding.
        region: The scores that matter: the error is the square of the difference of prediction and
            score, both clipped to it.

    Returns:
        The root mean square error of each loss, and whether it is level with the best: its mean
        square is within two standard errors, of lists.
    """
    is_item = ~np.isnan(scores)
    squares = _squares(predictions, np.where(is_item, scores, 0.0), region)
    return _levels(np.where(is_item, squares, 0.0).sum(axis=-1), is_item.sum(axis=-1))


def line_errors(
    clips: Sequence[Clip], region: Clip, scores: Array, features: Array
) -> tuple[Array, Array]:
    """Measures the error of lines of features, each half of the lists by lines of the other half.

    Args:
        clips: The losses to compare.
        region: The scores that matter.
        scores: Scores `[lists, items]`; NaN is padding. Of many lists, a sample.
        features: Features `[lists, items, num_features]`.

    Returns:
        As `compare`.
    """
    order = np.random.default_rng(0).permutation(len(scores))
    counts = np.sum(~np.isnan(scores[order]), axis=1)
    order = order[: max(2, np.searchsorted(counts.cumsum(), MAX_ITEMS, "right"))]
    scores, features = scores[order], features[order]
    is_item = ~np.isnan(scores)
    half = np.broadcast_to(np.arange(len(order))[:, np.newaxis] % 2 == 0, is_item.shape)[is_item]
    y, x = scores[is_item], features[is_item]
    flat = np.empty((len(clips), len(y)))
    for is_fitted in (half, ~half):
        flat[:, ~is_fitted] = fit_lines(clips, y, x, is_fitted)
    predictions = np.zeros((len(clips), *scores.shape))
    predictions[:, is_item] = flat
    return compare(predictions, scores, region)


def fit_lines(clips: Sequence[Clip], scores: Array, features: Array, is_fitted: Array) -> Array:
    """Fits lines of features to some scores, and predicts the others.

    Args:
        clips: The losses.
        scores: Scores `[items]`.
        features: Features `[items, num_features]`.
        is_fitted: Which scores the lines are fitted to, `[items]`.

    Returns:
        Predictions of the other scores `[losses, others]`.
    """
    mean, deviation = scores.mean(), scores.std()
    y, *ends = ((x - mean) / deviation for x in (scores, *np.array([x[:2] for x in clips]).T))
    lower, upper = (x[:, np.newaxis] for x in ends)
    targets = np.clip(y[is_fitted], lower, upper)
    is_label = np.array([[not x.of_predictions] for x in clips])
    lower, upper = np.where(is_label, -np.inf, lower), np.where(is_label, np.inf, upper)
    features = np.insert(features, 0, 1.0, axis=1)
    known, others = features[is_fitted], features[~is_fitted]
    solve = np.linalg.pinv(known)
    weights = solve @ targets.T
    # a step of majorisation: a link's slope is at most 1
    for _ in range(STEPS):
        values = np.clip((known @ weights).T, lower, upper)
        weights = weights + solve @ (targets - values).T
    predictions: Array = mean + deviation * (others @ weights).T
    return predictions


def _squares(predictions: Array, scores: Array, region: Clip) -> Array:
    start, end, _ = region
    return np.square(np.clip(predictions, start, end) - np.clip(scores, start, end))


def _levels(sums: Array, counts: Array) -> tuple[Array, Array]:
    """Root mean squares by sums `[losses, lists]` and counts, and which are level with the best."""
    means = sums.sum(axis=1) / counts.sum()
    gaps = sums - sums[means.argmin()]
    differences = gaps.sum(axis=1) / counts.sum()
    deviations = (gaps - differences[:, np.newaxis] * counts).std(axis=1)
    is_level = differences <= 2.0 * deviations * math.sqrt(len(counts)) / counts.sum()
    return np.sqrt(means), is_level
