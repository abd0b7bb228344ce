"""The speed of a replay: messages or bytes a second, or a multiple of the recorded speed."""

from __future__ import annotations

from conflation.duration import MILLISECOND, SECOND, Instant
from conflation.frame import Frame
from conflation.subscription import Rate

BURST_NS = SECOND
"""How far a replay that was held up may run ahead of its speed to make up for it."""


class Pacing:
    """Says when each row of a replay is due, one after the other."""

    def __init__(self, rate: Rate, now: Instant) -> None:
        self._rate = rate
        self._last: Instant = now
        self._before: Frame | None = None

    def due(self, row: Frame) -> Instant:
        """When this row may go, the one after that which went last; the first one at once."""
        return self._last if self._before is None else self._last + self._gap_ns(self._before, row)

    def went(self, row: Frame, now: Instant) -> None:
        """A row goes."""
        self._last = max(self.due(row), now - BURST_NS)
        self._before = row

    def _gap_ns(self, before: Frame, row: Frame) -> int:
        rate = self._rate
        if rate.messages_per_s is not None:
            gap_ns = SECOND // rate.messages_per_s
        elif rate.bytes_per_s is not None:
            gap_ns = len(before.payload) * SECOND // rate.bytes_per_s
        else:
            recorded_ns = max(0, row.timestamp_ms - before.timestamp_ms) * MILLISECOND
            gap_ns = int(recorded_ns / (rate.times or 1))
        return gap_ns if rate.max_gap_ns is None else min(gap_ns, rate.max_gap_ns)
