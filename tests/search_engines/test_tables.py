"""Odd columns through `tfrank-sel-engine collect`: as `data.read`, or one line."""

from unittest import mock

import pytest
from pyarrow import parquet

from tests import test_tables as columns
from tfrank_sel.search_engines.__main__ import ENGINES, app
from tfrank_sel.search_engines.engine import Logged
from tfrank_sel.search_engines.plugin import Plugin


class Echo(Plugin):
    """An engine that has all documents."""

    def search(self, text, documents, **ranker):
        return {x: Logged({"f": 1.0}, 0.0) for x in documents}


def by_collect(path, role, folder):
    output = folder / "collected.parquet"
    output.unlink(missing_ok=True)
    names = {"query": "query", "doc_id": "item", role: "x"}
    given = ["--query", names["query"], "--doc-id", names["doc_id"], "--label", "click"]
    given += ["--engine", "o19s", "--url", "http://localhost/items", "--features", "f"]
    with mock.patch.dict(ENGINES, {"o19s": Echo}):
        columns.invoked(app, "collect", path, "--output", output, *given)
    return sorted(set(parquet.read_table(output)["x"].to_pylist()))


def test_labels_may_be_negative(tmp_path):
    (tmp_path / "log.csv").write_text("query,item,click,x\nq,a,-1,q\n")
    assert by_collect(tmp_path / "log.csv", "query", tmp_path) == ["q"]
    assert parquet.read_table(tmp_path / "collected.parquet")["click"].to_pylist() == [-1.0]


NO_ID = {"nothing", "NaN"}  # of an item, which lists may lack and documents may not


@pytest.mark.sample(6)
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow"])
@pytest.mark.parametrize(("role", "index"), [("query", 1), ("doc_id", 2)])
def test_identifiers_are_those_of_read(tmp_path, suffix, role, index):
    for name, values in {**columns.PLAIN, **columns.ARRAYS}.items():
        path = columns.written(tmp_path, values, lambda row: row[index], suffix)
        if path is not None:
            wanted, found = (
                columns.attempt(x, path, role, tmp_path) for x in (columns.by_read, by_collect)
            )
            assert found == (None if name in NO_ID else wanted), name
