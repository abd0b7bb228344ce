"""Ids of a session of several subscriptions, plain to read."""

from __future__ import annotations

from tidegate.app.delivery.encoding import EventIds

PLAIN_IDS = EventIds(
    move=lambda seat, bookmark: f"{seat[0]}-{bookmark.offset}",
    end=lambda seat, end: f"{seat[0]}-end",
)
