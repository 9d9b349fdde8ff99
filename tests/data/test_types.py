"""Columns of every type, read from files of every format of tables and of records."""

import datetime
import decimal
import math

import hypothesis
import numpy as np
import pandas
import pyarrow
import pytest
import tensorflow as tf
from hypothesis import strategies as st
from pyarrow import csv, feather, parquet

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import InputError, frames
from tfrank_sel.data.formats import Columns, values
from tfrank_sel.features import REFUSE, Bool, Category, Hash, Number, Set, Timestamp, Vector

NOW = datetime.datetime(2024, 2, 29, 12, 0, 1, tzinfo=datetime.UTC)
TYPES = {
    "price": Number(),
    "is_new": Bool(),
    "brand": Category(),
    "shop": Hash(dtype="int64"),
    "tags": Set(max_values=2),
    "embedding": Vector(size=2),
    "at": Timestamp(),
    "locale": Category(of="query"),
}
ROWS = [
    {
        "price": 2.5,
        "is_new": True,
        "brand": "acme",
        "shop": 7,
        "tags": ["a", "b", "c"],
        "embedding": [1.0, 2.0],
        "at": NOW,
        "locale": "de",
    },
    {"price": 1.0, "is_new": False, "tags": [], "locale": "fr"},
    {"brand": "NA", "shop": 2**40 + 1, "tags": ["b"], "embedding": [0.5, -1.0]},
]
DAY = 19782.0
NUMBERS = [
    [2.5, 1.0, 1.0, 2.0, DAY, 43201.0],
    [1.0, 0.0] + [math.nan] * 4,
    [math.nan, math.nan, 0.5, -1.0, math.nan, math.nan],
]
TEXTS = [
    ["acme", "7", "a", "b", "de"],
    ["", "", "", "", "de"],
    ["NA", str(2**40 + 1), "b", "", "de"],
]
ROLES = {"query_id": "q", "relevance": 1}
SCHEMA = {
    "query_id": pyarrow.string(),
    "relevance": pyarrow.int32(),
    "price": pyarrow.float64(),
    "is_new": pyarrow.bool_(),
    "brand": pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
    "shop": pyarrow.int64(),
    "tags": pyarrow.list_(pyarrow.string()),
    "embedding": pyarrow.list_(pyarrow.float32(), 2),
    "at": pyarrow.timestamp("ms", "Europe/Berlin"),
    "locale": pyarrow.large_string(),
}


def as_text(row):
    """The values of a row as CSV has them."""
    written = {"tags": "|".join, "embedding": lambda x: " ".join(map(str, x)), "at": str}
    found = {x: written.get(x, lambda y: y)(y) for x, y in row.items()}
    return found | {"is_new": str(found["is_new"]).lower()} if "is_new" in found else found


def write_tables(folder, rows=ROWS, schema=SCHEMA):
    rows = [ROLES | row for row in rows]
    table = pyarrow.Table.from_pylist(rows, pyarrow.schema(schema.items()))
    # pyarrow does not read lists of a fixed size back from Parquet if one is null
    lists = pyarrow.schema({**schema, "embedding": pyarrow.list_(pyarrow.float32())}.items())
    parquet.write_table(pyarrow.Table.from_pylist(rows, lists), folder / "a.parquet")
    feather.write_feather(table, folder / "a.feather", compression="uncompressed")
    with pyarrow.ipc.new_stream(str(folder / "a.arrow"), table.schema) as stream:
        stream.write_table(table)
    objects = [{x: str(y) if x == "at" else y for x, y in row.items()} for row in rows]
    sets.write_jsonl(folder / "a.ndjson", objects)
    texts = pyarrow.Table.from_pandas(pandas.DataFrame(list(map(as_text, rows)), dtype=object))
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        options = csv.WriteOptions(delimiter=delimiter, quoting_style="none")
        for more in ("", ".gz", ".bz2", ".zst"):
            with pyarrow.output_stream(str(folder / f"a.{suffix}{more}")) as stream:
                csv.write_csv(texts, stream, options)
    return sorted(folder.iterdir())


