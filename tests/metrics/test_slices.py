"""Tables of queries for `tfrank-sel-metrics compare --queries`."""

import gzip

import pytest

from tests.test_tables import invoked
from tfrank_sel.data import InputError
from tfrank_sel.metrics.__main__ import app as metrics_app


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
