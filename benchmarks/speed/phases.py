"""CPU seconds of `tfrank-sel-pipelines run` by phase, of one or several checkouts.

    python -m benchmarks.speed.phases [CHECKOUT ...] [--rounds 3] [--run ARGUMENT ...]

`--run`, which comes last, has the arguments of the run, such as its files; without it, the run is
`--synthetic`. Each run is a process of its own on one core; checkouts take turns, and a number is
the least of all rounds. Imports are those of all phases, which are counted nowhere else. Behind a
number of seconds stands that of graphs that were traced, those inside of others left out.
"""

import argparse
import builtins
import collections
import contextlib
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).parent.parent.parent
IMPORTS, OTHER = "imports", "all else"


def measure(arguments: list[str]) -> dict[str, tuple[float, int]]:
    """Runs the command in this process, and returns the CPU seconds and graphs of each phase."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    seconds: collections.Counter[str] = collections.Counter()
    traces: collections.Counter[str] = collections.Counter()
    inside: list[str] = []

    @contextlib.contextmanager
    def phase(name: str) -> Iterator[None]:
        """Counts what the block takes to a phase, and not to the one around it."""
        began = time.process_time()
        inside.append(name)
        try:
            yield
        finally:
            inside.pop()
            taken = time.process_time() - began
            seconds[name] += taken
            seconds[inside[-1] if inside else OTHER] -= taken

    def outermost(load: Callable[..., Any]) -> Callable[..., Any]:
        def loaded(*args: Any, **kwargs: Any) -> Any:
            if inside[-1:] == [IMPORTS]:
                return load(*args, **kwargs)
            with phase(IMPORTS):
                return load(*args, **kwargs)

        return loaded

    builtins.__import__ = outermost(builtins.__import__)
    importlib.import_module = outermost(importlib.import_module)
    from tfrank_sel.pipelines import __main__, console

    with phase(IMPORTS):
        from tensorflow.python.framework import func_graph, ops

    traced = func_graph.func_graph_from_py_func

    def counted(*args: Any, **kwargs: Any) -> Any:
        traces[inside[-1] if inside else OTHER] += not ops.inside_function()
        return traced(*args, **kwargs)

    func_graph.func_graph_from_py_func = counted
    shown = console.Progress.step

    @contextlib.contextmanager
    def step(self: Any, name: str) -> Iterator[Any]:
        with phase(name), shown(self, name) as part:
            yield part

    console.Progress.step = step  # type: ignore[method-assign,assignment]
    sys.argv = ["tfrank-sel-pipelines", "run", *arguments]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
        __main__.main()
    seconds[OTHER] += time.process_time()
    return {name: (taken, traces[name]) for name, taken in seconds.items()}


def main() -> None:
    """Prints a table with a column for each checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkouts", nargs="*", type=pathlib.Path, default=[ROOT])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", nargs=argparse.REMAINDER, default=["--synthetic"])
    options = parser.parse_args()
    found: dict[pathlib.Path, list[dict[str, tuple[float, int]]]] = {
        x: [] for x in options.checkouts
    }
    for _ in range(options.rounds):
        for checkout, runs in found.items():
            with tempfile.TemporaryDirectory() as folder:
                # without the folder of this file, which hides modules of Python
                command = [sys.executable, "-P", __file__, "--measure", *options.run]
                command += ["--output", f"{folder}/run"]
                env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
                done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
                runs.append(json.loads(done.stdout))
    least = [
        {name: min(run.get(name, (0.0, 0)) for run in runs) for name in runs[0]}
        for runs in found.values()
    ]
    print(f"| CPU s (traces) | {' | '.join(x.resolve().name for x in found)} |")
    print("|---|" + "---|" * len(found))
    for name in dict.fromkeys(name for one in least for name in one):
        cells = ("{:.1f} ({})".format(*one.get(name, (0.0, 0))) for one in least)
        print(f"| {name} | {' | '.join(cells)} |")
    totals = [
        min(tuple(map(sum, zip(*run.values(), strict=True))) for run in runs)
        for runs in found.values()
    ]
    print(f"| together | {' | '.join('{:.1f} ({})'.format(*total) for total in totals)} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2:])))
    else:
        main()
