"""Marks as a session keeps them, with ids that tell what was noted."""

from __future__ import annotations

from conflation.bookmark import Bookmark
from conflation.outputs import Unsubscribed
from conflation.sessions.session import SeatId


class Noted:
    """Ids of a session of several subscriptions, plain to read."""

    def moved(self, seat: SeatId, bookmark: Bookmark) -> str:
        return f"{seat[0]}-{bookmark.offset}"

    def ended(self, seat: SeatId, told: Unsubscribed) -> str:
        return f"{seat[0]}-end"
