"""A damaged line, a byte order mark or another order of files changes nothing else that is read."""

import codecs
import collections
import gzip
import json
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from tfrank_sel import data
from tfrank_sel.data import InputError, formats
from tfrank_sel.data.formats import Columns, Part, Schema, records
from tfrank_sel.data.lists import Lists, group_rows
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.features import Category, Number

TYPES = {"x": Number(), "y": Category(), "z": Number(missing=0.0)}
ROWS = [
    {"query_id": q, "relevance": i % 2, "x": i / 3, "y": y, "z": z}
    for q in (3 * 10**18 + 1, 3 * 10**18 + 2)
    for i, (y, z) in enumerate([("a", 1), ("7", None), ("b", 2.5)])
]


def csv(rows, delimiter=b","):
    return [delimiter.join(x.encode() for x in rows[0])] + [
        delimiter.join(b"" if x is None else str(x).encode() for x in row.values()) for row in rows
    ]


def jsonl(rows):
    return [json.dumps(row).encode() for row in rows]


def letor(rows):
    return [
        f"{row['relevance']} qid:{row['query_id']} 1:{row['x']!r} 2:{row['z'] or 0}".encode()
        for row in rows
    ]


FORMATS = {"csv": csv, "tsv": lambda rows: csv(rows, b"\t"), "jsonl": jsonl, "txt": letor}
DAMAGE = {
    "csv": [b"5", b"5,1,abc,\xff,1", b"5,1,inf,,", b"\xff,1,1,a,1", b",1,1,a,1"],
    "tsv": [b"5", b"5\t1\tabc\t\xff\t1", b"5\t1\tinf\t\t", b"\xff\t1\t1\ta\t1"],
    "jsonl": [
        b"{",
        b"[1]",
        b'{"query_id": 5, "relevance": 1, "x": "abc"}',
        b'{"query_id": 5, "relevance": 1, "x": 1, "y": "\\ud83d"}',
        b'{"query_id": 5, "relevance": 1, "x": 1, "y": "\xff"}',
        b'{"query_id": 5, "query_id": 6, "relevance": 1, "x": 1}',
        b'{"query_id": 1e30, "relevance": 1, "x": 1}',
        b'{"query_id": 9007199254740993.0, "relevance": 1, "x": 1}',
        b'{"relevance": 1, "x": 1}',
        b'{"query_id": 5, "relevance": [1], "x": 1}',
        b'{"query_id": 5, "relevance": 1, "x": 1, "y": ' + b"[" * 65 + b"]" * 65 + b"}",
        b'{"query_id": 5, "y": ' + b'{"a":' * 100_000,  # which ends pyarrow's reader
    ],
    "txt": [b"1 qid:5 1:NaN 2:1", b"1 qid:5 9:inf", b"x", b"1 qid:\xff 1:1", b"1 qid:5 0:1"],
}
ODD = {  # valid rows that may change the type of a column in the reader
    "csv": [b"x,1,1,True,1", b"9223372036854775813,0,1,7.5,1"],
    "tsv": [b"x\t1\t1\tTrue\t1"],
    "jsonl": [
        b'{"query_id": "x", "relevance": 1, "x": 1}',
        b'{"query_id": 9223372036854775813, "relevance": 1, "x": 1}',
        b'{"query_id": 1.5, "relevance": 1, "x": 1, "y": true}',
        b'{"query_id": 36893488147419103232, "relevance": true, "x": 1e30, "y": 1.5}',
        b'{"query_id": "2024-01-01", "relevance": 1, "x": "2", "y": "2024-01-01"}',
    ],
    "txt": [b"1 qid:9223372036854775813 1:1"],
}


def read(paths, types=TYPES):
    """What is read of the two queries, and the number of rejected lines."""
    paths = [str(path) for path in paths]
    reader = formats.reader(paths, Columns(features=types))
    layout = reader.infer(paths)
    if isinstance(reader, formats.RowReader):
        rows = (x for path in paths for x in reader.rows(Part(path), layout))
        found = list(group_rows(rows, layout))
    else:
        found = [x for path in paths for x in reader.lists(Part(path), layout)]
    lists = [x for some in found if isinstance(some, Lists) for x in some]
    known = {str(row["query_id"]) for row in ROWS}
    kept = {
        x.query_id: [np.nan_to_num(x.features, nan=-1.0).tolist(), x.labels.tolist(), str(x.texts)]
        for x in lists
        if x.query_id in known
    }
    return kept, sum(isinstance(x, Rejected) for x in found), len(lists)


