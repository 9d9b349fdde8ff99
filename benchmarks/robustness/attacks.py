"""Attacks on a model server: requests that cost the sender little and a careless server much.

Each attack is a function of the server's two ports that sends one burst. The module imports neither
TensorFlow nor the package, so that a process of attackers starts at once:

    python -m benchmarks.robustness.attacks NAME GRPC_PORT REST_PORT SECONDS PAUSE

It prints a line when it begins, and sends all attacks in turn if the name is "all".
"""

import contextlib
import gzip
import http.client
import itertools
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

import grpc

Burst = Callable[[int, int], None]

PREDICT = "/v1/models/half:predict"
METHOD = "/tensorflow.serving.PredictionService/Predict"
_FLOAT, _STRING, _RESOURCE, _VARIANT = 1, 7, 20, 21
_SILENT = 40  # streams of one connection


def varint(value: int) -> bytes:
    """Returns an integer as protobuf writes it."""
    octets = bytearray()
    while value > 127:
        octets.append(value & 127 | 128)
        value >>= 7
    return bytes([*octets, value])


def field(number: int, content: bytes) -> bytes:
    """Returns a field of bytes as protobuf writes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def predict_request(
    *sizes: int, dtype: int = _FLOAT, values: bytes = b"", signature: bytes = b""
) -> bytes:
    """Returns a serialized `PredictRequest` for a tensor that declares a shape."""
    dims = b"".join(field(2, b"\x08" + varint(size)) for size in sizes)
    tensor = b"\x08" + bytes([dtype]) + field(2, dims) + values
    spec = field(1, b"half") + (field(3, signature) if signature else b"")
    return field(1, spec) + field(2, field(1, b"x") + field(2, tensor))


def _ask(port: int, *requests: bytes) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        for call in [channel.unary_unary(METHOD).future(x, timeout=20) for x in requests]:
            with contextlib.suppress(grpc.RpcError):
                call.result()


def _post(port: int, body: bytes, **headers: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", PREDICT, body, headers)
        connection.getresponse().read()


def large_shape(grpc_port: int, _: int) -> None:
    """35 bytes that declare 100 million numbers."""
    _ask(grpc_port, predict_request(100_000_000))


def shape_within_bounds(grpc_port: int, _: int) -> None:
    """Eight requests at a time for the two million numbers that the defaults allow."""
    _ask(grpc_port, *[predict_request(2_000_000)] * 8)


def repeated_string(grpc_port: int, _: int) -> None:
    """One string of 1 MiB, declared 100 thousand times."""
    values = field(8, bytes(2**20))
    _ask(grpc_port, predict_request(100_000, dtype=_STRING, values=values))


def unreadable(grpc_port: int, _: int) -> None:
    """Tensors that no server can read, and bytes that are no message."""
    _ask(
        grpc_port,
        predict_request(2**40, 2**40),
        predict_request(2**62, 2**62, 2**62),
        predict_request(100_000_000_000),
        predict_request(1, dtype=_RESOURCE),
        predict_request(1, dtype=_VARIANT),
        predict_request(*[1] * 70),
        b"\xff garbage",
    )


def many_axes(grpc_port: int, _: int) -> None:
    """8 MB of empty axes: four million messages."""
    _ask(grpc_port, field(2, field(1, b"x") + field(2, field(2, b"\x12\x00" * 4_000_000))))


def silent_streams(grpc_port: int, _: int) -> None:
    """40 calls of one connection, opened and never sent."""
    ended = threading.Event()

    def nothing() -> Iterator[bytes]:
        ended.wait(20)
        yield from ()

    with grpc.insecure_channel(f"127.0.0.1:{grpc_port}") as channel:
        calls = [channel.stream_unary(METHOD).future(nothing()) for _ in range(_SILENT)]
        time.sleep(2.0)
        ended.set()
        for call in calls:
            call.cancel()


def brackets(_: int, rest_port: int) -> None:
    """20 MB of opening brackets."""
    _post(rest_port, b'{"instances": ' + b"[" * 20_000_000)


def brackets_in_gzip(_: int, rest_port: int) -> None:
    """4 MB of them, the most that the defaults allow, in 4 KB."""
    body = gzip.compress(b'{"instances": ' + b"[" * 4_000_000)
    _post(rest_port, body, **{"content-encoding": "gzip"})


def deep(_: int, rest_port: int) -> None:
    """Brackets that are few enough to be counted and too deep to be a tensor."""
    _post(rest_port, b'{"instances": ' + b"[" * 60_000)


def empty_objects(_: int, rest_port: int) -> None:
    """As many objects as the defaults allow, each of which takes ten times its text."""
    _post(rest_port, b'{"instances": [' + b'{"":0},' * 60_000 + b"0]}")


def irregular_numbers(_: int, rest_port: int) -> None:
    """As many NaN as the defaults allow, which only the slower reader takes."""
    _post(rest_port, b'{"instances": [' + b"NaN," * 250_000 + b"0]}")


def slow_bodies(_: int, rest_port: int) -> None:
    """40 bodies that never end."""
    head = f"POST {PREDICT} HTTP/1.1\r\nhost: h\r\ncontent-length: 10000\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        for _ in range(_SILENT):
            with contextlib.suppress(OSError):
                address = ("127.0.0.1", rest_port)
                stack.enter_context(socket.create_connection(address, timeout=5)).sendall(head)
        time.sleep(2.0)


def good_grpc(grpc_port: int, _: int) -> None:
    """No attack, but good requests with as many numbers as the defaults allow: 8 MB."""
    _ask(grpc_port, predict_request(2_000_000, values=field(5, bytes(8_000_000))))


def good_rest(_: int, rest_port: int) -> None:
    """No attack, but good requests with as many numbers as the defaults allow: 3.5 MB."""
    _post(rest_port, b'{"instances": [' + b"0.12345678901," * 250_000 + b"0]}")


ATTACKS: dict[str, Burst] = {
    burst.__name__: burst
    for burst in (
        large_shape,
        shape_within_bounds,
        repeated_string,
        unreadable,
        many_axes,
        silent_streams,
        brackets,
        brackets_in_gzip,
        deep,
        empty_objects,
        irregular_numbers,
        slow_bodies,
        good_grpc,
        good_rest,
    )
}


def repeat(name: str, grpc_port: int, rest_port: int, seconds: float, pause: float) -> None:
    """Sends an attack's bursts for so long, or those of all attacks in turn."""
    print(name, flush=True)
    end = time.monotonic() + seconds
    for burst in itertools.cycle(ATTACKS.values() if name == "all" else [ATTACKS[name]]):
        if time.monotonic() >= end:
            return
        burst(grpc_port, rest_port)
        time.sleep(pause)


if __name__ == "__main__":
    repeat(sys.argv[1], *map(int, sys.argv[2:4]), *map(float, sys.argv[4:6]))
