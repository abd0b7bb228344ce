"""Reading a message's fields: only the top-level ones that are asked for, each decoded once."""

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
_LONG_INTEGER = re.compile(rb"(?<![.eE0-9])(?<![eE][+-])[0-9]{4001,}(?![.eE0-9])")


class Fields:
    """The top-level fields that some paths begin with, and how they are read from a row.

    A row is what one evaluation knows: the decoded fields, the text, the record key, and what
    it has found out, by slot numbers. Arrays of more than `elements_max` elements are NULL.
    """

    def __init__(self, paths: Iterable[FieldPath], elements_max: int) -> None:
        self._heads = tuple(dict.fromkeys(path.steps[0] for path in paths))
        self._elements_max = elements_max
        attributes = [(f"f{index}", Any, None) for index in range(len(self._heads))]
        self._struct = msgspec.defstruct("Row", attributes)
        self._nothing = self._struct()
        self._decode = self._decoder(attributes)

    def _decoder(self, attributes: list[tuple[str, Any, None]]) -> Callable[[bytes], Any]:
        """A decoder of the fields; of nothing where a name or index takes the slower way."""
        names = {f"f{index}": head for index, head in enumerate(self._heads)}
        try:
            struct = msgspec.defstruct("Row", attributes, rename=names, gc=False)  # type: ignore[arg-type]  # an index is refused right here
            return msgspec.json.Decoder(struct).decode
        except (ValueError, TypeError):
            return msgspec.json.Decoder(msgspec.UnsetType).decode

    def row(self, payload: bytes, record_key: str) -> Row:
        """What is known of a message before anything is asked."""
        if len(payload) > BRACKETS_MAX and _bracketed(payload) > BRACKETS_MAX:
            return self._nothing, payload, record_key, {}
        try:
            return self._decode(payload), payload, record_key, {}
        except msgspec.DecodeError:
            return self._row_of_any(payload), payload, record_key, {}

    def _row_of_any(self, payload: bytes) -> Any:
        """The slower way: no object, a number beyond a double, a name that no struct can have."""
        try:
            whole = _decode_any(_LONG_INTEGER.sub(_infinite(payload), payload))
        except msgspec.DecodeError:
            return self._nothing
        return self._struct(*(_step(whole, head, self._elements_max) for head in self._heads))

    def reader(self, path: FieldPath) -> Reader:
        """`row -> value` of one of the paths."""
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
            if type(inner) is str and inner.isascii():
                return inner or None
            return _value(inner, elements_max)

        return read


def scalars(value: Value) -> Iterable[Scalar]:
    """The scalars that a value has: itself, or an array's elements."""
    if isinstance(value, Array):
        return value.scalars
    return () if value is None or isinstance(value, Opaque) else (value,)


def _bracketed(payload: bytes) -> int:
    """How many arrays and objects there are at most."""
    return payload.count(b"[") + payload.count(b"{")


def _infinite(payload: bytes) -> Callable[[re.Match[bytes]], bytes]:
    """What stands for integers that are too long to be read, but for those inside strings."""

    def spelling(digits: re.Match[bytes]) -> bytes:
        before = payload[: digits.start()].replace(b"\\\\", b"").replace(b'\\"', b"")
        return digits.group() if before.count(b'"') % 2 else b"1e999"

    return spelling


def _step(value: Any, step: Step, elements_max: int) -> Any:
    """One step into a decoded value (rule filter-8); None where there is nothing, or too much."""
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
