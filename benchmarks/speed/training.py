"""Speed and memory of training, compared with boosted trees and a bare Keras MLP.

    python -m benchmarks.speed.training [--lists 500 1000] [--fold FOLDER]

The sets are synthetic, of the shape of MSLR-WEB30K: 136 features, grades 0 to 4, and `--lists`
training lists (18,919 in full) of 40 to 200 documents, 120 on average, with a third as many
validation and test lists. `--fold` adds a folder with `train.txt`, `vali.txt` and `test.txt` in
LETOR format.

Each system trains in its own process, on one core, for a fixed number of passes: epochs or trees.
It is validated after each pass. The best pass is the one that early stopping would choose. The
command prints a Markdown table:

* NDCG@10: validation NDCG@10 of the best pass, by `metrics.NDCG`.
* First, best, all: CPU seconds to the end of the first pass, which includes compilation and
  preparation or binning; of the best pass; and of the last pass.
* Documents a CPU s: in the passes after the first; for a run, in all of its time.
* Data, peak: memory of the process before training, with TensorFlow and the lists; and at most.

The default network gets the mean and variance of each feature, which a run computes. Trees have
their library's default settings, except for the number of leaves.
"""

import argparse
import dataclasses
import functools
import importlib
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from benchmarks.speed import rows, training_systems as systems
from benchmarks.speed.interleaved import machine, use_one_core
from benchmarks.speed.training_systems import FILES, Fitted, Splits
from tfrank_sel.data import ItemList, letor, synthetic

NUM_FEATURES = 136
HEAD = """\
| training lists | trained by | passes | NDCG@10 | first, s | best, s | all, s | documents a CPU s \
| data, MiB | peak, MiB |
|---|---|---|---|---|---|---|---|---|---|"""
FOLD = "fold"
NETWORKS = {
    "default network": systems.network,
    "run of one network": systems.whole_run,
    "run without options": systems.default_run,
    "bare Keras MLP": systems.mlp,
}
TREES = {  # named by their distributions
    "lightgbm, 255 leaves": functools.partial(systems.lightgbm, leaves=255),
    "lightgbm, 31 leaves": functools.partial(systems.lightgbm, leaves=31),
    "xgboost": systems.xgboost,
}
SYSTEMS = NETWORKS | TREES


def web30k_like(count: int) -> Splits:
    """Makes lists of 40 to 200 documents, from the documents of `data.synthetic`."""
    counts = {"train": count, "validation": -(-count // 3), "test": -(-count // 3)}
    sizes = np.random.default_rng(0).integers(40, 201, sum(counts.values()))
    made = synthetic.lists(len(sizes), num_features=NUM_FEATURES, max_list_size=1000)
    lists = recut(made, sizes)
    return {split: list(itertools.islice(lists, number)) for split, number in counts.items()}


def recut(lists: Iterator[ItemList], sizes: Iterable[int]) -> Iterator[ItemList]:
    """Makes lists of other sizes of the same documents, in their order."""
    features, labels = np.zeros([0, NUM_FEATURES], np.float32), np.zeros([0], np.float32)
    for i, size in enumerate(sizes):
        while len(labels) < size:
            more = next(lists)
            features = np.concatenate([features, more.features])
            labels = np.concatenate([labels, more.labels])
        doc_ids = tuple(f"{i}d{j}" for j in range(size))
        yield ItemList(f"{i}", labels[:size].copy(), features[:size].copy(), doc_ids)
        features, labels = features[size:], labels[size:]


def fold(folder: pathlib.Path) -> Splits:
    """Reads the fold of a LETOR set."""
    count = letor.num_features(folder / FILES["train"])
    return {split: list(letor.read(folder / name, count)) for split, name in FILES.items()}


def measure(name: str, lists: str, options: argparse.Namespace) -> None:
    """Trains a system in this process, and prints a line of JSON."""
    use_one_core()
    splits = fold(options.fold) if lists == FOLD else web30k_like(int(lists))
    passes = options.trees if name in TREES else options.epochs
    with tempfile.TemporaryDirectory() as folder:
        fitted = SYSTEMS[name](splits, passes, pathlib.Path(folder))
    print(json.dumps(dataclasses.asdict(fitted)))


def measured(name: str, lists: str, given: Sequence[str]) -> Fitted:
    """Trains a system in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, *given, "--measure", name, lists]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Fitted(**json.loads(done.stdout.splitlines()[-1]))


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--lists", nargs="*", default=["500", "1000"], help="training lists")
    parser.add_argument("--fold", type=pathlib.Path, help="folder of a LETOR set's fold")
    parser.add_argument("--epochs", type=int, default=20, help="epochs of the networks")
    parser.add_argument("--trees", type=int, default=500, help="number of trees")
    parser.add_argument("--only", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if min(options.epochs, options.trees) < 2:
        parser.error("--epochs and --trees must be at least 2: the first pass compiles")
    if options.measure is not None:
        measure(*options.measure, options)
        return
    libraries = {name.split(",")[0] for name in TREES.keys() & set(options.only)}
    imports = {name: functools.partial(importlib.import_module, name) for name in libraries}
    peers, left_out = rows.installed(imports)
    print(", ".join([machine(), *sorted(map(str, peers))]), HEAD, sep="\n\n", flush=True)
    absent = {x.name for x in left_out}
    for lists in [FOLD] * bool(options.fold) + options.lists:
        for name in options.only:
            if name.split(",")[0] not in absent:
                fitted = measured(name, lists, sys.argv[1:] if given is None else given)
                print(f"| {lists} | {name} | {fitted} |", flush=True)
    print("", *left_out, sep="\n")


if __name__ == "__main__":
    main()