@pytest.fixture
def good(tmp_path):
    """Files of the rows by their format, and what is read of them."""
    lines = {suffix: write(ROWS) for suffix, write in FORMATS.items()}
    found = {}
    for suffix, content in lines.items():
        path = tmp_path / f"good.{suffix}"
        path.write_bytes(b"\n".join(content) + b"\n")
        found[suffix] = read([path])
        assert [len(found[suffix][0]), *found[suffix][1:]] == [2, 0, 2]
    return lines, found


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_damaged_line_is_rejected_alone(tmp_path, good, suffix):
    lines, expected = good[0][suffix], good[1][suffix]
    for place in (len(lines) - 3, len(lines)):
        for number, damage in enumerate(DAMAGE[suffix]):
            path = tmp_path / f"{place}-{number}.{suffix}"
            path.write_bytes(b"\n".join([*lines[:place], damage, *lines[place:]]) + b"\n")
            kept, rejected, count = read([path])
            assert (kept, rejected, count) == (expected[0], 1, 2), damage


@pytest.mark.parametrize("suffix", FORMATS)
def test_an_odd_line_is_read_beside_others(tmp_path, good, suffix):
    for number, odd in enumerate(ODD[suffix]):
        path = tmp_path / f"{number}.{suffix}"
        path.write_bytes(b"\n".join([*good[0][suffix], odd]))
        assert read([path]) == (good[1][suffix][0], 0, 3), odd


@pytest.mark.parametrize("suffix", FORMATS)
def test_marks_and_ends_of_lines_change_nothing(tmp_path, good, suffix):
    lines, expected = good[0][suffix], good[1][suffix]
    for number, content in enumerate(
        (
            codecs.BOM_UTF8 + b"\n".join(lines),
            b"\r\n".join(lines) + b"\r\n",
            codecs.BOM_UTF8 + b"\r\n".join([*lines, b""]),
            b"\n\n".join(lines),
        )
    ):
        path = tmp_path / f"{number}.{suffix}"
        path.write_bytes(content)
        assert read([path]) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("suffix", FORMATS)
def test_other_encodings_are_refused_by_name(tmp_path, good, suffix, encoding):
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(b"\n".join(good[0][suffix]).decode().encode(encoding))
    for run in (lambda: list(data.read(path)), lambda: formats.reader([path]).propose([str(path)])):
        with pytest.raises(
            InputError, match=r"expected text in UTF-8; .*Received: UTF-16"
        ) as error:
            run()
        assert str(path) in str(error.value)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_the_order_of_files_changes_neither_types_nor_features(tmp_path, suffix):
    first = {"query_id": ["a"], "relevance": [1], "x": [None], "y": [1], "device": ["d"]}
    others = {"query_id": ["b", "c"], "relevance": [0, 1], "x": [0.5, 1.5], "y": [2, 3]}
    others["device"] = ["d", "e"]
    paths = []
    for name, rows in (("a", first), ("b", others)):
        table = pa.table(rows)
        paths.append(str(tmp_path / f"{name}.{suffix}"))
        if suffix == "parquet":
            parquet.write_table(table, paths[-1])
        else:
            content = FORMATS[suffix](table.to_pylist())
            (tmp_path / f"{name}.{suffix}").write_bytes(b"\n".join(content))
    reader = formats.reader(paths)
    found = [(reader.propose(x), reader.infer(x)) for x in (paths, paths[::-1])]
    assert found[0] == found[1]
    (features, left_out), layout = found[0]
    assert features == {"x": Number(), "y": Number(), "device": Category()}
    assert left_out == {}
    assert layout.names == ["x", "y"]


