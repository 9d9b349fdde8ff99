"""Labels without position bias, from clicks and propensities."""

import warnings
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.clicks import models
from tfrank_sel.clicks.attractions import Attractions, log_likelihood
from tfrank_sel.clicks.log import (
    Floats,
    Log,
    check_choice,
    check_least,
    numbers,
    probabilities,
)
from tfrank_sel.clicks.propensities import Propensities
from tfrank_sel.errors import refusal

Correction = Literal["ips", "pooled", "doubly_robust"]
CORRECTIONS: tuple[str, ...] = get_args(Correction)
_LEAST = 1e-9
_FEW = 0.1  # effective share of the clicks below which a warning is given


def labels(
    log: Log,
    propensities: Propensities | ArrayLike,
    correction: str = "pooled",
    *,
    false_clicks: ArrayLike = 0.0,
    least: float = 0.0,
    regression: ArrayLike | None = None,
) -> dict[str, Any]:
    r"""Estimates the relevance of each item: the probability of a click if it is examined.

    For row i of an item with n_i impressions, c_i clicks, propensity a_i and false clicks b_i, the
    label is

    $$\text{ips: } \frac{\sum_i (c_i - n_i b_i) / \max(a_i, t)}{\sum_i n_i}, \quad
    \text{pooled: } \frac{\sum_i (c_i - n_i b_i) + \kappa m}{\sum_i n_i a_i + \kappa}, \quad
    \text{doubly robust: }
    r + \frac{\sum_i (c_i - n_i b_i - n_i a_i r)}{\max(\sum_i n_i a_i, t \sum_i n_i)}$$

    where r is the regression estimate of the item, and t is `least`. `"pooled"` is the mean of the
    posterior distribution of the relevance: m is the mean relevance of the items with about the
    same mean position, and \kappa, in examined impressions, the strength of this prior, which is
    estimated. An item of few impressions has no extreme label. Labels below 0 become 0. If the
    method of the propensities is `"additive"`, `"pooled"` is the probability of a click at the best
    position, by the model. If several models may be right, the label is the mean of theirs.

    Train on `"pooled"` labels as on other labels, by boosted trees, too; do not compute values from
    them, for which their shrinkage is a bias. For a loss linear in the labels, such as
    `SoftmaxLoss(targets=targets.Gains())`, `"ips"` and `"doubly_robust"` with t = 0 give the loss
    of full information without bias, except for the labels that became 0.

    Args:
        log: The log.
        propensities: Estimated propensities of positions, or a propensity for each row, `[rows]`.
            If they are those of `"additive"` or of a click model of sessions, a_i is the
            probability that the row was examined, given the clicks of its session, by the model
            fitted to this log. Only `"ips"` takes the means of the positions.
            With trust bias, the difference of the probabilities of a click on a relevant and an
            irrelevant item.
        correction: Name of the correction, of `CORRECTIONS`.
        false_clicks: Probability of a click on an irrelevant item for each row, `[rows]`, or a
            number. With values above 0, the corrections are affine (trust bias).
        least: Least propensity by which clicks are divided, 0 for `"pooled"`. Clipping reduces the
            variance, and adds a bias, which is less for `"doubly_robust"`.
        regression: Estimate r of each row, `[rows]`, for `"doubly_robust"`, equal for all rows of
            an item; by default, the pooled one. Without `least`, r is that of items which nobody
            examined, and cancels for others.

    Returns:
        Columns `query`, `item`, `label` and `shown` (the number of impressions), `[items]` each.

    Raises:
        ValueError: If an argument is out of range.

    Warns:
        UserWarning: If the effective number of clicks is below a tenth of their number.

    Reference:
        [Joachims et al., Unbiased learning-to-rank with biased feedback, WSDM 2017](
        https://doi.org/10.1145/3018661.3018699);
        [Oosterhuis, Doubly robust estimation for correcting position bias in click feedback,
        ACM TOIS 2023](https://doi.org/10.1145/3569453).

    Example:
        >>> log = Log(["q", "q"], ["a", "b"], [1, 2], [40, 40], shown=[100, 100])
        >>> labels(log, [1.0, 0.5], "ips")["label"].tolist()
        [0.4, 0.8]
    """
    check_choice("correction", correction, CORRECTIONS)
    check_least(least)
    if correction == "pooled" and least:
        raise refusal("`least` must be 0 for pooled labels: their prior limits the variance", least)
    if correction != "doubly_robust" and regression is not None:
        raise refusal("`regression` must be None unless labels are doubly robust", "an estimate")
    if isinstance(propensities, Propensities) and propensities.others:
        options: Any = {"false_clicks": false_clicks, "least": least, "regression": regression}
        first, *others = propensities.each()
        # sessions may be known of the log of the propensities alone
        is_free = not np.any(false_clicks)
        kept = [
            x
            for x in others
            if correction == "ips"
            or x.method not in models.OF_ITEMS
            or (is_free and (log.has_sessions or x.method == "additive"))
        ]
        each = [labels(log, x, correction, **options) for x in (first, *kept)]
        return {**each[0], "label": np.mean([x["label"] for x in each], axis=0)}
    fitted = None
    if not isinstance(propensities, Propensities):
        examined = _rows(log, "propensities", probabilities("propensities", propensities))
    elif correction != "ips" and propensities.method in models.OF_ITEMS:
        [fitted] = models.fits(log, propensities.method, [np.ones(len(log.items))])
        examined = fitted.seen()
    else:
        examined = propensities.at(log.positions)[log.columns]
    false = _rows(log, "false_clicks", numbers("false_clicks", false_clicks))
    if (wrong := (false < 0.0) | (false >= 1.0)).any():
        raise refusal("`false_clicks` must be from 0 to below 1", false[wrong][0])
    if fitted is not None and false.any():
        expected = f"`false_clicks` must be 0 for propensities of {', '.join(models.OF_ITEMS)}"
        raise refusal(f"{expected}, whose model has clicks of its own", false.max())

    def per_item(values: np.ndarray) -> Floats:
        return np.asarray(np.bincount(log.items, values, log.num_items), np.float64)

    clicks, weights = log.clicks - log.shown * false, 1.0 / np.maximum(examined, least or _LEAST)
    shown, seen = per_item(log.shown), per_item(log.shown * examined)
    if correction == "ips":
        label = per_item(clicks * weights) / shown
    elif fitted is not None:
        label = fitted.attraction
    else:
        prior = Attractions(log)
        posterior = prior.posterior(_likelihood(log, prior.grid, examined, false))
        label = prior.refine_means(posterior @ prior.grid, per_item(clicks), seen)
    if correction == "doubly_robust":
        # Some items are never examined, so the divisor has a lower bound.
        divisor = np.maximum(np.maximum(seen, least * shown), _LEAST)
        if regression is not None:
            label[log.items] = _rows(log, "regression", numbers("regression", regression))
        label = label + (per_item(clicks) - seen * label) / divisor
        weights = (shown / divisor)[log.items]
    if correction != "pooled":
        _warn_if_few(log.clicks, weights)
    return {
        "query": log.query_ids[log.query_of_item],
        "item": log.item_ids,
        "label": np.maximum(label, 0.0),
        "shown": shown,
    }


