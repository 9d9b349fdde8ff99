"""NDCG@10 of rankers trained on simulated clicks, by correction.

    python -m benchmarks.quality.clicks --data MQ2008 MSLR --results DIR --sessions 10000
    python -m benchmarks.quality.clicks --data MQ2008 --results DIR --amounts 1000 10000

`--data` are folders of LETOR sets; the first `--folds` of their folds are run. What each of them
gave is kept in `--results`, and not made again. A logging ranker is a ridge regression on
`--logging` training lists, with noise in each session, so that items swap positions. Clicks on its
first ten items follow the models of `data.synthetic.sessions`. All rankers are 100 trees with the
same settings. Those of labels are of LightGBM with `SoftmaxLoss`: true labels of the shown items,
clicks as they are, and clicks corrected with estimated propensities (for trust bias, too, whose
false clicks the propensities do not contain). `compared` takes labels of the click model that
`clicks.compare` names. Those of sessions are LightGBM's lambdarank, with and without `position`,
and XGBoost's `rank:ndcg` with `lambdarank_unbiased`.

The test is on true labels. The first table has means over queries and logging rankers, and in
brackets the difference to clicks as they are. The second one has the differences of corrections to
these and to the other programs, with 95 % intervals by bootstrap over queries. A star is a
significant difference by a t test over queries, with Holm's correction for the rows of a column.

With `--amounts`, the only table has clicks of the position-based model and more and more sessions:
NDCG@10 relative to that of true labels, and the largest relative error of a propensity, also that
of cascades by their model.
"""

import argparse
import json
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
from tfrank_sel.metrics.significance import holm, t_test

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
LOGGING, COMPARED, TRUE = "the logging ranker", "`compared`", "true labels, `SoftmaxLoss`"
POSITION, XGBOOST = "LightGBM `lambdarank` with `position`", "XGBoost with `lambdarank_unbiased`"
CORRECTED = ("`pooled`", "`doubly_robust`", COMPARED)
MODELS = {"pbm": "position-based", "trust": "trust bias", "cascade": "cascade"}
Columns = dict[str, np.ndarray]
Scorer = Callable[[np.ndarray], np.ndarray]


def logging_ranker(train: Lists, lists: int) -> Scorer:
    """A ridge regression on some of the lists, whose scores on all of them are standardised."""
    few = train[:lists]
    x, y = np.concatenate([one.features for one in few]), np.concatenate([o.labels for o in few])
    weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
    scale = np.concatenate([one.features @ weights for one in train]).std()
    return lambda features: np.asarray(features @ weights / scale)


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


def simulated(train: Lists, logging: Scorer, model: str, sessions: int) -> Columns:
    return synthetic.sessions(
        [one.labels for one in train],
        sessions,
        scores=[logging(one.features) for one in train],
        model=model,
        temperature=0.5,
    )


def largest_error(columns: Columns, estimated: clicks.Propensities) -> float:
    """The largest relative error of a propensity, of the mean examination of its position."""
    truth = np.bincount(columns["position"], columns["propensity"])[1:]
    truth /= np.bincount(columns["position"])[1:]
    return float(np.abs(estimated.values / truth * truth[0] - 1.0).max())


def labelled(train: Lists, log: clicks.Log, estimated: clicks.Propensities) -> dict[str, Scorer]:
    """Trains the rankers of labels."""
    corrected = {
        NAIVE: clicks.labels(log, np.ones(len(log.clicks)), "ips"),
        **{f"`{name}`": clicks.labels(log, estimated, name) for name in clicks.CORRECTIONS},
    }
    made = {
        name: of_labels(train, c["query"], c["item"], c["label"]) for name, c in corrected.items()
    }
    query, item = corrected[NAIVE]["query"], corrected[NAIVE]["item"]
    full = np.array([train[q].labels[i] for q, i in zip(query, item, strict=True)])
    return made | {TRUE: of_labels(train, query, item, full)}


def rankers(train: Lists, lists: int, model: str, sessions: int) -> tuple[dict[str, Scorer], float]:
    """Trains all rankers; also returns the largest relative error of the propensities."""
    logging = logging_ranker(train, lists)
    columns = simulated(train, logging, model, sessions)
    log = clicks.Log.of(columns, session="session")
    estimated = clicks.estimate(log, resamples=1)
    of_true = labelled(train, log, estimated)
    best = clicks.estimate(log, clicks.compare(log)[0].model, resamples=1)
    c = clicks.labels(log, best)
    made = {LOGGING: logging} | of_true
    made[COMPARED] = of_labels(train, c["query"], c["item"], c["label"])
    made["LightGBM `lambdarank`"] = of_sessions(train, columns, positions=False)
    made[POSITION] = of_sessions(train, columns, positions=True)
    made[XGBOOST] = unbiased(train, columns)
    made[TRUE] = made.pop(TRUE)  # the last row
    return made, largest_error(columns, estimated)


def ndcg(labels: np.ndarray, scores: np.ndarray) -> float:
    """NDCG@10 of a list, 0 without a relevant item."""
    gains = 2.0**labels - 1.0
    discounts = 1.0 / np.log2(np.arange(len(gains[:10])) + 2.0)
    best = np.sort(gains)[::-1][:10] @ discounts
    return float(gains[np.argsort(-scores, kind="stable")][:10] @ discounts / max(best, 1e-9))


