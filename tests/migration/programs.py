"""Programs of `*.py.txt`, with the package that they import and after their migration.

`python -m tests.migration.programs` records the curves of the originals, on the second stack.
"""

import json
import pathlib
from typing import Any

from tfrank_sel.migration import rewriting

FOLDER = pathlib.Path(__file__).parent
PACKAGES = {"quickstart": "tensorflow_ranking", "recommenders": "tensorflow_recommenders"}


def original(name: str) -> str:
    return (FOLDER / f"{name}.py.txt").read_text()


def run(code: str) -> dict[str, Any]:
    """Runs a program and returns its training curve and the best movies of a user."""
    found: dict[str, Any] = {"__name__": "program"}
    exec(compile(code, "program", "exec"), found)
    best = [x.decode() for x in found["best"].numpy()[0]]
    return {"history": found["history"], "best": best}


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found


def migrated(name: str) -> str:
    return rewriting.rewrite(original(name))


if __name__ == "__main__":
    for name in PACKAGES:
        record = json.dumps(run(original(name)), indent=1)
        (FOLDER / f"{name}.json").write_text(record + "\n")
