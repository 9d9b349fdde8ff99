"""Files of every format, read by the one reader that each has."""

import subprocess
import sys

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import csv, parquet

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import InputError, formats, frames, letor
from tfrank_sel.data.formats import Part

COLUMNS = {
    "query_id": ["b", "a", "b", "a", "c"],
    "relevance": [2, 0, 1, 3, 0],
    "price": [0.5, 1.5, 2.5, 3.5, 4.5],
    "title": ["v", "w", "x", "y", "z"],
    "stock": [10, 11, 12, 13, 14],
}
EXPECTED = [
    ("b", [2.0, 1.0], [[0.5, 10.0], [2.5, 12.0]], ("b:1", "b:2")),
    ("a", [0.0, 3.0], [[1.5, 11.0], [3.5, 13.0]], ("a:1", "a:2")),
    ("c", [0.0], [[4.5, 14.0]], ("c:1",)),
]


def plain(lists):
    return [(x.query_id, x.labels.tolist(), x.features.tolist(), x.doc_ids) for x in lists]


@pytest.fixture
def files(tmp_path):
    """The columns in a file of each format of tables."""
    table = pyarrow.table(COLUMNS)
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    csv.write_csv(table, tmp_path / "a.csv")
    with pyarrow.output_stream(tmp_path / "a.csv.gz", compression="gzip") as stream:
        csv.write_csv(table, stream)
    return sorted(tmp_path.iterdir())


def test_the_same_columns_are_features_by_every_way_in(files):
    for path in files:
        assert formats.reader([str(path)]).layout([str(path)]).names == ["price", "stock"]
        assert plain(data.read(path)) == EXPECTED
    for frame in (COLUMNS, pandas.DataFrame(COLUMNS), pandas.read_csv(files[0])):
        assert plain(frames.lists(frame)) == EXPECTED


def test_a_column_of_text_that_is_named_as_a_feature_is_refused(files):
    for path in files:
        with pytest.raises(InputError, match=r"expected numbers in the column 'title'. .* string"):
            next(data.read(path, features=["price", "title"]))
    with pytest.raises(InputError, match=r"frame: expected numbers in the column 'title'"):
        next(frames.lists(COLUMNS, features=["title"]))


def test_columns_that_no_default_takes_may_be_named():
    frame = {"q": [1], "y": [1], "is_new": [True], "x": [2.0]}

    for features, expected in (((), [[2.0]]), (["is_new", "x"], [[1.0, 2.0]])):
        [only] = frames.lists(frame, query="q", label="y", features=features)
        assert only.features.tolist() == expected


def test_what_cannot_be_used_is_an_error_with_its_place(files, tmp_path):
    bad = pyarrow.table({**COLUMNS, "stock": [10, None, 12, 13, 14]})
    parquet.write_table(bad, tmp_path / "bad.parquet")
    csv.write_csv(bad, tmp_path / "bad.csv")
    (tmp_path / "bad.txt").write_text("1 qid:1 1:1\n1 qid:2 1:1\n0 qid:2 1:x\n")
    places = {"bad.parquet": ", row 2", "bad.csv": ", row 2", "bad.txt": ":3"}
    for name, place in places.items():
        with pytest.raises(InputError) as error:
            list(data.read(tmp_path / name))
        reason = str(error.value).removeprefix(f"{tmp_path / name}{place}: ")
        assert reason.replace("'stock'", "a feature").startswith(
            "a feature must be a finite number"
        )
    lists = data.read(tmp_path / "bad.txt")
    assert next(lists).query_id == "1"  # what comes before it is read


def test_what_cannot_be_read_is_told(tmp_path):
    (tmp_path / "a.csv").write_text("query_id,relevance,x\n")
    for paths, kind, reason in (
        ([], ValueError, "`paths` must name at least one file"),
        ([tmp_path / "a.csv"], InputError, "a.csv: expected a column of numbers"),
        ([tmp_path / "a.csv", "b.parquet"], InputError, "b.parquet: expected csv, as"),
        ([tmp_path / "no.parquet"], InputError, "expected a readable table. .*No such file"),
        ([tmp_path / "no.tfrecord"], InputError, "expected a readable TFRecord file"),
    ):
        with pytest.raises(kind, match=reason):
            next(data.read(paths))
    with pytest.raises(ValueError, match=r"`format` must be one of letor, elwc, .* Received: arff"):
        next(data.read("a.arff", format="arff"))


@pytest.fixture(scope="module")
def lists():
    return sets.made(count=12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, lists):
    folder = tmp_path_factory.mktemp("formats")
    for write in (sets.write_tables, sets.write_records):
        write(folder, lists)
    letor.write(folder / "all.txt", lists)
    return folder


@pytest.mark.parametrize("format", formats.FORMATS)
def test_lists_of_every_format_are_read_whole(folder, lists, format):
    paths = {"letor": ["all.txt"], "parquet": ["a.parquet", "b.parquet"]}
    is_table = issubclass(formats.FORMATS[format], formats.TableReader)
    names = paths.get(format, [f"all.{format}" if is_table else f"{format}.tfrecord"])
    features = (
        [f"x{i}" for i in range(6)] if is_table else [] if format == "letor" else list("exyz")
    )
    found = data.read([folder / name for name in names], format=format, features=features)
    by_query = {one.query_id: one for one in found}
    assert len(by_query) == len(lists)
    for one in lists:
        order = np.argsort(by_query[one.query_id].doc_ids)
        expected = np.argsort(one.doc_ids)
        for part in ("labels", "features"):
            was, read = getattr(one, part), getattr(by_query[one.query_id], part)
            np.testing.assert_array_equal(read[order], was[expected])


def test_bytes_are_no_feature_of_records(folder):
    lists = data.read(folder / "elwc.tfrecord", doc_id="id", features=["x", "doc_id"])
    with pytest.raises(InputError, match=r"expected numbers in 'doc_id'\. Received: bytes"):
        next(lists)


def test_a_file_of_adjacent_rows_streams(tmp_path, lists):
    path = tmp_path / "a.parquet"
    parquet.write_table(sets.table(lists), path)
    adjacent, grouped = (plain(data.read(path, adjacent=value)) for value in (True, False))
    assert adjacent == grouped
    assert [query for query, *_ in adjacent] == [one.query_id for one in lists]


def test_row_groups_of_parquet_are_parts_with_the_numbers_of_their_rows(files):
    [path] = [str(path) for path in files if path.suffix == ".parquet"]
    reader = formats.reader([path])
    parts = reader.parts(path)
    assert parts == [Part(path, 0, 1), Part(path, 1, 2), Part(path, 2, 3)]
    layout = reader.layout([path])
    found = [rows for part in parts for rows in reader.rows(part, layout)]
    assert [rows.place[1].tolist() for rows in found] == [[1, 2], [3, 4], [5]]
    [whole] = reader.rows(Part(path), layout)
    assert np.concatenate([rows.features for rows in found]).tolist() == whole.features.tolist()


def test_only_tables_need_pyarrow():
    code = """
import sys
sys.modules["pyarrow"] = sys.modules["tensorflow_serving"] = None
from tfrank_sel import data
try:
    next(data.read("a.csv"))
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "Tables need pyarrow: pip install 'tfrank_sel[frames]'", (
        done.stderr
    )
