"""Weights of rows, lists and positions, and the one role of each column."""

import math

import numpy as np
import pandas as pd
import pytest

from tests.data import sets
from tfrank_sel import data
from tfrank_sel.data import InputError, frames, requests
from tfrank_sel.data.formats import Columns
from tfrank_sel.features import Category, Number


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


def test_a_weight_that_becomes_infinite_refuses_its_row():
    frame = {"query_id": ["q"], "relevance": [1], "x": [1.0], "w": [1e30], "p": [1e-30]}
    with pytest.raises(InputError, match="row 0: 'p' must be such that the weight of the item is"):
        list(frames.lists(frame, features=["x"], weight="w", propensity="p"))


def test_weights_of_records_are_read(tmp_path):
    items = [sets.example(relevance=float(i), x=1.0, w=2.0, p=0.5) for i in range(2)]
    query = sets.example(query_id="q", lw=3.0)
    sets.write(tmp_path / "a.tfrecord", [sets.elwc(items, query)])
    roles = {"weight": "w", "list_weight": "lw", "propensity": "p"}
    [only] = data.read(tmp_path / "a.tfrecord", features={"x": Number()}, **roles)
    assert only.weights.tolist() == [6.0, 12.0]
    with pytest.raises(InputError, match="expected 'w' in the query"):
        next(data.read(tmp_path / "a.tfrecord", features=["x"], list_weight="w"))


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"label": "query_id"}, "'query_id' as query and as label"),
        ({"features": ["price", "relevance"]}, "'relevance' as label and as feature"),
        ({"features": {"w": Number()}, "weight": "w"}, "'w' as weight and as feature"),
        ({"weight": "w", "propensity": "w"}, "'w' as weight and as propensity"),
        ({"features": {"doc_id": Number()}}, "'doc_id' as doc_id and as feature"),
        ({"context": ("a", "a")}, "'a' as context and as context"),
    ],
)
def test_a_name_has_one_role(columns, told):
    with pytest.raises(ValueError, match=f"the names of columns must differ. Received: {told}"):
        Columns(**columns)


def test_an_identifier_may_be_a_category_in_tables_records_and_requests(tmp_path):
    types = {"price": Number(), "item": Category()}
    columns = {"price": [1.0, 2.0], "item": ["car", "bus"]}
    frame = pd.DataFrame({"query_id": ["q", "q"], "relevance": [1.0, 0.0], **columns})
    frame.to_csv(tmp_path / "a.csv", index=False)
    items = [sets.example(relevance=1.0, price=1.0, item="car")]
    items.append(sets.example(relevance=0.0, price=2.0, item="bus"))
    sets.write(tmp_path / "a.tfrecord", [sets.elwc(items, sets.example(query_id="q"))])
    found = [
        next(data.read(tmp_path / x, features=types, doc_id="item"))
        for x in ("a.csv", "a.tfrecord")
    ]
    found.append(requests.item_list(columns, types, doc_id="item"))
    for one in found:
        assert (one.doc_ids, one.texts.ravel().tolist()) == (("car", "bus"), ["car", "bus"])
    with pytest.raises(ValueError, match="`doc_ids` must be None"):
        requests.item_list(columns, types, doc_id="item", doc_ids=["x", "y"])
