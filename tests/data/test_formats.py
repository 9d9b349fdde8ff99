"""Files of every format, read by the one reader that each has."""

import decimal
import subprocess
import sys

import numpy as np
import pandas
import pyarrow
import pytest
from pyarrow import csv, feather, parquet

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import InputError, formats, frames, letor
from tfrank_sel.data.formats import Columns, Part
from tfrank_sel.features import Bool, Category, Number, Set, Timestamp, Vector

NOTHING = "__HIVE_DEFAULT_PARTITION__"

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
        assert formats.reader([str(path)]).infer([str(path)]).names == ["price", "stock"]
        assert plain(data.read(path)) == EXPECTED
    for frame in (COLUMNS, pandas.DataFrame(COLUMNS), pandas.read_csv(files[0])):
        assert plain(frames.lists(frame)) == EXPECTED


def test_an_index_of_pandas_in_a_file_is_no_feature(tmp_path):
    frame = pandas.DataFrame(COLUMNS).sort_values("price")
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_csv(tmp_path / "a.csv")
    pandas.read_csv(tmp_path / "a.csv").to_csv(tmp_path / "b.csv")
    for path in tmp_path.iterdir():
        assert plain(data.read(path)) == EXPECTED


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


@pytest.mark.sample(3)
@pytest.mark.parametrize("format", [x for x in formats.FORMATS if x != "letor"])
def test_files_without_labels_are_read_as_lists_of_zeros(folder, tmp_path, lists, format):
    is_table = issubclass(formats.FORMATS[format], formats.TableReader)
    features = [f"x{i}" for i in range(6)] if is_table else list("exyz")
    if is_table:
        folder = tmp_path
        sets.write_tables(folder, lists, without=["relevance"])
    names = {"parquet": ["a.parquet", "b.parquet"]}
    paths = names.get(format, [f"all.{format}" if is_table else f"{format}.tfrecord"])
    paths = [folder / name for name in paths]
    found = list(data.read(paths, format=format, label=None, features=features))
    assert {one.query_id for one in found} == {one.query_id for one in lists}
    for one in found:
        assert one.labels.tolist() == [0.0] * len(one.doc_ids)
        assert one.weights is None
    weighted = data.read(
        paths, format=format, label=None, features=features[:-1], weight=features[-1]
    )
    for one, plain in zip(weighted, found, strict=True):
        np.testing.assert_array_equal(one.weights, plain.features[:, -1])


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
    layout = reader.infer([path])
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
    assert done.stdout.strip() == "tables need pyarrow: pip install 'tfrank_sel[frames]'", (
        done.stderr
    )


