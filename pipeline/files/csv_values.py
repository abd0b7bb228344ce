"""Parses the cells of a CSV column: numbers by Arrow, times as everywhere in Tidegate."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.keys.errors import TextInvalid
from tidegate.keys.text.time import parse_iso_ns
from tidegate.pipeline.files.objects import arrow_type
from tidegate.pipeline.intervals import Column

NS_PER_MICROSECOND = 1_000
_WHOLE = "^[+-]?[0-9]+$"  # Arrow takes hexadecimal digits as well
_DECIMAL_KIND = re.compile(r"decimal\((\d+),(\d+)\)")
# Python takes underscores and the digits of all alphabets as well.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def values_of(kind: str, cells: pa.Array) -> tuple[pa.Array, Column]:
    """Return the values of cells, and which cells cannot be parsed; null stays null.

    Surrounding white space is ignored, except in strings.
    """
    if kind == "string":
        return cells, np.zeros(len(cells), np.bool_)
    values = _values(kind, pc.ascii_trim_whitespace(cells))
    return values, np.asarray(values.is_null()) & np.asarray(cells.is_valid())


def _values(kind: str, cells: pa.Array) -> pa.Array:
    """Return the values; null for a cell that cannot be parsed."""
    decimal = _DECIMAL_KIND.fullmatch(kind)
    if decimal is not None:
        parse = partial(_decimal, precision=int(decimal[1]), scale=int(decimal[2]))
        return _parsed(cells, parse, arrow_type(kind))
    match kind:
        case "boolean":
            found = pc.index_in(pc.utf8_lower(cells), pa.array(["false", "true"]))
            return found.cast(pa.bool_())  # null for any other
        case "timestamp":
            return _parsed(cells, _microseconds, pa.int64()).cast(arrow_type(kind))
        case "int" | "long":
            is_whole = pc.match_substring_regex(cells, _WHOLE)
            cells = pc.replace_substring_regex(pc.if_else(is_whole, cells, None), r"^\+", "")
    return _cast(cells, arrow_type(kind))


def _cast(cells: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the cells as Arrow casts them; null for a cell that it cannot cast."""
    try:
        return cells.cast(kind)
    except pa.ArrowInvalid:
        # Arrow does not say which cell. Halving finds one among thousands in a few steps.
        half = len(cells) // 2
        if not half:
            return pa.nulls(1, kind)
        return pa.concat_arrays([_cast(cells[:half], kind), _cast(cells[half:], kind)])


def _parsed(cells: pa.Array, parse: Callable[[str], object], kind: pa.DataType) -> pa.Array:
    values: list[object] = []
    for cell in cells.to_pylist():
        try:
            values.append(None if cell is None else parse(cell))
        except (InvalidOperation, TextInvalid, ValueError):
            values.append(None)
    return pa.array(values, kind)


def _decimal(cell: str, precision: int, scale: int) -> Decimal:
    """Return a number, rounded to `scale` decimal places; commas are ignored."""
    text = cell.replace(",", "")
    if not _DECIMAL.fullmatch(text):
        raise ValueError(cell)
    return Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, Context(precision))


def _microseconds(cell: str) -> int:
    """Return microseconds since 1970; a time without a zone is in UTC."""
    return parse_iso_ns(cell) // NS_PER_MICROSECOND
