"""Frames, one published message each, and batches, what a lane lets go at once."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

Span = tuple[int, int]


class Frame(msgspec.Struct, frozen=True, gc=False):
    """One message as published: shared by every board, log and session that refers to it.

    `key` is the canonical key a subscriber knows it by, empty where there is none.
    `timestamp_ms` is wall time at publication. A frame with `removed` is a tombstone: it
    stands on a board for a key that left, and `spans` are the offsets `[entered, left)`
    during which the key was there.
    """

    offset: int
    payload: bytes
    key: str = ""
    timestamp_ms: int = 0
    removed: bool = False
    spans: tuple[Span, ...] = ()


class Batch:
    """Rows that go out together, oldest first: from after `since` up to `position`.

    `firsts` are the offsets of the first message that each row stands for: a row's own where
    nothing was conflated. `low_water` is the offset at or below which nothing is still held
    or queued once these rows are out; None while a backlog remains, so that no id promises
    too much. `encoded` is where the shell keeps the bytes it makes, once for every subscriber
    of the lane.
    """

    __slots__ = ("encoded", "firsts", "frames", "low_water", "payload_bytes", "position", "since")

    def __init__(
        self,
        frames: Sequence[Frame],
        since: int,
        position: int,
        low_water: int | None,
        firsts: Sequence[int] | None = None,
    ) -> None:
        self.frames = tuple(frames)
        self.firsts = [frame.offset for frame in self.frames] if firsts is None else firsts
        self.since = since
        self.position = position
        self.low_water = low_water
        self.payload_bytes = sum(len(frame.payload) for frame in self.frames)
        self.encoded: dict[str, bytes] = {}

    def without_id(self) -> Batch:
        """The same rows for a member that older ones are still owed to."""
        return Batch(self.frames, self.since, self.position, None, self.firsts)


def prefix_within(frames: Sequence[Frame], bytes_max: int) -> int:
    """How many of the first frames fit into `bytes_max`; at least one, so that work goes on."""
    room = bytes_max
    for count, frame in enumerate(frames):
        room -= len(frame.payload)
        if room < 0:
            return max(count, 1)
    return len(frames)
