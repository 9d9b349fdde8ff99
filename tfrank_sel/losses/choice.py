"""Choice of a loss by sensitivity, and the measurement behind the choice."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tfrank_sel import numerics as xp
from tfrank_sel.arguments import number_array
from tfrank_sel.errors import refusal
from tfrank_sel.links import convexity
from tfrank_sel.links.base import ElementaryLink, Link
from tfrank_sel.links.combinators import Scaled
from tfrank_sel.links.composite import CompositeSigmoid, CompositeSoftmax
from tfrank_sel.links.elementary import AntiExp, Exp, Sinh, Tanh
from tfrank_sel.links.piecewise import ReLU, SmeLU
from tfrank_sel.losses.clipped import Clip, compare, held_out_errors, line_errors
from tfrank_sel.losses.pointwise import MeanSquaredLoss
from tfrank_sel.losses.selective import (
    DecomposedMatchingLoss,
    MatchingLoss,
    SelectiveSigmoidLoss,
    SelectiveSoftmaxLoss,
)
from tfrank_sel.numerics import Tensor

Wanted = Literal["high_score", "low_score", "high_norm", "low_norm", "clip_low"]
Status = Literal["valid", "region_only", "even", "invalid"]
SelectiveLoss = (
    SelectiveSoftmaxLoss
    | SelectiveSigmoidLoss
    | MatchingLoss
    | DecomposedMatchingLoss
    | MeanSquaredLoss
)
Three = tuple[float, float, float]
Array = NDArray[Any]
Predictions = ArrayLike | Callable[[SelectiveLoss], ArrayLike]

CONTRAST = 3.0  # minimum ratio of the sensitivity in the wanted region to that elsewhere
COVERAGE = 0.2  # minimum share of the other items of a list's region that are as sensitive as one
BALANCE = 1.5  # maximum ratio between the sensitivities of both ends, if both matter
EXCESS = 1.05  # maximum ratio of an error on held-out scores to that of clipped squares
WORSE = 1.03  # maximum ratio of an error of held-out predictions to the least
GAMMAS = [10.0**x for x in range(13)]
ENDS = ("high_score", "low_score")


class Measurement(NamedTuple):
    """The result of `judge`.

    Attributes:
        status: `"valid"`; `"region_only"` for a loss that is sensitive in the wanted region but
            treats each item independently; `"even"` for squares, of which all errors cost the
            same; or `"invalid"`.
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
        reason: Reason for the choice, with the measured sensitivities and, for high and low scores
            with `scores`, the errors of the candidates on held-out scores.
        verdict: The measurement.
    """

    loss: SelectiveLoss
    reason: str
    verdict: Measurement


def design(
    sensitivity: Wanted = "high_score",
    at: float | None = None,
    width: float | None = None,
    ranking: bool = False,
    *,
    scores: ArrayLike | None = None,
    share: float = 0.1,
    cap: float | None = None,
    predictions: Predictions | None = None,
    **kwargs: Any,
) -> Design:
    """Chooses a loss that is most sensitive where errors matter most.

    With `scores`, it reads the region, and the unit of the scores, from them: `scores` and
    `a * scores + b` get the same loss, stretched and moved. For high and low scores, the candidates
    are then the squared error of labels clipped at the region, matching losses of `ReLU` that begin
    before it, or at it, those of `SmeLU`, and the squared error. Simple models are
    fitted to half of the scores by each of them. The choice is the first in this order whose error
    in the region, on the other half, is within two standard errors of the best, and at most 1.05
    times that of clipped squares. Without `scores`, it assumes
    scores that are near `at`, within about `width`, without a long tail.

    These models know nothing of yours. With `predictions`, the candidates are compared on what your
    model can tell: the choice is then the simplest, from squares to `SmeLU`, whose held-out error
    in the region is within two standard errors of the best, and at most 1.03 times it.

    Args:
        sensitivity: Which errors matter: those at a `"high_score"` or a `"low_score"`, those of a
            `"high_norm"`, far from `at`, or a `"low_norm"`, near it; `"clip_low"` is for lists
            whose low scores, below `at`, do not matter at all.
        at: The score in the middle; for high and low scores with `scores`, the score at which the
            region begins. By default 0, or the quantile of `scores` at `share`, or for norms their
            median or the middle between both ends, whichever fits.
        width: Distance from `at` at which the sensitivity must differ: it is at least three times
            as large, or as small, at `at - width` or `at + width` as at `at`. Positive; by default
            3, or the distance from `at` to the median of `scores`, at most (and, if it is 0, equal
            to) their standard deviation; other widths are tried if the loss does not fit. Links of
            `ReLU` rise by 1 within it.
        ranking: Whether the loss must compare the items of a list, as a softmax does. No such loss
            is most sensitive to low norms.
        scores: Labels of training lists, `[lists, items]` or `[items]`; NaN is padding.
        share: Share of the items in the region, in (0, 0.5).
        cap: The score that counts as all higher ones, such as the dwell time from which a user is
            idle: no candidate tells labels above it apart, and matching losses no predictions. For
            high scores, with `scores`, and without `ranking`.
        predictions: What your model tells of the items of `scores`, for high and low scores without
            `ranking`: held-out predictions of a first fit, `[lists, items]`, or features of a
            linear model, `[lists, items, num_features]`, of which lines are fitted by each
            candidate; or a function that fits your model by a loss and returns its held-out
            predictions, `[lists, items]`, which is called for each candidate, five to seven times.
        **kwargs: Further arguments of the loss, such as `label_map` and `reduction`.

    Returns:
        The loss, the reason, and the measurement behind it.

    Raises:
        ValueError: If an argument is out of range, if no loss is as wanted, or if the loss is not
            sensitive to the region of `scores`, such as an exponential whose `width` is far less
            than their spread.

    Example:
        >>> seconds = np.random.default_rng(0).exponential(60.0, size=[100, 20])
        >>> link = losses.design("high_score", scores=seconds).loss.link
        >>> type(link).__name__, round(link.shift)  # a tenth of the scores is above 140
        ('ReLU', 95)
        >>> choice = losses.design("high_score", at=2.0, width=1.0, ranking=True)
        >>> choice.loss.scaling
        Scaled(link=Exp(scale=1.5, shift=2.0), factor=1.5)
        >>> [round(x, 3) for x in choice.verdict.sensitivities]  # at 1, 2 and 3
        [0.008, 0.131, 11.509]

    Reference:
        [Shamir and Warmuth, Selective Matching Losses, 2025](https://arxiv.org/abs/2506.04446),
        tables 1, H.1 and H.2, corrected by measurement.
    """
    if not isinstance(sensitivity, str) or sensitivity not in get_args(Wanted):
        names = ", ".join(get_args(Wanted))
        received_value = (
            repr(sensitivity) if isinstance(sensitivity, str) else type(sensitivity).__name__
        )
        way_out = "" if isinstance(sensitivity, str) else ". Pass labels as `scores=`"
        raise refusal(f"`sensitivity` must be one of {names}{way_out}", received_value)
    if width is not None and not 0.0 < width < np.inf:
        raise refusal("`width` must be positive and finite", width=width)
    if ranking and sensitivity == "low_norm":
        reason = "must be False for 'low_norm': the probabilities of a softmax favour the ends"
        raise refusal(f"`ranking` {reason}", ranking=ranking)
    if cap is not None and (scores is None or ranking or sensitivity != "high_score"):
        raise refusal("`cap` requires 'high_score', `scores`, and ranking=False", cap=cap)
    if predictions is not None and (scores is None or ranking or sensitivity not in ENDS):
        rule = "requires 'high_score' or 'low_score', `scores`, and ranking=False"
        raise refusal(f"`predictions` {rule}", f"{sensitivity!r}, ranking={ranking}")
    if scores is None:
        at, width = 0.0 if at is None else at, 3.0 if width is None else width
        recipe = (_RANKING if ranking else _ALONE)[sensitivity]
        assumed = "It assumes scores within a few `width` of `at`, since no `scores` are given."
        recipe = recipe._replace(why=f"{assumed} {recipe.why}")
        return _make_design(
            recipe, at, width, sensitivity, (at - width, at, at + width), share, kwargs
        )
    lists = _lists(scores, share)
    if cap is not None:
        begin = _bounds(lists, share)[1] if at is None else at
        if not begin < cap:
            rule = f"must be above {begin:g}, where the region begins: take a larger `share`"
            raise refusal(f"`cap` {rule}", cap=cap)
        # below the cap, where the slope is that of the region
        lists = np.minimum(lists, cap - 1e-9 * np.nanstd(lists))
    first = None
    tried = list(_trials(lists, sensitivity, at, width, share))
    if sensitivity in ENDS and not ranking:
        end = np.inf if cap is None else cap
        recipes = _clipping(lists, sensitivity, *tried[0], end, share, predictions, kwargs)
    else:
        recipes = _recipes(sensitivity, ranking)
    for recipe in recipes:
        for centre, reach in tried:
            candidate = _make_design(recipe, centre, reach, sensitivity, lists, share, kwargs)
            if candidate.verdict.status != "invalid":
                return candidate
            first = first or (candidate.verdict, centre, reach)
    assert first is not None
    verdict, centre, reach = first
    raise refusal(
        f"`scores` must fit the loss. {verdict.reason} {_way_out(verdict, sensitivity, at, width)}",
        f"at={centre:g}, width={reach:g}",
    )


def _make_design(
    recipe: "_Recipe",
    at: float,
    width: float,
    sensitivity: Wanted,
    scores: ArrayLike,
    share: float,
    kwargs: dict[str, Any],
) -> Design:
    loss = recipe.make(at, width, kwargs)
    verdict = judge(loss, sensitivity, scores, share)
    return Design(loss, f"{recipe.why} {verdict.reason}", verdict)


def _trials(
    lists: Array, sensitivity: Wanted, at: float | None, width: float | None, share: float
) -> Iterator[tuple[float, float]]:
    """Yields `at` and `width`, the simplest first: a long tail or many zeros need others."""
    below, above = _bounds(lists, share)
    median, deviation = float(np.nanmedian(lists)), float(np.nanstd(lists))
    low, high = _median(lists, lists < below), _median(lists, lists > above)
    ends = {"low_score": [below], "high_score": [above], "clip_low": [above, (above + high) / 2.0]}
    for centre in ends.get(sensitivity, [median, (low + high) / 2.0]) if at is None else [at]:
        reach = min(deviation, abs(centre - median) or deviation)
        far = [abs(centre - x) for x in (low, high)]
        widths = [reach * factor for factor in (1.0, 2.0, 4.0, 8.0, 0.5, 0.25)]
        for trial in [*widths, *far, *(x / 2.0 for x in far)] if width is None else [width]:
            if trial > 0.0:
                yield centre, trial


def _recipes(sensitivity: Wanted, ranking: bool) -> Iterator["_Recipe"]:
    """Yields recipes, the best first."""
    if sensitivity not in ENDS:
        yield (_RANKING if ranking else _ALONE)[sensitivity]
        return
    for gamma in GAMMAS:
        why = f"The scaling rises in the region only, and evenly; gamma is {gamma:g}."
        yield _softmax(why, ReLU if sensitivity == "high_score" else _rising_to, 1.0, gamma)


def _clipping(
    lists: Array,
    sensitivity: Wanted,
    at: float,
    width: float,
    cap: float,
    share: float,
    predictions: Predictions | None,
    kwargs: dict[str, Any],
) -> Iterator["_Recipe"]:
    """Yields recipes of losses of clipped scores, that of the choice first."""
    side = 1.0 if sensitivity == "high_score" else -1.0
    clips = _clips(side * lists, side * at, share, predictions is not None)
    clips = [*dict.fromkeys(x._replace(upper=min(x.upper, cap)) for x in clips)]
    has_squares = "label_map" not in kwargs  # which they do not take
    if predictions is not None:
        clips = [x for x in clips if x.of_predictions or has_squares]
    region = Clip(side * at, cap)
    recipes = [x if side > 0.0 else x.mirror() for x in clips]
    squares = [not x.of_predictions for x in clips]
    if predictions is None:
        errors, is_level = held_out_errors(clips, region, side * lists[~np.isnan(lists)])
        rule, is_near = "", errors <= EXCESS * errors[squares.index(True)]
    else:
        known = side * _with_items(lists, lists)
        if callable(predictions):
            fitted = (predictions(x.loss(width, **kwargs)) for x in recipes)
            held_out = [_with_items(_of_items(x, lists)[..., 0], lists) for x in fitted]
            errors, is_level = compare(side * np.array(held_out), known, region)
        else:
            features = _with_items(_of_items(predictions, lists, axes=1), lists)
            errors, is_level = line_errors(clips, region, known, features)
        rule, is_near = ", the simplest of the level ones", errors <= WORSE * errors.min()
    is_level &= is_near
    listed = ", ".join(f"{x.name} {y:.3g}" for x, y in zip(recipes, errors, strict=True))
    for index in np.lexsort((np.where(is_level, 0.0, errors), ~is_level)):
        if squares[index] and not has_squares:
            continue
        why = f"Of the errors on held-out scores ({listed}), it takes {recipes[index].name}{rule}."
        yield _Recipe(why, functools.partial(_clipped_loss, recipes[index]))


def _of_items(values: ArrayLike, lists: Array, axes: int = 0) -> Array:
    """Predictions or, with a further axis, features of items, `[lists, items, num_features]`."""
    array = number_array("predictions", values)
    longer = [[x for x in shape if x > 1] for shape in (array.shape, lists.shape)]
    if longer[0][: len(longer[1])] != longer[1] or len(longer[0]) > len(longer[1]) + axes:
        further = " and maybe one more for features" * axes
        rule = f"`predictions` must have the axes of `scores`{further}"
        raise refusal(rule, f"shape {array.shape} for {lists.shape}")
    features = array.reshape(*lists.shape, -1)
    if not np.all(np.isfinite(features[~np.isnan(lists)])):
        raise refusal("`predictions` must be finite for each score", "NaN or infinity")
    return features


def _with_items(values: Array, lists: Array) -> Array:
    """The values of lists with items; of a single one, its items, as lists of one."""
    some = values[~np.isnan(lists).all(axis=1)]
    return some if len(some) > 1 else np.swapaxes(some, 0, 1)


def _way_out(
    verdict: Measurement, sensitivity: Wanted, at: float | None, width: float | None
) -> str:
    """Names the arguments that would fit."""
    if passed := [name for name, x in (("at", at), ("width", width)) if x is not None]:
        return f"Leave out `{'` and `'.join(passed)}`."
    low, _, high = verdict.sensitivities
    other = "low_score" if low > high else "high_score"
    if sensitivity in ("high_norm", "low_norm"):
        return f"Scores of one tail have no norm: take {other!r}, or their logarithms."
    return f"Take another `share`, or {other!r}."


def threshold(scores: ArrayLike, share: float = 0.1) -> float:
    """Returns the score above which the highest share of scores is, as `design` reads it.

    Args:
        scores: Scores, as in `design`.
        share: Share of the items in the region, in (0, 0.5); of equal scores, a larger one.

    Raises:
        ValueError: If an argument is out of range, or the scores are all the same.

    Example:
        >>> threshold([0.0, 10.0, 20.0, 30.0, 40.0], share=0.3)
        20.0
    """
    return _bounds(_lists(scores, share), share)[1]


def judge(
    loss: SelectiveLoss,
    sensitivity: Wanted,
    scores: ArrayLike = (-3.0, 0.0, 3.0),
    share: float = 0.1,
) -> Measurement:
    """Measures whether a loss is sensitive in the wanted region.

    The curvature of the loss is measured at the low, the middle and the high scores of lists: by
    how much the gradient changes with the label, which is 0 where labels are clipped. In
    the wanted region its median must be at least three times as large as elsewhere. For high norms,
    both ends must qualify and agree within a factor of 1.5. For clipping, the loss must be exactly
    flat around the low scores. A valid loss is convex and, except for low norms, compares the items
    of a list. For high and low scores, at least a fifth of the region must share the sensitivity:
    that of an exponential is at the few most extreme scores of a long list.

    Args:
        loss: A selective or matching loss, also one made with `allow_nonconvex=True`.
        sensitivity: The wanted sensitivity, as in `design`.
        scores: A list of a low, a middle and a high score, or labels of lists, as in `design`.
        share: Share of the low, and of the high scores among all, in (0, 0.5).

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
    lists = _lists(scores, share)
    below, above = _bounds(lists, share)
    regions = (lists < below, (lists >= below) & (lists <= above), lists > above)
    # a kink between two regions belongs to the outer one, for clipping to the rest
    outer = {"high_score": (~regions[2], -1e-12), "low_score": (~regions[0], 1e-12)}
    moved, by = outer.get(sensitivity, (regions[0], -1e-12 * (sensitivity == "clip_low")))
    lists = np.where(moved, lists + by * np.nanstd(lists), lists)
    link = _link(loss)
    if isinstance(link, CompositeSoftmax):
        curvatures = link.sensitivity(
            _constant(np.nan_to_num(lists)), ~xp.is_nan(lists), xp.ones_like(lists)
        )
        is_convex = convexity.is_increasing(link.scaling)
    else:
        curvatures = link.slope(_constant(lists))
        is_convex = convexity.is_increasing(link)
    curvatures = np.asarray(curvatures)
    low, middle, high = (_median(curvatures, region) for region in regions)
    levels = [_median(lists, region) for region in regions]
    measured = _regions((low, middle, high))
    ranks = isinstance(link, CompositeSoftmax)
    is_squared = isinstance(loss, MeanSquaredLoss)
    flat = not is_squared and _starts_flat(link, levels)
    status, why = _decide(sensitivity, measured, flat, is_convex, ranks)
    if is_squared and not measured:
        status, why = "even", "all errors cost the same"
    if status in ("valid", "region_only") and sensitivity in ENDS:
        covered = _coverage(curvatures, regions[2 if sensitivity == "high_score" else 0])
        if covered < COVERAGE:
            status, why = (
                "invalid",
                f"few items of the region have them ({covered:.0%} of the others)",
            )
    numbers, scores_of = (", ".join(f"{x:.3g}" for x in y) for y in ((low, middle, high), levels))
    reason = f"Its sensitivities at {scores_of} are {numbers}: {why}."
    return Measurement(status, (low, middle, high), measured, is_convex, ranks, reason)


def _decide(
    sensitivity: Wanted, measured: tuple[Wanted, ...], flat: bool, is_convex: bool, ranks: bool
) -> tuple[Status, str]:
    if not is_convex:
        return "invalid", "the loss is not convex, and may have no minimum"
    if sensitivity == "clip_low" and not flat:
        return "invalid", "it is not flat at low scores"
    if sensitivity != "clip_low" and sensitivity not in measured:
        return "invalid", f"{' and '.join(measured) or 'no region'} stands out, not {sensitivity}"
    if sensitivity != "low_norm" and not ranks:
        return "region_only", f"{sensitivity}, as wanted, but it looks at each item for itself"
    return "valid", f"{sensitivity}, as wanted, and convex"


def _regions(sensitivities: Three) -> tuple[Wanted, ...]:
    """Names the regions of high sensitivity, ignoring negative ones."""
    low, middle, high = sensitivities

    def stands_out(x: float, *others: float) -> bool:
        return x > 0.0 and all(x >= CONTRAST * other for other in others)

    least, most = min(low, high), max(low, high)
    is_high: dict[Wanted, bool] = {
        "high_score": stands_out(high, middle, low),
        "low_score": stands_out(low, middle, high),
        "high_norm": stands_out(least, middle) and most <= BALANCE * least,
        "low_norm": stands_out(middle, low, high),
    }
    return tuple(region for region, is_so in is_high.items() if is_so)


def _starts_flat(link: Link | CompositeSoftmax, levels: Sequence[float]) -> bool:
    """Whether a link is flat from below the low score up to there, and higher at the high.

    A scaling must be 0 there.
    """
    low, middle, high = levels
    level = 0.0 if isinstance(link, CompositeSoftmax) else float(link(_constant(low)))
    link = link.scaling if isinstance(link, CompositeSoftmax) else link
    beginning = _constant([low - (middle - low), low])
    at_level = bool(np.all(link(beginning) == level) and np.all(link.slope(beginning) == 0.0))
    return at_level and bool(link(_constant(high)) > level)


def _link(loss: SelectiveLoss) -> Link | CompositeSoftmax:
    if isinstance(loss, SelectiveSoftmaxLoss):
        # without log_rho, which depends on the class, not on the score
        return CompositeSoftmax(loss.scaling, loss.gamma, allow_nonconvex=True)
    if isinstance(loss, SelectiveSigmoidLoss):
        return CompositeSigmoid(loss.scaling, loss.gamma, loss.offset, allow_nonconvex=True)
    if isinstance(loss, MeanSquaredLoss):
        return Clip(loss.lower, loss.upper).link()
    return loss.link


def _lists(scores: ArrayLike, share: float) -> Array:
    """Scores of lists in float64, if they are not all the same."""
    if not 0.0 < share < 0.5:
        raise refusal("`share` must be in (0, 0.5)", share=share)
    lists = np.atleast_2d(number_array("scores", scores))
    valid = lists[~np.isnan(lists)]
    if lists.ndim != 2 or not np.all(np.isfinite(valid)) or len(np.unique(valid)) < 2:
        raise refusal(
            "`scores` must be finite, [lists, items] or [items], and differ",
            f"{len(valid)} scores, of shape {np.shape(scores)}",
        )
    return lists


def _bounds(lists: Array, share: float) -> tuple[float, float]:
    """The scores below which the low region is, and above which the high one is.

    Each region has the given share of the items, or, with equal scores, a larger one.
    """
    levels = np.unique(lists[~np.isnan(lists)])
    low, high = np.nanquantile(lists, [share, 1.0 - share])
    return float(levels[levels > low].min(initial=levels[-1])), float(
        levels[levels < high].max(initial=levels[0])
    )


def _median(values: Array, region: Array) -> float:
    return float(np.median(values[region])) if region.any() else 0.0


def _coverage(values: Array, region: Array) -> float:
    """How evenly a list's items of a region share its sensitivity: 0 if one item has all of it."""
    x = np.where(region, values, 0.0)
    squares = np.square(x).sum(axis=1)
    effective = np.square(x.sum(axis=1)) / np.where(squares > 0.0, squares, 1.0)
    others = np.maximum(region.sum(axis=1) - 1, 0).sum()
    return float(np.maximum(effective - 1.0, 0.0).sum() / others) if others else 1.0


def _constant(x: Any) -> Tensor:
    return xp.constant(x, xp.float64)


class _Recipe(NamedTuple):
    why: str
    make: Callable[[float, float, dict[str, Any]], SelectiveLoss]


def _softmax(
    why: str, link: Callable[..., ElementaryLink], reach: float, gamma: float = 1.0
) -> _Recipe:
    """A composite Softmax whose scaling is `reach` from its shift, at `width` from there."""

    def make(at: float, width: float, kwargs: dict[str, Any]) -> SelectiveLoss:
        scale = reach / width
        return SelectiveSoftmaxLoss(Scaled(link(scale=scale, shift=at), scale), gamma, **kwargs)

    return _Recipe(why, make)


def _sum(why: str, link: Callable[..., ElementaryLink], reach: float) -> _Recipe:
    def make(at: float, width: float, kwargs: dict[str, Any]) -> SelectiveLoss:
        return DecomposedMatchingLoss(link(scale=reach / width, shift=at), **kwargs)

    return _Recipe(why, make)


def _rising_to(scale: float, shift: float) -> ElementaryLink:
    return Clip(upper=shift).link(1.0 / scale)


def _clipped_loss(clip: Clip, at: float, width: float, kwargs: dict[str, Any]) -> SelectiveLoss:
    return clip.loss(width, **kwargs)


def _clips(lists: Array, at: float, share: float, simplest_first: bool) -> list[Clip]:
    """The candidates for high scores, from `at`: those to prefer first."""
    part = min(max(float(np.mean(lists[~np.isnan(lists)] > at)), share), 0.45)
    before = [_bounds(lists, min(x * part, 0.45))[1] for x in (2.0, 4.0)]
    # a link that begins at the region learns nothing from scores below
    starts = [x for x in dict.fromkeys(before) if x < at] or [at]
    end = 2.0 * _median(lists, lists > at) - at  # not at a score: the slope there is rounded
    if simplest_first:
        begins = [*dict.fromkeys([at, *starts])]
        return [
            Clip(of_predictions=False),
            *(Clip(start, of_predictions=False) for start in begins[:2]),
            *(Clip(start) for start in begins),
            Clip(at, end),
        ]
    return [
        Clip(at, of_predictions=False),
        *(Clip(start) for start in starts),
        *(Clip(start, end) for start in starts if start < end),
        Clip(of_predictions=False),
    ]


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
    "clip_low": _softmax(
        "The scaling is 0 at low scores. Each clipped item still has a weight of 1 in the softmax: "
        "where there are many, give them smaller weights, or sample them.",
        lambda scale, shift: SmeLU(half_width=1.0, scale=scale, shift=shift),
        2.0,
    ),
}
