"""Identifiers and times of all kinds through every door that takes a table: one value, or refused.

The expected texts stand here as they are written by hand; no door is the measure of another.
"""

import csv
import datetime
import decimal
import itertools
import json
import warnings

import hypothesis
import numpy as np
import pandas as pd
import polars
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import feather, parquet

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import Sequences, formats, frames
from tfrank_sel.estimator.lists import groups_of
from tfrank_sel.features import Set
from tfrank_sel.models.als import RGFactorizer

DAY = datetime.date(2024, 2, 29)
NOON = datetime.datetime(2024, 2, 29, 12, 30)
# a column of two identifiers, and their texts; None if they are refused
IDS = {
    "integers": (pa.array([12, 7]), ["12", "7"]),
    "unsigned": (
        pa.array([2**63 + 13, 2**63 + 11], pa.uint64()),
        [str(2**63 + 13), str(2**63 + 11)],
    ),
    "floats": (pa.array([12.0, 7.0]), ["12", "7"]),
    "narrow floats": (pa.array(np.array([12, 7], np.float16)), ["12", "7"]),
    "32 bits from 2^24": (pa.array(np.array([2**24, 7], np.float32)), None),
    "16 bits from 2^11": (pa.array(np.array([2**11, 7], np.float16)), None),
    "64 bits from 2^53": (pa.array([2.0**53, 7.0]), None),
    "leading zeros": (pa.array(["007", "7"]), ["007", "7"]),
    "exponents": (pa.array(["1e5", "100000"]), ["1e5", "100000"]),
    "categories": (pa.array(["b", "a"]).dictionary_encode(), ["b", "a"]),
    "bytes": (pa.array([b"b", b"a"]), ["b", "a"]),
    "decimals": (pa.array([decimal.Decimal("12"), decimal.Decimal("7")]), ["12", "7"]),
    "days": (pa.array([DAY, datetime.date(2024, 3, 1)]), ["2024-02-29", "2024-03-01"]),
    "accents": (pa.array(["Köln", "𝄞 clef"]), ["Köln", "𝄞 clef"]),
    "missing": (pa.array(["a", None]), None),
    "empty": (pa.array(["a", ""]), None),
}
# a column of two times, of which the second is earlier by less than can be seen when rounded
TIMES = {
    "seconds": pa.array([1_709_209_800, 1_709_209_799]),
    "days in digits": pa.array([20240301, 20240229]),
    "nanoseconds": pa.array([1_709_209_800_000_000_001, 1_709_209_800_000_000_000]),
    "floats": pa.array([1_709_209_800.5, 1_709_209_800.25]),
    "dates": pa.array([datetime.date(2024, 3, 1), DAY]),
    "milliseconds": pa.array([1_709_209_800_002, 1_709_209_800_001], pa.timestamp("ms")),
    "zones": pa.array([NOON, NOON - datetime.timedelta(microseconds=1)], pa.timestamp("us", "UTC")),
    "texts": pa.array(["2024-02-29T12:30:00.002Z", "2024-02-29T12:30:00.001Z"]),
    "missing": pa.array([NOON, None], pa.timestamp("ms")),
    "words": pa.array(["today", "yesterday"]),
}
NO_TIMES = {"missing", "words"}
FORMATS = ("parquet", "arrow", "csv", "tsv", "jsonl")


def written(folder, columns, suffix):
    """A file of a format; None if it does not hold the values."""
    path = folder / f"log.{suffix}"
    table = pa.table(columns)
    if suffix == "parquet":
        parquet.write_table(table, path)
    elif suffix == "arrow":
        feather.write_feather(table, path, compression="zstd")
    else:
        kind = table["id"].type
        # which texts have not, or as they stand: 12.0 is another name than 12
        if pa.types.is_binary(kind) or (pa.types.is_floating(kind) and suffix != "jsonl"):
            return None
        if kind in (pa.float16(), pa.float32()):
            return None
        rows = table.to_pylist()
        if suffix == "jsonl":
            path.write_text("".join(json.dumps(row, default=str) + "\n" for row in rows))
        else:
            with path.open("w", newline="") as file:
                writer = csv.writer(file, delimiter="," if suffix == "csv" else "\t")
                writer.writerows([list(columns), *(row.values() for row in rows)])
    return path


def in_memory(columns):
    """A table in each form that a program may have it in."""
    table = pa.table(columns)
    yield "arrow", table
    yield "pandas", table.to_pandas()
    yield "mapping", {name: x.to_pylist() for name, x in columns.items()}
    yield "dicts", table.to_pylist()
    yield "polars", polars.from_arrow(table)


def by_table(source):
    return list(formats.table(source, {"item": "id"})["item"])


def by_lists(source):
    if hasattr(source, "suffix"):
        found = data.read(source, query="id", label="label", features=["score"])
    else:
        found = frames.lists(source, query="id", label="label", features=["score"])
    return [one.query_id for one in found]


