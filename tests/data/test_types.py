"""Columns of every type, read from files of every format of tables and of records."""

import datetime
import decimal
import json
import math
import re

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
from tfrank_sel.data import InputError, arrays, frames, requests, typed
from tfrank_sel.data.formats import Columns
from tfrank_sel.data.table import of_frame
from tfrank_sel.features import (
    MISSING_INTEGER,
    MISSING_NUMBER,
    REFUSE,
    Bool,
    Category,
    Hash,
    Number,
    Set,
    Timestamp,
    Vector,
)

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
    written["is_new"] = lambda x: str(x).lower()
    return {x: None if y is None else written.get(x, str)(y) for x, y in row.items()}


def write_tables(folder, rows=ROWS, schema=SCHEMA):
    rows = [{**dict.fromkeys(schema), **ROLES, **row} for row in rows]
    table = pyarrow.Table.from_pylist(rows, pyarrow.schema(schema.items()))
    # pyarrow does not read lists of a fixed size back from Parquet if one is null
    lists = pyarrow.schema({**schema, "embedding": pyarrow.list_(pyarrow.float32())}.items())
    parquet.write_table(pyarrow.Table.from_pylist(rows, lists), folder / "a.parquet")
    feather.write_feather(table, folder / "a.feather", compression="uncompressed")
    with pyarrow.ipc.new_stream(str(folder / "a.arrow"), table.schema) as stream:
        stream.write_table(table)
    objects = [row | {"at": row["at"] and str(row["at"])} for row in rows]
    sets.write_jsonl(folder / "a.ndjson", objects)
    texts = pyarrow.Table.from_pylist(list(map(as_text, rows)))
    for suffix, delimiter in (("csv", ","), ("tsv", "\t")):
        options = csv.WriteOptions(delimiter=delimiter)
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


@pytest.mark.sample(4)
@pytest.mark.parametrize("format", sets.RECORDS)
def test_every_type_is_read_from_records(tmp_path, format):
    write_records(tmp_path)
    same(data.read(tmp_path / f"{format}.tfrecord", format=format, features=TYPES))


def test_text_that_looks_like_a_time_stays_text(tmp_path):
    rows = [{**ROLES, "query_id": f"2024-01-0{day}", "x": 1.0} for day in (1, 2)]
    sets.write_jsonl(tmp_path / "a.jsonl", rows)
    assert [x.query_id for x in data.read(tmp_path / "a.jsonl")] == ["2024-01-01", "2024-01-02"]


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
        pyarrow.array([19782 * 86_400_000 + 500], pyarrow.date64()),
        pyarrow.array([decimal.Decimal(19782 * 86_400)]),
        pyarrow.array([19782 * 86_400]),
    ],
    ids=lambda x: str(x.type),
)
def test_every_kind_of_time_is_a_day_and_a_second(column):
    for array in (column, pyarrow.chunked_array([column.slice(0, 0), column])):
        assert arrays.numbers(array, Timestamp()).tolist() == [[DAY, 0.0]]


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
    assert arrays.texts(column, Category())[:, 0].tolist() == texts


DAY_ONE, AT_5 = datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 1, 5)
HOURS = np.datetime64("2024-01-01T05")
# values of several types in a list of Python, and the text of each by itself
MIXED = [
    ([np.float64("nan"), "x"], ["", "x"]),
    ([np.float64(12.0), "x"], ["12", "x"]),
    ([np.float32(2**24), "x"], [f"{arrays.INVALID}16777216.0", "x"]),
    ([np.int64(1), True], ["1", "true"]),
    ([np.int64(2**53 + 1), np.float64("nan")], [str(2**53 + 1), ""]),
    ([np.bool_(True), "x"], ["true", "x"]),
    ([np.datetime64("2024-01-01"), None], ["2024-01-01", ""]),
    ([HOURS, DAY_ONE], ["2024-01-01 05:00:00", "2024-01-01"]),
    (
        [np.datetime64("9999-12-31"), np.datetime64("2024-01-01", "ns"), np.datetime64("NaT")],
        ["9999-12-31", "2024-01-01", ""],
    ),
    ([DAY_ONE, AT_5], ["2024-01-01", "2024-01-01 05:00:00"]),
    ([math.nan, DAY_ONE, pandas.Timestamp(AT_5)], ["", "2024-01-01", "2024-01-01 05:00:00"]),
    ([DAY_ONE, pandas.NaT], ["2024-01-01", ""]),
    ([pandas.Timestamp(AT_5), pandas.NaT], ["2024-01-01 05:00:00", ""]),
]


@pytest.mark.parametrize(("values", "texts"), MIXED, ids=str)
def test_each_value_of_a_mixed_column_has_its_own_text(values, texts):
    for order in (slice(None), slice(None, None, -1)):
        column = arrays.array(values[order])
        assert arrays.strings(column, spell=True).tolist() == texts[order]
        as_objects = pandas.DataFrame({"x": pandas.Series(values[order], dtype=object)})
        for frame in ({"x": values[order]}, [{"x": x} for x in values[order]], as_objects):
            found = arrays.strings(of_frame(frame)["x"], spell=True)
            assert found.tolist() == texts[order]


