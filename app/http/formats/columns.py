"""The columns of records: their names, and the types that keep every value exact."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum, auto
from operator import itemgetter
from types import NoneType
from typing import Any, Final

import msgspec

from tidegate.app.http.formats.records import CELLS_AT_ONCE, Text, members_of, pieces
from tidegate.app.http.problems import HttpRefused
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import Steps
from tidegate.keys.jsontext import Members

COLUMNS_MAX: Final = 1_000
"""Different fields of one answer. Each row has a cell for each, so they multiply its size."""
DECIMAL_DIGITS_MAX: Final = 38
DOUBLE_DIGITS: Final = 15
"""Digits that a double always keeps."""
INT64: Final = range(-(2**63), 2**63)
UINT64: Final = range(2**64)
EXACT_IN_DOUBLE: Final = range(-(2**53), 2**53 + 1)
NULL: Final = msgspec.Raw(b"null")

_DIGITS = bytes.maketrans(b"123456789", b"000000000")

Kinds = frozenset[type]
Known = Mapping[str, Kinds]
"""Columns that are there whatever the records have, with the Python types of their values."""


class Kind(Enum):
    """The type of a column."""

    NULL = auto()
    BOOLEAN = auto()
    STRING = auto()
    INT64 = auto()
    UINT64 = auto()
    DOUBLE = auto()
    DECIMAL = auto()
    JSON = auto()
    """Texts of JSON: of objects and arrays, and where nothing else keeps all values exact."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's kind; of decimals also their digits, and how many of them are behind the point."""

    kind: Kind
    precision: int = 0
    scale: int = 0


class Column:
    """What is known of the values of a field.

    Args:
        kinds: Python types of values that it may have.
    """

    __slots__ = ("_greatest", "_is_rounded", "_kinds", "_least", "_scale", "_whole")

    def __init__(self, kinds: Iterable[type] = ()) -> None:
        self._kinds = {*kinds} - {NoneType}
        self._least = self._greatest = 0
        # Of numbers with a fraction or an exponent: the most digits before the point, and behind
        # it, and whether one has another value as a double.
        self._whole = self._scale = 0
        self._is_rounded = False

    def add(self, texts: Sequence[msgspec.Raw]) -> None:
        """Take values into account, each a JSON text."""
        if not self._kinds.isdisjoint((dict, list)):
            return  # nothing can change it any more
        joined = b"[" + b",".join(texts) + b"]"
        try:
            values: list[Any] = msgspec.json.decode(joined)
        except msgspec.ValidationError:  # a number beyond a double, stored by an earlier version
            self._kinds.add(dict)
            return
        kinds = set(map(type, values))
        if int in kinds:
            whole = values if kinds == {int} else [it for it in values if type(it) is int]
            self._least = min(self._least, *whole)
            self._greatest = max(self._greatest, *whole)
        kinds.discard(NoneType)
        self._kinds |= kinds
        if float in kinds and kinds <= {int, float}:
            self._add_fractions(joined, texts, values)

    @property
    def type(self) -> ColumnType:
        """The narrowest type that keeps every value exact."""
        kinds, ends = self._kinds, (self._least, self._greatest)
        if len(kinds) <= 1 and (found := _PLAIN.get(next(iter(kinds), NoneType))):
            return ColumnType(found)
        if not kinds <= {int, float}:
            return ColumnType(Kind.JSON)
        if float not in kinds:
            if all(each in INT64 for each in ends):
                return ColumnType(Kind.INT64)
            if all(each in UINT64 for each in ends):
                return ColumnType(Kind.UINT64)
        elif not self._is_rounded and all(each in EXACT_IN_DOUBLE for each in ends):
            return ColumnType(Kind.DOUBLE)
        whole = max(self._whole, *(len(str(abs(each))) for each in ends))
        if whole + self._scale > DECIMAL_DIGITS_MAX:
            return ColumnType(Kind.JSON)
        return ColumnType(Kind.DECIMAL, whole + self._scale, self._scale)

    def _add_fractions(
        self, joined: bytes, texts: Sequence[msgspec.Raw], values: Sequence[Any]
    ) -> None:
        def fractions() -> Iterator[bytes]:
            pairs = zip(texts, values, strict=True)
            return (bytes(text) for text, value in pairs if type(value) is float)

        if b"e" in joined or b"E" in joined:
            for text in fractions():
                self._add_digits(text)
        else:
            # All of them at once: the most digits in a row are searched for, not counted.
            digits = joined.translate(_DIGITS)
            while b"." + b"0" * (self._scale + 1) in digits:
                self._scale += 1
            while b"0" * (self._whole + 1) + b"." in digits:
                self._whole += 1
        if not self._is_rounded and self._whole + self._scale > DOUBLE_DIGITS:
            self._is_rounded = not all(map(_is_double, fractions()))

    def _add_digits(self, text: bytes) -> None:
        try:
            _, digits, exponent = Decimal(text.decode()).as_tuple()
        except InvalidOperation:  # an exponent of more than 18 digits
            self._kinds.add(dict)
            return
        assert isinstance(exponent, int), "a number of JSON is finite"
        self._whole = max(self._whole, len(digits) + exponent)
        self._scale = max(self._scale, -exponent)


