"""Named features of any type: from dicts and frames, over both protocols, to the model's scores."""

import datetime
import decimal
import json

import keras
import numpy as np
import pandas as pd
import polars as pl
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tfrank_sel import export, models
from tfrank_sel.data import InputError, frames
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.features import Bool, Category, Hash, Number, Set, Timestamp, Vector
from tfrank_sel.serving import manifest
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.status import Code, ServingError

TYPES = {
    "price": Number(),
    "stock": Number(missing="refuse"),
    "is_new": Bool(),
    "brand": Category(min_count=1),
    "year": Category(min_count=1, dtype="int64"),
    "tags": Set(min_count=1, max_values=3),
    "seller": Hash(buckets=7, dtype="int64"),
    "embedding": Vector(size=2),
    "published_at": Timestamp(since="shown_at", parts=True),
    "shown_at": Timestamp(of="query"),
    "country": Category(min_count=1, of="query"),
    "age": Number(of="query"),
}
VOCABULARIES = {
    "brand": ["acme", "bolt"],
    "year": ["2024", "2025"],
    "tags": ["red", "wide"],
    "country": ["de"],
}
ITEM = {
    "price": 2.5,
    "stock": 3,
    "is_new": True,
    "brand": "acme",
    "year": 2025,
    "tags": ["wide", "red"],
    "seller": 2**62 + 1,
    "embedding": [0.25, -3.0],
    "published_at": datetime.datetime(2026, 1, 1, 13, 30, tzinfo=datetime.UTC),
}
QUERY = {"shown_at": datetime.datetime(2026, 2, 1), "country": "de", "age": 33}
# a value of each type that the model tells from ITEM's, and None
OTHERS = {
    "price": 99.0,
    "is_new": False,
    "brand": "bolt",
    "year": 2024,
    "tags": ["red"],
    "seller": 6,
    "embedding": [7.0, 1.0],
    "published_at": datetime.datetime(2025, 12, 1),
}


def trained(types, vocabularies, names):
    keras.utils.set_random_seed(5)
    columns = [x for name, feature in types.items() for x in feature.columns(name)]
    ones = [1.0] * len(columns)
    preparation = models.Preparation(
        [0.1] * len(columns), ones, features=types, vocabularies=vocabularies, missing=names
    )
    return models.Prepared(
        preparation, models.Perceptron([16], embeddings=preparation.embeddings)
    )


def scores_of(model, rows, query=QUERY):
    """The model's own scores, of rows as a table to train on holds them."""
    columns = {name: [row.get(name) for row in rows] for name in ITEM}
    columns |= {name: [query.get(name)] * len(rows) for name in QUERY}
    frame = {"q": ["q"] * len(rows), "y": [0] * len(rows), **columns}
    [one] = frames.lists(frame, query="q", label="y", features=TYPES)
    mask = tf.ones([1, len(rows)], tf.bool)
    inputs = {"features": tf.constant(one.features[None]), "mask": mask}
    return model({**inputs, "texts": tf.constant(one.texts[None])}).numpy()[0]


@pytest.fixture(scope="module")
def model():
    model = trained(TYPES, VOCABULARIES, ["price", "is_new", "embedding", "published_at", "age"])
    scores_of(model, [ITEM])
    return model


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("named")
    export.export(model, TYPES, folder / "saved_model")
    export.publish(folder / "saved_model", folder / "ranker", 1)
    packed = keras.Sequential(
        [keras.Input([None, 3]), keras.layers.Dense(1), keras.layers.Reshape([-1])]
    )
    export.export(packed, FeatureSpec(num_features=3), folder / "packed_model")
    export.publish(folder / "packed_model", folder / "packed", 1)
    return folder


@pytest.fixture(scope="module")
def endpoint(saved):
    served = [ModelConfig(name, saved / name) for name in ("ranker", "packed")]
    with Endpoint(served) as endpoint:
        yield endpoint


@pytest.fixture(scope="module", params=["grpc", "rest"])
def address(endpoint, request):
    if request.param == "grpc":
        return f"127.0.0.1:{endpoint.grpc_port}"
    return f"http://127.0.0.1:{endpoint.rest_port}"


@pytest.fixture(scope="module")
def ranker(address, saved):
    with Ranker(address, manifest=saved / "saved_model") as ranker:
        yield ranker


def in_order(ranked):
    return [item.score for item in sorted(ranked, key=lambda item: int(item.doc_id))]


def test_a_request_scores_as_the_model_does_each_value_and_each_missing_one(model, ranker):
    rows = [ITEM]
    for name, other in OTHERS.items():
        without = {key: value for key, value in ITEM.items() if key != name}
        rows += [{**ITEM, name: other}, {**ITEM, name: None}, without]
    rows += [{**ITEM, "brand": "unseen"}, {**ITEM, "tags": []}, {**ITEM, "price": np.nan}]
    expected = scores_of(model, rows)

    ranked = ranker.rank(rows, query=QUERY)

    np.testing.assert_allclose(in_order(ranked), expected, rtol=0, atol=1e-6)
    assert [item.score for item in ranked] == sorted(expected.tolist(), reverse=True)
    assert [item.rank for item in ranked] == list(range(1, len(rows) + 1))
    assert ranker.rank(rows, query=QUERY, k=2) == ranked[:2]
    # every value counts, and so does that it is missing
    first = expected[0]
    for place, name in enumerate(OTHERS):
        other, none, left_out = expected[1 + 3 * place : 4 + 3 * place]
        assert len({first, other, none}) == 3, name
        assert none == left_out


