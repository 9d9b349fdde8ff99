"""Choice of a loss by sensitivity, and the measurement behind the choice."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import tensorflow as tf

from tfrank_sel.links import convexity
from tfrank_sel.links.base import ElementaryLink, Link
from tfrank_sel.links.combinators import Scaled
from tfrank_sel.links.composite import CompositeSoftmax
from tfrank_sel.links.composite_sigmoid import CompositeSigmoid
from tfrank_sel.links.elementary import Tanh
from tfrank_sel.links.exponential import AntiExp, Exp, Sinh
from tfrank_sel.links.piecewise import ReLU, SmeLU
from tfrank_sel.links.sensitivity import class_sensitivity
from tfrank_sel.losses.selective.composite import SelectiveSigmoidLoss, SelectiveSoftmaxLoss
from tfrank_sel.losses.selective.matching import DecomposedMatchingLoss, MatchingLoss

Wanted = Literal["high_score", "low_score", "high_norm", "low_norm", "clip_low"]
Status = Literal["valid", "region_only", "invalid"]
SelectiveLoss = SelectiveSoftmaxLoss | SelectiveSigmoidLoss | MatchingLoss | DecomposedMatchingLoss
Three = tuple[float, float, float]

CONTRAST = 3.0  # minimum ratio of the sensitivity in the wanted region to that elsewhere
BALANCE = 1.5  # maximum ratio between the sensitivities of both ends, if both matter


class Verdict(NamedTuple):
    """The result of `judge`.

    Attributes:
        status: `"valid"`; `"region_only"` for a loss that is sensitive in the wanted region but
            treats each item independently; or `"invalid"`.
        sensitivities: The curvature of the loss at a low, a middle and a high score.
        measured: The region to which the loss is sensitive, by these three numbers.
        is_convex: Whether the loss is convex, so that it has one minimum.
        ranks: Whether the loss compares the items of a list.
        reason: A sentence that explains the status.
    """

    status: Status
    sensitivities: Three
    measured: tuple[Wanted, ...]
    is_convex: bool
    ranks: bool
    reason: str


class Design(NamedTuple):
    """The result of `design`.

    Attributes:
        loss: The loss to compile a model with.
        reason: Reason for the choice, with the measured sensitivities.
        verdict: The measurement.
    """

    loss: SelectiveLoss
    reason: str
    verdict: Verdict


def design(
    sensitivity: Wanted, at: float = 0.0, width: float = 3.0, ranking: bool = True, **kwargs: Any
) -> Design:
    """Chooses a loss that is most sensitive where errors matter most.

    Args:
        sensitivity: Which errors matter: those at a `"high_score"` or a `"low_score"`, those of a
            `"high_norm"`, far from `at`, or a `"low_norm"`, near it; `"clip_low"` is for lists
            whose low scores, below `at`, do not matter at all.
        at: The score in the middle.
        width: Distance from `at` at which the sensitivity must differ: it is at least three times
            as large, or as small, at `at - width` or `at + width` as at `at`. Positive.
        ranking: Whether the loss must compare the items of a list. No such loss is most sensitive
            to low norms: there the choice is the same, and the reason explains it.
        **kwargs: Further arguments of the loss, such as `label_map` and `reduction`.

    Returns:
        The loss, the reason, and the measurement behind it.

    Raises:
        ValueError: If `sensitivity` is not one of these, or `width` is not positive and finite.

    Example:
        >>> choice = losses.design("high_score", at=2.0, width=1.0)
        >>> choice.loss.scaling
        Scaled(link=Exp(scale=1.5, shift=2.0), factor=1.5)
        >>> [round(x, 3) for x in choice.verdict.sensitivities]  # at 1, 2 and 3
        [0.008, 0.131, 11.509]

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        tables 1, H.1 and H.2, corrected by measurement.
    """
    if sensitivity not in get_args(Wanted):
        raise ValueError(
            f"`sensitivity` must be one of {', '.join(get_args(Wanted))}. Received: {sensitivity!r}"
        )
    if not 0.0 < width < np.inf:
        raise ValueError(f"`width` must be positive and finite. Received: width={width}")
    recipe = (_RANKING if ranking else _ALONE)[sensitivity]
    loss = recipe.make(at, width, kwargs)
    verdict = judge(loss, sensitivity, (at - width, at, at + width))
    return Design(loss, f"{recipe.why} {verdict.reason}", verdict)


def judge(loss: SelectiveLoss, sensitivity: Wanted, scores: Three = (-3.0, 0.0, 3.0)) -> Verdict:
    """Measures whether a loss is sensitive in the wanted region.

    The curvature of the loss is measured at a low, a middle and a high score, which for a composite
    Softmax make up one list. In the wanted region it must be at least three times as large as
    elsewhere. For high norms, both ends must qualify and agree within a factor of 1.5. For
    clipping, the loss must be exactly flat around the low score. A valid loss is convex and, except
    for low norms, compares the items of a list.

    Args:
        loss: A selective or matching loss, also one made with `allow_nonconvex=True`.
        sensitivity: The wanted sensitivity, as in `design`.
        scores: The low, the middle and the high score.

    Returns:
        The verdict.

    Example:
        >>> loss = losses.SelectiveSoftmaxLoss(links.Tanh())
        >>> verdict = losses.judge(loss, "low_norm")
        >>> verdict.status, verdict.measured
        ('invalid', ('high_norm',))
        >>> losses.judge(losses.MatchingLoss(links.Tanh()), "low_norm").status
        'valid'
    """
    low, middle, high = scores
    link: Link | CompositeSoftmax
    if isinstance(loss, SelectiveSoftmaxLoss):
        flat = _starts_flat(loss.scaling, scores, level=0.0)
        # without log_rho, which depends on the class, not on the score
        link = CompositeSoftmax(loss.scaling, loss.gamma, allow_nonconvex=True)
        found, is_convex = class_sensitivity(link, scores), convexity.is_increasing(loss.scaling)
    else:
        link = _scalar_link(loss)
        flat = _starts_flat(link, scores, level=float(link(_constant(low))))
        found, is_convex = link.slope(_constant(scores)).numpy(), convexity.is_increasing(link)
    sensitivities = (float(found[0]), float(found[1]), float(found[2]))
    measured = _regions(sensitivities)
    ranks = isinstance(link, CompositeSoftmax)
    status, why = _decide(sensitivity, measured, flat, is_convex, ranks)
    numbers = ", ".join(f"{x:.3g}" for x in sensitivities)
    reason = f"Its sensitivities at {low:g}, {middle:g} and {high:g} are {numbers}: {why}."
    return Verdict(status, sensitivities, measured, is_convex, ranks, reason)


def _decide(
    wanted: Wanted, measured: tuple[Wanted, ...], flat: bool, is_convex: bool, ranks: bool
) -> tuple[Status, str]:
    if not is_convex:
        return "invalid", "the loss is not convex, and may have no minimum"
    if wanted == "clip_low" and not flat:
        return "invalid", "it is not flat at low scores"
    if wanted != "clip_low" and wanted not in measured:
        return "invalid", f"{' and '.join(measured) or 'no region'} stands out, not {wanted}"
    if wanted != "low_norm" and not ranks:
        return "region_only", f"{wanted}, as wanted, but it looks at each item for itself"
    return "valid", f"{wanted}, as wanted, and convex"


def _regions(sensitivities: Three) -> tuple[Wanted, ...]:
    """Names the regions of high sensitivity, ignoring negative ones."""
    low, middle, high = sensitivities

    def stands_out(x: float, *others: float) -> bool:
        return x > 0.0 and all(x >= CONTRAST * other for other in others)

    least, most = min(low, high), max(low, high)
    found: dict[Wanted, bool] = {
        "high_score": stands_out(high, middle, low),
        "low_score": stands_out(low, middle, high),
        "high_norm": stands_out(least, middle) and most <= BALANCE * least,
        "low_norm": stands_out(middle, low, high),
    }
    return tuple(wanted for wanted, is_so in found.items() if is_so)


def _starts_flat(link: Link, scores: Three, level: float) -> bool:
    """Whether a link is at `level` from below the low score up to there, and higher at the high."""
    low, middle, high = scores
    beginning = _constant([low - (middle - low), low])
    at_level = bool(np.all(link(beginning) == level) and np.all(link.slope(beginning) == 0.0))
    return at_level and bool(link(_constant(high)) > level)


def _scalar_link(loss: SelectiveSigmoidLoss | MatchingLoss | DecomposedMatchingLoss) -> Link:
    if isinstance(loss, SelectiveSigmoidLoss):
        return CompositeSigmoid(loss.scaling, loss.gamma, loss.offset, allow_nonconvex=True)
    return loss.link


def _constant(x: Any) -> tf.Tensor:
    return tf.constant(x, tf.float64)


class _Recipe(NamedTuple):
    why: str
    make: Callable[[float, float, dict[str, Any]], SelectiveLoss]


def _softmax(why: str, link: Callable[..., ElementaryLink], reach: float) -> _Recipe:
    """A composite Softmax whose scaling is `reach` from its shift, at `width` from there."""

    def make(at: float, width: float, kwargs: dict[str, Any]) -> SelectiveLoss:
        scale = reach / width
        return SelectiveSoftmaxLoss(Scaled(link(scale=scale, shift=at), scale), **kwargs)

    return _Recipe(why, make)


def _sum(why: str, link: Callable[..., ElementaryLink], reach: float) -> _Recipe:
    def make(at: float, width: float, kwargs: dict[str, Any]) -> SelectiveLoss:
        return DecomposedMatchingLoss(link(scale=reach / width, shift=at), **kwargs)

    return _Recipe(why, make)


_ALONE: dict[Wanted, _Recipe] = {
    "high_score": _sum("The slope of exp grows with the score.", Exp, 3.0),
    "low_score": _sum("The slope of -exp(-s) grows as the score falls.", AntiExp, 3.0),
    "high_norm": _sum("The slope of sinh grows to both sides.", Sinh, 3.0),
    "low_norm": _sum(
        "The slope of tanh is largest in the middle, and the losses of the items are added up: a "
        "composite Softmax would weight them by its probabilities, which move the sensitivity to "
        "the ends.",
        Tanh,
        3.0,
    ),
    "clip_low": _sum("The link is flat up to the middle, and rises from there.", ReLU, 3.0),
}
_RANKING: dict[Wanted, _Recipe] = {
    "high_score": _softmax(
        "The scaling exp grows with the score, as its probabilities do.", Exp, 1.5
    ),
    "low_score": _softmax(
        "The scaling -exp(-s) grows in size as the score falls, as its probabilities do; they rank "
        "from the low end.",
        AntiExp,
        1.5,
    ),
    "high_norm": _softmax(
        "The scaling sinh grows in size to both sides, as its probabilities do.", Sinh, 1.5
    ),
    "low_norm": _ALONE["low_norm"],
    "clip_low": _softmax(
        "The scaling is 0 at low scores. Each clipped item still has a weight of 1 in the softmax: "
        "where there are many, give them smaller weights, or sample them.",
        lambda scale, shift: SmeLU(half_width=1.0, scale=scale, shift=shift),
        2.0,
    ),
}
