"""Cells of CSV as values, a column at once: what Spark's parser takes, and nothing else.

Arrow reads the usual spellings. A column with another one, such as `+1`, `1,000.50` or
`2024-1-2 3:04:05 PST`, is read cell by cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.pipeline.files.objects import arrow_type
from tidegate.pipeline.intervals import Column

Parser = Callable[[str], object]


def values_of(kind: str, cells: pa.Array) -> tuple[pa.Array, Column]:
    """Return the values of cells, and which cells are no such values; null stays null."""
    try:
        values = _at_once(kind, cells)
    except pa.ArrowInvalid:
        values = _one_by_one(kind, cells)
    return values, np.asarray(values.is_null()) & np.asarray(cells.is_valid())


def _at_once(kind: str, cells: pa.Array) -> pa.Array:
    """Return the values if all cells are usual ones.

    Raises:
        ArrowInvalid: one is not.
    """
    match kind:
        case "string":
            return cells
        case "boolean":
            found = pc.index_in(pc.utf8_lower(cells), pa.array(["false", "true"]))
            return found.cast(pa.bool_())  # null for any other
        case "float" | "double":
            values = cells.cast(arrow_type(kind))
            if pc.all(pc.is_finite(values)).as_py() is False:
                raise pa.ArrowInvalid("Arrow knows other names of NaN and infinity")
            return values
        case "timestamp":
            try:
                return cells.cast(arrow_type(kind))
            except pa.ArrowInvalid:
                values = cells.cast(pa.timestamp("us", "UTC")).cast(arrow_type(kind))
                if pc.all(pc.match_substring_regex(cells, _USUAL_ZONE)).as_py() is False:
                    raise
                return values
        case _:
            # Arrow takes hexadecimal integers, and makes others of decimals with great exponents.
            if pc.any(pc.match_substring_regex(cells, "[xXeE]")).as_py():
                raise pa.ArrowInvalid("not all are plain")
            return cells.cast(arrow_type(kind))


def _one_by_one(kind: str, cells: pa.Array) -> pa.Array:
    decimal = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    parse: Parser
    if decimal:
        parse = partial(_decimal, precision=int(decimal[1]), scale=int(decimal[2]))
    else:
        parse = _PARSERS[kind]
    values: list[object] = []
    for cell in cells.to_pylist():
        try:
            values.append(None if cell is None else parse(cell))
        except (ValueError, OverflowError, InvalidOperation):
            values.append(None)
    wanted = arrow_type(kind)
    stored = {"date": pa.int32(), "timestamp": pa.int64()}.get(kind, wanted)
    return pa.array(values, stored).cast(wanted)


# --- numbers, as Java reads them

_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_HEXADECIMAL = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_BEYOND = {"NaN": "nan", "Infinity": "inf", "Inf": "inf", "-Inf": "-inf"}
_BEYOND |= {f"{sign}{name}": f"{sign}{name}" for sign in "+-" for name in ("NaN", "Infinity")}
_CONTROLS = "".join(map(chr, range(ord(" ") + 1)))
# Enough for every number that a line can hold: only `quantize` may round.
_EXACT = Context(prec=2_000_000, Emax=999_999, Emin=-999_999)


def _integer(bits: int, cell: str) -> int:
    if not _INTEGER.fullmatch(cell):
        raise ValueError(cell)
    value = int(cell)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise OverflowError(cell)
    return value


def _number(kind: pa.DataType, cell: str) -> float:
    if cell in _BEYOND:
        return float(_BEYOND[cell])
    text = cell.strip(_CONTROLS)
    if text.lstrip("+-") in {"NaN", "Infinity"} and len(text) - len(text.lstrip("+-")) < 2:
        return float(text)
    if found := _HEXADECIMAL.fullmatch(text):
        return (
            float(np.float32(float.fromhex(found[1])))
            if kind == pa.float32()
            else float.fromhex(found[1])
        )
    found = _FLOAT.fullmatch(text)
    if found is None:
        raise ValueError(cell)
    # By Arrow: by way of Python's float a number of 32 bits would be rounded twice.
    value: float = pa.scalar(found[1]).cast(kind).as_py()
    return value


def _decimal(cell: str, precision: int, scale: int) -> Decimal:
    text = cell.replace(",", "")
    if not _DECIMAL.fullmatch(text):
        raise ValueError(cell)
    value = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
    if len(value.as_tuple().digits) > precision:
        raise OverflowError(cell)
    return value


def _boolean(cell: str) -> bool:
    if cell.lower() not in {"true", "false"}:
        raise ValueError(cell)
    return cell.lower() == "true"


# --- dates and times; a time without a zone is one of UTC

_DATE = re.compile(r"([+-]?)([0-9]{4,7})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIME = re.compile(
    r"([+-]?)([0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[ T]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]*))?([^0-9.].*)?)?)?)?)?)?",
    re.DOTALL,
)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(\d\d?(?![\d:])|\d\d)(?:(:?)(\d\d)(?:\3(\d\d))?)?", re.ASCII
)
_USUAL_ZONE = r":\d\d:\d\d(?:\.\d+)?(?:Z|[+-](?:0\d|1[0-7])(?::?\d\d)?)$"  # Arrow takes more
_OFFSET_MAX = timedelta(hours=18)
_AROUND = _CONTROLS + "\x7f"
_EPOCH, _DAYS_OF_400_YEARS = date(1970, 1, 1), 146_097
_DAY, _MICROSECOND = timedelta(days=1), timedelta(microseconds=1)
# Java's short names, which others read otherwise.
_SHORT_NAMES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns",
    "CST": "America/Chicago", "CTT": "Asia/Shanghai", "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi", "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00",
}  # fmt: skip


def _days(sign: str, year_text: str, month: str | None, day: str | None) -> int:
    """Return days since 1970; Python's own calendar ends with the year 9999."""
    year = int(sign + year_text)
    alike = 2000 + year % 400
    there = (date(alike, int(month or 1), int(day or 1)) - _EPOCH).days
    return there + (year - alike) // 400 * _DAYS_OF_400_YEARS


