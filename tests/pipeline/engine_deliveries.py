"""What the engine delivers of recorded messages, under a clock that shows the recorded time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from conflation.count import count_of
from conflation.frame import Frame, Tombstone
from tests.support.world import World, batches


class Recorded(NamedTuple):
    """A message, or with no body the removal of a record."""

    position: int
    time_ms: int
    key: str
    body: bytes | None


class Delivered(NamedTuple):
    """One row as it went out."""

    key: str
    first: int
    last: int
    messages: int
    value: bytes | None
    removed: str | None
    due_ns: int


def engine_deliveries(
    messages: Iterable[Recorded], options: str, wanted: str = "", key: str = "[/k]"
) -> list[Delivered]:
    """Rows of one subscriber who always takes at once; counts are asked for with `receipt`."""
    world = World()
    world.topic(key=key)
    world.session(messages_max=1 << 30)
    world.subscribe(f"{options},receipt", wanted=wanted)
    world.take()
    found: list[Delivered] = []
    for message in messages:
        time_ns = message.time_ms * 1_000_000
        found += _served(world, time_ns)
        world.now = max(world.now, time_ns)
        kind = Frame if message.body is not None else Tombstone
        frame = kind(message.position, message.body or b"", message.key, message.time_ms)
        world.engine.publish("px", [frame], world.now)
    return found + _served(world, None)


def _served(world: World, until_ns: int | None) -> list[Delivered]:
    found: list[Delivered] = []
    while (due := world.engine.next_deadline()) is not None:
        if until_ns is not None and due > until_ns:
            break
        world.now = due
        world.engine.advance(due)
        found += [_delivered(row, due) for batch in batches(world.take()) for row in batch.frames]
    return found


def _delivered(row: Frame, due_ns: int) -> Delivered:
    count = count_of(row)
    reason = str(row.reason) if isinstance(row, Tombstone) else None
    value = None if row.removed else row.payload
    return Delivered(row.key, count.first, row.offset, count.messages, value, reason, due_ns)
