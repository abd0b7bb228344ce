"""Structural conflation: messages of one key merged into one, `[/px:last,/px:max@hi,/qty:sum]`.

Merging is associative: messages merged in any groups, in publication order, give the same. So
what was conflated in a lane can be conflated again in a queue, or on another machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from keys.errors import PathInvalid
from keys.extract import FieldsOf, read_fields
from keys.monoids import MONOIDS, Reducer, join
from keys.path import FieldPath
from keys.spec import split_list
from keys.value import NULL, items, meet, members, placed, written

COLUMNS_MAX = 64

_NAME = re.compile(r"[\w$][\w$.-]*").fullmatch


@dataclass(frozen=True, slots=True)
class Column:
    """A field, its reducer, and the place of the result: the field's own, or a top-level name."""

    path: FieldPath
    reducer: Reducer
    name: str | None = None

    @property
    def target(self) -> tuple[str, ...]:
        """The names that lead to where the result is written."""
        return (self.name,) if self.name is not None else tuple(map(str, self.path.steps))

    def __str__(self) -> str:
        return f"{self.path}:{self.reducer}{'' if self.name is None else '@' + self.name}"


@dataclass(frozen=True, slots=True)
class Reduce:
    """How messages become one: a reducer for each named field, the last message for the others."""

    columns: tuple[Column, ...] = ()

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Reduce:
        """From the options spelling `[/px:max@hi,/qty:sum]`; `position` is where it stands.

        Raises:
            PathInvalid: malformed, an unknown reducer, two results in one place, an index
                without `@name`, or more than 64 columns.
        """
        if len(text) < 2 or text[0] != "[" or text[-1] != "]":
            raise PathInvalid("expected reducers in brackets, such as [/qty:sum]", position)
        return cls._checked(
            (part.strip(), position + 1 + start + len(part) - len(part.lstrip()))
            for part, start in split_list(text[1:-1])
        )

    @classmethod
    def of(cls, mapping: Mapping[str, str]) -> Reduce:
        """From a topic's `merge` object, `{"/qty": "sum", "/px": "max@hi"}`.

        Raises:
            PathInvalid: as `parse`.
        """
        return cls._checked((f"{path}:{reducer}", 0) for path, reducer in mapping.items())

    @classmethod
    def _checked(cls, parts: Iterable[tuple[str, int]]) -> Reduce:
        columns: list[Column] = []
        for text, position in parts:
            if len(columns) == COLUMNS_MAX:
                raise PathInvalid(f"at most {COLUMNS_MAX} reducers", position)
            column = _column(text, position)
            if any(meet(column.target, other.target) for other in columns):
                raise PathInvalid("two reducers write to one place", position)
            columns.append(column)
        return cls(tuple(columns))

    def __str__(self) -> str:
        """The canonical options spelling, `[/px:last,/px:max@hi]`."""
        return "[" + ",".join(map(str, self.columns)) + "]"

    @property
    def is_plain(self) -> bool:
        """Whether merging is replacing: every reducer is `last`, in the field's own place."""
        return all(one.reducer is Reducer.LAST and one.name is None for one in self.columns)

    def writes_to(self, paths: Iterable[FieldPath]) -> bool:
        """Whether it puts something else than the last message's own into one of these fields."""
        targets = [
            column.target
            for column in self.columns
            if column.reducer is not Reducer.LAST or column.name is not None
        ]
        fields = [tuple(map(str, path.steps)) for path in paths]
        return any(
            field[: len(target)] == target or target[: len(field)] == field
            for target in targets
            for field in fields
        )

    def begin(self, payload: bytes) -> Merged:
        """One message, as the beginning of a merged one."""
        fields = _reader(tuple(column.path for column in self.columns))(payload)
        states = (
            MONOIDS[column.reducer].lift(text)
            for column, text in zip(self.columns, fields, strict=True)
        )
        return Merged(self, payload, tuple(states))

    def loaded(self, saved: bytes) -> Merged:
        """What `Merged.saved` has written, to be gone on with."""
        last, *states = map(bytes, items(saved) or [])
        pairs = zip(self.columns, states, strict=True)
        known = (
            None if text == NULL else MONOIDS[column.reducer].load(text) for column, text in pairs
        )
        return Merged(self, last, tuple(known))


@dataclass(frozen=True, slots=True)
class Merged:
    """Messages merged so far, immutable: the last of them, and a state for each column."""

    reduce: Reduce
    last: bytes
    states: tuple[Any, ...]

    def add(self, payload: bytes) -> Merged:
        """With one more message."""
        return self.join(self.reduce.begin(payload))

    def join(self, other: Merged) -> Merged:
        """With what was merged of later messages, under the same reducers."""
        assert other.reduce == self.reduce, "only what was merged alike can be joined"
        states = (
            join(MONOIDS[column.reducer], one, later)
            for column, one, later in zip(
                self.reduce.columns, self.states, other.states, strict=True
            )
        )
        return Merged(self.reduce, other.last, tuple(states))

    def saved(self) -> bytes:
        """All of it as JSON text, for `Reduce.loaded` of the same reducers."""
        pairs = zip(self.reduce.columns, self.states, strict=True)
        states = (
            NULL if state is None else MONOIDS[column.reducer].save(state)
            for column, state in pairs
        )
        return b"[" + b",".join([self.last, *states]) + b"]"

    def payload(self) -> bytes:
        """The message for all: the last one, with the results in their places."""
        fields = None if self.reduce.is_plain else members(self.last)
        if fields is None:
            return self.last
        for column, state in zip(self.reduce.columns, self.states, strict=True):
            shown = None if state is None else MONOIDS[column.reducer].show(state)
            fields = placed(fields, column.target, shown)
        return written(fields)


def _column(text: str, position: int) -> Column:
    path_text, colon, reducer_text = text.rpartition(":")
    if not colon:
        raise PathInvalid("expected path:reducer, such as /qty:sum", position)
    reducer_name, at, name = reducer_text.partition("@")
    place = position + len(path_text) + 1
    if reducer_name not in list(Reducer):
        raise PathInvalid("expected a reducer: " + " ".join(Reducer), place)
    if at and not _NAME(name):
        raise PathInvalid("expected a field's name after @", place + len(reducer_name) + 1)
    path = FieldPath.parse(path_text, position)
    own = path.steps == (name,)
    if not at and any(isinstance(step, int) for step in path.steps):
        raise PathInvalid("a place in an array needs @name for the result", position)
    return Column(path, Reducer(reducer_name), name if at and not own else None)


@lru_cache(maxsize=1_024)
def _reader(paths: tuple[FieldPath, ...]) -> FieldsOf:
    return read_fields(paths)
