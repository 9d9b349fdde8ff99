"""Evaluation of a new ranker: its value from the log of another one."""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.clicks.comparison import why_unidentified
from tfrank_sel.clicks.correction import effective
from tfrank_sel.clicks.log import (
    FEW,
    Floats,
    Integers,
    Log,
    check_choice,
    check_least,
    codes_of,
    numbers,
    probabilities,
)
from tfrank_sel.clicks.models import READING, Fitted, fitter
from tfrank_sel.clicks.propensities import Propensities, join
from tfrank_sel.errors import refusal
from tfrank_sel.metrics.significance import resample

ESTIMATORS = ("ips", "snips", "doubly_robust")
_UNSHRUNK = ("ips", "doubly_robust")
_GROUPS = FEW  # that are left out in turn
_LEAST, _DIGITS = 1e-9, 12


@dataclasses.dataclass(frozen=True)
class Value:
    """Estimated value of a ranker.

    Args:
        value: Expected reward per impression, or clicks per session in `reordered`.
        low: Lower end of its 95 % interval.
        high: Upper end.
        effective: Effective number of impressions. Do not trust an estimate from few of them.
        by_model: The value by each click model that may be the best one, in `reordered`.
    """

    value: float
    low: float
    high: float
    effective: float
    by_model: Mapping[str, float] = dataclasses.field(default_factory=dict)


def value(
    reward: ArrayLike,
    logged: ArrayLike,
    target: ArrayLike,
    estimator: str = "ips",
    *,
    query: ArrayLike | None = None,
    predicted: ArrayLike = 0.0,
    predicted_target: ArrayLike = 0.0,
    resamples: int = 1000,
    seed: int = 0,
) -> Value:
    r"""Estimates the reward that another ranker would have earned, from a log.

    With the weight w = target / logged of each impression, the estimators of the value are

    $$\text{ips: } \operatorname{mean}(w\,r), \quad
    \text{snips: } \frac{\operatorname{mean}(w\,r)}{\operatorname{mean}(w)}, \quad
    \text{doubly robust: } \operatorname{mean}(\hat r_\text{target} + w (r - \hat r)).$$

    Probabilities are either those of the shown action under both policies, or (position-based
    model; `"ips"` and `"doubly_robust"` only) the propensities of the logged position and of the
    position that the new ranker gives the item.

    Args:
        reward: Reward of each impression, `[rows]`, such as clicks.
        logged: Probability under the logging ranker, `[rows]`, above 0 and at most 1.
        target: Probability under the new ranker, `[rows]`, from 0 to 1.
        estimator: Name of the estimator, of `ESTIMATORS`.
        query: Query of each row, `[rows]`, whose rows are resampled together; each row if None.
        predicted: Model's estimate of the reward of each row, for `"doubly_robust"`.
        predicted_target: Its expectation under the new ranker. In the position-based model, it is
            the estimate for the new position.
        resamples: Number of resamples of the queries (Poisson bootstrap).
        seed: Seed of the resamples.

    Raises:
        ValueError: If an argument is out of range or has another length.

    Reference:
        [Dudík et al., Doubly robust policy evaluation and optimization, 2014](
        https://doi.org/10.1214/14-STS500);
        [Swaminathan and Joachims, The self-normalized estimator, NeurIPS 2015](
        https://papers.nips.cc/paper/5748).

    Example:
        >>> value([1.0, 0.0], logged=[0.5, 0.5], target=[0.75, 0.25]).value
        0.75
    """
    check_choice("estimator", estimator, ESTIMATORS)
    rewards, probable = numbers("reward", reward), probabilities("logged", logged)
    targets = numbers("target", target)
    if ((targets < 0.0) | (targets > 1.0)).any():
        raise ValueError("`target` must be from 0 to 1")
    model = numbers("predicted", predicted), numbers("predicted_target", predicted_target)
    shapes = {"logged": probable.shape, "target": targets.shape}
    queries = np.arange(len(rewards)) if query is None else np.asarray(query)
    for name, shape in (shapes | {"query": queries.shape}).items():
        if shape != rewards.shape:
            raise refusal(f"`{name}` must have the shape of `reward`, {rewards.shape}", shape)
    weights = targets / probable
    gains = weights * rewards
    if estimator == "doubly_robust":
        gains = model[1] + weights * (rewards - model[0])
    norms = weights if estimator == "snips" else np.ones_like(gains)
    # the ratio of two sums over queries, in each resample
    index = queries if query is None else codes_of(queries)
    sums = np.stack([np.bincount(index, x) for x in (gains, norms)], axis=1)
    keys = np.arange(len(sums), dtype=np.uint64)
    drawn = resample(keys, sums, seed=seed, resamples=resamples).weighted
    drawn, total = drawn[drawn[:, 1] > 0.0], sums.sum(axis=0)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    return Value(float(total[0] / total[1]), float(low), float(high), effective(weights))


