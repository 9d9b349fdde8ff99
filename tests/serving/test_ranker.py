import base64
import http.client
import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf
from typer.testing import CliRunner

from tests.serving.certificates import certificate
from tfrank_sel import export
from tfrank_sel.data import elwc, writing
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment import config
from tfrank_sel.serving.deployment.config import SSLConfig
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.engine.model import Model
from tfrank_sel.serving.engine.predict import warm_up
from tfrank_sel.serving.status import Code, ServingError

SPEC = FeatureSpec(num_features=3)
QUERY = """\
2 qid:7 1:0.5 3:1 # docid = first
0 qid:7 1:-2 2:0.25 # docid = second
1 qid:7 2:3 # docid = third
"""


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(2)
    layers = keras.layers
    return keras.Sequential(
        [keras.Input([None, 3]), layers.Dense(8, "relu"), layers.Dense(1), layers.Reshape([-1])]
    )


@pytest.fixture(scope="module")
def base(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranker")
    examples = [
        elwc.serialize(np.ones([size, 3]), SPEC, doc_ids=[b"d"] * size) for size in (0, 1, 5)
    ]
    export.export(model, SPEC, folder / "saved_model", examples=examples)
    export.publish(folder / "saved_model", folder / "ranker", 3)
    return folder / "ranker"


@pytest.fixture(scope="module")
def endpoint(base):
    with Endpoint([ModelConfig("ranker", base)]) as endpoint:
        yield endpoint


@pytest.fixture(scope="module", params=["grpc", "rest"])
def address(endpoint, request):
    if request.param == "grpc":
        return f"127.0.0.1:{endpoint.grpc_port}"
    return f"http://127.0.0.1:{endpoint.rest_port}"


@pytest.fixture(scope="module")
def ranker(address):
    with Ranker(address) as ranker:
        yield ranker


@pytest.mark.long
def test_every_signature_warms_up(model, base):
    loaded = Model(base / "3", 3)

    # of each list, and of all together; an empty one has no item for the two regressions
    assert warm_up(loaded, base / "3") == 4 * 7 - 2
    loaded.close()


def rest_scores(port, features):
    examples = base64.b64encode(elwc.serialize(features, SPEC)).decode()
    bodies = {
        "serving_default": {"instances": [{"b64": examples}]},
        "predict": {"instances": [{"features": features.tolist(), "mask": [True]}]},
    }
    for signature, body in bodies.items():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        text = json.dumps({"signature_name": signature, **body})
        connection.request("POST", "/v1/models/ranker:predict", text)
        [row] = json.loads(connection.getresponse().read())["predictions"]
        yield row["scores"]


@pytest.mark.sample(4)
@pytest.mark.parametrize("size", [1, 2, 100, 5000])
def test_keras_saved_model_grpc_and_rest_agree(model, base, endpoint, ranker, size):
    features = np.random.default_rng(size).normal(size=[size, 3]).astype(np.float32)
    scores = model(features[None])[0].numpy()
    names = [f"d{n}" for n in range(size)]

    ranked = ranker.rank(features, names)

    assert [item.rank for item in ranked] == list(range(1, size + 1))
    by_name = {item.doc_id: item.score for item in ranked}
    np.testing.assert_allclose([by_name[name] for name in names], scores, atol=1e-6)
    assert [item.score for item in ranked] == sorted(by_name.values(), reverse=True)
    assert ranker.rank(features, names, k=1) == ranked[:1]
    saved = tf.saved_model.load(str(base / "3")).signatures["serving_default"]
    examples = tf.constant([elwc.serialize(features, SPEC)])
    np.testing.assert_allclose(saved(examples=examples)["scores"][0], scores, atol=1e-6)
    for received in rest_scores(endpoint.rest_port, features):
        np.testing.assert_allclose(received, scores, atol=1e-6)


def test_an_empty_list_has_no_ranking(ranker):
    assert ranker.rank(np.ones([0, 3]), []) == []


def test_the_number_of_features_is_asked(ranker):
    assert ranker.num_features() == 3


def test_errors_of_the_server_name_it(ranker):
    with pytest.raises(ServingError, match=r"127.0.0.1:.* INVALID_ARGUMENT: .*features") as error:
        ranker.rank(np.ones([1, 2]), ["a"])
    assert error.value.code is Code.INVALID_ARGUMENT
    with pytest.raises(ServingError, match="`features` must be finite"):
        ranker.rank(np.full([1, 3], np.nan), ["a"])


def test_octets_that_tensorflow_cannot_quote_are_the_fault_of_the_client(base):
    loaded = Model(base / "3", 3)
    examples = np.array([writing.field(1, b"\xce\xff")], object)
    with pytest.raises(ServingError, match=r"\\xce") as error:
        loaded.run(loaded.signatures["serving_default"], {"examples": examples}, ["scores"])
    assert error.value.code is Code.INVALID_ARGUMENT
    loaded.close()


def test_rank_prints_the_ranking_of_a_file(tmp_path, address, model):
    file = tmp_path / "query.txt"
    file.write_text(QUERY)
    features = np.array([[0.5, 0, 1], [-2, 0.25, 0], [0, 3, 0]], np.float32)
    scores = model(features[None])[0].numpy()

    result = CliRunner().invoke(app, ["rank", "--file", str(file), "--address", address])

    assert result.exit_code == 0
    lines = [line for line in result.stdout.splitlines() if line.startswith("│")]
    names = np.array(["first", "second", "third"])[np.argsort(-scores)]
    assert [line.split()[3] for line in lines] == names.tolist()
    assert [line.split()[5] for line in lines] == [f"{s:.6g}" for s in np.sort(scores)[::-1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "must be a file with one query. Received: no such file"),
        ("", "an empty file"),
        (QUERY + QUERY.replace("qid:7", "qid:8"), "expected one query. Received: 2"),
        ("1 qid:7 1:x\n", "query.txt:1: a feature must be a finite number"),
        ("1 qid:7 4:1\n", "index in 1..3"),
    ],
)
def test_a_bad_query_is_one_line_and_status_2(tmp_path, endpoint, text, message):
    file = tmp_path / "query.txt"
    if text is not None:
        file.write_text(text)
    address = f"127.0.0.1:{endpoint.grpc_port}"

    result = CliRunner().invoke(app, ["rank", "--file", str(file), "--address", address])

    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--address", "127.0.0.1:1"], "127.0.0.1:1: UNAVAILABLE"),
        (["--address", "http://127.0.0.1:1"], "127.0.0.1:1: UNAVAILABLE"),
        (["--model-name", "foo"], "NOT_FOUND: Servable not found for request: Latest(foo)"),
    ],
)
def test_a_server_that_cannot_answer_is_status_2(tmp_path, endpoint, arguments, message):
    file = tmp_path / "query.txt"
    file.write_text(QUERY)
    address = ["--address", f"127.0.0.1:{endpoint.grpc_port}"]

    result = CliRunner().invoke(app, ["rank", "--file", str(file), *address, *arguments])

    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert message in result.stderr


