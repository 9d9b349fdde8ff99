"""Configuration files of a server: made from typed values, checked, read and written.

Each file is a message in text format. `batching`, `monitoring`, `tls`, `session` and `models` make
one. `faults` lists the values that a server rejects, and `read` and `write` raise errors for them.
"""

import itertools
import pathlib
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf import text_format
from tensorflow.core.protobuf import config_pb2

from tfrank_sel import http_client
from tfrank_sel.arguments import StrPath
from tfrank_sel.data import stores
from tfrank_sel.errors import received
from tfrank_sel.serving import monitoring as metrics, protos
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.status import ServingError, invalid

Faults: TypeAlias = Iterator[tuple[str, str]]

# Defaults of a server for batching parameters that are not set.
_MAX_BATCH_SIZE: Final = 1000
_MAX_ENQUEUED_BATCHES: Final = 10


_INT64, _BOOL, _STRING = protos.FIELD.TYPE_INT64, protos.FIELD.TYPE_BOOL, protos.FIELD.TYPE_STRING

# messages whose protos are in no package
_MESSAGES: dict[str, dict[str, Any]] = {
    "BatchingParameters": {
        "max_batch_size": "Int64Value",
        "batch_timeout_micros": "Int64Value",
        "max_enqueued_batches": "Int64Value",
        "num_batch_threads": "Int64Value",
        "thread_pool_name": "StringValue",
        "allowed_batch_sizes": [_INT64],
        "pad_variable_length_inputs": _BOOL,
        "enable_large_batch_splitting": "BoolValue",
        "max_execution_batch_size": "Int64Value",
    },
    "PrometheusConfig": {"enable": _BOOL, "path": _STRING},
    "MonitoringConfig": {"prometheus_config": "PrometheusConfig"},
    "SSLConfig": {
        "server_key": _STRING,
        "server_cert": _STRING,
        "custom_ca": _STRING,
        "client_verify": _BOOL,
    },
}

_classes = protos.message_classes("tfrank_sel_serving_config.proto", _MESSAGES)
BatchingParameters = _classes["BatchingParameters"]
MonitoringConfig = _classes["MonitoringConfig"]
SSLConfig = _classes["SSLConfig"]


# The models to serve (`--model_config_file`).
models = model_config.to_proto


def batching(
    *,
    max_batch_size: int = _MAX_BATCH_SIZE,
    batch_timeout_micros: int = 0,
    num_batch_threads: int | None = None,
    max_enqueued_batches: int = _MAX_ENQUEUED_BATCHES,
    allowed_batch_sizes: Sequence[int] = (),
    pad_variable_length_inputs: bool = False,
    max_execution_batch_size: int | None = None,
) -> Any:
    """Returns the batching parameters (`--batching_parameters_file`).

    Args:
        max_batch_size: Maximum rows of a batch; larger requests are refused.
        batch_timeout_micros: Maximum wait for a batch to fill, in microseconds.
        num_batch_threads: Number of batches that run at a time; None for one per core.
        max_enqueued_batches: Maximum number of waiting batches of a signature; further requests
            get UNAVAILABLE.
        allowed_batch_sizes: Sizes that batches are padded to, increasing; the last is the largest
            batch. Empty for any size.
        pad_variable_length_inputs: Whether inputs of different inner shapes are padded, with their
            own first element. Otherwise such requests fail if they are in one batch.
        max_execution_batch_size: Maximum rows of an execution; larger batches are split. None to
            split none.
    """
    message = BatchingParameters(
        allowed_batch_sizes=allowed_batch_sizes,
        pad_variable_length_inputs=pad_variable_length_inputs,
    )
    message.max_batch_size.value = max_batch_size
    message.batch_timeout_micros.value = batch_timeout_micros
    message.max_enqueued_batches.value = max_enqueued_batches
    if num_batch_threads is not None:
        message.num_batch_threads.value = num_batch_threads
    if max_execution_batch_size is not None:
        message.enable_large_batch_splitting.value = True
        message.max_execution_batch_size.value = max_execution_batch_size
    return message


def monitoring(*, path: str = metrics.PATH, enable: bool = True) -> Any:
    """Returns the settings of the metrics for Prometheus (`--monitoring_config_file`).

    Args:
        path: Path on the REST port.
        enable: Whether to serve the metrics.
    """
    return MonitoringConfig(prometheus_config={"enable": enable, "path": path})


def tls(*, server_key: str, server_cert: str, client_authority: str = "") -> Any:
    """Returns the TLS settings of gRPC (`--ssl_config_file`).

    Args:
        server_key: The server's private key, in PEM.
        server_cert: Its certificate, in PEM.
        client_authority: Certificate of the authority of the clients' certificates, in PEM; empty
            if clients need none.
    """
    return SSLConfig(
        server_key=server_key,
        server_cert=server_cert,
        custom_ca=client_authority,
        client_verify=bool(client_authority),
    )


def credentials(message: Any) -> grpc.ServerCredentials:
    """Returns the credentials of a gRPC server.

    Args:
        message: The `SSLConfig`: PEM of `server_key` and `server_cert`, and, if clients
            need a certificate (`client_verify`), that of their authority, `custom_ca`.
    """
    pair = message.server_key.encode(), message.server_cert.encode()
    authority = message.custom_ca.encode() or None
    return grpc.ssl_server_credentials([pair], authority, message.client_verify)


