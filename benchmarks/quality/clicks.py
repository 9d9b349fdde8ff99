"""NDCG@10 of rankers trained on simulated clicks, by correction.

    python -m benchmarks.quality.clicks --data MQ2008 --sessions 20000

`--data` is the folder of a LETOR set; the first `--folds` of its folds are run. The logging ranker
is a ridge regression on five training lists, with noise in each session, so that items swap
positions. Clicks on its first ten items follow the models of `data.synthetic.sessions`. All rankers
are 100 trees with the same settings. Those of labels are of LightGBM with `SoftmaxLoss`: true
labels of the shown items, clicks as they are, and clicks corrected with estimated propensities (for
trust bias, too, whose false clicks the propensities do not contain). Those of sessions are
LightGBM's lambdarank, with and without `position`, and XGBoost's `rank:ndcg` with
`lambdarank_unbiased`. The test is on true labels: the mean over queries, and in brackets the
difference to clicks as they are and its 95 % interval, by bootstrap over queries.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable

import lightgbm
import numpy as np
import xgboost

from benchmarks.quality.data import Lists, folds
from benchmarks.quality.judging import interval
from tfrank_sel import clicks, losses, objectives
from tfrank_sel.data import synthetic

TREES = 100
SETTINGS = {
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 30,
    "num_threads": 1,
    "seed": 0,
    "verbose": -1,
}
NAIVE = "clicks as they are, `SoftmaxLoss`"
MODELS = {"pbm": "position-based", "trust": "trust bias", "cascade": "cascade"}
Columns = dict[str, np.ndarray]
Scorer = Callable[[np.ndarray], np.ndarray]


def logging_scores(train: Lists) -> list[np.ndarray]:
    """Standardised scores of a ridge regression on five lists."""
    few = train[:5]
    x, y = np.concatenate([one.features for one in few]), np.concatenate([o.labels for o in few])
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
    scores = [one.features @ weights for one in train]
    scale = np.concatenate(scores).std()
    return [score / scale for score in scores]


def of_labels(train: Lists, query: np.ndarray, item: np.ndarray, label: np.ndarray) -> Scorer:
    """Trains on the labels of the items of each query, which are sorted by query."""
    _, sizes = np.unique(query, return_counts=True)
    data = lightgbm.Dataset(features(train, query, item), label, group=sizes)
    objective = objectives.lightgbm(losses.SoftmaxLoss())
    return lightgbm.train(SETTINGS | {"objective": objective}, data, TREES).predict


def of_sessions(train: Lists, log: Columns, positions: bool) -> Scorer:
    """Trains LightGBM's lambdarank, with or without `position`."""
    _, sizes = np.unique(log["session"], return_counts=True)
    data = lightgbm.Dataset(
        features(train, log["query"], log["item"]),
        log["click"].astype(int),
        group=sizes,
        position=log["position"] - 1 if positions else None,
    )
    return lightgbm.train(SETTINGS | {"objective": "lambdarank"}, data, TREES).predict


def unbiased(train: Lists, log: Columns) -> Scorer:
    """Trains XGBoost with `lambdarank_unbiased`, on sessions in order of position."""
    _, session = np.unique(log["session"], return_inverse=True)
    data = xgboost.DMatrix(
        features(train, log["query"], log["item"]), log["click"].astype(int), qid=session
    )
    settings = {
        "objective": "rank:ndcg",
        "lambdarank_unbiased": True,
        "learning_rate": SETTINGS["learning_rate"],
        "grow_policy": "lossguide",
        "max_leaves": SETTINGS["num_leaves"],
        "max_depth": 0,
        "nthread": 1,
    }
    model = xgboost.train(settings, data, TREES)
    return lambda x: model.predict(xgboost.DMatrix(x))


def features(train: Lists, query: np.ndarray, item: np.ndarray) -> np.ndarray:
    return np.stack([train[q].features[i] for q, i in zip(query, item, strict=True)])


def rankers(train: Lists, model: str, sessions: int) -> tuple[dict[str, Scorer], float]:
    """Trains all rankers; also returns the largest relative error of the propensities."""
    columns = synthetic.sessions(
        [one.labels for one in train],
        sessions,
        scores=logging_scores(train),
        model=model,
        temperature=0.5,
    )
    log = clicks.Log.of(columns)
    estimated = clicks.estimate(log, resamples=1)
    truth = np.bincount(columns["position"], columns["propensity"])[1:]
    truth /= np.bincount(columns["position"])[1:]
    corrected = {
        NAIVE: clicks.labels(log, np.ones(len(log.clicks)), "ips"),
        **{f"`{name}`": clicks.labels(log, estimated, name) for name in clicks.CORRECTIONS},
    }
    made = {
        name: of_labels(train, c["query"], c["item"], c["label"]) for name, c in corrected.items()
    }
    made["LightGBM `lambdarank`"] = of_sessions(train, columns, positions=False)
    made["LightGBM `lambdarank` with `position`"] = of_sessions(train, columns, positions=True)
    made["XGBoost with `lambdarank_unbiased`"] = unbiased(train, columns)
    query, item = corrected[NAIVE]["query"], corrected[NAIVE]["item"]
    full = np.array([train[q].labels[i] for q, i in zip(query, item, strict=True)])
    made["true labels, `SoftmaxLoss`"] = of_labels(train, query, item, full)
    return made, float(np.abs(estimated.values / truth * truth[0] - 1.0).max())


def ndcg(labels: np.ndarray, scores: np.ndarray) -> float:
    """NDCG@10 of a list, 0 without a relevant item."""
    gains = 2.0**labels - 1.0
    discounts = 1.0 / np.log2(np.arange(len(gains[:10])) + 2.0)
    best = np.sort(gains)[::-1][:10] @ discounts
    return float(gains[np.argsort(-scores, kind="stable")][:10] @ discounts / max(best, 1e-9))


def main() -> None:
    """Prints a table of each model of users."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--folds", type=int, default=5)
    options = parser.parse_args()
    data = folds(options.data)[: options.folds]
    cells: dict[str, list[str]] = {}
    errors = []
    for model in MODELS:
        values: dict[str, list[float]] = {}
        wrong = []
        for fold in data:
            made, error = rankers(fold["train"], model, options.sessions)
            wrong.append(error)
            for name, scorer in made.items():
                values.setdefault(name, []).extend(
                    ndcg(one.labels, scorer(one.features)) for one in fold["test"]
                )
            print(
                model, {name: round(np.mean(x), 4) for name, x in values.items()}, file=sys.stderr
            )
        errors.append(f"{np.mean(wrong):.3f}")
        for name, found in values.items():
            difference = np.subtract(found, values[NAIVE])
            low, high = interval(difference)
            told = f" ({difference.mean():+.4f}: {low:+.4f} to {high:+.4f})"
            cells.setdefault(name, []).append(
                f"{np.mean(found):.4f}{told if name != NAIVE else ''}"
            )
    print(f"| trained on | {' | '.join(MODELS.values())} |")
    print("|---|---|---|---|")
    for name, row in cells.items():
        print(f"| {name} | {' | '.join(row)} |")
    print(f"| largest error of a propensity | {' | '.join(errors)} |")


if __name__ == "__main__":
    main()
