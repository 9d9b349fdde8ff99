"""The recorded behaviour of TensorFlow Serving, case by case, against the endpoint."""

import gzip
import http.client
import json
import re

import grpc
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    predict_pb2,
    regression_pb2,
)

from tests.golden.vectors import contents
from tests.serving.half_plus import save
from tests.serving.tiny_rank import TinyRank
from tfrank_sel.serving.deployment.model_config import ModelConfig, Specific
from tfrank_sel.serving.endpoint import Endpoint

GOLDEN = contents("serving_conformance.json")
MESSAGES = {
    "Predict": (predict_pb2.PredictRequest, predict_pb2.PredictResponse),
    "Regress": (regression_pb2.RegressionRequest, regression_pb2.RegressionResponse),
    "GetModelMetadata": (
        get_model_metadata_pb2.GetModelMetadataRequest,
        get_model_metadata_pb2.GetModelMetadataResponse,
    ),
    "GetModelStatus": (
        get_model_status_pb2.GetModelStatusRequest,
        get_model_status_pb2.GetModelStatusResponse,
    ),
    "HandleReloadConfigRequest": (
        model_management_pb2.ReloadConfigRequest,
        model_management_pb2.ReloadConfigResponse,
    ),
}


# what rankers do not use, and the endpoint does not serve
LEFT_OUT = re.compile(r":(classify|regress)$|/(Classify|MultiInference)$", re.I)
# shapes that a signature does not declare, which TensorFlow Serving runs
REFUSED = ["P57"]


def cases(transport):
    return [
        pytest.param(c, id=c["id"])
        for c in GOLDEN[transport]
        if c["id"] not in REFUSED
        and not LEFT_OUT.search(c.get("path") or c["rpc"])
        and "Origin" not in c.get("headers", {})
    ]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("conformance")
    save(folder / "half_plus_two", 1, bias=2)
    save(folder / "half_plus_two", 2, bias=3)
    save(folder / "half_plus_three", "00000123", bias=3)
    module = TinyRank()
    names = ("serving_default", "predict", "rank_top_k", "regress")
    signatures = {name: getattr(module, name) for name in names}
    tf.saved_model.save(module, str(folder / "tiny_rank" / "1"), signatures)
    return folder


@pytest.fixture(scope="module")
def server(models):
    configs = [
        ModelConfig("half_plus_two", models / "half_plus_two", Specific([1, 2])),
        ModelConfig("half_plus_three", models / "half_plus_three"),
        ModelConfig("tiny_rank", models / "tiny_rank"),
    ]
    with Endpoint(configs) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def channel(server):
    options = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=options) as channel:
        yield channel


def same(wanted, got, *, subset=False):
    if isinstance(wanted, dict) and isinstance(got, dict):
        if not (wanted.keys() <= got.keys() if subset else wanted.keys() == got.keys()):
            return False
        return all(same(wanted[key], got[key], subset=subset) for key in wanted)
    if isinstance(wanted, list) and isinstance(got, list):
        return len(wanted) == len(got) and all(map(same, wanted, got))
    if type(wanted) in (int, float) and type(got) in (int, float):
        return wanted == pytest.approx(got, rel=1e-6, abs=1e-9, nan_ok=True)
    return type(wanted) is type(got) and wanted == got


@pytest.mark.parametrize("case", cases("rest"))
def test_rest(server, case):
    body = (case.get("body") or "").encode()
    if case.get("gzip_body"):
        body = gzip.compress(body)
    connection = http.client.HTTPConnection("127.0.0.1", server.rest_port, timeout=60)
    connection.request(case["method"], case["path"], body, case.get("headers", {}))
    response = connection.getresponse()
    text = response.read().decode("utf8", "replace")
    wanted = case["expect"]
    if response.status in wanted.get("status_also_accepted", []):
        return
    assert response.status == wanted["status"], text
    for name, value in wanted.get("headers", {}).items():
        assert response.getheader(name, "").split(";")[0] == value
    if "json" in wanted:
        assert same(wanted["json"], json.loads(text)), text
    if "json_subset" in wanted:
        assert same(wanted["json_subset"], json.loads(text), subset=True), text
    if "error_regex" in wanted:
        document = json.loads(text)
        assert list(document) == ["error"]
        assert re.search(wanted["error_regex"], document["error"])
    if "body_regex" in wanted:
        assert re.search(wanted["body_regex"], text)


@pytest.mark.parametrize("case", cases("grpc"))
def test_grpc(channel, models, case):
    request_type, response_type = MESSAGES[case["rpc"].split("/")[1]]
    text = case["request_textproto"]
    if text.startswith("@generated"):  # a tensor larger than gRPC's default limit
        request = request_type()
        request.model_spec.name, request.model_spec.version.value = "half_plus_two", 1
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(tf.zeros([2_000_000])))
    else:
        request = text_format.Parse(text.replace("${MODELS}", str(models)), request_type())
    call = channel.unary_unary(
        f"/{case['rpc']}", request_type.SerializeToString, response_type.FromString
    )
    wanted, response, details = case["expect"], None, ""
    timeout = 60.0
    if "deadline" in case.get("requires", ""):
        request.model_spec.signature_name, timeout = "slow", 0.3
    try:
        response, code = call(request, timeout=timeout), "OK"
    except grpc.RpcError as error:
        code, details = error.code().name, error.details()
    assert code == wanted["code"], details
    assert re.search(wanted.get("details_regex", ""), details)
    if "response_textproto" in wanted:
        assert response == text_format.Parse(wanted["response_textproto"], response_type())
    for check in wanted.get("checks", []):  # Python expressions over the fields of the response
        fields = {field.name: getattr(response, field.name) for field in response.DESCRIPTOR.fields}
        assert eval(check, {}, fields | {"len": len})
