"""GPU benchmark cases: programs, their inputs and their peers.

Needs neither TensorFlow nor JAX.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

MANIFEST = "cases.json"
SEED = 0
RATE = 0.01  # of gradient descent, ours and the peers'
TOP_K = 5


@dataclasses.dataclass(frozen=True)
class Input:
    """An array of random numbers, uniform between two bounds.

    Args:
        shape: Its shape.
        dtype: Name of its dtype.
        low: Lower bound, inclusive.
        high: Upper bound, exclusive; integers are rounded down.
    """

    shape: Sequence[int]
    dtype: str
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Case:
    """A program and how it is timed.

    Args:
        name: What the program computes.
        documents: How many documents a call covers.
        inputs: Arguments of the program, in order.
        peers: Names of the peers, which take the same arguments.
    """

    name: str
    documents: int
    inputs: Sequence[Input]
    peers: Sequence[str]

    @property
    def file(self) -> str:
        """Name of the file that holds the program."""
        return re.sub(r"\W+", "_", self.name).strip("_") + ".hlo"

    def arguments(self) -> list[np.ndarray]:
        """Draws the arguments, the same at each call."""
        rng = np.random.default_rng(SEED)
        return [rng.uniform(x.low, x.high, x.shape).astype(x.dtype) for x in self.inputs]


def write(folder: pathlib.Path, cases: Sequence[Case]) -> None:
    """Writes the manifest of a folder."""
    content = {"seed": SEED, "cases": [{"file": x.file, **dataclasses.asdict(x)} for x in cases]}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1) + "\n")


def read(folder: pathlib.Path) -> list[Case]:
    """Reads the manifest of a folder."""
    return [_case(**x) for x in json.loads((folder / MANIFEST).read_text())["cases"]]


def _case(file: str, inputs: Sequence[dict[str, Any]], **more: Any) -> Case:
    return Case(inputs=[Input(**x) for x in inputs], **more)
