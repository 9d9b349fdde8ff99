"""A shop's log of clicks, from Parquet to a served ranker: seconds of each step.

    python -m benchmarks.shop_log [--sessions 22000] [--output DIR] [--keep-log FILE]

Makes a log of about 300,000 rows as shops have them: lists of 1 to 60 items, queries of which few
have most of the sessions, SKUs with leading zeros, columns with gaps, categories, times and
features of the query. A ranker of noisy scores orders the items; users examine a position in
proportion to its -0.8th power (`benchmarks.quality.click_users` has other users). Then it runs
`tfrank-sel-pipelines run` with `clicks.position` and `clicks.session`, serves the model, and ranks
a list. Ends with status 1 if a command fails.
"""

import argparse
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.first_ranker import _serving
from benchmarks.quality import click_users

BIN = pathlib.Path(sys.executable).parent
QUERIES, ITEMS = 1_500, 5_000
KEYS = {
    "clicks.position": "position",
    "clicks.session": "session",
    "evaluation.baseline": "false",
}


def log(sessions: int, seed: int = 0) -> pa.Table:
    """A table with a row for each item that was shown."""
    random = np.random.default_rng(seed)
    brand, price = random.integers(0, 40, ITEMS), random.lognormal(3.0, 1.0, ITEMS)
    rating = np.where(random.random(ITEMS) < 0.1, np.nan, random.uniform(1.0, 5.0, ITEMS))
    quality = np.nan_to_num(rating, nan=3.0) / 5.0 + random.normal(0.0, 0.2, 40)[brand]
    items = [random.choice(ITEMS, random.integers(8, 120), replace=False) for _ in range(QUERIES)]
    match = [random.beta(2.0, 3.0, len(x)) for x in items]  # of the text
    worth = [
        2.0 * m + quality[x] + random.normal(0.0, 0.4, len(x))
        for m, x in zip(match, items, strict=True)
    ]
    attraction = [1.0 / (1.0 + np.exp(4.0 - 2.0 * x)) for x in worth]
    world = click_users.World(attraction, [0.0 * x for x in attraction])
    scores = [m + 0.5 * quality[x] for m, x in zip(match, items, strict=True)]
    shown = click_users.traffic(scores, sessions, "many", seed, noise=0.15)
    examined = random.random(shown.item.shape) < (1.0 + click_users.RANK) ** -0.8
    clicked = examined & (random.random(shown.item.shape) < world.at(shown)[0])
    rows = click_users.log(shown, clicked)
    query, place = rows["query"], rows["item"]
    first = np.cumsum([0, *map(len, items)])
    item = np.concatenate(items)[first[query] + place]
    minutes = np.sort(random.integers(0, 30 * 1440, sessions))[rows["session"]]
    return pa.table(
        {
            "session": [f"s{x:07d}" for x in rows["session"]],
            "query": [f"query {x}" for x in query],
            "sku": [f"{x:06d}" for x in item],
            "position": rows["position"].astype(np.int16),
            "clicked": rows["click"].astype(bool),
            "text_score": np.concatenate(match)[first[query] + place].astype(np.float32),
            "price": price[item].round(2),
            "rating": pa.array(rating[item], from_pandas=True),
            "brand": pa.array([f"brand {x}" for x in brand[item]]).dictionary_encode(),
            "device": np.array(["phone", "desktop", "tablet"])[rows["session"] % 7 % 3],
            "asked_at": pa.array(minutes * 60, pa.timestamp("s")),
        }
    )


def timed(*command: str) -> tuple[float, float]:
    """Runs a command; returns its seconds by the clock and of CPU."""
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([BIN / command[0], *command[1:]], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - start, cpu


def main() -> None:
    """Makes the log, and prints the seconds of each step."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sessions", type=int, default=22_000)
    parser.add_argument("--keep-log", type=pathlib.Path, help="write the log there, and stop")
    parser.add_argument("--output", type=pathlib.Path, help="folder of the run")
    options = parser.parse_args()
    table = log(options.sessions)
    if options.keep_log:
        parquet.write_table(table, options.keep_log)
        return
    with tempfile.TemporaryDirectory() as folder:
        path, run = (
            pathlib.Path(folder, "log.parquet"),
            options.output or pathlib.Path(folder, "run"),
        )
        parquet.write_table(table, path)
        print(f"{table.num_rows} rows, {table.num_columns} columns")
        names = ("--query", "query", "--doc-id", "sku", "--label", "clicked")
        keys = [f"--set={name}={value}" for name, value in KEYS.items()]
        files = ("--data", str(path), "--output", str(run))
        seconds = {"run": timed("tfrank-sel-pipelines", "run", *files, *names, *keys)}
        serve = f"{BIN}/tfrank-sel-serving serve --model-base-path {run}/serving/ranker"
        with _serving(serve, pathlib.Path(folder), {}):
            one = f"{run}/export/one_query.jsonl"
            seconds["rank"] = timed("tfrank-sel-serving", "rank", "--file", one)
    for name, (wall, cpu) in seconds.items():
        print(f"{name}: {wall:.0f} s by the clock, {cpu:.0f} s of CPU")


if __name__ == "__main__":
    main()
