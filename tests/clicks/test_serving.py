"""Two versions of a model, whose rankings the endpoint mixes, and the test of their teams."""

import hashlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import urllib.request

import grpc
import keras
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from typer.testing import CliRunner

from tfrank_sel import clicks, export
from tfrank_sel.clicks.__main__ import app as clicks_app
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.serving.__main__ import app
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.deployment.model_config import ModelConfig, Specific
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.engine import interleaving, tensor_protos
from tfrank_sel.serving.engine.interleaving import Interleaving
from tfrank_sel.serving.monitoring import PATH
from tfrank_sel.serving.status import Code, ServingError

IDS = [f"d{i}" for i in range(7)]
FEATURES = np.stack([np.arange(7.0), -np.arange(7.0)], axis=1).astype(np.float32)


def save(folder, version, weights):
    model = keras.Sequential(
        [keras.Input([None, 2]), keras.layers.Dense(1, use_bias=False), keras.layers.Reshape([-1])]
    )
    model.layers[0].set_weights([np.array(weights, np.float32)[:, np.newaxis]])
    export.export(model, FeatureSpec(num_features=2), folder / f"saved_{version}")
    export.publish(folder / f"saved_{version}", folder / "ranker", version)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interleaved")
    for version, weights in {2: [2.0, 2.0], 3: [1.0, 0.0], 4: [0.0, 1.0]}.items():
        save(folder, version, weights)
    return folder / "ranker"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "teams.jsonl"


@pytest.fixture
def endpoint(base, log):
    model = ModelConfig("ranker", base, Specific([3, 4]))
    with Endpoint([model], interleaving=Interleaving("ranker", [3, 4], log)) as endpoint:
        yield endpoint


@pytest.fixture(params=["grpc", "rest"])
def ranker(endpoint, request):
    address = {
        "grpc": f"127.0.0.1:{endpoint.grpc_port}",
        "rest": f"http://127.0.0.1:{endpoint.rest_port}",
    }
    with Ranker(address[request.param]) as ranker:
        yield ranker


def write_config(path, versions=(3, 4), **models):
    policy = "".join(f"versions: {version} " for version in versions)
    path.write_text(
        "model_config_list {"
        + "".join(
            f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" '
            f"model_version_policy {{ specific {{ {policy} }} }} }}"
            for name, base in models.items()
        )
        + "}"
    )


def lines(log):
    return [json.loads(line) for line in log.read_text().splitlines()]


@pytest.mark.sample(2)
def test_a_session_gets_a_team_draft_of_both_versions_which_is_logged(ranker, log):
    for session in ("s1", "s2", "s3", "s1"):
        ranked = ranker.rank(FEATURES, IDS, session=session)
        line = lines(log)[-1]
        assert line["session"] == session
        assert line["items"] == [item.doc_id for item in ranked]
        assert [item.rank for item in ranked] == list(range(1, 8))
        assert np.all(np.diff([item.score for item in ranked]) < 0.0)
        rest = {team: list(order) for team, order in enumerate((IDS[::-1], IDS))}
        for item, team in zip(line["items"], line["teams"], strict=True):
            assert item == rest[team][0]  # the best one of the team that is left
            for order in rest.values():
                order.remove(item)
        pairs = np.reshape(line["teams"][:6], [3, 2])
        np.testing.assert_array_equal(pairs.sum(axis=1), 1)  # each picks once in a round
    written = lines(log)
    assert written[0] == written[3]
    assert written[0]["teams"] != written[1]["teams"] or written[0] != written[2]


def test_the_best_of_longer_lists_are_those_of_the_whole_draft(ranker, log):
    whole = ranker.rank(FEATURES, IDS, session="a")
    best = ranker.rank(FEATURES, IDS, session="a", k=3)
    assert [item.doc_id for item in best] == [item.doc_id for item in whole][:3]
    assert lines(log)[1]["teams"] == lines(log)[0]["teams"][:3]


