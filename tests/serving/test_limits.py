import asyncio
import contextlib
import gzip
import http.client
import json
import socket
import time
from concurrent import futures

import grpc
import numpy as np
import pytest

from benchmarks.robustness import attacks
from tests.serving.half_plus import Client
from tfrank_sel.serving.admission import Admission
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint
from tfrank_sel.serving.options import Limits
from tfrank_sel.serving.status import Code, ServingError

PREDICT = "/v1/models/half:predict"
BODY = b'{"instances": [2.0]}'


@pytest.fixture(scope="module")
def endpoint(half):
    limits = Limits(request_bytes=8000, header_bytes=8192, send_seconds=0.3)
    with Endpoint([ModelConfig("half", half)], limits=limits) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def narrow(half):
    """An endpoint for few requests at a time, which waits for slow clients."""
    limits = Limits(requests=2, receiving=3)
    with Endpoint([ModelConfig("half", half)], limits=limits) as endpoint:
        yield endpoint


def post(endpoint, body, headers=None, path=PREDICT):
    connection = http.client.HTTPConnection("127.0.0.1", endpoint.rest_port, timeout=20)
    with contextlib.closing(connection):
        connection.request("POST", path, body, headers or {})
        response = connection.getresponse()
        return response.status, response.read(), response.getheader("connection")


def raw(endpoint, *parts):
    """Sends bytes; returns what is answered until the server closes."""
    with socket.create_connection(("127.0.0.1", endpoint.rest_port), timeout=20) as connection:
        answer = b""
        with contextlib.suppress(ConnectionError):  # closed while it was sent
            for part in parts:
                connection.sendall(part)
        with contextlib.suppress(ConnectionError):
            while received := connection.recv(1 << 16):
                answer += received
        return answer


def is_well(endpoint):
    return post(endpoint, BODY)[0] == 200


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b" " * 2001, {}),
        (gzip.compress(b" " * 1_000_000), {"content-encoding": "gzip"}),
        (iter([b" " * 1000] * 3), {}),
    ],
    ids=["plain", "inflated", "chunked"],
)
def test_a_body_that_is_too_long_is_refused(endpoint, body, headers):
    status, text, connection = post(endpoint, body, headers)

    assert (status, connection) == (413, "close")
    assert json.loads(text)["error"] == "A body must have at most 2000 bytes. Received: more"
    assert is_well(endpoint)


def test_a_message_or_metadata_that_is_too_long_is_refused(endpoint):
    client = Client(endpoint.grpc_port)
    with pytest.raises(grpc.RpcError) as error:
        client.predict(x=np.zeros(2400, np.float32))
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    with pytest.raises(grpc.RpcError) as error:
        client.stub.Predict(client.request(x=np.zeros(1, "f")), metadata=[("x", "y" * 9000)])
    assert error.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.predict(x=np.zeros(60, np.float32)).outputs["y"].float_val[0] == 3.0


def test_headers_that_are_too_long_are_refused(endpoint):
    assert post(endpoint, BODY, {"x": "y" * 9000})[0] == 431
    assert post(endpoint, BODY, path="/v1/models/" + "y" * 9000)[0] == 431
    endless = [b"x: " + b"y" * 4000 + b"\r\n"] * 8
    assert raw(endpoint, b"GET / HTTP/1.1\r\n", *endless)[:12] in (b"HTTP/1.1 431", b"")  # reset
    assert post(endpoint, BODY, {"x": "y" * 7000})[0] == 200


def test_slow_clients_are_not_waited_for(endpoint):
    head = b"POST " + PREDICT.encode() + b" HTTP/1.1\r\nhost: h\r\ncontent-length: 20\r\n\r\n"
    assert raw(endpoint, b"") == b""
    assert raw(endpoint, b"POST ") == b""
    assert raw(endpoint, head).startswith(b"HTTP/1.1 408")
    assert raw(endpoint, head, b"{").startswith(b"HTTP/1.1 408")
    assert raw(endpoint, head + BODY, b"POST ").startswith(b"HTTP/1.1 200")
    assert is_well(endpoint)


def test_garbage_is_refused(endpoint):
    assert raw(endpoint, b"\x16\x03\x01 garbage\r\n\r\n").startswith(b"HTTP/1.1 400")
    assert is_well(endpoint)


def test_so_many_requests_run_at_a_time(narrow):
    client = Client(narrow.grpc_port)
    slow = {"signature": "slow", "x": np.zeros(1, np.float32), "timeout": 3.0}
    with futures.ThreadPoolExecutor(3) as threads:
        asked = [threads.submit(client.predict, **slow) for _ in range(3)]
        codes = sorted(x.exception(20).code().name for x in asked)

    assert codes == ["DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"]
    end = time.monotonic() + 10  # late work counts until it ends
    while not is_well(narrow):
        assert time.monotonic() < end


def test_the_oldest_of_many_unfinished_requests_gives_way(narrow):
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: h\r\ncontent-length: {len(BODY)}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(4):
            connection = socket.create_connection(("127.0.0.1", narrow.rest_port), timeout=20)
            connections.append(stack.enter_context(connection))
            connection.sendall(head)
            time.sleep(0.05)  # in order

        answers = [connections[0].recv(1 << 16)]
        for connection in connections[1:]:
            connection.sendall(BODY)
            answers.append(connection.recv(1 << 16))

    assert [answer[:12] for answer in answers] == [b"HTTP/1.1 503"] + [b"HTTP/1.1 200"] * 3


def test_a_call_that_is_never_sent_ends(endpoint):
    with grpc.insecure_channel(f"127.0.0.1:{endpoint.grpc_port}") as channel:
        call = channel.stream_unary(attacks.METHOD).future(iter(lambda: time.sleep(9), 0))
        start = time.monotonic()
        with pytest.raises(grpc.RpcError, match=r"in 0\.3 s") as error:
            call.result(20)
        call.cancel()

    assert error.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert time.monotonic() - start < 5


def test_limits_are_positive():
    with pytest.raises(ValueError, match="`requests` must be positive"):
        Limits(requests=0)


def test_a_slow_request_that_expires_just_now_fails_no_other():
    """In the turn of the loop in which its time is over, another one takes its place."""

    async def ask():
        admission = Admission(Limits(receiving=1, send_seconds=0.05))

        async def slow():
            async with admission.receive("slow"):
                await asyncio.sleep(9)

        waiting = asyncio.create_task(slow())
        await asyncio.sleep(0)
        [[timeout]] = admission._receiving.values()
        timeout._on_timeout()  # as the loop calls it
        async with admission.receive("good"):
            pass
        with pytest.raises(ServingError) as error:
            await waiting
        return error.value.code

    assert asyncio.run(ask()) is Code.DEADLINE_EXCEEDED
