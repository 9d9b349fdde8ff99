"""Values that are not of the type of their column."""

import math
import re

import pyarrow
import pytest
from pyarrow import feather, parquet

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import InputError, formats
from tfrank_sel.data.formats import Columns, reader
from tfrank_sel.features import REFUSE, Bool, Category, Hash, Number, Set, Timestamp, Vector

ROLES = {"query_id": "q", "relevance": 1}
BAD = [
    (Number(), "abc", "a finite number. Received: 'abc'"),
    (Number(), math.inf, "a finite number. Received: inf"),
    (Number(), 1e39, "a finite number. Received: 1e+39"),
    (Number(), "1_000", "a finite number. Received: '1_000'"),
    (Number(missing=REFUSE), None, "a finite number. Received: nothing"),
    (Bool(), "yes", "true or false. Received: 'yes'"),
    (Bool(), 2, "true or false. Received: 2"),
    (Bool(missing=REFUSE), None, "true or false. Received: nothing"),
    (Timestamp(), "soon", "a point in time. Received: 'soon'"),
    (Timestamp(), 1.7e12, "a point in time. Received: 1700000000000.0"),
    (Timestamp(missing=REFUSE), None, "a point in time. Received: nothing"),
    (Vector(size=2), [1.0], "2 finite numbers. Received: [1.0]"),
    (Vector(size=2), [1.0, math.inf], "2 finite numbers. Received: [1.0, inf]"),
    (Vector(size=2), [1.0, None], "2 finite numbers. Received: [1.0, None]"),
    (Vector(size=2), [], "2 finite numbers. Received: []"),
    (Vector(size=2), "1 x", "2 finite numbers. Received: '1 x'"),
    (Vector(size=2, missing=REFUSE), None, "2 finite numbers. Received: nothing"),
    (Category(dtype="int64"), "a", "an integer above -2**63 and below 2**63. Received: 'a'"),
    (Hash(dtype="int64"), 1.5, "an integer above -2**63 and below 2**63. Received: 1.5"),
    (
        Set(dtype="int64"),
        ["1", "b"],
        "an integer above -2**63 and below 2**63. Received: ['1', 'b']",
    ),
]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("feature", "value", "told"), BAD, ids=lambda x: str(x)[:30])
@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_a_value_of_another_type_refuses_its_row(tmp_path, feature, value, told, suffix):
    path, row = tmp_path / f"bad.{suffix}", {**ROLES, "x": value}
    if suffix == "jsonl":
        sets.write_jsonl(path, [row])
    elif suffix == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist([row]), path)
    else:
        feather.write_feather(pyarrow.Table.from_pylist([row]), path, compression="zstd")
    with pytest.raises(InputError) as error:
        list(data.read(path, features={"x": feature}))
    assert str(error.value) == f"{path}, row 1: 'x' must be {told}"


def test_a_bad_value_of_text_is_told_as_it_stands(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(
        "query_id,relevance,price,is_new,at,v\n"
        "q,1,abc,true,2024-01-01,1 2\nq,1, 1.5 ,no,,1 2\nq,1,,0,24-1-1,\nq,1,NA,TRUE,,1 2 3\n"
        "q,1,+2,1,2024-01-01T01:00:00+01:00,1e0  2\n"
    )
    types = {"price": Number(), "is_new": Bool(), "at": Timestamp(), "v": Vector(size=2)}
    reader = data.formats.reader([str(path)], Columns(features=types))
    refused, rows = reader.rows(data.formats.Part(str(path)), reader.infer([str(path)])), []
    reasons = []
    for one in refused:
        if isinstance(one, data.formats.Table):
            rows.append(one)
        else:
            reasons.append((one.number, one.reason))
    assert reasons == [
        (1, "'price' must be a finite number. Received: 'abc'"),
        (2, "'is_new' must be true or false. Received: 'no'"),
        (3, "'at' must be a point in time. Received: '24-1-1'"),
        (4, "'v' must be 2 finite numbers. Received: '1 2 3'"),
    ]
    assert rows[0].features.tolist() == [[2.0, 1.0, 19723.0, 0.0, 1.0, 2.0]]


def test_one_line_of_another_type_spoils_no_other(tmp_path):
    rows = [{**ROLES, "x": x, "v": v} for x, v in ((1.5, [1, 2]), ("abc", [3, 4]), (2, "y"))]
    rows += [{**ROLES, "x": True, "v": [1, "z"]}, {**ROLES, "x": 3, "v": [5.5, 6]}]
    path = tmp_path / "a.jsonl"
    sets.write_jsonl(path, rows)
    path.write_text(path.read_text() + "\n{broken\n[1]\n")
    columns = Columns(features={"x": Number(), "v": Vector(size=2)})
    reader = data.formats.reader([str(path)], columns)
    found = list(reader.rows(data.formats.Part(str(path)), reader.infer([str(path)])))
    assert [(x.number, x.reason.partition(". Received")[2][:9]) for x in found[:-1]] == [
        (7, ": Expecti"),
        (8, ": expecte"),
        (2, ": 'abc'"),
        (3, ": ['y']"),
        (4, ": ['1', '"),
    ]
    assert found[-1].features.tolist() == [[1.5, 1.0, 2.0], [3.0, 5.5, 6.0]]
    assert found[-1].place[1].tolist() == [1, 5]


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("a.jsonl", '[{"query_id": "q", "relevance": 1}]\n', "a JSON object. Received: expected"),
        ("a.jsonl", '{\n "query_id": "q"\n}\n', "a JSON object. Received: Expecting property"),
        ("a.jsonl", '{"query_id": "q",}\n', "a JSON object. Received: Expecting property"),
        ("a.csv", "query_id,relevance,x\nq,1,2,\nq,1,3,\n", "3 values. Received: 4"),
        ("a.tsv", "query_id\trelevance\tx\nq\t1\n", "3 values. Received: 2"),
    ],
)
def test_a_file_without_a_good_row_is_refused_with_its_first(tmp_path, name, text, told):
    path = tmp_path / name
    path.write_text(text)
    kind = reader([str(path)])
    for run in (
        lambda: next(data.read(path)),
        lambda: kind.propose([str(path)]),
        lambda: formats.names([str(path)]) and kind.infer([str(path)]),
    ):
        with pytest.raises(InputError, match=re.escape(f"{name}, row 1: a row must ")) as error:
            run()
        assert told in str(error.value)


@pytest.mark.parametrize(
    ("kind", "feature"),
    [
        (pyarrow.list_(pyarrow.float32()), Number()),
        (pyarrow.timestamp("s"), Number()),
        (pyarrow.float32(), Vector(size=2)),
        (pyarrow.list_(pyarrow.string()), Category()),
        (pyarrow.struct([("a", pyarrow.int32())]), Category()),
        (pyarrow.bool_(), Timestamp()),
        (pyarrow.duration("s"), Timestamp()),
        (pyarrow.map_(pyarrow.string(), pyarrow.int8()), Hash()),
    ],
    ids=str,
)
def test_a_column_that_can_never_be_of_its_type_is_refused_at_once(tmp_path, kind, feature):
    fields = {"query_id": pyarrow.string(), "relevance": pyarrow.float32(), "x": kind}
    parquet.write_table(pyarrow.schema(fields.items()).empty_table(), tmp_path / "a.parquet")
    message = rf"expected a column 'x' that can be of type {feature.type}\. Received: "
    with pytest.raises(InputError, match=message):
        next(data.read(tmp_path / "a.parquet", features={"x": feature}))