def _likelihood(log: Log, grid: Floats, examined: Floats, false: Floats) -> Floats:
    """Log-likelihood of each relevance of a grid: P(click) = examined * relevance + false."""
    kinds, of = np.unique(np.stack([examined, false], axis=1), axis=0, return_inverse=True)
    table, others = np.outer(kinds[:, 0], grid) + kinds[:, 1:], log.shown - log.clicks
    return log_likelihood(table, log.items, of.ravel(), log.clicks, others, log.num_items)


def effective(weights: ArrayLike) -> float:
    """Returns the effective sample size of weights: the squared sum over the sum of squares.

    Example:
        >>> effective([1.0, 1.0, 0.0])
        2.0
    """
    array = numbers("weights", weights)
    return _effective(array, np.ones_like(array))


def _effective(weights: Floats, counts: Floats) -> float:
    """The effective sample size of weights that each occur a number of times."""
    return float(counts @ weights) ** 2 / max(float(counts @ weights**2), 1e-300)


def _warn_if_few(clicks: Floats, weights: Floats) -> None:
    total = clicks.sum()
    size = _effective(weights, clicks)
    if total and size < _FEW * total:
        warnings.warn(
            f"the weights leave an effective sample of {size:.0f} of {total:.0f} clicks: "
            "the labels depend on few clicks. Raise `least`",
            stacklevel=3,
        )


def _rows(log: Log, name: str, values: Floats) -> Floats:
    if values.shape not in ((), log.clicks.shape):
        raise refusal(
            f"`{name}` must have a value for each of {len(log.clicks)} rows",
            f"shape {values.shape}",
        )
    return np.broadcast_to(values, log.clicks.shape)
