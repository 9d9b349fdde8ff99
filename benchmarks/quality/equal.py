"""Ranking by equal rules: trees, networks and both, on several LETOR sets.

    python -m benchmarks.quality.equal train --data MQ2008 --scores scores
    python -m benchmarks.quality.equal judge --data MQ2008 MSLR --scores scores

`--data` is a folder for each set, of any LETOR set: `Fold1` and so on, `S1.txt` to `S5.txt`, or
other files, also those of LightGBM with a `.query` file, which are pooled and divided into
five parts.

All rows have the same features (those of `models.ListScorer`: each number, and where the item
stands in its list by it), four settings, three seeds and the same choice by validation lists;
ensembles of trees and of networks have as many losses and seeds. `tfrank-sel-pipelines run` is that
command without options, one setting, with LightGBM installed; the next row has no trees, and the
last are the estimator.
`train` writes what is not in `--scores` yet, with its CPU seconds; run it under the second stack
for tensorflow-ranking. `--seeds 0` trains from one seed.

`judge` prints a table for each set: NDCG@10 where a list without a relevant item counts 0, 1, or
not at all; the difference to LightGBM with its 95 % interval by a bootstrap over queries and, in
each fold, over seeds; and its p-value, corrected for the number of rows (Holm). For several sets, a
last table has the mean difference over sets by a random-effects model (DerSimonian and Laird),
which includes the variance between sets, with I2, the share of the variance that is between sets.
"""

import argparse
import functools
import math
import os
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

