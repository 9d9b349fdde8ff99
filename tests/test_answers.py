"""Odd answers of servers end requests to engines, and those of `Ranker`, in one line, in time."""

import contextlib
import copy
import json
import ssl
import time
from concurrent import futures

import grpc
import pytest

from tests import hostile
from tests.hostile import ANSWERS, ELSEWHERE, SLOW, TOKEN, Server, http, redirect
from tests.serving.certificates import certificate
from tfrank_sel import http_client, roads
from tfrank_sel.data.rejections import InputError
from tfrank_sel.serving import protos
from tfrank_sel.serving.client import Ranked, Ranker
from tfrank_sel.serving.deployment import config
from tfrank_sel.serving.deployment.config import SSLConfig
from tfrank_sel.serving.status import Code, ServingError

SHAPE = {"dim": [{"size": "-1"}, {"size": "-1"}, {"size": "1"}]}
INPUTS = {"features": {"dtype": "DT_FLOAT", "tensor_shape": SHAPE}}
METADATA = {"metadata": {"signature_def": {"signature_def": {"predict": {"inputs": INPUTS}}}}}
PATIENCE = 120.0  # seconds
OUTPUTS = {"mask": [[True]], "ranks": [[1]], "doc_ids": [["a"]], "scores": [[0.5]]}


def ranked(url, method):
    with Ranker(url, timeout=PATIENCE) as ranker:
        return ranker.rank([[1.0]], ["a"]) if method == "POST" else ranker.num_features()


# what is asked, the method of the request that gets the odd answer, and the right answers
DOORS = {
    "the inputs of a ranker": (lambda url: ranked(url, "GET"), {"GET": METADATA}),
    "the items of a ranker": (
        lambda url: ranked(url, "POST"),
        {"GET": METADATA, "POST": {"outputs": OUTPUTS}},
    ),
}
engines = None
if roads.exists("engines"):
    from tests.search_engines import test_answers as engines

    DOORS |= engines.DOORS
CASES = [(door, method) for door, (_, right) in DOORS.items() for method in right]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(http_client, "LARGEST", 2**20)
    if engines is not None:
        monkeypatch.setenv(engines.connection.AUTHORIZATION, f"Basic {TOKEN}")
        monkeypatch.setattr("tfrank_sel.search_engines.solr._MODELS", 2**20)


def wait(monkeypatch, seconds):
    """Limits the time of an answer."""
    monkeypatch.setitem(globals(), "PATIENCE", seconds)
    if engines is not None:
        monkeypatch.setattr(engines.connection, "PATIENCE", seconds)


def answering(door, method, answer):
    """Answers as it is right, but for a method."""
    right = DOORS[door][1]
    return lambda asked, path: answer(path) if asked == method else http(right[asked])


def of(given):
    return given if isinstance(given, bytes) else given()


def refused(door, url, most=20.0):
    """The line that a request ends with."""
    start, began = time.thread_time(), time.monotonic()
    with pytest.raises((InputError, ServingError)) as error:
        DOORS[door][0](url)
    assert time.thread_time() - start < 1.0
    assert time.monotonic() - began < most
    line = str(error.value)
    assert line.isprintable(), line
    assert len(line) < 2000
    for secret in ("s3cret@", *([] if "ranker" in door else [TOKEN, "s3cret"])):
        assert secret not in line
    return line


@pytest.mark.sample(4)
@pytest.mark.parametrize(("door", "method"), CASES)
def test_an_odd_answer_is_one_line(door, method, monkeypatch):
    wait(monkeypatch, 5.0)
    for name, given in ANSWERS.items():
        with Server(answering(door, method, lambda _, x=given: of(x))) as server:
            assert refused(door, server.url), name
            assert server.sent < 2**25


@pytest.mark.parametrize(
    "door", sorted(DOORS.keys() & {"a search of OpenSearch", "the inputs of a ranker"})
)
def test_a_slow_answer_ends_in_time(door, monkeypatch):
    wait(monkeypatch, 0.3)
    [method] = DOORS[door][1]

    def line(answer):
        with Server(answering(door, method, lambda _: answer())) as server:
            return refused(door, server.url, most=5.0)

    with futures.ThreadPoolExecutor(len(SLOW)) as pool:
        for given in pool.map(line, SLOW.values()):
            assert "expected the whole answer within 0.3 s" in given


def odd_copies(right, odd, path=()):
    """Copies of JSON in which one value is another."""
    if path:
        yield path, odd
    for key, value in right.items() if isinstance(right, dict) else enumerate(right):
        if isinstance(value, dict | list):
            inner = list(odd_copies(value, odd, (*path, key)))
        else:
            inner = [((*path, key), odd)]
        for place, other in inner:
            made = copy.deepcopy(right)
            made[key] = other
            yield place, made


