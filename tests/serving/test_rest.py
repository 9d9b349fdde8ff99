import gzip
import http.client
import json
import re
import shutil
import socket

import grpc
import pytest

from tests import refusals
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint, host_and_port
from tfrank_sel.serving.status import ServingError

PREDICT = "/v1/models/half/versions/1:predict"


@pytest.fixture(scope="module")
def call(endpoint):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port, timeout=20)

    def answer(method, path, body=None, headers=None):
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), response

    yield answer
    connection.close()


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ('{"instances": [2, 4.0]}', {"predictions": [3.0, 4.0]}),
        ('{"instances": [[2.0], [4.0]]}', {"predictions": [[3.0], [4.0]]}),
        ('{"instances": [{"x": 2.0}, {"x": 4.0}]}', {"predictions": [3.0, 4.0]}),
        ('{"inputs": 4.0}', {"outputs": 4.0}),
        ('{"inputs": {"x": [2.0], "ignored": [[]]}}', {"outputs": [3.0]}),
        ('{"inputs": []}', {"outputs": []}),
        ('{"signature_name": "scalar_out", "inputs": [1, 2]}', {"outputs": 3.0}),
        ('{"instances": [1e300]}', {"predictions": [float("inf")]}),
        ('{"instances": [2.0], "instances": [9.0]} and more', {"predictions": [3.0]}),
        (
            '{"signature_name": "multi", "instances": [{"a": [1, 2], "b": {"b64": "/wA="}}]}',
            {
                "predictions": [
                    {
                        "sum": 3.0,
                        "twice": [2.0, 4.0],
                        "echo": "\udcff\0",
                        "echo_bytes": {"b64": "/wA="},
                    }
                ]
            },
        ),
        (
            '{"signature_name": "types", "inputs": {"i32": [1], "i64": [9007199254740993], '
            '"u8": [255], "f64": [0.1], "flag": [true]}}',
            {
                "outputs": {
                    "i32": [1],
                    "i64": [2**53 + 1],
                    "u8": [255],
                    "f64": [0.1],
                    "flag": [True],
                }
            },
        ),
        (
            '{"signature_name": "with_default", "inputs": {"x": [1.5], "k": 3}}',
            {"outputs": [4.5]},
        ),
        ('{"instances": [2.0], "deep": ' + "[" * 900 + "]" * 900 + "}", None),
    ],
)
def test_predict_reads_rows_and_columns(call, body, answer):
    status, text, response = call("POST", PREDICT, body)

    assert (status, response.getheader("content-type")) == (200, "application/json")
    received = json.loads(text.decode("utf-8", "surrogateescape"))
    assert received == (answer or {"predictions": [3.0]})


def test_what_is_not_finite_is_written_as_it_is_read(call):
    _, text, _ = call("POST", PREDICT, '{"instances": [NaN, Infinity, -Infinity]}')
    assert b"[NaN, Infinity, -Infinity]" in text


def test_bodies_may_be_compressed(call):
    body, headers = gzip.compress(b'{"instances": [2.0]}'), {"Content-Encoding": "gzip"}

    assert call("POST", PREDICT, body, headers)[0] == 200
    for bad in (body[:-4], b"plain"):
        assert call("POST", PREDICT, bad, headers)[0] == 400


def test_a_body_may_have_several_members_of_gzip(call):
    body, headers = b'{"instances": [2.0, 4.0]}', {"Content-Encoding": "gzip"}
    for size in (1, 3, len(body)):
        parts = [gzip.compress(body[i : i + size]) for i in range(0, len(body), size)]
        for after in (b"", b"\0" * 9, b"\n", b"\r\n \t"):
            sent = b"".join(parts) + after
            status, text, _ = call("POST", PREDICT, sent, headers)
            assert (status, json.loads(text)) == (200, {"predictions": [3.0, 4.0]})
    for bad, told in (
        (b"".join(parts) + b"garbage", "Body is not gzip"),
        (b"".join(parts) + parts[0][:9], "must be whole gzip"),
        (gzip.compress(b"") * 100_000, "at most 256 members"),
        (gzip.compress(b" " * 2**21) * 3, "at most 4194304 bytes"),
    ):
        status, text, _ = call("POST", PREDICT, bad, headers)
        assert (status, told in json.loads(text)["error"]) == (
            413 if "at most 4" in told else 400,
            True,
        )


@pytest.mark.parametrize(
    ("version", "hosts", "status"),
    [("1.1", 1, 200), ("1.1", 0, 400), ("1.1", 2, 400), ("1.0", 0, 200), ("1.0", 2, 400)],
)
@pytest.mark.parametrize("path", ["/v1/models/half", "/", "/healthz"])
def test_a_request_names_one_host(endpoint, version, hosts, status, path):
    head = f"GET {path} HTTP/{version}\r\n" + "host: h\r\n" * hosts + "connection: close\r\n\r\n"
    with socket.create_connection(("127.0.0.1", endpoint.rest_port), timeout=20) as connection:
        connection.sendall(head.encode())
        answer = connection.makefile("rb").read()
    assert answer.split()[1] == str(status).encode()
    assert (b"one header `Host`" in answer) == (status == 400)


