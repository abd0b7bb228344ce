"""Messages of Protobuf as JSON values.

As the JSON format of Protobuf (protobuf.dev, "ProtoJSON Format") with three differences: names are
those of the `.proto` file, 64-bit integers are numbers, and a field without presence is always
there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error, MessageToDict
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from tidegate.pipeline.ingest.payloads import RecordInvalid

Convert = Callable[[Any], Any]

DECIMAL = "confluent.type.Decimal"
ANY = "google.protobuf.Any"
FLOAT_DIGITS_MIN = 6
FLOAT_DIGITS_MAX = 9
_FLOAT = struct.Struct("<f")


def short_float(number: float) -> float:
    """Return the number with the fewest digits, at least six, that is the same 32-bit float."""
    stored = _FLOAT.pack(number)
    for digits in range(FLOAT_DIGITS_MIN, FLOAT_DIGITS_MAX + 1):
        short = float(f"{number:.{digits}g}")
        if _FLOAT.pack(short) == stored:
            return short
    return number  # NaN, whose bits may differ


def _decimal(message: Any) -> Decimal:
    unscaled = int.from_bytes(message.value, "big", signed=True)
    digits = tuple(map(int, str(abs(unscaled))))
    # Of its parts: arithmetic would round to the precision of the context.
    return Decimal((int(unscaled < 0), digits, -message.scale))


WELL_KNOWN: dict[str, Convert] = {
    DECIMAL: _decimal,
    "google.protobuf.Duration": lambda message: message.ToJsonString(),
    "google.protobuf.FieldMask": lambda message: message.ToJsonString(),
    "google.protobuf.Timestamp": lambda message: message.ToJsonString(),
    "google.protobuf.ListValue": MessageToDict,
    "google.protobuf.Struct": MessageToDict,
    "google.protobuf.Value": MessageToDict,
    "google.protobuf.BoolValue": lambda message: message.value,
    "google.protobuf.BytesValue": lambda message: message.value,
    "google.protobuf.DoubleValue": lambda message: message.value,
    "google.protobuf.FloatValue": lambda message: short_float(message.value),
    "google.protobuf.Int32Value": lambda message: message.value,
    "google.protobuf.Int64Value": lambda message: message.value,
    "google.protobuf.StringValue": lambda message: message.value,
    "google.protobuf.UInt32Value": lambda message: message.value,
    "google.protobuf.UInt64Value": lambda message: message.value,
}
"""Types whose JSON is not an object of their fields."""


class MessageConverter:
    """Converts messages of one pool; bytes stay bytes, which the encoder of JSON makes base64."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool
        self._fields: dict[str, list[tuple[FieldDescriptor, Convert]]] = {}

    def value(self, message: Any) -> Any:
        """Return a message as a JSON value.

        Raises:
            RecordInvalid: JSON has nothing for it, such as for a time in the year 10000.
        """
        try:
            return self._message(message)
        except (ValueError, Error) as error:  # of the types above
            raise RecordInvalid(f"a value that JSON lacks: {error}") from None

    def _message(self, message: Any) -> Any:
        name = message.DESCRIPTOR.full_name
        if name in WELL_KNOWN:
            return WELL_KNOWN[name](message)
        if name == ANY:
            return self._any(message)
        if name not in self._fields:
            fields = message.DESCRIPTOR.fields
            self._fields[name] = [(field, self._field_converter(field)) for field in fields]
        return {
            field.name: convert(getattr(message, field.name))
            for field, convert in self._fields[name]
            if not field.has_presence or message.HasField(field.name)
        }

    def _any(self, message: Any) -> dict[str, Any]:
        """Return what an Any has inside, with its type's address as `@type`."""
        address = message.type_url
        try:
            kind = GetMessageClass(self._pool.FindMessageTypeByName(address.rpartition("/")[2]))
            inner = self._message(kind.FromString(message.value))
        except KeyError:
            raise RecordInvalid(f"an Any of the type {address}, which the schema lacks") from None
        except DecodeError as error:
            raise RecordInvalid(f"an Any that is not {address}: {error}") from None
        fields = inner if isinstance(inner, dict) else {"value": inner}
        return {"@type": address, **fields}

    def _field_converter(self, field: FieldDescriptor) -> Convert:
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            of_value = self._one_converter(kind.fields_by_name["value"])
            return lambda found: {_member(key): of_value(found[key]) for key in found}
        of_one = self._one_converter(field)
        if field.is_repeated:
            return lambda found: [of_one(each) for each in found]
        return of_one

    def _one_converter(self, field: FieldDescriptor) -> Convert:
        """Return what converts one value of a field."""
        if field.message_type is not None:
            return self._message
        if field.enum_type is not None:
            names = {number: it.name for number, it in field.enum_type.values_by_number.items()}
            # An open enum may have numbers of a later schema.
            return lambda number: names.get(number, number)
        if field.type == FieldDescriptor.TYPE_FLOAT:
            return short_float
        return _same


def _same(found: Any) -> Any:
    return found


def _member(map_key: Any) -> str:
    return str(map_key).lower() if isinstance(map_key, bool) else str(map_key)