def of_names(source, names):
    if isinstance(source, dict):
        return {names.get(x, x): y for x, y in source.items()}
    if isinstance(source, list):
        return [{names.get(x, x): y for x, y in row.items()} for row in source]
    if isinstance(source, pa.Table):
        return source.rename_columns([names.get(x, x) for x in source.column_names])
    return (
        source.rename(columns=names) if isinstance(source, pd.DataFrame) else source.rename(names)
    )


def by_sequences(source):
    found = Sequences.read(source, user="query", item="id", time="position")
    return [found.item_ids[number - 1] for number in found.items]


def by_factors(source):
    if hasattr(source, "suffix"):
        source = formats.table(source, {}, others=True).columns
    pairs = of_names(source, {"query": "user", "id": "item"})
    with warnings.catch_warnings():  # of columns that take no part, and of one factor
        warnings.simplefilter("ignore")
        model = RGFactorizer(num_factors=1, sweeps=1, regularization=1.0).fit(pairs)
    return [*map(str, model.item_ids_)]


DOORS = {x.__name__: x for x in (by_table, by_lists, by_sequences, by_factors)}


def attempt(door, source):
    """What a door finds, or None for an error of one line."""
    try:
        return door(source)
    except ValueError as error:
        told = str(error)
    assert "\n" not in told
    return None


def columns_of(values):
    return {
        "id": values,
        "query": pa.array(["q", "q"]),
        "position": pa.array([1, 2]),
        "label": pa.array([1, 0]),
        "score": pa.array([2.5, 1.5]),
    }


@pytest.mark.sample(4)
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", IDS)
def test_an_identifier_has_one_text_by_every_door(tmp_path, kind, door):
    check_texts_of_ids(tmp_path, kind, DOORS[door])


def check_texts_of_ids(tmp_path, kind, run):
    values, texts = IDS[kind]
    columns = columns_of(values)

    def found(source):
        texts_found = attempt(run, source)
        return texts_found and (sorted if run is by_factors else list)(texts_found)

    def expected(texts):
        return texts and (sorted if run is by_factors else list)(texts)

    for suffix in FORMATS:
        if (path := written(tmp_path, columns, suffix)) is not None:
            assert found(path) == expected(texts), suffix
    for name, source in in_memory(columns):
        if run is by_lists and name == "dicts":
            continue
        wide = name in ("mapping", "dicts") and kind in ("32 bits from 2^24", "16 bits from 2^11")
        if wide:  # floats of Python have 64 bits
            assert found(source) == expected([str(int(values[0].as_py())), "7"]), name
        else:
            assert found(source) == expected(texts), name


@pytest.mark.parametrize("kind", TIMES)
def test_rows_are_sorted_by_times_before_these_are_rounded(tmp_path, kind):
    columns = {
        "id": pa.array(["later", "sooner"]),
        "user": pa.array(["u", "u"]),
        "time": TIMES[kind],
    }
    paths = [x for suffix in FORMATS if (x := written(tmp_path, columns, suffix)) is not None]
    sources = [*paths, *(x for _, x in in_memory(columns))]

    def in_order(source):
        found = Sequences.read(source, item="id")
        return [found.item_ids[number - 1] for number in found.items]

    for source in sources:
        expected = None if kind in NO_TIMES else ["sooner", "later"]
        assert attempt(in_order, source) == expected, source


@pytest.mark.parametrize("kind", IDS)
def test_identifiers_of_queries_group_rows_of_arrays(kind):
    values, texts = IDS[kind]
    column = values.to_pandas()
    try:
        sizes, _ = groups_of(2, column, None)
    except ValueError:
        assert texts is None
    else:
        assert texts is not None
        assert sizes.tolist() == [1, 1]


MOMENTS = ["2024-02-29T12:30:00.5Z", "1709209800"]  # the second is half a second earlier


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_times_of_several_files_are_sorted_together(tmp_path, suffix):
    paths = []
    for name, value in zip("ab", MOMENTS, strict=True):
        (tmp_path / name).mkdir()
        times = pa.array([value])
        if suffix == "parquet":
            times = times.cast(pa.timestamp("ms", "UTC") if name == "a" else pa.int64())
        columns = {"id": pa.array([name]), "user": pa.array(["u"]), "time": times}
        paths.append(written(tmp_path / name, columns, suffix))
    found = Sequences.read(paths, item="id")
    assert [found.item_ids[number - 1] for number in found.items] == ["b", "a"]


def test_times_of_two_units_keep_their_years(tmp_path):
    far = datetime.datetime(9999, 12, 31)
    parts = {"a": pa.array([NOON], pa.timestamp("ns")), "b": pa.array([far], pa.timestamp("us"))}
    parts["c"] = pa.array([DAY], pa.date32())
    for name, times in parts.items():
        parquet.write_table(pa.table({"item": [name], "time": times}), tmp_path / f"{name}.parquet")
    for paths in itertools.permutations(tmp_path.iterdir()):
        table = formats.table(paths, {"item": "item", "time": "time"})
        found = dict(zip(table["item"], table["time"].astype("M8[s]").tolist(), strict=True))
        assert found == {"a": NOON, "b": far, "c": datetime.datetime.combine(DAY, datetime.time())}


