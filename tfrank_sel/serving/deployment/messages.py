"""Messages of TensorFlow Serving's configuration files, and the reader of their text format."""

import os
from collections.abc import Callable
from typing import Any

from google.protobuf import text_format

from tfrank_sel.data import stores
from tfrank_sel.data.rejections import InputError
from tfrank_sel.serving import protos
from tfrank_sel.serving.status import Code, ServingError, invalid

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


_classes = protos.declared("tfrank_sel_serving_config.proto", _MESSAGES)
BatchingParameters = _classes["BatchingParameters"]
MonitoringConfig = _classes["MonitoringConfig"]
SSLConfig = _classes["SSLConfig"]


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
