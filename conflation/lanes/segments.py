"""Segments: the flushes of a lane that somebody is still behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from conflation.lane_id import LaneId
from conflation.lanes.slot import Slot
from conflation.lanes.slots import Slots


@dataclass(slots=True)
class Segment:
    """Slots that were flushed between the position before and this one."""

    position: int
    slots: list[Slot]


class Segments:
    """As many as members stand at different positions: between them, flushes become one."""

    def __init__(self, lane_id: LaneId) -> None:
        self._lane_id = lane_id
        self._segments: list[Segment] = []

    def __len__(self) -> int:
        return len(self._segments)

    def add(self, position: int, slots: Sequence[Slot]) -> None:
        """A flush."""
        self._segments.append(Segment(position, list(slots)))

    def all(self) -> Iterator[Slot]:
        """The slots of all flushes that somebody is behind."""
        return (slot for segment in self._segments for slot in segment.slots)

    def after(self, position: int, since_join: int) -> Slots:
        """Everything behind a position put together, as far as it began after a join."""
        found = Slots(self._lane_id)
        for segment in self._segments:
            if segment.position > position:
                found.absorb(segment.slots, since_join)
        return found

    def is_next(self, position: int, since_join: int) -> bool:
        """Whether one flush alone is behind a position, and nothing in it was held at a join."""
        newest = self._segments[-1] if self._segments else None
        if newest is None or newest.position != position + 1:
            return False
        return all(slot.began >= since_join for slot in newest.slots)

    def drop(self, positions: set[int]) -> None:
        """Forget what everybody has; make one of neighbours that nobody stands between."""
        oldest = min(positions, default=None)
        kept: list[Segment] = []
        for segment in self._segments:
            if oldest is None or segment.position <= oldest:
                continue
            if kept and kept[-1].position not in positions and not _unseen(kept[-1], segment):
                segment = Segment(segment.position, self._joined(kept.pop(), segment))
            kept.append(segment)
        self._segments = kept

    def _joined(self, older: Segment, newer: Segment) -> list[Slot]:
        both = Slots(self._lane_id)
        both.absorb(older.slots)
        both.absorb(newer.slots)
        return list(both.all())


def _unseen(*segments: Segment) -> bool:
    """Whether some member may have to be told what for others is nothing; such stay apart."""
    return any(slot.unseen for segment in segments for slot in segment.slots)