class Scripted(http.server.BaseHTTPRequestHandler):
    """Gives answers, one after the other."""

    answers: ClassVar[list[tuple[int, bytes]]] = []

    def do_GET(self):
        status, body = self.answers.pop(0)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        # only an unavailable server is asked again
        ([(503, b"{}"), (503, b"busy"), (400, b'{"error": "words"}')], "INVALID_ARGUMENT: words"),
        ([(401, b"Jwt is missing\n")], "UNAUTHENTICATED: Jwt is missing$"),
        ([(200, b"<html>")], "INTERNAL: An answer must be JSON. .*Invalid value"),
    ],
)
def test_errors_of_a_server_and_of_a_proxy_are_told(answers, message):
    Scripted.answers[:] = answers
    server = http.server.HTTPServer(("127.0.0.1", 0), Scripted)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with (
        Ranker(f"http://127.0.0.1:{server.server_port}") as ranker,
        pytest.raises(ServingError, match=message),
    ):
        ranker.num_features()
    server.shutdown()

    assert Scripted.answers == []


def test_grpc_may_be_encrypted(base, tmp_path):
    cert, key = certificate()
    (tmp_path / "ssl.config").write_text(f"server_cert: {cert!r} server_key: {key!r}")
    encryption = config.credentials(config.read(tmp_path / "ssl.config", SSLConfig))
    with Endpoint([ModelConfig("ranker", base)], tls=encryption) as endpoint:
        address = f"localhost:{endpoint.grpc_port}"
        with Ranker(address, authority=cert.encode()) as ranker:
            assert ranker.num_features() == 3
        with Ranker(address) as ranker, pytest.raises(ServingError, match="UNAVAILABLE"):
            ranker.num_features()
        other = certificate()[0].encode()
        with (
            Ranker(address, authority=other) as ranker,
            pytest.raises(ServingError, match="UNAVAILABLE"),
        ):
            ranker.num_features()


def test_a_bad_tls_configuration_is_told(tmp_path):
    with pytest.raises(ServingError, match="none: cannot be read: No such file"):
        config.read(tmp_path / "none", SSLConfig)
    (tmp_path / "ssl.config").write_text("x")
    with pytest.raises(ServingError, match="must be an SSLConfig in text format"):
        config.read(tmp_path / "ssl.config", SSLConfig)
    (tmp_path / "ssl.config").write_text("client_verify: true")
    with pytest.raises(ServingError, match="custom_ca: must hold the authority"):
        config.read(tmp_path / "ssl.config", SSLConfig)


def test_a_bad_start_is_one_line_and_status_2(tmp_path, base, endpoint):
    free = ["--rest-port", "0", "--grpc-port", "0"]
    cases = [
        (tmp_path / "none", free, "must be a folder of versions. Received: no such folder"),
        (tmp_path, free, "must hold a version: a folder whose name is an integer"),
        (base, [*free, "--grpc-port", str(endpoint.grpc_port)], "must be free to listen on"),
        (base, [*free, "--rest-port", str(endpoint.rest_port)], "must be free to listen on"),
    ]
    for path, arguments, message in cases:
        result = CliRunner().invoke(app, ["serve", "--model-base-path", str(path), *arguments])
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert message in result.stderr


def test_serve_answers_until_it_is_told_to_stop(base, tmp_path):
    command = [sys.executable, "-m", "tfrank_sel.serving", "serve", "--model-base-path", str(base)]
    options = ["--rest-port", "0", "--grpc-port", "0"]
    (tmp_path / "session").write_text("intra_op_parallelism_threads: 1")
    options += ["--tensorflow-session-config-file", str(tmp_path / "session")]
    server = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        ready = server.stdout.readline()
        assert ready.startswith("Serving ranker: gRPC 127.0.0.1:")
        with Ranker(ready.split()[3].rstrip(",")) as ranker:
            assert len(ranker.rank(np.ones([2, 3]), ["a", "b"])) == 2
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(timeout=20) == 0
        assert server.stderr.read() == ""
    finally:
        server.kill()
