"""Click models: fits by expectation maximisation, and comparison by held-out sessions."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args

import numpy as np

from tfrank_sel.clicks.log import Floats, Integers, Log

Model = Literal["pbm", "ubm", "cascade", "dcm", "dbn"]
MODELS: tuple[str, ...] = get_args(Model)
OF_SESSIONS = MODELS[1:]  # a click depends on other clicks
_STEPS, _TOLERANCE = 500, 1e-5
_LEAST = 1e-9
_SURE = 1e-6  # least probability of what happened: a model may exclude it


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted click model.

    Args:
        examined: Mean probability of examination of each position, `[positions]`; relative to the
            first position for `"pbm"` and `"ubm"`.
        clicked: Function from a log with the same items and positions to the probability of a click
            on each row, given the clicks above it in its session, `[rows]`.
        seen: Function that returns the probability of examination of each row of the fitted log,
            given all clicks of its session, `[rows]`; on the scale of `examined`.
    """

    examined: Floats
    clicked: Callable[[Log], Floats]
    seen: Callable[[], Floats]


def fits(log: Log, model: str, weights: Iterable[Floats]) -> Iterator[Fitted]:
    """Fits a click model with each of several weights of the groups of rows, `log.units`.

    An item is clicked if it is examined and attractive; each item of a query has an attraction.
    Examination is, in

    * `"pbm"`: a probability of the position.
    * `"ubm"`: a probability of the position and of the last click above it.
    * `"cascade"`: that of a user who reads from the top and leaves at the first click.
    * `"dcm"`: the same, but a click satisfies the user with a probability of its position.
    * `"dbn"`: the same, but a click satisfies with a probability of its item, and a user who is not
      satisfied reads on with a probability, equal for all.

    Args:
        log: A log; for all but `"pbm"`, with sessions.
        model: Name of the model, of `MODELS`.
        weights: Weights of the groups, `[groups]` each.

    References:
        [Chuklin, Markov and de Rijke, Click Models for Web Search, 2015](
        https://doi.org/10.1007/978-3-031-02294-4);
        [Dupret and Piwowarski, A user browsing model, SIGIR 2008](
        https://doi.org/10.1145/1390334.1390392);
        [Guo, Liu and Wang, Efficient multiple-click models in web search, WSDM 2009](
        https://doi.org/10.1145/1498759.1498818);
        [Chapelle and Zhang, A dynamic Bayesian network click model, WWW 2009](
        https://doi.org/10.1145/1526709.1526711).
    """
    made = _Contexts(log, model) if model in ("pbm", "ubm") else _Reading(log, model)
    return map(made.fit, weights)


@dataclasses.dataclass(frozen=True)
class Fit:
    """How well a click model predicts the clicks of sessions that it was not fitted to.

    Args:
        model: Name of the model.
        log_likelihood: Mean log-likelihood of a session, natural logarithm; at most 0.
        perplexity: Exponential of the mean negative log-likelihood of a row, of its click given the
            clicks above it: 1 if all are known, 2 for the toss of a coin.
    """

    model: str
    log_likelihood: float
    perplexity: float


def compare(
    log: Log, models: Iterable[str] = MODELS, *, held_out: float = 0.2, seed: int = 0
) -> list[Fit]:
    """Compares click models by the likelihood of held-out sessions, the best one first.

    Args:
        log: A log with sessions.
        models: Names of the models, of `MODELS`.
        held_out: Share of the sessions, drawn at random, that are not fitted; above 0, below 1.
        seed: Seed of the draw.

    Raises:
        ValueError: If a name is unknown, the share is out of range, or there are no sessions.
    """
    models = list(models)
    if unknown := [name for name in models if name not in MODELS]:
        raise ValueError(f"`models` must be of {', '.join(MODELS)}. Received: {unknown[0]!r}")
    if not 0.0 < held_out < 1.0:
        raise ValueError(f"`held_out` must be above 0 and below 1. Received: {held_out}")
    rows = log.sessions
    is_held = np.random.default_rng(seed).random(len(rows)) < held_out
    if is_held.all() or not is_held.any():
        raise ValueError(f"`held_out` must leave sessions on both sides. Received: {held_out}")
    train, test = (log.part(x[x >= 0]) for x in (rows[~is_held], rows[is_held]))
    found = []
    for name in models:
        [fitted] = fits(train, name, [np.ones(train.num_units)])
        probable = fitted.clicked(test)
        happened = np.where(test.clicks > 0.0, probable, 1.0 - probable)
        total = float(np.log(np.maximum(happened, _SURE)).sum())
        found.append(
            Fit(name, total / int(is_held.sum()), float(np.exp(-total / len(test.clicks))))
        )
    return sorted(found, key=lambda fit: -fit.log_likelihood)


