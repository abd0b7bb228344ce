"""Reading a message's fields: only the top-level ones that are asked for, each decoded once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import msgspec

from keys.filter.arrays import OBJECT, Array, Opaque
from keys.filter.numbers import Scalar, narrow, within
from keys.filter.tokens import INTEGER_MAX, INTEGER_MIN
from keys.path import FieldPath, Step

Value = Scalar | Array | Opaque | None
Row = tuple[Any, bytes, str, dict[int, Any]]
Reader = Callable[[Row], Value]

_PLAIN = frozenset({int, float, bool})
_BROKEN = (msgspec.DecodeError, ValueError, RecursionError)


class Fields:
    """The top-level fields that some paths begin with, and how they are read from a row.

    A row is what one evaluation knows: the decoded fields, the text, the record key, and what
    it has found out (by the identity of the lists it is about, and by slot numbers below 0).
    """

    def __init__(self, paths: Iterable[FieldPath]) -> None:
        self._heads = tuple(dict.fromkeys(path.steps[0] for path in paths))
        attributes = [(f"f{index}", Any, None) for index in range(len(self._heads))]
        self._struct = msgspec.defstruct("Row", attributes)
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
        try:
            return self._decode(payload), payload, record_key, {}
        except _BROKEN:
            return self._row_of_any(payload, record_key)

    def _row_of_any(self, payload: bytes, record_key: str) -> Row:
        """The slower way: no object, a number beyond 64 bits, a name that no struct can have."""
        found: dict[int, Any] = {0: _decoded(payload)}
        fields = self._struct(*(_step(found[0], head, found) for head in self._heads))
        return fields, payload, record_key, found

    def reader(self, path: FieldPath) -> Reader:
        """`row -> value` of one of the paths."""
        head = attrgetter(f"f{self._heads.index(path.steps[0])}")
        rest = path.steps[1:]
        if rest:

            def read_deep(row: Row) -> Value:
                inner, found = head(row[0]), row[3]
                for step in rest:
                    inner = _step(inner, step, found)
                return _value(inner, found)

            return read_deep

        def read(row: Row) -> Value:
            inner = head(row[0])
            if type(inner) is str and inner.isascii():
                return inner or None
            return _value(inner, row[3])

        return read


def scalars(value: Value) -> Iterable[Scalar]:
    """The scalars that a value has: itself, or an array's elements."""
    if isinstance(value, Array):
        return value.scalars
    return () if value is None or isinstance(value, Opaque) else (value,)


def _decoded(payload: bytes) -> Any:
    try:
        return msgspec.json.decode(payload)
    except _BROKEN:
        try:
            return json.loads(payload, parse_int=_integer)
        except (ValueError, RecursionError):
            return None


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= 20 else float(digits)


def _step(value: Any, step: Step, found: dict[int, Any]) -> Any:
    """One step into a decoded value (rule 88); None where there is nothing."""
    if isinstance(step, str):
        if isinstance(value, dict):
            return value.get(step)
        return _columns(value, found).get(step, []) if isinstance(value, list) else None
    if isinstance(value, list) and step < len(value):
        return value[step]
    return None


def _columns(items: list[Any], found: dict[int, Any]) -> dict[str, list[Any]]:
    """All members of the objects in an array, by name; made once for an array."""
    columns = found.get(id(items))
    if columns is None:
        columns = found[id(items)] = {}
        _gather(items, columns)
    return columns


def _gather(items: list[Any], columns: dict[str, list[Any]]) -> None:
    for item in items:
        if isinstance(item, dict):
            for name, member in item.items():
                columns.setdefault(name, []).append(member)
        elif isinstance(item, list):
            _gather(item, columns)


def _value(inner: Any, found: dict[int, Any]) -> Value:
    if isinstance(inner, list):
        if not inner:
            return None
        # slot numbers are small and negative, an inverted identity is large
        array = found.get(~id(inner))
        if array is None:
            items = _flat(inner)
            array = found[~id(inner)] = Array(items) if items else OBJECT
        return array if isinstance(array, Array) else None
    return _scalar(inner)


def _scalar(inner: Any) -> Scalar | Opaque | None:
    if isinstance(inner, str):
        return narrow(inner) or None
    if isinstance(inner, dict):
        return OBJECT
    if isinstance(inner, int) and not isinstance(inner, bool):
        return within(inner)
    return inner  # type: ignore[no-any-return]  # a bool, double or None: JSON has no more


def _flat(items: list[Any]) -> list[Scalar | Opaque | None]:
    kinds = set(map(type, items))
    if kinds == {str} and all(items) and "".join(items).isascii():
        return items
    if kinds <= _PLAIN and min(items) >= INTEGER_MIN and max(items) <= INTEGER_MAX:
        return items
    flat: list[Scalar | Opaque | None] = []
    _open(items, flat)
    return flat


def _open(items: list[Any], flat: list[Scalar | Opaque | None]) -> None:
    for item in items:
        if isinstance(item, list):
            _open(item, flat)
        else:
            flat.append(_scalar(item))
