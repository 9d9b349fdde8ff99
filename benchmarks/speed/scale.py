"""Time, memory and disk of the steps of a run, by the size of its files.

    python -m benchmarks.speed.scale [--gigabytes 2 20] [--folder FOLDER] [--processes 2]

Makes LETOR files of a gigabyte each, of lists of 120 items and 136 features as MSLR-WEB30K has
them, and takes the steps `ingest`, `analyze` and `train` (one network and loss, one epoch), each by
the command, with Beam's local runner in some processes. Prints a Markdown table: wall-clock and CPU
seconds, lists per CPU second, the peak memory of the largest process, and the bytes a list that the
step leaves. FOLDER needs room for 2.2 times the files.
"""

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.speed import ingest_memory

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


def step(name: str, output: Path, *options: str) -> tuple[float, float, float]:
    """Takes a step: wall-clock and CPU seconds, and the peak memory of a process in MiB."""
    command = [sys.executable, "-m", "tfrank_sel.pipelines", name, "--output", str(output)]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    after, wall = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 1024  # the peak of all until now, and so never too small


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
    arguments = parser.parse_args()
    workers = f"--direct_num_workers={arguments.processes}"
    print("| files, GB | step | s | CPU s | lists per CPU s | peak, MiB | left, kB a list |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as scratch:
        folder = Path(scratch)
        for gigabytes in sorted(arguments.gigabytes):
            paths = files(folder, gigabytes)
            found = sum(path.stat().st_size for path in paths)
            sets = {
                **SETTINGS,
                "data.data": json.dumps([str(path) for path in paths]),
                "beam.options": json.dumps([workers, "--direct_running_mode=multi_processing"]),
            }
            options = [word for key, x in sets.items() for word in ("--set", f"{key}={x}")]
            for name in ("ingest", "analyze", "train"):
                wall, cpu, peak = step(name, folder / "run", *options)
                lists = LISTS * gigabytes
                left = size(folder / "run" / name) / lists / 1e3
                values = f"{wall:,.0f} | {cpu:,.0f} | {lists / cpu:,.0f} | {peak:,.0f}"
                print(f"| {found / 1e9:.1f} | {name} | {values} | {left:,.1f} |", flush=True)
            shutil.rmtree(folder / "run")


if __name__ == "__main__":
    main()
