"""A program of tensorflow-ranking keeps its training curve when it is migrated."""

import ast
from typing import Any

import numpy as np
import pytest

from tests.migration import quickstart

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*ran out of data"),
    pytest.mark.filterwarnings("ignore:.*shuffle=True"),
]


def assert_is_recorded(found: dict[str, Any]) -> None:
    expected = quickstart.recorded()
    assert found["history"].keys() == expected["history"].keys()
    for name, values in expected["history"].items():
        np.testing.assert_allclose(found["history"][name], values, rtol=0.0, atol=1e-3)
    assert found["best"] == expected["best"]


def test_the_migrated_program_has_the_curve_of_the_original() -> None:
    assert_is_recorded(quickstart.run(quickstart.migrated()))


def test_the_recorded_curve_is_that_of_the_original() -> None:
    pytest.importorskip("tensorflow_ranking")
    assert_is_recorded(quickstart.run(quickstart.ORIGINAL))


def test_the_recorded_curve_learns() -> None:
    ndcg = quickstart.recorded()["history"]["ndcg"]
    assert ndcg[-1] > ndcg[0] + 0.05


def test_a_migrated_program_is_not_rewritten_again() -> None:
    migrated = quickstart.migrated()
    ast.parse(migrated)
    assert "tensorflow_ranking" not in migrated
    assert quickstart.rewriting.rewrite(migrated) == migrated