def test_brackets_in_texts_and_beside_each_other_are_not_deep(tmp_path):
    rows = [{**ROWS[0], "y": "[{" * 99 + '\\"]'}, {**ROWS[1], "more": [[k] for k in range(99)]}]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join(jsonl(rows)))
    read = formats.table(path, {"query": "query_id"}, others=True)
    assert read.columns["y"].to_pylist() == [rows[0]["y"], "7"]


def test_a_text_without_an_end_is_found_in_linear_time(tmp_path):
    path = tmp_path / "a.jsonl"
    torn = b'{"query_id": "' + b'\\"' * 1_000_000 + b"["
    path.write_bytes(b'{"query_id": "a"}\n' + torn)  # an hour, if each quote began anew
    with pytest.warns(UserWarning, match="row 2 is left out"):
        assert len(formats.table(path, {"query": "query_id"})) == 1


def test_a_line_without_an_end_is_refused_before_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("tfrank_sel.data.lines.PART", 1000)
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"query_id": "a"}\n{"query_id": "' + b"x" * 2000)
    with pytest.raises(InputError, match=r"a\.jsonl: expected lines of at most 1000 bytes"):
        formats.table(path, {"query": "query_id"})


@pytest.mark.parametrize("is_gzip", [False, True])
def test_a_row_within_which_the_file_ends_is_told_and_left_out(tmp_path, is_gzip):
    """As of a process that was killed while it wrote a log."""
    path = tmp_path / ("a.jsonl.gz" if is_gzip else "a.jsonl")
    whole = b"\n".join(jsonl([{**x, "y": "K\u00f6ln"} for x in ROWS[:3]]))
    start = whole.rindex(b"\n") + 1
    compress = gzip.compress if is_gzip else bytes
    for end in range(start, len(whole) + 1):
        path.write_bytes(compress(whole[:end]))
        is_torn = start < end < len(whole)
        told = pytest.warns(UserWarning, match="row 3 is left out") if is_torn else nullcontext()
        with told:
            found = len(formats.table(path, {"query": "query_id"}))
        assert found == 2 + (end == len(whole))
    for line in (
        b"[1",
        b"x",
        b"{}}",
        b'{"q": 2, "d": "5" disc, more"}',
        b'{q: 2, "and": "more"',
        whole[start:] + b"}",
        whole[start:-2] + b"\n",
    ):
        path.write_bytes(compress(whole[:start] + line))
        with pytest.raises(InputError, match="row 3: a row must"):
            formats.table(path, {"query": "query_id"})


TAGS = {
    "a list beside a text": [["a"], "a"],
    "an object beside a text": [{"a": 1}, "a"],
    "lists of several types": [["a"], [1]],
    "objects of several types": [{"a": 1}, {"a": "x"}],
}


@pytest.mark.parametrize("kind", TAGS)
@pytest.mark.parametrize("order", [1, -1])
def test_lists_beside_other_values_are_left_out_however_rows_are_cut(
    tmp_path, monkeypatch, kind, order
):
    rows = [{"query_id": "q", "tags": x} for x in TAGS[kind][::order]]
    whole = tmp_path / "whole.jsonl"
    whole.write_bytes(b"\n".join(jsonl(rows)))
    paths = [tmp_path / f"{number}.jsonl" for number in range(2)]
    for path, row in zip(paths, rows, strict=True):
        path.write_bytes(b"\n".join(jsonl([row])))

    def left_out(paths):
        read = formats.table(paths, {"query": "query_id"}, others=True)
        assert read.columns.column_names == ["query_id"]
        assert len(read) == 2
        return read.left_out

    expected = {"tags": "it has lists or objects, and values of other types"}
    assert left_out([whole]) == left_out(paths) == expected
    monkeypatch.setattr("tfrank_sel.data.formats.text.ROWS", 1)
    assert left_out([whole]) == expected


def test_a_feature_of_records_is_taken_once_whatever_the_number_of_faults():
    taken = collections.Counter()

    def of_items(name):
        taken[name] += 1
        return np.full(9, np.inf, np.float32)

    columns = Columns(features={"x": Number()})
    place = ("a.tfrecord", np.arange(9))
    queries = np.full(9, "q", object)
    found = records._rows(place, queries, of_items, Schema(columns.types, columns=columns))
    assert len(found.faults) == 9
    assert set(taken.values()) == {1}
