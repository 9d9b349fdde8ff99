"""Reads golden vectors: from the folder that GOLDEN_DIR names, or else from this one."""

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

Case = dict[str, Any]
Replay = Callable[[Case, str], None]

TOLERANCE = {"float64": 1e-10, "float32": 2e-5}


def contents(file: str) -> dict[str, Any]:
    """What a file of vectors holds."""
    folder = pathlib.Path(os.environ.get("GOLDEN_DIR", pathlib.Path(__file__).parent))
    vectors: dict[str, Any] = json.loads((folder / file).read_text())
    return vectors


def cases(file: str, where: Callable[[Case, str], bool] = lambda case, dtype: True) -> list[Any]:
    """The cases of a file with each dtype that `where` admits, each under its own name."""
    return [
        pytest.param(case, dtype, id=f"{case['id']}-{dtype}")
        for case in contents(file)["cases"]
        for dtype in TOLERANCE
        if where(case, dtype)
    ]


def replay(case: Case, dtype: str, replays: dict[str, Replay]) -> None:
    """Replays a case by its family; a family that nobody replays is a failure."""
    if case["family"] not in replays:
        pytest.fail(f"{case['id']}: no replay for the family {case['family']!r}")
    replays[case["family"]](case, dtype)


def assert_close(
    actual: ArrayLike, expected: ArrayLike, dtype: str, tolerances: dict[str, float] = TOLERANCE
) -> None:
    """Compares with the tolerance of the dtype, relative to the largest number expected.

    What is too small for the dtype to hold is 0.
    """
    expected = np.where(np.abs(expected) < np.finfo(dtype).tiny, 0.0, expected)
    scale = float(np.max(np.abs(expected), initial=0.0))
    tolerance = tolerances[dtype]
    np.testing.assert_allclose(actual, expected, rtol=tolerance, atol=tolerance * scale)
