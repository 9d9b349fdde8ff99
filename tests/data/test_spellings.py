"""One value has one text: in all formats of files, in frames, in requests and in a model."""

import datetime
import decimal
import itertools
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import tensorflow as tf

from tests.data import sets
from tfrank_sel import data, models
from tfrank_sel.canonical_text import canonical
from tfrank_sel.data import frames, requests
from tfrank_sel.data.arrays import moments
from tfrank_sel.data.formats.tables import join_columns
from tfrank_sel.features import Category, Hash, Number, Set, Timestamp

NOON = datetime.datetime(2024, 1, 1, 12, 30)
SECONDS = 1_704_112_200
# values of one column as pandas has them; the text or the numbers of each
TEXTS = {
    "bool": ([True, False], ["true", "false"]),
    "whole float": ([7.0, -8.0], ["7", "-8"]),
    "integer": ([7, 2**60 + 1], ["7", str(2**60 + 1)]),
    "float": ([0.5, 2.5e-5], ["0.5", "2.5e-05"]),
    "day": (pd.to_datetime(["2024-01-01", "2024-01-02"]), ["2024-01-01", "2024-01-02"]),
    "time": (pd.to_datetime([NOON, NOON]), ["2024-01-01 12:30:00"] * 2),
    "zone": (pd.to_datetime([NOON, NOON]).tz_localize("UTC"), ["2024-01-01 12:30:00"] * 2),
    "text": (["007", "a True 7.0"], ["007", "a True 7.0"]),
    "written": (["TRUE", "7.00"], ["true", "7"]),
}
NUMBERS = {
    "decimal": ([decimal.Decimal("17526.72"), decimal.Decimal("0.1")], [17526.72, 0.1]),
    "large": ([2**53 + 1, 2**24 + 1], [2**53 + 1, 2**24 + 1]),
    "bool": ([True, False], [1.0, 0.0]),
}
TIMES = {
    "seconds": [SECONDS, 881_250_949],
    "texts of seconds": [str(SECONDS), "881250949"],
    "texts": ["2024-01-01T12:30:00Z", "1997-12-04 15:55:49"],
    "texts of days": ["2024/01/01 12:30:00", "1997.12.04 15:55:49"],
    "times": pd.to_datetime(["2024-01-01 12:30:00", "1997-12-04 15:55:49"]),
}


def read(folder, column, feature, *, is_stored=True):
    """The list of two items with this feature, as each way in gives it."""
    frame = pd.DataFrame({"query_id": ["q"] * 2, "relevance": [1, 0], "x": column})
    frame.to_parquet(folder / "a.parquet", index=False)
    frame.to_csv(folder / "a.csv", index=False)
    frame.to_csv(folder / "a.tsv", index=False, sep="\t")
    items = frame["x"].astype(object).tolist()
    plain = [x if isinstance(x, bool | int | float | str) else str(x) for x in items]
    sets.write_jsonl(folder / "a.jsonl", [{**sets_row(), "x": x} for x in plain])
    types = {"x": feature}
    found = {name: data.read(folder / f"a.{name}", features=types) for name in FORMATS}
    found["frame"] = frames.lists(frame, features=types)
    found = {name: next(iter(lists)) for name, lists in found.items()}
    found["request"] = requests.item_list([{"x": x} for x in items], types)
    if not is_stored:  # an example holds no Boolean and no time
        return found
    records = [sets.example(relevance=1.0, x=as_stored(x)) for x in items]
    sets.write(folder / "a.tfrecord", [sets.elwc(records, sets.example(query_id="q"))])
    found["elwc"] = next(iter(data.read(folder / "a.tfrecord", features=types)))
    return found


FORMATS = ("parquet", "csv", "tsv", "jsonl")


def sets_row():
    return {"query_id": "q", "relevance": 1}


def as_stored(value):
    """A value as an example can hold it."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, decimal.Decimal):
        return float(value)
    return value if is_number else str(value)


@pytest.mark.sample(9)
@pytest.mark.parametrize("feature", [Category(), Set(max_values=1), Hash()], ids=lambda x: x.type)
@pytest.mark.parametrize("name", TEXTS)
def test_a_category_has_one_text_by_every_way_in(tmp_path, name, feature):
    column, texts = TEXTS[name]
    for way, one in read(tmp_path, column, feature).items():
        assert one.texts[:, 0].tolist() == texts, way


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_has_one_value_by_every_way_in(tmp_path, name):
    column, numbers = NUMBERS[name]
    for way, one in read(tmp_path, column, Number(), is_stored=name != "bool").items():
        assert one.features[:, 0].tolist() == np.array(numbers, np.float32).tolist(), way


@pytest.mark.parametrize("name", TIMES)
def test_a_time_has_one_day_and_second_by_every_way_in(tmp_path, name):
    found = read(tmp_path, TIMES[name], Timestamp(), is_stored=name == "seconds")
    for way, one in found.items():
        assert one.features.tolist() == [[19723.0, 45000.0], [10199.0, 57349.0]], way


DAY_KINDS = [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ns", "Asia/Tokyo")]
DAY_KINDS += [pa.timestamp("us", "UTC"), pa.dictionary(pa.int8(), pa.date32())]


@pytest.mark.sample(4)
@pytest.mark.parametrize("kinds", [*itertools.permutations(DAY_KINDS, 2)], ids=str)
def test_dates_and_times_of_several_files_are_times(kinds):
    day = pa.array([datetime.date(2024, 1, 1), None])
    columns = [
        day.dictionary_encode() if pa.types.is_dictionary(kind) else day.cast(kind)
        for kind in kinds
    ]
    column = join_columns([*columns, pa.nulls(1)])
    assert pa.types.is_temporal(column.type)
    expected = np.array(["2024-01-01", "NaT", "2024-01-01", "NaT", "NaT"], "M8[s]")
    np.testing.assert_array_equal(moments(column), expected)


@pytest.mark.parametrize("written", ["True", "TRUE", "true"])
def test_a_model_looks_a_text_up_as_it_is_spelled(written):
    types = {"x": Category(min_count=1), "y": Hash()}
    frame = {"query_id": ["q"] * 3, "relevance": [1, 0, 0], "x": [written, "7.0", "a"]}
    frame["y"] = ["2024-01-01", "7", "1.50"]
    batches = frames.dataset(frame, features=types, shuffle=False)
    preparation = models.Preparation.of(batches, types)
    assert sorted(preparation.vocabularies["x"]) == ["7", "a", "true"]
    old = models.Preparation(
        [], [], features=types, vocabularies={"x": ["True", "7.0", "true", "a"]}
    )
    for texts in (["true", "2024-01-01 00:00:00"], ["True", "2024-01-01T00:00:00.000Z"]):
        inputs = {"features": tf.zeros([1, 1, 0]), "mask": tf.ones([1, 1], bool)}
        inputs["texts"] = tf.constant([[texts]])
        same = {**inputs, "texts": tf.constant([[["true", "2024-01-01"]]])}
        for layer in (preparation, old):
            found = layer(inputs)["features"].numpy()
            assert found.tolist() == layer(same)["features"].numpy().tolist()
            assert found[0, 0, 0] > 1.0  # in the vocabulary


def test_a_spelling_is_its_own_spelling():
    for text in (*(y for _, x in TEXTS.values() for y in x), "-0.0", "1.10", "1e5", ""):
        assert canonical(canonical(text)) == canonical(text)
    assert json.loads(canonical("7.000")) == 7
