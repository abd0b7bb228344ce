"""Structural conflation: messages of one key merged into one, `[/px:last,/px:max@hi,/qty:sum]`.

Merging is associative: messages merged in any groups, in publication order, give the same result.
Messages that a lane has conflated can therefore be conflated again in a queue, or elsewhere.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any

import msgspec

from tidegate.keys.errors import PathInvalid
from tidegate.keys.jsontext import (
    NULL,
    Exact,
    canonical_value,
    comparable,
    exact,
    is_number,
    items,
    members,
    number_text,
    object_text,
    overlap,
    string,
    with_value_at,
)
from tidegate.keys.path import FieldPath
from tidegate.keys.spec import read_fields, split_list


class Reducer(StrEnum):
    """The names of reducers, as in options and topic definitions."""

    LAST = "last"
    FIRST = "first"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    COUNT = "count"
    AVG = "avg"
    APPEND = "append"
    UNION = "union"


@dataclass(frozen=True, slots=True)
class Monoid:
    """The functions of a reducer: `lift` a field to a state, `join` two states, `show` the result.

    States join in order, however they are grouped. They are immutable; None is the state of no
    field, and only `lift` returns it. `show` returns None if there is no result. `load` restores
    the state from the JSON text that `save` writes.
    """

    lift: Callable[[bytes | None], Any]
    join: Callable[[Any, Any], Any]
    show: Callable[[Any], bytes | None]
    save: Callable[[Any], bytes]
    load: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class _Mean:
    total: Exact
    count: int


@dataclass(frozen=True, slots=True)
class _Extreme:
    """The best number with its published text, and the best string.

    A string counts only if there is no number at all. That is known at the end alone, so both are
    kept, and states join the same however they are grouped.
    """

    number: tuple[int | Decimal, bytes] | None
    words: tuple[str, bytes] | None


def join(monoid: Monoid, one: Any, later: Any) -> Any:
    """Join two states, either of which may be absent."""
    if one is None or later is None:
        return later if one is None else one
    return monoid.join(one, later)


def _present(text: bytes | None) -> bytes | None:
    """Return a field's text; null counts as absent."""
    return None if text == NULL else text


def _number(text: bytes | None) -> Exact | None:
    return exact(text) if text is not None and is_number(text) else None


def _mean(text: bytes | None) -> _Mean | None:
    number = _number(text)
    return None if number is None else _Mean(number, 1)


def _extreme(text: bytes | None) -> _Extreme | None:
    if text is None:
        return None
    if is_number(text):
        return _Extreme((comparable(text), text), None)
    said = string(text)
    return None if said is None else _Extreme(None, (said, text))


def _better(wins: Callable[[Any, Any], bool]) -> Callable[[_Extreme, _Extreme], _Extreme]:
    """Return the better of two, the one that `wins` over the other; the first among equals."""

    def pick(one: Any, later: Any) -> Any:
        if one is None or later is None:
            return later if one is None else one
        # Strictly, so that the first of equal values stays, however states are grouped.
        return later if wins(later[0], one[0]) else one

    def better(one: _Extreme, later: _Extreme) -> _Extreme:
        return _Extreme(pick(one.number, later.number), pick(one.words, later.words))

    return better


def _best(state: _Extreme) -> bytes | None:
    found = state.number or state.words
    return None if found is None else found[1]


def _listed(text: bytes | None) -> tuple[bytes, ...] | None:
    if text is None or text == NULL:
        return None
    parts = items(text)
    return (text,) if parts is None else tuple(map(bytes, parts))


def _distinct(text: bytes | None) -> dict[str, bytes] | None:
    parts = _listed(text)
    return None if parts is None else _united({}, {canonical_value(part): part for part in parts})


def _united(one: dict[str, bytes], later: dict[str, bytes]) -> dict[str, bytes]:
    # A copy, and only if something is new: merged messages share states, so none may change.
    new = {name: text for name, text in later.items() if name not in one}
    return {**one, **new} if new else one


def _array(parts: Any) -> bytes:
    return b"[" + b",".join(parts) + b"]"


def _save_number(number: Exact) -> bytes:
    # In quotes, as JSON has no fractions such as 1/3.
    return b'"%s"' % str(number).encode()


def _load_number(text: bytes) -> Exact:
    said = text.decode().strip('"')
    return Fraction(said) if "/" in said else int(said)


def _save_mean(mean: _Mean) -> bytes:
    return b"[%s,%d]" % (_save_number(mean.total), mean.count)


def _load_mean(text: bytes) -> _Mean:
    total, count = items(text) or []
    return _Mean(_load_number(bytes(total)), int(bytes(count)))


def _save_extreme(state: _Extreme) -> bytes:
    return _array(NULL if found is None else found[1] for found in (state.number, state.words))


def _load_extreme(text: bytes) -> _Extreme:
    parts = [_extreme(bytes(part)) or _Extreme(None, None) for part in items(text) or []]
    return _Extreme(parts[0].number, parts[1].words)


