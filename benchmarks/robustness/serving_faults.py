"""Fault tests of the endpoint: good clients during attacks of bad clients and version changes.

    python -m benchmarks.robustness.serving_faults --seconds 60

Serves a ranker in a process of its own. For so long, 8 clients ask by gRPC and one by REST, each
answer compared bit by bit with those of the versions in this process; versions are published every
5 seconds, one of them broken, and old ones removed; clients disconnect, send slowly or not at all,
send garbage, and ask what must be refused, each with the right code. Prints what was answered, and
how the memory of the server grew after its first quarter; status 1 if a good request failed, a bad
one was answered otherwise, or memory grew by more than 5 %.
"""

import argparse
import base64
import contextlib
import gzip
import http.client
import itertools
import json
import os
import pathlib
import random
import shutil
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import rich.console
import rich.progress
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks.speed.serving import LIST_SIZE, NUM_FEATURES, SPEC, exported, served
from tfrank_sel import export
from tfrank_sel.data import elwc
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.model import Model

LIMIT = 2**20  # bytes of a request
CLIENTS = 8
PREDICT = "/v1/models/ranker:predict"
METHOD = "/tensorflow.serving.PredictionService/Predict"
KEPT = 2  # versions in the folder

Work = Callable[[], str]  # does something once; returns what came of it


