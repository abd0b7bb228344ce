"""Ids of a session of several subscriptions, plain to read."""

from __future__ import annotations

from tidegate.app.streams.encoding import EventIds

PLAIN_IDS = EventIds(
    move=lambda subscriber, bookmark: f"{subscriber[0]}-{bookmark.offset}",
    end=lambda end: f"{end.name}-end",
)