def same(found, numbers=NUMBERS, texts=TEXTS):
    [only] = found
    np.testing.assert_array_equal(only.features, np.array(numbers, np.float32))
    assert only.features.dtype == np.float32
    assert (only.texts is None and texts is None) or only.texts.tolist() == texts


def test_every_type_is_read_from_every_table(tmp_path):
    paths = write_tables(tmp_path)
    assert len(paths) == 12
    for path in paths:
        same(data.read(path, features=TYPES))


def test_every_type_is_read_from_every_frame(tmp_path):
    table = parquet.read_table(write_tables(tmp_path)[-1].with_name("a.parquet"))
    mapping = {name: table[name].to_pylist() for name in table.schema.names}
    for frame in (table, table.to_pandas(), pandas.DataFrame(mapping), mapping):
        same(frames.lists(frame, features=TYPES))


def test_embeddings_may_be_a_matrix():
    frame = {"query_id": ["q", "q"], "relevance": [1, 0], "v": np.array([[1, 2], [3, 4]], "f")}
    same(frames.lists(frame, features={"v": Vector(size=2)}), [[1, 2], [3, 4]], None)


RECORD_TYPES = TYPES | {"shop": Hash(dtype="int64")}


def write_records(folder):
    items = []
    for row in ROWS:
        of_item = {k: v for k, v in row.items() if k not in ("tags", "locale")}
        if "at" in of_item:
            of_item["at"] = int(NOW.timestamp())
        if "is_new" in of_item:
            of_item["is_new"] = int(of_item["is_new"])
        item = sets.example(relevance=1.0, **of_item)
        tags = [tag.encode() for tag in row.get("tags", [])]
        item.features.feature["tags"].bytes_list.value.extend(tags)
        items.append(item)
    query = sets.example(query_id="q", locale="de")
    sets.write(folder / "elwc.tfrecord", [sets.elwc(items, query)])
    outer = tf.train.Example()
    for name, found in (("serialized_context", [query]), ("serialized_examples", items)):
        inner = [one.SerializeToString() for one in found]
        outer.features.feature[name].bytes_list.value.extend(inner)
    sets.write(folder / "eie.tfrecord", [outer.SerializeToString()])
    sequence = tf.train.SequenceExample(context=query.features)
    for item in items:
        for name in {*TYPES, "relevance"} - {"locale"}:
            features = sequence.feature_lists.feature_list[name].feature.add()
            features.CopyFrom(item.features.feature[name])
    sets.write(folder / "sequence-example.tfrecord", [sequence.SerializeToString()])
    for item in items:
        item.MergeFrom(query)
    sets.write(folder / "example.tfrecord", [item.SerializeToString() for item in items])


@pytest.mark.parametrize("format", sets.RECORDS)
def test_every_type_is_read_from_records(tmp_path, format):
    write_records(tmp_path)
    same(data.read(tmp_path / f"{format}.tfrecord", format=format, features=TYPES))


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
    (Category(dtype="int64"), "a", "an integer. Received: 'a'"),
    (Hash(dtype="int64"), 1.5, "an integer. Received: 1.5"),
    (Set(dtype="int64"), ["1", "b"], "an integer. Received: ['1', 'b']"),
]


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
    refused, rows = reader.rows(data.formats.Part(str(path)), reader.layout([str(path)])), []
    reasons = []
    for one in refused:
        if isinstance(one, data.formats.rows.Rows):
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
    found = list(reader.rows(data.formats.Part(str(path)), reader.layout([str(path)])))
    assert [(x.number, x.reason.partition(". Received")[2][:9]) for x in found[:-1]] == [
        (7, ": Expecti"),
        (8, ": expecte"),
        (2, ": 'abc'"),
        (3, ": ['y']"),
        (4, ": 'True'"),
    ]
    assert found[-1].features.tolist() == [[1.5, 1.0, 2.0], [3.0, 5.5, 6.0]]
    assert found[-1].place[1].tolist() == [1, 5]


