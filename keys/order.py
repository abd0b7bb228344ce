"""Order of rows, `/a DESC,/b TEXT`: AMPS's `orderby`, as values that Python can sort by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from tidegate.keys.errors import PathInvalid
from tidegate.keys.jsontext import canonical_number, comparable, is_number, items, string
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import read_fields, split_list

PATHS_MAX = 16

_Ascending = tuple[int, int | Decimal | str]
Rank = tuple[int, "int | Decimal | str | _Descending"]

_NULL: _Ascending = (0, 0)
_WORDS = re.compile(r"(?:\s+(ASC|DESC))?(?:\s+(TEXT))?", re.IGNORECASE).fullmatch
_PATH = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s'"])*""").match


@dataclass(frozen=True, slots=True)
class Column:
    """One path to order by, upwards or downwards, by value or as text."""

    path: FieldPath
    descending: bool = False
    as_text: bool = False

    def __str__(self) -> str:
        return f"{self.path}{' DESC' * self.descending}{' TEXT' * self.as_text}"


@dataclass(frozen=True, slots=True)
class Order:
    """One or more columns, the most important first; hashable, equal if they order alike."""

    columns: tuple[Column, ...]

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Order:
        """Parse `/f [ASC|DESC] [TEXT]`, comma-separated; `position` is that of the text.

        Raises:
            PathInvalid: a malformed or repeated path, another word, or more than 16 paths.
        """
        columns: list[Column] = []
        for part, start in split_list(text):
            place = position + start + len(part) - len(part.lstrip())
            if len(columns) == PATHS_MAX:
                raise PathInvalid(f"an order has at most {PATHS_MAX} paths", place)
            column = _column(part.strip(), place)
            if any(column.path == other.path for other in columns):
                raise PathInvalid("a path is given twice in the order", place)
            columns.append(column)
        return cls(tuple(columns))

    def __str__(self) -> str:
        """Return the canonical spelling, `/a DESC,/b TEXT`."""
        return ",".join(map(str, self.columns))

    def sort_token(self, payload: bytes) -> tuple[Any, ...]:
        """Return a payload's sort key: hashable, in a total order with those of other payloads."""
        fields = read_fields(tuple(column.path for column in self.columns))(payload)
        # A list first: a tuple that is made before what it holds takes one collection of garbage
        # more to be known as free of cycles, and a window keeps one for each record.
        ranks = [
            _reversed(rank) if column.descending else rank
            for column, rank in zip(self.columns, map(_rank, self.columns, fields), strict=True)
        ]
        return tuple(ranks)


# The garbage collector would visit each object of a subclass of `str`.
class _Descending(msgspec.Struct, frozen=True, gc=False):
    """A text in descending order."""

    text: str

    # Strings cannot be negated, so the comparison is turned around.
    def __lt__(self, other: _Descending) -> bool:
        return self.text > other.text


def _reversed(rank: _Ascending) -> Rank:
    """Return a rank that orders the other way round.

    Numbers change their sign, so that sorting compares them without a call of Python code.
    """
    kind, value = rank
    if isinstance(value, str):
        return -kind, _Descending(value)
    # Not by `-`, which rounds a Decimal to the context's 28 digits.
    return -kind, value.copy_negate() if isinstance(value, Decimal) else -value


def _column(text: str, position: int) -> Column:
    path = _PATH(text)
    assert path is not None, "it matches the empty text too"
    words = _WORDS(text, path.end())
    if words is None:
        after = text[path.end() :]
        place = path.end() + len(after) - len(after.lstrip())
        raise PathInvalid("expected ASC or DESC, TEXT, or a comma", position + place)
    return Column(
        FieldPath.parse(path.group(), position),
        descending=(words[1] or "").upper() == "DESC",
        as_text=words[2] is not None,
    )


def _rank(column: Column, text: bytes | None) -> _Ascending:
    """Rank nulls, then numbers, then strings: pairs of different kinds differ in the first item."""
    if text is None or text == b"null" or text[:1] == b"{":
        return _NULL
    # As in filters, an array has the value of its first element here.
    if (parts := items(text)) is not None:
        return _rank(column, bytes(parts[0]) if parts else None)
    if (said := string(text)) is not None:
        return (2, said) if said else _NULL
    if column.as_text:
        return (2, canonical_number(text) if is_number(text) else text.decode())
    return (1, comparable(text) if is_number(text) else int(text == b"true"))
