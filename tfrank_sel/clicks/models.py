"""Click models: fits, and comparison by held-out sessions."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, get_args

import numpy as np

from tfrank_sel.clicks.attractions import (
    Additive,
    Attractions,
    click_probabilities,
    log_likelihood,
    sigmoid,
)
from tfrank_sel.clicks.log import Floats, Integers, Log, Sessions
from tfrank_sel.clicks.pairs import all_pairs

Model = Literal["none", "pbm", "additive", "ubm", "cascade", "dcm", "dbn"]
MODELS: tuple[str, ...] = get_args(Model)
READING = ("cascade", "dcm", "dbn")  # users read from the top, and may leave after each item
OF_SESSIONS = ("ubm", *READING)  # a click depends on other clicks
OF_ITEMS = ("additive", *OF_SESSIONS)  # examination depends on more than the position
_STEPS, _TOLERANCE = 300, 3e-5
_LEAST = 1e-9


@dataclasses.dataclass(frozen=True, eq=False)
class Fitted:
    """A fitted click model.

    Args:
        examined: Mean probability of examination of each position, `[positions]`, up to a factor.
        attraction: Probability of a click on each item if it is examined, `[items]`, up to a
            factor.
        clicked: Function from a log with the same items and positions to the probability of a click
            on each row, given the clicks above it in its session, `[rows]`.
        seen: Function that returns the probability of examination of each row of the fitted log,
            given all clicks of its session, `[rows]`; on the scale of `examined`.
        placed: Function from places in `log.positions`, which the rows of the fitted log would
            have, `[rows]`, to the probability of a click on each row, before any click is known.
    """

    examined: Floats
    attraction: Floats
    clicked: Callable[[Log], Floats]
    seen: Callable[[], Floats]
    placed: Callable[[Integers], Floats]


def fits(log: Log, model: str, weights: Iterable[Floats]) -> Iterator[Fitted]:
    """Fits a click model with each of several weights of the rows of a log.

    An item is clicked if it is examined and attractive; each item of a query has an attraction.
    Examination is, in

    * `"none"`: sure.
    * `"pbm"`: a probability of the position, by `all_pairs`.
    * `"ubm"`: a probability of the position and of the last click above it.
    * `"cascade"`: that of a user who reads from the top and leaves at the first click.
    * `"dcm"`: the same, but a click satisfies the user with a probability of its position.
    * `"dbn"`: the same, but a click satisfies with a probability of its item, and a user who is not
      satisfied reads on with a probability, equal for all.

    In `"additive"`, the log-odds of a click are the sum of one of the position and one of the item,
    as if users trusted high positions and saw what catches the eye at low ones.

    Attractions have a prior distribution for each group of items of about the same mean position,
    which is estimated, too: see `Attractions`.

    Args:
        log: A log; for all of `OF_SESSIONS`, with sessions.
        model: Name of the model, of `MODELS`.
        weights: Weights of the rows, `[rows]` each. Each fit begins at the last one; models of
            positions keep the prior and posterior distributions of the first, those of users who
            read from the top its prior.

    References:
        [Chuklin, Markov and de Rijke, Click Models for Web Search, 2015](
        https://doi.org/10.1007/978-3-031-02294-4);
        [Dupret and Piwowarski, A user browsing model, SIGIR 2008](
        https://doi.org/10.1145/1390334.1390392);
        [Guo, Liu and Wang, Efficient multiple-click models in web search, WSDM 2009](
        https://doi.org/10.1145/1498759.1498818);
        [Chapelle and Zhang, A dynamic Bayesian network click model, WWW 2009](
        https://doi.org/10.1145/1526709.1526711);
        [Guo et al., PAL: a position-bias aware learning framework, RecSys 2019](
        https://doi.org/10.1145/3298689.3347033), for the additive model.
    """
    return map(fitter(log, model, keeps_prior=True), weights)


def fitter(log: Log, model: str, *, keeps_prior: bool = False) -> Callable[[Floats], Fitted]:
    """Returns the function of `fits` from weights to a fitted model.

    Args:
        log: The log.
        model: Name of the model.
        keeps_prior: Whether users who read from the top keep the prior of the first fit: a resample
            repeats sessions, which would make it certain of their items.
    """
    if model == "ubm":
        return _Contexts(log).fit
    return (_Reading(log, model, keeps_prior) if model in READING else _Places(log, model)).fit


class _Places:
    """No bias, PBM and the additive model: a click depends on the position and the item."""

    def __init__(self, log: Log, model: str) -> None:
        self.log, self.model, self.prior = log, model, Attractions(log)
        self.additive = Additive(log) if model == "additive" else None
        # The first fit sets the posterior.
        self.posterior: Floats | None = None

    def table(self, weights: Floats) -> Floats:
        """Probability of a click at each pool of positions by attraction, `[pools, grid]`."""
        grid = self.prior.grid
        if self.additive is not None:
            self.additive.fit(weights)
            places = self.additive.places - self.additive.places.max()
            return sigmoid(places[:, np.newaxis] + np.log(grid) - np.log1p(-grid))
        if self.model == "pbm":
            [places] = all_pairs(self.log, [weights])
            known = places / np.nanmax(places)
            return np.outer(np.where(np.isnan(known), 1.0, known), grid)
        return np.outer(np.ones(self.log.cells.num_pools), grid)

    def fit(self, weights: Floats) -> Fitted:
        log, table = self.log, self.table(weights)
        cells = log.cells
        clicks, others = (cells.sums(weights * x) for x in (log.clicks, log.shown - log.clicks))
        if self.posterior is None:
            self.posterior = self.prior.posterior(
                log_likelihood(table, cells.item, cells.pool, clicks, others, log.num_items)
            )
        posterior = self.posterior
        coarse = posterior @ self.prior.grid
        seen = cells.sums(weights * log.shown) * click_probabilities(
            posterior, table, cells.item, cells.pool
        )
        amounts, counts = (
            _sums(cells.item, x, log.num_items) for x in (clicks, seen / coarse[cells.item])
        )
        attraction = self.prior.refine_means(coarse, amounts, counts)
        examined = table @ (np.bincount(log.items, weights * log.shown, log.num_items) @ posterior)
        pools = log.pools

        def at(log: Log, columns: Integers) -> Floats:
            means = click_probabilities(posterior, table, log.items, pools[columns])
            return np.minimum(means * (attraction / coarse)[log.items], 1.0)

        return Fitted(
            (examined / examined.max())[pools],
            attraction,
            lambda of: at(of, of.columns),
            lambda: at(log, log.columns) / attraction[log.items],
            lambda columns: at(log, columns),
        )


class _Contexts:
    """UBM: P(click) = examination(context) * attraction(item).

    The numbers of impressions and clicks of each pair of an item and a context suffice.
    """

    def __init__(self, log: Log) -> None:
        self.log, self.prior = log, Attractions(log)
        contexts = self.contexts(log)
        self.size = log.cells.num_pools * (len(log.positions) + 1)
        pairs, self.pair = np.unique(log.items * self.size + contexts, return_inverse=True)
        self.item, self.context = pairs // self.size, pairs % self.size
        self.start = np.full(log.num_items, 0.5), np.full(self.size, 0.5)

    def contexts(self, log: Log) -> Integers:
        """The context of each row: its pool of positions, and the last click above."""
        sessions = log.sessions
        last = sessions.clicks_above()[sessions.of_row]
        return np.asarray(log.pools[log.columns] * (len(log.positions) + 1) + last, np.int64)

    def fit(self, weights: Floats) -> Fitted:
        clicks, shown = (
            _sums(self.pair, weights * x, 0) for x in (self.log.clicks, self.log.shown)
        )
        skipped, items, size = shown - clicks, self.log.num_items, self.size
        per_item, per_context = _sums(self.item, shown, items), _sums(self.context, shown, size)
        (attraction, examination), examined = self.start, np.ones(self.log.cells.num_pools)
        for _ in range(_STEPS):
            a, e = attraction[self.item], examination[self.context]
            # not clicked: attractive and not examined with probability a * (1 - e) / (1 - a * e),
            # or vice versa
            share = skipped / np.maximum(1.0 - a * e, _LEAST)
            attracted = _sums(self.item, clicks + share * (1.0 - e) * a, items)
            seen = _sums(self.context, clicks + share * (1.0 - a) * e, size)
            attraction = self.prior.mean(attracted, per_item)
            examination = seen / np.maximum(per_context, _LEAST)
            read, shown = (x.reshape(len(examined), -1).sum(axis=1) for x in (seen, per_context))
            previous, examined = examined, read / np.maximum(shown, _LEAST)
            examined /= max(float(examined.max()), _LEAST)
            if np.abs(examined - previous).max() < _TOLERANCE:
                break
        self.start = attraction, examination
        mean = seen.sum() / per_context.sum()
        # one more impression of the mean: held-out sessions have contexts that this log lacks
        smooth = (seen + mean) / (per_context + 1.0)
        best = max(float(np.max(examination[per_context > 0.0])), _LEAST)
        # so that a position without a click is not examined never
        examined = (read + mean) / (shown + 1.0)
        of_position = (examined / examined.max())[self.log.pools]
        return Fitted(
            of_position,
            attraction,
            lambda log: attraction[log.items] * smooth[self.contexts(log)],
            lambda: examination[self.contexts(self.log)] / best,
            lambda columns: attraction[self.log.items] * of_position[columns],
        )


@dataclasses.dataclass
class _User:
    """What a user does who reads from the top, and may leave after each item.

    Args:
        attraction: Probability of a click on each item that is examined, `[items]`.
        satisfaction: Probability that a click satisfies, of each item or each position.
        going: Probability of reading on if not satisfied.
    """

    attraction: Floats
    satisfaction: Floats
    going: float


class _Reading:
    """Cascade, DCM and DBN."""

    def __init__(self, log: Log, model: str, keeps_prior: bool) -> None:
        self.keeps_prior = keeps_prior
        self.log, self.model, self.prior = log, model, Attractions(log)
        self.prior_of_satisfaction = Attractions(log)
        self.sessions = log.sessions
        things = log.num_items if model == "dbn" else len(log.positions)
        satisfaction = np.full(things, 1.0 if model == "cascade" else 0.5)
        self.user = _User(np.full(log.num_items, 0.2), satisfaction, 0.9 if model == "dbn" else 1.0)

    def satisfiers(self, sessions: Sessions) -> Integers:
        """What satisfies at each place: its item, or its position."""
        return sessions.items if self.model == "dbn" else sessions.column

    def fit(self, weights: Floats) -> Fitted:
        weight = weights[self.sessions.rows] * self.sessions.present
        if self.model == "cascade":
            above = self.sessions.clicks_above()
            seen = (above == 0) * 1.0
            self.user.attraction = self.prior.mean(
                *(self._per_item(x * seen * weight) for x in (self.sessions.clicked, 1.0))
            )
        else:
            seen = self._maximise(weight)
        self.prior.is_fixed = self.prior_of_satisfaction.is_fixed = self.keeps_prior
        user = dataclasses.replace(self.user)
        examined = self._examination(self.sessions, user)

        def click_probabilities(log: Log) -> Floats:
            sessions = log.sessions
            chances = self._examination(sessions, user)[sessions.of_row]
            return np.asarray(chances * user.attraction[log.items])

        # a mean of values must not be shrunken: given the clicks above, an item is clicked with its
        # attraction times `examined`, so that the ratio of the sums has no bias
        raw = self._per_item(self.sessions.clicked * weight)
        raw /= np.maximum(self._per_item(examined * weight), _LEAST)
        unshrunken = dataclasses.replace(user, attraction=raw)

        def at_columns(columns: Integers) -> Floats:
            sessions = self.log.at_positions(columns).sessions
            chances = self._examination(sessions, unshrunken, by_clicks=False)[sessions.of_row]
            return np.asarray(chances * raw[self.log.items])

        return Fitted(
            self.sessions.means(examined, weight),
            user.attraction,
            click_probabilities,
            lambda: seen[self.sessions.of_row],
            at_columns,
        )

    def _per_item(self, values: Floats) -> Floats:
        return _sums(self.sessions.items, values, self.log.num_items)

    def _maximise(self, weight: Floats) -> Floats:
        """Finds what users do, and returns the probability of examination of each place."""
        sessions, user = self.sessions, self.user
        thing, things = self.satisfiers(sessions), len(user.satisfaction)
        last = sessions.last_click()[sessions.session]
        is_last, is_below = sessions.column == last, sessions.column > last
        steps = [*sessions.steps()]
        clicks = self._per_item(sessions.clicked * weight)
        of_things = _sums(thing, sessions.clicked * weight, things)
        before = np.zeros(len(sessions.counts))
        seen: Floats = np.zeros(len(sessions.rows))
        satisfied = seen
        for _ in range(_STEPS):
            # what a session itself says of an item would confirm that it was not attractive
            spread, clicked = self.prior.variance, sessions.clicked * weight
            a = _without(user.attraction, spread, sessions.items, clicked, seen * weight)
            a *= sessions.present
            s, going = user.satisfaction[thing], user.going
            if self.model == "dbn":
                spread = self.prior_of_satisfaction.variance
                s = _without(user.satisfaction, spread, thing, satisfied * weight, is_last * weight)
            # probability of no click below a place, if the user reads on
            silent = np.ones(len(a))
            for here, below in reversed(steps):
                silent[here] = (1.0 - a[below]) * (1.0 - going + going * silent[below])
            on, off = going * silent, 1.0 - going
            # Bayes: satisfied by the last click or, if not, no click below: left, or read on in
            # vain
            satisfied = is_last * s / np.maximum(s + (1.0 - s) * (off + on), _LEAST)
            after = np.where(is_last, 1.0 - satisfied, 1.0) * on / np.maximum(off + on, _LEAST)
            seen = np.ones(len(a))
            for here, below in steps:
                seen[below] = np.where(is_below[below], seen[here] * after[here], 1.0)
            user.attraction = self.prior.mean(clicks, self._per_item(seen * weight))
            content = _sums(thing, satisfied * weight, things)
            if self.model == "dbn":
                user.satisfaction = self.prior_of_satisfaction.mean(content, of_things)
                user.going = self._continuation(seen, satisfied, weight)
            else:
                mean = content.sum() / max(of_things.sum(), _LEAST)
                user.satisfaction = (content + mean) / (of_things + 1.0)
            previous, before = before, sessions.means(seen, weight)
            if np.abs(before - previous).max() < _TOLERANCE:
                break
        return seen

    def _continuation(self, seen: Floats, satisfied: Floats, weight: Floats) -> float:
        """Share of the users who read on, of those who could and were not satisfied."""
        stays = moves = 0.0
        for here, below in self.sessions.steps():
            stays += float((seen * (1.0 - satisfied))[here] @ weight[below])
            moves += float(seen[below] @ weight[below])
        return moves / max(stays, _LEAST)

    def _examination(self, sessions: Sessions, user: _User, *, by_clicks: bool = True) -> Floats:
        """Probability of examination of each place, `[places]`.

        Args:
            sessions: Sessions with the same items and positions.
            user: What users do.
            by_clicks: Whether the clicks above are known.
        """
        a = user.attraction[sessions.items] * sessions.present
        stays = 1.0 - user.satisfaction[self.satisfiers(sessions)]
        examined = np.ones(len(a))
        for here, below in sessions.steps():
            now, chance, stay = examined[here], a[here], stays[here]
            if by_clicks:
                # Bayes: examined but not attractive, of all reasons for no click
                unclicked = now * (1.0 - chance) / np.maximum(1.0 - now * chance, _LEAST)
                on = np.where(sessions.clicked[here], stay, unclicked)
            else:
                on = now * (1.0 - chance * (1.0 - stay))
            examined[below] = user.going * on
        return examined


def _sums(keys: Integers, values: np.ndarray, count: int) -> Floats:
    return np.asarray(np.bincount(keys, values, count), np.float64)


def _without(
    means: Floats, variances: Floats, items: Integers, amounts: Floats, counts: Floats
) -> Floats:
    """Posterior means of the items of some places without what each place says, to first order.

    Args:
        means: Posterior mean of each item, `[items]`.
        variances: Variance of each posterior, `[items]`.
        items: Item of each place, `[places]`.
        amounts: Clicks at each place, `[places]`.
        counts: Examinations at each place, `[places]`.
    """
    mean = means[items]
    slope = amounts / mean - np.maximum(counts - amounts, 0.0) / (1.0 - mean)
    return np.asarray(np.clip(mean - variances[items] * slope, _LEAST, 1.0 - _LEAST), np.float64)
