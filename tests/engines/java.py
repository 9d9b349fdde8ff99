"""Programs of Java that score lists."""

import csv
import pathlib
import subprocess
from collections.abc import Sequence

import numpy as np

from tests.engines.engines import JARS, ROOT

HERE = ROOT / "tests/engines"
LISTS, ITEMS = 1000, 20


def score(
    engine: str,
    program: str,
    names: Sequence[str],
    x: np.ndarray,
    folder: pathlib.Path,
    *arguments: str,
) -> None:
    """Runs a program of this folder on lists of named features, as a CSV file in a folder."""
    with open(folder / "items.csv", "w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["list", "id", *names])
        for number, row in enumerate(x.reshape([-1, len(names)]).tolist()):
            table.writerow([number // ITEMS, number, *row])
    command = ["java", "-cp", f"{JARS}/{engine}/*", str(HERE / program), str(folder), *arguments]
    subprocess.run(command, check=True, timeout=300, cwd=folder)
