"""The proxy of a deployment: Envoy itself in front of a server."""

import base64
import contextlib
import gzip
import hashlib
import hmac
import http.client
import json
import shutil
import socket
import ssl
import subprocess
import time

import grpc
import numpy as np
import pytest
from tensorflow.core.framework import types_pb2
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    prediction_service_pb2_grpc,
    regression_pb2,
)

from benchmarks.robustness.attacks import predict_request
from tests.serving.certificates import certificate
from tests.serving.deployments import tool
from tests.serving.half_plus import Client
from tfrank_sel.serving import monitoring

X = np.array([2.0, 4.0], np.float32)
PREDICT = "/v1/models/ranker:predict"
BODY = b'{"instances": [2.0, 4.0]}'
SECRET = b"a secret of 32 bytes for the test"


def encoded(content):
    return base64.urlsafe_b64encode(content).rstrip(b"=")


def token(audience="ranker", seconds=60):
    claims = {"iss": "https://issuer.example", "aud": audience, "exp": time.time() + seconds}
    parts = {"alg": "HS256", "typ": "JWT"}, {**claims, "exp": int(claims["exp"])}
    signed = b".".join(encoded(json.dumps(part).encode()) for part in parts)
    signature = hmac.new(SECRET, signed, hashlib.sha256).digest()
    return "Bearer " + (signed + b"." + encoded(signature)).decode()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Gateway:
    """Clients of a running Envoy."""

    def __init__(self, port, metrics_port, authority, server):
        self.port, self.metrics_port, self.server = port, metrics_port, server
        self.context = ssl.create_default_context(cadata=authority)
        credentials = grpc.ssl_channel_credentials(authority.encode())
        self.channel = grpc.secure_channel(f"localhost:{port}", credentials)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)
        self.metadata = [("authorization", token())]

    def rest(self, method, path, body=None, **headers):
        headers = {"authorization": token(), **headers}
        connection = http.client.HTTPSConnection("localhost", self.port, context=self.context)
        with contextlib.closing(connection):
            connection.request(method, path, body, {key: x for key, x in headers.items() if x})
            answer = connection.getresponse()
            return answer.status, answer.read()

    def served(self):
        """The requests that passed to the server."""
        connection = http.client.HTTPConnection(*self.server)
        connection.request("GET", monitoring.PATH)
        text = connection.getresponse().read().decode()
        return [line for line in text.splitlines() if "request_count{" in line]


@pytest.fixture(scope="module")
def gateway(deployment, deployed_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("envoy")
    authority, key = certificate()
    keys = [{"kty": "oct", "alg": "HS256", "k": encoded(SECRET).decode()}]
    (folder / "tls.crt").write_text(authority)
    (folder / "tls.key").write_text(key)
    (folder / "jwks.json").write_text(json.dumps({"keys": keys}))
    shutil.copy(deployment / "bounds.lua", folder)
    https, admin, metrics = free_port(), free_port(), free_port()
    text = (deployment / "envoy.yaml").read_text()
    for old, new in {
        "/run/secrets/": f"{folder}/",
        "/etc/envoy/": f"{folder}/",
        "port_value: 8443": f"port_value: {https}",
        "port_value: 9901": f"port_value: {admin}",
        "port_value: 9902": f"port_value: {metrics}",
        "port_value: 8500": f"port_value: {deployed_server.grpc_port}",
        "port_value: 8501": f"port_value: {deployed_server.rest_port}",
        "address: ranker,": "address: 127.0.0.1,",
    }.items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / "envoy.yaml").write_text(text)
    log = (folder / "log").open("w")
    options = ["--config-path", str(folder / "envoy.yaml"), "--concurrency", "1"]
    command = [tool("envoy"), *options, "--base-id", str(https)]
    with subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as envoy:
        found = Gateway(https, metrics, authority, ("127.0.0.1", deployed_server.rest_port))
        try:
            for _ in range(100):
                assert envoy.poll() is None, (folder / "log").read_text()
                with contextlib.suppress(OSError):
                    if found.rest("GET", "/v1/models/ranker")[0] == 200:
                        break
                time.sleep(0.1)
            yield found
        finally:
            envoy.terminate()


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
        ("POST", "/v1/models/ranker/labels/stable:classify", True),
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


