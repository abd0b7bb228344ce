"""The columns of a value in Parquet, as a definition names them or as a JSON Schema declares them.

A column keeps each value exactly, or refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from tidegate.pipeline.definitions.toml import TomlTable
from tidegate.pipeline.errors import DefinitionInvalid

TYPES = (
    "bool, int64, float64, string, timestamp, date, or decimal(PRECISION, SCALE) with at most 38 "
    "digits"
)
INT64 = range(-(2**63), 2**63)
UINT64 = range(2**64)
DIGITS_MAX = 38
TIMESTAMP = pa.timestamp("us", tz="UTC")
JSON_METADATA = {"content-type": "application/json"}
"""Of a column of JSON texts, as in the gateway's Arrow streams."""
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}), ?([0-9]{1,2})\)")
_BELOW_MICROSECONDS = re.compile(r"\.[0-9]{6}0*[1-9]")
_TIME_WITH_ZONE = Annotated[datetime, msgspec.Meta(tz=True)]


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the value that has a column of its own.

    `convert` returns what the column has for a JSON text that is not null.
    """

    name: str
    type: pa.DataType
    convert: Callable[[bytes], Any]
    is_json: bool = False

    @property
    def field(self) -> pa.Field:
        """The column of Arrow."""
        return pa.field(self.name, self.type, metadata=JSON_METADATA if self.is_json else None)

    def read(self, text: bytes) -> Any:
        """Return the value of a JSON text for this column.

        Raises:
            ValueError: it is of another type, or would be rounded.
        """
        if text == b"null":
            return None
        try:
            return self.convert(text)
        except (ValueError, ArithmeticError, pa.ArrowInvalid):  # msgspec's are of the first kind
            raise ValueError(f"its {self.name} is not of type {self.type}") from None


def json_column(name: str) -> Column:
    """Return a column of JSON texts."""
    return Column(name, pa.string(), bytes.decode, is_json=True)


def named_columns(table: TomlTable) -> tuple[Column, ...]:
    """Read the table `columns` of a definition: a type for each field."""
    return tuple(_named_column(table, name) for name in table.left)


def declared_columns(schema: object) -> tuple[Column, ...]:
    """Return a column for each field that a JSON Schema declares; none for other schemas.

    A field whose type keeps no value exactly, or that may have several, is a JSON text.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return tuple(
        _declared_column(name, field if isinstance(field, dict) else {})
        for name, field in (properties or {}).items()
        if not name.startswith("_")  # those of the envelope do
    )


def _named_column(table: TomlTable, name: str) -> Column:
    text = table.text(name, expected=TYPES)
    if name.startswith("_"):
        raise DefinitionInvalid(f"{table.where(name)}: columns of the envelope begin with _")
    match text:
        case "bool":
            return _bool(name)
        case "int64":
            return _integer(name, pa.int64(), INT64)
        case "float64":
            return _double(name)
        case "string":
            return _string(name)
        case "timestamp":
            return _timestamp(name)
        case "date":
            return _date(name)
    found = _DECIMAL.fullmatch(text)
    if found is None or not int(found[2]) <= int(found[1]) <= DIGITS_MAX or not int(found[1]):
        raise table.wrong(name, TYPES, text)
    return _decimal(name, int(found[1]), int(found[2]))


def _declared_column(name: str, field: Mapping[str, Any]) -> Column:
    types = field.get("type")
    kinds = {*([types] if isinstance(types, str) else types or ())} - {"null"}
    if kinds == {"integer", "number"}:
        kinds = {"number"}
    if len(kinds) != 1:
        return json_column(name)
    match kinds.pop():
        case "boolean":
            return _bool(name)
        case "string":
            made = {"date-time": _timestamp, "date": _date}.get(field.get("format", ""), _string)
            return made(name)
        case "integer":
            return _declared_integer(name, field)
        case "number":
            return _declared_number(name, field)
    return json_column(name)


def _declared_integer(name: str, field: Mapping[str, Any]) -> Column:
    least = field.get("minimum", field.get("exclusiveMinimum", INT64[0]))
    greatest = field.get("maximum", field.get("exclusiveMaximum", INT64[-1]))
    if least >= INT64[0] and greatest <= INT64.stop:
        return _integer(name, pa.int64(), INT64)
    if least >= 0 and greatest <= UINT64.stop:
        return _integer(name, pa.uint64(), UINT64)
    return _decimal(name, DIGITS_MAX, 0)


def _declared_number(name: str, field: Mapping[str, Any]) -> Column:
    if "multipleOf" not in field:
        return _double(name)
    exponent = Decimal(repr(field["multipleOf"])).normalize().as_tuple().exponent
    assert isinstance(exponent, int), "a number of JSON is finite"
    if exponent >= 0:
        return _declared_integer(name, field)
    return _decimal(name, DIGITS_MAX, -exponent) if -exponent <= DIGITS_MAX else json_column(name)


def _bool(name: str) -> Column:
    return Column(name, pa.bool_(), lambda text: msgspec.json.decode(text, type=bool))


def _string(name: str) -> Column:
    return Column(name, pa.string(), lambda text: msgspec.json.decode(text, type=str))


def _date(name: str) -> Column:
    return Column(name, pa.date32(), lambda text: msgspec.json.decode(text, type=date))


def _timestamp(name: str) -> Column:
    def convert(text: bytes) -> datetime:
        found = msgspec.json.decode(text, type=str)
        if _BELOW_MICROSECONDS.search(found):
            raise ValueError("it would be rounded")
        # Here, and not when a file is written: the first hours of the year 1 may have no UTC.
        return msgspec.convert(found, _TIME_WITH_ZONE).astimezone(UTC)

    return Column(name, TIMESTAMP, convert)


def _integer(name: str, column_type: pa.DataType, bounds: range) -> Column:
    def convert(text: bytes) -> int:
        found = _number(text)
        # Compared before it is an integer: 1e999999999 would be one of a gigabyte.
        if not bounds[0] <= found <= bounds[-1] or found % 1:
            raise ValueError("it is no such integer")
        return int(found)

    return Column(name, column_type, convert)


def _double(name: str) -> Column:
    def convert(text: bytes) -> float:
        found = msgspec.json.decode(text, type=float)
        if Decimal(repr(found)) != _number(text):
            raise ValueError("it would be rounded")
        return found

    return Column(name, pa.float64(), convert)


def _decimal(name: str, precision: int, scale: int) -> Column:
    column_type = pa.decimal128(precision, scale)

    def convert(text: bytes) -> Decimal:
        # A text is a number, too. Only the column knows whether it has too many digits.
        found: Decimal = pa.scalar(msgspec.json.decode(text, type=Decimal), column_type).as_py()
        return found

    return Column(name, column_type, convert)


def _number(text: bytes) -> Decimal:
    if text.startswith(b'"'):
        raise ValueError("a text is no number")
    return msgspec.json.decode(text, type=Decimal)
