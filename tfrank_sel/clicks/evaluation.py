"""Evaluation of a new ranker: its value from the log of another one."""

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from tfrank_sel.clicks.correction import effective, labels
from tfrank_sel.clicks.log import Floats, Log, numbers, probabilities
from tfrank_sel.clicks.propensities import Propensities

ESTIMATORS = ("ips", "snips", "doubly_robust")


@dataclasses.dataclass(frozen=True)
class Value:
    """Estimated value of a ranker.

    Args:
        value: Expected reward per impression, or clicks per session in `reordered`.
        low: Lower end of its 95 % interval.
        high: Upper end.
        effective: Effective number of impressions. Do not trust an estimate from few of them.
    """

    value: float
    low: float
    high: float
    effective: float


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
    if estimator not in ESTIMATORS:
        known = ", ".join(ESTIMATORS)
        raise ValueError(f"`estimator` must be one of {known}. Received: {estimator!r}")
    rewards, probable = numbers("reward", reward), probabilities("logged", logged)
    wanted = numbers("target", target)
    if ((wanted < 0.0) | (wanted > 1.0)).any():
        raise ValueError("`target` must be from 0 to 1")
    model = numbers("predicted", predicted), numbers("predicted_target", predicted_target)
    shapes = {"logged": probable.shape, "target": wanted.shape}
    queries = np.arange(len(rewards)) if query is None else np.asarray(query)
    for name, shape in (shapes | {"query": queries.shape}).items():
        if shape != rewards.shape:
            raise ValueError(
                f"`{name}` must have the shape of `reward`, {rewards.shape}. Received: {shape}"
            )
    weights = wanted / probable
    gains = weights * rewards
    if estimator == "doubly_robust":
        gains = model[1] + weights * (rewards - model[0])
    norms = weights if estimator == "snips" else np.ones_like(gains)
    return _resampled(gains, norms, queries, effective(weights), resamples, seed)


def reordered(
    log: Log,
    propensities: Propensities,
    scores: ArrayLike,
    correction: str = "pooled",
    *,
    least: float = 0.0,
    resamples: int = 1000,
    seed: int = 0,
) -> dict[str, Value]:
    r"""Estimates the clicks per session if its items were ordered by new scores.

    For the propensity a of the position k_i that item i gets by its score, and its label y_i
    without position bias, a session has the value

    $$\sum_i a(k_i) \, y_i$$

    Args:
        log: A log with sessions, of the other ranker.
        propensities: Propensities of its positions.
        scores: Score of each row by the new ranker, `[rows]`; the items of a session take its
            positions, the best one first, and those of equal scores as they were.
        correction: Correction that makes the labels, as in `labels`.
        least: As in `labels`.
        resamples: Number of resamples of the queries (Poisson bootstrap).
        seed: Seed of the resamples.

    Returns:
        The values `"logged"`, which are the clicks themselves, `"new"`, and their `"difference"`.
        The effective numbers of impressions are those of inverse propensity weights.

    Raises:
        ValueError: If the log has no sessions, or there is no score for each row.
    """
    score, rows = numbers("scores", scores), log.sessions
    if score.shape != log.clicks.shape:
        raise ValueError(
            f"`scores` must have a value for each of {len(log.clicks)} rows. "
            f"Received: shape {score.shape}"
        )
    best = np.argsort(np.where(rows >= 0, -score[rows], np.inf), axis=1, kind="stable")
    free = np.argsort(rows < 0, axis=1, kind="stable")  # the positions of the session
    ranked, columns = np.take_along_axis(rows, best, axis=1), np.empty_like(log.columns)
    columns[ranked[ranked >= 0]] = free[ranked >= 0]
    known = propensities.at(log.positions)
    label = labels(log, propensities, correction, least=least)["label"]
    gains = known[columns] * label[log.items]
    size = effective(known[columns] / known[log.columns])
    share = np.full(len(gains), len(rows) / len(gains))  # of a session

    def of(values: Floats, effective: float) -> Value:
        return _resampled(values, share, log.queries, effective, resamples, seed)

    return {
        "logged": of(log.clicks, float(len(gains))),
        "new": of(gains, size),
        "difference": of(gains - log.clicks, size),
    }


def _resampled(
    gains: Floats,
    norms: Floats,
    queries: np.ndarray,
    effective: float,
    resamples: int,
    seed: int,
) -> Value:
    """The ratio of two sums over queries, with its interval."""
    _, index = np.unique(queries, return_inverse=True)
    sums: Floats = np.stack([np.bincount(index.ravel(), x) for x in (gains, norms)], axis=1)
    random = np.random.default_rng(seed)
    drawn = np.stack([random.poisson(1.0, len(sums)) @ sums for _ in range(resamples)])
    drawn = drawn[drawn[:, 1] > 0.0]
    total = sums.sum(axis=0)
    low, high = np.percentile(drawn[:, 0] / drawn[:, 1], [2.5, 97.5])
    return Value(float(total[0] / total[1]), float(low), float(high), effective)