def test_optimised_lists_and_their_credits_are_those_of_python(base, log):
    model = ModelConfig("ranker", base, Specific([3, 4]))
    mixed = Interleaving("ranker", [3, 4], log, "optimised")
    with Endpoint([model], interleaving=mixed) as endpoint:
        for address in (f"{endpoint.grpc_port}", f"http://127.0.0.1:{endpoint.rest_port}"):
            with Ranker(address if "http" in address else f"127.0.0.1:{address}") as ranker:
                for session in map(str, range(6)):
                    ranked = ranker.rank(FEATURES, IDS, session=session)
                    line = lines(log)[-1]
                    assert line["items"] == [item.doc_id for item in ranked]
                    seed = int.from_bytes(hashlib.blake2b(session.encode(), digest_size=8).digest())
                    items, credits = clicks.optimised(*FEATURES.T, seed=seed)
                    assert line["items"] == [IDS[i] for i in items]
                    np.testing.assert_allclose(line["credits"], credits, rtol=1e-12)
    written = lines(log)
    assert written[:6] == written[6:]
    assert len({tuple(line["items"]) for line in written}) > 1


@pytest.mark.sample(2)
@pytest.mark.parametrize(  # equal scores of version 2 keep the order
    ("left", "missing", "order"), [([2], 3, IDS), ([2, 3], 4, IDS[::-1])]
)
def test_one_of_several_models_is_interleaved_as_long_as_it_has_both_versions(
    base, log, tmp_path, caplog, left, missing, order
):
    config = tmp_path / "models.config"
    write_config(config, ranker=base, other=base)
    mixed = Interleaving("other", [3, 4], log)
    with (
        Endpoint(
            model_config.read(config),
            poll_seconds=0.05,
            config_file=config,
            config_poll_seconds=0.05,
            interleaving=mixed,
        ) as endpoint,
        Ranker(f"127.0.0.1:{endpoint.grpc_port}", "other") as other,
        Ranker(f"http://127.0.0.1:{endpoint.rest_port}", "ranker") as ranker,
    ):
        assert [x.doc_id for x in ranker.rank(FEATURES, IDS, session="s")] == IDS  # the latest
        assert lines(log) == []
        both = {x.doc_id for s in "abcdefgh" for x in other.rank(FEATURES, IDS, session=s)[:1]}
        assert both == {IDS[0], IDS[-1]}
        assert len(lines(log)) == 8
        write_config(config, left, ranker=base, other=base)
        deadline, found = time.monotonic() + 100, None
        while f"Version {missing} of other must be served" not in caplog.text or found != order:
            assert time.monotonic() < deadline
            time.sleep(0.05)
            found = [x.doc_id for x in other.rank(FEATURES, IDS, session="s")]
        before = len(lines(log))
        assert [x.doc_id for x in other.rank(FEATURES, IDS, session="t")] == order
        assert len(lines(log)) == before


@pytest.mark.sample(2)
def test_without_a_session_the_first_version_answers(ranker, log):
    assert [item.doc_id for item in ranker.rank(FEATURES, IDS)] == IDS[::-1]
    assert log.read_text() == ""


def predicted(endpoint, signature, inputs, session, version=None):
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = "ranker", signature
    if version:
        request.model_spec.version.value = version
    for name, array in inputs.items():
        tensor_protos.to_proto(array, request.inputs[name])
    with grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        outputs = stub.Predict(request, metadata=[("x-session", session)]).outputs
    return {name: tensor_protos.to_array(name, outputs[name]) for name in outputs}


def test_dense_requests_have_scores_of_the_mixed_order_by_both_protocols(endpoint, log):
    mask = np.array([[True] * 4 + [False] * 3])
    inputs = {"features": FEATURES[np.newaxis], "mask": mask}
    found = predicted(endpoint, "predict", inputs, "x")
    [line] = lines(log)
    order = np.argsort(-found["scores"][0])
    assert [str(i) for i in order[:4]] == line["items"]
    np.testing.assert_array_equal(np.sort(found["scores"][0, :4]), [1, 2, 3, 4])
    np.testing.assert_array_equal(found["mask"], mask)
    assert found["scores"][0, 4] == np.finfo(np.float32).min
    body = {name: array.tolist() for name, array in inputs.items()}
    body = json.dumps({"signature_name": "predict", "inputs": body})
    rest = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port)
    rest.request("POST", "/v1/models/ranker:predict", body, {"X-Session": "x"})
    answer = json.loads(rest.getresponse().read())["outputs"]
    np.testing.assert_array_equal(np.float32(answer["scores"]), found["scores"])
    named = predicted(endpoint, "predict", inputs, "x", version=4)
    np.testing.assert_array_equal(named["scores"][0, :4], -np.arange(4.0))
    assert len(lines(log)) == 2