def _date(cell: str) -> int:
    found = _DATE.fullmatch(cell.strip(_AROUND))
    if found is None:
        raise ValueError(cell)
    return _days(*found.groups())


def _timestamp(cell: str) -> int:
    found = _TIME.fullmatch(cell.strip(_AROUND))
    if found is None:
        raise ValueError(cell)
    *of_date, hour, minute, second, part, zone = found.groups()
    days = _days(*of_date)
    clock = time(int(hour or 0), int(minute or 0), int(second or 0), int(f"{part or '':0<6.6}"))
    offset = timedelta() if zone is None else _offset(zone.strip(_AROUND), days, clock)
    since_midnight = datetime.combine(_EPOCH, clock) - datetime.combine(_EPOCH, time())
    micros = days * (_DAY // _MICROSECOND) + (since_midnight - offset) // _MICROSECOND
    if not -(1 << 63) <= micros < 1 << 63:
        raise OverflowError(cell)
    return micros


def _offset(zone: str, days: int, clock: time) -> timedelta:
    zone = _SHORT_NAMES.get(zone, zone)
    zone = re.sub(r"([+-])(\d):", r"\g<1>0\2:", zone, count=1, flags=re.ASCII)
    zone = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", zone, count=1, flags=re.ASCII)
    if zone in {"Z", "UTC", "GMT", "UT"}:
        return timedelta()
    if found := _OFFSET.fullmatch(zone):
        hours, minutes, seconds = (int(found[at] or 0) for at in (2, 4, 5))
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes > 59 or seconds > 59 or offset > _OFFSET_MAX:
            raise ValueError(zone)
        return -offset if found[1] == "-" else offset
    try:
        region = ZoneInfo(zone)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(zone) from None
    local = datetime.combine(_EPOCH + timedelta(days=days), clock, region)
    return local.utcoffset() or timedelta()


def _with_or_without_zone(parse: Callable[[str], int], cell: str) -> int:
    """Read a cell, if need be without `GMT`, which Java's dates of old had in any place."""
    try:
        return parse(cell)
    except ValueError:
        if "GMT" not in cell:
            raise
        return parse(cell.replace("GMT", ""))


_PARSERS: dict[str, Parser] = {
    "boolean": _boolean,
    "int": partial(_integer, 32),
    "long": partial(_integer, 64),
    "float": partial(_number, pa.float32()),
    "double": partial(_number, pa.float64()),
    "date": partial(_with_or_without_zone, _date),
    "timestamp": partial(_with_or_without_zone, _timestamp),
}
