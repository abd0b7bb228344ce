"""Writes rows of columns as JSON objects, thousands at once, with the text of Spark's `to_json`.

A *kind* is a type as in Spark's `StructType.json`: a name, or a table for a nested type. Nulls are
left out, and times have six digits of microseconds, so that texts sort as times do.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Sequence
from datetime import MAXYEAR, date, timedelta
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.intervals import Column

Kind = str | dict[str, Any]
Part = Any  # a text for all rows, or an array with one for each

SHOWN_MAX = 200
_TYPES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_MARKED = ("string", "binary", "date", "timestamp", "timestamp_ntz")


class Field(NamedTuple):
    """A column of a row."""

    name: str
    kind: Kind


def arrow_type(kind: str) -> pa.DataType:
    """Return Arrow's type for a kind that is not nested."""
    decimal = _DECIMAL.fullmatch(kind)
    return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES[kind]


# --- objects


def objects_of(
    fields: Sequence[Field], columns: Sequence[pa.Array], folder_fields: str = ""
) -> pa.Array:
    """Return an object for each row; `folder_fields`: more fields of each, as `"day":7`."""
    parts: list[Part] = []
    for field, column in zip(fields, columns, strict=True):
        texts = texts_of(field.kind, column)
        mark = _mark(field.kind)
        pair = [f",{quoted(field.name)}:{mark}", texts, mark]
        # A null makes its whole pair null, which the object leaves out.
        parts += [joined(*pair)] if texts.null_count else pair
    ending = f",{folder_fields}}}" if folder_fields else "}"
    pairs = pc.binary_join_element_wise(*parts, ending, "", null_handling="skip")
    # Any pair may be the first, so each begins with a comma; the brace replaces the first one.
    objects = pc.binary_replace_slice(pairs, 0, 1, "{")
    return objects if folder_fields else pc.if_else(pc.equal(pairs, ending), "{}", objects)


def joined(*parts: Part) -> pa.Array:
    """Return parts one after the other; null where one of them is."""
    return pc.binary_join_element_wise(*parts, "")


# --- values


def texts_of(kind: Kind, column: pa.Array) -> pa.Array:
    """Return values as JSON, null where they are; strings without quotation marks."""
    if isinstance(kind, dict):
        return _NESTED[kind["type"]](kind, column)
    values = column.cast(arrow_type(kind))
    match kind:
        case "string":
            return escaped(values)
        case "binary":
            encoded = [v if v is None else base64.b64encode(v).decode() for v in values.to_pylist()]
            return pa.array(encoded, pa.string())
        case "float" | "double":
            return _numbers(values)
        case "date":
            return _days(values)
        case "timestamp" | "timestamp_ntz":
            times = values.cast(pa.time64("us")).cast(pa.string())
            zone = "Z" if kind == "timestamp" else ""
            return joined(_days(values.cast(pa.date32())), "T", times, zone)
        case _:
            return values.cast(pa.string())


def _whole(kind: Kind, column: pa.Array) -> pa.Array:
    return joined(_mark(kind), texts_of(kind, column), _mark(kind))


def _mark(kind: Kind) -> str:
    return '"' if kind in _MARKED else ""


def _of_struct(kind: dict[str, Any], column: pa.Array) -> pa.Array:
    fields = [Field(each["name"], each["type"]) for each in kind["fields"]]
    found = {name.lower(): at for at, name in enumerate(column.type.names)}
    given, columns = column.flatten(), []
    for field in fields:
        at = found.get(field.name.lower())
        columns.append(pa.nulls(len(column)) if at is None else given[at])
    return pc.if_else(column.is_valid(), objects_of(fields, columns), None)


def _of_array(kind: dict[str, Any], column: pa.Array) -> pa.Array:
    texts = pc.fill_null(_whole(kind["elementType"], column.flatten()), "null")
    return _enclosed(column, texts, "[]")


