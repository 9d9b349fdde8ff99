"""Reads golden vectors: from the folder that GOLDEN_DIR names, or else from this one."""

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

Case = dict[str, Any]
Replay = Callable[[Case, str], None]

TOLERANCE = {"float64": 1e-10, "float32": 2e-5}


of_our_files = pytest.mark.skipif(
    "GOLDEN_DIR" in os.environ, reason="about the files of this folder, not those of GOLDEN_DIR"
)


def contents(file: str, folder: pathlib.Path = pathlib.Path(__file__).parent) -> dict[str, Any]:
    """What a file of vectors holds."""
    folder = pathlib.Path(os.environ.get("GOLDEN_DIR", folder))
    vectors: dict[str, Any] = json.loads((folder / file).read_text())
    return vectors


def in_modes(cases: Sequence[Case], kind: str, name: str = "id") -> list[Any]:
    """Each case under its own name; the first of each kind once more, as users run it: compiled.

    `with_dtypes` gives those one dtype: `tests/contracts/test_modes.py` holds the other to it.
    """
    first = {case[kind]: case for case in reversed(cases)}
    marks = [pytest.mark.compiled, pytest.mark.long]
    return [
        *(pytest.param(case, id=case[name]) for case in cases),
        *(pytest.param(x, id=f"{x[name]}-compiled", marks=marks) for x in first.values()),
    ]


def with_dtypes(
    parameters: Iterable[Any], where: Callable[[Case, str], bool] = lambda case, dtype: True
) -> list[Any]:
    """The parameters with each dtype that `where` admits; the compiled ones with the smallest."""
    found = []
    for x in parameters:
        dtypes = [dtype for dtype in TOLERANCE if where(*x.values, dtype)]
        found += [
            pytest.param(*x.values, dtype, id=f"{x.id}-{dtype}", marks=x.marks)
            for dtype in (dtypes[-1:] if x.marks else dtypes)
        ]
    return found


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
