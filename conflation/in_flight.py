"""In flight: what was written to one socket and may not be acknowledged yet. Pure."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from conflation.duration import Instant

FRAMING_BYTES = 12
"""What chunked encoding puts around a write, at most."""


class Observation(NamedTuple):
    """What is seen of a socket at one moment, before anything is written.

    `flush_bytes` are about to be written for the subscription, 0 at a look in between. Of what was
    written before, `unsent_bytes` are not acknowledged, the oldest of them since `unsent_since`;
    `overdue_bytes` are older than the interval and two round trips. `is_full`: a write still waits
    for room.
    """

    now: Instant
    unsent_bytes: int = 0
    overdue_bytes: int = 0
    unsent_since: Instant | None = None
    round_trip_ns: int = 0
    flush_bytes: int = 0
    is_full: bool = False


class InFlight:
    """The newest writes to a socket, as many as its unacknowledged bytes may be of.

    The kernel only says how many bytes are not acknowledged; when they were written tells whether
    they are on their way, as bytes on a long line always are, or overdue.
    """

    def __init__(self) -> None:
        self.unsent_bytes = 0
        self._writes: deque[tuple[Instant, int]] = deque()
        self._total_bytes = 0

    def wrote(self, now: Instant, size_bytes: int) -> None:
        """So many bytes were handed to the socket."""
        size_bytes += FRAMING_BYTES
        self._writes.append((now, size_bytes))
        self._total_bytes += size_bytes

    def left(self, unsent_bytes: int) -> None:
        """So many bytes are not acknowledged now; what was written before them is forgotten."""
        self.unsent_bytes = unsent_bytes
        while self._writes and self._total_bytes - self._writes[0][1] >= unsent_bytes:
            self._total_bytes -= self._writes.popleft()[1]

    def observed(
        self,
        now: Instant,
        interval_ns: int,
        *,
        round_trip_ns: int = 0,
        flush_bytes: int = 0,
        is_full: bool = False,
    ) -> Observation:
        """What that means for an interval.

        Flushes are not written on the tick, so a tenth of the interval is forgiven; round trips
        vary, so a byte may take two of the shortest.
        """
        in_time = now - interval_ns * 9 // 10 - 2 * round_trip_ns
        young_bytes = 0
        for written, size_bytes in reversed(self._writes):
            if written <= in_time:
                break
            young_bytes += size_bytes
        return Observation(
            now, self.unsent_bytes, max(0, self.unsent_bytes - young_bytes),
            unsent_since=self._writes[0][0] if self._writes else None,
            round_trip_ns=round_trip_ns, flush_bytes=flush_bytes, is_full=is_full,
        )  # fmt: skip
