"""Requests to a server that any client can send: the exported one, and those of the guide."""

import http.client
import importlib.resources
import json
import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tfrank_sel import data
from tfrank_sel.data import letor
from tfrank_sel.data.formats import Columns, Schema
from tfrank_sel.features import Category, Number, Set, Vector
from tfrank_sel.pipelines.export import requests
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "serve.md"
REQUESTS = GUIDE.read_text().partition("## Requests from any language")[2].partition("\n## ")[0]
COMMANDS = {"sh": ["sh", "-c"], "js": ["node", "--input-type=module", "-e"]}
COMMANDS["python"] = [sys.executable, "-c"]


@pytest.fixture(scope="module")
def served(finished):
    """The export of a run, and the address of an endpoint that serves it."""
    output, _ = finished
    with Endpoint([ModelConfig("ranker", output / "serving" / "ranker")]) as endpoint:
        yield output / "export", f"localhost:{endpoint.rest_port}"


@pytest.fixture(scope="module")
def expected(served):
    [query] = letor.read(served[0] / "one_query.txt", 3)
    signature = tf.saved_model.load(str(served[0] / "saved_model")).signatures["predict"]
    features, mask = tf.constant(query.features[None]), tf.constant([[True]])
    return signature(features=features, mask=mask)["scores"].numpy()[0]


@pytest.mark.long
def test_the_exported_request_is_answered_as_it_is(served, expected):
    folder, address = served
    body = (folder / "one_query.rest.json").read_bytes()
    connection = http.client.HTTPConnection(address)
    connection.request("POST", "/v1/models/ranker:predict", body)
    answer = json.loads(connection.getresponse().read())
    np.testing.assert_allclose(answer["outputs"]["scores"][0], expected, rtol=1e-5)


def answered(language, code):
    """The scores that a request prints."""
    command = COMMANDS[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}")
    done = subprocess.run([*command, code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scores = re.search(r"\[\s*(-?\d[-\d.e,\s]*?)\s*\]", done.stdout)[1]
    return [float(x) for x in scores.split(",")]


@pytest.mark.parametrize("language", COMMANDS)
def test_the_guide_s_request_is_answered(served, expected, language):
    [code] = re.findall(rf"```{language}\n(.*?)```", REQUESTS, re.DOTALL)
    folder, address = served
    code = code.replace("runs/1/export", str(folder)).replace("localhost:8501", address)
    found = answered(language, code + "print(scores)" * (language == "python"))
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_requests_that_the_page_shows_are_answered(served, expected):
    folder, address = served
    page = importlib.resources.files("tfrank_sel.serving.rest").joinpath("page.html").read_text()
    [function] = re.findall(r"function requestOf.*?\n}\n", page, re.DOTALL)
    sent = json.dumps(f"http://{address}/v1/models/ranker:predict")
    body = json.dumps((folder / "one_query.rest.json").read_text().replace("\n", ""))
    if shutil.which("node") is None:
        pytest.skip("needs node")
    command = ["node", "-e", f"{function}; console.log(requestOf({sent}, {body}))"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    sh, js, python = shown.strip().split("\n\n")
    js = js.replace("await answer.json()", "JSON.stringify(await answer.json())")
    for language, code in (
        ("sh", sh),
        ("js", js),
        ("python", python),
    ):
        np.testing.assert_allclose(answered(language, code), expected, rtol=1e-5)


def refused(text):
    raise ValueError(f"no JSON: {text}")


def test_a_request_is_valid_json_of_all_types_even_if_a_number_is_missing():
    features = {
        "price": Number(),
        "shape": Vector(size=2),
        "age of user": Number(of="query"),
        "year": Category(dtype="int64"),
        "tags": Set(max_values=2),
    }
    schema = Schema(features, columns=Columns(features=features))
    numbers = np.array([[0.1, 1.0, 2.0, 33.0], [0.2, 3.0, 4.0, 33.0]], np.float32)
    texts = np.array([["7", "a", 'b"\n'], ["", "ü", ""]], object)
    one = data.ItemList("q", np.array([0.0, 1.0]), numbers, ("x", "y"), texts)
    found = json.loads(requests.rest_request(one, schema), parse_constant=refused)
    assert found["signature_name"] == "predict"
    assert found["inputs"] == {
        "mask": [[True, True]],
        "price": [[0.1, 0.2]],
        "shape": [[[1.0, 2.0], [3.0, 4.0]]],
        "ageU_20ofU_20user": [33.0],
        "year": [[7, -(2**63)]],
        "tags": [[["a", 'b"\n'], ["ü", ""]]],
    }
    numbers[0, 0] = np.nan
    found = json.loads(requests.rest_request(one, schema), parse_constant=refused)
    assert found["inputs"]["price"] == [[-3e38, 0.2]]
