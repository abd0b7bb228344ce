"""Recorded messages, one by one, in order of publication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """Where a message stands: an epoch's position, or in other histories a number from 1."""

    epoch: str
    position: int


BEGINNING = Place("", 0)
"""Before the first message, whatever its epoch."""


class Spot(NamedTuple):
    """Where a message was found, for people: a file, and which line, row or position of it."""

    file: str
    unit: str
    number: int

    def __str__(self) -> str:
        return f"{self.file}, {self.unit} {self.number}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A message or removal (then `value` is None, and `reason` says why).

    `clock_ms` is the recorded time, which never runs back; 0 where none is known.
    """

    spot: Spot
    place: Place
    clock_ms: int
    key_text: str | None
    value: bytes | None
    reason: str | None = None

    @property
    def size(self) -> int:
        """Bytes of its value."""
        return len(self.value or b"")


class Window(NamedTuple):
    """Which messages are asked for: those not before `from_ms`, and before `until_ms`."""

    from_ms: int | None = None
    until_ms: int | None = None

    def has_begun(self, clock_ms: int) -> bool:
        """Whether a message of this time is not too early."""
        return self.from_ms is None or clock_ms >= self.from_ms

    def is_over(self, clock_ms: int) -> bool:
        """Whether a message of this time is too late, and so is all that follows."""
        return self.until_ms is not None and clock_ms >= self.until_ms


class RecordedClock:
    """The time of messages in order: one before the one before it counts as that one."""

    def __init__(self, begins_ms: int = 0) -> None:
        self._now_ms = begins_ms

    def at(self, time_ms: int) -> int:
        """The time as of a message."""
        self._now_ms = max(self._now_ms, time_ms)
        return self._now_ms


class History(NamedTuple):
    """A recorded history: what it is called, whether its times are known, and its messages.

    `messages` are those of a window behind a place.
    """

    name: str
    has_times: bool
    messages: Callable[[Place, Window], Iterator[Recorded]]
