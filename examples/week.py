"""Trains a ranker each day of a week, by the commands that a scheduler would run.

    python examples/week.py [FOLDER] [--rows 4000]

Each day's clicks are read alone and join those of the days before; the model starts from
yesterday's weights, and must not be worse than the one that is served. Day 3 is a bad day (all
prices are 0), which the gates stop. On day 5 the learning rate is far too high, and the champion
stays. On day 6 the machine goes down amid training, and the run goes on from there.
"""

import argparse
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from tfrank_sel.data import synthetic

CONFIGURATION = """\
[data]
data = "{day}"
query = "session"
label = "clicked"
doc_id = "item"
memory = 4

[features]
price = "number"
rating = {{ type = "number", missing = 3.0 }}
in_stock = "bool"
brand = "category"
device = {{ type = "category", of = "query", encoding = "one_hot" }}
embedding = {{ type = "vector", size = 8 }}

[gates]
zero = "fail"

[model]
trees = false

[training]
loss = "RGCrossLoss"
epochs = 4

[evaluation]
baseline = false

[blessing]
margin = 0.01
slice_margin = inf

[serving]
folder = "{folder}/served"
"""
BAD, WRONG, CRASHED = 3, 5, 6


def day_of(number: int, rows: int) -> pa.Table:
    """Returns the clicks of a day; prices rise by a tenth each day, and there are new brands."""
    table = synthetic.clicks(rows, seed=number)
    sessions = [f"day{number}-{name}" for name in table["session"].to_pylist()]
    prices = table["price"].to_numpy() * 1.1**number
    if number == BAD:
        prices = np.zeros(len(prices))
    new = np.random.default_rng(number).random(len(table)) < 0.05
    brands = np.where(new, f"brand-of-day-{number}", table["brand"].to_numpy(zero_copy_only=False))
    for name, values in (("session", sessions), ("price", prices), ("brand", brands)):
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def command(number: int, folder: pathlib.Path, before: pathlib.Path | None) -> list[str]:
    """Returns the command of a day, and writes what it reads."""
    config, run = folder / f"day{number}.toml", folder / "runs" / str(number)
    config.write_text(CONFIGURATION.format(day=folder / f"day{number}.parquet", folder=folder))
    words = ["run", "--config", str(config), "--output", str(run)]
    if before is not None:
        words += ["--continue-from", str(before)]
    return [sys.executable, "-m", "tfrank_sel.pipelines", *words]


def crash(words: list[str], run: pathlib.Path) -> None:
    """Starts a run, and kills it amid training."""
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while process.poll() is None and not list(run.glob(".train.partial/backup/ours/*.npz")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()


def main() -> None:
    """Goes through the week."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default="week", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=4_000)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    before = None
    for number in range(1, 8):
        parquet.write_table(day_of(number, arguments.rows), folder / f"day{number}.parquet")
        words, run = command(number, folder, before), folder / "runs" / str(number)
        if number == WRONG:
            words += ["--set", "training.learning_rate=3.0", "--set", "training.epochs=1"]
        if number == CRASHED:
            crash(words, run)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        told = done.stderr.strip().splitlines() or done.stdout.strip().splitlines()[-1:]
        print(f"day {number}: status {done.returncode}", *told, sep="\n    ", flush=True)
        if done.returncode == 0:
            before = run
    versions = sorted(path.name for path in (folder / "served" / "ranker").iterdir())
    print(f"served: versions {', '.join(versions)}")


if __name__ == "__main__":
    main()
