"""Quality and CPU time of ensembles of networks and trees, by which the default was chosen.

    python -m benchmarks.quality.ensembles train --data MQ2008 MSLR --results results [--seeds 0]
    python -m benchmarks.quality.ensembles judge --data MQ2008 MSLR --results results [--seeds 0]

`--data` are folders as in `benchmarks.quality.equal`. `train` trains each member once for each fold
and seed, and writes its scores of the validation and test lists and its CPU seconds, if it has none
yet. `judge` adds up the scores of members, standardised in each list as `models.Ensemble` does.
A row has the seeds with which all of its members were trained.

The first table has the CPU seconds of a fold, mean over sets, without reading and preparing its
lists; NDCG@10 of the validation lists minus that of the default, for choosing a default (the same
lists stop the members, which favours a single network); and NDCG@10 of the test lists minus that of
LightGBM with the same features and the best of four settings. Both are means over sets by a
random-effects model, as in `benchmarks.quality.equal`, with p alone, p corrected for the number of
rows (Holm), and the lowest set. The second has the default minus models of other packages, the
third NDCG@10 of the test lists of each set. The last has other ways to add up the members of the
default, minus the default: mean ranks, mean shares by a softmax of the standardised scores, and
weights with the best NDCG@10 of validation lists: of each half of them for the other, of all for
the test lists; also half way from these to equal weights.
"""

import argparse
import collections
import functools
import itertools
import pathlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.special
import scipy.stats

from benchmarks.quality import default, equal, selection, trees
from benchmarks.quality.data import Lists, folds
from tfrank_sel import losses
from tfrank_sel.pipelines.candidates import Candidate, Settings, Trees
from tfrank_sel.training.trees import LAMBDARANK

PARTS = ("vali", "test")
NETWORKS = {
    "network Softmax": losses.SoftmaxLoss(),
    "network RGCross": losses.RGCrossLoss(),
    "network Lambda": losses.LambdaLoss(),
}
FORESTS = {
    "trees RGCross": losses.RGCrossLoss(),
    "trees square": losses.MeanSquaredLoss(),
    "trees lambdarank": LAMBDARANK,
}
# of each member: its seed within the thousand of a training
OWN_SEEDS = dict(zip((*NETWORKS, *FORESTS), (10, 11, 12, 1, 3, 0), strict=True))


def _tuned(fit: trees.Fit, fold: dict[str, Lists], seed: int) -> dict[str, Sequence[np.ndarray]]:
    """Scores of a package with the features of the networks, and the best of four settings."""
    scores = trees.train(fit, [fold], within=True, seeds=[seed])
    return {"test": scores[0, seed]}


