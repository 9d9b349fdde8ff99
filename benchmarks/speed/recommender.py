"""Time and memory of a recommender, by number of interactions, which are made.

    python -m benchmarks.speed.recommender [--rows 20000 100000 400000]

Each user has 100 interactions, and there are as many items as users. Half of the steps are to the
next item, the others to one by popularity (Zipf). For each number of rows, one process reads a
Parquet file, fits a `recommend.Recommender` with its default settings and one thread, saves it, and
writes the ten best items of all users to a file. The table has CPU seconds and the peak memory of
each part.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.speed import memory

LENGTH = 100  # interactions of a user
K = 10


def make(path: Path, rows: int) -> None:
    """Writes a table of interactions."""
    random = np.random.default_rng(0)
    users = items = rows // LENGTH
    shape = users, LENGTH
    shares = 1.0 / np.arange(1.0, items + 1.0)
    jumps = random.choice(items, shape, p=shares / shares.sum())
    is_jump = random.random(shape) < 0.5
    is_jump[:, 0] = True
    # the item of the last jump, and a step for each time since
    places = np.arange(LENGTH) * np.ones((users, 1), int)
    since = np.maximum.accumulate(np.where(is_jump, places, 0), axis=1)
    taken = (np.take_along_axis(jumps, since, 1) + places - since) % items
    columns = np.repeat(np.arange(users), LENGTH), taken.ravel(), places.ravel()
    parquet.write_table(pa.table([*columns], names=["user", "item", "time"]), path)


def measure(path: Path) -> None:
    """Fits, saves and recommends in this process, and prints seconds and MiB of each."""
    from tfrank_sel.recommend import Recommender

    recommender = Recommender(num_threads=1)

    def step(run: Callable[[], Any]) -> tuple[float, float]:
        memory.start_peak()
        began = time.process_time()
        run()
        return time.process_time() - began, memory.peak()

    fit = step(lambda: recommender.fit(str(path)))
    save = step(lambda: recommender.save(path.with_name("recommender")))
    write = step(lambda: recommender.write(path.with_name("items.parquet"), K))
    print(*fit, *save, *write)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[20_000, 100_000, 400_000])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure)
        return
    parts = (f"{part}{unit}" for part in ("fit", "save", "recommend") for unit in (", s", ", MiB"))
    print(f"| made interactions | users, items | {' | '.join(parts)} |\n{'|---' * 8}|")
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "taken.parquet"
            make(path, rows)
            command = [sys.executable, "-m", __spec__.name, "--measure", str(path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        values = " | ".join(f"{float(x):,.0f}" for x in done.stdout.split())
        print(f"| {rows:,} | {rows // LENGTH:,} | {values} |", flush=True)


if __name__ == "__main__":
    main()
