"""Sensitivity of a link as numbers, in float64.

The sensitivity of a link at a score is its slope. These functions relate it to an interval of
scores, or to a distribution on it, as the update of a model that cannot fit every score.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import check_object, number_array
from tfrank_sel.errors import refusal
from tfrank_sel.links.base import Interval, Link
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.numerics import Tensor

Array = NDArray[np.float64]


class Sensitivity(NamedTuple):
    """A row of `sensitivity_table`: the sensitivity of a link at one score.

    Attributes:
        score: The score.
        link: The value `h` of the link there.
        slope: Its slope `h'`, the curvature of the loss.
        bust: Share of the range of `h` that a step of size 1 from the score covers.
        blust: The same for an infinitesimal step, divided by its size.
        llust: The same for a linear model, whose step grows with the score.
    """

    score: float
    link: float
    slope: float
    bust: float
    blust: float
    llust: float


def bust(
    link: Link,
    score: float,
    step: float,
    interval: Interval,
    observed: ArrayLike | None = None,
) -> float:
    """Computes the share `(h(score + step) - h(score)) / (h(high) - h(low))` of a step.

    This is the bias update sensitivity of the paper: a model fits all scores but those of a few
    examples, whose score is `score` and whose label is `score + step`, and can only change a bias.
    The new bias is `(high - low) * bust` times the share of these examples, if it is small. The
    other scores are spread evenly over the interval, or are `observed`, whose mean slope takes the
    place of the mean slope on the interval: `(h(score + step) - h(score)) / ((high - low) *
    mean(h'(observed)))`. Errors at many scores: `best_bias`.

    Args:
        link: The link `h`.
        score: Start of the step.
        step: The size of the step, of either sign.
        interval: The lowest and the highest possible score.
        observed: Scores, such as training labels, in any shape; NaN is padding.

    Returns:
        The share, with the sign of `step`.

    Raises:
        ValueError: If `interval` is not increasing, or `h` is constant on it or at `observed`.

    Example:
        >>> round(links.bust(links.Sigmoid(shift=4.0), score=3.0, step=0.5, interval=(-5, 5)), 4)
        0.1486
        >>> low = np.random.default_rng(0).normal(-2.0, 1.0, 1000)  # few scores are as high as 3
        >>> high = links.Sigmoid(shift=4.0)
        >>> round(links.bust(high, score=3.0, step=0.5, interval=(-5, 5), observed=low), 4)
        2.9249
    """
    check_object("link", link, Link)
    start, d = number_array("score", score), number_array("step", step)
    rise = _apply(link, start + d) - _apply(link, start)
    return float(rise / _total(link, interval, observed))


def blust(link: Link, score: float, interval: Interval, observed: ArrayLike | None = None) -> float:
    """Computes `h'(score) / (h(high) - h(low))`, the limit of `bust` divided by the step size.

    Args:
        link: The link `h`.
        score: The score.
        interval: The lowest and the highest possible score.
        observed: As in `bust`.

    Returns:
        The relative slope: its mean over the interval, or over `observed`, is 1 divided by the
        length of the interval.

    Raises:
        ValueError: If `interval` is not increasing, or `h` is constant on it or at `observed`.

    Example:
        >>> links.blust(links.Identity(), score=2.0, interval=(-5, 5))
        0.1
    """
    check_object("link", link, Link)
    return float(
        _apply(link.slope, number_array("score", score)) / _total(link, interval, observed)
    )


def llust(link: Link, score: float, interval: Interval, observed: ArrayLike | None = None) -> float:
    """Computes `score**2 * h'(score)`, relative to its integral over the interval.

    This is the counterpart of `blust` for a linear model `z = u * score`, in which an error in `u`
    changes large scores more.

    Args:
        link: The link `h`.
        score: The score.
        interval: The lowest and the highest possible score.
        observed: As in `bust`.

    Returns:
        The relative sensitivity: its mean over the interval, or over `observed`, is 1 divided by
        the length of the interval.

    Raises:
        ValueError: If `interval` is not increasing, or `h` is constant on it or at `observed`.

    Example:
        >>> round(links.llust(links.Identity(), score=2.0, interval=(-5, 5)), 3)
        0.048
    """
    check_object("link", link, Link)
    at = number_array("score", score)
    moment = at**2 * _apply(link.slope, at)
    return float(moment / _total(link, interval, observed, in_square=True))


def class_sensitivity(
    link: CompositeSoftmax, scores: ArrayLike, weights: ArrayLike | None = None
) -> Array:
    """Computes the sensitivity of each item of a list, `p_k * (q'_k + (1 - p_k) * q_k**2 / gamma)`.

    Args:
        link: The composite Softmax.
        scores: The scores of a list.
        weights: The weight of each item; 1 if `None`.

    Returns:
        The diagonal of the Hessian of the potential; `CompositeSoftmax.hessian` has the rest.

    Example:
        >>> high = links.CompositeSoftmax(links.Exp(scale=0.5))
        >>> links.class_sensitivity(high, [-3.0, 0.0, 3.0]).round(3).tolist()
        [0.0, 0.001, 2.261]

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        equation C.6, and B.5 with `gamma=1`.
    """
    check_object("link", link, CompositeSoftmax)
    arrays = [number_array("scores", scores)]
    arrays.append(np.ones_like(arrays[0]) if weights is None else number_array("weights", weights))
    if arrays[0].ndim != 1 or arrays[0].shape != arrays[1].shape:
        shapes = {"scores": arrays[0].shape, "weights": arrays[1].shape}
        raise refusal("`scores` and `weights` must be [items]", **shapes)
    s, w = (x[np.newaxis] for x in arrays)
    return _apply(link.sensitivity, s, np.ones_like(s, bool), w)[0]


def sensitivity_table(
    link: Link,
    scores: Sequence[float],
    interval: Interval,
    step: float = 1.0,
    observed: ArrayLike | None = None,
) -> list[Sensitivity]:
    """Computes all sensitivities of a link at some scores.

    Args:
        link: The link `h`.
        scores: The scores.
        interval: The lowest and the highest possible score.
        step: The size of the step of `bust`.
        observed: As in `bust`.

    Returns:
        A row for each score.

    Raises:
        ValueError: If `interval` is not increasing, or `h` is constant on it or at `observed`.

    Example:
        >>> for row in links.sensitivity_table(links.Sinh(), [0.0, 4.0], interval=(-5, 5)):
        ...     print(f"{row.score:.0f} {row.slope:7.4f} {row.blust:.4f} {row.llust:.4f}")
        0  1.0000 0.0067 0.0000
        4 27.3082 0.1840 0.1732
    """
    check_object("link", link, Link)
    return [
        Sensitivity(
            score=score,
            link=float(_apply(link, score)),
            slope=float(_apply(link.slope, score)),
            bust=bust(link, score, step, interval, observed),
            blust=blust(link, score, interval, observed),
            llust=llust(link, score, interval, observed),
        )
        for score in np.ravel(number_array("scores", scores)).tolist()
    ]


def constant_predictor(
    link: Link | CompositeSoftmax, scores: ArrayLike, weights: ArrayLike | None = None
) -> Array:
    """Computes the constant with the smallest mean matching loss: the best initial bias.

    It is the score at which the link has its mean value, `h(c) = mean h(s)`. If the link is flat
    there, it is the score nearest to the mean of `s`.

    Args:
        link: The link of a scalar loss, or that of a list.
        scores: Observed scores, `[size]`, in which NaN is padding; for a composite Softmax, lists
            of scores, `[size, classes]`, in which a row of NaN is padding.
        weights: The weight of each score or list, `[size]`; 1 if `None`.

    Returns:
        The constant: a number, or one for each class.

    Raises:
        ValueError: If the shapes do not match, a number is not finite and no padding, a weight is
            negative, or there is no score with positive weight.

    Example:
        >>> import keras
        >>> start = links.constant_predictor(links.Exp(), [0.0, 0.0, 3.0])
        >>> round(float(start), 4)  # the logarithm of the mean of 1, 1 and exp(3)
        1.9963
        >>> bias = keras.initializers.Constant(float(start))
        >>> layer = keras.layers.Dense(1, bias_initializer=bias)

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        proposition 1.
    """
    if isinstance(link, CompositeSoftmax):
        return _best_list(link, *_weighted_rows(weights, 2, scores=scores))
    check_object("link", link, Link)
    s, w = _weighted_rows(weights, 1, scores=scores)
    return np.array(_best_bias(link, np.zeros_like(s), s, w))


def best_bias(
    link: Link, predicted: ArrayLike, observed: ArrayLike, weights: ArrayLike | None = None
) -> float:
    """Computes the bias that, added to all predictions, has the smallest mean matching loss.

    It is the `b` with `mean h(predicted + b) = mean h(observed)`: where a model errs in many
    regions, and can only change its bias, those where the link is steep decide. For small errors it
    is the mean of the errors, weighted by the slope at each score. If the link is flat, it is the
    nearest such `b` to the mean error.

    Args:
        link: The link of a scalar loss.
        predicted: Predicted scores, `[size]`.
        observed: Observed scores, `[size]`; NaN is padding, whatever is predicted there.
        weights: The weight of each score, `[size]`; 1 if `None`.

    Returns:
        The bias.

    Raises:
        ValueError: If the shapes do not match, a number is not finite and no padding, a weight is
            negative, or there is no score with positive weight.

    Example:
        >>> observed = [-4.0, -3.0, 4.0]  # a model has two low scores too high, a high one too low
        >>> predicted = [-3.0, -2.0, 3.0]
        >>> for link in (links.Identity(), links.Exp()):
        ...     print(round(links.best_bias(link, predicted, observed), 3))
        -0.333
        0.992

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446):
        equation 12, at given scores in place of its interval. Proposition 1 is the case of equal
        predictions.
    """
    check_object("link", link, Link)
    return _best_bias(link, *_weighted_rows(weights, 1, predicted=predicted, observed=observed))


def _weighted_rows(weights: ArrayLike | None, rank: int, **arrays: ArrayLike) -> list[Array]:
    """Returns the rows of positive weight of each array, and their shares of the weight.

    NaN in the last array is padding; elsewhere it is refused.
    """
    values = [number_array(name, x) for name, x in arrays.items()]
    w = np.ones(values[0].shape[:1]) if weights is None else number_array("weights", weights)
    shapes = [x.shape for x in values]
    if len(shapes[0]) != rank or len({*shapes}) > 1 or w.shape != shapes[0][:1]:
        names = "`" + "` and `".join(arrays) + "`"
        raise refusal(
            f"{names} must have {rank} axes, and `weights` must be as long as the first",
            ", ".join(f"{x}.shape={np.shape(y)}" for x, y in {**arrays, "weights": w}.items()),
        )
    if not (np.all(w >= 0.0) and np.all(np.isfinite(w))):
        raise refusal("`weights` must be finite and at least 0", weights=w.min())
    padding = np.isnan(values[-1]).all(axis=tuple(range(1, rank)))
    kept = (w > 0.0) & ~padding
    if not kept.any():
        raise refusal("`weights` must be positive for at least one score", "none")
    for name, x in zip(arrays, values, strict=True):
        for index in np.flatnonzero(~np.isfinite(x[kept]))[:1]:
            expected = f"`{name}` must be finite, except for padding, which is NaN"
            raise refusal(expected, np.ravel(x[kept])[index])
    return [*(x[kept] for x in values), w[kept] / w[kept].sum()]


def _best_bias(link: Link, z: Array, s: Array, w: Array) -> float:
    def at(bias: float) -> float:
        return float(np.sum(w * _apply(link, z + bias)))

    target, mean = np.sum(w * _apply(link, s)), np.sum(w * (s - z))
    low, high = link.domain
    ends = np.clip([np.min(s - z), np.max(s - z)], low - z.min(), high - z.max())
    slack = 4.0 * np.finfo(np.float64).eps * np.max(np.abs(_apply(link, s)))
    first = _bisect(lambda b: at(b) < target - slack, *ends)
    last = _bisect(lambda b: at(b) <= target + slack, *ends)
    return float(np.clip(mean, min(first, last), last))


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Finds where `holds`, True below and False above, changes between `low` and `high`."""
    if holds(high):
        return high
    if not holds(low):
        return low
    while low < (middle := 0.5 * (low + high)) < high:
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _best_list(link: CompositeSoftmax, s: Array, w: Array) -> Array:
    """Finds the list with the mean link by damped Newton steps."""

    def evaluate(f: Callable[..., Tensor], lists: Array) -> Array:
        ones = np.ones_like(lists)
        value: Array = np.asarray(_apply(f, lists, ones > 0.0, ones))
        return value

    def gap(c: Array) -> Array:
        """The gradient of the mean divergence, which is convex."""
        return evaluate(link, c[np.newaxis])[0] - target

    target = w @ evaluate(link, s)
    # Differences up to this bound are rounding errors.
    exact = 32.0 * np.finfo(np.float64).eps * np.max(np.abs(target))
    c = w @ s
    gradient = gap(c)
    for _ in range(200):
        if np.max(np.abs(gradient)) <= exact:
            break
        hessian = evaluate(link.hessian, c[np.newaxis])[0]
        ridge = 1e-12 * np.trace(hessian) + np.finfo(np.float64).tiny
        move = np.linalg.lstsq(hessian + ridge * np.eye(len(c)), -gradient, rcond=None)[0]
        # compared by the gradient, because the loss itself is constant to all digits near the
        # optimum
        size, far = 1.0, np.linalg.norm(gradient)
        while np.linalg.norm(gradient := gap(c + size * move)) >= far and size > 1e-12:
            size *= 0.5
        if size <= 1e-12:
            break
        c = c + size * move
    return c