def test_tables_do_not_need_pandas():
    code = """
import sys
sys.modules["pandas"] = None
from tfrank_sel.data import arrays, arrow_types
print(hasattr(arrow_types.arrow(), "compute"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "True", done.stderr


def test_a_folder_of_parquet_is_read_with_the_columns_that_its_folders_name(tmp_path):
    table = pyarrow.table(COLUMNS)
    for name, rows in (("day=1/country=A%20B", [0, 1, 2]), ("day=2/country=" + NOTHING, [3, 4])):
        (tmp_path / name).mkdir(parents=True)
        parquet.write_table(table.take(rows), tmp_path / name / "part.parq", row_group_size=1)
    (tmp_path / "_temporary").mkdir()
    (tmp_path / "_temporary" / "x.parquet").write_text("no table")
    types = {"price": Number(), "day": Number(), "country": Category()}
    found = {one.query_id: one for one in data.read(tmp_path, features=types)}
    assert found["b"].features.tolist() == [[0.5, 1.0], [2.5, 1.0]]
    assert found["a"].features.tolist() == [[1.5, 1.0], [3.5, 2.0]]
    assert found["a"].texts.tolist() == [["A B"], [""]]
    assert next(data.read(tmp_path)).features.tolist() == [[0.5, 10.0, 1.0], [2.5, 12.0, 1.0]]
    reader = formats.reader([str(tmp_path)])
    assert reader.parts(str(tmp_path)) == [Part(str(tmp_path), i, i + 1) for i in range(2)]
    layout = reader.infer([str(tmp_path)])
    rows = [x for part in reader.parts(str(tmp_path)) for x in reader.rows(part, layout)]
    assert [len(x) for x in rows] == [3, 2]
    with pytest.raises(InputError, match=r"day=1/.*/part\.parq, row 1: 'title' must be"):
        list(data.read(tmp_path, label="title", features=["price"]))


@pytest.mark.parametrize("lacking", [0, 1])
def test_a_column_that_a_file_of_a_folder_lacks_is_refused_as_of_a_pattern(tmp_path, lacking):
    paths = [tmp_path / f"day={day}" / "part.parquet" for day in range(2)]
    for day, path in enumerate(paths):
        path.parent.mkdir()
        table = pyarrow.table(COLUMNS)
        parquet.write_table(table.drop_columns("stock") if day == lacking else table, path)
    for given in (tmp_path, paths):
        with pytest.raises(InputError, match=f"day={lacking}/part.parquet: .* column 'stock'"):
            list(data.read(given))
        named = [str(x) for x in (given if isinstance(given, list) else [given])]
        features, left_out = formats.reader(named).propose(named)
        assert "price" in features
        assert left_out["stock"].endswith("has no such column")
    assert len(list(data.read(tmp_path, features=["price"]))) == 3


def test_a_folder_without_parquet_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"expected Parquet files in the folder\. Received: none"):
        next(data.read(tmp_path))


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.PARQUET", "parquet"),
        ("a.csv.zst", "csv"),
        ("a.tsv.bz2", "tsv"),
        ("a.ndjson.gz", "jsonl"),
        ("set1.train.txt", "letor"),
        ("a.b/part-00000", "letor"),
        ("part-00000.gz", "letor"),
        ("a.svmlight.gz", "letor"),
        ("a.tfrecord.gz", "elwc"),
    ],
)
def test_the_end_of_a_name_tells_the_format(name, format):
    assert formats.reader([name]).name == format


def test_an_unknown_end_of_a_name_is_refused_with_those_that_are_known():
    with pytest.raises(InputError) as error:
        formats.reader(["a.xlsx"])
    told = str(error.value)
    assert told.startswith(
        "a.xlsx: expected a file name with a known suffix, or the argument `format` (letor: .txt"
    )
    assert "csv: .csv .csv.gz .csv.bz2 .csv.zst;" in told
    assert told.endswith("Received: '.xlsx'")


PROPOSED = {
    "price": ([1.0, 2.0, None, 4.0], Number()),
    "stock": ([1, 2, 2, 1], Number()),
    "cost": ([decimal.Decimal("1.5"), None, None, None], Number()),
    "is_new": ([True, None, False, True], Bool()),
    "brand": (["a", "b", "a", None], Category()),
    "shop": (pyarrow.array([7, 8, 7, 7]).dictionary_encode(), Category(dtype="int64")),
    "tags": ([["a"], ["b", "c"], [], None], Set()),
    "embedding": ([[1.0, 2.0], [3.0, 4.0], None, [1.0, 1.0]], Vector(size=2)),
    "at": (np.array([1, 2, 3, 4], "M8[s]"), Timestamp(parts=True)),
    "born": (np.array([1, 2, 3, 4], "M8[D]"), Timestamp(parts=True)),
    "title": (["a", "b", "c", "d"], "its texts almost all differ: 4 in 4 rows"),
    "page": ([1, 1, 1, 1], "it has one value in 4 sampled rows"),
    "empty": ([None] * 4, "it has no value"),
    "history": ([[1], [1, 2], [], None], "its lists have 0 to 2 numbers"),
    "raw": ([b"a", b"b", b"a", b"b"], "it is of type binary"),
    "box": ([{"a": 1}] * 4, "it is of type struct<a: int64>"),
    "boxes": ([[{"a": 1}]] * 4, "it is of lists of type struct<a: int64>"),
    "__index_level_0__": ([0, 1, 2, 3], "it is the index of a pandas frame"),
    "": ([0, 1, 2, 3], "it is the index of a pandas frame"),
}


def test_a_type_is_proposed_for_each_column_or_a_reason_against_it(tmp_path):
    roles = {"q": ["a", "b", "b", "c"], "relevance": [1] * 4, "w": [1.0, 2.0, 1.0, 3.0]}
    table = pyarrow.table(roles | {name: column for name, (column, _) in PROPOSED.items()})
    path = str(tmp_path / "a.feather")
    feather.write_feather(table, path, compression="zstd")
    features, left_out = formats.reader([path], Columns(query="q", weight="w")).propose([path])
    assert features == {x: y for x, (_, y) in PROPOSED.items() if not isinstance(y, str)}
    assert left_out == {x: y for x, (_, y) in PROPOSED.items() if isinstance(y, str)}
    assert sum(len(one.labels) for one in data.read(path, query="q", features=features)) == 4


def test_types_are_proposed_for_text(tmp_path):
    (tmp_path / "a.csv").write_text(
        ",query_id,relevance,price,brand,is_new,at\n"
        "0,a,1,1.5,x,true,2024-01-01\n1,a,0,,y,false,2024-01-02\n2,b,1,2,x,true,2024-01-03\n"
    )
    found = zip([1.5, "free", 2], "xyx", strict=True)
    rows = [{"query_id": "a", "relevance": 1, "price": x, "brand": y} for x, y in found]
    sets.write_jsonl(tmp_path / "a.jsonl", rows)
    types = {"price": Number(), "brand": Category()}
    in_csv = types | {"is_new": Bool(), "at": Timestamp(parts=True)}
    for name, expected in (("a.csv", in_csv), ("a.jsonl", types)):
        path = str(tmp_path / name)
        features, left_out = formats.reader([path]).propose([path])
        assert features == expected
        assert list(left_out) == ([""] if name == "a.csv" else [])


def test_types_are_proposed_for_records(folder):
    path = str(folder / "elwc.tfrecord")
    features, left_out = formats.reader([path]).propose([path])
    vector = {"e": Vector(size=3), "x": Number(), "y": Number(), "z": Number()}
    assert features == {"device": Category(of="query"), "age": Number(of="query"), **vector}
    assert left_out == {}
    assert formats.reader(["all.txt"]).propose([str(folder / "all.txt")])[1] == {}


def test_tables_are_read_without_tensorflow(files, tmp_path):
    sets.write_jsonl(tmp_path / "a.jsonl", pyarrow.table(COLUMNS).to_pylist())
    code = f"""
import sys
from tfrank_sel import data
from tfrank_sel.data import formats, frames
columns = formats.Columns()
for path in {[*map(str, files), str(tmp_path / "a.jsonl")]}:
    reader = formats.reader([path], columns)
    assert reader.infer([path]).names == ["price", "stock"]
    assert list(reader.propose([path])[0]) == ["price", "stock"]
    assert len(list(data.read(path))) == 3
    try:
        next(data.read(path, label="clicks"))
    except data.InputError as error:
        assert "expected a column 'clicks'" in str(error)
assert "tensorflow" not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