def reordered(
    log: Log,
    propensities: Propensities,
    scores: ArrayLike,
    correction: str = "doubly_robust",
    *,
    least: float = 0.0,
    seed: int = 0,
) -> dict[str, Value]:
    r"""Estimates the clicks per session if its items were ordered by new scores.

    For the click c_i of item i, its probability p_i at its position by the click model, and p'_i at
    the position that it gets by its score, the clicks of a session become

    $$\text{ips: } \sum_i \frac{p'_i}{p_i} c_i, \quad
    \text{doubly robust: } \sum_i p'_i \frac{\sum_j c_j}{\sum_j p_j}$$

    where j runs over all impressions of the item. If the method of the propensities is of users who
    read from the top (`"cascade"`, `"dcm"`, `"dbn"`), a click changes what is examined below it.
    Both are then, by the model fitted to this log,

    $$\sum_i c_i + p'_i - p_i$$

    with attractions that are not shrunken: an item's clicks over the sum of the probabilities that
    it was examined, given the clicks above it. Their errors are independent between items, and a
    value is linear in each, so that they leave little bias. It holds for scores that do not depend
    on the clicks of the log: not for those of a ranker that was trained on it.

    Args:
        log: A log with sessions, of the other ranker.
        propensities: Propensities of its positions.
        scores: Score of each row by the new ranker, `[rows]`; the items of a session take its
            positions, the best one first, and those of equal scores as they were.
        correction: `"ips"` or `"doubly_robust"`, which has less variance if items repeat. Labels of
            `"pooled"` are shrunk, so that values of them would be biased.
        least: Least p_i and p'_i, relative to the best position; not for propensities of a click
            model of sessions or the additive one, whose probabilities are of items.
        seed: Seed of the groups of queries that are left out for the intervals.

    Returns:
        The values `"logged"`, which are the clicks themselves, `"new"`, and their `"difference"`.
        Intervals are by the jackknife: each of 20 groups of queries is left out in turn, of
        sessions if there are fewer queries. They contain the errors of the propensities, and the
        values by other models that may be right. The effective numbers of impressions are those of
        the weights p' / p; users who read from the top have none.

    Raises:
        ValueError: If the log has no sessions or only one, there is no score for each row, or an
            argument is out of range.
    """
    check_choice("correction", correction, _UNSHRUNK)
    check_least(least)
    score = numbers("scores", scores)
    if score.shape != log.clicks.shape:
        raise refusal(
            f"`scores` must have a value for each of {len(log.clicks)} rows", f"shape {score.shape}"
        )
    if propensities.are_of_items:
        if least:
            raise refusal(f"`least` must be 0 for propensities of {propensities.method}", least)
        if reason := why_unidentified(log, propensities.method):
            raise ValueError(reason)
    log.check_sessions()
    if (
        propensities.method == "none"
        and propensities.compared
        and "pbm" not in propensities.compared
    ):
        raise ValueError(
            "the propensities are of a log in which each item was clicked at one position only: "
            "it does not tell what another order would earn"
        )
    session = log.session_of_row
    if not session.max():
        raise refusal("`session` must have at least two values for an interval", "one")
    columns = np.empty_like(log.columns)  # the items of a session take its positions
    taken = log.columns[np.lexsort((log.columns, session))]
    columns[np.lexsort((log.columns, -score, session))] = taken
    placed = _Placed(log, propensities, columns, correction == "doubly_robust", least)
    every = np.ones(len(score))
    old, new = placed.probable(every)
    gains = placed.gains(old, new, every)
    is_read = propensities.method in READING
    size = float(len(gains)) if is_read else effective(new / np.maximum(old, _LEAST))
    parts = [
        (weight, placed.gains(*placed.probable(weight), weight)) for weight in _left_out(log, seed)
    ]
    drawn = placed.gains_by_draw()
    by_model = {propensities.method: gains}
    for other in [*propensities.each()][1:]:
        if not (other.are_of_items and why_unidentified(log, other.method)):
            by_other = dataclasses.replace(placed, propensities=other)
            by_model[other.method] = by_other.gains(*by_other.probable(every), every)
    is_first = np.zeros(len(score))
    is_first[np.unique(session, return_index=True)[1]] = 1.0  # a row of each session

    def of(of_rows: Callable[[Floats], Floats], effective: float, draws: Sequence[Floats]) -> Value:
        value = float(of_rows(gains).sum() / is_first.sum())
        others = [of_rows(x) @ weight / (is_first @ weight) for weight, x in parts]
        of_draws = [of_rows(x).sum() / is_first.sum() for x in draws]
        # of the jackknife, and what the draws of the propensities add
        variance = (len(parts) - 1.0) * np.var(others) + (np.var(of_draws) if draws else 0.0)
        half = _student(len(parts) - 1) * math.sqrt(variance)
        each = [of_rows(x).sum() / is_first.sum() for x in by_model.values()]
        ends = join(value, value - half, value + half, each)
        # equal orders differ by 0
        middle, low, high, *each = (round(float(x), _DIGITS) for x in (value, *ends, *each))
        return Value(middle, low, high, effective, dict(zip(by_model, each, strict=True)))

    return {
        "logged": of(lambda _: log.clicks, float(len(gains)), []),
        "new": of(lambda x: x, size, drawn),
        "difference": of(lambda x: x - log.clicks, size, drawn),
    }