class _Contexts:
    """PBM and UBM: P(click) = examination(context) * attraction(item).

    The numbers of impressions and clicks of each pair of an item and a context suffice.
    """

    def __init__(self, log: Log, model: str) -> None:
        self.log, self.is_ubm = log, model == "ubm"
        contexts = self.contexts(log)
        self.size = len(log.positions) * (len(log.positions) + 1)
        pairs, self.pair = np.unique(log.items * self.size + contexts, return_inverse=True)
        self.item, self.context = pairs // self.size, pairs % self.size

    def contexts(self, log: Log) -> Integers:
        """The context of each row: its position, and for UBM the last click above."""
        size = len(log.positions)
        last = np.zeros(len(log.items), np.int64)  # the place of the last click, or 0
        if self.is_ubm:
            rows, places = log.sessions, np.arange(1, size + 1)
            clicks = np.where((rows >= 0) & (log.clicks[rows] > 0.0), places, 0)
            above = np.maximum.accumulate(clicks, axis=1)[:, :-1]
            shown = rows[:, 1:] >= 0
            last[rows[:, 1:][shown]] = above[shown]
        return log.columns * (size + 1) + last

    def fit(self, weights: Floats) -> Fitted:
        weight = weights[self.log.units]
        clicks, shown = (_sums(self.pair, weight * x, 0) for x in (self.log.clicks, self.log.shown))
        skipped = shown - clicks
        items, contexts = self.log.num_items, self.size
        per_item = _sums(self.item, shown, items)
        per_context = _sums(self.context, shown, contexts)
        attraction, examination = np.full(items, 0.5), np.full(contexts, 0.5)
        examined = np.ones(len(self.log.positions))
        for _ in range(_STEPS):
            a, e = attraction[self.item], examination[self.context]
            share = skipped / np.maximum(1.0 - a * e, _LEAST)
            attracted = _sums(self.item, clicks + share * (1.0 - e) * a, items)
            seen = _sums(self.context, clicks + share * (1.0 - a) * e, contexts)
            attraction = attracted / np.maximum(per_item, _LEAST)
            examination = seen / np.maximum(per_context, _LEAST)
            previous, examined = examined, _of_positions(seen, per_context, len(examined))
            if np.abs(examined - previous).max() < _TOLERANCE:
                break
        attraction = _smooth(attracted, per_item)
        examination = _smooth(seen, per_context)
        relative = np.minimum(examination / max(examination[0], _LEAST), 1.0)
        return Fitted(
            examined,
            lambda log: attraction[log.items] * examination[self.contexts(log)],
            lambda: relative[self.contexts(self.log)],
        )


def _of_positions(seen: Floats, shown: Floats, positions: int) -> Floats:
    """Mean examination of each position over its contexts, relative to the first position."""
    totals = seen.reshape(positions, -1).sum(axis=1)
    means = totals / np.maximum(shown.reshape(positions, -1).sum(axis=1), _LEAST)
    return np.asarray(means / max(means[0], _LEAST), np.float64)


