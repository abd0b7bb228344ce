"""Payloads of Sparkplug B: metrics and their values.

Only the fields that are read or written here are declared (Eclipse Sparkplug Specification 3.0,
section 6.4). Decoding skips all others.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import UTC, datetime
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

TYPES = (
    "Unknown",
    "Int8",
    "Int16",
    "Int32",
    "Int64",
    "UInt8",
    "UInt16",
    "UInt32",
    "UInt64",
    "Float",
    "Double",
    "Boolean",
    "String",
    "DateTime",
    "Text",
    "UUID",
    "DataSet",
    "Bytes",
    "File",
    "Template",
    "PropertySet",
    "PropertySetList",
    "Int8Array",
    "Int16Array",
    "Int32Array",
    "Int64Array",
    "UInt8Array",
    "UInt16Array",
    "UInt32Array",
    "UInt64Array",
    "FloatArray",
    "DoubleArray",
    "BooleanArray",
    "StringArray",
    "DateTimeArray",
)
"""The names of types, by their numbers."""
BOOLEAN = TYPES.index("Boolean")
SIGNED_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64}
UNSIGNED_BITS = {"UInt8": 8, "UInt16": 16, "UInt32": 32, "UInt64": 64}
ITEMS = {
    "Int8Array": "<b",
    "Int16Array": "<h",
    "Int32Array": "<i",
    "Int64Array": "<q",
    "UInt8Array": "<B",
    "UInt16Array": "<H",
    "UInt32Array": "<I",
    "UInt64Array": "<Q",
    "FloatArray": "<f",
    "DoubleArray": "<d",
    "DateTimeArray": "<q",
}
"""How the items of arrays are written, one after the other."""
COUNT = struct.Struct("<I")
"""Before the bits of an array of booleans, from the highest bit of each byte."""
MEMBERS = {
    **dict.fromkeys((*SIGNED_BITS, *UNSIGNED_BITS, "DateTime"), ("int_value", "long_value")),
    "Float": ("float_value",),
    "Double": ("double_value",),
    "Boolean": ("boolean_value",),
    **dict.fromkeys(("String", "Text", "UUID"), ("string_value",)),
    **dict.fromkeys(("Bytes", "File", *ITEMS, "BooleanArray", "StringArray"), ("bytes_value",)),
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
    request.metrics.add(name=REBIRTH, datatype=BOOLEAN, timestamp=now_ms, boolean_value=True)
    content: bytes = request.SerializeToString()
    return content


def type_name(number: int) -> str:
    """Return the name of a type."""
    return TYPES[number] if number < len(TYPES) else f"type {number}"


def metric_value(metric: Any, kind: str) -> Any:
    """Return the value of a metric for JSON; bytes and times as its encoder wants them.

    Raises:
        RecordInvalid: it has none of its type, or the type is not read.
    """
    if metric.is_null:
        return None
    if kind not in MEMBERS:
        raise RecordInvalid(f"a metric of {kind}, which is not read")
    member = next((each for each in MEMBERS[kind] if metric.HasField(each)), None)
    if member is None:
        raise RecordInvalid(f"the metric has no value of {kind}")
    found = getattr(metric, member)
    if kind in SIGNED_BITS:
        half = 1 << (SIGNED_BITS[kind] - 1)
        return ((found & (2 * half - 1)) ^ half) - half
    if kind in UNSIGNED_BITS:
        return found & ((1 << UNSIGNED_BITS[kind]) - 1)
    if kind.endswith("Array"):
        return _array(found, kind)
    return _single(found, kind)


def _single(found: Any, kind: str) -> Any:
    match kind.removesuffix("Array"):
        case "Float":
            return short_float(found)
        case "DateTime":
            return _time(found)
    return found


def _array(content: bytes, kind: str) -> list[Any]:
    try:
        if kind == "BooleanArray":
            [count] = COUNT.unpack_from(content)
            bits = content[COUNT.size :]
            return [bool(bits[at // 8] & (0x80 >> at % 8)) for at in range(count)]
        if kind == "StringArray":
            return content.decode().split("\0")[:-1]
        return [_single(each, kind) for (each,) in struct.iter_unpack(ITEMS[kind], content)]
    except (struct.error, IndexError, UnicodeDecodeError):
        raise RecordInvalid(f"the metric has no value of {kind}") from None


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
