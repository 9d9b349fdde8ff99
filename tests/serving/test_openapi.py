"""The description of the API is true of requests and answers."""

import http.client
import json

import jsonschema
import pytest
import tensorflow as tf

from tests.serving import named
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint


def asked(endpoint, path, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port)
    connection.request("GET" if body is None else "POST", path, body and json.dumps(body))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def schemas(endpoint, model):
    """The schemas of a request of a model and of its answer."""
    status, document = asked(endpoint, "/openapi.json")
    assert (status, document["openapi"]) == (200, "3.1.0")
    operation = document["paths"][f"/v1/models/{model}:predict"]["post"]
    parts = operation["requestBody"], operation["responses"]["200"]
    return [x["content"]["application/json"]["schema"] for x in parts]


def test_each_path_is_answered(named_endpoint):
    _, document = asked(named_endpoint, "/openapi.json")
    paths = [path for path, operations in document["paths"].items() if "get" in operations]
    assert len(paths) == 2 + 2 * 4
    for path in paths:
        connection = http.client.HTTPConnection("127.0.0.1", named_endpoint.rest_port)
        connection.request("GET", path)
        assert connection.getresponse().status == 200, path


def test_a_model_without_signatures_has_no_prediction(half, tmp_path):
    tf.saved_model.save(tf.Module(), str(tmp_path / "bare" / "1"))
    models = [ModelConfig("bare", tmp_path / "bare"), ModelConfig("half", half)]
    with Endpoint(models) as endpoint:
        status, document = asked(endpoint, "/openapi.json")
    assert status == 200
    assert {x for x in document["paths"] if ":predict" in x} == {"/v1/models/half:predict"}
    assert "/v1/models/bare/metadata" in document["paths"]


BODY = {
    "signature_name": "predict",
    "inputs": {
        "brand": [["acme", ""]],
        "price": [[1.5, 2]],
        "sizes": [[[1, 2], [3.5, 4]]],
        "country": ["de"],
        "mask": [[True, True]],
    },
}


def test_requests_and_answers_are_as_described(named_endpoint):
    request, answer = schemas(named_endpoint, "lookups")
    jsonschema.validate(BODY, request)
    status, found = asked(named_endpoint, "/v1/models/lookups:predict", BODY)
    assert status == 200, found
    jsonschema.validate(found, answer)


@pytest.mark.parametrize(
    "wrong",
    [{"price": [1.5, 2]}, {"price": [["x", "2"]]}, {"sizes": [[[1], [3]]]}, {"mask": [[1, 1]]}],
    ids=str,
)
def test_what_the_description_excludes_is_refused(named_endpoint, wrong):
    request, _ = schemas(named_endpoint, "lookups")
    body = {**BODY, "inputs": {**BODY["inputs"], **wrong}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(body, request)
    assert asked(named_endpoint, "/v1/models/lookups:predict", body)[0] == 400


def test_every_type_of_a_tensor_is_described(endpoint):
    request, answer = schemas(endpoint, "half")
    titles = {x["title"]: x["properties"]["inputs"] for x in request["oneOf"]}
    types = titles["types"]["properties"]
    assert {name: x["items"]["type"] for name, x in types.items()} == {
        "i32": "integer",
        "i64": "integer",
        "u8": "integer",
        "f64": "number",
        "flag": "boolean",
    }
    jsonschema.validate({"outputs": [2.5]}, answer)


def test_names_that_no_identifier_can_be_are_those_of_the_signature(named_endpoint):
    request, _ = schemas(named_endpoint, "odd")
    [predict] = [x for x in request["oneOf"] if x["title"] == "predict"]
    names = predict["properties"]["inputs"]["required"]
    assert "unitU_20price" in names
    assert len(names) == 1 + len(named.ODD_TYPES)