def _of_map(kind: dict[str, Any], column: pa.Array) -> pa.Array:
    entries = column.cast(_as_list(column.type)).flatten()
    keys, values = entries.flatten()
    if kind["keyType"] in {"date", "timestamp", "timestamp_ntz"}:  # Spark writes what it stores
        stored = pa.int32() if kind["keyType"] == "date" else pa.int64()
        names = keys.cast(arrow_type(kind["keyType"])).cast(stored).cast(pa.string())
    else:
        names = texts_of(kind["keyType"], keys)
    values = pc.fill_null(_whole(kind["valueType"], values), "null")
    return _enclosed(column, joined('"', names, '":', values), "{}")


def _as_list(kind: pa.MapType) -> pa.DataType:
    entry = pa.struct([pa.field("key", kind.key_type, False), pa.field("value", kind.item_type)])
    return pa.list_(pa.field("entries", entry, False))


def _enclosed(column: pa.Array, texts: pa.Array, marks: str) -> pa.Array:
    """Return the texts of each row of a nested column as one, between two marks."""
    lengths = pc.fill_null(_lengths(column), 0)
    offsets = np.append(0, np.cumsum(np.asarray(lengths))).astype(np.int32)
    lists = pa.ListArray.from_arrays(pa.array(offsets), texts)
    whole = joined(marks[0], pc.binary_join(lists, ","), marks[1])
    return pc.if_else(column.is_valid(), whole, None)


def _lengths(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.MapArray):
        column = column.cast(_as_list(column.type))
    return pc.list_value_length(column)


_NESTED = {"struct": _of_struct, "array": _of_array, "map": _of_map}

# --- dates: Arrow writes those of Python's calendar as Java does

_FIRST, _LAST = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, in days since 1970
_YEARS, _DAYS, _AFTER = 400, 146_097, 10_957  # the calendar's period; and 2000-01-01


def _days(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    days = np.asarray(values.cast(pa.int32()).fill_null(0))
    is_far = (days < _FIRST) | (days > _LAST)
    if not is_far.any():
        return texts
    far = pa.array(map(_far_day, days[is_far].tolist()), pa.string())
    return pc.replace_with_mask(texts, pa.array(is_far), far)


def _far_day(days: int) -> str:
    periods, rest = divmod(days - _AFTER, _DAYS)
    alike = date(2000, 1, 1) + timedelta(days=rest)
    year = alike.year + periods * _YEARS
    sign = "-" if year < 0 else "+" if year > MAXYEAR else ""
    return f"{sign}{abs(year):04}-{alike:%m-%d}"


# --- texts in JSON

_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_ESCAPED = re.compile(_NEEDS_ESCAPE)
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def quoted(text: str) -> str:
    """Return a text as a string of JSON."""
    return f'"{_escape(text)}"'


def escaped(texts: pa.Array) -> pa.Array:
    """Return texts as they stand between the quotation marks of JSON."""
    texts = _in_utf_8(texts)
    _, _, content = texts.buffers()
    if content is None:
        return texts
    # Over all bytes at once: rows are looked at only if one of them needs it.
    octets = np.frombuffer(content, np.uint8)
    if not ((octets < ord(" ")) | (octets == ord('"')) | (octets == ord("\\"))).any():
        return texts
    is_odd = pc.fill_null(pc.match_substring_regex(texts, _NEEDS_ESCAPE), False)
    odd = [_escape(text) for text in texts.filter(is_odd).to_pylist()]
    return pc.replace_with_mask(texts, is_odd, pa.array(odd, pa.string()))


def _escape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _SHORT.get(found[0]) or f"\\u{ord(found[0]):04X}", text)


