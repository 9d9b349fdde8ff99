"""Messages of TensorFlow Serving's configuration files, and the reader of their text format."""

import os
from collections.abc import Callable
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

from tfrank_sel.data import stores
from tfrank_sel.data.lists import InputError
from tfrank_sel.serving.status import Code, ServingError, invalid

_FIELD = descriptor_pb2.FieldDescriptorProto
_INT64, _BOOL, _STRING = _FIELD.TYPE_INT64, _FIELD.TYPE_BOOL, _FIELD.TYPE_STRING
_PACKAGE = "tfrank_sel.serving"

# Messages whose protos are in no package: name of a field -> its type; a wrapper from
# google.protobuf, a scalar, a list of scalars, or another message of this file
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


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="tfrank_sel_serving_config.proto",
        package=_PACKAGE,
        syntax="proto3",
        dependency=[wrappers_pb2.DESCRIPTOR.name],
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field_name, kind) in enumerate(fields.items(), 1):
            field = message.field.add(name=field_name, number=number, label=_FIELD.LABEL_OPTIONAL)
            if isinstance(kind, str):
                package = _PACKAGE if kind in _MESSAGES else "google.protobuf"
                field.type, field.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind}"
            elif isinstance(kind, list):
                [field.type] = kind
                field.label = _FIELD.LABEL_REPEATED
            else:
                field.type = kind
    return file


_pool = descriptor_pool.Default()
_pool.Add(_file())


def _message(name: str) -> type:
    return message_factory.GetMessageClass(_pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))


BatchingParameters = _message("BatchingParameters")
MonitoringConfig = _message("MonitoringConfig")
SSLConfig = _message("SSLConfig")


def read(path: str | os.PathLike[str], kind: Callable[[], Any]) -> Any:
    """Reads a message without checking its values.

    Args:
        path: The file, or its URL.
        kind: Class of the message in it.

    Returns:
        The message.

    Raises:
        ServingError: NOT_FOUND if the file cannot be read, INVALID_ARGUMENT if it holds no such
            message. The error does not name the file.
    """
    message = kind()
    try:
        text_format.Parse(stores.read_text(path), message)
    except InputError as error:
        raise ServingError(Code.NOT_FOUND, error.reason) from error
    except OSError as error:
        raise ServingError(Code.NOT_FOUND, f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, text_format.ParseError) as error:
        name = message.DESCRIPTOR.name
        article = "an" if name[0] == "S" else "a"
        raise invalid(f"must be {article} {name} in text format", error) from error
    return message
