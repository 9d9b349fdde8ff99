"""The tables of docs/papers.md: rows name what exists, and docstrings their equations."""

import inspect
import pathlib
import re

import pytest

import tfrank_sel

ROOT = pathlib.Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
TABLES = [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)]
ROWS = [[cell.strip() for cell in row.split("|")[1:-1]] for _, _, *rows in TABLES for row in rows]
BUILT = [row for row in ROWS if row[1] != "not built"]


def equations(text: str) -> set[str]:
    """The numbers behind the word equation, up to the end of its sentence."""
    sentences = re.findall(r"\b[Ee]quations? (.*?)(?:\.\s|\.?$)", " ".join(text.split()))
    return {number for x in sentences for number in re.findall(r"\b(?:[A-I]\.)?\d+\b", x)}


def public(name: str) -> object:
    """The object of a public name, such as `losses.MatchingLoss`."""
    value: object = tfrank_sel
    for part in name.strip("`").split("."):
        assert part in dir(value), name
        value = getattr(value, part)
    return value


def test_there_is_a_table_for_each_paper() -> None:
    assert len(TABLES) == 5
    assert {len(row) for row in ROWS} == {5}


@pytest.mark.parametrize("row", BUILT, ids=lambda row: row[0])
def test_a_row_names_what_exists(row: list[str]) -> None:
    _, name, guide, test, result = row
    assert inspect.getdoc(public(name))
    [(page, _)] = re.findall(r"^\[[^]]+\]\(([\w.]+)(#[\w-]+)?\)$", guide)  # anchors: test_house.py
    assert (ROOT / "docs" / page).exists()
    [(path, function)] = re.findall(r"^`(tests/[\w/]+\.py)::(\w+)`$", test)
    assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")
    assert result


def test_the_docstring_of_a_name_has_the_equations_of_its_row() -> None:
    numbered = [(row[1], equations(row[0])) for row in BUILT if equations(row[0])]
    assert numbered
    for name, numbers in numbered:
        assert numbers <= equations(inspect.getdoc(public(name)) or ""), name


def test_what_is_not_built_has_a_reason() -> None:
    for _, name, guide, test, reason in ROWS:
        assert name != "not built" or (reason and not guide and not test)
