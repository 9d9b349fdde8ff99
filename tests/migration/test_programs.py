"""A program of another package keeps its training curve when it is migrated."""

import ast
from typing import Any

import numpy as np
import pytest

from tests.migration import programs

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ran out of data"),
    pytest.mark.filterwarnings("ignore:.*shuffle=True"),
    pytest.mark.parametrize("name", programs.PACKAGES),
]


def assert_is_recorded(name: str, found: dict[str, Any]) -> None:
    expected = programs.recorded(name)
    assert found["history"].keys() == expected["history"].keys()
    for key, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][key], values, 1e-4, 1e-3, err_msg=key)
    assert found["best"] == expected["best"]


@pytest.mark.long
def test_the_migrated_program_has_the_curve_of_the_original(name: str) -> None:
    assert_is_recorded(name, programs.run(programs.migrated(name)))


def test_the_recorded_curve_is_that_of_the_original(name: str) -> None:
    pytest.importorskip(programs.PACKAGES[name])
    assert_is_recorded(name, programs.run(programs.original(name)))


def test_the_recorded_curve_learns(name: str) -> None:
    history = programs.recorded(name)["history"]
    first, *_, last = history.get("ndcg") or [-x for x in history["plain loss"]]
    assert last > first + 0.05


def test_a_migrated_program_is_not_rewritten_again(name: str) -> None:
    migrated = programs.migrated(name)
    ast.parse(migrated)
    assert programs.PACKAGES[name] not in migrated
    assert "tfrank-sel-migrate" not in migrated
    assert programs.rewriting.rewrite(migrated) == migrated