STAMPS = st.sampled_from(
    [1_709_209_800, 1_700_000_000_000, 20240229, 20240230, 1e300, "2024-01-01", "noon", None]
)


@hypothesis.settings(max_examples=20, deadline=None)
@hypothesis.given(st.lists(st.lists(STAMPS, min_size=1, max_size=4), min_size=1), st.integers(1, 4))
def test_times_are_the_same_however_rows_are_cut(tmp_path_factory, parts, size):
    folder = tmp_path_factory.mktemp("times")

    def found(name, parts):
        paths = [folder / f"{name}{number}.jsonl" for number in range(len(parts))]
        for path, times in zip(paths, parts, strict=True):
            path.write_text("".join(json.dumps({"item": "a", "time": x}) + "\n" for x in times))
        rejected = []
        times = formats.table(paths, {"item": "item", "time": "time"}, rejected=rejected)["time"]
        return times.dtype.kind == "M", times.tolist(), len(rejected)

    whole = [list(itertools.chain(*parts))]
    expected = found("whole", whole)
    assert found("file", parts) == expected
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tfrank_sel.data.formats.text.ROWS", size)
        assert found("chunks", whole) == expected


LONG = pa.array([decimal.Decimal(f"1234567890.1234567890{x}") for x in "12"])  # one float
INTEGERS = pa.array([2**53, 2**53 + 1])


def test_numbers_that_are_one_float_are_two_identifiers():
    for column in (LONG, INTEGERS):
        assert len(set(by_table(columns_of(column)))) == 2


def test_names_of_columns_are_texts_and_only_those_in_use_occur_once():
    pairs = {0: ["u", "v"], 1: ["a", "b"]}
    for source in (pairs, [{0: "u", 1: "a"}, {0: "v", 1: "b"}]):
        assert by_table(of_names(source, {1: "id"})) == ["a", "b"]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = RGFactorizer(num_factors=1, sweeps=1, regularization=1.0).fit(source)
        assert model.item_ids_.tolist() == ["a", "b"]
    twice = pd.DataFrame([["a", 1, 2]], columns=["id", "x", "x"])
    for frame in (twice, pa.table(list(twice.T.to_numpy()), list(twice))):
        table = formats.table(frame, {"item": "id"}, others=True)
        assert table.left_out == {"x": "2 columns have this name"}
        with pytest.raises(data.InputError, match=r"^log: expected one column 'x'"):
            formats.table(frame, {"item": "x"}, place="log")


def test_a_role_that_only_some_rows_have_is_refused(tmp_path):
    rows = [{"item": "a"}] * 9000
    path = tmp_path / "log.jsonl"
    roles = {"item": "item", "weight": "weight"}
    for last, found in (({}, None), ({"weight": 2.0}, "'weight' in all rows, or in none")):
        path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"item": "b"} | last]))
        if found is None:
            assert "weight" not in formats.table(path, roles, optional=["weight"]).roles
        else:
            with pytest.raises(data.InputError, match=found):
                formats.table(path, roles, optional=["weight"])


def test_a_query_that_occurs_again_is_told_with_its_row(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("query_id,relevance,x\n" + "".join(f"{q},1,2\n" for q in "aabcbd"))
    with pytest.raises(data.InputError, match=r"a.csv, row 5: .* Received: 'b' again"):
        list(data.read(path, adjacent=True))
    letor = [tmp_path / f"{name}.txt" for name in "ab"]
    for file in letor:
        file.write_text("1 qid:1 1:1\n0 qid:2 1:1\n")
    with pytest.raises(data.InputError, match=r"b.txt:1: .* Received: '1' again"):
        list(data.read(letor))


def test_a_list_within_a_list_is_refused_with_its_row(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"query_id": "q", "relevance": 1, "tags": x} for x in (["a"], ["a", ["b"]])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(data.InputError, match=r"a.jsonl, row 2: 'tags' must be"):
        list(data.read(path, features={"tags": Set()}))


@pytest.mark.long
def test_float_identifiers_of_records_are_refused_where_they_may_be_rounded(tmp_path):
    path = tmp_path / "a.tfrecord"
    for number, is_exact in ((2.0**24 - 1, True), (2.0**24 + 2, False)):
        item = sets.example(relevance=1.0, x=1.0)
        sets.write(path, [sets.elwc([item], sets.example(query_id=number))])
        if is_exact:
            assert next(data.read(path, adjacent=True)).query_id == str(2**24 - 1)
        else:
            with pytest.raises(data.InputError, match="record 1: 'query_id' must be"):
                list(data.read(path))


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.uint64])
def test_sizes_of_lists_may_be_of_any_type_of_integers(kind):
    sizes, order = groups_of(3, None, np.array([1, 2], kind))
    assert np.split(order, np.cumsum(sizes)[:-1])[1].tolist() == [1, 2]
