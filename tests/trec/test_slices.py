"""Tables of queries for `tfrank-sel-metrics compare --queries`."""

import gzip
import re

import pytest
from typer.testing import CliRunner

from tests.test_tables import invoked
from tfrank_sel.data import InputError
from tfrank_sel.trec.__main__ import app as metrics_app


@pytest.mark.sample(4)
@pytest.mark.parametrize("suffix", ["csv", "tsv.gz"])
def test_slices_of_a_comparison_are_those_of_a_table(tmp_path, suffix):
    (tmp_path / "qrels").write_text("007 0 a 1\n7 0 a 1\n")
    for name in ("one", "two"):
        (tmp_path / name).write_text("".join(f"{q} Q0 a 1 1.0 t\n" for q in ("007", "7")))
    mark = "," if suffix == "csv" else "\t"
    text = f"query_id{mark}kind\n007{mark}01\n7{mark}1e5\n".encode()
    path = tmp_path / f"queries.{suffix}"
    pack = gzip.compress if suffix.endswith("gz") else bytes
    runs = ["compare", tmp_path / "one", tmp_path / "two", "--qrels", tmp_path / "qrels"]
    options = ["--queries", path, "--slice-by", "kind", "--resamples", "10"]
    path.write_bytes(pack(b"\xef\xbb\xbf" + text))
    told = invoked(metrics_app, *runs, *options)
    assert "01" in told
    assert "1e5" in told
    for wrong in (text.decode().encode("utf-16"), text + b"x" * 200_000, text[:4]):
        path.write_bytes(pack(wrong))
        with pytest.raises(InputError, match=f"queries.{suffix}"):
            invoked(metrics_app, *runs, *options)


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ("1,x\n2,x\n", "1 of 3 queries, such as '3', have no slice in .*queries.csv"),
        ("1,x\n2,x\n3,\n", "1 of 3 queries, such as '3', have no slice in .*queries.csv"),
        ("1,x\n", "at least half of the queries must be among .*2 of 3 queries, such as '2', are"),
        ("1.0,x\n2.0,x\n3.0,y\n", "3 of 3 queries, such as '1', are not"),
        (
            "1,x\n2,x\n3,y\n1,y\n",
            "queries.csv.txt must have a row for each query. Received: 2 of query 1",
        ),
        ("1,x\n,x\n", "queries.csv.txt, row 2: 'query_id' must be"),
    ],
)
def test_queries_without_one_slice_are_told(tmp_path, rows, told):
    (tmp_path / "qrels").write_text("1 0 a 1\n2 0 a 1\n3 0 a 1\n")
    for name in ("one", "two"):
        (tmp_path / name).write_text("1 Q0 a 1 1.0 t\n")
    (tmp_path / "queries.csv.txt").write_text(f"query_id,kind\n{rows}")
    runs = ["compare", tmp_path / "one", tmp_path / "two", "--qrels", tmp_path / "qrels"]
    options = ["--queries", tmp_path / "queries.csv.txt", "--slice-by", "kind", "--resamples", "10"]
    if told.startswith("1 of 3"):
        line = CliRunner().invoke(metrics_app, [str(x) for x in (*runs, *options)]).stderr
        assert re.fullmatch(f"Warning: {told}.txt\n", line)
    else:
        with pytest.raises(ValueError, match=told):
            invoked(metrics_app, *runs, *options)
