"""Soak test: memory of a very long training.

    python -m benchmarks.robustness.soak [--minutes 30] [--bound 1.0]

Trains a scorer from packed records, in batches of several widths, each compiled for itself; after
every 200 steps it evaluates, predicts and saves, and notes the resident memory of the process.
Prints the slope after the first quarter of the steps, in which pools fill; status 1 if memory grows
by more than BOUND MiB in 1,000 steps.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import rich.progress
import tensorflow as tf

from tfrank_sel import data, links, losses, metrics, models

SPEC = data.FeatureSpec(num_features=20)
EDGES = (10, 40, 100, 200)
BATCH_SIZE = 16
STEPS = 200  # between two looks


def resident() -> float:
    """The resident memory of this process, in MiB."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def write(path: Path, seed: int) -> list[Path]:
    """Writes lists of 1 to 200 items."""
    with tf.io.TFRecordWriter(str(path)) as file:
        for found in data.synthetic.lists(800, num_features=SPEC.num_features, seed=seed):
            file.write(data.packed.serialize(found.features, SPEC, labels=found.labels))
    return [path]


def train(folder: Path, seconds: float) -> np.ndarray:
    """Trains for so long; returns steps, seconds and MiB of each look."""
    shuffled = {"shuffle_buffer": 256, "seed": 0, "repeat": True}
    read = {"batch_size": BATCH_SIZE, "bucket_edges": EDGES}
    learned = data.batches(write(folder / "train", 0), SPEC, **read, **shuffled)
    files = write(folder / "held_out", 1)
    count = data.batching.num_batches(data.list_sizes(files, SPEC), **read)
    held_out = data.batches(files, SPEC, **read)
    held_out = held_out.apply(tf.data.experimental.assert_cardinality(count))
    zeros, ones = np.zeros(SPEC.num_features), np.ones(SPEC.num_features)
    model = models.Scorer(zeros, ones, hidden_units=[64, 32], dropout=0.1)
    model.compile(
        optimizer="adam",
        loss=losses.SelectiveSoftmaxLoss(links.Sigmoid(shift=2.0)),
        metrics=[metrics.NDCG(k=10), metrics.MRR(), metrics.MAP(k=10)],
        jit_compile=True,
    )
    looks: list[tuple[float, ...]] = []
    began, passed = time.perf_counter(), 0.0
    with rich.progress.Progress() as bar:
        task = bar.add_task("training", total=seconds)
        while passed < seconds:
            model.fit(learned, steps_per_epoch=STEPS, verbose=0)
            model.evaluate(held_out, verbose=0)
            model.predict(held_out.map(lambda features, labels: features), verbose=0)
            model.save(folder / "model.keras")
            passed = time.perf_counter() - began
            looks.append(((len(looks) + 1) * STEPS, passed, resident()))
            bar.update(task, completed=passed, description=f"{looks[-1][2]:,.0f} MiB")
    return np.array(looks)


def main() -> None:
    """Prints the slope."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--bound", type=float, default=1.0, help="MiB in 1,000 steps")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        looks = train(Path(folder), 60 * options.minutes)
    settled = looks[len(looks) // 4 :]
    slope = 1000 * np.polyfit(settled[:, 0], settled[:, 2], 1)[0]
    quarters = [f"{part.mean():,.0f}" for part in np.array_split(looks[:, 2], 4)]
    print(f"{looks[-1, 0]:,.0f} steps in {looks[-1, 1] / 60:.0f} minutes")
    print(f"MiB by quarter: {' '.join(quarters)}; slope {slope:+.3f} MiB in 1,000 steps")
    if slope > options.bound:
        sys.exit(f"memory grows by more than {options.bound} MiB in 1,000 steps")


if __name__ == "__main__":
    main()
