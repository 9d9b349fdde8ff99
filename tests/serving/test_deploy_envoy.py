"""The proxy of a deployment: Envoy itself in front of a server."""

import gzip
import http.client
import re

import grpc
import numpy as np
import pytest
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
)

from tests.serving.deployments import read
from tests.serving.gateways import PREDICT, token
from tests.serving.half_plus import Client
from tfrank_sel.serving import monitoring

X = np.array([2.0, 4.0], np.float32)
BODY = b'{"instances": [2.0, 4.0]}'


def test_predictions_pass_by_both_protocols(gateway):
    request = Client(0).request(name="ranker", x=X)
    by_grpc = gateway.stub.Predict(request, metadata=gateway.metadata)

    assert list(by_grpc.outputs["y"].float_val) == [4.0, 5.0]
    assert gateway.rest("POST", PREDICT, BODY)[0] == 200


def test_envoy_speaks_tls_only(gateway):
    connection = http.client.HTTPConnection("localhost", gateway.port)
    connection.request("GET", "/v1/models/ranker")
    with pytest.raises((http.client.HTTPException, OSError)):
        connection.getresponse()


@pytest.mark.parametrize("authorization", [None, "Bearer x", token("another"), token(seconds=-600)])
def test_every_request_needs_a_token(gateway, authorization):
    status, _ = gateway.rest("POST", PREDICT, BODY, authorization=authorization)
    assert status in (401, 403)
    metadata = [("authorization", authorization)] if authorization else []
    with pytest.raises(grpc.RpcError) as error:
        gateway.stub.Predict(Client(0).request(name="ranker", x=X), metadata=metadata)
    assert error.value.code().name in ("UNAUTHENTICATED", "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("method", "path", "passes"),
    [
        ("POST", PREDICT, True),
        ("POST", "/v1/models/ranker/versions/1:predict", True),
        ("POST", "/v1/models/ranker/labels/stable:classify", False),
        ("POST", "/v1/models/ranker:regress", False),
        ("GET", "/v1/models/ranker/versions/1/metadata", True),
        ("GET", "/v1/models/ranker", True),
        ("GET", "/v1/models/rankers:predict", False),
        ("GET", monitoring.PATH, False),
        ("GET", "/", False),
        ("GET", "/v1/models/ranker%2f..%2f..", False),
    ],
)
def test_only_predictions_and_the_state_of_the_model_pass_as_rest(gateway, method, path, passes):
    body = BODY if method == "POST" else None

    assert gateway.rest(method, path, body)[1].startswith(b"{") == passes


def test_only_the_prediction_service_passes_as_grpc(gateway):
    stub = model_service_pb2_grpc.ModelServiceStub(gateway.channel)
    request = get_model_status_pb2.GetModelStatusRequest()

    with pytest.raises(grpc.RpcError) as error:
        stub.GetModelStatus(request, metadata=gateway.metadata)
    assert error.value.code().name == "UNIMPLEMENTED"


def test_the_metrics_of_envoy_are_open_and_its_administration_is_not(gateway):
    def status(path):
        connection = http.client.HTTPConnection("localhost", gateway.metrics_port)
        connection.request("GET", path)
        return connection.getresponse().status

    assert (status("/stats/prometheus"), status("/config_dump")) == (200, 404)


def test_replicas_of_the_gateway_share_the_requests_that_run_at_a_time(gateway, deployment):
    connection = http.client.HTTPConnection("localhost", gateway.admin_port)
    connection.request("GET", "/clusters")
    text = connection.getresponse().read().decode()
    replicas = read(deployment, "gateway/deployment.yaml")["spec"]["replicas"]
    clusters = read(deployment, "envoy.yaml")["static_resources"]["clusters"]

    for cluster in clusters[1:]:  # the first is the administration
        for name, limit in cluster["circuit_breakers"]["thresholds"][0].items():
            set_to = re.search(rf"{cluster['name']}::default_priority::{name}::(\d+)", text)
            assert int(set_to.group(1)) * replicas == limit


def test_requests_for_a_label_are_counted_apart(gateway):
    for label in ("stable", "stable", "canary"):
        gateway.rest("POST", f"/v1/models/ranker/labels/{label}:predict", BODY)
    connection = http.client.HTTPConnection("localhost", gateway.metrics_port)
    connection.request("GET", "/stats/prometheus")
    text = connection.getresponse().read().decode()

    # the names and labels of the guide to operation
    found = "envoy_vhost_vcluster_upstream_rq"
    for label, code, count in (("stable", 2, 2), ("canary", 4, 1)):
        of = f'envoy_virtual_cluster="{label}",envoy_virtual_host="ranker"'
        assert f'{found}_xx{{envoy_response_code_class="{code}",{of}}} {count}\n' in text
        assert f'{found}_time_bucket{{{of},le="+Inf"}}' in text


def test_large_and_compressed_requests_are_bounded(gateway):
    large = Client(0).request(name="ranker", x=np.zeros(2_000_000, np.float32))
    with pytest.raises(grpc.RpcError, match="larger than max"):  # the answer of 8 MB, to the client
        gateway.stub.Predict(large, metadata=gateway.metadata)
    with pytest.raises(grpc.RpcError, match="compressed"):
        gateway.stub.Predict(large, metadata=gateway.metadata, compression=grpc.Compression.Gzip)

    assert gateway.rest("POST", PREDICT, BODY + b" " * 5_000_000)[0] == 413
    zipped = {"content-encoding": "gzip"}
    assert gateway.rest("POST", PREDICT, gzip.compress(BODY), **zipped)[0] == 200
    bomb = gzip.compress(b"[" * 20_000_000)
    assert gateway.rest("POST", PREDICT, bomb, **zipped)[0] in (400, 413)
    before = gateway.served()
    for encoding, body in (("gzip, gzip", gzip.compress(bomb)), ("x-gzip", bomb)):
        status, answer = gateway.rest("POST", PREDICT, body, **{"content-encoding": encoding})
        assert (status, b"Content-Encoding" in answer) == (400, True)
    assert gateway.served() == before
