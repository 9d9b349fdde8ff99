"""Click models, fitted by expectation maximisation."""

import numpy as np

from tfrank_sel.clicks.log import Floats, Log

_STEPS, _TOLERANCE = 500, 1e-5
_LEAST = 1e-9


def pbm(log: Log, weights: Floats) -> Floats:
    """Fits the position-based model: P(click) = propensity(position) * attraction(item).

    Counts of items at positions suffice, so the time does not depend on the number of sessions.

    Args:
        log: A connected log.
        weights: Weights of the queries, `[queries]`.

    Returns:
        Propensities relative to the first position, `[positions]`.

    Reference:
        [Chuklin, Markov and de Rijke, Click Models for Web Search, 2015](
        https://doi.org/10.1007/978-3-031-02294-4), section 4.3.
    """
    clicks, shown = (x * weights[log.query_of_item, None] for x in log.counts)
    examined = np.full(len(log.positions), 0.5)
    attraction = np.full(log.num_items, 0.5)
    per_item = np.maximum(shown.sum(axis=1), _LEAST)
    per_position = np.maximum(shown.sum(axis=0), _LEAST)
    skipped = shown - clicks
    for _ in range(_STEPS):
        both = examined * attraction[:, None]
        share = skipped / np.maximum(1.0 - both, _LEAST)
        previous = examined
        item = clicks + share * (1.0 - examined) * attraction[:, None]
        place = clicks + share * (1.0 - attraction[:, None]) * examined
        attraction = item.sum(axis=1) / per_item
        examined = place.sum(axis=0) / per_position
        if np.abs(examined / examined[0] - previous / previous[0]).max() < _TOLERANCE:
            break
    return examined / examined[0]


def dbn(log: Log, weights: Floats, *, cascade: bool = False) -> Floats:
    """Fits the dynamic Bayesian network model, or the cascade model.

    The user reads from the top and clicks an item by its attraction. After a click, the user is
    satisfied by the item's satisfaction and leaves; otherwise the user reads on with the
    continuation probability. In the cascade model, the user leaves at the first click only.

    Args:
        log: A log with sessions.
        weights: Weights of the queries, `[queries]`.
        cascade: Whether satisfaction and continuation are fixed at 1: the cascade model.

    Returns:
        The mean probability of examination of each position, `[positions]`.

    Reference:
        [Chapelle and Zhang, A dynamic Bayesian network click model, WWW 2009](
        https://doi.org/10.1145/1526709.1526711).
    """
    rows = log.sessions
    present = rows >= 0
    item = np.where(present, log.items[rows], 0)
    clicked = present & (log.clicks[rows] > 0.0)
    weight = weights[log.queries[rows.max(axis=1)]]
    size = rows.shape[1]
    last = np.where(clicked.any(axis=1), size - 1 - np.argmax(clicked[:, ::-1], axis=1), -1)
    first = np.where(clicked.any(axis=1), np.argmax(clicked, axis=1), size)
    below = np.arange(size) > last[:, None]
    is_last = np.arange(size) == last[:, None]

    def per_item(values: np.ndarray) -> Floats:
        totals = np.bincount(item.ravel(), (values * weight[:, None]).ravel(), log.num_items)
        return np.asarray(totals, np.float64)

    if cascade:
        seen = present & (np.arange(size) <= first[:, None])
        shown = per_item(seen.astype(np.float64))
        attraction = per_item((clicked & seen).astype(np.float64)) / np.maximum(shown, _LEAST)
        return _examined(attraction[item], present, np.ones(item.shape), 1.0, weight)
    attraction = np.full(log.num_items, 0.2)
    satisfaction = np.full(log.num_items, 0.5)
    going, examined = 0.9, np.zeros(size)
    for _ in range(_STEPS):
        a, s = np.where(present, attraction[item], 0.0), satisfaction[item]
        # probability of no click from a position on, if it is examined
        silent = np.ones((len(rows), size + 1))
        for k in reversed(range(size)):
            silent[:, k] = (1.0 - a[:, k]) * (1.0 - going + going * silent[:, k + 1])
        on = going * silent[:, 1:]
        off = 1.0 - going
        satisfied = is_last * s / np.maximum(s + (1.0 - s) * (off + on), _LEAST)
        after = np.where(is_last, 1.0 - satisfied, 1.0) * on / np.maximum(off + on, _LEAST)
        seen = np.ones((len(rows), size))
        for k in range(1, size):
            seen[:, k] = np.where(below[:, k], seen[:, k - 1] * after[:, k - 1], 1.0)
        reading = np.where(present, seen, 0.0)
        attraction = per_item(clicked * 1.0) / np.maximum(per_item(reading), _LEAST)
        satisfaction = per_item(satisfied) / np.maximum(per_item(clicked * 1.0), _LEAST)
        stays = (seen * (1.0 - satisfied))[:, :-1] * present[:, 1:] * weight[:, None]
        moves = seen[:, 1:] * present[:, 1:] * weight[:, None]
        going = float(moves.sum() / max(stays.sum(), _LEAST))
        previous = examined
        examined = _examined(attraction[item], present, satisfaction[item], going, weight)
        if np.abs(examined - previous).max() < _TOLERANCE:
            break
    return examined


def _examined(
    attraction: Floats, present: np.ndarray, satisfaction: Floats, going: float, weight: Floats
) -> Floats:
    """Mean probability of examination at each position, before any click is known."""
    stays = going * (1.0 - np.where(present, attraction * satisfaction, 0.0))[:, :-1]
    reach = np.cumprod(np.concatenate([np.ones((len(stays), 1)), stays], axis=1), axis=1)
    shown = present * weight[:, None]
    means: Floats = (reach * shown).sum(axis=0) / np.maximum(shown.sum(axis=0), _LEAST)
    return means
