"""Payloads of Sparkplug B: metrics and their values.

Only the fields that are read or written here are declared (Eclipse Sparkplug Specification 3.0,
section 6.4; enumerations of types in 6.4.16). Decoding skips all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tidegate.pipeline.ingest.payloads import RecordInvalid
from tidegate.pipeline.ingest.protobuf_values import short_float

MS_PER_S = 1_000
QUALITY = "Quality"
REBIRTH = "Node Control/Rebirth"


class MetricType(IntEnum):
    """The types of metrics; those that have no name here are arrays."""

    INT8 = 1
    INT16 = 2
    INT32 = 3
    INT64 = 4
    UINT8 = 5
    UINT16 = 6
    UINT32 = 7
    UINT64 = 8
    FLOAT = 9
    DOUBLE = 10
    BOOLEAN = 11
    STRING = 12
    DATETIME = 13
    TEXT = 14
    UUID = 15
    DATASET = 16
    BYTES = 17
    FILE = 18
    TEMPLATE = 19


NAMES = {
    MetricType.INT8: "Int8",
    MetricType.INT16: "Int16",
    MetricType.INT32: "Int32",
    MetricType.INT64: "Int64",
    MetricType.UINT8: "UInt8",
    MetricType.UINT16: "UInt16",
    MetricType.UINT32: "UInt32",
    MetricType.UINT64: "UInt64",
    MetricType.FLOAT: "Float",
    MetricType.DOUBLE: "Double",
    MetricType.BOOLEAN: "Boolean",
    MetricType.STRING: "String",
    MetricType.DATETIME: "DateTime",
    MetricType.TEXT: "Text",
    MetricType.UUID: "UUID",
    MetricType.DATASET: "DataSet",
    MetricType.BYTES: "Bytes",
    MetricType.FILE: "File",
    MetricType.TEMPLATE: "Template",
}
SIGNED_BITS = {
    MetricType.INT8: 8,
    MetricType.INT16: 16,
    MetricType.INT32: 32,
    MetricType.INT64: 64,
}
UNSIGNED_BITS = {
    MetricType.UINT8: 8,
    MetricType.UINT16: 16,
    MetricType.UINT32: 32,
    MetricType.UINT64: 64,
}
WHOLE = ("int_value", "long_value")
MEMBERS = {
    **dict.fromkeys((*SIGNED_BITS, *UNSIGNED_BITS, MetricType.DATETIME), WHOLE),
    MetricType.FLOAT: ("float_value",),
    MetricType.DOUBLE: ("double_value",),
    MetricType.BOOLEAN: ("boolean_value",),
    **dict.fromkeys((MetricType.STRING, MetricType.TEXT, MetricType.UUID), ("string_value",)),
    **dict.fromkeys((MetricType.BYTES, MetricType.FILE), ("bytes_value",)),
}
"""The fields that may hold the value of each type that is read."""

_Field = FieldDescriptorProto


def _declare(message: DescriptorProto, *fields: tuple[int, str, int, str, bool]) -> None:
    for number, name, kind, type_name, is_repeated in fields:
        label = _Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL
        field = message.field.add(name=name, number=number, type=kind, label=label)
        if type_name:
            field.type_name = type_name


def _one(number: int, name: str, kind: int) -> tuple[int, str, int, str, bool]:
    return number, name, kind, "", False


def _payload_class() -> Any:
    file = File(name="sparkplug.proto", package="sparkplug", syntax="proto2")
    _declare(
        file.message_type.add(name="Property"),
        _one(3, "int_value", _Field.TYPE_UINT32),
        _one(4, "long_value", _Field.TYPE_UINT64),
    )
    _declare(
        file.message_type.add(name="Properties"),
        (1, "keys", _Field.TYPE_STRING, "", True),
        (2, "values", _Field.TYPE_MESSAGE, ".sparkplug.Property", True),
    )
    _declare(
        file.message_type.add(name="Metric"),
        _one(1, "name", _Field.TYPE_STRING),
        _one(2, "alias", _Field.TYPE_UINT64),
        _one(3, "timestamp", _Field.TYPE_UINT64),
        _one(4, "datatype", _Field.TYPE_UINT32),
        _one(5, "is_historical", _Field.TYPE_BOOL),
        _one(7, "is_null", _Field.TYPE_BOOL),
        (9, "properties", _Field.TYPE_MESSAGE, ".sparkplug.Properties", False),
        _one(10, "int_value", _Field.TYPE_UINT32),
        _one(11, "long_value", _Field.TYPE_UINT64),
        _one(12, "float_value", _Field.TYPE_FLOAT),
        _one(13, "double_value", _Field.TYPE_DOUBLE),
        _one(14, "boolean_value", _Field.TYPE_BOOL),
        _one(15, "string_value", _Field.TYPE_STRING),
        _one(16, "bytes_value", _Field.TYPE_BYTES),
    )
    _declare(
        file.message_type.add(name="Payload"),
        _one(1, "timestamp", _Field.TYPE_UINT64),
        (2, "metrics", _Field.TYPE_MESSAGE, ".sparkplug.Metric", True),
        _one(3, "seq", _Field.TYPE_UINT64),
    )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("sparkplug.Payload"))


_Payload: Any = _payload_class()


@dataclass(frozen=True, slots=True)
class Payload:
    """A decoded payload; `seq` and `timestamp_ms` are None where it has none."""

    metrics: list[Any]
    seq: int | None
    timestamp_ms: int | None


def read_payload(content: bytes) -> Payload:
    """Decode a payload.

    Raises:
        RecordInvalid: it is none.
    """
    try:
        found = _Payload.FromString(content)
    except DecodeError as error:
        raise RecordInvalid(f"no payload of Sparkplug B: {error}") from None
    return Payload(
        list(found.metrics),
        found.seq if found.HasField("seq") else None,
        found.timestamp if found.HasField("timestamp") else None,
    )


def rebirth_request(now_ms: int) -> bytes:
    """Return the payload of a command that asks an edge node for its births."""
    request = _Payload(timestamp=now_ms)
    kind = MetricType.BOOLEAN
    request.metrics.add(name=REBIRTH, datatype=kind, timestamp=now_ms, boolean_value=True)
    content: bytes = request.SerializeToString()
    return content


def type_name(datatype: int) -> str:
    """Return the name of a type; of an array its number."""
    return NAMES[MetricType(datatype)] if datatype in NAMES else f"type {datatype}"


def metric_value(metric: Any, datatype: int) -> Any:
    """Return the value of a metric for JSON; bytes and times as its encoder wants them.

    Raises:
        RecordInvalid: it has none of its type, or the type is not read.
    """
    if metric.is_null:
        return None
    if datatype not in MEMBERS:
        raise RecordInvalid(f"a metric of {type_name(datatype)}, which is not read")
    kind = MetricType(datatype)
    member = next((each for each in MEMBERS[kind] if metric.HasField(each)), None)
    if member is None:
        raise RecordInvalid(f"the metric has no value of {NAMES[kind]}")
    found = getattr(metric, member)
    if kind in SIGNED_BITS:
        half = 1 << (SIGNED_BITS[kind] - 1)
        return ((found & (2 * half - 1)) ^ half) - half
    if kind in UNSIGNED_BITS:
        return found & ((1 << UNSIGNED_BITS[kind]) - 1)
    if kind is MetricType.FLOAT:
        return short_float(found)
    if kind is MetricType.DATETIME:
        return _time(found)
    return found


def quality_of(metric: Any) -> int | None:
    """Return the quality that a metric says it has, such as 192 for good; else None."""
    properties = metric.properties
    for key, found in zip(properties.keys, properties.values, strict=False):
        if key == QUALITY:
            return int(found.int_value or found.long_value)
    return None


def _time(milliseconds: int) -> datetime:
    try:
        return datetime.fromtimestamp(milliseconds / MS_PER_S, UTC)
    except (OverflowError, ValueError, OSError):
        raise RecordInvalid(f"a time beyond the year 9999: {milliseconds} ms") from None
