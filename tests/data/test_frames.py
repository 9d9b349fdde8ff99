import math

import numpy as np
import pandas
import polars
import pyarrow
import pytest

from tfrank_sel import features
from tfrank_sel.data import InputError, frames

COLUMNS = {
    "qid": ["b", "a", "b", "a", "c"],
    "rel": [2, 0, 1, 3, 0],
    "doc": ["d0", "d1", "d2", "d3", "d4"],
    "x": [0.5, 1.5, 2.5, 3.5, 4.5],
    "y": [10, 11, 12, 13, 14],
}
NAMES = {"query": "qid", "label": "rel", "doc_id": "doc"}
EXPECTED = [
    ("b", [2.0, 1.0], [[0.5, 10.0], [2.5, 12.0]], ("d0", "d2")),
    ("a", [0.0, 3.0], [[1.5, 11.0], [3.5, 13.0]], ("d1", "d3")),
    ("c", [0.0], [[4.5, 14.0]], ("d4",)),
]


def found(lists):
    return [(x.query_id, x.labels.tolist(), x.features.tolist(), x.doc_ids) for x in lists]


@pytest.mark.parametrize("make", [dict, pandas.DataFrame, polars.DataFrame, pyarrow.table])
def test_rows_of_every_kind_of_frame_become_lists(make):
    assert found(frames.lists(make(COLUMNS), **NAMES)) == EXPECTED


def test_features_may_be_chosen_and_documents_named_by_position():
    lists = frames.lists(COLUMNS, query="qid", label="rel", features=["y", "x"])

    first = next(lists)
    assert first.features.tolist() == [[10.0, 0.5], [12.0, 2.5]]
    assert first.doc_ids == ("b:1", "b:2")
    assert first.features.dtype == first.labels.dtype == np.float32


def test_queries_may_be_numbers():
    lists = frames.lists({"q": [10, 9, 10], "y": [0, 1, 1], "x": [1, 2, 3]}, query="q", label="y")

    assert [(x.query_id, len(x.labels)) for x in lists] == [("10", 2), ("9", 1)]


def test_an_index_of_pandas_is_no_feature():
    frame = pandas.DataFrame(COLUMNS).sort_values("x")

    assert found(frames.lists(frame, **NAMES)) == EXPECTED


NUMBER = "'x' must be a finite number. Received:"
QUERY = "a row must have a query identifier"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": [0.5, float("nan"), 2.5, 3.5, 4.5]}, f"frame, row 1: {NUMBER} nan"),
        ({"x": [0.5, None, 2.5, 3.5, 4.5]}, f"frame, row 1: {NUMBER} nothing"),
        ({"qid": ["b", None, "b", "a", "c"]}, f"frame, row 1: {QUERY}"),
        ({"qid": [1.0, 2.0, math.nan, 1.0, 1.0]}, f"frame, row 2: {QUERY}"),
        ({"qid": ["b", "a", "b", "", "c"]}, f"frame, row 3: {QUERY}"),
        (
            {"rel": [0, 1, -2, 0, 0]},
            "frame, row 2: 'rel' must be a finite number that is not negative. Received: -2",
        ),
        ({"x": [0.5, "a", 2.5, 3.5, 4.5]}, "frame: expected a readable table"),
    ],
)
def test_a_bad_value_is_named_by_row_and_column(changed, message):
    with pytest.raises(InputError) as error:
        list(frames.lists(COLUMNS | changed, **NAMES))

    assert str(error.value).startswith(message)


def test_a_missing_column_is_told():
    with pytest.raises(InputError, match=r"expected a column 'z'\. Received: \['qid', 'rel'"):
        list(frames.lists(COLUMNS, query="qid", label="z"))
    with pytest.raises(InputError, match="expected a column 'id'"):
        list(frames.lists(COLUMNS, query="qid", label="rel", doc_id="id"))
    with pytest.raises(InputError, match="expected a column of numbers"):
        list(frames.lists({"q": ["a"], "y": [1]}, query="q", label="y"))


def test_a_dataset_has_weights_and_texts_where_there_are_some():
    frame = {"q": [1, 1, 2], "y": [1.0, 0.0, 2.0], "x": [1.0, None, 3.0], "w": [1.0, 2.0, 3.0]}
    frame["brand"] = ["a", None, "b"]
    kinds = {"x": features.Number(), "brand": features.Category()}
    made = frames.dataset(
        frame, query="q", label="y", features=kinds, weight="w", shuffle=False, bucket_edges=1
    )
    [(inputs, labels, weights)] = made
    assert inputs["texts"].numpy().tolist() == [[[b"a"], [b""]], [[b"b"], [b""]]]
    np.testing.assert_array_equal(inputs["features"][..., 0], [[1.0, np.nan], [3.0, 0.0]])
    assert inputs["mask"].numpy().tolist() == [[True, True], [True, False]]
    np.testing.assert_array_equal(labels, [[1.0, 0.0], [2.0, np.nan]])
    assert weights.numpy().tolist() == [[1.0, 2.0], [3.0, 0.0]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be positive"),
        ({"bucket_edges": [1]}, "must reach the longest list, 2"),
        ({"bucket_edges": [3, 2]}, "increasing"),
    ],
)
def test_a_dataset_that_cannot_be_is_refused(options, message):
    frame = {"q": [1, 1], "y": [1.0, 0.0], "x": [1.0, 2.0]}
    with pytest.raises(ValueError, match=message):
        frames.dataset(frame, query="q", label="y", **options)
    with pytest.raises(InputError, match="expected at least one row"):
        frames.dataset({"q": [], "y": [], "x": np.zeros(0)}, query="q", label="y")