_PLAIN: Final[Mapping[type, Kind]] = {
    NoneType: Kind.NULL,
    bool: Kind.BOOLEAN,
    str: Kind.STRING,
}


def _is_double(text: bytes) -> bool:
    """Return True if a number is the shortest one that is read as its double."""
    shortest = repr(float(text))
    return shortest == text.decode() or Decimal(shortest) == Decimal(text.decode())


_OF_SCHEMA: Final[Mapping[str, type]] = {
    "null": NoneType,
    "boolean": bool,
    "string": str,
    "integer": int,
    "number": float,
    "object": dict,
    "array": list,
}


def declared_fields(schema: object) -> dict[str, Kinds]:
    """Return the fields that a JSON Schema declares, with the types that it allows, if it does."""
    properties = schema.get("properties", {}) if isinstance(schema, dict) else {}
    found: dict[str, Kinds] = {}
    for name, field in properties.items():
        allowed = field.get("type", []) if isinstance(field, dict) else []
        types = [allowed] if isinstance(allowed, str) else allowed
        found[name] = frozenset(_OF_SCHEMA[each] for each in types)
    return found


def names_in(rows: Sequence[Frame], text: Text, known: Known) -> Steps[list[str]]:
    """Return the names of the fields of all rows, known ones first, in the order of appearance.

    Raises:
        HttpRefused: not-acceptable, as there are too many.
    """
    names = dict.fromkeys(known)
    for piece in pieces(rows):
        yield
        names |= dict.fromkeys(_new_names(members_of([text(frame) for frame in piece]), names))
        _check_number(names)
    return list(names)


def columns_in(rows: Sequence[Frame], text: Text, known: Known) -> Steps[dict[str, ColumnType]]:
    """Return the types of the fields of all rows, in the order of `names_in`.

    Raises:
        HttpRefused: not-acceptable, as there are too many.
    """
    columns = {name: Column(kinds) for name, kinds in known.items()}
    for piece in pieces(rows):
        yield
        found = members_of([text(frame) for frame in piece])
        columns |= {name: Column() for name in _new_names(found, columns)}
        _check_number(columns)
        cells = 0
        for name, column in columns.items():
            column.add(cells_of(found, name))
            cells += len(found)
            if cells > CELLS_AT_ONCE:
                yield
                cells = 0
    return {name: column.type for name, column in columns.items()}


def cells_of(records: Sequence[Members], name: str) -> list[msgspec.Raw]:
    """Return the values of a field as JSON texts, null where there is none."""
    try:
        return list(map(itemgetter(name), records))  # mostly
    except KeyError:
        return [record.get(name, NULL) for record in records]


def _new_names(records: Sequence[Members], known: Mapping[str, object]) -> list[str]:
    if set().union(*records) <= known.keys():
        return []
    return [name for record in records for name in record if name not in known]


def _check_number(names: Mapping[str, object]) -> None:
    if len(names) > COLUMNS_MAX:
        detail = f"The records have over {COLUMNS_MAX} fields, too many for columns: select some."
        raise HttpRefused("not-acceptable", detail, headers={"Vary": "Accept"})
