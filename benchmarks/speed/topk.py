"""Speed, memory and error of the smooth top-k loss against softmax cross-entropy and others.

Every case runs in a process of its own, on one thread, where the competitors take turns. Memory is
what XLA assigns to scores, results and all between, as a multiple of the scores. With a checkout of
https://github.com/oval-group/smooth-topk, its code runs too, by an interpreter that has PyTorch.

    python -m benchmarks.speed.topk --table topk.md
"""

import argparse
import functools
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from benchmarks.speed import rows
from benchmarks.speed.interleaved import machine, timings

BATCH_SIZE = 128
GRID = [
    *((100, k) for k in (5, 50)),
    *((1000, k) for k in (1, 2, 5, 10, 20, 50, 100)),
    *((10_000, k) for k in (5, 10, 20, 50, 100)),
    *((100_000, k) for k in (5, 20)),
    (1_000_000, 5),
]
PLAIN_LIMIT = 3_000_000  # of classes times k, above which the plain algorithms take too long
COLUMNS = {
    "classes": "n",
    "k": "k",
    "tau": "tau",
    "ms": "ms",
    "x softmax": "x_softmax",
    "linear / this": "linear_ratio",
    "log-space / this": "log_ratio",
    "authors / this": "authors_ratio",
    "compile, s": "compile_s",
    "memory / scores": "memory",
    "loss error": "loss_error",
    "gradient error": "gradient_error",
}


def main() -> None:
    options = parse()
    if options.case:
        print(json.dumps(run_case(*map(float, options.case), options)))
        return
    if options.json:
        rows.show(found(options), as_json=True)
        return
    measured = []
    for n, k in options.grid:
        for tau in options.tau:
            measured.append(in_new_process(n, k, tau) | {"memory": memory_of(n, k, tau)})
            print(row_of(measured[-1]), file=sys.stderr)
            if error := measured[-1].get("authors_error"):
                print(f"left out: smooth-topk: {error}", file=sys.stderr)
    table = table_of(measured)
    print(table)
    if options.table:
        options.table.write_text(table + "\n")


def found(options: argparse.Namespace) -> Iterator[rows.Found]:
    """The times, in the form that benchmarks share."""
    if not options.authors:
        yield rows.LeftOut("smooth-topk", "its code is given by --authors")
    for (n, k), tau in itertools.product(options.grid, options.tau):
        x = in_new_process(n, k, tau)
        if "authors_error" in x:
            yield rows.LeftOut("smooth-topk", x["authors_error"])
        peers = {
            rows.Peer("softmax cross-entropy"): 1.0 / x["x_softmax"],
            rows.Peer("the recurrence as it stands"): x.get("linear_ratio"),
            rows.Peer("the recurrence in logarithms"): x.get("log_ratio"),
            rows.Peer("smooth-topk", x.get("authors_version")): x.get("authors_ratio"),
        }
        for peer, ratio in peers.items():
            if ratio is not None:
                case = f"SmoothTopKLoss({k}, {tau:g}), {n:,} classes"
                yield rows.Row(case, peer, x["ms"], x["ms"] * ratio, first=x["compile_s"])


