"""NDCG@10 of rankers trained on simulated clicks, by correction.

    python -m benchmarks.quality.clicks --data MQ2008 --sessions 20000

`--data` is the folder of a LETOR set with five folds; the first `--folds` are run. The logging
ranker is a ridge regression on five training lists, with noise in each session, so that items swap
positions. Clicks on its first ten items follow the models of `data.synthetic.sessions`. All rankers
are LightGBM with the same settings. Those of labels use `SoftmaxLoss`: full labels of the shown
items, clicks as they are, and clicks corrected with estimated propensities (for trust bias, too,
whose false clicks the propensities do not contain). LightGBM's `position` uses lambdarank on the
sessions. The test is on true labels: the mean over queries, and the 95 % interval of the difference
to clicks as they are, by bootstrap over queries.
"""

import argparse
import pathlib

import lightgbm
import numpy as np

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
NAIVE = "naive"
Columns = dict[str, np.ndarray]


def logging_scores(train: Lists) -> list[np.ndarray]:
    """Standardised scores of a ridge regression on five lists."""
    few = train[:5]
    x, y = np.concatenate([one.features for one in few]), np.concatenate([o.labels for o in few])
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
    scores = [one.features @ weights for one in train]
    scale = np.concatenate(scores).std()
    return [score / scale for score in scores]


def of_labels(
    train: Lists, query: np.ndarray, item: np.ndarray, label: np.ndarray
) -> lightgbm.Booster:
    """Trains on the labels of the items of each query, which are sorted by query."""
    features = np.stack([train[q].features[i] for q, i in zip(query, item, strict=True)])
    _, sizes = np.unique(query, return_counts=True)
    data = lightgbm.Dataset(features, label, group=sizes)
    objective = objectives.lightgbm(losses.SoftmaxLoss())
    return lightgbm.train(SETTINGS | {"objective": objective}, data, TREES)


def with_positions(train: Lists, log: Columns) -> lightgbm.Booster:
    """Trains LightGBM's lambdarank with `position`."""
    pairs = zip(log["query"], log["item"], strict=True)
    features = np.stack([train[q].features[i] for q, i in pairs])
    _, sizes = np.unique(log["session"], return_counts=True)
    data = lightgbm.Dataset(
        features, log["click"].astype(int), group=sizes, position=log["position"] - 1
    )
    return lightgbm.train(SETTINGS | {"objective": "lambdarank"}, data, TREES)


def rankers(train: Lists, model: str, sessions: int) -> tuple[dict[str, lightgbm.Booster], float]:
    """Trains all rankers; also returns the largest relative error of the propensities."""
    columns = synthetic.sessions(
        [one.labels for one in train],
        sessions,
        scores=logging_scores(train),
        model=model,
        temperature=0.5,
    )
    log = clicks.Log.of(columns)
    estimated = clicks.estimate(log)
    truth = np.bincount(columns["position"], columns["propensity"])[1:]
    truth /= np.bincount(columns["position"])[1:]
    ones = np.ones(len(log.clicks))
    corrected = {
        NAIVE: clicks.labels(log, ones, "ips"),
        **{name: clicks.labels(log, estimated, name) for name in clicks.CORRECTIONS},
    }
    made = {
        name: of_labels(train, c["query"], c["item"], c["label"]) for name, c in corrected.items()
    }
    query, item = corrected[NAIVE]["query"], corrected[NAIVE]["item"]
    full = np.array([train[q].labels[i] for q, i in zip(query, item, strict=True)])
    made["full labels"] = of_labels(train, query, item, full)
    made["LightGBM `position`"] = with_positions(train, columns)
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
    print("| clicks | ranker | NDCG@10 | difference to naive | propensities' error |")
    print("|---|---|---|---|---|")
    for model in ("pbm", "trust", "cascade"):
        values: dict[str, list[float]] = {}
        errors = []
        for fold in data:
            made, error = rankers(fold["train"], model, options.sessions)
            errors.append(error)
            for name, ranker in made.items():
                values.setdefault(name, []).extend(
                    ndcg(one.labels, ranker.predict(one.features)) for one in fold["test"]
                )
        for name, found in values.items():
            difference = np.subtract(found, values[NAIVE])
            low, high = interval(difference)
            print(
                f"| {model} | {name} | {np.mean(found):.4f} | {difference.mean():+.4f} "
                f"({low:+.4f} to {high:+.4f}) | {np.mean(errors):.3f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