def test_a_list_among_texts_of_numpy_makes_sets():
    column = arrays.array([np.str_("a"), ["b", "c"]])
    assert arrays.texts(column, Set(max_values=2)).tolist() == [["a", ""], ["b", "c"]]


def test_numbers_of_every_width_are_numbers():
    kinds = [pyarrow.int8(), pyarrow.uint64(), pyarrow.float16(), pyarrow.decimal128(9, 2)]
    for kind in kinds:
        column = pyarrow.array([1, None], pyarrow.int8()).cast(kind)
        np.testing.assert_array_equal(arrays.numbers(column, Number()), [[1.0], [math.nan]])
    nothing = arrays.numbers(pyarrow.nulls(2), Number())
    assert np.isnan(nothing).all()


elements = st.lists(st.none() | st.text("ab|", max_size=3), max_size=6)


@hypothesis.given(st.lists(st.none() | elements, max_size=12), st.integers(0, 5))
def test_sets_keep_the_first_values_that_are_there(rows, start):
    column = pyarrow.array(rows, pyarrow.list_(pyarrow.string()))[start:]
    found = arrays.texts(column, Set(max_values=3))
    for row, texts in zip(rows[start:], found.tolist(), strict=True):
        there = [x for x in row or [] if x][:3]
        assert texts == there + [""] * (3 - len(there))


@hypothesis.given(st.datetimes(timezones=st.just(datetime.UTC)))
def test_a_time_is_its_day_and_second_however_it_is_written(when):
    since = when - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    expected = [[since.days, since.seconds]]  # whole seconds, as in a request
    for column in ([when], [when.isoformat()], [when.isoformat(), "2024-01-01"]):
        found = arrays.numbers(pyarrow.array(column), Timestamp())[:1]
        assert found.tolist() == expected


def test_what_an_item_of_a_record_lacks_is_missing_if_it_has_a_type(tmp_path):
    items = [sets.example(relevance=1.0, x=1.0, n=7), sets.example(relevance=1.0)]
    sets.write(tmp_path / "a.tfrecord", [sets.elwc(items, sets.example(query_id="q"))])
    types = {"x": Number(), "n": Number()}
    same(data.read(tmp_path / "a.tfrecord", features=types), [[1, 7], [math.nan] * 2], None)
    same(data.read(tmp_path / "a.tfrecord", features=["x", "n"]), [[1, 7], [0, 0]], None)
    types["x"] = Number(missing=REFUSE)
    with pytest.raises(InputError, match=r"record 1: 'x' must be .* Received: nan in item 2$"):
        list(data.read(tmp_path / "a.tfrecord", features=types))


@pytest.mark.parametrize("format", ["elwc", "example"])
def test_a_feature_of_records_may_be_what_is_kept_of_the_query(tmp_path, format):
    write_records(tmp_path)
    path = str(tmp_path / f"{format}.tfrecord")
    name = "brand" if format == "example" else "locale"
    columns = Columns(features=TYPES, context=(name,))
    reader = data.formats.reader([path], columns, format)
    layout = reader.infer([path])
    [found] = reader.lists(data.formats.Part(path), layout)
    assert layout.context == {name: False}
    assert found.context == {name: [{"brand": "acme", "locale": "de"}[name]]}
    same(found)


def test_a_number_that_a_query_lacks_is_not_a_number(tmp_path):
    queries = [sets.example(query_id="a", age=7), sets.example(query_id="b")]
    item = sets.example(relevance=1.0, x=1.0)
    sets.write(tmp_path / "a.tfrecord", [sets.elwc([item], query) for query in queries])
    path = str(tmp_path / "a.tfrecord")
    reader = data.formats.reader([path], Columns(context=("age",)))
    found = list(reader.lists(data.formats.Part(path), reader.infer([path])))
    np.testing.assert_array_equal([x for one in found for x in one.context["age"]], [7.0, math.nan])


