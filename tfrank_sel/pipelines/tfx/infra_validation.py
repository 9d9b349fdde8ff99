"""Infra validator: test of a model in a separate server, with requests of clients."""

import base64
import contextlib
import dataclasses
import json
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc
from tfx.types import standard_artifacts
from tfx.utils import io_utils, path_utils
from tfx.v1.dsl.components import InputArtifact, OutputArtifact, Parameter, component

from tfrank_sel import export
from tfrank_sel.data.schema import Schema
from tfrank_sel.errors import received
from tfrank_sel.http_client import MISFORMED, Client, one_line
from tfrank_sel.pipelines.export.requests import TOLERANCE, difference
from tfrank_sel.pipelines.tfx.sequences import SequenceSchema, pattern, requests

NAME = "ranker"

_SERVING = re.compile(r"^Serving .*: gRPC (\S+), REST (\S+)$", re.MULTILINE)
_log = logging.getLogger(__name__)


class RefusalError(Exception):
    """A model that must not be pushed, with the reason."""


@component
def InfraValidator(  # noqa: N802
    model: InputArtifact[standard_artifacts.Model],
    examples: InputArtifact[standard_artifacts.Examples],
    schema: InputArtifact[standard_artifacts.Schema],
    blessing: OutputArtifact[standard_artifacts.InfraBlessing],
    columns: Parameter[str],
    lists: Parameter[int] = 32,
    most_milliseconds: Parameter[float] = 1000.0,
    start_seconds: Parameter[float] = 600.0,
) -> None:
    """Blesses a model if the local endpoint serves it and its gRPC and REST answers are right.

    It sends real lists of the split `test` one by one. The scores must equal those of the model in
    this process, and the 99th percentile of the latency must be within the limit. The stock
    InfraValidator requires Docker or Kubernetes. `columns` is the config of the `Columns` of the
    lists, as JSON.
    """
    layout = SequenceSchema.load(schema.uri, columns)
    asked = requests([pattern(examples, "test")], layout, lists)
    try:
        with serve(path_utils.serving_model_path(model.uri), start_seconds) as server:
            milliseconds = check(server, asked, layout, most_milliseconds)
    except RefusalError as refusal:
        outcome, message = 0, str(refusal)
    else:
        outcome, message = 1, f"{len(asked)} lists ranked, p99 {milliseconds:.1f} ms"
    # in the format of the stock InfraValidator, for Pusher
    name = "INFRA_BLESSED" if outcome else "INFRA_NOT_BLESSED"
    io_utils.write_string_file(os.path.join(blessing.uri, name), message + "\n")
    blessing.set_int_custom_property("blessed", outcome)
    blessing.set_string_custom_property("blessing_message", message)
    _log.info("%s: %s", name.lower().replace("_", " "), message)


@dataclasses.dataclass(frozen=True)
class Server:
    """A running server.

    Args:
        grpc: Address of its gRPC services.
        rest: Base URL of the model.
        model: Folder of the SavedModel that it serves.
    """

    grpc: str
    rest: str
    model: str


@contextlib.contextmanager
def serve(saved_model: str, start_seconds: float) -> Iterator[Server]:
    """Serves a SavedModel by the local endpoint, in a separate process, during the block.

    Args:
        saved_model: Folder of the SavedModel.
        start_seconds: Maximum time for the server to load it.

    Raises:
        RefusalError: If the server does not start.
    """
    with tempfile.TemporaryDirectory() as folder:
        base, log = Path(folder) / NAME, Path(folder) / "server.log"
        io_utils.copy_dir(saved_model, str(base / "1"))
        command = [
            sys.executable,
            "-m",
            "tfrank_sel.serving",
            "serve",
            "--model-base-path",
            str(base),
        ]
        with log.open("w", encoding="utf-8") as written:
            server = subprocess.Popen(
                [*command, "--grpc-port", "0", "--rest-port", "0"], stdout=written, stderr=written
            )
        try:
            yield Server(*_addresses(server, log, start_seconds), str(base / "1"))
        finally:
            server.terminate()
            server.wait()


def check(server: Server, asked: list[bytes], layout: Schema, most_milliseconds: float) -> float:
    """Sends lists to a server, and checks the scores.

    Args:
        server: The server.
        asked: Serialized `ExampleListWithContext`.
        layout: What a list holds.
        most_milliseconds: Maximum time of an answer.

    Returns:
        The 99th percentile of the latency by gRPC, in milliseconds.

    Raises:
        RefusalError: If there is no answer, or a wrong or late answer.
    """
    loaded = tf.saved_model.load(server.model)
    seconds = []
    rest = Client(server.rest, 60.0)
    with contextlib.closing(rest), grpc.insecure_channel(server.grpc) as channel:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        for example in asked:
            inputs = export.dense_inputs(tf.constant([example]), layout)
            expected = loaded.signatures["predict"](**inputs)["scores"].numpy()
            began = time.perf_counter()
            scores = _by_grpc(stub, example)
            seconds.append(time.perf_counter() - began)
            _compare("gRPC", scores, expected)
            _compare("REST", _by_rest(rest, example), expected)
    slowest = 1e3 * float(np.percentile(seconds, 99))
    if not slowest <= most_milliseconds:
        raise RefusalError(
            f"answers must take at most {most_milliseconds:g} ms, took {slowest:.1f} ms"
        )
    return slowest


def _addresses(server: subprocess.Popen[bytes], log: Path, seconds: float) -> tuple[str, str]:
    """Waits until the server prints its addresses."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if match := _SERVING.search(log.read_text(encoding="utf-8")):
            return match[1], match[2]
        if server.poll() is not None:
            break
        time.sleep(0.1)
    said = log.read_text(encoding="utf-8").strip().splitlines()[-1:]
    raise RefusalError(f"the server must start within {seconds:g} s. Output: {' '.join(said)!r}")


def _by_grpc(stub: prediction_service_pb2_grpc.PredictionServiceStub, example: bytes) -> np.ndarray:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    request.inputs["examples"].CopyFrom(tf.make_tensor_proto([example]))
    try:
        answer = stub.Predict(request, timeout=60.0)
    except grpc.RpcError as error:
        reason = received("gRPC must answer", f"{error.code()}: {error.details()}")
        raise RefusalError(reason) from error
    return tf.make_ndarray(answer.outputs["scores"])


def _by_rest(client: Client, example: bytes) -> np.ndarray:
    body = json.dumps({"inputs": {"examples": [{"b64": base64.b64encode(example).decode()}]}})
    try:
        answer = client.ask("POST", ":predict", body.encode())
        if answer.status != 200:
            raise ValueError(f"{answer.status}, {one_line(answer.reason)}")
        return np.array(json.loads(answer.content)["outputs"]["scores"])
    except (OSError, *MISFORMED) as error:
        raise RefusalError(received("REST must answer", error)) from error


def _compare(way: str, scores: np.ndarray, expected: np.ndarray) -> None:
    wanted = f"{way} must give the model's scores, {expected.shape}, to {TOLERANCE:g}"
    if scores.shape != expected.shape:
        raise RefusalError(received(wanted, scores.shape))
    gap = difference(scores, expected)
    if not gap <= TOLERANCE:
        raise RefusalError(received(wanted, f"a difference of {gap:.3g}"))
