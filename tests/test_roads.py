"""Roads import what the core shows, the core imports no road, and no modules import each other."""

import functools
import importlib
import inspect
import re

import pytest

from tests import structure
from tests.roads import ROADS, ROOT, lines
from tfrank_sel import roads

FILES = structure.files()
# what roads import from inside the core: at most ten, each for a reason
INNER = {
    # of two equal fields in JSON, neither is right
    ("engines", "tfrank_sel.data.formats.text"),
    ("migration", "tfrank_sel.ops.ranking"),
    # constants of formulas that a graph of ONNX computes again
    ("onnx", "tfrank_sel.models.preparation"),
    ("onnx", "tfrank_sel.models.recalibrated"),
    # options, candidates and requests of a run, and records without a file, in components of TFX
    ("tfx", "tfrank_sel.data.formats.records"),
    ("tfx", "tfrank_sel.data.formats.rows"),
    ("tfx", "tfrank_sel.pipelines.commands.options"),
    ("tfx", "tfrank_sel.pipelines.export.requests"),
    ("tfx", "tfrank_sel.pipelines.learning.instantiate"),
    ("tfx", "tfrank_sel.pipelines.runners.beams"),
}


@functools.cache
def road_of(module: str) -> str | None:
    """The road that a module belongs to; None for the core."""
    path = FILES[module].relative_to(ROOT)
    of = [road for road, x in ROADS.items() if any(map(path.is_relative_to, x["paths"]))]
    return of[0] if of else None


@functools.cache
def names(package: str) -> list[str]:
    """What a package shows to its users."""
    module = importlib.import_module(package)
    if "__dir__" in vars(module):
        return dir(module)
    return [x for x, value in vars(module).items() if x[0] != "_" and not inspect.ismodule(value)]


def is_shown(module: str, name: str = "") -> bool:
    """Whether a module, or a name in it, is for users; files beside the packages are for all."""
    parent, _, last = module.rpartition(".")
    if parent not in ("", "tfrank_sel") and not (is_shown(parent) and last in names(parent)):
        return False
    return not name or FILES[module].name != "__init__.py" or name in names(module)


@functools.cache
def crossings() -> dict[str, set[tuple[str, str]]]:
    """By importing module, the road or core that it imports from and the module, but its own."""
    found: dict[str, set[tuple[str, str]]] = {}
    for module in FILES:
        for target, name in structure.imports(module):
            if target in FILES and road_of(target) != road_of(module):
                is_inner = road_of(target) is None and not is_shown(target, name)
                kind = "inner" if is_inner else road_of(target) or "shown"
                found.setdefault(module, set()).add((kind, target))
    return found


def test_the_core_and_other_roads_import_no_road() -> None:
    assert {(x, y) for x, to in crossings().items() for kind, y in to if kind in ROADS} == set()


def test_roads_import_what_the_core_shows_and_at_most_ten_inner_modules() -> None:
    found = {(road_of(x), y) for x, to in crossings().items() for kind, y in to if kind == "inner"}
    there = {x for x in INNER if x[0] in {*map(road_of, FILES)}}
    assert found == there
    assert len(INNER) <= 10


def test_no_modules_import_each_other() -> None:
    assert structure.circle() == []


@pytest.mark.parametrize("road", [x for x in ROADS if roads.exists(x)])
def test_what_belongs_to_a_road_is_there(road: str) -> None:
    assert [x for x in ROADS[road]["paths"] if not (ROOT / x).exists()] == []
    texts = {name: (ROOT / name).read_text() for name, _ in lines([road])}
    stale = [x for name, x in lines([road]) if not re.search(rf"^(?:{x})\n", texts[name], re.M)]
    assert stale == []


def test_a_road_that_is_left_out_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(roads.PACKAGES, "onnx", "tfrank_sel.absent")
    with pytest.raises(ImportError, match=r"needs tfrank_sel.absent, which this installation"):
        roads.load("onnx", "`x`")
