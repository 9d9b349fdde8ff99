"""The program of `quickstart.py.txt`, with tensorflow-ranking and after its migration.

`python -m tests.migration.quickstart` records the curve of the original, on the second stack.
"""

import json
import pathlib
from typing import Any

from tfrank_sel.migration import rewriting

FOLDER = pathlib.Path(__file__).parent
ORIGINAL = (FOLDER / "quickstart.py.txt").read_text()
RECORD = FOLDER / "quickstart.json"


def run(code: str) -> dict[str, Any]:
    """Runs a program and returns its training curve and the best movies of a user."""
    found: dict[str, Any] = {"__name__": "quickstart"}
    exec(compile(code, "quickstart", "exec"), found)
    best = [x.decode() for x in found["best"].numpy()[0]]
    return {"history": found["history"], "best": best}


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORD.read_text())
    return found


def migrated() -> str:
    return rewriting.rewrite(ORIGINAL)


if __name__ == "__main__":
    RECORD.write_text(json.dumps(run(ORIGINAL), indent=1) + "\n")
