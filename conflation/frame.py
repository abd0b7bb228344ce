"""Frames, one published message each, and batches, what a lane lets go at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Self

import msgspec

Span = tuple[int, int]


class RemovalReason(StrEnum):
    """Why a key left a subscriber's focus (AMPS's reasons of an `oof`)."""

    MATCH = "match"
    DELETED = "deleted"
    EXPIRED = "expired"
    ENTITLEMENT = "entitlement"


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as published: shared by every board, log and session that refers to it.

    `key` is the canonical key a subscriber knows it by, empty where there is none.
    `timestamp_ms` is wall time at publication. `exempt`: its publisher wants it never conflated.
    """

    offset: int
    payload: bytes
    key: str = ""
    timestamp_ms: int = 0
    exempt: bool = False
    removed: ClassVar[bool] = False

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Tombstone(Frame, frozen=True, gc=False, kw_only=True):
    """A key that left. In a topic's sequence: the removal of a record; on a board: what stays.

    On a board `payload` is the record as it last was there, `put_offset` and `put_ms` tell when it
    was put, `spans` the offsets `[entered, left)` during which the key was there. `record` is
    the record as it is now, where it lives on outside the board's focus. As a row it may stand
    for `messages` that nobody was told of, the first of them at `first`.
    """

    reason: RemovalReason = RemovalReason.DELETED
    put_offset: int = 0
    put_ms: int = 0
    spans: tuple[Span, ...] = ()
    record: bytes = b""
    first: int = 0
    first_ms: int = 0
    messages: int = 0
    removed: ClassVar[bool] = True

    def held_at(self, position: int) -> bool:
        """Whether a consumer at this position still shows the key that left."""
        return any(entered <= position < left for entered, left in self.spans)

    def as_put(self) -> Frame:
        """The frame that stood here before the key left."""
        return Frame(self.put_offset, self.payload, self.key, self.put_ms)


class Row(Frame, frozen=True, gc=False, kw_only=True):
    """A frame with what it stands for: `messages` conflated ones, the first of them at `first`.

    `patch` is the merge patch that may go in the payload's place, for those who hold the base.
    """

    first: int = 0
    first_ms: int = 0
    messages: int = 1
    patch: bytes | None = None

    def whole(self) -> Row:
        """The same with its full value."""
        return self if self.patch is None else msgspec.structs.replace(self, patch=None)


def told_bytes(frame: Frame) -> int:
    """Payload bytes of a row as it goes out: of its delta, if that is what is told."""
    patch = frame.patch if isinstance(frame, Row) else None
    return len(frame.payload if patch is None else patch)


class Batch:
    """Rows that go out together, oldest first: from after `since` up to `position`.

    `low_water` is the offset at or below which nothing is still held or queued once these rows
    are out; None while a backlog remains, so that no id promises too much. `encoded` is where
    the shell keeps the bytes it makes, once for every subscriber of the lane.
    """

    __slots__ = (
        "_messages", "encoded", "frames", "low_water", "payload_bytes", "position", "since",
    )  # fmt: skip

    def __init__(
        self, frames: Iterable[Frame], since: int, position: int, low_water: int | None
    ) -> None:
        self.frames = tuple(frames)
        self.since = since
        self.position = position
        self.low_water = low_water
        self.payload_bytes = sum(len(frame.payload) for frame in self.frames)
        self.encoded: dict[str, bytes] = {}
        self._messages: int | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def messages(self) -> int:
        """Rows that bring a value; a removal brings none."""
        if self._messages is None:  # asked for every member of a lane
            self._messages = sum(not frame.removed for frame in self.frames)
        return self._messages


def prefix_within(frames: Sequence[Frame], bytes_max: int) -> int:
    """How many of the first frames fit into `bytes_max`; at least one, so that work goes on.

    Rows of one offset (a derived board may have several) stay together: a prefix is a position.
    """
    room = bytes_max
    for count, frame in enumerate(frames):
        room -= len(frame.payload)
        if room < 0 and count and frames[count - 1].offset != frame.offset:
            return count
    return len(frames)


# What a row stands for: how many messages, and the first of them.


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Messages conflated into one row: their number, the first one's offset and time."""

    messages: int
    first: int
    first_ms: int

    def then(self, other: Receipt) -> Receipt:
        """Both together, this one the older; nothing has no first."""
        if not self.messages or not other.messages:
            return self if self.messages else other
        return Receipt(self.messages + other.messages, self.first, self.first_ms)

    def on(self, frame: Frame, patch: bytes | None = None) -> Frame:
        """The row that a frame becomes; the frame itself where it stands for itself alone."""
        if isinstance(frame, Tombstone):
            return msgspec.structs.replace(
                frame, messages=self.messages, first=self.first, first_ms=self.first_ms
            )
        if type(frame) is Frame and patch is None and self == receipt_of(frame):
            return frame
        if isinstance(frame, Row):
            return msgspec.structs.replace(
                frame,
                messages=self.messages,
                first=self.first,
                first_ms=self.first_ms,
                patch=patch,
                exempt=False,
            )
        return Row(
            frame.offset,
            frame.payload,
            frame.key,
            frame.timestamp_ms,
            first=self.first,
            first_ms=self.first_ms,
            messages=self.messages,
            patch=patch,
        )


def receipt_of(frame: Frame) -> Receipt:
    """What a row stands for; a message for itself, a removal for none."""
    if isinstance(frame, Tombstone) and not frame.messages:
        return Receipt(0, frame.offset, frame.timestamp_ms)
    if isinstance(frame, Row | Tombstone):
        return Receipt(frame.messages, frame.first, frame.first_ms)
    return Receipt(1, frame.offset, frame.timestamp_ms)


# What was kept of a topic: what the engine is to know of it after a start.


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A topic as it was kept.

    `records` are the newest frames of its keys by rising offset, tombstones of keys that have left
    among them, none older than `horizon`; `journal` what follows `dropped_through`, up to `head`.
    Replaced messages that were not to be conflated may be missing up to `exempt_through`.
    """

    head: int = 0
    records: Sequence[Frame] = ()
    horizon: int = 0
    journal: Sequence[Frame] = ()
    dropped_through: int = 0
    exempt_through: int = 0

    @property
    def through(self) -> int:
        """Records tell of every message up to here; of those behind it the journal does.

        Each message is its key's newest, or there is a newer one: none is newer than all of them.
        """
        return max(self.horizon, self.records[-1].offset if self.records else 0)
