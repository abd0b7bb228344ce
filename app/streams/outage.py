"""An outage of the bus: since when it lasts, and the event `status` for every stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime

from tidegate.app.logs import event as log_event
from tidegate.app.streams.sse import event

logger = logging.getLogger("tidegate.bus")


class Outage:
    """Notifies every stream when the bus goes out and when it is back; streams stay open.

    Args:
        source: what may be out, as `status` names it.
        wall_ms: wall time in milliseconds of the epoch.
        notify: takes an event to every open stream.
    """

    def __init__(
        self, source: str, wall_ms: Callable[[], int], notify: Callable[[bytes], None]
    ) -> None:
        self.source = source
        self.since_ms: int | None = None
        self._wall_ms = wall_ms
        self._notify = notify

    @property
    def is_on(self) -> bool:
        """True while the source is out."""
        return self.since_ms is not None

    def began(self, reason: str) -> None:
        """Begin an outage, unless one has begun already."""
        if self.since_ms is None:
            figures = log_event("bus-out", source=self.source)
            logger.warning("the %s is out: %s", self.source, reason, extra=figures)
            self.since_ms = self._wall_ms()
            self._notify(self.notice())

    def over(self) -> None:
        """End the outage, once everything missed has been read."""
        if self.since_ms is not None:
            logger.info("the %s is back", self.source, extra=log_event("bus-back"))
            self.since_ms = None
            self._notify(self.notice())

    def notice(self) -> bytes:
        """Encode the event `status` as of now."""
        return event("status", {"source": self.source, "stale_since": _rfc3339(self.since_ms)})


def _rfc3339(at_ms: int | None) -> str | None:
    """Return a time in UTC in the format of RFC 3339, such as `2026-01-31T12:00:00.250Z`."""
    if at_ms is None:
        return None
    text = datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")
