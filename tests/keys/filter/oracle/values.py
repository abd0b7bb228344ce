"""What a value is, and how one becomes another: rules filter-5 to filter-10.

A value is None, a bool, an int, a float, bytes (never empty), OBJECT, or a list of these: an array,
flat and never empty.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Any

from tests.keys.filter.oracle.reading import INTEGER_MAX, INTEGER_MIN

OBJECT = object()
NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(rb"[+-]?[0-9]+")
NUMBER_BYTES_MAX = 400


def fitting(integer: int) -> int | float:
    """An integer of 64 bits, else the nearest double."""
    return integer if INTEGER_MIN <= integer <= INTEGER_MAX else float(integer)


def _json_integer(text: str) -> int | float:
    integer = int(text)
    return integer if INTEGER_MIN <= integer <= INTEGER_MAX else float(text)


@lru_cache(maxsize=1_024)
def message(payload: bytes) -> Any:
    """A message as Python has it, never changed; of duplicate names the last counts."""
    return json.loads(payload, parse_int=_json_integer)


def at(value: Any, steps: tuple[str | int, ...]) -> Any:
    """What stands at a path (rule filter-8)."""
    for step in steps:
        if isinstance(step, str) and isinstance(value, dict):
            value = value.get(step)
        elif isinstance(step, str) and isinstance(value, list):
            value = _gathered(value, step)
        elif isinstance(step, int) and isinstance(value, list) and step < len(value):
            value = value[step]
        else:
            return None
    return plain(value)


def _gathered(array: list[Any], name: str) -> list[Any]:
    found: list[Any] = []
    for element in array:
        if isinstance(element, list):
            found += _gathered(element, name)
        elif isinstance(element, dict) and name in element:
            found.append(element[name])
    return found


def plain(value: Any) -> Any:
    """A part of a message as a value (rules filter-7 and filter-8)."""
    if isinstance(value, str):
        return value.encode() or None
    if isinstance(value, dict):
        return OBJECT
    if isinstance(value, list):
        return _flat(value) or None
    return value


def _flat(array: list[Any]) -> list[Any]:
    found: list[Any] = []
    for element in array:
        found += _flat(element) if isinstance(element, list) else [plain(element)]
    return found


def first(value: Any) -> Any:
    """What counts where there must be one value (rules filter-9 and filter-7)."""
    value = value[0] if isinstance(value, list) else value
    return None if value is OBJECT else value


def elements(value: Any) -> list[Any]:
    """What any-element semantics look at: none if the value counts as NULL (rule filter-9)."""
    every = value if isinstance(value, list) else [value]
    return [element for element in every if element is not None and element is not OBJECT]


def numeral(string: bytes) -> int | float | None:
    """The number that a string is, None for a word (rule filter-5)."""
    if len(string) > NUMBER_BYTES_MAX or not NUMBER.fullmatch(string):
        return None
    if INTEGER.fullmatch(string) and INTEGER_MIN <= int(string) <= INTEGER_MAX:
        return int(string)
    return float(string)


def number(value: Any) -> int | float | None:
    """The number of a value (rule filter-5)."""
    value = first(value)
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, bytes):
        found = numeral(value)
        return math.nan if found is None else found
    assert value is None or isinstance(value, int | float)
    return value


def double(value: Any) -> float | None:
    """The number of a value as a double."""
    found = number(value)
    return None if found is None else float(found)


def count(value: Any) -> int | None:
    """A number cut towards zero (rule filter-15)."""
    found = number(value)
    if found is None or math.isnan(found) or math.isinf(found):
        return None
    return int(found)


def text(value: Any) -> bytes | None:
    """The text of a value (rule filter-6)."""
    value = first(value)
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        return b"1" if value else b"0"
    if isinstance(value, float):
        if math.isnan(value):
            return b"NaN"
        if math.isinf(value):
            return b"Infinity" if value > 0 else b"-Infinity"
    return repr(value).encode()


def condition(value: Any) -> bool | None:
    """A value as a condition (rule filter-10)."""
    found = number(value)
    return None if found is None else not (found == 0 or math.isnan(found))