class Faults:
    """Clients of a server, and what came of their requests.

    Args:
        grpc_port: The server's port for gRPC.
        rest_port: Its port for REST.
        features: Features of the list that good clients ask for.
        expected: The scores of each version's model.
    """

    def __init__(
        self, grpc_port: int, rest_port: int, features: np.ndarray, expected: list[np.ndarray]
    ) -> None:
        self.ports = grpc_port, rest_port
        self.list = elwc.serialize(features, SPEC)
        self.expected = [scores.tolist() for scores in expected]
        self.outcomes: Counter[str] = Counter()
        self.stopped = threading.Event()

    def start(self) -> list[threading.Thread]:
        """Starts every client in a thread of its own."""
        good = [self.good_grpc() for _ in range(CLIENTS)] + [self.good_rest()]
        bad = [self.bad_grpc(), self.bad_rest(), self.disconnecting_grpc(), self.garbage()]
        bad += [self.disconnecting_rest(), *(self.slow_rest() for _ in range(4))]
        bad += [self.slow_grpc() for _ in range(4)]
        threads = [threading.Thread(target=self._repeat, args=(work,)) for work in good + bad]
        for thread in threads:
            thread.start()
        return threads

    def _repeat(self, work: Work) -> None:
        while not self.stopped.is_set():
            self.outcomes[work()] += 1

    def _stub(self) -> tuple[grpc.Channel, prediction_service_pb2_grpc.PredictionServiceStub]:
        channel = grpc.insecure_channel(f"127.0.0.1:{self.ports[0]}")
        return channel, prediction_service_pb2_grpc.PredictionServiceStub(channel)

    def _request(self, lists: list[bytes]) -> predict_pb2.PredictRequest:
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "ranker"
        tensor_protos.to_proto(np.array(lists, np.object_), request.inputs["examples"])
        return request

    def _judged(self, scores: list[float]) -> str:
        return "good: answered" if scores in self.expected else "FAILED good: other scores"

    def good_grpc(self) -> Work:
        _, stub = self._stub()
        request = self._request([self.list])

        def ask() -> str:
            try:
                answer = stub.Predict(request, timeout=20).outputs["scores"]
                return self._judged(list(answer.float_val))
            except grpc.RpcError as error:
                return f"FAILED good: {error.code().name} {error.details()}"

        return ask

    def good_rest(self) -> Work:
        body = json.dumps({"instances": [{"b64": base64.b64encode(self.list).decode()}]})

        def ask() -> str:
            status, answer = self._post(PREDICT, body.encode())
            if status != 200:
                return f"FAILED good: {status}"
            [row] = json.loads(answer)["predictions"]
            return self._judged(np.array(row["scores"], np.float32).tolist())

        return ask

    def _post(self, path: str, body: bytes, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports[1], timeout=20)
        try:
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def bad_grpc(self) -> Work:
        _, stub = self._stub()
        cases: list[tuple[str, predict_pb2.PredictRequest]] = []

        def case(code: str, **changed: object) -> predict_pb2.PredictRequest:
            request = self._request([self.list])
            for name, value in changed.items():
                setattr(request.model_spec, name, value)
            cases.append((code, request))
            return request

        case("NOT_FOUND", name="other")
        case("INVALID_ARGUMENT", name="")
        case("INVALID_ARGUMENT", version_label="other")
        case("FAILED_PRECONDITION", signature_name="other")
        case("INVALID_ARGUMENT").ClearField("model_spec")
        case("INVALID_ARGUMENT").inputs["other"].dtype = 1
        case("INVALID_ARGUMENT", signature_name="predict_bytes").output_filter.append("x")
        nan = np.full([1, NUM_FEATURES], np.nan)
        short = np.zeros([1, 2])
        for code, serialized in (
            ("INVALID_ARGUMENT", b"\xff garbage"),
            ("INVALID_ARGUMENT", elwc.serialize(nan, SPEC)),
            ("INVALID_ARGUMENT", elwc.serialize(short, type(SPEC)(2))),
            ("RESOURCE_EXHAUSTED", bytes(2 * LIMIT)),
        ):
            cases.append((code, self._request([serialized])))
        turn = itertools.cycle(cases)

        def ask() -> str:
            wanted, request = next(turn)
            try:
                stub.Predict(request, timeout=20)
            except grpc.RpcError as error:
                found = error.code().name
                return f"bad: {found}" if found == wanted else f"FAILED bad: {found}, not {wanted}"
            return f"FAILED bad: answered, not {wanted}"

        return ask

    def bad_rest(self) -> Work:
        number = b'{"signature_name": "predict", "inputs": {"mask": [[true]], "features": %s}}'
        turn = itertools.cycle(
            [
                (400, PREDICT, b"", {}),
                (400, PREDICT, b"{", {}),
                (400, PREDICT, b'{"instances": [1]}', {}),
                (400, PREDICT, number % b"[[[1], [1, 2]]]", {}),
                (400, PREDICT, number % b"[[[1]]]", {}),
                (400, PREDICT, number % (b"[[%s]]" % json.dumps([np.nan] * 136).encode()), {}),
                (400, PREDICT, b"no gzip", {"content-encoding": "gzip"}),
                (413, PREDICT, b" " * (LIMIT + 1), {}),
                (413, PREDICT, gzip.compress(bytes(2 * LIMIT)), {"content-encoding": "gzip"}),
                (431, PREDICT, b"", {"x": "y" * 70_000}),
                (404, "/v1/models/other:predict", b'{"instances": [1]}', {}),
                (400, "/v1/models/ranker:other", b"", {}),
                (404, "/other", b"", {}),
            ]
        )

        def ask() -> str:
            wanted, path, body, headers = next(turn)
            try:
                found, _ = self._post(path, body, **headers)
            except ConnectionError:  # closed while it was sent
                return f"bad: {wanted}, unread" if wanted == 413 else f"FAILED bad: not {wanted}"
            return f"bad: {found}" if found == wanted else f"FAILED bad: {found}, not {wanted}"

        return ask

    def disconnecting_grpc(self) -> Work:
        def ask() -> str:
            channel, stub = self._stub()
            call = stub.Predict.future(self._request([self.list] * 20))
            time.sleep(random.uniform(0.0, 0.02))
            call.cancel()
            channel.close()
            return "disconnected"

        return ask

    def slow_grpc(self) -> Work:
        def never() -> Iterator[bytes]:
            self.stopped.wait(3)
            yield from ()

        def ask() -> str:
            channel = grpc.insecure_channel(f"127.0.0.1:{self.ports[0]}")
            try:
                channel.stream_unary(METHOD)(never(), timeout=10)
            except grpc.RpcError:
                return "slow"
            finally:
                channel.close()
            return "FAILED bad: a request that was never sent was answered"

        return ask

    def _raw(self, port: int, *parts: bytes, pause: float = 0.0) -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
            for part in parts:
                connection.sendall(part)
                self.stopped.wait(pause)
        return "disconnected"

    def disconnecting_rest(self) -> Work:
        head = f"POST {PREDICT} HTTP/1.1\r\nhost: h\r\ncontent-length: 10000\r\n\r\n"
        return lambda: self._raw(self.ports[1], head.encode() + b"{" * 5000, pause=0.005)

    def slow_rest(self) -> Work:
        text = f"POST {PREDICT} HTTP/1.1\r\nhost: h\r\ncontent-length: 10000\r\n\r\n".encode()
        parts = [text[i : i + 10] for i in range(0, len(text), 10)] + [b" "] * 20

        def ask() -> str:
            self._raw(self.ports[1], *parts, pause=0.1)
            return "slow"

        return ask

    def garbage(self) -> Work:
        def ask() -> str:
            for port in self.ports:
                with contextlib.suppress(ConnectionError):  # that is the answer
                    self._raw(port, random.randbytes(500), b"\r\n\r\n", pause=0.01)
            return "garbage"

        return ask