def _second_moment(link: Link, interval: Interval) -> float:
    """Integrates `w**2 * h'(w)` by parts, to include steps of `h`."""
    low, high = interval
    ends = [low, *(k for k in sorted(link.kinks) if low < k < high), high]
    nodes, weights = np.polynomial.legendre.leggauss(16)
    edges = np.concatenate([np.linspace(a, b, 9) for a, b in itertools.pairwise(ends)])

    def integrals(a: Array, b: Array) -> Array:
        width = (b - a)[:, np.newaxis] / 2.0
        w = (a + b)[:, np.newaxis] / 2.0 + width * nodes
        return np.asarray(np.sum(width * weights * w * _apply(link, w), axis=1))

    a, b, integral = edges[:-1], edges[1:], 0.0
    whole = integrals(a, b)
    exact = 1e-13 * np.sum(np.abs(whole))
    for _ in range(60):  # pieces that differ from their halves are halved, down to those of a step
        middle = 0.5 * (a + b)
        halves = np.stack([integrals(a, middle), integrals(middle, b)])
        is_far = np.abs(halves.sum(axis=0) - whole) > exact
        integral += float(halves[:, ~is_far].sum())
        a, b = np.stack([a, middle])[:, is_far].ravel(), np.stack([middle, b])[:, is_far].ravel()
        whole = halves[:, is_far].ravel()
        if not is_far.any():
            break
    integral += float(whole.sum())
    at_ends = np.array([low, high])
    edge = at_ends**2 * _apply(link, at_ends)
    return float(edge[1] - edge[0] - 2.0 * integral)


