"""What a row stands for: how many messages, and the first of them."""

from __future__ import annotations

import msgspec

from conflation.frame import Frame, Row, Tombstone


class Count(msgspec.Struct, frozen=True, gc=False):
    """Messages conflated into one row: their number, the first one's offset and time."""

    messages: int
    first: int
    first_ms: int

    def then(self, other: Count) -> Count:
        """Both together, this one the older; nothing has no first."""
        if not self.messages or not other.messages:
            return self if self.messages else other
        return Count(self.messages + other.messages, self.first, self.first_ms)

    def on(self, frame: Frame, patch: bytes | None = None) -> Frame:
        """The row that a frame becomes; the frame itself where it stands for itself alone."""
        if isinstance(frame, Tombstone):
            return msgspec.structs.replace(
                frame, messages=self.messages, first=self.first, first_ms=self.first_ms
            )
        if type(frame) is Frame and patch is None and self == count_of(frame):
            return frame
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


def count_of(frame: Frame) -> Count:
    """What a row stands for; a message for itself, a removal for none."""
    if isinstance(frame, Tombstone) and not frame.messages:
        return Count(0, frame.offset, frame.timestamp_ms)
    if isinstance(frame, Row | Tombstone):
        return Count(frame.messages, frame.first, frame.first_ms)
    return Count(1, frame.offset, frame.timestamp_ms)