def _lightgbm(seed: int, features: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> Any:
    import lightgbm

    model = lightgbm.LGBMRanker(n_jobs=1, verbose=-1, random_state=seed)
    return model.fit(features, labels, group=np.bincount(queries))


def _xgboost(seed: int, features: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> Any:
    import xgboost

    return xgboost.XGBRanker(n_jobs=1, random_state=seed).fit(features, labels, qid=queries)


def _catboost(seed: int, features: np.ndarray, labels: np.ndarray, queries: np.ndarray) -> Any:
    import catboost

    model = catboost.CatBoostRanker(
        thread_count=1, random_seed=seed, allow_writing_files=False, logging_level="Silent"
    )
    return model.fit(features, labels, group_id=queries)


def _library(
    fit: Callable[..., Any], fold: dict[str, Lists], seed: int
) -> dict[str, Sequence[np.ndarray]]:
    """Scores of a package without any setting, by the numbers alone."""
    features, labels, sizes = trees.rows(fold["train"], within=False)
    model = fit(seed, features, labels, np.repeat(np.arange(len(sizes)), sizes))
    return {part: [model.predict(x.features) for x in fold[part]] for part in PARTS}


TUNED = "LightGBM, best of four settings"
# from a fold and a seed to scores of its parts
Rival = Callable[[dict[str, Lists], int], dict[str, Sequence[np.ndarray]]]
LIBRARIES: Mapping[str, Rival] = {
    "LightGBM, defaults": functools.partial(_library, _lightgbm),
    "XGBoost, defaults": functools.partial(_library, _xgboost),
    "CatBoost, defaults": functools.partial(_library, _catboost),
}
RIVALS: Mapping[str, Rival] = {
    TUNED: functools.partial(_tuned, trees.lightgbm),
    "XGBoost, best of four settings": functools.partial(_tuned, trees.xgboost),
    **LIBRARIES,
}
SOFTMAX, RG, LAMBDA = NETWORKS
RG_TREES, SQUARE, RANK = FORESTS


def _equal(*names: str) -> Mapping[str, int]:
    return dict.fromkeys(names, 1)


# shares of members by name
DEFAULT = "network RGCross, half; trees RGCross, square (default)"
CHOICES: dict[str, Mapping[str, int]] = {
    DEFAULT: {RG: 2, RG_TREES: 1, SQUARE: 1},
    "three networks; trees lambdarank, half (earlier)": {SOFTMAX: 1, RG: 1, LAMBDA: 1, RANK: 3},
    "networks Softmax, RGCross; trees square (earlier)": _equal(SOFTMAX, RG, SQUARE),
    **{name: {name: 1} for name in (*LIBRARIES, *FORESTS, *NETWORKS)},
    "three networks": _equal(*NETWORKS),
    "trees RGCross, square (low)": _equal(RG_TREES, SQUARE),
    "trees RGCross, square, lambdarank": _equal(*FORESTS),
    "network RGCross; trees RGCross, square": _equal(RG, RG_TREES, SQUARE),
    "network RGCross; trees square": _equal(RG, SQUARE),
    "network RGCross, half; trees square, lambdarank": {RG: 2, SQUARE: 1, RANK: 1},
    "network RGCross; trees square, lambdarank": _equal(RG, SQUARE, RANK),
    "networks Softmax, RGCross; trees RGCross, square": _equal(SOFTMAX, RG, RG_TREES, SQUARE),
    "networks RGCross, Lambda; trees square": _equal(RG, LAMBDA, SQUARE),
    "three networks; three models of trees (high)": _equal(*NETWORKS, *FORESTS),
}
# a fold, a seed and the name of a member
Key = tuple[int, int, str]
# standardised scores of all members, `[members, items]` of each list
Members = Sequence[np.ndarray]


def train(data: Sequence[dict[str, Lists]], folder: pathlib.Path, seeds: Sequence[int]) -> None:
    """Writes the scores and CPU seconds of the members that have none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, fold in enumerate(data):
        keys = [(number, *x) for x in itertools.product(seeds, OWN_SEEDS)]
        if missing := [key for key in keys if not _path(folder, key).exists()]:
            with default.trainer(fold) as trained:
                for key in missing:
                    _train(trained, fold, key, _path(folder, key))
        for seed, name in itertools.product(seeds, RIVALS):
            path = _path(folder, (number, seed, name))
            if not path.exists():
                began = time.process_time()
                scores = RIVALS[name](fold, seed)
                _save(path, time.process_time() - began, **scores)


def _train(trained: default.Train, fold: dict[str, Lists], key: Key, path: pathlib.Path) -> None:
    _, seed, name = key
    candidate = (
        Candidate(NETWORKS[name])
        if name in NETWORKS
        else Candidate([], trees=Trees([FORESTS[name]], {"num_threads": 1}))
    )
    began = time.process_time()
    model = trained(candidate, Settings(seed=1000 * seed + OWN_SEEDS[name])).model
    seconds = time.process_time() - began
    _save(path, seconds, **{part: default.scores(model, fold[part]) for part in PARTS})


def _path(folder: pathlib.Path, key: Key) -> pathlib.Path:
    return folder / f"{' '.join(map(str, key))}.npz"


def _save(path: pathlib.Path, seconds: float, **scores: Sequence[np.ndarray]) -> None:
    parts = {part: np.concatenate(of_lists) for part, of_lists in scores.items()}
    np.savez(path, seconds=seconds, **parts)


def _trained(
    data: Sequence[dict[str, Lists]],
    folder: pathlib.Path,
    seeds: Sequence[int],
    names: Iterable[str],
) -> Sequence[tuple[int, int]]:
    """Each fold, with each of the seeds of all members."""
    numbers = range(len(data))
    keys = [[(number, seed) for number in numbers] for seed in seeds]
    files = [[_path(folder, (*x, name)) for x in of_seed for name in names] for of_seed in keys]
    is_whole = [all(path.exists() for path in of_seed) for of_seed in files]
    return [x for of_seed in itertools.compress(keys, is_whole) for x in of_seed]


def _members(lists: Lists, paths: Sequence[pathlib.Path], part: str) -> Members:
    ends = np.cumsum([len(x.labels) for x in lists])[:-1]
    scores = np.stack([np.load(path)[part].astype(float) for path in paths])

    def standardised(x: np.ndarray) -> np.ndarray:
        spread = x.std(axis=1, keepdims=True)
        return (x - x.mean(axis=1, keepdims=True)) / np.where(spread > 0.0, spread, 1.0)

    return [standardised(x) for x in np.split(scores, ends, axis=1)]


def _values(
    data: Sequence[dict[str, Lists]],
    folder: pathlib.Path,
    seeds: Sequence[int],
    shares: Mapping[str, int],
    part: str,
    way: "Way | None" = None,
) -> equal.Values:
    """NDCG@10 of an ensemble, by seed and list of a part."""
    scores: selection.Scores = {}
    for number, seed in _trained(data, folder, seeds, shares):
        paths = [_path(folder, (number, seed, name)) for name in shares]
        members = _members(data[number][part], paths, part)
        if way is None:
            scores[number, seed] = [np.array([*shares.values()]) @ x for x in members]
        else:
            lists = data[number]["vali"]
            validation = lists, _members(lists, paths, "vali")
            scores[number, seed] = way(validation, members if part == "test" else None)
    return equal.ndcg([{"test": fold[part]} for fold in data], scores)


# from validation lists with their members, and members of other lists, if those are meant
Way = Callable[[tuple[Lists, Members], Members | None], list[np.ndarray]]


def _summed(of_members: Callable[..., np.ndarray]) -> Way:
    """Sums what a function makes of the scores of each member."""

    def way(validation: tuple[Lists, Members], others: Members | None) -> list[np.ndarray]:
        return [of_members(x, axis=1).sum(0) for x in others or validation[1]]

    return way


def _weighted(share: float) -> Way:
    """Weights in sixths with the best NDCG@10 of validation lists, as far as the share says."""

    def scores(lists: Lists, own: Members, others: Members) -> list[np.ndarray]:
        count = len(own[0])
        grid = [np.array(x) / 6 for x in itertools.product(range(7), repeat=count) if sum(x) == 6]
        best = np.argmax(selection.ndcg(lists, [[weights @ x for x in own] for weights in grid]))
        return [(share * grid[best] + (1.0 - share) / count) @ x for x in others]

    def way(validation: tuple[Lists, Members], others: Members | None) -> list[np.ndarray]:
        lists, own = validation
        if others is not None:
            return scores(lists, own, others)
        halves = [scores(lists[1 - i :: 2], own[1 - i :: 2], own[i::2]) for i in range(2)]
        return [halves[place % 2][place // 2] for place in range(len(lists))]

    return way


WAYS = {
    "mean ranks": _summed(scipy.stats.rankdata),
    "mean shares by a softmax": _summed(scipy.special.softmax),
    "weights by validation lists": _weighted(1.0),
    "half way to these weights": _weighted(0.5),
}
# of each set
Gaps = Sequence[Mapping[str, equal.Gap]]


def tables(
    paths: Sequence[pathlib.Path],
    results: pathlib.Path,
    seeds: Sequence[int],
) -> str:
    """Returns the tables of the ensembles."""
    gaps: dict[str, list[Mapping[str, equal.Gap]]] = collections.defaultdict(list)
    seconds: dict[str, list[float]] = {name: [] for name in CHOICES}
    counts: dict[str, int] = {}
    levels: list[Mapping[str, float]] = []
    for path in paths:
        data, folder = folds(path), results / path.name
        for name, shares in CHOICES.items():
            keys = _trained(data, folder, seeds, shares)
            counts[name] = len(keys) // len(data)
            files = [_path(folder, (*key, member)) for key in keys for member in shares]
            seconds[name].append(sum(float(np.load(x)["seconds"]) for x in files) / len(keys))
        values = functools.partial(_values, data, folder, seeds)
        theirs = {name: values({name: 1}, "test") for name in RIVALS}
        for part in PARTS:
            own = {name: values(shares, part) for name, shares in CHOICES.items()}
            gaps[part].append(_minus(theirs[TUNED] if part == "test" else own[DEFAULT], own))
            ways = {name: values(CHOICES[DEFAULT], part, way) for name, way in WAYS.items()}
            gaps[f"{part} of ways"].append(_minus(own[DEFAULT], ways))
        ours = {DEFAULT: own[DEFAULT]}
        gaps["others"].append({name: _minus(x, ours)[DEFAULT] for name, x in theirs.items()})
        levels.append({name: x.mean() for name, (x, _) in {TUNED: theirs[TUNED], **own}.items()})
    return "\n\n".join(
        [
            _first(gaps, seconds, counts),
            _others(gaps["others"]),
            _levels(paths, levels),
            _ways(gaps),
        ]
    )


def _minus(base: equal.Values, values: Mapping[str, equal.Values]) -> Mapping[str, equal.Gap]:
    return equal.compared({equal.BASE: base, **values})


def _of(name: str, gaps: Gaps) -> tuple[str, float, str]:
    """The mean over sets with its interval, p, and the lowest of the sets."""
    gap, _ = equal.pooled([x[name] for x in gaps])
    interval = f"{gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"
    return interval, gap.p, f"{min(x[name].mean for x in gaps):+.4f}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first, *others = (f"| {' | '.join(x)} |" for x in (head, *rows))
    return "\n".join([first, f"|{'---|' * len(head)}", *others])


def _first(
    gaps: Mapping[str, Gaps], seconds: Mapping[str, Sequence[float]], counts: Mapping[str, int]
) -> str:
    p_values = equal.corrected({name: _of(name, gaps["test"])[1] for name in seconds})
    rows = []
    for name, of_sets in seconds.items():
        validation = "" if name == DEFAULT else _of(name, gaps["vali"])[0]
        interval, p, lowest = _of(name, gaps["test"])
        cells = [str(counts[name]), f"{np.mean(of_sets):.1f}", validation, interval]
        rows.append([name, *cells, f"{p:.3f}", f"{p_values[name]:.3f}", lowest])
    ends = "p, alone", "p", "lowest set"
    return _table(
        ["models", "seeds", "CPU s", "validation - default's", "test - LightGBM's", *ends], rows
    )


def _others(gaps: Gaps) -> str:
    p_values = equal.corrected({name: _of(name, gaps)[1] for name in gaps[0]})
    rows = []
    for name in gaps[0]:
        interval, _, lowest = _of(name, gaps)
        rows.append([name, interval, f"{p_values[name]:.3f}", lowest])
    return _table(["other models", "the default - its NDCG@10 (95 %)", "p", "lowest set"], rows)


def _levels(paths: Sequence[pathlib.Path], levels: Sequence[Mapping[str, float]]) -> str:
    rows = [[name, *(f"{x[name]:.4f}" for x in levels)] for name in levels[0]]
    return _table(["test", *(x.name for x in paths)], rows)


def _ways(gaps: Mapping[str, Gaps]) -> str:
    rows = [[name, *(_of(name, gaps[f"{x} of ways"])[0] for x in PARTS)] for name in WAYS]
    return _table(["members of the default", "validation - sum's", "test - sum's"], rows)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stage", choices=["train", "judge"])
    parser.add_argument("--data", type=pathlib.Path, nargs="+", required=True, help="folders")
    parser.add_argument("--results", type=pathlib.Path, required=True, help="folder of scores")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of training")
    options = parser.parse_args(given)
    if options.stage == "judge":
        print(tables(options.data, options.results, options.seeds))
        return
    for path in options.data:
        train(folds(path), options.results / path.name, options.seeds)


if __name__ == "__main__":
    main()