def test_health_is_that_of_all_models(call, half, tmp_path):
    assert call("GET", "/healthz")[:2] == (200, b"ok")
    shutil.copytree(half / "1", tmp_path / "b" / "1")
    models = [ModelConfig("a", half), ModelConfig("b", tmp_path / "b")]
    with Endpoint(models, poll_seconds=60.0) as endpoint:
        connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port, timeout=20)

        def health():
            connection.request("GET", "/healthz")
            response = connection.getresponse()
            return response.status, response.read()

        assert health() == (200, b"ok")
        (tmp_path / "b" / "1").rename(tmp_path / "away")
        endpoint._core._models["b"].poll()
        assert health() == (503, b"b")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::"])
def test_an_endpoint_listens_on_addresses_of_both_kinds(half, host):
    if ":" in host:
        try:
            socket.create_server(("::1", 0), family=socket.AF_INET6).close()
        except OSError:
            pytest.skip("this machine has no IPv6")
    asked = "127.0.0.1" if host == "127.0.0.1" else "::1"
    with Endpoint([ModelConfig("half", half)], host=host) as endpoint:
        connection = http.client.HTTPConnection(asked, endpoint.rest_port, timeout=20)
        connection.request("GET", "/healthz")
        assert connection.getresponse().status == 200
        with grpc.insecure_channel(host_and_port(asked, endpoint.grpc_port)) as channel:
            grpc.channel_ready_future(channel).result(20)
        with pytest.raises(ServingError, match=re.escape(host_and_port(host, endpoint.rest_port))):
            Endpoint([ModelConfig("half", half)], host=host, rest_port=endpoint.rest_port).start()


NESTED = [
    ('{"instances": ' + "[" * 60_000, "JSON Parse error: Lists or objects are nested"),
    ('{"inputs": ' + "[" * 70 + "]" * 70 + "}", "at most 32 axes"),
]


@pytest.mark.parametrize(("body", "message"), [*refusals.of("bodies"), *NESTED])
def test_a_bad_body_is_told_why(call, body, message):
    status, text, _ = call("POST", PREDICT, body)

    assert status == 400
    assert message in json.loads(text)["error"]


@pytest.mark.parametrize(("method", "path", "status", "message"), refusals.of("paths"))
def test_a_bad_path_is_told_why(call, method, path, status, message):
    received, text, _ = call(method, path, "{}")

    assert received == status
    assert message in json.loads(text)["error"]


@pytest.mark.parametrize(
    ("method", "digits", "rest", "status", "message"),
    [
        ("GET", "9", "", 400, "Failed to convert version: 99999"),
        ("GET", "9", "/metadata", 400, "Failed to convert version: 99999"),
        ("POST", "9", ":predict", 400, "Failed to convert version: 99999"),
        ("GET", "0", "7", 404, "Could not find version 7 of model half"),
    ],
)
def test_a_version_may_have_thousands_of_digits(call, method, digits, rest, status, message):
    path = f"/v1/models/half/versions/{digits * 5000}{rest}"
    received, text, _ = call(method, path, '{"instances": [1.0]}')

    assert received == status
    assert message in json.loads(text)["error"]


def test_status_and_metadata_are_told(call):
    for path in ("/v1/models/half", "/V1/MODELS/h%61lf", "/v1/models/half/labels/any"):
        versions = json.loads(call("GET", path)[1])["model_version_status"]
        assert [version["version"] for version in versions] == ["2", "1"]
        assert versions[0] == {
            "version": "2",
            "state": "AVAILABLE",
            "status": {"error_code": "OK", "error_message": ""},
        }
    metadata = json.loads(call("GET", "/v1/models/half/metadata")[1])
    assert metadata["model_spec"] == {"name": "half", "signature_name": "", "version": "2"}
    signatures = metadata["metadata"]["signature_def"]["signature_def"]
    assert signatures["multi"]["inputs"]["a"]["dtype"] == "DT_FLOAT"
    assert signatures["serving_default"]["inputs"]["x"]["tensor_shape"]["unknown_rank"] is True


def test_other_paths_and_methods(call):
    assert call("GET", "/other")[0] == 404
    assert call("OPTIONS", PREDICT)[0] == 400


@pytest.mark.parametrize("text", ["/wA=", "/wA", "/w\\nA=\\n"])
def test_padding_and_line_breaks_of_base64_are_optional(call, text):
    inputs = f'{{"a": [[1, 2]], "b": [{{"b64": "{text}"}}]}}'
    status, answer, _ = call("POST", PREDICT, f'{{"signature_name": "multi", "inputs": {inputs}}}')

    assert status == 200, answer
    assert json.loads(answer.decode("utf-8", "surrogateescape"))["outputs"]["echo_bytes"] == [
        {"b64": "/wA="}
    ]


def test_lists_and_values_are_counted_before_a_body_is_parsed(call):
    for body in ("[" + "{}," * 2**16 + "0]", "[" + "0," * (2**18 + 1) + "0]"):
        status, text, _ = call("POST", PREDICT, '{"instances": ' + body + "}")
        assert (status, b"Too many" in text) == (400, True), text
