"""Messages of TensorFlow Serving by descriptors of their own, for what must not import TensorFlow.

They have the wire format and the JSON of the messages of tensorflow-serving-api, and other names.
"""

import enum
import importlib.resources
from typing import Any

from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    text_format,
    wrappers_pb2,
)

DataType = enum.IntEnum(
    "DataType",
    "DT_INVALID DT_FLOAT DT_DOUBLE DT_INT32 DT_UINT8 DT_INT16 DT_INT8 DT_STRING DT_COMPLEX64 "
    "DT_INT64 DT_BOOL DT_QINT8 DT_QUINT8 DT_QINT32 DT_BFLOAT16 DT_QINT16 DT_QUINT16 DT_UINT16 "
    "DT_COMPLEX128 DT_HALF DT_RESOURCE DT_VARIANT DT_UINT32 DT_UINT64",
    start=0,
)


_file = text_format.Parse(
    (importlib.resources.files(__package__) / "messages.pbtxt").read_text(encoding="utf-8"),
    descriptor_pb2.FileDescriptorProto(dependency=[wrappers_pb2.DESCRIPTOR.name]),
)
_types = _file.enum_type.add(name=DataType.__name__)
for _type in DataType:
    _types.value.add(name=_type.name, number=_type)
descriptor_pool.Default().Add(_file)


def message_class(name: str) -> type[Any]:
    """Returns the class of a message of `messages.pbtxt`."""
    descriptor = descriptor_pool.Default().FindMessageTypeByName(f"{_file.package}.{name}")
    return message_factory.GetMessageClass(descriptor)


MetadataRequest = message_class("MetadataRequest")
MetadataResponse = message_class("MetadataResponse")
PredictRequest = message_class("PredictRequest")
PredictResponse = message_class("PredictResponse")
Signature = message_class("Signature")
Signatures = message_class("Signatures")