def tested(scorer: Scorer, test: Lists) -> list[float]:
    return [ndcg(one.labels, scorer(one.features)) for one in test]


def different(pairs: dict[str, np.ndarray]) -> dict[str, str]:
    """Mean of the differences of each row, its interval, and a star if it is significant."""
    p = holm(t_test(np.stack([*pairs.values()], axis=1)))
    ends = map(interval, pairs.values())
    return {
        name: f"{x.mean():+.4f}{'*' if p < 0.05 else ''}: {low:+.4f} to {high:+.4f}"
        for (name, x), (low, high), p in zip(pairs.items(), ends, p, strict=True)
    }


def amounts(train: Lists, test: Lists, lists: int, sessions: int) -> dict[str, float]:
    """Shares of the NDCG of true labels by `sessions` clicks, and errors of propensities."""
    logging = logging_ranker(train, lists)
    columns = simulated(train, logging, "pbm", sessions)
    log = clicks.Log.of(columns)
    estimated = clicks.estimate(log, resamples=1)
    found = {
        name: float(np.mean(tested(scorer, test)))
        for name, scorer in labelled(train, log, estimated).items()
    }
    made = {name: 100.0 * value / found[TRUE] for name, value in found.items()}
    made["largest error, position-based, %"] = 100.0 * largest_error(columns, estimated)
    columns = simulated(train, logging, "cascade", sessions)
    log = clicks.Log.of(columns, session="session")
    by_model = clicks.estimate(log, "cascade", resamples=1)
    made["largest error, cascade, %"] = 100.0 * largest_error(columns, by_model)
    return made


def print_table(head: str, columns: dict[str, dict[str, str]]) -> None:
    """Prints a table of columns, of whose rows the first one names all."""
    print(f"| {' | '.join([head, *columns])} |\n|{'---|' * (len(columns) + 1)}")
    for name in next(iter(columns.values())):
        print(f"| {' | '.join([name, *(column[name] for column in columns.values())])} |")
    print()


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True)
    parser.add_argument("--sessions", type=int, default=20_000)
    parser.add_argument("--folds", type=int, nargs="+", default=[5], help="of each set")
    parser.add_argument("--logging", type=int, nargs="+", default=[5], help="lists they learn from")
    parser.add_argument("--amounts", type=int, nargs="+", help="numbers of sessions")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="what is kept")
    options = parser.parse_args()
    if options.amounts:
        data = folds(options.data[0])[: options.folds[0]]
        shares: dict[str, dict[str, str]] = {}
        for sessions in options.amounts:
            made = [
                amounts(fold["train"], fold["test"], options.logging[0], sessions) for fold in data
            ]
            shares[f"{sessions:,}"] = {
                name: f"{np.mean([one[name] for one in made]):.1f}" for name in made[0]
            }
            print(sessions, shares[f"{sessions:,}"], file=sys.stderr)
        print_table("sessions", shares)
        return
    cells: dict[str, dict[str, str]] = {}
    others: dict[str, dict[str, str]] = {}
    for path, count in zip(options.data, options.folds * len(options.data), strict=False):
        data = folds(path)[:count]
        for model in MODELS:
            values: dict[str, list[np.ndarray]] = {}
            wrong = []
            for number, fold in enumerate(data):
                of_fold: dict[str, list[list[float]]] = {}
                for lists in options.logging:
                    kept = options.results / f"{path.name}-{model}-{number}-{lists}.json"
                    if not kept.exists():
                        made, error = rankers(fold["train"], lists, model, options.sessions)
                        scores = {x: tested(scorer, fold["test"]) for x, scorer in made.items()}
                        kept.parent.mkdir(parents=True, exist_ok=True)
                        kept.write_text(json.dumps({"error": error, "scores": scores}))
                    found = json.loads(kept.read_text())
                    wrong.append(found["error"])
                    for name, values_of in found["scores"].items():
                        of_fold.setdefault(name, []).append(values_of)
                for name, scores in of_fold.items():
                    values.setdefault(name, []).append(np.mean(scores, axis=0))
                told = {x: [round(np.mean(z), 4) for z in y] for x, y in of_fold.items()}
                print(path.name, model, told, file=sys.stderr, flush=True)
            measured = {name: np.concatenate(scores) for name, scores in values.items()}
            setting = f"{path.name}, {MODELS[model]}"
            rows = different({x: y - measured[NAIVE] for x, y in measured.items() if x != NAIVE})
            cells[setting] = {
                x: f"{y.mean():.4f}" + (f" ({rows[x].partition(':')[0]})" if x in rows else "")
                for x, y in measured.items()
            } | {"largest error of a propensity": f"{np.mean(wrong):.3f}"}
            others[setting] = different(
                {
                    f"{x} - {y}": measured[x] - measured[y]
                    for x in CORRECTED
                    for y in (NAIVE, POSITION, XGBOOST)
                }
            )
    print_table("trained on", cells)
    print_table("difference", others)


if __name__ == "__main__":
    main()
