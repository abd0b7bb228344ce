"""Fields of a message as a filter reads them, and predicates over their values; None is NULL.

Only the fields that a filter names are decoded, each once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import msgspec

from tidegate.keys.filter.values import (
    SEPARATOR,
    Array,
    Bag,
    Opaque,
    Scalar,
    TooManyStringsError,
    elements_of,
    number_in,
    opened,
    scalar_of,
    some_pair,
    text,
)
from tidegate.keys.path import FieldPath, Step, memoize_bounded

Value = Scalar | Array | Opaque | None
Row = tuple[Any, bytes, str, dict[int, Any]]
Reader = Callable[[Row], Value]

# Limits of the work on one message, with those of an `Allowance` (rule filter-4).
BRACKETS_MAX = 12_000
# A string that is read as a number costs as much as this many elements.
READING_COST = 4

# Refuses every message, so that each is read by `_row_of_any`.
_decode_none = msgspec.json.Decoder(msgspec.UnsetType).decode
_decode_any = msgspec.json.Decoder(float_hook=float).decode
# Python reads no integer of more than 4,300 digits; as 1e999 such a number is infinite.
_LONG_INTEGER = re.compile(rb"(?<![.eE0-9])(?<![eE][+-])[0-9]{4001,}(?![.eE0-9])")


class Fields:
    """The top-level fields that some paths begin with, and their readers.

    A row is the state of one evaluation: the decoded fields, the text, the record key, and the
    values found so far, by slot number. Arrays of more than `elements_max` elements are NULL.
    """

    def __init__(self, paths: Iterable[FieldPath], elements_max: int) -> None:
        # Paths that begin with the same field share its decoded value.
        self._heads = tuple(dict.fromkeys(path.steps[0] for path in paths))
        self._elements_max = elements_max
        self._nothing = self._row_of(None)
        self._decode = _row_decoder(self._heads) or _decode_none

    def row(self, payload: bytes, record_key: str) -> Row:
        """Return a new row: a message of which no field is decoded yet."""
        # Many small arrays cost more memory than their text: they are refused before decoding.
        if len(payload) > BRACKETS_MAX and _bracketed(payload) > BRACKETS_MAX:
            return self._nothing, payload, record_key, {}
        try:
            return self._decode(payload), payload, record_key, {}
        except msgspec.DecodeError:
            return self._row_of_any(payload), payload, record_key, {}

    def _row_of_any(self, payload: bytes) -> Any:
        """Return a row of any message: no object, a number beyond a double, or an unusual name."""
        try:
            whole = _decode_any(_LONG_INTEGER.sub(_infinite(payload), payload))
        except msgspec.DecodeError:
            return self._nothing
        return self._row_of(whole)

    def _row_of(self, whole: Any) -> SimpleNamespace:
        found = (_step(whole, head, self._elements_max) for head in self._heads)
        return SimpleNamespace(**{f"f{index}": value for index, value in enumerate(found)})

    def reader(self, path: FieldPath) -> Reader:
        """Return `row -> value` of one of the paths."""
        head, elements_max = attrgetter(f"f{self._heads.index(path.steps[0])}"), self._elements_max
        rest = path.steps[1:]
        if rest:

            def read_deep(row: Row) -> Value:
                inner = head(row[0])
                for step in rest:
                    inner = _step(inner, step, elements_max)
                return _value(inner, elements_max)

            return read_deep

        def read(row: Row) -> Value:
            inner = head(row[0])
            if type(inner) is str and inner.isascii():  # the common case, which needs no narrowing
                return inner or None
            return _value(inner, elements_max)

        return read


@memoize_bounded
def _row_decoder(heads: tuple[Step, ...]) -> Callable[[bytes], Any] | None:
    """Return a decoder of top-level fields; None where a name cannot be a struct's field."""
    names = {f"f{index}": head for index, head in enumerate(heads)}
    attributes: list[tuple[str, Any, None]] = [(name, Any, None) for name in names]
    try:
        struct = msgspec.defstruct("Row", attributes, rename=names, gc=False)  # type: ignore[arg-type]  # an index is refused right here
    except (ValueError, TypeError):  # no struct has such a name
        return None
    return msgspec.json.Decoder(struct).decode


def scalars(value: Value) -> Iterable[Scalar]:
    """Return the scalars of a value: itself, or an array's elements."""
    if isinstance(value, Array):
        return value.scalars
    return () if value is None or isinstance(value, Opaque) else (value,)


def _bracketed(payload: bytes) -> int:
    """Return the greatest possible number of arrays and objects."""
    return payload.count(b"[") + payload.count(b"{")


def _infinite(payload: bytes) -> Callable[[re.Match[bytes]], bytes]:
    """Replace integers that are too long to read, except inside strings."""

    def spelling(digits: re.Match[bytes]) -> bytes:
        before = payload[: digits.start()].replace(b"\\\\", b"").replace(b'\\"', b"")
        return digits.group() if before.count(b'"') % 2 else b"1e999"

    return spelling


