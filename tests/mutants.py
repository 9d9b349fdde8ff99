"""Shows that the tests find faults: `python tests/mutants.py [--all] [NAME ...]`.

Each line of `mutants.json` is a fault of one line: a file of `tfrank_sel`, its text, which must
occur once, the faulty text, and the files of `make test` that should find it. Half of the faults
are in pipelines, data and serving. Each is tried alone, in a copy of the tree, by
`pytest -x -m "not long"`. The table names the test that caught it, or that none did. In the end,
the tests that caught a fault must pass in a copy without one. The status is 1 if a fault was
missed, and 2 if a text does not occur once, a file of tests does not exist, or a test fails
without a fault.

`NAME` limits the faults to files whose path has it in it; `--all` runs the folders of these tests.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection

ROOT = pathlib.Path(__file__).resolve().parents[1]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "runs", "__pycache__")
FAILED_TESTS = ".pytest_cache/v/cache/lastfailed"
LIMIT = 1800.0  # seconds; a fault is caught that leaves the tests without an end
RAN = (0, 1, 2)  # pytest's statuses: the tests passed, one failed, one could not be collected
NO_END = "no end"

MUTANTS: list[tuple[str, ...]] = [
    tuple(row) for row in json.loads((ROOT / "tests" / "mutants.json").read_text())
]


def main() -> int:
    """Tries the faults and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--all", action="store_true", help="run the folders of the tests")
    options = parser.parse_args()
    if stale := [problem for mutant in MUTANTS if (problem := _problem(*mutant))]:
        print(*stale, sep="\n", file=sys.stderr)
        return 2
    chosen = [x for x in MUTANTS if not options.names or any(y in x[0] for y in options.names)]
    caught_by: set[str] = set()
    missed = 0
    for file, old, new, tests in chosen:
        failed = _failed(_paths(tests, options.all), file, old, new)
        caught_by.update(failed)
        missed += not failed
        print(f"{'; '.join(failed) or 'MISSED'}  {file}: {old} -> {new}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} faults caught, {missed} missed")
    if failed := _failed(caught_by - {NO_END}):
        print(f"Without a fault, expected no test that fails. Received: {failed}", file=sys.stderr)
        return 2
    return int(missed > 0)


def _paths(tests: str, folders: bool) -> set[str]:
    paths = (pathlib.PurePosixPath("tests", x) for x in tests.split())
    return {str(x.parent if folders and len(x.parts) > 2 else x) for x in paths}


def _problem(file: str, old: str, new: str, tests: str) -> str:
    """What is wrong with a line of the table, empty if nothing is."""
    if (count := (ROOT / "tfrank_sel" / file).read_text().count(old)) != 1 or old == new:
        return f"tfrank_sel/{file}: expected the text once: {old!r}. Received: {count} times."
    lacking = [x for x in tests.split() if not (ROOT / "tests" / x).exists()]
    return f"tfrank_sel/{file}: no such tests: {lacking}" if lacking else ""


def _failed(
    tests: Collection[str], file: str = "__init__.py", old: str = "", new: str = ""
) -> list[str]:
    """The tests that fail in a copy of the tree that has the fault; ends at the first."""
    if not tests:
        return []
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "copy")
        shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
        faulty = copy / "tfrank_sel" / file
        faulty.write_text(faulty.read_text().replace(old, new) if old else faulty.read_text())
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not long", *sorted(tests)]
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        try:
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=LIMIT
            )
        except subprocess.TimeoutExpired:
            return [NO_END]
        if done.returncode not in RAN:
            raise RuntimeError(f"Pytest did not run {sorted(tests)}: {done.stdout[-2000:]}")
        failed = copy / FAILED_TESTS
        return list(json.loads(failed.read_text())) if done.returncode else []


if __name__ == "__main__":
    sys.exit(main())