class _Reading:
    """Cascade, DCM and DBN: a user who reads from the top, and may leave after each item."""

    def __init__(self, log: Log, model: str) -> None:
        self.log, self.model = log, model
        self.item, self.present, self.clicked = _places(log)
        self.unit = log.units[log.sessions.max(axis=1)]
        size = self.item.shape[1]
        rank = np.arange(size)
        any_click = self.clicked.any(axis=1)
        last = np.where(any_click, size - 1 - np.argmax(self.clicked[:, ::-1], axis=1), -1)
        first = np.where(any_click, np.argmax(self.clicked, axis=1), size)
        self.below, self.is_last = rank > last[:, None], rank == last[:, None]
        self.until_first = self.present & (rank <= first[:, None])

    def satisfiers(self, item: Integers) -> tuple[Integers, int]:
        """What satisfies at each place, and the number of such things."""
        if self.model == "dbn":
            return item, self.log.num_items
        return np.broadcast_to(np.arange(item.shape[1]), item.shape), item.shape[1]

    def fit(self, weights: Floats) -> Fitted:
        item, present, clicked, is_last = self.item, self.present, self.clicked, self.is_last
        weight, size = weights[self.unit], item.shape[1]
        thing, things = self.satisfiers(item)

        def total(values: np.ndarray, keys: Integers = item, count: int = 0) -> Floats:
            weighted = values * weight[:, None]
            return _sums(keys.ravel(), weighted.ravel(), count or self.log.num_items)

        if self.model == "cascade":
            clicks, read = total(clicked & self.until_first), total(self.until_first)
            attraction = clicks / np.maximum(read, _LEAST)
            satisfaction = np.ones(things)
            examined = _examined(attraction[item], present, np.ones(item.shape), 1.0, weight)
            clicked_on = self._clicked(_smooth(clicks, read), satisfaction, 1.0)
            return Fitted(examined, clicked_on, lambda: _of_rows(self.log, self.until_first))
        attraction, satisfaction = np.full(self.log.num_items, 0.2), np.full(things, 0.5)
        going, examined = 0.9 if self.model == "dbn" else 1.0, np.zeros(size)
        clicks, of_things = total(clicked), total(clicked, thing, things)
        for _ in range(_STEPS):
            a, s = np.where(present, attraction[item], 0.0), satisfaction[thing]
            # probability of no click from a position on, if it is examined
            silent = np.ones((len(item), size + 1))
            for k in reversed(range(size)):
                silent[:, k] = (1.0 - a[:, k]) * (1.0 - going + going * silent[:, k + 1])
            on = going * silent[:, 1:]
            off = 1.0 - going
            satisfied = is_last * s / np.maximum(s + (1.0 - s) * (off + on), _LEAST)
            after = np.where(is_last, 1.0 - satisfied, 1.0) * on / np.maximum(off + on, _LEAST)
            seen = np.ones((len(item), size))
            for k in range(1, size):
                seen[:, k] = np.where(self.below[:, k], seen[:, k - 1] * after[:, k - 1], 1.0)
            read, content = total(np.where(present, seen, 0.0)), total(satisfied, thing, things)
            attraction = clicks / np.maximum(read, _LEAST)
            satisfaction = content / np.maximum(of_things, _LEAST)
            if self.model == "dbn":
                stays = (seen * (1.0 - satisfied))[:, :-1] * present[:, 1:] * weight[:, None]
                moves = seen[:, 1:] * present[:, 1:] * weight[:, None]
                going = float(moves.sum() / max(stays.sum(), _LEAST))
            previous = examined
            examined = _examined(attraction[item], present, satisfaction[thing], going, weight)
            if np.abs(examined - previous).max() < _TOLERANCE:
                break
        smooth = _smooth(clicks, read), _smooth(content, of_things)
        clicked_on = self._clicked(*smooth, going)
        return Fitted(examined, clicked_on, lambda: _of_rows(self.log, seen))

    def _clicked(
        self, attraction: Floats, satisfaction: Floats, going: float
    ) -> Callable[[Log], Floats]:
        def clicked(log: Log) -> Floats:
            item, present, is_click = _places(log)
            a = np.where(present, attraction[item], 0.0)
            stays = 1.0 - satisfaction[self.satisfiers(item)[0]]
            examined, found = np.ones(len(item)), np.zeros(item.shape)
            for k in range(item.shape[1]):
                found[:, k] = examined * a[:, k]
                skipped = examined * (1.0 - a[:, k]) / np.maximum(1.0 - found[:, k], _LEAST)
                examined = going * np.where(is_click[:, k], stays[:, k], skipped)
            return _of_rows(log, found)

        return clicked


def _places(log: Log) -> tuple[Integers, np.ndarray, np.ndarray]:
    """Item, presence and click at each place of each session, `[sessions, positions]`."""
    present = log.sessions >= 0
    items = np.where(present, log.items[log.sessions], 0)
    return items, present, present & (log.clicks[log.sessions] > 0.0)


def _of_rows(log: Log, values: np.ndarray) -> Floats:
    """The values of each place of each session, by row."""
    present = log.sessions >= 0
    rows: Floats = np.zeros(len(log.items))
    rows[log.sessions[present]] = values[present]
    return rows


def _examined(
    attraction: Floats, present: np.ndarray, satisfaction: Floats, going: float, weight: Floats
) -> Floats:
    """Mean probability of examination at each position, before any click is known."""
    stays = going * (1.0 - np.where(present, attraction * satisfaction, 0.0))[:, :-1]
    reach = np.cumprod(np.concatenate([np.ones((len(stays), 1)), stays], axis=1), axis=1)
    shown = present * weight[:, None]
    means: Floats = (reach * shown).sum(axis=0) / np.maximum(shown.sum(axis=0), _LEAST)
    return means


def _smooth(amounts: Floats, counts: Floats) -> Floats:
    """Shares with one more count, of the mean share: a click on an unseen item is no wonder."""
    mean = amounts.sum() / max(counts.sum(), _LEAST)
    return np.asarray((amounts + mean) / (counts + 1.0), np.float64)


def _sums(keys: Integers, values: np.ndarray, count: int) -> Floats:
    return np.asarray(np.bincount(keys, values, count), np.float64)
