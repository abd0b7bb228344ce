"""Slices: a large publish in pieces, between which streams write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from conflation.frame import Frame
from conflation.sessions.session import QueueLimits

SLICE_MESSAGES_MAX = 1_000


def slices(frames: Sequence[Frame], limits: QueueLimits) -> Iterator[Sequence[Frame]]:
    """Pieces of at most 1,000 messages and half of what a session's queue may hold."""
    messages_max = max(1, min(SLICE_MESSAGES_MAX, limits.messages_max // 2))
    bytes_max = limits.bytes_max // 2
    start = size = 0
    for at, frame in enumerate(frames):
        size += len(frame.payload)
        if at > start and (at - start >= messages_max or size > bytes_max):
            yield frames[start:at]
            start, size = at, len(frame.payload)
    if frames:
        yield frames[start:]