ODD = [
    None,
    True,
    7,
    -1.5,
    1e999,
    "\x1b[2J",
    "\ud800",
    [],
    [[]],
    [[[0]]],
    {},
    {"b64": 7},
    [None] * 9,
]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("door", "method"), CASES)
def test_a_value_of_another_type_is_one_line_or_of_no_use(door, method, monkeypatch):
    wait(monkeypatch, 20.0)
    ask, right = DOORS[door]
    answers = {}
    with Server(answering(door, method, lambda path: http(answers["now"]))) as server:
        expected = repr_of(answers, right[method], ask, server.url)
        for odd in ODD:
            for place, made in odd_copies(right[method], odd):
                outcome = repr_of(answers, made, ask, server.url)
                assert isinstance(outcome, str), (place, odd)
                assert outcome.isprintable(), (place, odd, outcome)
                if method == "PUT" or door.startswith("a model"):
                    is_same = odd is True or method == "GET" or place[0] == "_shards"
                    assert outcome != expected or is_same, (place, odd, outcome)


def repr_of(answers, answer, ask, url):
    """What is made of an answer, or the line of its error."""
    answers["now"] = answer
    try:
        return repr(ask(url))
    except (InputError, ServingError) as error:
        return str(error)


@pytest.mark.parametrize("door", DOORS)
def test_a_right_answer_is_read_by_one_connection_and_after_a_redirect_of_a_get(door):
    ask, right = DOORS[door]
    moved = []

    def answer(method, path):
        if method == "GET" and not path.startswith("/moved"):
            moved.append(path)
            return redirect(f"/moved{path}", "307 Moved")
        return http(right[method])

    with Server(lambda method, _: http(right[method])) as server:
        expected = ask(server.url)
        assert server.connections == 1
    assert not door.startswith("a model") or expected == ("m-2" if "Solr" in door else "m-1")
    assert door != "the items of a ranker" or expected == [Ranked(1, "a", 0.5)]
    with Server(answer) as server:
        assert repr(ask(server.url)) == repr(expected)
        assert bool(moved) == ("GET" in right)
    compressed = {x: hostile.gzip.compress(json.dumps(y).encode()) for x, y in right.items()}
    with Server(lambda method, _: http(compressed[method], "200 OK", hostile.GZIP)) as server:
        assert repr(ask(server.url)) == repr(expected)


@pytest.mark.parametrize(("door", "method"), CASES)
def test_a_redirect_elsewhere_or_of_an_upload_is_an_error_that_no_server_hears_of(door, method):
    right = {"result": "created", "model_id": "m-1", "acknowledged": True}
    right["responseHeader"] = {"status": 0}
    with Server(lambda *_: http(right)) as other:
        for address in ELSEWHERE.values():
            to = address.format(port="{port}", other=other.port)
            with Server(lambda *_: b"") as server:
                given = redirect(to.format(port=server.port))
                server.answer = answering(door, method, lambda _, x=given: x)
                line = refused(door, server.url)
            assert "redirect" in line or "Invalid" in line or "parse" in line, line
        for status in ("301 Moved", "302 Found", "303 See", "307 Moved", "308 Moved"):
            given = redirect("/moved", status)  # to itself, by GET
            with Server(answering(door, method, lambda _, x=given: x)) as server:
                assert "expected no redirect, but of a GET to the same server" in refused(
                    door, server.url
                )
                to = f"http://127.0.0.1:{other.port}/"
                given = redirect(to, status)
                server.answer = answering(door, method, lambda _, x=given: x)
                assert f"Received: {status[:3]} to {to}" in refused(door, server.url)
        assert other.requests == []


@pytest.mark.parametrize(
    ("status", "header", "tries"),
    [
        ("503 Busy", "X: y", 4),
        ("503 Busy", "Retry-After: 0", 4),
        ("503 Busy", "Retry-After: 2", 1),
        ("429 Much", "Retry-After: 0", 1),
        ("413 Large", "Retry-After: 0", 1),
        ("500 Oops", "Retry-After: 0", 1),
    ],
)
def test_only_a_server_that_is_unavailable_is_asked_again_and_within_the_time(
    status, header, tries
):
    with Server(lambda *_: http(b"busy", status, header)) as server:
        with Ranker(server.url, timeout=1.5) as ranker, pytest.raises(ServingError, match="busy"):
            ranker.num_features()
        assert len(server.requests) == tries
    with Server(lambda *_: http(b"busy", "503 Busy", "Retry-After: 1")) as server:
        began = time.monotonic()
        with Ranker(server.url, timeout=1.2) as ranker, pytest.raises(ServingError, match="busy"):
            ranker.num_features()
        assert time.monotonic() - began < 3.0
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    "url", ["https://admin:s3cret@localhost:9200", "http://admin:s3/cret@localhost"]
)
def test_an_address_that_is_refused_does_not_show_its_password(url):
    with pytest.raises(ValueError, match="must be HOST:PORT or http://HOST:PORT") as error:
        Ranker(url)
    assert "s3" not in str(error.value)


