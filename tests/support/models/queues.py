"""The naive model of queues: rows in lists, and what a policy makes of them, looked at one by one.

It is written from CONTRACT 6 and rules queue-1 to queue-11 and merge-4, not
from the engine, and shares no code with it. All messages have the fields k, v and w, so that a
patch never takes one away.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Fields = dict[str, Any]


def written(fields: Fields) -> bytes:
    """JSON without spaces."""
    return json.dumps(fields, separators=(",", ":")).encode()


@dataclass(frozen=True)
class QueuedRow:
    """A row to come: what it stands for, its place, and the delta that may say it."""

    offset: int
    value: Fields
    stands: int = 1
    order: int = 0
    changes: Fields | None = None
    kept: bool = False

    @property
    def key(self) -> str:
        """What it is a row of."""
        return str(self.value["k"])

    @property
    def patch(self) -> bytes | None:
        """The delta where it has fewer bytes than the value."""
        if self.changes is None:
            return None
        text = written(self.changes)
        return text if len(text) < len(written(self.value)) else None

    @property
    def size(self) -> int:
        """Bytes to be sent."""
        return len(self.patch or written(self.value))

    def then(self, later: QueuedRow, *, replaces: bool) -> QueuedRow:
        """Both as one row (rules queue-9 and merge-4)."""
        changes = None
        if self.patch is not None and later.patch is not None:
            assert self.changes is not None
            assert later.changes is not None
            changes = {**self.changes, **later.changes}
        order = self.order if replaces else later.offset
        return replace(later, stands=self.stands + later.stands, order=order, changes=changes)


def together(rows: Iterable[QueuedRow], *, replaces: bool) -> list[QueuedRow]:
    """One row for each key, in its place."""
    by_key: dict[str, QueuedRow] = {}
    for row in rows:
        earlier = by_key.get(row.key)
        by_key[row.key] = row if earlier is None else earlier.then(row, replaces=replaces)
    ordered = sorted(by_key.values(), key=lambda row: row.order)
    return [replace(row, kept=True) for row in ordered]


@dataclass(eq=False)
class TopicQueues:
    """A topic as queues know it."""

    name: str
    policy: str
    rank: int
    replaces: bool = False
    tidies: bool = False
    head: int = 0
    records: dict[str, Fields] = field(default_factory=dict)

    def publish(self, values: list[Fields]) -> list[QueuedRow]:
        """Messages as every list tells them: with what they changed."""
        told = []
        for value in values:
            before = self.records.get(value["k"])
            changes = None
            if before is not None:
                changed = {name: part for name, part in value.items() if part != before[name]}
                changes = {"k": value["k"], **changed}
            self.head += 1
            self.records[value["k"]] = value
            told.append(QueuedRow(self.head, value, order=self.head, changes=changes))
        return told


@dataclass(eq=False)
class Reader:
    """One subscription that asks for every message, or (`interval`) one that queues nothing."""

    name: str
    topic: TopicQueues
    delta: bool = False
    interval: bool = False
    always: bool = False
    begun: bool = True
    owed: list[QueuedRow] = field(default_factory=list)
    queue: list[QueuedRow] = field(default_factory=list)
    received: list[int] = field(default_factory=list)
    holds: dict[str, Fields] = field(default_factory=dict)
    matched: int = 0
    delivered: int = 0

    @property
    def by_row(self) -> bool:
        """Whether its queue is put together row by row, not by a board (rule queue-9)."""
        return self.delta or self.topic.replaces

    def enqueue(self, new: list[QueuedRow]) -> None:
        """Messages come."""
        if self.interval:
            return
        self.matched += len(new)
        rows = new if self.delta else [replace(row, changes=None) for row in new]
        for row in rows:
            same = [old for old in self.queue if old.key == row.key and old.kept]
            if same and (self.always or not self.by_row):
                (old,) = same  # rules queue-4 and queue-5
                self.queue.remove(old)
                row = replace(row, stands=old.stands + row.stands)
            self.queue.append(replace(row, kept=self.always))

    def conflate(self) -> None:
        """Step 2, for a topic that conflates."""
        self.queue = together(self.queue, replaces=self.topic.replaces)
        self.owed = together(self.owed, replaces=self.topic.replaces)

    def switch(self, always: bool) -> None:
        """Into the other lane, with all that is queued (rule queue-8)."""
        if always == self.always or self.interval:
            return
        self.always = always
        if always and not self.owed:
            self.queue = together(self.queue, replaces=False)
            return
        rows = [*self.owed, *self.queue]
        self.owed = together(rows, replaces=False) if always else rows
        self.queue = []

    def rows(self) -> list[QueuedRow]:
        """All that is to come, in order."""
        return [*self.owed, *self.queue]

    def next_row(self) -> QueuedRow:
        """The first of it goes."""
        rows = self.owed or self.queue
        self.delivered += 1
        return rows.pop(0)


@dataclass(eq=False)
class Farewell:
    """What is still told to a reader that has left."""

    reader: Reader
    rows: list[QueuedRow]


Line = tuple[str, ...] | Farewell


@dataclass(eq=False)
class Queues:
    """A session: its readers, its limits, what it is told of."""

    name: str
    messages_max: int
    bytes_max: int
    conflated: bool
    pace: str
    upper: int = 80
    lower: int = 50
    unsent: int = 0
    crossed: bool = False
    ended: bool = False
    readers: dict[str, Reader] = field(default_factory=dict)
    outbox: deque[Line] = field(default_factory=deque)
    events: list[tuple[Any, ...]] = field(default_factory=list)

    def rows(self) -> Iterator[QueuedRow]:
        """Everything queued."""
        for reader in self.readers.values():
            yield from reader.rows()
        for farewell in self.farewells():
            yield from farewell.rows

    def farewells(self) -> list[Farewell]:
        return [line for line in self.outbox if isinstance(line, Farewell)]

    def fills(self) -> tuple[int, int]:
        """Messages, and bytes with what the socket holds (rule queue-6)."""
        rows = list(self.rows())
        return len(rows), sum(row.size for row in rows) + self.unsent if rows else 0

    def fullness(self) -> float:
        """Return the share of its limits that is taken."""
        messages, size = self.fills()
        return max(messages / self.messages_max, size / self.bytes_max)

    def above(self, percent: int) -> bool:
        """Whether more than a share of either limit is taken."""
        messages, size = self.fills()
        return 100 * messages > percent * self.messages_max or 100 * size > percent * self.bytes_max

    def note_level(self) -> None:
        """Rule queue-11."""
        if self.ended:
            return
        if not self.crossed and self.above(self.upper):
            self.crossed = True
            self.events.append(("upper", *self.fills()))
        elif self.crossed and not self.above(self.lower):
            self.crossed = False
            self.events.append(("lower", *self.fills()))

    def look(self) -> None:
        """CONTRACT 6, steps 2 and 3; step 1 is what the session has taken."""
        self.note_level()
        if self.above(100) and self.conflated:
            self.apply_policies()
        if self.above(100) and not self.ended:
            self.close("MESSAGE_QUEUE_LIMIT_REACHED")
        self.note_level()

    def apply_policies(self) -> None:
        """The whole queue, topic by topic."""
        for farewell in self.farewells():
            topic = farewell.reader.topic
            if topic.policy == "unsubscribe":
                farewell.rows.clear()
            elif topic.policy != "off":
                farewell.rows[:] = together(farewell.rows, replaces=topic.replaces)
        queued = {reader.topic for reader in self.readers.values() if reader.rows()}
        for reader in list(self.readers.values()):
            if reader.topic.policy == "conflate":
                reader.conflate()
            elif reader.topic.policy == "unsubscribe" and reader.topic in queued:
                self.leave(reader, "BACK_PRESSURE")

    def leave(self, reader: Reader, reason: str, *, wanted: bool = False) -> None:
        """A reader ends; rule queue-10."""
        del self.readers[reader.name]
        if wanted and reader.begun and not reader.topic.tidies and not reader.interval:
            whole = [replace(row, changes=None) for row in reader.rows()]
            self.outbox.append(Farewell(reader, whole))
        self.outbox.append(("unsubscribed", reader.name, reason))

    def close(self, reason: str) -> None:
        """What is queued goes; nothing follows the goodbye."""
        self.ended = True
        self.readers.clear()
        for farewell in self.farewells():
            farewell.rows.clear()
        self.outbox.append(("goodbye", reason))
        self.events.append(("closed", reason))
