"""CPU time of training by several workers of one machine, compared with one process.

    python -m benchmarks.speed.training_workers [--workers 2] [--lists 4096] [--rounds 3]

The network is that of `models.ListScorer`, trained by `learning.training` with `RGCrossLoss` on
synthetic lists of MSLR's shape, 120 documents of 136 features, in batches of 64. The command prints
a Markdown table: CPU time of all workers together, user and system, for a list, and the lists
trained on in a second. Both are of the epochs after the first, which compiles, with validation on
as many lists as an eighth of those. One process and several are measured in turn; the table holds
the medians.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time
from collections.abc import Sequence

import numpy as np

from benchmarks.speed import local_group, training_step
from benchmarks.speed.interleaved import machine
from tfrank_sel import distribution, losses, models
from tfrank_sel.pipelines.candidates import Candidate, Settings
from tfrank_sel.training import fitting
from tfrank_sel.training.callbacks import Hooks
from tfrank_sel.training.lists import PreparedLists

SETTINGS = Settings(epochs=4, batch_size=64)
LIST_SIZE, NUM_FEATURES = 120, 136


def train(workers: distribution.Group, lists: int, folder: str) -> list[tuple[float, float]]:
    """Trains on each worker; returns CPU time of all and time at the end of each epoch."""
    times: list[tuple[float, float]] = []

    def on_epoch(epoch: object) -> None:
        spent = workers.total(np.array([time.process_time()]))
        times.append((spent.item(), time.perf_counter()))

    place = pathlib.Path(folder) / "prepared"
    size = SETTINGS.batch_size
    made = (
        training_step.made(LIST_SIZE, NUM_FEATURES, count, size)
        for count in (lists, max(size, lists // 8))
    )
    preparation = models.Preparation([0.0] * NUM_FEATURES, [1.0] * NUM_FEATURES)
    candidate = Candidate(losses.RGCrossLoss())
    with PreparedLists(*made, SETTINGS, place, workers) as prepared:
        fitting.train(candidate, preparation, prepared, Hooks(on_epoch))
    return times


def measure(count: int, lists: int) -> tuple[float, float]:
    """Trains by several processes; returns CPU seconds and seconds for a list."""
    with tempfile.TemporaryDirectory() as folder:
        module = [__spec__.name, "--lists", str(lists), "--join", folder]
        (status, text, errors), *_ = local_group.run(module, count, timeout=3600.0)
    if status:
        raise RuntimeError(errors)
    cpu, seconds = json.loads(text.splitlines()[-1])
    return cpu, seconds


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lists", type=int, default=4096)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--join", help=argparse.SUPPRESS)
    options = parser.parse_args(given)
    if options.join:
        times = train(distribution.CollectiveGroup(), options.lists, options.join)
        trained = options.lists * (len(times) - 1)
        print(json.dumps((np.subtract(times[-1], times[0]) / trained).tolist()))
        return
    counts = (1, options.workers)
    found: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    for _ in range(options.rounds):
        for count in counts:
            found[count].append(measure(count, options.lists))
    print(machine(), "| workers | CPU, ms a list | lists a second |\n|---|---|---|", sep="\n\n")
    for count, measured in found.items():
        cpu, seconds = map(statistics.median, zip(*measured, strict=True))
        print(f"| {count} | {1e3 * cpu:.3f} | {1.0 / seconds:.0f} |")


if __name__ == "__main__":
    main()
