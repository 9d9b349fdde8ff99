"""Configuration files of a server, each a message in text format: read and checked.

`faults` lists the values that a server rejects, and `read` raises errors for them.
"""

import itertools
import pathlib
import ssl
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import grpc
from tensorflow.core.protobuf import config_pb2

from tfrank_sel import http_client
from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import received
from tfrank_sel.serving.deployment import model_config
from tfrank_sel.serving.protos import message_class
from tfrank_sel.serving.status import ServingError, invalid

Faults: TypeAlias = Iterator[tuple[str, str]]

_MAX_BATCH_SIZE: Final = 1000  # that of a server, if it is not set

BatchingParameters = message_class("BatchingParameters")
MonitoringConfig = message_class("MonitoringConfig")
SSLConfig = message_class("SSLConfig")


def credentials(message: Any) -> grpc.ServerCredentials:
    """Returns the credentials of a gRPC server.

    Args:
        message: The `SSLConfig`: PEM of `server_key` and `server_cert`, and, if clients
            need a certificate (`client_verify`), that of their authority, `custom_ca`.
    """
    pair = message.server_key.encode(), message.server_cert.encode()
    authority = message.custom_ca.encode() or None
    return grpc.ssl_server_credentials([pair], authority, message.client_verify)


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
    "MonitoringConfig": _monitoring_faults,
    "SSLConfig": _tls,
}
