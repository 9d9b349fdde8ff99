"""Quality and CPU time of ensembles of networks and trees, by which the default was chosen.

    python -m benchmarks.quality.ensembles train --data MQ2008 MSLR --results results [--seeds 0]
    python -m benchmarks.quality.ensembles judge --data MQ2008 MSLR --results results [--seeds 0]

`--data` are folders as in `benchmarks.quality.equal`. `train` trains each member once for each fold
and seed, and writes its scores of the validation and test lists and its CPU seconds, if it has none
yet. `judge` adds up the scores of members, standardised in each list as `models.Ensemble` does.

The table has the CPU seconds of a fold, mean over sets, without reading and preparing its lists;
NDCG@10 of the validation lists minus that of the earlier default, for choosing a default; and
NDCG@10 of the test lists minus that of LightGBM with the same features and the best of four
settings. Both are means over sets by a random-effects model, as in `benchmarks.quality.equal`, with
p alone, and the lowest set. A second table has NDCG@10 of the test lists of each set.
"""

import argparse
import itertools
import pathlib
import time
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.quality import default, equal, trees
from benchmarks.quality.data import Lists, folds
from benchmarks.quality.selection import Scores
from tfrank_sel import losses
from tfrank_sel.pipelines.candidates import Candidate, Settings, Trees
from tfrank_sel.training.trees import LAMBDARANK

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


def _tuned(fold: dict[str, Lists], seed: int) -> dict[str, Sequence[np.ndarray]]:
    """Scores of LightGBM with the features of the networks, and the best of four settings."""
    scores = trees.train(trees.lightgbm, [fold], within=True, seeds=[seed])
    return {"test": scores[0, seed]}


def _library(fold: dict[str, Lists], seed: int) -> dict[str, Sequence[np.ndarray]]:
    """Scores of LightGBM without any setting, by the numbers alone."""
    import lightgbm

    columns = {
        part: [np.concatenate([getattr(x, name) for x in lists]) for name in ("features", "labels")]
        for part, lists in fold.items()
    }
    sizes = {part: [len(x.labels) for x in lists] for part, lists in fold.items()}
    model = lightgbm.LGBMRanker(n_jobs=1, verbose=-1, random_state=seed)
    model.fit(*columns["train"], group=sizes["train"])
    return {part: [model.predict(columns[part][0])] for part in ("vali", "test")}


RIVALS = {"LightGBM": _tuned, "LightGBM, defaults": _library}
SOFTMAX, RG, LAMBDA = NETWORKS
RG_TREES, SQUARE, RANK = FORESTS
EARLIER = "three networks; trees lambdarank, half (earlier)"


def _equal(*names: str) -> Mapping[str, int]:
    return dict.fromkeys(names, 1)


# shares of members by name
CHOICES: dict[str, Mapping[str, int]] = {
    EARLIER: {SOFTMAX: 1, RG: 1, LAMBDA: 1, RANK: 3},
    **{name: {name: 1} for name in ("LightGBM, defaults", *FORESTS, *NETWORKS)},
    "three networks": _equal(*NETWORKS),
    "trees RGCross, square (low)": _equal(RG_TREES, SQUARE),
    "network RGCross; trees RGCross, square": _equal(RG, RG_TREES, SQUARE),
    "networks Softmax, RGCross; trees square (default)": _equal(SOFTMAX, RG, SQUARE),
    "networks Softmax, RGCross; trees RGCross, square": _equal(SOFTMAX, RG, RG_TREES, SQUARE),
    "networks RGCross, Lambda; trees square": _equal(RG, LAMBDA, SQUARE),
    "three networks; three models of trees (high)": _equal(*NETWORKS, *FORESTS),
}
# a fold, a seed and the name of a member
Key = tuple[int, int, str]