def publish(models: list[pathlib.Path], base: pathlib.Path, version: int, *, broken: bool) -> None:
    """Publishes one of two models in turn, and removes old versions."""
    if broken:
        aside = base / ".broken"
        shutil.copytree(models[version % 2], aside)
        graph = aside / "saved_model.pb"
        graph.write_bytes(graph.read_bytes()[:1000])
        aside.rename(base / str(version))
    else:
        export.publish(models[version % 2], base, version)
        export.remove_old(base, keep=KEPT)


def resident_bytes(pid: int) -> int:
    """Memory that a process has."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(seconds: float, swap_seconds: float) -> tuple[Counter[str], list[int], int]:
    """Serves for so long; returns the outcomes, the server's memory over time, and the swaps."""
    features = np.random.default_rng(0).normal(size=[LIST_SIZE, NUM_FEATURES]).astype(np.float32)
    lists = np.array([elwc.serialize(features, SPEC)], np.object_)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        models = [exported(folder / f"saved_model_{i}", [lists[0]]) for i in range(2)]
        expected = []
        for model in models:
            loaded = Model(model, 1)
            signature = loaded.signatures["serving_default"]
            expected.append(loaded.run(signature, {"examples": lists}, ["scores"])[0][0])
            loaded.close()
        base = folder / "ranker"
        version = 1
        export.publish(models[1], base, version)
        options = [f"--max-request-bytes={LIMIT}", "--file-system-poll-wait-seconds=0.2"]
        with served(base / "1", *options) as (pid, grpc_port, rest_port):
            faults = Faults(grpc_port, rest_port, features, expected)
            threads, memory = faults.start(), []
            start, swaps = time.monotonic(), 0
            for _ in rich.progress.track(
                range(int(seconds * 5)), "Serving", console=rich.console.Console(stderr=True)
            ):
                time.sleep(0.2)
                memory.append(resident_bytes(pid))
                if (time.monotonic() - start) // swap_seconds > swaps:
                    version, swaps = version + 1, swaps + 1
                    publish(models, base, version, broken=swaps == 2)
            faults.stopped.set()
            for thread in threads:
                thread.join()
    return faults.outcomes, memory, swaps


def growth(memory: list[int]) -> float:
    """How much more memory there is in the last quarter than in the second."""
    quarter = len(memory) // 4
    before = statistics.median(memory[quarter : 2 * quarter])
    return statistics.median(memory[-quarter:]) / before - 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--swap-seconds", type=float, default=5.0, help="time between versions")
    settings = parser.parse_args()
    outcomes, memory, swaps = run(settings.seconds, settings.swap_seconds)
    print("| what | times |\n|---|---|")
    for outcome, count in sorted(outcomes.items()):
        print(f"| {outcome} | {count} |")
    grown = growth(memory)
    print(f"\n{swaps} versions published, one of them broken.")
    print(f"Memory: {memory[-1] / 2**20:.0f} MiB, {100 * grown:+.1f} % since the second quarter.")
    if any(outcome.startswith("FAILED") for outcome in outcomes) or grown > 0.05:
        sys.exit(1)


if __name__ == "__main__":
    main()
