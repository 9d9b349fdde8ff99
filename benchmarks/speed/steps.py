"""CPU seconds and peak memory of the commands of single steps, beside those of another checkout.

    python -m benchmarks.speed.steps --fold MQ2008/Fold1 [--before CHECKOUT] [--rounds 3]

Each step is a process of its own on one core. Checkouts take turns in each round; a number is the
median of all rounds. Prints a Markdown table.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent.parent
STEPS = ("ingest", "analyze")


def measure(checkout: pathlib.Path, step: str, files: dict[str, str], output: str) -> list[float]:
    """Returns the CPU seconds and the peak memory in MiB of a step's command."""
    command = [sys.executable, "-P", "-m", "tfrank_sel.pipelines", step, "--output", output]
    for split, path in files.items():
        command += ["--set", f"data.{split}={path}"]
    process = subprocess.Popen(
        command,
        cwd=output,
        env={**os.environ, "PYTHONPATH": str(checkout.resolve())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.STDOUT,
    )
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{step} of {checkout} ended with {os.waitstatus_to_exitcode(status)}")
    return [usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024.0]


def main() -> None:
    """Prints a row for each step and checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fold", type=pathlib.Path, required=True)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    names = {"train": "train", "validation": "vali", "test": "test"}
    files = {x: str((options.fold / f"{y}.txt").resolve()) for x, y in names.items()}
    checkouts = {"this": ROOT} | ({"before": options.before} if options.before else {})
    measured: dict[tuple[str, str], list[list[float]]] = {}
    for _ in range(options.rounds):
        for name, checkout in checkouts.items():
            with tempfile.TemporaryDirectory() as folder:
                for step in STEPS:
                    found = measure(checkout, step, files, folder)
                    measured.setdefault((step, name), []).append(found)
    print("| step | checkout | CPU s | peak, MiB |")
    print("|---|---|---|---|")
    for (step, name), found in sorted(measured.items(), reverse=True):
        seconds, mib = (statistics.median(x) for x in zip(*found, strict=True))
        print(f"| {step} | {name} | {seconds:.1f} | {mib:,.0f} |")


if __name__ == "__main__":
    main()
