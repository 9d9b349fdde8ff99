"""Text-format configurations of TensorFlow Serving whose protos are in no package."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

_FIELD = descriptor_pb2.FieldDescriptorProto
_INT64, _BOOL, _STRING = _FIELD.TYPE_INT64, _FIELD.TYPE_BOOL, _FIELD.TYPE_STRING
_PACKAGE = "tfrank_sel.serving"

# name of a field -> its type; a wrapper from google.protobuf, a scalar, a list of scalars, or
# another message of this file
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
