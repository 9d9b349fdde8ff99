"""Time, memory and disk of the steps of a run, by the size of its files.

    python -m benchmarks.speed.scale [--gigabytes 2 20] [--folder FOLDER] [--processes 2]
        [--engine flink|spark]

Makes LETOR files of a gigabyte each, of lists of 120 items and 136 features as MSLR-WEB30K has
them, and runs the steps `ingest`, `analyze` and `train` (one network and loss, one epoch) by their
commands. Beam runs on its local runner in several processes, or on a Flink or Spark of this
machine, which `make test-engines` installs; these skip `train`, which does not use Beam. Prints a
Markdown table: wall-clock and CPU seconds (those of the engine included), lists per CPU second, the
peak memory of the largest process of the step, and the bytes per list that the step writes. FOLDER
needs room for 2.2 times the files.
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

from benchmarks.speed import ingest_memory
from tests.engines import engines

FEATURES, LIST_SIZE = 136, 120
LISTS = 7_000  # in a gigabyte
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gigabytes", type=int, nargs="*", default=[2, 20])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--engine", choices=["flink", "spark"])
    arguments = parser.parse_args()
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
