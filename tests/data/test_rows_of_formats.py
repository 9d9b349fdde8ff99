"""Identifiers, sparse columns and numbers of rows, read from every format."""

import itertools

import hypothesis
import numpy as np
import pandas
import pytest
import tensorflow as tf
from hypothesis import strategies

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import InputError, formats, frames, writing
from tfrank_sel.data.formats import Columns, Part
from tfrank_sel.data.rejections import Rejected
from tfrank_sel.features import Category, Number


def test_integers_that_identify_are_read_to_the_last_digit(tmp_path):
    items = [sets.example(relevance=1.0, x=1.0, doc_id=12345678901 + i) for i in range(2)]
    sets.write(tmp_path / "a.tfrecord", [sets.elwc(items, sets.example(query_id=2**60 + 1))])
    [only] = data.read(tmp_path / "a.tfrecord")
    assert only.query_id == str(2**60 + 1)
    assert only.doc_ids == ("12345678901", "12345678902")


def test_an_identifier_may_be_any_text(tmp_path):
    for name, delimiter in (("a.csv", ","), ("a.tsv", "\t")):
        lines = ("query_id,relevance,x", "NA,1,2.5", "null,0,3")
        (tmp_path / name).write_text("\n".join(lines).replace(",", delimiter))
        assert [one.query_id for one in data.read(tmp_path / name)] == ["NA", "null"]


def test_what_belongs_to_the_query_is_that_of_its_first_row():
    frame = {"query_id": list("abab"), "relevance": [1] * 4, "x": [1, 2, 3, 4], "y": [5, 6, 7, 8]}
    types = {"x": Number(of="query"), "y": Number()}
    found = {one.query_id: one.features.tolist() for one in frames.lists(frame, features=types)}
    assert found == {"a": [[1.0, 5.0], [1.0, 7.0]], "b": [[2.0, 6.0], [2.0, 8.0]]}


@pytest.mark.parametrize("there", [1, 4, 9])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_a_sparse_column_of_numbers_is_a_feature_in_every_format(tmp_path, suffix, there):
    price = [1.5] * there + [None] * (10 - there)
    frame = pandas.DataFrame({"query_id": "a", "relevance": 1, "x": range(10), "price": price})
    frame["shop"] = ["one"] * there + [None] * (10 - there)
    path = tmp_path / f"t.{suffix}"
    {
        "csv": lambda: frame.to_csv(path, index=False),
        "tsv": lambda: frame.to_csv(path, index=False, sep="\t"),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(path),
    }[suffix]()
    assert sorted(formats.reader([str(path)]).infer([str(path)]).names) == ["price", "x"]
    with pytest.raises(InputError, match=f"row {there + 1}: 'price' must be a finite number"):
        list(data.read(path))


@hypothesis.given(strategies.lists(strategies.booleans(), max_size=80), strategies.integers(8, 200))
def test_rows_are_numbered_as_they_stand_in_the_file(tmp_path_factory, are_bad, size):
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    lines = [f"q,1,{number}{',2' * bad}\n" for number, bad in enumerate(are_bad, start=1)]
    path.write_text("".join(["query_id,relevance,price\n", *lines]))
    reader = formats.reader([str(path)])
    bad, good = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tfrank_sel.data.formats.text._BYTES", 25 + size)
        for unit in reader.tables(Part(str(path)), ["price"]):
            if isinstance(unit, Rejected):
                bad.append(unit.number)
            else:
                numbers, table = unit
                assert table["price"].to_pylist() == [b"%d" % number for number in numbers]
                good += numbers.tolist()
    numbered = list(enumerate(are_bad, start=1))
    assert bad == [number for number, is_bad in numbered if is_bad]
    assert good == [number for number, is_bad in numbered if not is_bad]


@pytest.mark.long
def test_a_feature_that_appears_late_in_a_file_has_its_kind(tmp_path):
    def record(number, **more):
        item = {"relevance": 1.0, "doc_id": f"d{number}", "price": 2.0, **more}
        return writing.elwc([item], {"query_id": f"q{number}", **context(number)})

    def context(number):
        return {"shop": "one"} if number > 150 else {}

    late = {number: {"stock": 9, "brand": 7} for number in range(140, 230)}
    late[200] = {"stock": 0.5}  # of another kind than its neighbours
    paths = [str(tmp_path / f"{name}.tfrecord") for name in "ab"]
    for path, numbers in zip(paths, (range(140, 150), range(300)), strict=True):
        with tf.io.TFRecordWriter(path) as file:
            for number in numbers:
                file.write(record(number, **late.get(number, {})))
            if path == paths[0]:
                file.write(writing.elwc([{"relevance": 1.0}], {"query_id": "x", "shop": "two"}))
    types = {"price": Number(), "stock": Number(), "brand": Category()}
    reader = formats.reader(paths, Columns(features=types, context=("shop",)))
    units = list(reader.lists(Part(paths[1]), reader.infer(paths)))
    [bad] = [unit for unit in units if isinstance(unit, Rejected)]
    assert bad.number == 201
    assert "'stock' must be 1 of type int64" in bad.reason
    read = [unit for unit in units if unit is not bad]
    found = {one.query_id: one for some in read for one in some}
    assert len(found) == 299
    np.testing.assert_array_equal(found["q141"].features, [[2.0, 9.0]])
    assert found["q141"].texts.tolist() == [["7"]]
    assert found["q250"].texts.tolist() == [[""]]
    assert np.isnan(found["q250"].features[0, 1])
    pairs = (zip(one.queries, one.context["shop"], strict=True) for one in read)
    shops = dict(itertools.chain.from_iterable(pairs))
    assert [shops[x] for x in ("q100", "q151")] == ["", "one"]
