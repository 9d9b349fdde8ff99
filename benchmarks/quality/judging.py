"""Judging scores: files of scores, ensembles, measures by pytrec_eval and intervals."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.quality.data import Lists
from benchmarks.quality.selection import Scores

RESAMPLES = 10_000
MEASURES = {
    "NDCG@1": "ndcg_cut_1",
    "NDCG@5": "ndcg_cut_5",
    "NDCG@10": "ndcg_cut_10",
    "MRR": "recip_rank",
    "MAP": "map",
}


def save(path: pathlib.Path, scores: Scores, **more: float) -> None:
    """Writes scores as arrays: those of all lists of a fold and seed, and the lists' lengths."""
    packed = {name: np.array(value) for name, value in more.items()}
    for (fold, seed), found in scores.items():
        packed[f"scores {fold} {seed}"] = np.concatenate(found)
        packed[f"sizes {fold} {seed}"] = np.array([len(x) for x in found])
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        np.savez(file, **packed)  # type: ignore[arg-type]
    partial.rename(path)


def load(path: pathlib.Path) -> Scores:
    """Reads the scores that `save` wrote."""
    packed: Mapping[str, np.ndarray] = np.load(path)
    keys = [name.removeprefix("sizes ") for name in packed if name.startswith("sizes ")]
    return {
        (int(key.split()[0]), int(key.split()[1])): np.split(
            packed[f"scores {key}"], np.cumsum(packed[f"sizes {key}"])[:-1]
        )
        for key in keys
    }


def ensemble(parts: Sequence[Scores]) -> Scores:
    """Adds up the scores of all seeds, standardised in each list, as `models.Ensemble` does."""
    summed: Scores = {}
    for scores in parts:
        for (fold, _), found in scores.items():
            standard = [(x - x.mean()) / (x.std() or 1.0) for x in found]
            so_far = summed.get((fold, 0), [np.zeros(1)] * len(found))
            summed[fold, 0] = [a + b for a, b in zip(so_far, standard, strict=True)]
    return summed


def measured(lists: Lists, scores: Sequence[np.ndarray]) -> dict[str, dict[str, float]]:
    """The measures of each query: gain `2^relevance - 1`, 0 without a relevant item."""
    import pytrec_eval

    judged = {x.query_id: _named(2.0**x.labels - 1.0, int) for x in lists}
    run = {x.query_id: _named(s, float) for x, s in zip(lists, scores, strict=True)}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut.1,5,10", "recip_rank", "map"})
    found: dict[str, dict[str, float]] = evaluator.evaluate(run)
    return found


def _named(values: np.ndarray, kind: type) -> dict[str, Any]:
    return {f"{i:04}": kind(value) for i, value in enumerate(values)}


def means(data: Sequence[dict[str, Lists]], scores: Scores) -> dict[str, np.ndarray]:
    """Each measure of each query of all folds, the mean over seeds."""
    sums: dict[str, dict[str, list[float]]] = {name: {} for name in MEASURES}
    for (fold, _), found in scores.items():
        for query, values in measured(data[fold]["test"], found).items():
            for name, key in MEASURES.items():
                sums[name].setdefault(query, []).append(values[key])
    return {
        name: np.array([np.mean(queries[query]) for query in sorted(queries)])
        for name, queries in sums.items()
    }


def interval(differences: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean, by bootstrap over queries."""
    random = np.random.default_rng(0)
    count = len(differences)
    drawn = [differences[random.integers(count, size=count)].mean() for _ in range(RESAMPLES)]
    low, high = np.percentile(drawn, [2.5, 97.5])
    return float(low), float(high)
