"""Memory of this process, as Linux counts it, and tables of processes that tell theirs."""

import argparse
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable

_PROCESS = pathlib.Path("/proc/self")


def resident() -> float:
    """Returns the resident memory, in MiB."""
    return _mebibytes("VmRSS")


def start_peak() -> None:
    """Resets the peak to the resident memory of now."""
    (_PROCESS / "clear_refs").write_text("5")


def peak() -> float:
    """Returns the largest resident memory since the last `start_peak`, in MiB."""
    return _mebibytes("VmHWM")


def tabulate(
    module: str,
    description: str | None,
    names: Iterable[str],
    sizes: list[int],
    measure: Callable[[str, int], None],
    fits: Callable[[str, int], bool] = lambda name, size: True,
) -> None:
    """The command of a benchmark: prints a Markdown table, with a process for each cell.

    Args:
        module: The module of the benchmark, which a process runs.
        description: Description of the command.
        names: The rows.
        sizes: The columns, unless the option `--sizes` names others.
        measure: Prints the content of a cell, in a process of its own.
        fits: Whether a cell fits the memory; otherwise it is "-".
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--sizes", type=int, nargs="*", default=sizes)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure is not None:
        name, size = arguments.measure
        measure(name, int(size))
        return
    print("| items |" + "".join(f" {size} |" for size in arguments.sizes))
    print("|---|" + "---|" * len(arguments.sizes))
    for name in names:
        print(f"| {name} |", end="", flush=True)
        for size in arguments.sizes:
            if not fits(name, size):
                print(" - |", end="")
                continue
            command = [sys.executable, "-m", module, "--measure", name, str(size)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            print(f" {done.stdout.strip()} |", end="", flush=True)
        print()


def _mebibytes(name: str) -> float:
    status = (_PROCESS / "status").read_text().splitlines()
    return int(next(line for line in status if line.startswith(name)).split()[1]) / 1024
