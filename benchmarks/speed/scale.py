"""Time, memory and disk of the steps of a run, by the size of its files.

    python -m benchmarks.speed.scale [--gigabytes 2 20] [--folder FOLDER] [--processes 2]
        [--engine flink|spark]
    python -m benchmarks.speed.scale --rows 200000 1000000 4000000 [--folder FOLDER]

Makes LETOR files of a gigabyte each, of lists of 120 items and 136 features as MSLR-WEB30K has
them, and runs the steps `ingest`, `analyze` and `train` (one network and loss, one epoch) by their
commands. Beam runs on its local runner in several processes, or on a Flink or Spark of this
machine, which `make test-engines` installs; these skip `train`, which does not use Beam. Prints a
Markdown table: wall-clock and CPU seconds (those of the engine included), lists per CPU second, the
peak memory of the largest process of the step, and the bytes per list that the step writes. FOLDER
needs room for 2.2 times the files.

`--rows` makes Parquet files of that many rows, with 35 numbers and 5 categories, in lists of
20, and runs `ingest` and `analyze` as they run by default: in one process. Beside them stands
LightGBM, which reads the file, bins it and grows 100 trees by `lambdarank`. Times have the imports;
those of a further row, from one size to the next, have none.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.speed import ingest_memory
from tests.engines import engines

FEATURES, LIST_SIZE = 136, 120
LISTS = 7_000  # in a gigabyte
LIST_OF_ROWS = 20
SETTINGS = {
    "training.loss.class": "RGCrossLoss",
    "training.epochs": 1,
    "evaluation.baseline": "false",
    "data.split": "[0.8, 0.1, 0.1]",
    "data.num_features": FEATURES,
}


def files(folder: Path, gigabytes: int) -> list[Path]:
    """Makes the files that are not there yet, and returns all."""
    paths = [folder / f"{number:04d}.txt" for number in range(gigabytes)]
    for number, path in enumerate(paths):
        if not path.exists():
            partial = path.with_suffix(".partial")
            ingest_memory.make(partial, LISTS * LIST_SIZE, LIST_SIZE, FEATURES, LISTS * number)
            partial.rename(path)
    return paths


def used(engine: engines.Engine | None) -> float:
    """Returns the CPU seconds of ended children and of the engine's processes until now."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    sessions = {process.pid for process in engine.started.values()} if engine else set()
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) in sessions:
                ticks += sum(map(int, fields[11:15]))
    return ended.ru_utime + ended.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def step(
    name: str, output: Path, options: list[str], engine: engines.Engine | None
) -> tuple[float, float, float]:
    """Runs a step: wall-clock and CPU seconds, and the peak memory of a process in MiB."""
    command = [sys.executable, "-m", "tfrank_sel.pipelines", name, "--output", str(output)]
    before, began = used(engine), time.monotonic()
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of all steps until now
    return time.monotonic() - began, used(engine) - before, peak / 1024


def size(folder: Path) -> int:
    """The bytes of the files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


CATEGORIES = (5, 20, 100, 1_000, 10_000)
ROW_GROUP = 200_000
LIGHTGBM = """
import sys, lightgbm, numpy, pyarrow.compute as pc
from pyarrow import parquet
table = parquet.read_table(sys.argv[1])
sizes = pc.value_counts(table["query_id"]).field("counts").to_numpy()
names = [x for x in table.column_names if x[0] in "xc"]
codes = [x for x in names if x[0] == "c"]
columns = [table[x].combine_chunks() for x in names]
columns = [x.dictionary_encode().indices if y in codes else x for x, y in zip(columns, names)]
values = numpy.column_stack([x.to_numpy(zero_copy_only=False).astype("f4") for x in columns])
data = lightgbm.Dataset(values, table["relevance"].to_numpy(), group=sizes, feature_name=names,
                        categorical_feature=codes)
