"""The naive answer to a plan: one message after the other through dictionaries, as rules say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

MILLISECOND_NS = 1_000_000


@dataclass
class Counted:
    """What an interval sends: bytes of each message, and its age in nanoseconds."""

    sizes: list[int] = field(default_factory=list)
    ages_ns: list[int] = field(default_factory=list)

    def age_ms(self, percent: int) -> int:
        """Nearest rank, in whole milliseconds."""
        rank = -(-len(self.ages_ns) * percent // 100)
        return (sorted(self.ages_ns)[rank - 1] + MILLISECOND_NS // 2) // MILLISECOND_NS


Message = tuple[str, int, int]
"""Key, time in nanoseconds, bytes."""


def messages(lines: Iterable[bytes], fields: tuple[str, ...], time: str) -> Iterator[Message]:
    for line in lines:
        record = json.loads(line)
        yield json.dumps([record.get(name) for name in fields]), record[time] * 10**6, len(line)


def by_key(found: Iterable[Message], interval_ns: int) -> Counted:
    """Each key's interval opens with its first held message; it ends at the end of a tick."""
    tick_ns = max(1, min(interval_ns // 20, 50 * MILLISECOND_NS))
    counted = Counted()
    held: dict[str, tuple[int, int, int]] = {}
    now = 0
    for key, time_ns, size in found:
        now = max(now, time_ns)
        if key in held and held[key][1] <= now:
            send(counted, *held.pop(key))
        opened, due, _ = held.get(key, (now, -(-(now + interval_ns) // tick_ns) * tick_ns, 0))
        held[key] = (opened, due, size)
    for left in held.values():
        send(counted, *left)
    return counted


def by_batch(found: Iterable[Message], interval_ns: int) -> Counted:
    """One interval for all keys: the first message of an idle buffer opens it."""
    counted = Counted()
    held: dict[str, tuple[int, int]] = {}
    due = now = 0
    for key, time_ns, size in found:
        now = max(now, time_ns)
        if held and due <= now:
            for opened, last in held.values():
                send(counted, opened, due, last)
            held = {}
        if not held:
            due = now + interval_ns
        held[key] = (held.get(key, (now, 0))[0], size)
    for opened, last in held.values():
        send(counted, opened, due, last)
    return counted


def send(counted: Counted, opened_ns: int, due_ns: int, size: int) -> None:
    counted.sizes.append(size)
    counted.ages_ns.append(due_ns - opened_ns)