def test_text_that_looks_like_a_time_stays_text(tmp_path):
    rows = [{**ROLES, "query_id": f"2024-01-0{day}", "x": 1.0} for day in (1, 2)]
    sets.write_jsonl(tmp_path / "a.jsonl", rows)
    assert [x.query_id for x in data.read(tmp_path / "a.jsonl")] == ["2024-01-01", "2024-01-02"]


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
        (pyarrow.binary(), Hash()),
    ],
    ids=str,
)
def test_a_column_that_can_never_be_of_its_type_is_refused_at_once(tmp_path, kind, feature):
    fields = {"query_id": pyarrow.string(), "relevance": pyarrow.float32(), "x": kind}
    parquet.write_table(pyarrow.schema(fields.items()).empty_table(), tmp_path / "a.parquet")
    message = rf"expected a column 'x' that can be of type {feature.type}\. Received: "
    with pytest.raises(InputError, match=message):
        next(data.read(tmp_path / "a.parquet", features={"x": feature}))


@pytest.mark.parametrize(
    "column",
    [
        pyarrow.array([19782], pyarrow.date32()),
        pyarrow.array([19782 * 86_400_000], pyarrow.date64()),
        *(
            pyarrow.array([19782 * 86_400 * per], pyarrow.timestamp(unit, zone))
            for unit, per in (("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9))
            for zone in (None, "America/New_York")
        ),
        pyarrow.array(["2024-02-29"]),
        pyarrow.array(["2024-02-29T01:00:00+01:00"]),
        pyarrow.array([decimal.Decimal(19782 * 86_400)]),
        pyarrow.array([19782 * 86_400]),
    ],
    ids=lambda x: str(x.type),
)
def test_every_kind_of_time_is_a_day_and_a_second(column):
    for array in (column, pyarrow.chunked_array([column.slice(0, 0), column])):
        assert values.numbers(array, Timestamp()).tolist() == [[DAY, 0.0]]


@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pyarrow.array([1.0, 1e10, 0.5, None, math.nan]), ["1", "10000000000", "0.5", "", ""]),
        (pyarrow.array([True, None]), ["true", ""]),
        (pyarrow.array([7, None], pyarrow.uint8()), ["7", ""]),
        (pyarrow.array(["a", None, "a"]).dictionary_encode(), ["a", "", "a"]),
        (pyarrow.array([decimal.Decimal("1.50")]), ["1.50"]),
        (pyarrow.array([datetime.date(2024, 2, 29)]), ["2024-02-29"]),
        (pyarrow.array([None, None]), ["", ""]),
        (pyarrow.array([], pyarrow.string()), []),
    ],
    ids=str,
)
def test_every_kind_of_category_is_text(column, texts):
    assert values.texts(column, Category())[:, 0].tolist() == texts


def test_numbers_of_every_width_are_numbers():
    kinds = [pyarrow.int8(), pyarrow.uint64(), pyarrow.float16(), pyarrow.decimal128(9, 2)]
    for kind in kinds:
        column = pyarrow.array([1, None], pyarrow.int8()).cast(kind)
        np.testing.assert_array_equal(values.numbers(column, Number()), [[1.0], [math.nan]])
    nothing = values.numbers(pyarrow.nulls(2), Number())
    assert np.isnan(nothing).all()


elements = st.lists(st.none() | st.text("ab|", max_size=3), max_size=6)


@hypothesis.given(st.lists(st.none() | elements, max_size=12), st.integers(0, 5))
def test_sets_keep_the_first_values_that_are_there(rows, start):
    column = pyarrow.array(rows, pyarrow.list_(pyarrow.string()))[start:]
    found = values.texts(column, Set(max_values=3))
    for row, texts in zip(rows[start:], found.tolist(), strict=True):
        there = [x for x in row or [] if x][:3]
        assert texts == there + [""] * (3 - len(there))


@hypothesis.given(st.datetimes(timezones=st.just(datetime.UTC)))
def test_a_time_is_its_day_and_second_however_it_is_written(when):
    since = when - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    expected = [[since.days, np.float32(since.seconds + since.microseconds / 1e6)]]
    for column in ([when], [when.isoformat()], [when.isoformat(), "2024-01-01"]):
        found = values.numbers(pyarrow.array(column), Timestamp())[:1]
        np.testing.assert_allclose(found, expected, rtol=0, atol=0.01)


