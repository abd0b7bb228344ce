"""Frames, one published message each; rows and receipts; batches, the rows of one flush."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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


# Frames hold texts, bytes and numbers, so they are in no reference cycle. There may be millions,
# which the garbage collector need not visit.
class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as published: shared by every board, log and session that refers to it.

    `key` is its canonical row key, empty if the topic has no key. `timestamp_ms` is wall time at
    publication. `exempt`: its publisher excludes it from conflation.
    """

    offset: int
    payload: bytes
    key: str = ""
    timestamp_ms: int = 0
    exempt: bool = False
    removed: ClassVar[bool] = False

    def __deepcopy__(self, memo: object) -> Self:
        return self  # immutable, so the copy for a trace shares it


class Tombstone(Frame, frozen=True, gc=False, kw_only=True):
    """A key that left: among a topic's messages the removal of a record, on a board what remains.

    On a board `payload` is the last value that it had, `put_offset` and `put_ms` are when that was
    put, `spans` the offsets `[entered, left)` in which the key was there. `record` is the present
    value of a record that only stopped matching. As a row it may stand for `messages` of which no
    row was sent, the first of them at `first`.
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
        """Return True if a consumer at this position still has the key that left."""
        # Half-open: a consumer at `left` was sent the removal.
        return any(entered <= position < left for entered, left in self.spans)

    def as_put(self) -> Frame:
        """Return the last value as a frame."""
        return Frame(self.put_offset, self.payload, self.key, self.put_ms)


class Row(Frame, frozen=True, gc=False, kw_only=True):
    """A frame with what it stands for: `messages` conflated ones, the first of them at `first`.

    `patch` is the merge patch that may be sent in place of the payload, if the client has its base.
    """

    first: int = 0
    first_ms: int = 0
    messages: int = 1
    patch: bytes | None = None

    def whole(self) -> Row:
        """Return the row with its full value."""
        return self if self.patch is None else msgspec.structs.replace(self, patch=None)


def sent_bytes(frame: Frame) -> int:
    """Count the payload bytes of a row as it is sent: those of its delta if it has one."""
    patch = frame.patch if isinstance(frame, Row) else None
    return len(frame.payload if patch is None else patch)


class Batch:
    """Rows that are sent together, oldest first: from after `since` up to `position`.

    `low_water` is the offset up to which everything is sent with these rows; None while a backlog
    remains, as no event may have an id then. `has_more`: another part of the same flush follows. In
    `encoded` the gateway caches the bytes, for all subscribers of the lane.
    """

    __slots__ = (
        "_messages", "encoded", "frames", "has_more", "low_water", "payload_bytes", "position",
        "since",
    )  # fmt: skip

    def __init__(
        self,
        frames: Iterable[Frame],
        since: int,
        position: int,
        low_water: int | None,
        *,
        has_more: bool = False,
    ) -> None:
        self.frames = tuple(frames)
        self.since = since
        self.position = position
        self.low_water = low_water
        self.has_more = has_more
        self.payload_bytes = sum(len(frame.payload) for frame in self.frames)
        # By format, as members of a lane may have different ones.
        self.encoded: dict[str, bytes] = {}
        self._messages: int | None = None

    def __deepcopy__(self, memo: object) -> Self:
        return self  # rows never change, and the cached bytes may be shared

    def messages(self) -> int:
        """Count the rows that are values, not removals."""
        if self._messages is None:  # cached, as every member of a lane needs it
            self._messages = sum(not frame.removed for frame in self.frames)
        return self._messages


ROWS_AT_ONCE = 5_000
"""The most rows that are sent at once: even a tiny row takes some microseconds."""
MADE_AT_ONCE = 1_000
"""The most rows that are made at once: combining messages or selecting fields takes ten times as
long as sending a row as it is."""


def prefix_within(frames: Sequence[Frame], bytes_max: int) -> int:
    """Return how many of the first frames fit into `bytes_max`, at least one.

    Rows of one offset, of which a derived board may have several, stay together, so that a prefix
    ends at a position. Apart from these there are at most `ROWS_AT_ONCE`.
    """
    room = bytes_max
    for count, frame in enumerate(frames):
        room -= len(frame.payload)
        is_full = room < 0 or count >= ROWS_AT_ONCE
        if is_full and count and frames[count - 1].offset != frame.offset:
            return count
    return len(frames)


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """Messages conflated into one row: their number, the first one's offset and time."""

    messages: int
    first: int
    first_ms: int

    def then(self, other: Receipt) -> Receipt:
        """Return the sum of both; an empty receipt has no first message.

        Usually this one is older, but not always: after several changes of options, messages that
        an earlier lane had not reported may be added after newer ones.
        """
        if not self.messages or not other.messages:
            return self if self.messages else other
        oldest = self if self.first <= other.first else other
        return Receipt(self.messages + other.messages, oldest.first, oldest.first_ms)

    def after(self, earlier: Receipt | None) -> Receipt:
        """Return the sum with an earlier receipt, if there is one."""
        return self if earlier is None else earlier.then(self)

    def on(self, frame: Frame, patch: bytes | None = None) -> Frame:
        """Return a frame with this receipt; the frame itself if it stands only for itself."""
        if isinstance(frame, Tombstone):
            return msgspec.structs.replace(
                frame, messages=self.messages, first=self.first, first_ms=self.first_ms
            )
        # The common case: most rows are the board's own frames, shared and not copied.
        if type(frame) is Frame and patch is None and self == receipt_of(frame):
            return frame
        if isinstance(frame, Row):
            return msgspec.structs.replace(
                frame,
                messages=self.messages,
                first=self.first,
                first_ms=self.first_ms,
                patch=patch,
                exempt=False,  # an exempt row would stand only for itself
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
    """Return the messages that a row stands for: one for a plain frame, none for a removal."""
    if isinstance(frame, Tombstone) and not frame.messages:
        return Receipt(0, frame.offset, frame.timestamp_ms)
    if isinstance(frame, Row | Tombstone):
        return Receipt(frame.messages, frame.first, frame.first_ms)
    return Receipt(1, frame.offset, frame.timestamp_ms)


@dataclass(frozen=True, slots=True)
class RestoredTopic:
    """A stored topic, from which the engine restores it.

    `records` are the newest frames of its keys in order of their offsets, with tombstones of keys
    that have left, none older than `horizon`; `journal` follows `dropped_through`, up to `head`.
    Replaced exempt messages may be missing up to `exempt_through`. `former` has the epochs that the
    topic's epoch continues, each with the last offset that both have.
    """

    head: int = 0
    records: Sequence[Frame] = ()
    horizon: int = 0
    journal: Sequence[Frame] = ()
    dropped_through: int = 0
    exempt_through: int = 0
    former: Mapping[str, int] = field(default_factory=dict)

    @property
    def through(self) -> int:
        """The offset up to which the records include all messages; later ones are in the journal.

        Of each key that has messages up to it, the records have the newest.
        """
        return max(self.horizon, self.records[-1].offset if self.records else 0)
