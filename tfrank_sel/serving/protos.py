"""Messages of TensorFlow Serving by descriptors of their own, for what must not import TensorFlow.

They have the wire format and the JSON of the messages of tensorflow-serving-api, and other names.
"""

import enum
from collections.abc import Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, wrappers_pb2

FIELD = descriptor_pb2.FieldDescriptorProto
_PACKAGE = "tfrank_sel.serving"


DataType = enum.IntEnum(
    "DataType",
    "DT_INVALID DT_FLOAT DT_DOUBLE DT_INT32 DT_UINT8 DT_INT16 DT_INT8 DT_STRING DT_COMPLEX64 "
    "DT_INT64 DT_BOOL DT_QINT8 DT_QUINT8 DT_QINT32 DT_BFLOAT16 DT_QINT16 DT_QUINT16 DT_UINT16 "
    "DT_COMPLEX128 DT_HALF DT_RESOURCE DT_VARIANT DT_UINT32 DT_UINT64",
    start=0,
)


def message_classes(name: str, messages: Mapping[str, Mapping[str, Any]]) -> dict[str, type[Any]]:
    """Returns classes of messages.

    Args:
        name: Name of the file of these messages.
        messages: The type of each field, or its number and type, by message and field: a scalar, a
            message by name, a wrapper of google.protobuf, `DataType`, a list of one of these, or a
            dict for a map of strings. Other numbers go up from 1.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=name, package=_PACKAGE, syntax="proto3", dependency=[wrappers_pb2.DESCRIPTOR.name]
    )
    if any(DataType in map(_kind, fields.values()) for fields in messages.values()):
        types = file.enum_type.add(name=DataType.__name__)
        for value in DataType:
            types.value.add(name=value.name, number=value)
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        for position, (field_name, kind) in enumerate(fields.items(), 1):
            number = kind[0] if isinstance(kind, tuple) else position
            _add(message, field_name, number, _kind(kind), messages)
    pool = descriptor_pool.Default()
    pool.Add(file)
    return {
        x: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{x}"))
        for x in messages
    }


def _kind(declaration: Any) -> Any:
    return declaration[1] if isinstance(declaration, tuple) else declaration


def _add(message: Any, name: str, number: int, kind: Any, messages: Mapping[str, Any]) -> None:
    field = message.field.add(name=name, number=number, label=FIELD.LABEL_OPTIONAL)
    if isinstance(kind, dict):
        entry_name = f"{name.title().replace('_', '')}Entry"
        entry = message.nested_type.add(name=entry_name)
        entry.options.map_entry = True
        _add(entry, "key", 1, FIELD.TYPE_STRING, messages)
        _add(entry, "value", 2, next(iter(kind.values())), messages)
        field.type, field.label = FIELD.TYPE_MESSAGE, FIELD.LABEL_REPEATED
        field.type_name = f".{_PACKAGE}.{message.name}.{entry_name}"
        return
    if isinstance(kind, list):
        [kind] = kind
        field.label = FIELD.LABEL_REPEATED
    if kind is DataType:
        field.type, field.type_name = FIELD.TYPE_ENUM, f".{_PACKAGE}.{kind.__name__}"
    elif isinstance(kind, str):
        package = _PACKAGE if kind in messages else "google.protobuf"
        field.type, field.type_name = FIELD.TYPE_MESSAGE, f".{package}.{kind}"
    else:
        field.type = kind


_MESSAGES: dict[str, dict[str, Any]] = {
    "Dimension": {"size": FIELD.TYPE_INT64},
    "Shape": {"dim": (2, ["Dimension"]), "unknown_rank": (3, FIELD.TYPE_BOOL)},
    "Tensor": {
        "dtype": DataType,
        "tensor_shape": "Shape",
        "tensor_content": (4, FIELD.TYPE_BYTES),
        "float_val": (5, [FIELD.TYPE_FLOAT]),
        "double_val": (6, [FIELD.TYPE_DOUBLE]),
        "int_val": (7, [FIELD.TYPE_INT32]),
        "string_val": (8, [FIELD.TYPE_BYTES]),
        "int64_val": (10, [FIELD.TYPE_INT64]),
        "bool_val": (11, [FIELD.TYPE_BOOL]),
        "uint32_val": (16, [FIELD.TYPE_UINT32]),
        "uint64_val": (17, [FIELD.TYPE_UINT64]),
    },
    "TensorInfo": {"dtype": (2, DataType), "tensor_shape": (3, "Shape")},
    "Signature": {"inputs": {"": "TensorInfo"}},
    "Signatures": {"signature_def": {"": "Signature"}},
    "ModelSpec": {"name": FIELD.TYPE_STRING, "signature_name": (3, FIELD.TYPE_STRING)},
    "PredictRequest": {
        "model_spec": "ModelSpec",
        "inputs": {"": "Tensor"},
        "output_filter": [FIELD.TYPE_STRING],
    },
    "PredictResponse": {"outputs": {"": "Tensor"}},
    "MetadataRequest": {"model_spec": "ModelSpec", "metadata_field": [FIELD.TYPE_STRING]},
    "Any": {"value": (2, FIELD.TYPE_BYTES)},
    "MetadataResponse": {"metadata": (2, {"": "Any"})},
}
_classes = message_classes("tfrank_sel_serving.proto", _MESSAGES)
MetadataRequest = _classes["MetadataRequest"]
MetadataResponse = _classes["MetadataResponse"]
PredictRequest = _classes["PredictRequest"]
PredictResponse = _classes["PredictResponse"]
Signature = _classes["Signature"]
Signatures = _classes["Signatures"]
