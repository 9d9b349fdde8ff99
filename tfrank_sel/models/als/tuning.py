"""Choice of the settings of a factorisation by validation."""

import itertools
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import rich.progress
from numpy.typing import ArrayLike

from tfrank_sel.models.als import ids, retrieval
from tfrank_sel.models.als.factorizer import RGFactorizer
from tfrank_sel.models.als.interactions import as_matrix, split_columns
from tfrank_sel.refusals import refusal


def tune(
    model: RGFactorizer,
    interactions: Any,
    search: Mapping[str, Sequence[Any]],
    *,
    trials: int | None = None,
    held_out: float = 0.1,
    times: ArrayLike | None = None,
    seed: int = 0,
    verbose: bool = False,
) -> tuple[RGFactorizer, list[dict[str, Any]]]:
    """Tries settings on held-out interactions, and fits the best to all interactions.

    A trial fits a copy of `model` with other settings to the rest of the interactions. Its value is
    the NDCG@10 after its best sweep. The best trial's settings and number of sweeps are used for
    the final fit.

    Args:
        model: The factoriser whose settings are not searched; it is not changed.
        interactions: Positives, as in `RGFactorizer.fit`.
        search: Values to try, by argument of `RGFactorizer`. `sweeps` need no values: each number
            of sweeps up to that of `model` is judged.
        trials: Number of combinations to try, drawn without replacement; all if `None`.
        held_out: Share of the interactions to judge by, in (0, 1).
        times: Time of each interaction, as numbers or NumPy dates. The latest interactions are held
            out, as new ones will be judged; random ones if `None`. Pairs that also occur before are
            not judged.
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
    random = np.random.default_rng(seed)
    interactions, known_ids = ids.numbered(interactions)
    matrix = as_matrix(interactions)
    columns = split_columns(matrix if times is None else interactions)
    if times is None:
        is_held_out = random.random(matrix.nnz) < held_out
    else:
        when = np.asarray(times)
        if when.shape != columns[0].shape:
            raise refusal(
                "`times` must have a value for each interaction",
                f"shape {when.shape}, of {len(columns[0])} interactions",
            )
        is_held_out = when > np.quantile(when, 1.0 - held_out, method="lower")
    train, validation = (
        as_matrix(tuple(column[chosen] for column in columns), matrix.shape)
        for chosen in (~is_held_out, is_held_out)
    )
    validation = as_matrix(validation - validation.multiply(train != 0))
    if not validation.nnz or not train.nnz:
        raise refusal(
            "`held_out` must leave interactions in both parts",
            f"{matrix.nnz} interactions, held_out={held_out}",
        )
    combinations = list(itertools.product(*search.values()))
    chosen = random.permutation(len(combinations))[:trials]
    tried = []
    for number in rich.progress.track(sorted(chosen), "trials", disable=not verbose):
        settings = dict(zip(search, combinations[number], strict=True))
        history = type(model)(**{**arguments, **settings}).fit(train, validation).history_
        best = max(range(len(history)), key=lambda sweep: history[sweep]["ndcg@10"])
        values = {name: history[best][name] for name in ("ndcg@10", "recall@10", "mrr@10")}
        tried.append({**settings, "sweeps": best + 1, **values})
    tried.sort(key=lambda trial: -trial["ndcg@10"])
    popular = train.getnnz(axis=0)[:, np.newaxis].astype(np.float32)
    best_items, _ = retrieval.best(np.ones([train.shape[0], 1], np.float32), popular, 10, train)
    tried.append({"sweeps": 0, **retrieval.ranking_quality(best_items, validation)})
    if tried[0]["ndcg@10"] <= tried[-1]["ndcg@10"]:
        warnings.warn(f"no trial is better than the most popular items: {tried}", stacklevel=2)
    settings = {name: tried[0][name] for name in (*search, "sweeps")}
    chosen_model = type(model)(**{**arguments, **settings}).fit(matrix)
    chosen_model.user_ids_, chosen_model.item_ids_ = known_ids
    return chosen_model, tried
