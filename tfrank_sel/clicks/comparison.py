"""Comparison of click models by held-out sessions, and the choice of one."""

import dataclasses
from collections.abc import Iterable

import numpy as np

from tfrank_sel.clicks.log import Log
from tfrank_sel.clicks.models import MODELS, OF_SESSIONS, fits
from tfrank_sel.clicks.pairs import pool_groups
from tfrank_sel.errors import refusal

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
    """

    model: str
    log_likelihood: float
    perplexity: float


def compare(
    log: Log, models: Iterable[str] | None = None, *, held_out: float = 0.2, seed: int = 0
) -> list[Fit]:
    """Compares click models by the likelihood of held-out sessions, the best one first.

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
    compared = []
    for name in models:
        [fitted] = fits(train, name, [np.ones(len(train.items))])
        probable = fitted.clicked(test)
        click, none = (np.log(np.maximum(x, _SURE)) for x in (probable, 1.0 - probable))
        total = float(test.clicks @ click + (test.shown - test.clicks) @ none)
        compared.append(
            Fit(name, total / int(is_held.sum()), float(np.exp(-total / test.shown.sum())))
        )
    return sorted(compared, key=lambda fit: -fit.log_likelihood)


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