@pytest.mark.parametrize("name", ["a#b", "a/b", "a:b", "a%b", "a?b", "ö ", "a%2Fb"])
def test_a_name_is_one_part_of_a_path(name):
    with Server(lambda method, _: http(DOORS["the items of a ranker"][1][method])) as server:
        with Ranker(server.url, name) as ranker:
            ranker.rank([[1.0]], ["a"])
        paths = [path for _, path, _ in server.requests]
    parts = [http_client.urllib.parse.unquote(x.split("/")[3].rpartition(":")[0]) for x in paths]
    assert [path.count("/") for path in paths] == [4, 3]
    assert parts[1] == name


def test_tls_has_the_same_limits_and_takes_a_pem_with_any_comment(tmp_path):
    cert, key = certificate()
    (tmp_path / "cert").write_text(cert)
    (tmp_path / "key").write_text(key)
    authority = f"# Zertifikat für Köln\n{cert}".encode()
    (tmp_path / "ssl.config").write_text(
        f"server_cert: {cert!r} server_key: {key!r} custom_ca: {authority.decode()!r}",
        encoding="utf-8",
    )
    config.read(tmp_path / "ssl.config", SSLConfig)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert", tmp_path / "key")
    with Server(lambda *_: http(METADATA), context) as server:
        with Ranker(server.url, timeout=20.0, authority=authority) as ranker:
            assert ranker.num_features() == 1
        with (
            Ranker(server.url, timeout=20.0) as ranker,
            pytest.raises(ServingError, match=r"UNAVAILABLE: .*CERTIFICATE_VERIFY_FAILED"),
        ):
            ranker.num_features()
        server.answer = lambda *_: SLOW["a byte at a time"]()
        with (
            Ranker(server.url, timeout=0.5, authority=authority) as ranker,
            pytest.raises(ServingError, match=r"DEADLINE_EXCEEDED: .* within 0.5 s"),
        ):
            ranker.num_features()


def tensors(**changes):
    """The bytes of a `PredictResponse`, and changes of its outputs."""
    response = protos.PredictResponse()
    for name, (dtype, field, value) in {
        "mask": (10, "bool_val", True),
        "ranks": (3, "int_val", 1),
        "doc_ids": (7, "string_val", b"a"),
        "scores": (1, "float_val", 0.5),
        **changes,
    }.items():
        tensor = response.outputs[name]
        tensor.dtype = dtype
        for size in (1, 1):
            tensor.tensor_shape.dim.add(size=size)
        getattr(tensor, field).append(value)
    return response


def of_grpc():
    """The right answers, and others to the request with this name."""
    metadata = protos.MetadataResponse()
    signatures = protos.Signatures()
    declared = signatures.signature_def["predict"].inputs["features"]
    declared.dtype = 1
    for size in (-1, -1, 1):
        declared.tensor_shape.dim.add(size=size)
    metadata.metadata["signature_def"].value = signatures.SerializeToString()
    garbage = protos.MetadataResponse()
    garbage.metadata["signature_def"].value = b"\xff" * 9
    longer, flat = tensors(), tensors()
    longer.outputs["scores"].tensor_shape.dim[1].size = 2
    del flat.outputs["mask"].tensor_shape.dim[:]
    none = protos.PredictResponse()
    for name, tensor in tensors().outputs.items():
        none.outputs[name].dtype = tensor.dtype
        for size in (0, 1):
            none.outputs[name].tensor_shape.dim.add(size=size)
    right = {"GetModelMetadata": metadata, "Predict": tensors()}
    return (
        {name: answer.SerializeToString() for name, answer in right.items()},
        [
            ("GetModelMetadata", b"\xff" * 9),
            ("GetModelMetadata", b""),
            ("GetModelMetadata", garbage.SerializeToString()),
            ("Predict", b"\xff" * 9),
            ("Predict", b""),
            ("Predict", longer.SerializeToString()),
            ("Predict", flat.SerializeToString()),
            ("Predict", none.SerializeToString()),
            ("Predict", tensors(scores=(3, "int_val", 1)).SerializeToString()),
            ("Predict", tensors(scores=(1, "float_val", float("nan"))).SerializeToString()),
        ],
    )


def test_an_odd_answer_by_grpc_is_one_line():
    right, odd = of_grpc()
    answers = dict(right)

    class Handler(grpc.GenericRpcHandler):
        def service(self, details):
            method = details.method.rpartition("/")[2]
            return grpc.unary_unary_rpc_method_handler(lambda *_: answers[method])

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Handler()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with contextlib.ExitStack() as stack:
        stack.callback(server.stop, 0)
        ranker = stack.enter_context(Ranker(f"127.0.0.1:{port}"))
        assert ranker.rank([[1.0]], ["a"]) == [Ranked(1, "a", 0.5)]
        for method, answer in odd:
            answers.update(right, **{method: answer})
            with (
                Ranker(f"127.0.0.1:{port}") as ranker,
                pytest.raises(ServingError, match=rf"^127.0.0.1:{port}: ") as error,
            ):
                ranker.rank([[1.0]], ["a"])
            assert error.value.code in (Code.INTERNAL, Code.FAILED_PRECONDITION)
            assert str(error.value).isprintable()
