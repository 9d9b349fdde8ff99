"""Columns of every Arrow type, in every role: read, or refused with file and column in one line."""

import datetime
import decimal
import uuid

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from tfrank_sel import data
from tfrank_sel.data import InputError, arrays as own
from tfrank_sel.data.formats import Columns, reader
from tfrank_sel.features import Bool, Category, Hash, Number, Set, Timestamp, Vector

NOW = datetime.datetime(2024, 2, 29, 12)
UUIDS = [uuid.uuid5(uuid.NAMESPACE_DNS, x) for x in "ab"]
OF_UUIDS = pa.array([x.bytes for x in UUIDS], pa.binary(16))
NUMBERS = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()]
DECIMALS = [pa.decimal32(5, 1), pa.decimal64(9, 1), pa.decimal128(20, 1), pa.decimal256(40, 1)]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)]
TIMES = [pa.timestamp(u, z) for u in ("s", "ms", "us", "ns") for z in (None, "Asia/Tokyo")]
SPANS = [pa.time32("s"), pa.time64("us")]
LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]


def arrays():
    """A column of two values of each type."""
    yield from (pa.array([1, 2], kind) for kind in NUMBERS if not pa.types.is_float16(kind))
    yield pa.array(np.array([1, 2], np.float16))
    yield from (pa.array([decimal.Decimal(1), decimal.Decimal(2)], kind) for kind in DECIMALS)
    yield from (pa.array(["a", "b"], kind) for kind in TEXTS)
    yield from (pa.array([b"a", b"b"], kind) for kind in BYTES)
    yield from (pa.array([b"\xff", b"b"], kind) for kind in BYTES)
    yield from (pa.array([NOW, NOW], kind) for kind in (*TIMES, pa.date32(), pa.date64()))
    yield from (pa.array([NOW.time()] * 2, kind) for kind in SPANS)
    yield pa.array([datetime.timedelta(1)] * 2)
    yield pa.array([(1, 2, 3), None], pa.month_day_nano_interval())
    yield pa.array([True, False])
    yield pa.nulls(2)
    for child in (pa.float32(), pa.string(), pa.binary(), pa.struct([("a", pa.int8())])):
        value = {"float": 1.0, "string": "a", "binary": b"\xff"}.get(str(child), {"a": 1})
        yield from (pa.array([[value, value], None], kind(child)) for kind in LISTS)
        yield pa.array([[value, value]] * 2, pa.list_(child, 2))  # Parquet holds no null of it
    yield pa.array([np.array([1, 2], np.float16)] * 2, pa.list_(pa.float16()))
    yield pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int8()))
    yield pa.UnionArray.from_sparse(pa.array([0, 0], pa.int8()), [pa.array([1, 2])])
    yield pa.array(["a", "b"]).dictionary_encode()
    yield pa.array([1, 2]).dictionary_encode()
    yield OF_UUIDS.dictionary_encode()
    yield pa.compute.run_end_encode(pa.array(["a", "b"]))
    yield pa.ExtensionArray.from_storage(pa.uuid(), OF_UUIDS)
    yield pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, 0], pa.int8()))
    yield pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", "1"]))


TYPES = (Number(), Bool(), Category(), Hash(dtype="int64"), Set(), Vector(size=2), Timestamp())
ROLES = {
    "query": Columns(query="x", features=["f"]),
    "label": Columns(label="x", features=["f"]),
    "item": Columns(doc_id="x", features=["f"]),
    "weight": Columns(weight="x", features=["f"]),
    "slice": Columns(context=("x",), features=["f"]),
    "default": Columns(),
    **{f"feature {x.type}": Columns(features={"x": x}) for x in TYPES},
}


def told_by(run):
    """The error of reading; nothing if there is none."""
    try:
        run()
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.sample(9)
@pytest.mark.parametrize("role", ROLES)
def test_a_column_of_any_type_is_read_or_refused_in_one_line(tmp_path, role):
    columns, read = ROLES[role], 0
    for number, column in enumerate(arrays()):
        parts = {"query_id": ["q", "q"], "relevance": [1, 0], "f": [1.0, 2.0], "x": column}
        table = pa.table(parts)
        for suffix, write in (("parquet", parquet.write_table), ("arrow", feather.write_feather)):
            path = str(tmp_path / f"{number}.{suffix}")
            try:
                write(table, path, compression="zstd")
            except (pa.ArrowException, KeyError):  # the format has no such type
                continue
            kind = reader([path], columns)
            for run in (
                lambda k=kind, p=path: k.propose([p]),
                lambda k=kind, p=path: list(k.lists(data.formats.Part(p), k.infer([p]))),
            ):
                told = told_by(run)
                read += told == ""
                assert not told or [x in told for x in (path, "'x'", "\n")] == [True, True, False]
    assert read


@pytest.mark.parametrize("kind", [pa.ListArray, pa.LargeListArray])
@pytest.mark.parametrize("feature", [Set(max_values=2), Vector(size=2)], ids=lambda x: x.type)
def test_values_under_a_null_are_not_read(kind, feature):
    items = ["1", "2", "3", "4", "5", "6"]
    column = kind.from_arrays([0, 2, 4, 6], pa.array(items), mask=pa.array([False, True, False]))
    of_feature = own.texts if feature.type == "set" else own.numbers
    for part in (column, column.slice(1), pa.chunked_array([column, column.slice(1)])):
        plain = pa.array(part.to_pylist())  # holds nothing under a null
        expected = of_feature(plain, feature)
        np.testing.assert_array_equal(of_feature(part, feature), expected)


@pytest.mark.parametrize("freq", ["h", "D", "M", "Y"])
def test_a_period_is_its_first_moment(freq):
    periods = pd.Series(pd.period_range("2024-01-01", periods=2, freq=freq))
    frames = [{"query_id": ["q"] * 2, "x": x} for x in (periods, periods.dt.to_timestamp())]
    for feature in (Timestamp(parts=True), Category()):
        options = {"label": None, "features": {"x": feature}}
        [[one], [other]] = (list(data.frames.lists(pd.DataFrame(x), **options)) for x in frames)
        np.testing.assert_array_equal(one.features, other.features)
        np.testing.assert_array_equal(one.texts, other.texts)


def test_uuids_and_halves_are_read(tmp_path):
    parts = {"query_id": pa.ExtensionArray.from_storage(pa.uuid(), OF_UUIDS), "relevance": [1, 0]}
    parquet.write_table(
        pa.table({**parts, "x": np.array([0.5, 2], np.float16)}), tmp_path / "a.parquet"
    )
    found = list(data.read(tmp_path / "a.parquet"))
    assert [x.query_id for x in found] == [str(x) for x in UUIDS]
    assert [x.features.tolist() for x in found] == [[[0.5]], [[2.0]]]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_names_that_occur_twice_are_refused_if_they_are_used(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    names = ["query_id", "relevance", "x", "y", "y"]
    if suffix == "csv":
        path.write_text("query_id,relevance,x,y,y\nq,1,2,3,4\n")
    else:
        columns = [pa.array(["q"]), *(pa.array([i]) for i in range(1, 5))]
        parquet.write_table(pa.Table.from_arrays(columns, names), path)
    [one] = data.read(path, features=["x"])
    assert one.features.tolist() == [[2.0]]
    with pytest.raises(InputError, match=r"expected one column 'y'; .*Received: 2 columns"):
        list(data.read(path))
    _, left_out = reader([str(path)]).propose([str(path)])
    assert left_out["y"] == "2 columns have this name"