def test_requests_for_a_label_are_counted_apart(gateway):
    for label in ("stable", "stable", "canary"):
        gateway.rest("POST", f"/v1/models/ranker/labels/{label}:predict", BODY)
    connection = http.client.HTTPConnection("localhost", gateway.metrics_port)
    connection.request("GET", "/stats/prometheus")
    text = connection.getresponse().read().decode()

    # the names and labels of the dashboard's panels
    found = "envoy_vhost_vcluster_upstream_rq"
    for label, code, count in (("stable", 2, 2), ("canary", 4, 1)):
        of = f'envoy_virtual_cluster="{label}",envoy_virtual_host="ranker"'
        assert f'{found}_xx{{envoy_response_code_class="{code}",{of}}} {count}\n' in text
        assert f'{found}_time_bucket{{{of},le="+Inf"}}' in text


def packed(number, content):
    return predict_request(1, values=bytes([number << 3 | 2]) + length(content) + content)


def length(content):
    size, octets = len(content), bytearray()
    while size > 127:
        octets.append(size & 127 | 128)
        size >>= 7
    return bytes([*octets, size])


def tensor(content):
    """A request with these bytes as its tensor."""
    entry = b"\x0a\x01x\x12" + length(content) + content
    return b"\x12" + length(entry) + entry


STRING = b"\x42\x80\x80\x40" + bytes(2**20)  # string_val: 1 MiB


@pytest.mark.parametrize(
    ("request_bytes", "why"),
    [
        (predict_request(100_000_000), "Too many elements: 100000000"),
        (predict_request(2**40, 2**40), "Too many elements"),
        (predict_request(2_000_000, 2), "Too many elements: 4000000"),
        (predict_request(2_000_000) + predict_request(2_000_000), "Too many elements: 4000000"),
        (predict_request(2**64 - 1), "Too many elements"),
        (tensor(b"\x12\x05\x12\x03\x08\xe8\x07" * 3), "Too many elements: 1000000000"),
        (predict_request(100_000, dtype=types_pb2.DT_STRING, values=STRING), "repeated strings"),
        (tensor(b"\x12\x80\x89\x7a" + b"\x12\x00" * 1_000_000), "Too many fields"),
        (packed(10, bytes(5_000_000)), "bytes of integers"),
        (b"\xff garbage", "must be protobuf"),
        (b"\x12\x7f", "must be whole"),
        (b"\x0b" * 8, "groups"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else "",
)
def test_requests_that_cost_more_memory_than_their_bytes_do_not_pass(gateway, request_bytes, why):
    before = gateway.served()
    call = gateway.channel.unary_unary("/tensorflow.serving.PredictionService/Predict")

    with pytest.raises(grpc.RpcError, match=why) as error:
        call(request_bytes, metadata=gateway.metadata)
    assert error.value.code().name == "INVALID_ARGUMENT"
    assert gateway.served() == before


@pytest.mark.parametrize(
    ("lists", "why"),
    [
        ({"x": [2.0] * 3}, None),
        ({"x": [2.0], "s": [b""] * 600_000}, "Too many fields"),
        ({"x": [2.0], "i": [0] * 5_000_000}, "bytes of integers"),
    ],
    ids=["good", "strings", "integers"],
)
def test_the_values_of_examples_are_counted(gateway, lists, why):
    request = regression_pb2.RegressionRequest()
    request.model_spec.name = "ranker"
    request.model_spec.signature_name = "regress_x_to_y"
    for x in lists.pop("x"):
        feature = request.input.example_list.examples.add().features.feature
        feature["x"].float_list.value.append(x)
        feature["s"].bytes_list.value.extend(lists.get("s", []))
        feature["i"].int64_list.value.extend(lists.get("i", []))

    if why is None:
        answer = gateway.stub.Regress(request, metadata=gateway.metadata)
        assert [found.value for found in answer.result.regressions] == [4.0] * 3
    else:
        with pytest.raises(grpc.RpcError, match=why):
            gateway.stub.Regress(request, metadata=gateway.metadata)


def test_more_examples_than_the_fields_that_are_accepted_do_not_pass(gateway):
    call = gateway.channel.unary_unary("/tensorflow.serving.PredictionService/Classify")
    inner = b"\x0a\x00" * 600_000
    content = b"\x0a" + length(inner) + inner

    with pytest.raises(grpc.RpcError, match="Too many fields"):
        call(b"\x12" + length(content) + content, metadata=gateway.metadata)


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
