"""Speed of losses, metrics, data, training, ALS, top-k and serving against peers, by one command.

    make benchmark
    python -m benchmarks.speed --output build/benchmark [--only metrics data ...]

Runs the benchmarks one after the other, each in a process of its own on one core, those against
tensorflow-ranking under the second stack, and writes `speed.json`, `speed.md` and `speed.png` after
each of them. A peer that is not installed is left out, and named. How each is measured is told by
its own module.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import IO

from benchmarks.speed import plot, rows
from benchmarks.speed.rows import LeftOut, Row

TFR = "tensorflow-ranking"  # the peer, and the stack that it needs
PEER_LOSSES = (
    "SoftmaxLoss MeanSquaredLoss MultiClassLoss ListMLELoss UniqueSoftmaxLoss ApproxNDCGLoss"
    " NeuralSortNDCGLoss CircleLoss PairwiseLogisticLoss LambdaLoss"
)


@dataclasses.dataclass(frozen=True)
class Run:
    """A benchmark of an area.

    Args:
        area: Whose rows it gives.
        options: The module in this folder, and its options.
        stack: The environment in which its peers are.
    """

    area: str
    options: str
    stack: str = "default"


RUNS = (
    Run("losses", "losses --rounds 20"),
    Run("losses", "peer_losses --rounds 10"),
    Run("losses", f"peer_losses --rounds 10 --only {PEER_LOSSES}", TFR),
    Run("losses", "soft_ranks --rounds 10"),
    Run("metrics", "metrics --rounds 10"),
    Run("metrics", "metrics --rounds 10", TFR),
    Run("data", "data --only writers texts steps --rounds 3"),
    Run("data", "types --rounds 3"),
    Run("data", "data --only readers --rounds 3", TFR),
    Run("training", "training_step --rounds 5"),
    Run("trees", "objectives --rounds 3"),
    Run("als", "rg speed --threads 1 --rounds 5"),
    Run("topk", "topk --grid 1000,5 1000,50 100000,5"),
    Run("topk", "soft_topk --rounds 10"),
    Run("serving", "serving --rounds 3"),
)
AREAS = tuple(dict.fromkeys(run.area for run in RUNS))


class Report:
    """What was found so far, by area."""

    def __init__(self) -> None:
        self.date, self.commit = datetime.date.today().isoformat(), commit()
        self.machine = ""
        self.versions: dict[str, dict[str, str]] = {}
        self.rows: dict[str, list[Row]] = {}
        self.absent: dict[str, dict[str, LeftOut]] = {}
        self.failed: list[str] = []

    def add(self, area: str, found: rows.Found) -> None:
        """Adds a row, the first of its kind: those without a library stand under both stacks."""
        if isinstance(found, LeftOut):
            self.absent.setdefault(area, {})[found.name] = found
            return
        kept = self.rows.setdefault(area, [])
        if all((found.case, found.peer) != (x.case, x.peer) for x in kept):
            kept.append(found)

    def left_out(self) -> Iterator[tuple[str, LeftOut]]:
        """Areas, and who has no row there under either stack."""
        for area, absent in self.absent.items():
            present = {row.peer.name for row in self.rows.get(area, ())}
            yield from ((area, x) for name, x in absent.items() if name not in present)

    def to_json(self) -> str:
        content = {
            "date": self.date,
            "commit": self.commit,
            "machine": self.machine,
            "versions": self.versions,
            "rows": [
                {"area": area, **dataclasses.asdict(row), "ratio": row.ratio}
                for area, found in self.rows.items()
                for row in found
            ],
            "left_out": [{"area": a, **dataclasses.asdict(x)} for a, x in self.left_out()],
            "failed": self.failed,
        }
        return json.dumps(content, indent=1) + "\n"

    def to_markdown(self) -> str:
        stacks = (
            f"{stack} stack: " + ", ".join(f"{name} {version}" for name, version in found.items())
            for stack, found in self.versions.items()
        )
        lines = ["; ".join([self.machine, *stacks, f"{self.date}, commit {self.commit}"]) + ".", ""]
        for area, found in self.rows.items():
            lines += [f"### {area}", "", rows.HEAD, *map(str, found), ""]
        lines += [f"* {area}: {x}" for area, x in self.left_out()]
        lines += [f"* failed: {x}" for x in self.failed]
        return "\n".join(lines).rstrip() + "\n"

    def write(self, folder: pathlib.Path) -> None:
        """Writes all files, each whole or not at all."""
        for name, write in (
            ("speed.json", lambda path: path.write_text(self.to_json())),
            ("speed.md", lambda path: path.write_text(self.to_markdown())),
            ("speed.png", lambda path: plot.draw(self.rows).savefig(path, format="png")),
        ):
            aside = folder / f".{name}"
            write(aside)
            aside.replace(folder / name)


def command_of(run: Run, options: argparse.Namespace) -> list[str]:
    """What runs the benchmark."""
    python = sys.executable if run.stack == "default" else options.tensorflow_ranking
    module, *given = run.options.split()
    if run.area == "topk" and options.authors:
        given += ["--authors", options.authors, "--torch-python", options.torch_python]
    return [python, "-m", f"benchmarks.speed.{module}", *given, "--json"]


def collect(report: Report, run: Run, command: Sequence[str], log: IO[str] | None) -> None:
    """Runs a benchmark, and adds what it prints as it comes; says so if there is no such Python."""
    try:
        lines = printed(command, log)
        head = json.loads(next(lines))
        report.machine = head["machine"]
        report.versions[run.stack] = head["versions"]
        for line in lines:
            found = rows.from_json(line)
            report.add(run.area, found)
            if isinstance(found, Row):
                print(f"  {found}", flush=True)
    except FileNotFoundError as error:
        report.add(run.area, LeftOut(run.stack, f"there is no {error.filename}"))
    except subprocess.CalledProcessError as error:
        report.failed.append(f"{run.options}: status {error.returncode}")
        print(f"  failed with status {error.returncode}", flush=True)


def printed(command: Sequence[str], log: IO[str] | None) -> Iterator[str]:
    """The lines of JSON that a command prints."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
        assert process.stdout is not None
        yield from (line for line in process.stdout if line.startswith("{"))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)


def commit() -> str:
    """The commit that was measured, if this is a checkout."""
    command = ["git", "-C", str(pathlib.Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="folder to write to")
    parser.add_argument("--only", nargs="+", choices=AREAS, default=AREAS, help="areas to run")
    parser.add_argument(f"--{TFR}", default=".venv-tfr/bin/python", help="a Python that has it")
    parser.add_argument("--authors", help="a checkout of github.com/oval-group/smooth-topk")
    parser.add_argument("--torch-python", default=sys.executable, help="a Python with PyTorch")
    options = parser.parse_args()
    runs = [run for run in RUNS if run.area in options.only]
    report, began = Report(), time.monotonic()
    options.output.mkdir(parents=True, exist_ok=True)
    with (options.output / "speed.log").open("w") as log:
        for number, run in enumerate(runs, start=1):
            minutes = (time.monotonic() - began) / 60.0
            print(f"{number} of {len(runs)}, after {minutes:.1f} min: {run.options}", flush=True)
            collect(report, run, command_of(run, options), log)
            report.write(options.output)
    for area, x in report.left_out():
        print(f"{area}: {x}")
    print(report.to_markdown())
    print(f"The table, the numbers and the plot are in {options.output}.")
    if report.failed:
        sys.exit("\n".join(["Failed; see speed.log:", *report.failed]))


if __name__ == "__main__":
    main()