def _total(
    link: Link, interval: Interval, observed: ArrayLike | None, in_square: bool = False
) -> float:
    """Integrates `h'`, or `w**2 * h'(w)`, over the interval, or over its length by a sample."""
    ends = number_array("interval", interval)
    if ends.shape != (2,) or not np.all(np.isfinite(ends)) or not ends[0] < ends[1]:
        raise refusal("`interval` must be increasing, two finite numbers", interval=interval)
    low, high = ends
    if observed is None:
        rise = float(_apply(link, high) - _apply(link, low))
        total, where = rise, f"on the interval {interval}"
        if in_square and rise > 0.0:
            total = _second_moment(link, interval)
    else:
        w = number_array("observed", observed)
        w = w[~np.isnan(w)]
        slopes = _apply(link.slope, w) * (w**2 if in_square else 1.0)
        total, where = (high - low) * float(np.sum(slopes)) / max(w.size, 1), "at `observed`"
    if not total > 0.0:
        raise refusal(f"`link` must rise {where}", link=link)
    return total


def _apply(f: Callable[..., Tensor], *args: ArrayLike) -> Array:
    """Computes `f` in float64; booleans stay."""
    arrays = (np.asarray(x) for x in args)
    tensors = (xp.constant(x, xp.bool_ if x.dtype == bool else xp.float64) for x in arrays)
    with xp.init_scope():
        return np.array(f(*tensors))
