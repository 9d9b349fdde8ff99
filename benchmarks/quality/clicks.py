"""What `tfrank_sel.clicks` makes of the clicks of users that none of its models describes.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.clicks --data MQ2008 --results DIR

`--data` is a folder of a LETOR set. Of its training lists, a ridge regression on ten, with noise in
each session, shows lists to the users of `click_users`, which share no code with the estimators.
Traffic: `many` queries of a Zipf distribution, `few`, which are 50, and `one` query a session,
where each session has a training list with items of its own, so that none swaps its position. What
each simulation gave is kept in `--results`, and not made again.

The first table judges `clicks.estimate`: the model that `"auto"` names, the mean of the largest
relative error of a propensity of positions 2 to 10, and coverage of their 95 % intervals. The
truth is the mean examination of the position, relative to the largest.

The second table judges `clicks.reordered` by the default propensities, for the shown order, one by
scores and attractions, one by scores and noise, and the reversed one: the true difference of clicks
per session (of many visits, whose error widens the interval), mean error, coverage, and the number
of simulations whose interval is above and below 0.

The third table has NDCG@10 on true labels of the other lists of the fold, the mean over
simulations, of LightGBM rankers with 100 trees: `SoftmaxLoss` on clicks as they are, on labels of
the default and of each model, on true labels of the shown items, and `lambdarank` on sessions.
The fourth has differences of the default, with 95 % intervals by bootstrap over lists, and a star
where a t test over lists is significant with Holm's correction for the users. Neither contains the
variance between logs.
"""

import argparse
import dataclasses
import json
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import lightgbm
import numpy as np

from benchmarks.quality import click_users
from benchmarks.quality.data import Lists, folds
from benchmarks.quality.judging import interval
from tfrank_sel import clicks, losses, objectives
from tfrank_sel.metrics.significance import holm, t_test

