"""The fields of a message that a filter reads, and no others; each is decoded once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from tidegate.keys.filter.patterns import BRACKETS_MAX, READING_COST
from tidegate.keys.filter.values import Array, Opaque, Scalar, elements_of, opened, scalar_of
from tidegate.keys.path import FieldPath, Step

Value = Scalar | Array | Opaque | None
Row = tuple[Any, bytes, str, dict[int, Any]]
Reader = Callable[[Row], Value]

_decode_any = msgspec.json.Decoder(float_hook=float).decode
# Python reads no integer of more than 4,300 digits; as 1e999 such a number is infinite.
_LONG_INTEGER = re.compile(rb"(?<![.eE0-9])(?<![eE][+-])[0-9]{4001,}(?![.eE0-9])")


class Fields:
    """The top-level fields that some paths begin with, and their readers.

    A row is the state of one evaluation: the decoded fields, the text, the record key, and the
    values found so far, by slot number. Arrays of more than `elements_max` elements are NULL.
    """

    def __init__(self, paths: Iterable[FieldPath], elements_max: int) -> None:
        self._heads = tuple(dict.fromkeys(path.steps[0] for path in paths))
        self._elements_max = elements_max
        attributes = [(f"f{index}", Any, None) for index in range(len(self._heads))]
        self._struct = msgspec.defstruct("Row", attributes)
        self._nothing = self._struct()
        self._decode = self._decoder(attributes)

    def _decoder(self, attributes: list[tuple[str, Any, None]]) -> Callable[[bytes], Any]:
        """Return a decoder of the fields; of none if a name or index needs the slower way."""
        names = {f"f{index}": head for index, head in enumerate(self._heads)}
        try:
            struct = msgspec.defstruct("Row", attributes, rename=names, gc=False)  # type: ignore[arg-type]  # an index is refused right here
            return msgspec.json.Decoder(struct).decode
        except (ValueError, TypeError):
            return msgspec.json.Decoder(msgspec.UnsetType).decode

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
        """Return a row the slower way: no object, a number beyond a double, an odd name."""
        try:
            whole = _decode_any(_LONG_INTEGER.sub(_infinite(payload), payload))
        except msgspec.DecodeError:
            return self._nothing
        return self._struct(*(_step(whole, head, self._elements_max) for head in self._heads))

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
