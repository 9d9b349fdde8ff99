"""Scores and time of rankers in ONNX Runtime, beside their SavedModels.

    python -m benchmarks.quality.engines [--lists 100000] [--rounds 300]

The kinds of models are those of `tests/rankers.py`, with random weights. Each scores
random lists of 1 to 40 items with tiny, huge, equal, missing and unknown values. The difference is
the largest of all scores, relative for scores beyond 1. The times are medians for one list of 100
items, on one thread of a process in which both take turns. The sizes are those of the installed
files.
"""

import argparse
import importlib.metadata
import os
import pathlib
import tempfile
from collections.abc import Callable, Mapping

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import onnxruntime
import tensorflow as tf

from benchmarks.speed.interleaved import machine, timings, use_one_core
from benchmarks.speed.rows import digits
from tests import rankers as trial
from tfrank_sel import data, export, models
from tfrank_sel.data import typed
from tfrank_sel.pipelines.export.requests import difference

PER_BATCH, LONGEST, TIMED = 200, 40, 100  # lists, items
USERS, ITEMS = 1000, 5000

Arrays = dict[str, np.ndarray]
Runner = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def towers(random: np.random.Generator) -> keras.Model:
    return models.TwoTower(USERS, ITEMS, num_factors=64)


KINDS = {**trial.KINDS, "two towers": towers}
OF_TOWERS = data.ListFeatures(
    items={"item": tf.io.FixedLenFeature([], tf.int64)},
    context={"user": tf.io.FixedLenFeature([], tf.int64)},
)


def lists(kind: str, random: np.random.Generator, batch: int, size: int) -> Arrays:
    """Inputs of the signature `predict` for random lists, and their mask."""
    if kind == "two towers":
        item, mask = random.integers(0, ITEMS, [batch, size]), np.ones([batch, size], bool)
        return {"user": random.integers(0, USERS, batch), "item": item, "mask": mask}
    if kind == "types":
        values, mask = trial.typed_lists(random, batch, size)
        specs = typed.structure(trial.TYPES)
        return {**{specs[name].name: x for name, x in values.items()}, "mask": mask}
    values, mask = trial.lists(random, batch, size)
    return {"features": values, "mask": mask}


def runners(kind: str, random: np.random.Generator, folder: pathlib.Path) -> tuple[Runner, Runner]:
    """Exports a model twice, and returns its scores in ONNX Runtime and by TensorFlow."""
    model = KINDS[kind](random)
    if kind == "two towers":
        model({"user": np.zeros([1], np.int64), "item": np.zeros([1, 1], np.int64)})  # builds it
    else:
        values, mask = (trial.typed_lists if kind == "types" else trial.lists)(random, 2, 3)
        trial.expected(model, values, mask)  # builds it
        trial.shaken(model, random)
    packed = data.FeatureSpec(num_features=trial.FEATURES)
    spec = {"two towers": OF_TOWERS, "types": trial.TYPES}.get(kind, packed)
    export.onnx(model, folder / "model.onnx")
    export.export(model, spec, folder / "saved_model")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 3
    session = onnxruntime.InferenceSession(folder / "model.onnx", options)
    loaded = tf.saved_model.load(str(folder / "saved_model"))
    predict = loaded.signatures["predict"]
    taken = {x.name for x in (*session.get_inputs(), *session.get_overridable_initializers())}

    def in_onnx_runtime(inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        sent = {name: x for name, x in inputs.items() if name in taken}
        return session.run(["scores"], sent)[0]

    def by_tensorflow(inputs: Mapping[str, np.ndarray], kept: object = loaded) -> np.ndarray:
        sent = {name: tf.constant(x) for name, x in inputs.items()}
        return predict(**sent)["scores"].numpy()

    return in_onnx_runtime, by_tensorflow


def row(kind: str, count: int, rounds: int) -> str:
    """The row of a kind of models."""
    keras.utils.set_random_seed(1)
    random, worst = np.random.default_rng(1), 0.0
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = runners(kind, random, pathlib.Path(folder))
    for _ in range(0, count, PER_BATCH):
        inputs = lists(kind, random, PER_BATCH, random.integers(1, LONGEST + 1))
        mask = inputs["mask"]
        worst = max(worst, difference(ours(inputs)[mask], theirs(inputs)[mask]))
    one = lists(kind, random, 1, TIMED)
    one["mask"] = np.ones([1, TIMED], bool)
    taken = timings({"ours": lambda: ours(one), "theirs": lambda: theirs(one)}, rounds)
    here, there = (1e3 * taken[x].seconds for x in ("ours", "theirs"))
    times = f"{digits(here)} ms | {digits(there)} ms | {digits(there / here, 2)}"
    return f"| {kind} | {worst:.1g} | {times} |"


def mebibytes(distribution: str) -> float:
    """The size of the files of an installed distribution."""
    files = importlib.metadata.files(distribution) or []
    return sum(file.size or 0 for file in files) / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", type=int, default=100_000, help="random lists of each model")
    parser.add_argument("--rounds", type=int, default=300, help="timed calls of each")
    options = parser.parse_args()
    use_one_core()
    print(machine(), end="\n\n")
    print("| model | largest difference | ONNX Runtime | SavedModel | SavedModel / ONNX Runtime |")
    print("|---|---|---|---|---|")
    for kind in KINDS:
        print(row(kind, options.lists, options.rounds), flush=True)
    print("\n| runtime | installed |\n|---|---|")
    for name in ("onnxruntime", "tensorflow"):
        print(f"| {name} {importlib.metadata.version(name)} | {mebibytes(name):,.0f} MiB |")


if __name__ == "__main__":
    main()