def in_new_process(n: int, k: int, tau: float, *more: str) -> dict[str, Any]:
    command = [sys.executable, "-m", __spec__.name, *sys.argv[1:], *more]
    command += ["--case", str(n), str(k), str(tau)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--tau", type=float, nargs="+", default=[1.0])
    parser.add_argument(
        "--grid", type=pair, nargs="+", default=GRID, metavar="N,K", help="classes and k"
    )
    parser.add_argument("--rounds", type=int, default=30, help="calls of each")
    parser.add_argument("--authors", type=pathlib.Path, help="a checkout of smooth-topk")
    parser.add_argument("--torch-python", default=sys.executable, help="which has PyTorch")
    parser.add_argument("--json", action="store_true", help="print lines of JSON, of times alone")
    parser.add_argument("--table", type=pathlib.Path, help="where to write the table")
    parser.add_argument("--dump", help=argparse.SUPPRESS)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    return parser.parse_args()


def pair(text: str) -> tuple[int, int]:
    n, k = text.split(",")
    return int(n), int(k)


def run_case(n: float, k: float, tau: float, options: argparse.Namespace) -> dict[str, Any]:
    """Measures one case; in a process of its own, since its peak of memory is one number."""
    n, k = int(n), int(k)
    set_up_xla(options.dump)
    import numpy as np
    import tensorflow as tf

    from benchmarks.speed import topk_competitors as competitors

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    rng = np.random.default_rng(0)
    scores = tf.constant(rng.standard_normal([BATCH_SIZE, n], np.float32))
    labels = tf.constant(rng.integers(0, n, BATCH_SIZE))
    calls = {"this": competitors.smooth_topk(k, tau), "softmax": competitors.softmax()}
    if n * k <= PLAIN_LIMIT:
        calls["log"] = competitors.log_space(k, tau)
        calls["linear"] = competitors.linear_space(k, tau)
    run = {name: functools.partial(call, scores, labels) for name, call in calls.items()}
    if options.dump:
        run["this"]()
        return {}
    slow = {name: run.pop(name) for name in ("log", "linear") if name in run}
    times = timings(run, options.rounds) | timings(slow, rounds=3)
    this, softmax = times["this"], times["softmax"]
    row: dict[str, Any] = {"n": n, "k": k, "tau": tau, "compile_s": this.first}
    row |= {"ms": 1e3 * this.seconds, "softmax_ms": 1e3 * softmax.seconds}
    row["x_softmax"] = this.seconds / softmax.seconds
    for name in slow:
        row[f"{name}_ratio"] = times[name].seconds / this.seconds
    row |= competitors.errors(calls["this"], scores, labels, k, tau)
    if options.authors and n <= 10_000:
        theirs = of_authors(options, n, k, tau)
        if "error" in theirs:
            row["authors_error"] = theirs["error"]
        else:
            row["authors_version"] = f"on PyTorch {theirs['version']}"
            row["authors_ratio"] = theirs["seconds"] / this.seconds
    return row


def set_up_xla(dump: str | None) -> None:
    """Must come before TensorFlow is imported."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    flags = ["--xla_cpu_multi_thread_eigen=false"]
    if dump:
        flags += [f"--xla_dump_to={dump}", "--xla_dump_hlo_as_text"]
    os.environ["XLA_FLAGS"] = " ".join(flags)


def memory_of(n: int, k: int, tau: float) -> float:
    """The bytes that XLA assigns to scores, results and all between, over those of the scores."""
    with tempfile.TemporaryDirectory() as folder:
        in_new_process(n, k, tau, "--dump", folder)
        reports = pathlib.Path(folder).glob("*buffer-assignment.txt")
        used = (re.findall(r"Total bytes used: (\d+)", path.read_text()) for path in reports)
        return max(int(total) for totals in used for total in totals) / (BATCH_SIZE * n * 4)


def of_authors(options: argparse.Namespace, n: int, k: int, tau: float) -> dict[str, Any]:
    """The median seconds of the authors' code in a process that has PyTorch, and its version.

    Or the error that it ends with.
    """
    command = [options.torch_python, str(pathlib.Path(__file__).with_name("topk_authors.py"))]
    command += [str(options.authors), *map(str, (BATCH_SIZE, n, k, tau))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return {"error": str(error)}
    lines = (done.stderr if done.returncode else done.stdout).strip().splitlines()
    last = lines[-1] if lines else f"no output, exit status {done.returncode}"
    try:
        found: dict[str, Any] = json.loads(last)  # their code prints lines of its own before
    except json.JSONDecodeError:
        return {"error": last}
    return found


def row_of(row: dict[str, Any]) -> str:
    return "| " + " | ".join(number(row.get(key)) for key in COLUMNS.values()) + " |"


def number(x: float | None) -> str:
    if x is None:
        return ""
    if isinstance(x, int) or x == 0.0:
        return f"{x:,}"
    return f"{x:.0e}" if abs(x) < 1e-3 else f"{x:,.0f}" if abs(x) >= 20 else f"{x:.2f}"


def table_of(measured: list[dict[str, Any]]) -> str:
    used = [title for title, key in COLUMNS.items() if any(key in row for row in measured)]
    lines = ["| " + " | ".join(used) + " |", "|" + " --- |" * len(used)]
    for row in measured:
        lines.append("| " + " | ".join(number(row.get(COLUMNS[t])) for t in used) + " |")
    return "\n".join([f"Batch {BATCH_SIZE}, forward and backward. {machine()}.", "", *lines])


if __name__ == "__main__":
    main()