def train(data: Sequence[dict[str, Lists]], folder: pathlib.Path, seeds: Sequence[int]) -> None:
    """Writes the scores and CPU seconds of the members that have none yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, fold in enumerate(data):
        keys = [(number, *x) for x in itertools.product(seeds, OWN_SEEDS)]
        if missing := [key for key in keys if not _path(folder, key).exists()]:
            with default.trainer(fold) as trained:
                for key in missing:
                    _train(trained, fold, key, _path(folder, key))
        for seed, (name, scored) in itertools.product(seeds, RIVALS.items()):
            path = _path(folder, (number, seed, name))
            if not path.exists():
                began = time.process_time()
                scores = scored(fold, seed)
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
    _save(path, seconds, **{part: default.scores(model, fold[part]) for part in ("vali", "test")})


def _path(folder: pathlib.Path, key: Key) -> pathlib.Path:
    return folder / f"{' '.join(map(str, key))}.npz"


def _save(path: pathlib.Path, seconds: float, **scores: Sequence[np.ndarray]) -> None:
    parts = {part: np.concatenate(of_lists) for part, of_lists in scores.items()}
    np.savez(path, seconds=seconds, **parts)


def _values(
    data: Sequence[dict[str, Lists]],
    folder: pathlib.Path,
    seeds: Sequence[int],
    shares: Mapping[str, int],
    part: str,
) -> equal.Values:
    """NDCG@10 of an ensemble, by seed and list of a part."""
    scores: Scores = {}
    for number, fold in enumerate(data):
        ends = np.cumsum([len(x.labels) for x in fold[part]])[:-1]
        for seed in seeds:
            members = [np.load(_path(folder, (number, seed, name)))[part] for name in shares]
            lists = zip(*(np.split(x.astype(float), ends) for x in members), strict=True)
            scores[number, seed] = [
                sum(
                    share * (x - x.mean()) / (x.std() or 1.0)
                    for share, x in zip(shares.values(), of_list, strict=True)
                )
                for of_list in lists
            ]
    return equal.ndcg([{"test": fold[part]} for fold in data], scores)


def tables(paths: Sequence[pathlib.Path], results: pathlib.Path, seeds: Sequence[int]) -> str:
    """Returns the tables of the ensembles."""
    gaps: dict[str, list[Mapping[str, equal.Gap]]] = {"vali": [], "test": []}
    seconds: dict[str, list[float]] = {name: [] for name in CHOICES}
    levels: list[Mapping[str, float]] = []
    for path in paths:
        data, folder = folds(path), results / path.name
        keys = list(itertools.product(range(len(data)), seeds))
        for name, shares in CHOICES.items():
            files = [_path(folder, (*key, member)) for key in keys for member in shares]
            total = sum(float(np.load(file)["seconds"]) for file in files)
            seconds[name].append(total / len(keys))
        for part, base in (("vali", CHOICES[EARLIER]), ("test", {"LightGBM": 1})):
            values = {name: _values(data, folder, seeds, x, part) for name, x in CHOICES.items()}
            values = {equal.BASE: _values(data, folder, seeds, base, part), **values}
            gaps[part].append(equal.compared(values))
        levels.append({name: of_seeds.mean() for name, (of_seeds, _) in values.items()})
    lines = [
        "| models | CPU s | validation - earlier default's | test - LightGBM's | p | lowest set |",
        f"|{'---|' * 6}",
    ]
    for name in CHOICES:
        test, _ = equal.pooled([x[name] for x in gaps["test"]])
        validation = ""
        if name != EARLIER:
            validation = _interval(equal.pooled([x[name] for x in gaps["vali"]])[0])
        lines.append(
            f"| {name} | {np.mean(seconds[name]):.1f} | {validation} "
            f"| {_interval(test)} | {test.p:.3f} | {min(x[name].mean for x in gaps['test']):+.4f} |"
        )
    lines += [
        "",
        f"| test | {' | '.join(x.name for x in paths)} |",
        f"|{'---|' * (1 + len(paths))}",
    ]
    for name in levels[0]:
        lines.append(f"| {name} | {' | '.join(f'{x[name]:.4f}' for x in levels)} |")
    return "\n".join(lines)


def _interval(gap: equal.Gap) -> str:
    return f"{gap.mean:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"


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