lightgbm.train({"objective": "lambdarank", "num_threads": 1, "verbose": -1}, data, 100)
"""


def table(path: Path, rows: int) -> None:
    """Makes a Parquet file of a shop's log."""
    random, size = np.random.default_rng(0), LIST_OF_ROWS
    writer = None
    for start in range(0, rows, ROW_GROUP):
        count = min(ROW_GROUP, rows - start)
        numbers = random.lognormal(size=(35, count)).astype(np.float32)
        labels = np.clip(np.log(numbers[0]) + random.normal(size=count), 0, 4).astype(np.int32)
        columns = {
            "query_id": _texts("q", (start + np.arange(count)) // size),
            "doc_id": _texts("d", random.integers(0, 100_000, count)),
            "relevance": labels,
            **{f"x{i}": values for i, values in enumerate(numbers)},
            **{
                f"c{i}": _texts("v", n * random.random(count) ** 2)
                for i, n in enumerate(CATEGORIES)
            },
        }
        found = pa.table(columns)
        writer = writer or parquet.ParquetWriter(path, found.schema)
        writer.write_table(found)
    if writer is not None:
        writer.close()


def _texts(prefix: str, numbers: np.ndarray) -> np.ndarray:
    return np.char.add(prefix, numbers.astype(int).astype(str))


def ended(command: list[str]) -> tuple[float, float]:
    """Runs a command on one thread: CPU seconds, and peak memory in MiB."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
    _, status, found = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command}: {process.returncode}")
    return found.ru_utime + found.ru_stime, found.ru_maxrss / 1024


def by_rows(sizes: list[int], folder: Path) -> None:
    """Prints the table of `--rows`."""
    print("| step | rows | CPU s | us a further row | peak, MiB |")
    print("|---|---|---|---|---|")
    before: dict[str, tuple[int, float]] = {}
    for rows in sorted(sizes):
        path, output = folder / "log.parquet", folder / "run"
        table(path, rows)
        run = [sys.executable, "-m", "tfrank_sel.pipelines"]
        given = ["--set", f'data.data=["{path}"]', "--set", "data.adjacent=true"]
        commands = {
            "ingest": [*run, "ingest", "--output", str(output), *given],
            "analyze": [*run, "analyze", "--output", str(output)],
            "LightGBM": [sys.executable, "-c", LIGHTGBM, str(path)],
        }
        for name, command in commands.items():
            cpu, peak = ended(command)
            further = ""
            if name in before:
                fewer, less = before[name]
                further = f"{1e6 * (cpu - less) / (rows - fewer):.1f}"
            before[name] = rows, cpu
            print(f"| {name} | {rows:,} | {cpu:.1f} | {further} | {peak:,.0f} |", flush=True)
        shutil.rmtree(output)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=int, nargs="*", default=[2, 20])
    parser.add_argument("--rows", type=int, nargs="*")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--engine", choices=["flink", "spark"])
    arguments = parser.parse_args()
    if arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as place:
            by_rows(arguments.rows, Path(place))
        return
    steps = ("ingest", "analyze") if arguments.engine else ("ingest", "analyze", "train")
    print("| files, GB | step | s | CPU s | lists per CPU s | peak, MiB | left, kB a list |")
    print("|---|---|---|---|---|---|---|")
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=arguments.folder)))
        engine = None
        if arguments.engine:
            start = getattr(engines, arguments.engine)
            engine = stack.enter_context(start(folder / "engine"))
            beam = ["--config", str(engine.configuration)]
        else:
            workers = f"--direct_num_workers={arguments.processes}"
            runner = json.dumps([workers, "--direct_running_mode=multi_processing"])
            beam = ["--set", f"beam.options={runner}"]
        for gigabytes in sorted(arguments.gigabytes):
            paths = files(folder, gigabytes)
            found = sum(path.stat().st_size for path in paths)
            sets = {**SETTINGS, "data.data": json.dumps([str(path) for path in paths])}
            options = [word for key, x in sets.items() for word in ("--set", f"{key}={x}")]
            for name in steps:
                wall, cpu, peak = step(name, folder / "run", [*beam, *options], engine)
                lists = LISTS * gigabytes
                left = size(folder / "run" / name) / lists / 1e3
                values = f"{wall:,.0f} | {cpu:,.0f} | {lists / cpu:,.0f} | {peak:,.0f}"
                print(f"| {found / 1e9:.1f} | {name} | {values} | {left:,.1f} |", flush=True)
            shutil.rmtree(folder / "run")


if __name__ == "__main__":
    main()