@pytest.mark.sample(4)
def test_what_cannot_be_mixed_is_refused(endpoint, ranker, log):
    two = {"features": np.stack([FEATURES] * 2), "mask": np.array([[True]])}
    with pytest.raises(grpc.RpcError, match=r"must have one list. Received: scores of shape .2, 7"):
        predicted(endpoint, "predict", two, "x")
    pair = {**two, "features": FEATURES[np.newaxis], "pair": np.array([[0, 1]], np.int32)}
    with pytest.raises(grpc.RpcError, match="explain must give `scores` in both versions"):
        predicted(endpoint, "explain", pair, "x")
    with pytest.raises(ServingError, match="`doc_ids` must differ"):
        ranker.rank(FEATURES, ["same"] * 7, session="x")
    assert log.read_text() == ""


def test_a_log_that_cannot_be_written_fails_no_request(base, caplog):
    model = ModelConfig("ranker", base, Specific([3, 4]))
    with (
        Endpoint([model], interleaving=Interleaving("ranker", [3, 4], "/dev/full")) as endpoint,
        Ranker(f"127.0.0.1:{endpoint.grpc_port}") as ranker,
    ):
        for session in "ab":
            assert len(ranker.rank(FEATURES, IDS, session=session)) == 7
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{endpoint.rest_port}{PATH}").read()
    assert caplog.text.count("cannot write /dev/full: [Errno 28]") == 1
    assert b':lost_list_count{model_name="ranker",status="fail"} 2' in metrics


@pytest.mark.sample(2)
def test_a_log_that_is_moved_away_is_made_again(ranker, log):
    for number in range(3):
        ranker.rank(FEATURES, IDS, session=f"s{number}")
        log.rename(f"{log}.{number}")
    kept = [pathlib.Path(f"{log}.{number}").read_text(encoding="utf-8") for number in range(3)]
    assert [json.loads(line)["session"] for line in kept] == ["s0", "s1", "s2"]


LOGGED = ("a", "!", "a b", "x" * 256, '"\\', "{}")
REFUSED = (" a", "a ", "\x7f", "x" * 257, "Zoë", "日本", "a\nb", "a\tb", "a\x00")


def test_a_line_that_was_torn_spoils_no_other(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"session": "s1", "ite')
    for _ in range(2):
        Interleaving("ranker", (1, 2), log).mix([[0, 1], [1, 0]])
    torn, *lines = log.read_text().splitlines()
    assert torn == '{"session": "s1", "ite'
    assert [sorted(json.loads(line)["items"]) for line in lines] == [["0", "1"]] * 2


@pytest.mark.sample(2)
def test_a_name_of_a_session_is_logged_as_it_is_or_refused(ranker, log):
    for name in LOGGED:
        ranker.rank(FEATURES, IDS, session=name)
    for name in REFUSED:
        with pytest.raises(ValueError, match="`session` must have 1 to 256 printable"):
            ranker.rank(FEATURES, IDS, session=name)
    assert [line["session"] for line in lines(log)] == list(LOGGED)


@pytest.mark.parametrize("name", ["x" * 257, "Zo\u00eb", "a\tb"])
def test_other_clients_are_refused_alike(endpoint, log, name):
    """As far as their protocol carries the name: gRPC refuses what is not ASCII itself."""
    body = json.dumps({"signature_name": "predict", "instances": FEATURES[np.newaxis].tolist()})
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port)
    connection.request("POST", "/v1/models/ranker:predict", body, {"x-session": name.encode()})
    answer = connection.getresponse()
    assert (answer.status, b"printable characters of ASCII" in answer.read()) == (400, True)
    if name == "x" * 257:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "ranker"
        channel = grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}")
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        with pytest.raises(grpc.RpcError, match="printable characters of ASCII") as found:
            stub.Predict(request, metadata=[("x-session", name)])
        assert found.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert log.read_text() == ""


def test_a_malformed_example_is_the_fault_of_the_client(endpoint):
    with Ranker(f"http://127.0.0.1:{endpoint.rest_port}") as ranker:
        for example in (b"\xff\xff", b"\x0a\x01", bytes(9)):
            inputs = {"examples": np.array([example], np.object_)}
            with pytest.raises(ServingError) as found:
                ranker._transport.predict("serving_default", inputs, {"scores": 1})
            assert found.value.code == Code.INVALID_ARGUMENT


