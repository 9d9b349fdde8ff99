"""Rows of a table in JSON: what the endpoint reads beside the tensors of TensorFlow Serving."""

import datetime
import http.client
import json

import numpy as np
import pytest

from tests.serving import named
from tfrank_sel.serving.client import Ranker

AT = "2026-01-01T13:30:00Z"
ROWS = [
    {**named.ITEM, "published_at": AT},
    {**dict.fromkeys(named.ITEM), "stock": 4, "brand": 7, "is_new": False},
]
QUERY = {**named.QUERY, "shown_at": "2026-02-01", "age": None}


def inputs(rows, query):
    columns = {name: [[row[name] for row in rows]] for name in rows[0]}
    return {**columns, **{name: [x] for name, x in query.items()}, "mask": [[True]]}


def answer(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/models/ranker:predict", json.dumps(body))
    return json.loads(connection.getresponse().read())


def scores(port, sent):
    answered = answer(port, {"signature_name": "predict", "inputs": sent})
    assert "outputs" in answered, answered
    return np.ravel(answered["outputs"]["scores"])


@pytest.fixture(scope="module")
def expected(named_endpoint, named_model):
    address = f"127.0.0.1:{named_endpoint.grpc_port}"
    at = {"published_at": datetime.datetime.fromisoformat(AT)}
    query = {**QUERY, "shown_at": datetime.datetime(2026, 2, 1)}
    with Ranker(address, manifest=named_model / "saved_model") as ranker:
        rows = [{**ROWS[0], **at}, {**ROWS[1], "brand": "7"}]
        ranked = ranker.rank(rows, query=query)
    return [x.score for x in sorted(ranked, key=lambda x: x.doc_id)]


def test_rows_of_any_type_are_scored_as_the_client_does(named_endpoint, expected):
    found = scores(named_endpoint.rest_port, inputs(ROWS, QUERY))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_stand_ins_for_missing_values_are_numbers_for_any_server(named_endpoint, expected):
    at, shown = 1767274200, 1769904000  # seconds since 1970
    missing = {
        "price": -3e38,
        "is_new": 0.0,
        "brand": "7",
        "year": -(2**63),
        "seller": -(2**63),
        "tags": ["", "", ""],
        "embedding": [-3e38] * 2,
        "published_at": -(2**63),
        "stock": 4,
    }
    whole = {**named.ITEM, "is_new": 1.0, "tags": ["wide", "red", ""], "published_at": at}
    query = {"shown_at": shown, "country": "de", "age": -3e38}

    found = scores(named_endpoint.rest_port, inputs([whole, missing], query))

    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("price", "cheap"),
        ("price", 1e39),
        ("stock", None),
        ("year", 2.5),
        ("is_new", 2),
        ("embedding", [1.0]),
        ("published_at", "soon"),
        ("brand", {"a": 1}),
    ],
)
def test_an_error_names_the_item_and_the_feature(named_endpoint, name, value):
    sent = inputs([ROWS[0], {**ROWS[1], name: value}], QUERY)
    error = answer(named_endpoint.rest_port, {"signature_name": "predict", "inputs": sent})["error"]
    assert error.startswith(f"request, item 1: '{name}' must be "), error


def test_an_error_names_the_list_and_columns_of_other_lengths(named_endpoint):
    port, sent = named_endpoint.rest_port, inputs(ROWS, QUERY)
    twice = {name: x if name == "mask" else x * 2 for name, x in sent.items()}
    twice["price"] = [[2.5, None], [2.5, "cheap"]]
    error = answer(port, {"signature_name": "predict", "inputs": twice})["error"]
    assert error.startswith("list 1: request, item 1: ")
    short = {**sent, "price": [[2.5]]}
    error = answer(port, {"signature_name": "predict", "inputs": short})["error"]
    assert "'price': 1" in error
    del sent["price"]
    error = answer(port, {"signature_name": "predict", "inputs": sent})["error"]
    assert error == "Missing named input: price in 'inputs' object."


def test_whole_lists_need_no_mask_and_an_unknown_name_is_told(named_endpoint):
    port, sent = named_endpoint.rest_port, inputs(ROWS, QUERY)
    wanted = answer(port, {"signature_name": "predict", "inputs": sent})
    whole = {name: x for name, x in sent.items() if name != "mask"}
    assert answer(port, {"signature_name": "predict", "inputs": whole}) == wanted
    [row] = [{name: x[0] for name, x in whole.items()}]
    [of_row] = answer(port, {"signature_name": "predict", "instances": [row]})["predictions"]
    assert of_row["scores"] == wanted["outputs"]["scores"][0]
    masks = {**whole, "masks": [[True, False]]}
    error = answer(port, {"signature_name": "predict", "inputs": masks})["error"]
    assert error.endswith("'masks' is unknown. Did you mean 'mask'?")
    whole["prise"] = whole.pop("price")
    error = answer(port, {"signature_name": "predict", "inputs": whole})["error"]
    assert error.endswith("price in 'inputs' object. 'prise' is unknown. Did you mean 'price'?")
