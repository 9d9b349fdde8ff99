"""Memory and time of ingest, by number of rows.

    python -m benchmarks.speed.ingest_memory [--rows 500000 2000000 5000000] [--folder FOLDER]

Makes a LETOR file of as many rows, of 20 features, in lists of 100, and ingests it in a process of
its own, with the split by hash. Prints a Markdown table: the peak memory of that process, what of
it imports take, the CPU seconds, and the lists per CPU second. FOLDER needs room for 300 bytes a
row.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FEATURES = 20
LIST_SIZE = 100
CHUNK = 100_000  # rows made at once
SHARES = {"train": 0.8, "validation": 0.1, "test": 0.1}


def make(
    path: Path, rows: int, list_size: int = LIST_SIZE, features: int = FEATURES, first: int = 0
) -> None:
    """Writes a LETOR file of rows of equal width, of queries that are counted from `first`."""
    random = np.random.default_rng(first)
    words = [
        np.array([f"{feature}:0.{value:03d} ".encode() for value in range(1000)])
        for feature in range(1, features + 1)
    ]
    grades = np.array([f"{grade} ".encode() for grade in range(5)])
    with path.open("wb") as file:
        for start in range(0, rows, CHUNK):
            size = min(CHUNK, rows - start)
            queries = (first + np.arange(start, start + size) // list_size).astype("S9")
            columns = [
                grades[random.integers(5, size=size)],
                np.char.add(b"qid:", np.char.zfill(queries, 9)).astype("S13"),
                np.full(size, b" "),
                *(table[random.integers(1000, size=size)] for table in words),
                np.full(size, b"\n"),
            ]
            width = sum(column.dtype.itemsize for column in columns)
            octets = [column.view(np.uint8).reshape(size, -1) for column in columns]
            file.write(np.concatenate(octets, axis=1).reshape(size * width).tobytes())


def measure(path: Path, output: Path) -> None:
    """Ingests a file in this process, and prints its memory before and after, and its time."""
    from tfrank_sel.data.formats import Schema
    from tfrank_sel.features import Vector
    from tfrank_sel.pipelines.ingestion import ingest
    from tfrank_sel.pipelines.ingestion.inputs import Source

    imported = peak()
    began = time.process_time()
    inputs = ingest.Inputs([Source(str(path))], shares=SHARES)
    done = ingest.ingest(inputs, Schema({"features": Vector(size=FEATURES)}), output)
    lists = sum(counted["lists"] for counted in done.report["splits"].values())
    print(imported, peak(), time.process_time() - began, lists)


def peak() -> float:
    """The peak memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[500_000, 2_000_000, 5_000_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", type=Path, nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(*arguments.measure)
        return
    print("| rows | file, MB | peak memory, MiB | of which imports | CPU s | lists per CPU s |")
    print("|---|---|---|---|---|---|")
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            path = Path(folder) / "rows.txt"
            make(path, rows)
            command = [
                sys.executable,
                "-m",
                __spec__.name,
                "--measure",
                str(path),
            ]
            output = str(Path(folder) / "out")
            done = subprocess.run([*command, output], stdout=subprocess.PIPE, text=True, check=True)
            imported, peak, seconds, lists = map(float, done.stdout.split())
            size = path.stat().st_size / 1e6
            values = f"{size:,.0f} | {peak:,.0f} | {imported:,.0f} | {seconds:,.1f}"
            print(f"| {rows:,} | {values} | {lists / seconds:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