MONOIDS: dict[Reducer, Monoid] = {
    Reducer.LAST: Monoid(
        # b"" is a state: a last message without the field removes what came before.
        lift=lambda text: text or b"",
        join=lambda one, later: later,
        show=lambda last: last or None,
        save=lambda last: _array([last] if last else []),
        load=lambda text: b"".join(_listed(text) or ()),
    ),
    Reducer.FIRST: Monoid(
        lift=_present,
        join=lambda one, later: one,
        show=lambda first: first,
        save=lambda first: first,
        load=lambda text: text,
    ),
    Reducer.SUM: Monoid(
        _number, lambda one, later: one + later, number_text, _save_number, _load_number
    ),
    Reducer.MIN: Monoid(_extreme, _better(operator.lt), _best, _save_extreme, _load_extreme),
    Reducer.MAX: Monoid(_extreme, _better(operator.gt), _best, _save_extreme, _load_extreme),
    Reducer.COUNT: Monoid(
        lift=lambda text: None if _present(text) is None else 1,
        join=lambda one, later: one + later,
        show=number_text,
        save=_save_number,
        load=_load_number,
    ),
    Reducer.AVG: Monoid(
        lift=_mean,
        join=lambda one, later: _Mean(one.total + later.total, one.count + later.count),
        show=lambda mean: number_text(Fraction(mean.total) / mean.count),
        save=_save_mean,
        load=_load_mean,
    ),
    Reducer.APPEND: Monoid(_listed, lambda one, later: one + later, _array, _array, _listed),
    Reducer.UNION: Monoid(
        lift=_distinct,
        join=_united,
        show=lambda found: _array(found.values()),
        save=lambda found: _array(found.values()),
        load=_distinct,
    ),
}


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
    """Reducers of named fields; other fields come from the last message."""

    columns: tuple[Column, ...] = ()

    @classmethod
    def parse(cls, text: str, position: int = 0) -> Reduce:
        """Parse the options spelling `[/px:max@hi,/qty:sum]`; `position` is that of the text.

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
        """Read a topic's `merge` object, `{"/qty": "sum", "/px": "max@hi"}`.

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
            # One result inside another would overwrite it, or be overwritten.
            if any(overlap(column.target, other.target) for other in columns):
                raise PathInvalid("two reducers write to one place", position)
            columns.append(column)
        return cls(tuple(columns))

    def __str__(self) -> str:
        """Return the canonical options spelling, `[/px:last,/px:max@hi]`."""
        return "[" + ",".join(map(str, self.columns)) + "]"

    @property
    def kinds(self) -> Iterable[Monoid]:
        """The functions of each column's reducer."""
        return (MONOIDS[column.reducer] for column in self.columns)

    @property
    def is_plain(self) -> bool:
        """True if merging is replacing: every reducer is `last`, in the field's own place."""
        return all(one.reducer is Reducer.LAST and one.name is None for one in self.columns)

    def writes_to(self, paths: Iterable[FieldPath]) -> bool:
        """Return True if it changes one of these fields of the last message."""
        targets = [
            column.target
            for column in self.columns
            if column.reducer is not Reducer.LAST or column.name is not None
        ]
        fields = [tuple(map(str, path.steps)) for path in paths]
        return any(overlap(target, field) for target in targets for field in fields)

    def begin(self, payload: bytes) -> Merged:
        """Begin a merged message with one message."""
        # The fields of all columns in one pass over the message.
        fields = read_fields(tuple(column.path for column in self.columns))(payload)
        states = (kind.lift(text) for kind, text in zip(self.kinds, fields, strict=True))
        return Merged(self, payload, tuple(states))

    def payload(self, last: bytes, results: Iterable[bytes | None]) -> bytes:
        """Return the last message with the results of all columns in their places."""
        fields = None if self.is_plain else members(last)
        if fields is None:
            return last
        for column, result in zip(self.columns, results, strict=True):
            fields = with_value_at(fields, column.target, result)
        return object_text(fields)

    def loaded(self, saved: bytes) -> Merged:
        """Restore a merged message that `Merged.saved` has written."""
        last, *states = map(bytes, items(saved) or [])
        pairs = zip(self.kinds, states, strict=True)
        known = (None if text == NULL else kind.load(text) for kind, text in pairs)
        return Merged(self, last, tuple(known))


# Not visited by the garbage collector: a lane holds one for each of a hundred thousand keys.
class Merged(msgspec.Struct, frozen=True, gc=False):
    """Messages merged so far, immutable: the last of them, and a state for each column."""

    reduce: Reduce
    last: bytes
    states: tuple[Any, ...]

    def join(self, other: Merged) -> Merged:
        """Return the merged message joined with a later one of the same reducers."""
        assert other.reduce == self.reduce, "both have the same reducers"
        pairs = zip(self.reduce.kinds, self.states, other.states, strict=True)
        states = (join(kind, one, later) for kind, one, later in pairs)
        return Merged(self.reduce, other.last, tuple(states))

    def saved(self) -> bytes:
        """Return the whole state as JSON text, for `Reduce.loaded` of the same reducers."""
        pairs = zip(self.reduce.kinds, self.states, strict=True)
        states = (NULL if state is None else kind.save(state) for kind, state in pairs)
        return b"[" + b",".join([self.last, *states]) + b"]"

    def payload(self) -> bytes:
        """Return the message for all: the last one, with the results in their places."""
        pairs = zip(self.reduce.kinds, self.states, strict=True)
        results = (None if state is None else kind.show(state) for kind, state in pairs)
        return self.reduce.payload(self.last, results)


def _column(text: str, position: int) -> Column:
    path_text, colon, reducer_text = text.rpartition(":")
    if not colon:
        raise PathInvalid("expected path:reducer, such as /qty:sum", position)
    reducer_name, at, name = reducer_text.partition("@")
    start = position + len(path_text) + 1
    if reducer_name not in list(Reducer):
        raise PathInvalid("expected a reducer: " + " ".join(Reducer), start)
    if at and not _NAME(name):
        raise PathInvalid("expected a field's name after @", start + len(reducer_name) + 1)
    path = FieldPath.parse(path_text, position)
    # `/px:max@px` is `/px:max`: equal reducers are equal texts.
    own = path.steps == (name,)
    if not at and any(isinstance(step, int) for step in path.steps):
        raise PathInvalid("a place in an array needs @name for the result", position)
    return Column(path, Reducer(reducer_name), name if at and not own else None)