def test_a_bad_start_is_one_line_and_status_2(base, tmp_path):
    serve = ["serve", "--model-base-path", str(base), "--rest-port", "0", "--grpc-port", "0"]
    log = ["--interleave-log", str(tmp_path / "log")]
    write_config(tmp_path / "models.config", ranker=base, other=base)
    config = ["serve", "--model-config-file", str(tmp_path / "models.config")]
    for arguments, message in [
        ([*serve, "--interleave", "3", *log], "--interleave must be two versions, such as 3,4"),
        ([*serve, "--interleave", "3,3", *log], "Received: 3,3"),
        ([*serve, "--interleave", "3,b", *log], "Received: 3,b"),
        ([*serve, "--interleave", "3,9", *log], "Version 9 of ranker must be served"),
        ([*serve, "--interleave", "3,4", "--interleave-log", str(tmp_path)], "directory"),
        ([*serve, "--interleave", "other:3,4", *log], "must name a served model: ranker:3,4"),
        ([*config, "--interleave", "3,4", *log], "model: ranker:3,4, other:3,4. Received: 3,4"),
        ([*config, "--interleave", "other:2,4", *log], "Version 2 of other must be served"),
    ]:
        result = CliRunner().invoke(app, arguments)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1), result.output
        assert message in result.stderr


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        ["--model-base-path", "{base}", "--interleave", "3,4"],
        pytest.param(
            ["--model-config-file", "{config}", "--interleave", "ranker:3,4"]
            + ["--interleave-method", "optimised"],
            marks=pytest.mark.long,  # the tests above have both methods and both ways to a model
        ),
    ],
)
def test_a_better_version_wins_from_the_command_line(base, tmp_path, options):
    write_config(tmp_path / "models.config", ranker=base, other=base)
    places = {"base": base, "config": tmp_path / "models.config"}
    command = [sys.executable, "-m", "tfrank_sel.serving", "serve"]
    command += [option.format(**places) for option in options]
    command += ["--rest-port", "0", "--grpc-port", "0"]
    server = subprocess.Popen(
        [*command, "--interleave-log", str(tmp_path / "teams.jsonl")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    clicked = {"session": [], "item": []}
    try:
        ready = server.stdout.readline()
        random = np.random.default_rng(0)
        with Ranker(re.search(r"gRPC ([\w.:]+)", ready)[1]) as ranker:
            for session in range(60):
                shown = ranker.rank(FEATURES, IDS, session=f"s{session}")
                for item in shown:  # users like the items of low numbers, as version 4 does
                    if random.random() < 1.0 / (1 + int(item.doc_id[1:])) / item.rank:
                        clicked["session"].append(f"s{session}")
                        clicked["item"].append(item.doc_id)
        os.kill(server.pid, signal.SIGTERM)
        assert server.wait(timeout=20) == 0
    finally:
        server.kill()
    parquet.write_table(pa.table(clicked), tmp_path / "clicks.parquet")
    arguments = ["interleaved", str(tmp_path / "teams.jsonl"), "--clicks"]
    done = CliRunner().invoke(clicks_app, [*arguments, str(tmp_path / "clicks.parquet")])
    found = re.search(r"won by 0: (\d+), by 1: (\d+), by none: (\d+)", done.output)
    first, second, none = map(int, found.groups())
    assert first + second + none == 60
    assert second > 2 * first
    if "optimised" not in options:
        p_value = clicks.sign_test([1] * first + [0] * second, [0] * first + [1] * second)
        assert f"p-value: {p_value:.4g}" in done.output
    assert float(re.search("p-value: (\\S+)", done.output)[1]) < 0.01


def test_doc_ids_are_bytes_to_the_last_zero(tmp_path):
    ids = np.array([[b"a\0", b"\7\0\0", b"\xff"]], np.object_)
    scores = np.array([[3.0, 2.0, 1.0]], np.float32)
    mixing = Interleaving("ranker", (1, 2), tmp_path / "log.jsonl")
    mixed = interleaving._mix_scores([scores, ids], [scores, ids], mixing)
    assert mixed["doc_ids"].tolist() == ids.tolist()
    assert lines(tmp_path / "log.jsonl")[0]["items"] == ["a\0", "\7\0\0", "\\xff"]
