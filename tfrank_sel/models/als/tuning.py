"""Choice of the settings of a factorisation by validation."""

import itertools
import sys
import warnings
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import rich.progress
from numpy.typing import ArrayLike

from tfrank_sel.errors import refusal
from tfrank_sel.models.als import retrieval
from tfrank_sel.models.als.interactions import read

if TYPE_CHECKING:
    from tfrank_sel.models.als.factorizer import RGFactorizer

REGULARIZATIONS = (0.2, 0.6, 2.0, 6.0, 20.0)  # tried if none is given
FEWEST = 100  # held-out interactions by which `fit` chooses


def tune(
    model: "RGFactorizer",
    interactions: Any,
    search: Mapping[str, Sequence[Any]] = MappingProxyType({}),
    *,
    trials: int | None = None,
    held_out: float = 0.1,
    times: ArrayLike | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> tuple["RGFactorizer", list[dict[str, Any]]]:
    """Tries settings on held-out interactions, and fits the best to all interactions.

    A trial fits a copy of `model` with other settings to the rest of the interactions. Its value is
    the NDCG@10 after its best sweep. The best trial's settings and number of sweeps are used for
    the final fit.

    Args:
        model: The factoriser whose settings are not searched; it is not changed.
        interactions: Positives, as in `RGFactorizer.fit`.
        search: Values to try, by argument of `RGFactorizer`. `sweeps` need no values: each number
            of sweeps up to that of `model` is judged. If neither `search` nor `model` has a
            `regularization`, 0.2, 0.6, 2, 6 and 20 are tried.
        trials: Number of combinations to try, drawn without replacement; all if `None`.
        held_out: Share of the interactions to judge by, in (0, 1).
        times: Time of each interaction: numbers, dates or times, also as texts in ISO 8601; the
            column `time` of a table if `None`. The latest interactions are held out, as new ones
            will be judged; random ones without times. Pairs that also occur before, and users who
            do not, are not judged.
        seed: Seed of the held-out interactions and of the combinations.
        verbose: Whether to show progress.

    Returns:
        The fitted model, and the trials, best first: their settings, `sweeps`, `ndcg@10`,
        `recall@10` and `mrr@10`. The last row is that of the most popular items, without settings.

    Raises:
        ValueError: If an argument is unknown or out of range, nothing is held out, or there is not
            a time for each interaction.

    Warns if no trial is better than the most popular items.

    Example:
        >>> from tfrank_sel.models.als import RGFactorizer, tune
        >>> rng = np.random.default_rng(0)
        >>> taken = rng.integers(0, 30, 400), rng.integers(0, 20, 400)
        >>> search = {"regularization": [0.01, 0.1], "activity_exponent": [0.0, 0.25]}
        >>> model, trials = tune(RGFactorizer(num_factors=4), taken, search, trials=3)
        >>> len(trials), sorted(trials[0])[:2]
        (4, ['activity_exponent', 'mrr@10'])
    """
    arguments = model.arguments()
    unknown = sorted(set(search) - set(arguments))
    if unknown or "sweeps" in search or not all(len(values) for values in search.values()):
        raise refusal(
            f"`search` must have values of arguments among {sorted(set(arguments) - {'sweeps'})}",
            dict(search),
        )
    if not 0.0 < held_out < 1.0 or (trials is not None and trials < 1):
        raise refusal(
            "`held_out` must be in (0, 1), and `trials` must be positive",
            f"held_out={held_out}, trials={trials}",
        )
    if model.regularization is None:
        search = {"regularization": REGULARIZATIONS, **search}
    random = np.random.default_rng(seed)
    taken = read(interactions, times=times)
    train, validation = taken.divide(held_out, random)
    if not validation.nnz or not train.nnz:
        raise refusal(
            "`held_out` must leave interactions in both parts",
            f"{train.nnz + validation.nnz} interactions, held_out={held_out}",
        )
    combinations = list(itertools.product(*search.values()))
    chosen = random.permutation(len(combinations))[:trials]
    tried = []
    for number in rich.progress.track(sorted(chosen), "trials", disable=not verbose):
        settings = dict(zip(search, combinations[number], strict=True))
        history = _fit(model, settings, train, validation).history_
        best = max(range(len(history)), key=lambda sweep: history[sweep]["ndcg@10"])
        values = {name: history[best][name] for name in ("ndcg@10", "recall@10", "mrr@10")}
        tried.append({**settings, "sweeps": best + 1, **values})
    tried.sort(key=lambda trial: -trial["ndcg@10"])
    tried.append({"sweeps": 0, **_popularity(train, validation)})
    if tried[0]["ndcg@10"] <= tried[-1]["ndcg@10"]:
        warnings.warn(
            f"no trial is better than the most popular items: {_words(tried[0])}; the most popular "
            f"items: {_words(tried[-1])}",
            stacklevel=2,
        )
    settings = {name: tried[0][name] for name in (*search, "sweeps")}
    return type(model)(**{**arguments, **settings}).fit(taken), tried


def regularization(
    model: "RGFactorizer", train: Any, held_out: Any, list_weights: ArrayLike | None
) -> float:
    """Returns the regularization of the best NDCG@10 after all sweeps, and tells it in a line.

    Warns if the most popular items are better.
    """
    judged = {}
    for strength in REGULARIZATIONS:
        settings = {"regularization": strength, "patience": None}
        tried = _fit(model, settings, train, list_weights=list_weights)
        judged[strength] = _quality(tried.user_factors_, tried.item_factors_, train, held_out)
    best = max(judged, key=lambda strength: judged[strength]["ndcg@10"])
    popular = _popularity(train, held_out)
    told = (
        f"regularization={best:g} is the best of {', '.join(f'{x:g}' for x in REGULARIZATIONS)} by "
        f"{held_out.nnz:,} held-out interactions: {_words(judged[best])}; the most popular items: "
        f"{_words(popular)}"
    )
    if judged[best]["ndcg@10"] <= popular["ndcg@10"]:
        warnings.warn(f"the most popular items are better: {told}", stacklevel=4)
    else:
        print(told, file=sys.stderr)
    return best


def _fit(
    model: "RGFactorizer", settings: Mapping[str, Any], *interactions: Any, **options: Any
) -> "RGFactorizer":
    with warnings.catch_warnings():
        # Settings that cause this warning are not chosen.
        warnings.filterwarnings("ignore", "the vectors of all items are parallel")
        return type(model)(**{**model.arguments(), **settings}).fit(*interactions, **options)


def _quality(users: Any, items: Any, train: Any, held_out: Any) -> dict[str, float]:
    judged = held_out.getnnz(axis=1).nonzero()[0]
    best, _ = retrieval.best(users[judged], items, 10, train[judged])
    return retrieval.ranking_quality(best, held_out[judged])


def _popularity(train: Any, held_out: Any) -> dict[str, float]:
    counts = train.getnnz(axis=0)[:, np.newaxis].astype(np.float32)
    return _quality(np.ones([train.shape[0], 1], np.float32), counts, train, held_out)


def _words(values: Mapping[str, float]) -> str:
    return f"NDCG@10 {values['ndcg@10']:.4f}, recall@10 {values['recall@10']:.4f}"
