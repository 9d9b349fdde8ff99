"""`make test` runs the same cases on all days, and these meet every formula, mode and format."""

import collections
import itertools
import json
import time
from collections.abc import Iterable

import hypothesis
import pytest

from tests import conftest, mutants
from tests.cases import Case, LinkCase


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> list[pytest.Function]:
    """All cases of what this run has read, with those that it leaves out."""
    return [item for item in request.config.stash[conftest.COLLECTED] if hasattr(item, "callspec")]


def left_out(cases: Iterable[tuple[str, str, pytest.Item]]) -> dict[str, set[str]]:
    """The values of each group that only cases have which `make test` leaves out."""
    every, met = (
        collections.defaultdict[str, set[str]](set),
        collections.defaultdict[str, set[str]](set),
    )
    for group, value, case in cases:
        every[group].add(value)
        if case.get_closest_marker("long") is None:
            met[group].add(value)
    return {x: every[x] - met[x] for x in every if every[x] != met[x]}


def test_the_cases_are_the_same_on_all_days(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = itertools.product(range(9), range(5))
    cases = {f"test[{x}-{y}]": {("x", x), ("y", y), (x, y)} for x, y in pairs}
    found = []
    for day in (20_000, 20_001, 20_002, 20_365, 21_000):
        monkeypatch.setattr(time, "time", lambda day=day: 86_400.0 * day)
        found.append(conftest.sample(cases, 5))
    assert found == [found[0]] * 5
    assert len(found[0]) == 9
    assert set.union(*(cases[name] for name in found[0])) >= {("x", x) for x in range(9)}
    assert set.union(*(cases[name] for name in found[0])) >= {("y", y) for y in range(5)}
    assert hypothesis.settings.default.derandomize


def test_equal_values_of_parameters_are_one_value(collected: list[pytest.Function]) -> None:
    cases = [x for x in collected if x.callspec.params.get("mode") == "XLA"]
    assert all(("mode", "XLA") in conftest.values_of(case) for case in cases)


def test_each_formula_meets_each_kind_of_contract(collected: list[pytest.Function]) -> None:
    """In each file one contract that runs eagerly, and one of those that make graphs."""
    cases = []
    for item in collected:
        case = item.callspec.params.get("case")
        if "contracts" in item.path.parts and isinstance(case, Case | LinkCase):
            is_compiled = item.get_closest_marker("compiled") is not None
            is_graph = is_compiled or item.path.name == "test_modes.py"
            family = case.make.func if isinstance(case, Case) else type(case.link)
            if is_graph or "eagerly" in item.fixturenames:
                cases.append(("graphs" if is_graph else item.path.name, family.__name__, item))
    assert left_out(cases) == {}


def test_each_mode_and_each_format_is_met(collected: list[pytest.Function]) -> None:
    cases = []
    for item in collected:
        values = item.callspec.params
        if any(mark.name == "long" for mark in getattr(item.function, "pytestmark", ())):
            continue  # a long trial as a whole, not a case beyond a sample
        if "mode" in values:
            cases.append((f"{item.path.name}: {item.originalname}", str(values["mode"]), item))
        if "format" in values:
            cases.append(("formats", str(values["format"]), item))
    assert left_out(cases) == {}


def test_each_golden_file_is_met(collected: list[pytest.Function]) -> None:
    cases = [("golden", x.path.name, x) for x in collected if conftest.is_golden(x.path)]
    assert left_out(cases) == {}


def test_each_fault_that_tests_must_find_has_its_code_and_tests() -> None:
    rows = json.loads((mutants.ROOT / "tests" / "mutants.json").read_text())
    # a copy without a road lacks its package
    rows = [x for x in rows if (mutants.ROOT / "tfrank_sel" / x[0].split("/")[0]).exists()]
    assert len(rows) > 50
    assert not [x for row in rows if (x := mutants.problem(*row))]
