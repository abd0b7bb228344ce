"""An outage: since when what stands behind the topics is out, and who is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from app.logs import event as log_event
from app.sse import event

logger = logging.getLogger("tidegate.bus")


class Outage:
    """Streams stay open while the bus is out; they are told since when, and when it is over.

    Args:
        source: what may be out, as `status` names it.
        wall_ms: wall time in milliseconds of the epoch.
        tell: takes an event to every stream that is open.
    """

    def __init__(
        self, source: str, wall_ms: Callable[[], int], tell: Callable[[bytes], None]
    ) -> None:
        self.source = source
        self.since_ms: int | None = None
        self._wall_ms = wall_ms
        self._tell = tell

    @property
    def is_on(self) -> bool:
        """Whether it is out now."""
        return self.since_ms is not None

    def began(self, reason: str) -> None:
        """It is out, if that is news."""
        if self.since_ms is None:
            figures = log_event("bus-out", source=self.source)
            logger.warning("the %s is out: %s", self.source, reason, extra=figures)
            self.since_ms = self._wall_ms()
            self._tell(self.notice())

    def over(self) -> None:
        """It is back, and whatever was missed is there, if that is news."""
        if self.since_ms is not None:
            logger.info("the %s is back", self.source, extra=log_event("bus-back"))
            self.since_ms = None
            self._tell(self.notice())

    def notice(self) -> bytes:
        """The event `status` as of now."""
        return event("status", {"source": self.source, "stale_since": _text(self.since_ms)})


def _text(at_ms: int | None) -> str | None:
    """UTC as RFC 3339 has it, such as `2026-01-31T12:00:00.250Z`."""
    if at_ms is None:
        return None
    text = datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