TREES, LOGGING, VISITS = 100, 10, 80
SETTINGS = {
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 30,
    "num_threads": 1,
    "seed": 0,
    "verbose": -1,
}
SESSIONS = {"many": 6_000, "few": 6_000, "one": 3_000}
TOP = np.arange(2, 11)
MODELS = ("none", "pbm", "additive", "cascade", "dbn")  # those of labels
NAIVE, DEFAULT, POSITION = "as they are", "default", "`lambdarank` with `position`"
ORDERS = ("the same order", "a better order", "a worse order", "the reversed order")
Found = dict[str, Any]
Scorer = Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Simulation:
    """Users, lists with the scores of the logging ranker, what was shown, and its log."""

    users: Callable[..., click_users.Seen]
    lists: Lists
    scores: Sequence[np.ndarray]
    world: click_users.World
    shown: click_users.Shown
    columns: dict[str, np.ndarray]
    seed: int

    @classmethod
    def of(cls, train: Lists, name: str, traffic: str, seed: int) -> "Simulation":
        users, random = click_users.USERS[name], np.random.default_rng(seed)
        few = [train[i] for i in random.permutation(len(train))[:LOGGING]]
        x, y = (np.concatenate(z) for z in zip(*((o.features, o.labels) for o in few), strict=True))
        weights = np.linalg.solve(x.T @ x + np.eye(x.shape[1]), x.T @ (y - y.mean()))
        if traffic == "one":
            train = [train[i % len(train)] for i in range(SESSIONS[traffic])]
        scale = np.concatenate([one.features @ weights for one in train]).std()
        scores = [one.features @ weights / scale for one in train]
        world = click_users.world([one.labels for one in train], seed)
        shown = click_users.traffic(scores, SESSIONS[traffic], traffic, seed)
        _, clicked = users(*world.at(shown), random)
        return cls(users, train, scores, world, shown, click_users.log(shown, clicked), seed)

    def examination(self) -> np.ndarray:
        """The true propensities of the first ten positions."""
        random, present = np.random.default_rng(self.seed + 1), self.shown.present
        at = self.world.at(self.shown)
        seen = np.mean([self.users(*at, random)[0] & present for _ in range(VISITS)], axis=0)
        mean = (seen.sum(axis=0) / present.sum(axis=0).clip(1))[:10]
        return np.asarray(mean / mean.max())

    def orders(self) -> dict[str, Sequence[np.ndarray]]:
        """Scores of new orders, but for the same one."""
        random = np.random.default_rng(self.seed + 2)
        known = [
            x + 1.5 * (a - a.mean()) / max(a.std(), 1e-9)
            for x, a in zip(self.scores, self.world.attraction, strict=True)
        ]
        noisy = [x + random.normal(size=len(x)) for x in self.scores]
        return dict(zip(ORDERS[1:], (known, noisy, [-x for x in self.scores]), strict=True))

    def true_clicks(self, shown: click_users.Shown) -> np.ndarray:
        """Clicks per session, some means of visits."""
        return np.array(
            [
                click_users.clicks_per_session(self.users, self.world, shown, self.seed + k, 10)
                for k in range(VISITS // 10)
            ]
        )

    def features(self, query: np.ndarray, item: np.ndarray) -> np.ndarray:
        return np.stack([self.lists[q].features[i] for q, i in zip(query, item, strict=True)])


def errors(estimated: clicks.Propensities, truth: np.ndarray) -> list[float]:
    """The largest relative error of a propensity, and the share of intervals that cover."""
    place, true = np.searchsorted(estimated.positions, TOP), truth[TOP - 1]
    covers = (estimated.low[place] <= true) & (true <= estimated.high[place])
    return [float(np.abs(estimated.values[place] / true - 1.0).max()), float(covers.mean())]


def values(made: Simulation, log: clicks.Log, estimated: clicks.Propensities) -> Found:
    """True and estimated differences of new orders: truth, its error, value and interval."""
    columns, base = made.columns, made.true_clicks(made.shown)
    found: Found = {}
    try:
        same = clicks.reordered(log, estimated, -columns["position"])["difference"]
    except ValueError:  # each item was at one position
        return found
    found[ORDERS[0]] = [0.0, 0.0, same.value, same.low, same.high]
    for name, scores in made.orders().items():
        row = [scores[q][i] for q, i in zip(columns["query"], columns["item"], strict=True)]
        new = clicks.reordered(log, estimated, row)["difference"]
        true = made.true_clicks(click_users.reordered(made.shown, scores)) - base
        error = float(true.std(ddof=1) / len(true) ** 0.5)
        found[name] = [float(true.mean()), error, new.value, new.low, new.high]
    return found


def rankers(
    made: Simulation, log: clicks.Log, estimated: clicks.Propensities
) -> Iterable[tuple[str, Scorer]]:
    """Trains rankers on labels and on sessions."""
    naive = clicks.labels(log, np.ones(len(log.clicks)), "ips")
    query, item = naive["query"], naive["item"]
    x, sizes = made.features(query, item), np.unique(query, return_counts=True)[1]
    objective = SETTINGS | {"objective": objectives.lightgbm(losses.SoftmaxLoss())}

    def trained(label: np.ndarray) -> Scorer:
        return lightgbm.train(objective, lightgbm.Dataset(x, label, group=sizes), TREES).predict

    yield NAIVE, trained(naive["label"])
    yield DEFAULT, trained(clicks.labels(log, estimated)["label"])
    for model in MODELS:
        try:
            by_model = clicks.estimate(log, model, resamples=1)
        except ValueError:  # the log does not identify it
            continue
        yield f"`{model}`", trained(clicks.labels(log, by_model)["label"])
    yield "`doubly_robust`", trained(clicks.labels(log, estimated, "doubly_robust")["label"])
    columns = made.columns
    x = made.features(columns["query"], columns["item"])
    rows = np.unique(columns["session"], return_counts=True)[1]
    for name, position in (("`lambdarank`", None), (POSITION, columns["position"] - 1)):
        data = lightgbm.Dataset(x, columns["click"], group=rows, position=position)
        yield name, lightgbm.train(SETTINGS | {"objective": "lambdarank"}, data, TREES).predict
    x = made.features(query, item)
    yield (
        "true labels",
        trained(np.array([made.lists[q].labels[i] for q, i in zip(query, item, strict=True)])),
    )


def judged(fold: Mapping[str, Lists], users: str, traffic: str, seed: int) -> Found:
    """What a simulation gives."""
    made = Simulation.of(fold["train"], users, traffic, seed)
    log = clicks.Log.of(made.columns, session="session")
    estimated, truth = clicks.estimate(log), made.examination()
    of_positions = {"auto": errors(estimated, truth)}
    try:
        of_positions["pbm"] = errors(clicks.estimate(log, "pbm"), truth)
    except ValueError:  # no item was at two positions
        of_positions["pbm"] = [np.nan, np.nan]
    held_out = [*fold["vali"], *fold["test"]]
    return {
        "model": estimated.method,
        "propensities": of_positions,
        "values": values(made, log, estimated),
        "lists": [one.query_id for one in held_out],
        "ndcg": {
            name: [ndcg(one.labels, scorer(one.features)) for one in held_out]
            for name, scorer in rankers(made, log, estimated)
        },
    }


def ndcg(labels: np.ndarray, scores: np.ndarray) -> float:
    """NDCG@10 of a list, 0 without a relevant item."""
    gains = 2.0**labels - 1.0
    discounts = 1.0 / np.log2(np.arange(len(gains[:10])) + 2.0)
    best = np.sort(gains)[::-1][:10] @ discounts
    return float(gains[np.argsort(-scores, kind="stable")][:10] @ discounts / max(best, 1e-9))


def by_list(found: Sequence[Found], name: str) -> np.ndarray:
    """NDCG of a ranker in each list, the mean over simulations."""
    values: dict[str, list[float]] = {}
    for one in found:
        for query, value in zip(one["lists"], one["ndcg"][name], strict=True):
            values.setdefault(query, []).append(value)
    return np.array([np.mean(values[query]) for query in sorted(values)])


def different(pairs: dict[str, np.ndarray]) -> dict[str, str]:
    """Mean of the differences of each row, its interval, and a star if it is significant."""
    p = holm(t_test(np.stack([*pairs.values()], axis=1)))
    ends = map(interval, pairs.values())
    return {
        name: f"{x.mean():+.4f}{'*' if p < 0.05 else ''}: {low:+.4f} to {high:+.4f}"
        for (name, x), (low, high), p in zip(pairs.items(), ends, p, strict=True)
    }


def of_propensities(found: Sequence[Found]) -> dict[str, str]:
    """Cells of the first table."""
    models = [one["model"] for one in found]
    cells = {"named": ", ".join(f"{x} {models.count(x)}" for x in dict.fromkeys(models))}
    for name in ("auto", "pbm"):
        error, covers = np.mean([one["propensities"][name] for one in found], axis=0)
        cells[f"`{name}`: error; coverage"] = f"{error:.2f}; {covers:.2f}".replace("nan", "-")
    return cells


def of_values(found: Sequence[Found]) -> dict[str, str]:
    """Cells of the second table."""
    cells = {}
    for name in ORDERS if found[0]["values"] else ():
        true, error, value, low, high = np.array([one["values"][name] for one in found]).T
        middle = (low + high) / 2.0
        covers = np.abs(true - middle) <= np.hypot((high - low) / 2.0, 1.96 * error)
        cells[f"{name}: true; error; coverage; above, below 0"] = (
            f"{true.mean():+.3f}; {(value - true).mean():+.3f}; {covers.mean():.2f}; "
            f"{(low > 0.0).sum()}, {(high < 0.0).sum()} of {len(found)}"
        )
    return cells


def of_rankers(found: Sequence[Found]) -> dict[str, str]:
    """Cells of the third table."""
    names = dict.fromkeys(name for one in found for name in one["ndcg"])
    return {x: f"{by_list(found, x).mean():.4f}" for x in names}


def print_table(head: str, rows: Mapping[str, Mapping[str, str]]) -> None:
    """Prints a table of rows, the first of which names all columns."""
    columns = dict.fromkeys(name for cells in rows.values() for name in cells)
    print(f"| {' | '.join([head, *columns])} |\n|{'---|' * (len(columns) + 1)}")
    for name, cells in rows.items():
        print(f"| {' | '.join([name, *(cells.get(x, '-') for x in columns)])} |")
    print()


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=3, help="simulations, in folds by turns")
    parser.add_argument("--traffic", nargs="+", choices=SESSIONS, default=list(SESSIONS))
    users_of_all = [*click_users.USERS]
    parser.add_argument("--users", nargs="+", choices=users_of_all, default=users_of_all)
    parser.add_argument("--results", type=pathlib.Path, required=True, help="what is kept")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    data = folds(options.data)
    cells: dict[tuple[str, str], list[Found]] = {}
    warnings.simplefilter("ignore", UserWarning)
    for seed in range(options.seeds):
        for traffic in options.traffic:
            for users in options.users:
                kept = options.results / f"{users}-{traffic}-{seed}.json"
                if not kept.exists():
                    found = judged(data[seed % len(data)], users, traffic, seed)
                    kept.write_text(json.dumps(found))
                cells.setdefault((traffic, users), []).append(json.loads(kept.read_text()))
                print(kept.name, file=sys.stderr, flush=True)
    named = {f"{traffic}, {users}": found for (traffic, users), found in cells.items()}
    of_all = {
        f"{traffic}, all": [x for (t, _), found in cells.items() if t == traffic for x in found]
        for traffic in options.traffic
    }
    print_table("users", {x: of_propensities(y) for x, y in (named | of_all).items()})
    print_table("users", {x: of_values(y) for x, y in (named | of_all).items()})
    print_table("users", {x: of_rankers(y) for x, y in named.items()})
    columns = {}
    for other in (NAIVE, POSITION):
        columns[f"{DEFAULT} - {other}"] = {
            name: text
            for traffic in options.traffic
            for name, text in different(
                {
                    name: by_list(found, DEFAULT) - by_list(found, other)
                    for name, found in named.items()
                    if name.startswith(traffic)
                }
            ).items()
        }
    print_table("users", {x: {c: y[x] for c, y in columns.items()} for x in named})


if __name__ == "__main__":
    main()
