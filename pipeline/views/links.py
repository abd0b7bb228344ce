"""Joins of two topics on equal fields: what a record is joined by, and what the two come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import msgspec

from keys.extract import read_fields
from keys.filter import Filter
from keys.number import canonical_number, is_number
from keys.path import FieldPath
from keys.value import Members, members, placed, string, written

LinkOf = Callable[[bytes], str | None]


class Side(IntEnum):
    """Of which topic a record is."""

    LEFT = 0
    RIGHT = 1


@dataclass(frozen=True, slots=True)
class Join:
    """Each left record with the right ones of equal fields, or with none (AMPS: left outer).

    `on` are pairs of fields, left and right; a right record stands in the joined one at `place`.
    `filters` are judged before anything is joined.
    """

    on: tuple[tuple[FieldPath, FieldPath], ...]
    place: FieldPath
    filters: tuple[Filter | None, Filter | None] = (None, None)
    topics: tuple[str, str] = ("", "")

    def link_of(self, side: Side) -> LinkOf:
        """`record -> the text by which it is joined`, None where it is joined with nothing."""
        fields_of = read_fields(tuple(pair[side] for pair in self.on))

        def link_of(record: bytes) -> str | None:
            texts = [_plain(field) for field in fields_of(record)]
            if any(text is None for text in texts):
                return None
            return msgspec.json.encode(texts).decode()

        return link_of

    def joined(self, left: bytes, right: bytes | None) -> bytes:
        """The left record with the right one in its place, which is empty without one."""
        fields: Members = members(left) or {}
        return written(placed(fields, tuple(map(str, self.place.steps)), right))


def _plain(field: bytes | None) -> str | None:
    """What a field says as a text (AMPS compares strings); None where it is NULL, or no scalar."""
    if field is None or field == b"null" or field[:1] in b"{[":
        return None
    if is_number(field):
        return canonical_number(field)
    said = string(field)
    return field.decode() if said is None else said or None
