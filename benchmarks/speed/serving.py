"""CPU that a request costs the endpoint, compared with the same signature run in the process.

    python -m benchmarks.speed.serving

Exports a ranker, serves it in a process of its own, and asks it in turns by gRPC (lists as bytes of
`ExampleListWithContext`), by REST with the same in base64, and by REST with dense JSON: lists
of 100 items of 136 features. Times are CPU milliseconds of the server for each request, against the
same signature run by the session in this process.
"""

import base64
import contextlib
import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc
import numpy as np
import urllib3
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from benchmarks.speed import rows
from benchmarks.speed.interleaved import use_one_core
from tfrank_sel import export, models
from tfrank_sel.data import FeatureSpec, elwc
from tfrank_sel.serving.engine import tensor_protos
from tfrank_sel.serving.engine.model import Model

NUM_FEATURES, LIST_SIZE = 136, 100
SPEC = FeatureSpec(NUM_FEATURES)
TICK = os.sysconf("SC_CLK_TCK")

IN_PROCESS = rows.Peer("the session in the process")
Ask = Callable[[], object]


def exported(path: pathlib.Path, examples: Sequence[bytes] = ()) -> pathlib.Path:
    """A ranker of the size of the main job."""
    model = models.Scorer([0.0] * NUM_FEATURES, [1.0] * NUM_FEATURES, [64, 32])
    model.build((None, None, NUM_FEATURES))
    export.export(model, SPEC, path, examples=examples)
    return path


def published(folder: pathlib.Path) -> pathlib.Path:
    """That ranker, as a server finds it."""
    return export.publish(exported(folder / "saved_model"), folder / "ranker", 1)


@contextlib.contextmanager
def served(version: pathlib.Path, *options: str) -> Iterator[tuple[int, int, int]]:
    """Serves a model: process, gRPC port and REST port."""
    command = [
        sys.executable,
        "-m",
        "tfrank_sel.serving",
        "serve",
        "--model-base-path",
        str(version.parent),
    ]
    free = ["--grpc-port", "0", "--rest-port", "0"]
    with subprocess.Popen([*command, *free, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            # Serving NAME: gRPC HOST:PORT, REST http://HOST:PORT/...
            ports = re.findall(r"127\.0\.0\.1:(\d+)", server.stdout.readline())
            # A server whose log nobody reads stops when the pipe is full.
            threading.Thread(target=server.stdout.read, daemon=True).start()
            yield server.pid, *map(int, ports)
        finally:
            server.terminate()
            server.wait()


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def clients(grpc_port: int, rest_port: int, features: np.ndarray) -> dict[str, Callable[[], Ask]]:
    """For each way to ask, what makes a client of its own."""
    serialized = elwc.serialize(features, SPEC)
    url = f"http://127.0.0.1:{rest_port}/v1/models/ranker:predict"

    def by_grpc() -> Ask:
        channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "ranker"
        tensor_protos.to_proto(np.array([serialized], np.object_), request.inputs["examples"])
        return lambda: stub.Predict(request)

    def by_rest(document: dict[str, object]) -> Ask:
        pool, body = urllib3.PoolManager(), json.dumps(document).encode()

        def ask() -> None:
            assert pool.request("POST", url, body=body).status == 200

        return ask

    encoded = {"b64": base64.b64encode(serialized).decode()}
    rows = np.round(features.astype(np.float64), 6).tolist()
    columns = {"features": [rows], "mask": [[True]]}
    dense = {"signature_name": "predict", "inputs": columns}
    return {
        "gRPC, ELWC": by_grpc,
        "REST, ELWC in base64": lambda: by_rest({"instances": [encoded]}),
        "REST, dense JSON": lambda: by_rest(dense),
    }


def together(asks: Sequence[Ask], requests: int) -> None:
    """Sends requests from as many threads as there are clients."""

    def work(ask: Ask) -> None:
        for _ in range(requests // len(asks)):
            ask()

    threads = [threading.Thread(target=work, args=(ask,)) for ask in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def floors(version: pathlib.Path, features: np.ndarray) -> dict[str, Ask]:
    """The signatures that requests run, run by the session in this process."""
    model = Model(version, 1)
    inputs: dict[str, dict[str, np.ndarray]] = {
        "serving_default": {"examples": np.array([elwc.serialize(features, SPEC)], np.object_)},
        "predict": {"features": features[None], "mask": np.array([[True]])},
    }
    return {
        name: functools.partial(model.run, model.signatures[name], given, ["scores", "mask"])
        for name, given in inputs.items()
    }


def found(requests: int, rounds: int) -> Iterator[rows.Found]:
    features = np.random.default_rng(0).normal(size=[LIST_SIZE, NUM_FEATURES]).astype(np.float32)
    with tempfile.TemporaryDirectory() as name:
        version = published(pathlib.Path(name))
        in_process = floors(version, features)
        with served(version) as (server, *ports):
            asks = {
                (way, n): [make() for _ in range(n)]
                for way, make in clients(*ports, features).items()
                for n in (1, 8)
            }
            spent: dict[object, list[float]] = {}
            for _ in range(rounds + 1):  # the first warms up
                for key, pid, several in (
                    *((floor, os.getpid(), [run]) for floor, run in in_process.items()),
                    *((key, server, several) for key, several in asks.items()),
                ):
                    start = cpu_seconds(pid)
                    together(several, requests)
                    spent.setdefault(key, []).append(cpu_seconds(pid) - start)
    cost = {key: 1e3 * statistics.median(x[1:]) / requests for key, x in spent.items()}
    for way, n in asks:
        floor = cost["predict" if "dense" in way else "serving_default"]
        case = f"{way}, {n} client{'s' * (n > 1)}"
        yield rows.Row(case, IN_PROCESS, cost[way, n], floor, "ms a request")


def main() -> None:
    parser = rows.parser(__doc__, rounds=5)
    parser.add_argument("--requests", type=int, default=400, help="requests of each turn")
    arguments = parser.parse_args()
    use_one_core()
    rows.show(found(arguments.requests, arguments.rounds), arguments.json)


if __name__ == "__main__":
    main()
