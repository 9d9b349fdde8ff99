"""Label maps: links that map graded labels to scores."""

import math

from tfrank_sel.errors import refusal as _refusal
from tfrank_sel.links.base import Link
from tfrank_sel.links.combinators import Capped, Inverse
from tfrank_sel.links.elementary import Identity, Sigmoid, SignedExpm1, SignedLog1p


def affine(slope: float, intercept: float = 0.0) -> Link:
    """Maps a label `y` to the score `slope * y + intercept`.

    Args:
        slope: Positive; 1.5 and the intercept -3 spread grades from 0 to 4 over [-3, 3].
        intercept: The score of label 0.

    Returns:
        The map, as a link.

    Raises:
        ValueError: If `slope` is not positive, or a number is not finite.

    Example:
        >>> links.labels.affine(1.5, -3.0)(tf.constant([0.0, 4.0])).numpy().tolist()
        [-3.0, 3.0]
    """
    if not slope > 0.0:
        raise _refusal("`slope` must be positive", slope=slope)
    return Identity(scale=slope, shift=-intercept / slope)


def gain() -> Link:
    """Maps a grade `y` to the score `2**y - 1`, its gain in an NDCG.

    Returns:
        The map, as a link. Beyond `y = 100.9`, where it is 2.5e30, it is constant.

    Example:
        >>> links.labels.gain()(tf.constant([0.0, 2.0], tf.float64)).numpy().round(9).tolist()
        [0.0, 3.0]
    """
    return SignedExpm1(scale=math.log(2.0))


def logit(epsilon: float = 1e-3, scale: float = 1.0, shift: float = 0.0) -> Link:
    """Maps a probability `y` to the score at which `Sigmoid(scale, shift)` is `y`.

    Args:
        epsilon: Minimum distance of probabilities from 0 and 1, by clipping; in (0, 0.5).
        scale: The scale of the sigmoid; positive.
        shift: The shift of the sigmoid.

    Returns:
        The map, as a link.

    Raises:
        ValueError: If `epsilon` or `scale` is out of range, or `shift` is not finite.

    Example:
        >>> scores = links.labels.logit()(tf.constant([0.0, 0.5, 1.0], tf.float64))
        >>> scores.numpy().round(2).tolist()
        [-6.91, 0.0, 6.91]
    """
    if not 0.0 < epsilon < 0.5:
        raise _refusal("`epsilon` must be in (0, 0.5)", epsilon=epsilon)
    return Capped(Inverse(Sigmoid(scale=scale, shift=shift)), epsilon, 1.0 - epsilon)


def log1p() -> Link:
    """Maps a duration or a count `y` to the score `log(1 + y)`.

    Returns:
        The map, as a link.

    Example:
        >>> seconds = tf.constant([0.0, 30.0, 600.0], tf.float64)
        >>> links.labels.log1p()(seconds).numpy().round(2).tolist()
        [0.0, 3.43, 6.4]
    """
    return SignedLog1p()
