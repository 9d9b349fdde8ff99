"""Comparison of click models by held-out sessions, and the choice of one."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np

from tfrank_sel.clicks.log import Floats, Integers, Log
from tfrank_sel.clicks.models import MODELS, OF_SESSIONS, fits
from tfrank_sel.clicks.pairs import pool_groups
from tfrank_sel.errors import refusal

_ERRORS = 2.0  # of the difference to the best model
_EXPECTED = 20.0  # clicks that a cell of a test has at least
LEVEL = 0.05  # of the tests
_SCALINGS = 10  # of the rows and columns of a table to sums that they have
_SURE = 1e-6  # least probability of what happened: a model may exclude it


@dataclasses.dataclass(frozen=True)
class Fit:
    """How well a click model predicts the clicks of sessions that it was not fitted to.

    Args:
        model: Name of the model.
        log_likelihood: Mean log-likelihood of a session, natural logarithm; at most 0. That of a
            row if the log has no sessions.
        perplexity: Exponential of the mean negative log-likelihood of a row, of its click given the
            clicks above it: 1 if all are known, 2 for the toss of a coin.
        behind: How much the log-likelihood is below that of the best model.
        error: Standard error of `behind`, by queries or, if there are few, by sessions.
        fits: Probability of errors as large as those of the model, if it is right: the smaller one
            of chi-square tests of the clicks at each position by the attraction of items and, if
            models of sessions are compared, below and not below another click. They take the fit as
            known.
        fits_groups: The same of the clicks at each position in each group, if positions have equal
            effects in all groups of the log.
    """

    model: str
    log_likelihood: float
    perplexity: float
    behind: float = 0.0
    error: float = 0.0
    fits: float = 1.0
    fits_groups: float = 1.0


def compare(
    log: Log, models: Iterable[str] | None = None, *, held_out: float = 0.2, seed: int = 0
) -> list[Fit]:
    """Compares click models by the likelihood of held-out sessions, the best one first.

    Which sessions are held out depends on the seed and on what sessions contain, not on names.

    Args:
        log: A log; without sessions, rows are held out.
        models: Names of the models, of `MODELS`; if None, all that the log can tell apart.
        held_out: Share of the sessions, drawn at random, that are not fitted; above 0, below 1.
        seed: Seed of the draw.

    Raises:
        ValueError: If a name is unknown, the share is out of range, or a model needs sessions.
    """
    models = identifiable_models(log) if models is None else list(models)
    if unknown := [name for name in models if name not in MODELS]:
        raise refusal(f"`models` must be of {', '.join(MODELS)}", repr(unknown[0]))
    if not 0.0 < held_out < 1.0:
        raise refusal("`held_out` must be above 0 and below 1", held_out)
    session = log.session_of_row
    is_held = np.random.default_rng(seed).random(int(session.max()) + 1) < held_out
    if is_held.all() or not is_held.any():
        raise refusal("`held_out` must leave sessions on both sides", held_out)
    train, test = (log.part(np.flatnonzero(is_held[session] == x)) for x in (False, True))
    unit, sizes = test.independent_units(), float(test.shown.sum())
    count = int(is_held.sum())
    above = np.zeros(len(test.items), int)
    if not {*OF_SESSIONS}.isdisjoint(models):
        sessions = test.sessions
        above = np.minimum(sessions.clicks_above(), 1)[sessions.of_row]
    sums, fit, of_groups = {}, {}, {}
    for name in models:
        [fitted] = fits(train, name, [np.ones(len(train.items))])
        probable = fitted.clicked(test)
        thirds = np.quantile(fitted.attraction, [1.0 / 3.0, 2.0 / 3.0])
        kinds = above, np.digitize(fitted.attraction, thirds)[test.items]
        fit[name] = min(_fit_of(test, probable, x) for x in kinds)
        of_groups[name] = _fit_of_groups(test, probable)
        click, none = (np.log(np.maximum(x, _SURE)) for x in (probable, 1.0 - probable))
        sums[name] = np.bincount(unit, test.clicks * click + (test.shown - test.clicks) * none)
    best = max(sums.values(), key=np.sum, default=0.0)
    compared = []
    for name, of_units in sums.items():
        total, behind = float(of_units.sum()), best - of_units
        compared.append(
            Fit(
                name,
                total / count,
                float(np.exp(-total / sizes)),
                float(behind.sum()) / count,
                float(np.sqrt(len(behind)) * behind.std()) / count,
                fit[name],
                of_groups[name],
            )
        )
    return sorted(compared, key=lambda fit: -fit.log_likelihood)


def _fit_of(log: Log, probable: Floats, kinds: Integers) -> float:
    """The p-value of the numbers of clicks at each position on rows of each kind."""
    clicks, expected, square = _tables(log, probable, kinds)
    is_large = expected >= _EXPECTED
    ratios = (clicks - expected) ** 2 / np.maximum(expected - square, _SURE)
    return _p_value(ratios[is_large], int(is_large.sum()))


def _fit_of_groups(log: Log, probable: Floats) -> float:
    """The same in each group, with the sums of each position and of each group as they are."""
    clicks, expected, square = _tables(log, probable, log.group_of_row)
    is_large, cells = expected >= _EXPECTED, 0
    while cells != is_large.sum():  # a group or a position of one cell tells nothing
        cells = is_large.sum()
        is_large &= (is_large.sum(axis=0) > 1) & (is_large.sum(axis=1, keepdims=True) > 1)
    clicks, expected, square = (np.where(is_large, x, 0.0) for x in (clicks, expected, square))
    for axis in _SCALINGS * (1, 0):
        sums = (np.maximum(x.sum(axis=axis, keepdims=True), _SURE) for x in (clicks, expected))
        factor = np.divide(*sums)
        expected, square = expected * factor, square * factor**2
    ratios = (clicks - expected) ** 2 / np.maximum(expected - square, _SURE)
    sums_known = sum(int(is_large.any(axis=axis).sum()) for axis in (0, 1))
    return _p_value(ratios[is_large], int(cells) - sums_known + 1)


def _tables(log: Log, probable: Floats, kinds: Integers) -> Floats:
    """Clicks, their expectation and squares at positions by kind, `[3, positions, kinds]`."""
    shape = len(log.positions), int(kinds.max()) + 1
    cells, size = log.columns * shape[1] + kinds, shape[0] * shape[1]
    sums = (log.clicks, log.shown * probable, log.shown * probable**2)
    return np.stack([np.bincount(cells, x, size).reshape(shape) for x in sums])


def _p_value(ratios: Floats, freedom: int) -> float:
    """That of a sum of squared errors over their variances, by its degrees of freedom."""
    if freedom <= 0:
        return 1.0
    # Wilson and Hilferty: the cube root is nearly normal
    variance = 2.0 / (9.0 * freedom)
    error = math.cbrt(float(ratios.sum()) / freedom) - 1.0 + variance
    return 0.5 * math.erfc(error / math.sqrt(2.0 * variance))


def choose(compared: Sequence[Fit]) -> list[str]:
    """Returns the models of users that may be right, the simplest one of the best ones first.

    These are within two standard errors of the best one. If its own errors are larger than chance,
    users are of no model: those that explain at least half of what it explains, beyond `"none"`,
    come after.

    Args:
        compared: All models of a log, the best one first.
    """
    best = [fit.model for fit in compared if fit.behind <= _ERRORS * fit.error]
    names = [name for name in MODELS if name in best]
    if compared[0].fits < LEVEL:
        half = 0.5 * max(fit.behind for fit in compared if fit.model == "none")
        names += [fit.model for fit in compared if fit.behind < half and fit.model not in best]
    return names


def sample(log: Log, rows: int = 100_000, seed: int = 0) -> Log:
    """Returns the log of some queries, drawn at random, of about so many rows, to compare models.

    Args:
        log: The log.
        rows: Number of rows.
        seed: Seed of the draw.
    """
    counts = np.bincount(log.queries)
    order = np.random.default_rng(seed).permutation(len(counts))
    chosen = order[np.concatenate([[0], np.cumsum(counts[order])[:-1]]) < rows]
    return log.select(np.flatnonzero(np.isin(log.queries, chosen)))


def identifiable_models(log: Log) -> list[str]:
    """Returns the models whose propensities a log identifies."""
    models = [x for x in MODELS if log.has_sessions or x not in OF_SESSIONS]
    return [x for x in models if not why_unidentified(log, x)]


def why_unidentified(log: Log, model: str) -> str:
    """Returns why a log does not identify the propensities of a model; empty if it does.

    Models compare positions by items shown at several of them. Only `"cascade"` and `"dcm"` know
    that the first position and all below it are examined until the first click, which identifies
    the items without any swap.
    """
    if model in ("none", "cascade", "dcm") or len(set(pool_groups(log))) < log.cells.num_pools:
        return ""
    return (
        "each clicked item was shown at one position only, as in the log of a single ranker. "
        "Propensities need items at several positions for the same query: "
        "swap items at random, or add the log of another ranker"
    )