@pytest.mark.parametrize("name", QUERY)
def test_a_feature_of_the_query_may_be_missing(model, ranker, name):
    without = {key: value for key, value in QUERY.items() if key != name}
    expected = scores_of(model, [ITEM], without)
    assert expected != scores_of(model, [ITEM])
    for query in (without, {**QUERY, name: None}):
        [item] = ranker.rank([ITEM], query=query)
        np.testing.assert_allclose(item.score, expected[0], rtol=0, atol=1e-6)


def test_values_of_numpy_and_other_types_are_what_python_s_are(ranker):
    like = {
        "price": decimal.Decimal("2.5"),
        "stock": np.float32(3),
        "is_new": np.bool_(True),
        "brand": np.str_("acme"),
        "year": np.int32(2025),
        "tags": ("wide", "red"),
        "seller": np.int64(2**62 + 1),
        "embedding": np.array([0.25, -3.0]),
        "published_at": "2026-01-01T13:30:00Z",
    }
    seconds = {**QUERY, "shown_at": int(datetime.datetime(2026, 2, 1, 0, 0).timestamp())}
    seconds["shown_at"] = 1769904000
    assert ranker.rank([like], query=seconds) == ranker.rank([ITEM], query=QUERY)


def test_frames_and_columns_are_what_dicts_are(ranker):
    items = [{"doc_id": "x", **ITEM}, {"doc_id": "y", **ITEM, "brand": None, "price": None}]
    expected = ranker.rank(items, query=QUERY)
    assert {item.doc_id for item in expected} == {"x", "y"}
    columns = {name: [item[name] for item in items] for name in items[0]}

    for table in (columns, pd.DataFrame(items), pl.DataFrame(items)):
        assert ranker.rank(table, query=QUERY) == expected
    # as a table to train on holds the query's
    with_query = [{**item, **QUERY} for item in items]
    assert ranker.rank(pd.DataFrame(with_query)) == expected


def test_what_a_model_takes_is_told_by_its_signature(model, address):
    plain = {"published_at": 1767274200, "is_new": 1.0}
    query = {**QUERY, "shown_at": 1769904000}
    with Ranker(address) as ranker:
        [item] = ranker.rank([{**ITEM, **plain}], ["a"], query=query)
        np.testing.assert_allclose(item.score, scores_of(model, [ITEM]), rtol=0, atol=1e-6)
        with pytest.raises(InputError, match="Did you mean 'brand'"):
            ranker.rank([{"brant": "acme"}])
        with pytest.raises(ServingError, match="INVALID_ARGUMENT: .*stock"):
            ranker.rank([{"price": 1.0}])
        assert ranker.rank([]) == []


REFUSED = [
    ({"pric": 1}, {}, "expected in the items only .* Did you mean 'price'.* Received: 'pric'"),
    ({"xyzzy": 1}, {}, "expected in the items only price, stock.*doc_id. Received: 'xyzzy'"),
    ({}, {"brand": "acme"}, "expected in the query only shown_at, country, age. .*'brand'"),
    ({"country": "de"}, QUERY, r"expected each feature once. Received twice: \['country'\]"),
    ({"stock": None}, {}, "item 1: 'stock' must be a finite number. Received: nothing"),
    ({"price": "cheap"}, {}, "item 1: 'price' must be .*number.* Received: 'cheap'"),
    ({"price": [1.0]}, {}, r"item 1: 'price' must be of type number.* Received: \[1.0\]"),
    ({"price": np.inf}, {}, "item 1: 'price' must be a finite number. Received: inf"),
    ({"price": 10**400}, {}, "item 1: 'price' must be of type number.*Received: 10000"),
    ({"is_new": 2}, {}, "item 1: 'is_new' must be .*bool.* Received: 2"),
    ({"brand": ["acme"]}, {}, "item 1: 'brand' must be of type category.* Received: "),
    ({"brand": object()}, {}, "item 1: 'brand' must be of type category.* Received: <object"),
    ({"year": 2025.5}, {}, "item 1: 'year' must be an integer. Received: 2025.5"),
    ({"seller": 2**63}, {}, "item 1: 'seller' must be .* Received: 9223372036854775808"),
    ({"embedding": [1.0]}, {}, r"item 1: 'embedding' must be 2 finite numbers. .*\[1.0\]"),
    ({"embedding": [1.0, None]}, {}, "item 1: 'embedding' must be 2 finite numbers"),
    ({"published_at": "today"}, {}, "item 1: 'published_at' must be .*time.* Received: 'today'"),
    # milliseconds
    ({"published_at": 1767274200000}, {}, "item 1: 'published_at' must be .*time.*1767274200000"),
]


@pytest.mark.parametrize(("change", "query", "message"), REFUSED)
def test_what_does_not_fit_is_refused(ranker, change, query, message):
    with pytest.raises(InputError, match=message):
        ranker.rank([ITEM, {**ITEM, **change}], query=query)