def _step(value: Any, step: Step, elements_max: int) -> Any:
    """Take one step into a decoded value (rule filter-8); None if it leads nowhere, or too far."""
    if isinstance(value, list):
        if isinstance(step, int):
            return value[step] if step < len(value) else None
        items = opened(value, elements_max)
        if items is None:
            return None
        return [item[step] for item in items if type(item) is dict and step in item]
    return value.get(step) if isinstance(value, dict) else None


def _value(inner: Any, elements_max: int) -> Value:
    if isinstance(inner, list):
        items = opened(inner, elements_max)
        return Array(elements_of(items), elements_max // READING_COST) if items else None
    return scalar_of(inner)


# --- Predicates: comparisons, IN, BETWEEN, BEGINS and ENDS WITH


def is_null(value: Value) -> bool:
    """Return True if a value counts as NULL in comparisons (rules filter-9 and filter-7)."""
    if isinstance(value, Array):
        return not value.scalars
    return value is None or isinstance(value, Opaque)


def compare(operator: str, left: Value, right: Value) -> bool | None:
    """Return `left operator right` for any elements of arrays (rules filter-9 and filter-11)."""
    if is_null(left) or is_null(right):
        return None
    if isinstance(left, Array) or isinstance(right, Array):
        return _compare_arrays(operator, left, right)
    return compare_scalars(operator, left, right)  # type: ignore[arg-type]  # no object: not null


def _compare_arrays(operator: str, left: Value, right: Value) -> bool | None:
    if _is_nan(left) or _is_nan(right):
        return operator == "!="
    try:
        return some_pair(operator, _array(left), _array(right))
    # NULL, as for everything beyond the allowance.
    except TooManyStringsError:
        return None


def compare_scalars(operator: str, left: Scalar, right: Scalar) -> bool:
    """Return `left operator right` of two scalars (rule filter-11)."""
    if isinstance(left, str) != isinstance(right, str):
        if _is_nan(left) or _is_nan(right):
            return operator == "!="
        if isinstance(left, str):
            found = number_in(left)
            # A word is greater than every number, so that any two values have an order.
            if found is None:
                return operator in (">", ">=", "!=")
            left = found
        else:
            found = number_in(right)  # type: ignore[arg-type]  # the other one is the string
            if found is None:
                return operator in ("<", "<=", "!=")
            right = found
    match operator:
        case "=":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right  # type: ignore[operator]  # both are strings or both numbers
        case "<=":
            return left <= right  # type: ignore[operator]  # both are strings or both numbers
        case ">":
            return left > right  # type: ignore[operator]  # both are strings or both numbers
    return left >= right  # type: ignore[operator]  # both are strings or both numbers


def between(value: Value, low: Scalar | None, high: Scalar | None) -> bool | None:
    """Return True if an element is from `low` to `high` (rule filter-12)."""
    if is_null(value) or low is None or high is None:
        return None
    if isinstance(low, str) != isinstance(high, str):
        low = number_in(low) if isinstance(low, str) else low
        high = number_in(high) if isinstance(high, str) else high
        if low is None or high is None:
            return None
    if not isinstance(value, Array):
        scalar: Scalar = value  # type: ignore[assignment]  # no object: not null
        return compare_scalars(">=", scalar, low) and compare_scalars("<=", scalar, high)
    if isinstance(low, str) and isinstance(high, str):
        return value.strings.between(low, high) or _numbers_between(value.numbers, low, high)
    if _is_nan(low) or _is_nan(high):
        return False
    try:
        return value.numbers.between(low, high) or value.spelled.between(low, high)
    except TooManyStringsError:
        return None


def _numbers_between(numbers: Bag, low: str, high: str) -> bool:
    lowest, highest = number_in(low), number_in(high)
    if lowest is None or not numbers:
        return False
    return numbers.between(lowest, math.inf if highest is None else highest)


def has_affix(end: str, value: Value, items: list[Scalar | None]) -> bool | None:
    """Return True if an element's text begins, or ends, with an item's (rule filter-13)."""
    if is_null(value):
        return None
    affixes = [text(item) for item in items if item is not None]
    if isinstance(value, Array):
        found = any(affix in value.joined for affix in _marked(end, affixes))
    else:
        whole = text(value)  # type: ignore[arg-type]  # no object: not null
        fits = whole.startswith if end == "BEGINS" else whole.endswith
        found = fits(tuple(affixes))
    return found or (None if None in items else False)


def _marked(end: str, affixes: list[str]) -> list[str]:
    """Return the affixes as they appear at one end of a text among joined texts."""
    # No text of a message holds the separator, so these match nothing.
    possible = [affix for affix in affixes if SEPARATOR not in affix]
    if end == "ENDS":
        return [affix + SEPARATOR for affix in possible]
    return [SEPARATOR + affix for affix in possible]


def _is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _array(value: Value) -> Array:
    return value if isinstance(value, Array) else Array([value])