# one thread for each library, so that CPU seconds are comparable
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
os.environ.setdefault("TF_NUM_INTEROP_THREADS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

from benchmarks.quality import judging, trees
from benchmarks.quality.__main__ import (
    Row,
    default_of_pipelines,
    estimator,
    is_installed,
    keras_rs_network,
    ours,
    ranking_network,
    trees_of,
)
from benchmarks.quality.data import Lists, folds
from benchmarks.quality.selection import SEEDS
from tfrank_sel import losses

BASE = "LightGBM lambdarank"
OF_TREES = functools.partial(functools.partial, trees.train, within=True)
ROWS: dict[str, Row] = {
    BASE: OF_TREES(trees.lightgbm),
    "LightGBM lambdarank, each item alone": functools.partial(trees.train, trees.lightgbm),
    "LightGBM, our RGCrossLoss": trees_of(losses.RGCrossLoss(), within=True),
    "LightGBM, our SoftmaxLoss": trees_of(losses.SoftmaxLoss(), within=True),
    "XGBoost rank:ndcg": OF_TREES(trees.xgboost),
    "CatBoost YetiRank": OF_TREES(trees.catboost, sizes=trees.DEPTHS),
    "scikit-learn HistGradientBoosting": OF_TREES(trees.histogram_boosting),
    "keras-rs PairwiseLogisticLoss": keras_rs_network("PairwiseLogisticLoss", within=True),
    "tensorflow-ranking SoftmaxLoss": ranking_network("SoftmaxLoss", within=True),
    "ListScorer, SoftmaxLoss": ours(losses.SoftmaxLoss, within=True),
    "ListScorer, RGCrossLoss": ours(losses.RGCrossLoss, within=True),
    "ListScorer, LambdaLoss": ours(losses.LambdaLoss, within=True),
    "tfrank-sel-pipelines run": default_of_pipelines,
    "tfrank-sel-pipelines run, model.trees=false": functools.partial(
        default_of_pipelines, has_trees=False
    ),
    "Ranker()": estimator,
    "Ranker(members=1)": functools.partial(estimator, members=1),
}
TREES = [BASE, "LightGBM, our RGCrossLoss", "LightGBM, our SoftmaxLoss"]
NETWORKS = [f"ListScorer, {x}" for x in ("SoftmaxLoss", "RGCrossLoss", "LambdaLoss")]
ENSEMBLES = {
    "Ensemble of trees, three losses": TREES,
    "Ensemble of networks, three losses": NETWORKS,
    "Ensemble of both": [*TREES, *NETWORKS],
}

# the measure of each seed and query, and the fold of each query
Values = tuple[np.ndarray, np.ndarray]


class Gap(NamedTuple):
    """A difference to LightGBM: mean, interval, standard error and p-value, both ways."""

    mean: float
    low: float
    high: float
    error: float
    p: float


def train(
    data: Sequence[dict[str, Lists]],
    folder: pathlib.Path,
    rows: Sequence[str],
    seeds: Sequence[int],
) -> None:
    """Writes the scores and CPU seconds of rows that have none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in rows:
        path = folder / f"{name}.npz"
        if path.exists() or not is_installed(name):
            continue
        began = time.process_time()
        scores = ROWS[name](data, seeds=seeds)
        seconds = time.process_time() - began
        judging.save(path, scores, seconds=seconds)
        print(f"{folder.name}, {name}: {seconds:.0f} CPU s", flush=True)


def ndcg(data: Sequence[dict[str, Lists]], scores: judging.Scores) -> Values:
    """NDCG@10 by seed and query, 0 without a relevant item; folds are one after another."""
    values: dict[int, list[list[float]]] = {}
    for (fold, _), found in sorted(scores.items()):
        lists = data[fold]["test"]
        measures = judging.measured(lists, found)
        values.setdefault(fold, []).append([measures[x.query_id]["ndcg_cut_10"] for x in lists])
    of_folds = [np.array(of_fold) for of_fold in values.values()]
    places = np.repeat(list(values), [x.shape[1] for x in of_folds])
    return np.concatenate(of_folds, axis=1), places


def resampled(values: Values, queries: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Means of resampled queries, `[resamples]`, each with resampled seeds of its fold."""
    of_seeds, places = values
    total = np.zeros(len(queries))
    for fold in np.unique(places):
        inside = places == fold
        drawn = random.multinomial(
            len(of_seeds), np.full(len(of_seeds), 1.0 / len(of_seeds)), len(queries)
        ) / len(of_seeds)
        total += np.einsum(
            "rs,sq,rq->r", drawn, of_seeds[:, inside], queries[:, inside], optimize=True
        )
    return total / queries.sum(axis=1)


def compared(values: Mapping[str, Values]) -> dict[str, Gap]:
    """The difference of each row to LightGBM."""
    random = np.random.default_rng(0)
    count = len(values[BASE][1])
    queries = random.multinomial(count, np.full(count, 1.0 / count), judging.RESAMPLES)
    queries = queries.astype(float)
    base = resampled(values[BASE], queries, random)
    found = {}
    for name, own in values.items():
        if name == BASE:
            continue
        gaps = resampled(own, queries, random) - base
        low, high = np.percentile(gaps, [2.5, 97.5])
        beyond = min(np.sum(gaps <= 0.0), np.sum(gaps >= 0.0))
        p = min(1.0, 2.0 * (beyond + 1) / (judging.RESAMPLES + 1))
        mean = own[0].mean() - values[BASE][0].mean()
        found[name] = Gap(mean, low, high, gaps.std(), p)
    return found


def pooled(gaps: Sequence[Gap]) -> tuple[Gap, float]:
    """The mean difference over sets by a random-effects model, and I2, of DerSimonian and Laird."""
    means, errors = np.array([[gap.mean, gap.error] for gap in gaps]).T
    weights = errors**-2.0
    spread = np.sum(weights * (means - np.average(means, weights=weights)) ** 2)
    excess = max(0.0, spread - (len(gaps) - 1))
    between = excess / (weights.sum() - np.sum(weights**2) / weights.sum())
    weights = 1.0 / (errors**2 + between)
    mean, error = np.average(means, weights=weights), 1.0 / math.sqrt(weights.sum())
    normal = statistics.NormalDist()
    half = normal.inv_cdf(0.975) * error
    p = 2.0 * normal.cdf(-abs(mean) / error)
    return Gap(mean, mean - half, mean + half, error, p), excess / spread if excess else 0.0


def pooled_table(sets: Sequence[Mapping[str, Gap]]) -> str:
    """The rows that all sets have, with the mean difference over sets."""
    found = {
        name: pooled([x[name] for x in sets]) for name in sets[0] if all(name in x for x in sets)
    }
    p_values = corrected({name: gap.p for name, (gap, _) in found.items()})
    lines = [
        "| | NDCG@10 - LightGBM's, mean over sets (95 %) | p, alone | p | I2 | lowest set |",
        f"|{'---|' * 6}",
    ]
    for name, (gap, between) in found.items():
        lowest = min(x[name].mean for x in sets)
        lines.append(
            f"| {name} | {gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f}) | {gap.p:.3f} "
            f"| {p_values[name]:.3f} | {between:.0%} | {lowest:+.4f} |"
        )
    return "\n".join(lines)


def corrected(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's correction: none of the rows is called different by chance more often than p."""
    found, largest = {}, 0.0
    for rank, name in enumerate(sorted(p_values, key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        found[name] = largest
    return found


def table(data: Sequence[dict[str, Lists]], folder: pathlib.Path) -> tuple[str, Mapping[str, Gap]]:
    """The rows that have scores, and the ensembles of those, with the differences to LightGBM."""
    scores = {
        name: judging.load(folder / f"{name}.npz")
        for name in ROWS
        if (folder / f"{name}.npz").exists()
    }
    seconds = {name: float(np.load(folder / f"{name}.npz")["seconds"]) for name in scores}
    for name, members in ENSEMBLES.items():
        if all(member in scores for member in members):
            scores[name] = judging.ensemble([scores[member] for member in members])
            seconds[name] = sum(seconds[member] for member in members)
    values = {name: ndcg(data, found) for name, found in scores.items()}
    gaps = compared(values)
    p_values = corrected({name: found.p for name, found in gaps.items()})
    is_empty = np.concatenate([[not x.labels.any() for x in fold["test"]] for fold in data])
    lines = [
        "| | NDCG@10 | empty lists 1 | without them | - LightGBM's (95 %) | p | CPU s |",
        f"|{'---|' * 7}",
    ]
    for name, (of_seeds, _) in values.items():
        mean, empty = of_seeds.mean(), is_empty.mean()
        gap = p = ""
        if name in gaps:
            gap = "{:+.4f} ({:+.4f} to {:+.4f})".format(*gaps[name])
            p = f"{p_values[name]:.3f}"
        lines.append(
            f"| {name} | {mean:.4f} | {mean + empty:.4f} | {mean / (1.0 - empty):.4f} "
            f"| {gap} | {p} | {seconds[name]:.0f} |"
        )
    return "\n".join(lines), gaps


def main() -> None:
    """Trains, or prints a table for each set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("stage", choices=["train", "judge"])
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True, help="folders")
    parser.add_argument("--scores", type=pathlib.Path, required=True, help="folder of the scores")
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=list(ROWS))
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="of training")
    options = parser.parse_args()
    judged = []
    for path in options.data:
        data = folds(path)
        if options.stage == "train":
            train(data, options.scores / path.name, options.rows, options.seeds)
        else:
            lists = [x for fold in data for x in fold["test"]]
            items = sum(len(x.labels) for x in lists)
            print(f"{path.name}: {len(lists)} lists, {items} items\n")
            text, gaps = table(data, options.scores / path.name)
            print(text, end="\n\n")
            judged.append(gaps)
    if len(judged) > 1:
        print(f"{len(judged)} sets\n\n{pooled_table(judged)}")


if __name__ == "__main__":
    main()