def session(
    *,
    intra_op_threads: int = 0,
    inter_op_threads: int = 0,
    gpu_memory_fraction: float = 0.0,
    gpu_memory_growth: bool = False,
) -> config_pb2.ConfigProto:
    """Returns the threads and memory of a model (`--tensorflow_session_config_file`).

    Args:
        intra_op_threads: Threads within an operation; 0 for one per core.
        inter_op_threads: Number of operations that run at a time; 0 for one per core.
        gpu_memory_fraction: Maximum share of a GPU's memory; 0 for all.
        gpu_memory_growth: Whether to allocate GPU memory only when needed.
    """
    message = config_pb2.ConfigProto(
        intra_op_parallelism_threads=intra_op_threads,
        inter_op_parallelism_threads=inter_op_threads,
    )
    message.gpu_options.per_process_gpu_memory_fraction = gpu_memory_fraction
    message.gpu_options.allow_growth = gpu_memory_growth
    return message


def faults(message: Any) -> Faults:
    """Yields the fields that a server rejects, and the required value of each.

    Args:
        message: One of the messages of this module.
    """
    yield from _RULES[message.DESCRIPTOR.name](message)


def read(path: StrPath, kind: Callable[[], Any]) -> Any:
    """Reads a file.

    Args:
        path: The file.
        kind: Class of the message in it, such as `BatchingParameters`.

    Returns:
        The message.

    Raises:
        ServingError: NOT_FOUND if the file cannot be read, INVALID_ARGUMENT if it holds no such
            message, or one that breaks a rule.
    """
    try:
        message = model_config.parse_file(path, kind)
    except ServingError as error:
        raise ServingError(error.code, f"{path}: {error}") from error
    for field, rule in faults(message):
        raise invalid(f"{path}: {field}: {rule}")
    return message


def write(path: StrPath, message: Any) -> None:
    """Writes a file atomically.

    Args:
        path: The file.
        message: One of the messages of this module.

    Raises:
        ValueError: If the message breaks a rule; nothing is written then.

    Example:
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(f"{folder}/batching.config", batching(max_batch_size=32))
        ...     read(f"{folder}/batching.config", BatchingParameters).max_batch_size.value
        32
        >>> write("batching.config", batching(max_batch_size=0))
        Traceback (most recent call last):
        ValueError: batching.config: max_batch_size must be positive. Received: 0
    """
    for field, rule in faults(message):
        raise ValueError(f"{path}: {field} {rule}")
    stores.write_text(pathlib.Path(path), text_format.MessageToString(message))


def _batching_faults(message: Any) -> Faults:
    wrapped = ("max_batch_size", "max_enqueued_batches", "num_batch_threads")
    for field in (*wrapped, "max_execution_batch_size"):
        if message.HasField(field) and getattr(message, field).value < 1:
            yield field, received("must be positive", getattr(message, field).value)
    if message.batch_timeout_micros.value < 0:
        micros = message.batch_timeout_micros.value
        yield "batch_timeout_micros", received("must not be negative", micros)
    sizes = list(message.allowed_batch_sizes)
    if any(a >= b for a, b in itertools.pairwise((0, *sizes))):
        yield "allowed_batch_sizes", received("must be positive and increase", sizes)
    most = largest = _MAX_BATCH_SIZE  # rows of a request, and of an execution
    if message.HasField("max_batch_size"):
        most = largest = message.max_batch_size.value
    if message.enable_large_batch_splitting.value and message.HasField("max_execution_batch_size"):
        largest = message.max_execution_batch_size.value
    # Splitting makes executions smaller than requests, never larger.
    if largest > most:
        rule = received(f"must be at most max_batch_size, {most}", largest)
        yield "max_execution_batch_size", rule
    # A batch is padded to the next allowed size, which the largest batch must have, too.
    if sizes and sizes[-1] != largest:
        rule = received(f"must end with the largest batch, {largest}", sizes)
        yield "allowed_batch_sizes", rule


def _monitoring_faults(message: Any) -> Faults:
    path = message.prometheus_config.path
    if path and not path.startswith("/"):
        yield "prometheus_config.path", received("must start with `/`", path)


def _session(message: config_pb2.ConfigProto) -> Faults:
    for field in ("intra_op_parallelism_threads", "inter_op_parallelism_threads"):
        if getattr(message, field) < 0:
            yield field, received("must not be negative", getattr(message, field))
    fraction = message.gpu_options.per_process_gpu_memory_fraction
    if not 0.0 <= fraction <= 1.0:
        field = "gpu_options.per_process_gpu_memory_fraction"
        yield field, received("must be in [0, 1]", fraction)


def _tls(message: Any) -> Faults:
    if message.client_verify and not message.custom_ca:
        yield "custom_ca", "must hold the authority of the clients, as client_verify asks for it"
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for field in ("server_cert", "server_key"):
            files.append(pathlib.Path(folder, field))
            files[-1].write_text(getattr(message, field), encoding="utf-8")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*map(str, files))
        except ssl.SSLError as error:
            rule = received("must be a certificate and its key, in PEM", error.reason or error)
            yield "server_cert, server_key", rule
    if message.custom_ca:
        try:
            http_client.context(message.custom_ca.encode())
        except ssl.SSLError as error:
            yield "custom_ca", received("must be certificates in PEM", error.reason)


_RULES: dict[str, Callable[[Any], Faults]] = {
    "BatchingParameters": _batching_faults,
    "ConfigProto": _session,
    "ModelServerConfig": model_config.faults,
    "MonitoringConfig": _monitoring_faults,
    "SSLConfig": _tls,
}
