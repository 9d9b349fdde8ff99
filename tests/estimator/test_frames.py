"""The estimator takes frames with typed columns."""

import pathlib
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow as tf

from tfrank_sel import Ranker
from tfrank_sel.data import InputError
from tfrank_sel.features import Category, Number

QUICK: dict[str, Any] = {"hidden_units": (16,), "learning_rate": 0.02, "random_state": 0}


def frame(count: int, seed: int) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Lists in which users want what is cheap and of the brand of the query."""
    rng = np.random.default_rng(seed)
    rows = count * 6
    brands = np.array(["acme", "bolt", "core"], object)
    found = pd.DataFrame(
        {
            "price": np.where(rng.random(rows) < 0.1, np.nan, rng.lognormal(size=rows)),
            "is_new": rng.random(rows) < 0.5,
            "brand": brands[rng.integers(3, size=rows)],
            "hour": np.repeat(rng.integers(24, size=count), 6),
            "title": [f"item {number}" for number in range(rows)],
        }
    )
    y = (found["brand"] == "bolt") * 2 + (found["price"] < 1.0)
    return found, y.to_numpy(), np.repeat(np.arange(count), 6)


X, Y, QID = frame(80, seed=0)
TYPES = {"brand": Category(), "price": Number(), "hour": Number(of="query")}


@pytest.fixture(scope="module")
def ranker() -> Ranker:
    return Ranker(members=2, features=TYPES, epochs=12, **QUICK).fit(X, Y, qid=QID)


def test_it_learns_from_texts_and_missing_numbers(ranker: Ranker) -> None:
    X_test, y_test, qid_test = frame(40, seed=1)
    assert ranker.score(X_test, y_test, qid=qid_test) > 0.9
    scores = ranker.predict(X_test, qid=qid_test)
    order = np.random.default_rng(0).permutation(len(X_test))
    found = ranker.predict(pl.from_pandas(X_test.iloc[order]), qid=qid_test[order])
    np.testing.assert_allclose(found, scores[order], atol=1e-6)


def test_importances_stand_for_columns(ranker: Ranker) -> None:
    found = dict(zip(ranker.feature_names_in_, ranker.feature_importances_, strict=True))
    assert list(found) == list(X.columns)
    assert found["brand"] > found["price"] > 0.01
    # of the query, and not used
    assert found["hour"] == found["is_new"] == found["title"] == 0.0


@pytest.mark.long
def test_types_are_chosen_and_columns_without_one_are_named() -> None:
    with pytest.warns(UserWarning, match="'title': its texts almost all differ"):
        ranker = Ranker(members=1, epochs=1, **QUICK).fit(X, Y, qid=QID)
    found = {name: kind.type for name, kind in ranker.features_.items()}
    assert found == {"price": "number", "is_new": "bool", "brand": "category", "hour": "number"}


@pytest.mark.long
def test_a_server_takes_the_columns_by_name(ranker: Ranker, tmp_path: pathlib.Path) -> None:
    ranker.export(tmp_path / "ranker")
    predict = tf.saved_model.load(str(tmp_path / "ranker")).signatures["predict"]
    one = X[QID == 0]
    found = predict(
        price=tf.constant([one["price"]], tf.float32),
        brand=tf.constant([one["brand"]]),
        hour=tf.constant(one["hour"][:1], tf.float32),
        mask=tf.constant([[True]]),
    )
    expected = ranker.predict(one, qid=QID[QID == 0])
    np.testing.assert_allclose(found["scores"].numpy()[0], expected, atol=1e-6)


def test_a_value_that_is_not_of_its_type_is_named(ranker: Ranker) -> None:
    worse = X.assign(price=X["price"].astype(object))
    worse.loc[7, "price"] = "cheap"
    with pytest.raises(InputError, match="X, row 7: 'price' must be a finite number"):
        ranker.predict(worse, qid=QID)


def test_an_array_in_place_of_a_frame_is_refused(ranker: Ranker) -> None:
    with (
        pytest.warns(UserWarning, match="does not have valid feature names"),
        pytest.raises(ValueError, match="`X` must be a frame, as in `fit`"),
    ):
        ranker.predict(X.to_numpy(), qid=QID)