def _left_out(log: Log, seed: int) -> Iterator[Floats]:
    """Weights of rows, `[rows]`, 0 for a group of queries, or sessions if queries are few."""
    # by the jackknife, a click model is fitted 20 times; by a bootstrap, a thousand times
    unit = log.independent_units()
    order = np.random.default_rng(seed).permutation(int(unit.max()) + 1)
    for group in range(min(_GROUPS, len(order))):
        yield (order[unit] % _GROUPS != group) * 1.0


def _student(freedom: int) -> float:
    """The 97.5 % point of Student's distribution, from 3 by its expansion about the normal one."""
    if freedom < 3:
        return (12.7062, 4.3027)[freedom - 1]
    z = 1.959964
    terms = (
        (z**3 + z) / 4.0,
        (5.0 * z**5 + 16.0 * z**3 + 3.0 * z) / 96.0,
        (3.0 * z**7 + 19.0 * z**5 + 17.0 * z**3 - 15.0 * z) / 384.0,
        (79.0 * z**9 + 776.0 * z**7 + 1482.0 * z**5 - 1920.0 * z**3 - 945.0 * z) / 92160.0,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))


@dataclasses.dataclass
class _Placed:
    """Clicks on rows that take other places, by propensities or a click model.

    Args:
        log: The log.
        propensities: Its propensities.
        columns: The new places, `[rows]`.
        is_pooled: Whether the impressions of an item share their clicks.
        least: Least probability that divides, relative to that at the best position.
    """

    log: Log
    propensities: Propensities
    columns: Integers
    is_pooled: bool
    least: float

    @functools.cached_property
    def fit(self) -> Callable[[Floats], Fitted]:
        """Fits the click model to the log."""
        return fitter(self.log, self.propensities.method)

    def probable(self, weights: Floats, examined: Floats | None = None) -> tuple[Floats, Floats]:
        """Probability of a click at the old and the new place of each row, up to a factor."""
        log = self.log
        if self.propensities.are_of_items:
            fitted = self.fit(weights)
            return fitted.placed(log.columns), fitted.placed(self.columns)
        examined = self.propensities.at(log.positions) if examined is None else examined
        examined = np.maximum(examined, max(self.least, _LEAST))
        return examined[log.columns], examined[self.columns]

    def gains(self, old: Floats, new: Floats, weights: Floats) -> Floats:
        """Clicks on each row at its new place, `[rows]`.

        Args:
            old: Probabilities of `probable` at the old places.
            new: Those at the new ones.
            weights: Weights of the rows that share their clicks, `[rows]`.
        """
        log = self.log
        if self.propensities.method in READING:
            return log.clicks + new - old
        if not self.is_pooled:
            return new / np.maximum(old, _LEAST) * log.clicks
        clicks, expected = (
            np.bincount(log.items, weights * x, log.num_items) for x in (log.clicks, old)
        )
        return np.asarray(new * (clicks / np.maximum(expected, _LEAST))[log.items])

    def gains_by_draw(self) -> list[Floats]:
        """The gains by each draw of the propensities."""
        if self.propensities.are_of_items or not self.propensities.draws.size:
            return []
        index = np.searchsorted(self.propensities.positions, self.log.positions)
        every = np.ones(len(self.columns))
        draws = self.propensities.draws
        return [self.gains(*self.probable(every, x[index]), every) for x in draws]