def test_weights_of_rows_lists_and_positions_multiply():
    frame = {
        "query_id": ["a", "a", "b"],
        "relevance": [1, 0, 2],
        "x": [1.0, 2.0, 3.0],
        "w": [2.0, 0.0, 1.0],
        "lw": [3.0, 3.0, 5.0],
        "p": [0.5, 0.5, 0.1],
    }
    for names, expected in (
        ({}, None),
        ({"weight": "w"}, [2.0, 0.0, 1.0]),
        ({"propensity": "p"}, [2.0, 1.0, 10.0]),
        ({"weight": "w", "list_weight": "lw", "propensity": "p"}, [12.0, 0.0, 50.0]),
    ):
        found = list(frames.lists(frame, features=["x"], **names))
        if expected is None:
            assert [one.weights for one in found] == [None, None]
        else:
            weights = np.concatenate([one.weights for one in found])
            np.testing.assert_allclose(weights, expected, rtol=1e-6)
            assert weights.dtype == np.float32


@pytest.mark.parametrize(
    ("role", "value", "wanted"),
    [
        ("weight", -1.0, "a finite number that is not negative. Received: -1.0"),
        ("weight", None, "a finite number that is not negative. Received: nothing"),
        ("weight", math.inf, "a finite number that is not negative. Received: inf"),
        ("list_weight", 0.0, "a finite number above 0. Received: 0.0"),
        ("propensity", 0.0, "a number above 0, at most 1. Received: 0.0"),
        ("propensity", 1.5, "a number above 0, at most 1. Received: 1.5"),
    ],
)
def test_a_weight_out_of_range_refuses_its_row(role, value, wanted):
    frame = {"query_id": ["q"], "relevance": [1], "x": [1.0], "w": [value]}
    with pytest.raises(InputError) as error:
        list(frames.lists(frame, features=["x"], **{role: "w"}))
    assert str(error.value) == f"frame, row 0: 'w' must be {wanted}"


def test_weights_of_records_are_read(tmp_path):
    items = [sets.example(relevance=float(i), x=1.0, w=2.0, p=0.5) for i in range(2)]
    query = sets.example(query_id="q", lw=3.0)
    sets.write(tmp_path / "a.tfrecord", [sets.elwc(items, query)])
    roles = {"weight": "w", "list_weight": "lw", "propensity": "p"}
    [only] = data.read(tmp_path / "a.tfrecord", features={"x": Number()}, **roles)
    assert only.weights.tolist() == [6.0, 12.0]
    with pytest.raises(InputError, match="expected 'w' in the query"):
        next(data.read(tmp_path / "a.tfrecord", features=["x"], list_weight="w"))


def test_what_an_item_of_a_record_lacks_is_missing_if_it_has_a_type(tmp_path):
    items = [sets.example(relevance=1.0, x=1.0, n=7), sets.example(relevance=1.0)]
    sets.write(tmp_path / "a.tfrecord", [sets.elwc(items, sets.example(query_id="q"))])
    types = {"x": Number(), "n": Number()}
    same(data.read(tmp_path / "a.tfrecord", features=types), [[1, 7], [math.nan] * 2], None)
    same(data.read(tmp_path / "a.tfrecord", features=["x", "n"]), [[1, 7], [0, 0]], None)
    types["x"] = Number(missing=REFUSE)
    with pytest.raises(InputError, match=r"record 1: 'x' must be .* Received: nan in item 2$"):
        list(data.read(tmp_path / "a.tfrecord", features=types))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"label": "query_id"}, "'query_id' as query and as label"),
        ({"features": ["price", "relevance"]}, "'relevance' as label and as feature"),
        ({"features": {"w": Number()}, "weight": "w"}, "'w' as weight and as feature"),
        ({"weight": "w", "propensity": "w"}, "'w' as weight and as propensity"),
        ({"context": ("a", "a")}, "'a' as context and as context"),
    ],
)
def test_a_name_has_one_role(columns, told):
    with pytest.raises(ValueError, match=f"the names of columns must differ. Received: {told}"):
        Columns(**columns)
