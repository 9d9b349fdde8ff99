"""Intended differences from tensorflow-ranking: `tfr_differences.json`.

A difference has the losses, metrics or formats of tensorflow-ranking that it is `about`, `where`
they differ, the `difference`, and the ids of the `cases`. A case of losses and metrics has what
tfrank_sel returns instead, which was compared with an independent reference. `of` names what
differs; without it, all does. `python -m tests.golden.differences` prints the tables of
`docs/parity.md`.
"""

import json
import pathlib
from typing import Any

from tests.golden.vectors import Case

Difference = dict[str, Any]
DIFFERENCES: dict[str, list[Difference]] = json.loads(
    (pathlib.Path(__file__).parent / "tfr_differences.json").read_text()
)
MORE_LOSSES: list[Case] = DIFFERENCES.pop("more_losses")  # of which there is no recorded value
HEADS = {
    "losses": "loss of tensorflow-ranking",
    "metrics": "metric of tensorflow-ranking",
    "data": "format",
}


def of(kind: str, case: Case) -> list[Difference]:
    """The intended differences of a case of losses, metrics or data."""
    return [d for d in DIFFERENCES[kind] if case["id"] in d["cases"]]


def table(kind: str) -> str:
    """The differences in markdown."""
    lines = [f"| {HEADS[kind]} | where | difference |", "|---|---|---|"]
    rows = ((d["about"], d["where"], d["difference"]) for d in DIFFERENCES[kind])
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


if __name__ == "__main__":
    print(*map(table, HEADS), sep="\n\n")