def _in_utf_8(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        said = texts.view(pa.binary()).to_pylist()
        whole = [each if each is None else each.decode(errors="replace") for each in said]
        return pa.array(whole, pa.string())
    return texts


# --- numbers as Java writes them: 2.0, 1.5E7, 9.9E-4


_SIGNIFICANT_BITS = {pa.float32(): 24, pa.float64(): 53}
_LONG = float(1 << 63)


def _numbers(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.string())
    size = np.abs(np.asarray(values.cast(pa.float64()).fill_null(0)))
    is_whole = pc.invert(pc.match_substring(texts, "."))
    texts = pc.if_else(is_whole, joined(texts, ".0"), texts)
    is_plain = ((size >= 1e-3) & (size < 1e7)) | (size == 0)
    if is_plain.all():
        return texts
    odd = pa.array(~is_plain)
    there = values.filter(odd)
    bits = _SIGNIFICANT_BITS[values.type]
    pairs = zip(there.to_pylist(), there.cast(pa.string()).to_pylist(), strict=True)
    said = [_scientific(text, _whole_digits(value, bits)) for value, text in pairs]
    return pc.replace_with_mask(texts, odd, pa.array(said, pa.string()))


def _whole_digits(value: float, bits: int) -> str | None:
    """Return the digits of a whole number as Java 17 rounds them; None where it is none."""
    if not math.isfinite(value) or value % 1 or abs(value) >= _LONG:
        return None
    whole = int(abs(value))
    # It leaves off the digits that bits below the last significant one would decide.
    beyond = whole.bit_length() - bits - 2
    unit = 10 ** (len(str(1 << beyond)) - 1) if beyond > 1 else 1
    return str((whole + unit // 2) // unit * unit)


def _scientific(text: str, whole_digits: str | None) -> str:
    """Return a number with one digit before its point, or a name in quotation marks."""
    sign = "-" if text.startswith("-") else ""
    if text.endswith(("nan", "inf")):
        return '"NaN"' if text.endswith("nan") else f'"{sign}Infinity"'
    mantissa, _, exponent = (whole_digits or text.removeprefix("-")).partition("e")
    whole, _, part = mantissa.partition(".")
    digits = (whole + part).lstrip("0")
    # The place of the first digit that counts, from the point.
    place = int(exponent or 0) + len(whole) - 1 - (len(whole + part) - len(digits))
    digits = digits.rstrip("0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{place}"


# --- numbers that JSON lacks


def beyond_json(fields: Sequence[Field], columns: Sequence[pa.Array]) -> pa.Array | None:
    """Return of each row which column has NaN or an infinity, as a reason; None if none has."""
    found: list[str | None] = []
    for field, column in zip(fields, columns, strict=True):
        is_beyond = _is_beyond(field.kind, column)
        if is_beyond is not None and is_beyond.any():
            found = found or [None] * len(column)
            reason = f"{field.name[:SHOWN_MAX]} is NaN or infinite"
            for at in np.flatnonzero(is_beyond).tolist():
                found[at] = found[at] or reason
    return pa.array(found, pa.string()) if found else None


def _is_beyond(kind: Kind, column: pa.Array) -> Column | None:
    """Return of each row whether it has such a number; None if there can be none."""
    if kind in ("float", "double"):
        is_finite: Column = np.isfinite(np.asarray(column.cast(pa.float64()).fill_null(0)))
        return ~is_finite
    if isinstance(kind, str) or column.null_count == len(column):
        return None
    if kind["type"] == "struct":
        names = {name.lower(): at for at, name in enumerate(column.type.names)}
        given = column.flatten()
        inside = [
            _is_beyond(each["type"], given[names[each["name"].lower()]])
            for each in kind["fields"]
            if each["name"].lower() in names
        ]
        there = [each for each in inside if each is not None]
        return np.logical_or.reduce(there) if there else None
    if isinstance(column, pa.MapArray):
        column = column.cast(_as_list(column.type))
        values = column.flatten().flatten()[1]
    else:
        values = column.flatten()
    inside_values = _is_beyond(
        kind["elementType" if "elementType" in kind else "valueType"], values
    )
    if inside_values is None:
        return None
    rows = np.zeros(len(column), np.bool_)
    rows[np.asarray(pc.list_parent_indices(column))[inside_values]] = True
    return rows
