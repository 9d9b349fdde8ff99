"""Statements about other libraries: each stands in `docs/peers.json` with where it was read."""

import datetime
import json
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
SOURCES = json.loads((ROOT / "docs/peers.json").read_text("utf-8"))
LIBRARIES, CELLS, SENTENCES = (SOURCES[x] for x in ("libraries", "cells", "sentences"))
# Keras is what the package is made for, and not a peer
NAMES = re.compile("|".join(map(re.escape, sorted({*LIBRARIES} - {"Keras"}))))
OURS = ("feature", "tfrank_sel", "our test")


def blocks(name: str) -> list[str]:
    """The paragraphs, bullets and tables of a page."""
    path = ROOT / name if name == "README.md" else ROOT / "docs" / name
    text = re.sub(r"(?s)```.*?```|<!--.*?-->|^#.*?$", "", path.read_text("utf-8"), flags=re.M)
    return [x.strip() for x in re.split(r"\n\s*\n|\n(?=\* )", text) if x.strip()]


def test_each_cell_about_a_library_says_where_it_was_read() -> None:
    tables = [x for x in blocks("comparison.md") if x.startswith("| feature")]
    for table, sources in zip(tables, CELLS.values(), strict=True):
        columns, _, *rows = [
            [x.strip() for x in row.strip("|").split(" | ")] for row in table.splitlines()
        ]
        shown = {row[0]: dict(zip(columns, row, strict=True)) for row in rows}
        for row in shown.values():
            for column in OURS:
                del row[column]
        stated = {
            feature: {column: cell for column, (cell, _) in row.items()}
            for feature, row in sources.items()
        }
        assert shown == stated


@pytest.mark.parametrize("name", SENTENCES)
def test_each_sentence_about_a_library_says_where_it_was_read(name: str) -> None:
    # tables of features are above, and tests/golden/test_migration.py compares those of parity.md
    tables = ("| feature", "|") if name == "parity.md" else ("| feature",)
    units = [
        unit
        for block in blocks(name)
        if not block.startswith(tables)
        for unit in (block.splitlines() if block.startswith("|") else [" ".join(block.split())])
    ]
    units = [x.removeprefix("* ") for x in units]
    assert [x for x in units if NAMES.search(x) and x not in SENTENCES[name]] == []
    assert [x for x in SENTENCES[name] if x not in units] == []


def test_a_source_is_a_version_of_a_library_or_a_file_of_the_project() -> None:
    sources = [source for row in CELLS.values() for x in row.values() for _, source in x.values()]
    sources += [source for page in SENTENCES.values() for source in page.values()]
    for source in sources:
        for origin in source.split("; "):
            name, _, where = origin.partition(": ")
            assert (name in LIBRARIES and where) or (ROOT / origin).exists(), origin
    for library in LIBRARIES.values():
        assert library["version"]
        assert library["read"]
        assert datetime.date.fromisoformat(library["date"])
