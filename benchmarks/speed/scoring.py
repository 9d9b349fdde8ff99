"""Memory and time of scoring files by an exported model, by number of lists.

    python -m benchmarks.speed.scoring [--lists 20000 100000] [--folder FOLDER]

Makes a LETOR file of as many lists of 20 items of 20 features, and scores it by a network of the
default shape that was not trained, each time in a process of its own. Prints a Markdown table: the
peak memory of that process, what of it imports take, and the CPU seconds of ingest and scoring.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.speed.ingest_memory import FEATURES, make, peak

LIST_SIZE = 20


def measure(path: Path) -> None:
    """Scores a file in this process, and prints its memory before and after, and its time."""
    import io

    from rich.console import Console

    from tfrank_sel import data, export, models
    from tfrank_sel.pipelines import scoring
    from tfrank_sel.pipelines.console import Progress

    model = models.ListScorer([0.0] * FEATURES, [1.0] * FEATURES)
    model.build((None, None, FEATURES))
    folder = path.parent
    export.export(model, data.FeatureSpec(FEATURES), folder / "model")
    imported = peak()
    began = time.process_time()
    inputs = scoring.inputs([folder / "model"], [str(path)])
    progress = Progress(Console(file=io.StringIO()))
    done = scoring.score(folder / "model", inputs, folder / "out", progress)
    print(imported, peak(), time.process_time() - began, len(done.files))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lists", type=int, nargs="*", default=[20_000, 100_000])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        measure(arguments.measure)
        return
    print("| lists | items | peak memory, MiB | before | CPU s | lists per CPU s | files |")
    print("|---|---|---|---|---|---|---|")
    for lists in arguments.lists:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            path = Path(folder) / "lists.txt"
            make(path, lists * LIST_SIZE, LIST_SIZE)
            command = [sys.executable, "-m", __spec__.name, "--measure", str(path)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            before, peaked, seconds, files = map(float, done.stdout.split())
            values = f"{peaked:,.0f} | {before:,.0f} | {seconds:,.1f} | {lists / seconds:,.0f}"
            print(f"| {lists:,} | {lists * LIST_SIZE:,} | {values} | {files:.0f} |", flush=True)


if __name__ == "__main__":
    main()