cells = st.fixed_dictionaries(
    {
        "price": st.none() | st.floats(-(2.0**127), 2.0**127, width=32),  # -3e38 is missing
        "is_new": st.none() | st.booleans(),
        "brand": st.none() | st.text('aé ,"|NA1', min_size=1, max_size=4),
        "shop": st.none() | st.integers(1 - 2**63, 2**63 - 1),
        "tags": st.none() | st.lists(st.text("ab ", min_size=1, max_size=2), max_size=3),
        "embedding": st.none() | st.lists(st.floats(-9, 9, width=32), min_size=2, max_size=2),
        "at": st.none() | st.datetimes(datetime.datetime(1, 1, 2), timezones=st.just(datetime.UTC)),
        "locale": st.none() | st.sampled_from(["de", "fr"]),
    }
)


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(st.lists(cells, min_size=1, max_size=5))
def test_every_table_holds_the_same(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("rows")
    schema = {**SCHEMA, "at": pyarrow.timestamp("us", "UTC")}
    first, *others = [path for path in write_tables(folder, rows, schema) if path.suffix != ".zst"]
    [expected] = data.read(first, features=TYPES)
    for path in others:
        same(data.read(path, features=TYPES), expected.features, expected.texts.tolist())


@hypothesis.settings(max_examples=30, deadline=None)
@hypothesis.given(st.lists(cells, min_size=1, max_size=5), st.booleans())
def test_named_features_are_the_inverse_of_matrices(rows, is_int):
    types = {**TYPES, "page": Number(of="query"), "seen": Timestamp(of="query")}
    if is_int:
        rows = [row | {"brand": row["shop"], "tags": [3, 7]} for row in rows]
        types |= {"brand": Category(dtype="int64"), "tags": Set(max_values=3, dtype="int64")}
    columns = {name: [row.get(name) for row in rows] for name in types}
    columns |= {"page": [2.0] * len(rows), "seen": [NOW] * len(rows)}
    roles = {"query_id": ["q"] * len(rows)}
    [one] = frames.lists({**roles, **columns}, label=None, features=types)
    batch = {
        "features": tf.constant(np.pad(one.features, [(0, 1), (0, 0)])[None]),
        "texts": tf.constant([[*one.texts.tolist(), [""] * one.texts.shape[1]]]),  # and padding
    }
    named = typed.split_matrices(batch, types)
    for name, spec in typed.structure(types).items():
        assert spec.is_compatible_with(named[name]), name
    again = typed.matrices(named, types)
    for name, expected in batch.items():
        found, wanted = again[name].numpy()[:, :-1], expected.numpy()[:, :-1]
        np.testing.assert_array_equal(found, wanted)


CODE = float(np.float32(MISSING_NUMBER))
EDGES = {
    "least": -3.4028234663852886e38,
    "code": CODE,
    "below the code": float(np.nextafter(np.float32(CODE), np.float32(-np.inf))),
    "above the code": float(np.nextafter(np.float32(CODE), np.float32(0.0))),
    "most": 3.4028234663852886e38,
    "usual": -1e30,
    "an integer that means nothing": -(2.0**63),
}


@pytest.mark.parametrize("value", EDGES.values(), ids=EDGES)
def test_a_number_is_the_same_in_each_table_and_request_or_refused(tmp_path, value):
    types = {"x": Number(), "v": Vector(size=2)}
    rows = [{"query_id": "q", "relevance": 1.0, "x": 2.0, "v": [value, 1.0]}]
    rows = [*rows, {"query_id": "q", "relevance": 0.0, "x": value, "v": [0.0, 1.0]}]
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    items = [{"x": row["x"], "v": row["v"]} for row in rows]
    doors = {
        "parquet": lambda: list(data.read(tmp_path / "a.parquet", features=types)),
        "jsonl": lambda: list(data.read(tmp_path / "a.jsonl", features=types)),
        "frame": lambda: list(frames.lists(table, label="relevance", features=types)),
        "request": lambda: [requests.item_list(items, types)],
    }
    means_missing = value <= MISSING_NUMBER
    for door, read in doors.items():
        if means_missing:
            with pytest.raises(InputError, match="'v' must be 2 finite numbers above -3e") as error:
                read()
            assert re.search(r"(row|item) [01]: ", str(error.value)), door
            continue
        [found] = read()
        np.testing.assert_array_equal(found.features, np.float32([[2, value, 1], [value, 0, 1]]))
    served = {"x": tf.constant([[2.0, value]]), "v": tf.constant([[[value, 1.0], [0.0, 1.0]]])}
    matrix = typed.matrices(served, types)["features"].numpy()
    assert (np.isnan(matrix).sum() == 2) == means_missing
    required = {"x": Number(missing=REFUSE)}  # which no code stands for
    [kept] = frames.lists(table, label="relevance", features=required)
    again = typed.matrices({"x": tf.constant([[2.0, value]])}, required)["features"]
    np.testing.assert_array_equal(kept.features, again[0])


@pytest.mark.parametrize("value", [MISSING_INTEGER, 2**63, -(2**63) - 1])
def test_an_integer_that_requests_cannot_hold_is_refused(value):
    types = {"shop": Category(dtype="int64")}
    frame = {"query_id": ["q"], "relevance": [1], "shop": [str(value)]}
    for read in (
        lambda: list(frames.lists(frame, label="relevance", features=types)),
        lambda: requests.item_list([{"shop": str(value)}], types),
    ):
        with pytest.raises(InputError, match=r"'shop' must be an integer above -2\*\*63"):
            read()
