"""The naive model of boards: every message is kept, and every query scans all of them.

It is written from the rules in docs/semantics, not from the engine, and shares no code with
it. What a topic's records are, what stands on a board, and what happened there, message by
message.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

Value = dict[str, Any]
Predicate = Callable[[Value], bool]
Key = tuple[object, ...]

MILLISECOND = 1_000_000


@dataclass(frozen=True, eq=False)
class Message:
    """One message as published, or a removal (`gone` says why)."""

    offset: int
    at: int
    key: str
    payload: bytes
    value: Value
    exempt: bool = False
    gone: str = ""

    def key_of(self, names: tuple[str, ...]) -> Key:
        """The values of these fields; null where one is missing."""
        return tuple(self.value.get(name) for name in names)


@dataclass(frozen=True, eq=False)
class Event:
    """What one message did to one key of a board: a value stands there now, or it has left.

    `value` is the value that stands there, or stood there last. `record` is the record as it is
    now, where it lives on outside the board.
    """

    offset: int
    at: int
    key: str
    payload: bytes
    value: Value
    cause: Message
    before: Value | None
    gone: str = ""
    record: bytes = b""
    exempt: bool = False


@dataclass(frozen=True)
class Focus:
    """Which board: a filter, a conflation key, a window, groups. Texts with what they mean."""

    filter_text: str = ""
    matches: Predicate = field(default=lambda _: True, compare=False, repr=False)
    fields: tuple[str, ...] | None = None
    order_text: str = ""
    rank: Callable[[Value], Any] = field(default=lambda _: 0, compare=False, repr=False)
    top: int = 0
    skip: int = 0
    grouping: str = ""
    projection_text: str = ""
    project: Callable[[list[Value]], Value] | None = field(default=None, compare=False, repr=False)

    @property
    def derived(self) -> bool:
        """Whether the rows of the board are not simply messages."""
        return bool(self.top or self.grouping)


Shown = dict[str, tuple[bytes, Value]]


@dataclass(eq=False)
class TopicModel:
    """All messages of a topic, and its records after each of them; `key` empty: it has none.

    Its journal keeps the newest `kept_max`: what a bookmark may ask for.
    """

    name: str
    key: tuple[str, ...]
    epoch: str
    policy: str = "conflate"
    kept_max: int = 10_000
    dropped_through: int = 0
    messages: list[Message] = field(default_factory=list)
    records: list[dict[str, Message]] = field(default_factory=lambda: [{}])
    _told: dict[Focus, list[Event]] = field(default_factory=dict)
    _looked: dict[Focus, int] = field(default_factory=dict)

    @property
    def head(self) -> int:
        """The newest message's offset."""
        return len(self.messages)

    def after(self, offset: int) -> list[Message]:
        """Every message after an offset."""
        return self.messages[offset:]

    def trim(self) -> None:
        """Let the journal forget."""
        self.dropped_through = max(self.dropped_through, self.head - self.kept_max)

    def add(self, payload: bytes, at: int, *, exempt: bool = False) -> Message:
        """A message is published."""
        value = json.loads(payload)
        own = key_text(value, self.key) if self.key else ""
        return self._append(Message(self.head + 1, at, own, payload, value, exempt))

    def remove(self, own: str, at: int, reason: str) -> Message:
        """A record is removed."""
        return self._append(Message(self.head + 1, at, own, b"", {}, gone=reason))

    def _append(self, message: Message) -> Message:
        self.messages.append(message)
        now = {own: other for own, other in self.records[-1].items() if own != message.key}
        if self.key and not message.gone:
            now[message.key] = message
        self.records.append(now)
        self.trim()
        return message

    def live(self, focus: Focus, offset: int) -> Shown:
        """What stands on a board after a message: payload and value of each key."""
        found = {
            own: (record.payload, record.value)
            for own, record in self.records[offset].items()
            if focus.matches(record.value)
        }
        if focus.top:
            inside = sorted(found, key=lambda own: (focus.rank(found[own][1]), own))
            return {own: found[own] for own in inside[focus.skip : focus.skip + focus.top]}
        if focus.grouping:
            return grouped(focus, [value for _, value in found.values()])
        return found

    def events(self, focus: Focus, after: int = 0) -> list[Event]:
        """What happened on a board behind an offset."""
        told = self._told.setdefault(focus, [])
        for message in self.messages[self._looked.get(focus, 0) :]:
            told += self._events_of(focus, message)
        self._looked[focus] = self.head
        return told[bisect_right(told, after, key=lambda event: event.offset) :]

    def _events_of(self, focus: Focus, message: Message) -> Iterator[Event]:
        if self._keyed_otherwise(focus):
            yield from self._event_by_other_key(focus, message)
            return
        before = self.live(focus, message.offset - 1)
        after = self.live(focus, message.offset)
        reason = message.gone or "match"
        for own, (payload, value) in before.items():
            if own not in after:
                why = reason if own == message.key or focus.grouping else "match"
                record = self.records[message.offset].get(own)
                lives = b"" if record is None else record.payload
                yield Event(
                    message.offset, message.at, own, payload, value, message, value, why, lives
                )
        touched = self._touched(focus, message)
        for own, (payload, value) in after.items():
            if own not in before or own in touched:
                old = before[own][1] if own in before else None
                alone = not focus.grouping and self.records[message.offset][own].exempt
                yield Event(
                    message.offset, message.at, own, payload, value, message, old, exempt=alone
                )

    def _keyed_otherwise(self, focus: Focus) -> bool:
        return not self.key or focus.fields not in (None, self.key)

    def _event_by_other_key(self, focus: Focus, message: Message) -> Iterator[Event]:
        """Removals are of records; other keys know only messages."""
        if message.gone or not focus.matches(message.value):
            return
        own = key_text(message.value, focus.fields) if focus.fields else ""
        older = [event for event in self._told[focus] if event.key == own]
        old = older[-1].value if older else None
        yield Event(
            message.offset,
            message.at,
            own,
            message.payload,
            message.value,
            message,
            old,
            exempt=message.exempt,
        )

    def _touched(self, focus: Focus, message: Message) -> set[str]:
        """The keys for which a message is news."""
        if not focus.grouping:
            return {message.key}
        states = self.records[message.offset - 1], self.records[message.offset]
        versions = [state[message.key].value for state in states if message.key in state]
        return {key_text(value, (focus.grouping,)) for value in versions if focus.matches(value)}


def grouped(focus: Focus, values: list[Value]) -> Shown:
    """One row for each group of some records."""
    assert focus.project is not None
    found: Shown = {}
    for own in dict.fromkeys(key_text(value, (focus.grouping,)) for value in values):
        members = [value for value in values if key_text(value, (focus.grouping,)) == own]
        row = focus.project(members)
        found[own] = (compact(row), row)
    return found


def key_text(value: Value, names: tuple[str, ...]) -> str:
    """A key as it is written; null for what is missing."""
    return compact([value.get(name) for name in names]).decode()


def compact(value: object) -> bytes:
    """JSON without a space."""
    return json.dumps(value, separators=(",", ":")).encode()


def patched(value: object, patch: object) -> object:
    """RFC 7396, as its page has it."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = patched(result.get(name), change)
    return result


def changed_fields(before: Value, after: Value) -> set[str]:
    """The members of an object that are not what they were."""
    return {name for name in {*before, *after} if not alike(before, after, name)}


def alike(before: Value, after: Value, name: str) -> bool:
    """Whether a member is in both and says the same."""
    return name in before and name in after and before[name] == after[name]
