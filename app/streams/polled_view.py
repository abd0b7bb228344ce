"""Views of polled streams: what is read, from how many positions, and how late these are."""

from __future__ import annotations

from typing import Any, Final

from tidegate.app.streams.poll_request import ONE_KEY
from tidegate.app.streams.polled import PolledStream
from tidegate.conflation.options.grant import granted
from tidegate.conflation.subscription import Window
from tidegate.keys.text.duration import MILLISECOND

STANDS_IN: Final = f"conflation_key={ONE_KEY},"
"""Of a topic without a key: nobody asked for it, and nobody may."""


def polled_view(stream: PolledStream) -> dict[str, Any]:
    """Return the view of a polled stream whose topic is there."""
    subscription = stream.subscription
    feed = subscription.lane_id.feed
    positions = stream.read_positions()
    epoch = stream.position.epoch
    inside = [each for each in positions if each is not None and each.epoch == epoch]
    offsets = sorted(inside, key=lambda each: each.offset)
    return {
        "topic": subscription.topic,
        "options": granted(subscription).replace(STANDS_IN, ""),
        "filter": None if feed.filter is None else str(feed.filter),
        "order_by": str(feed.shape.order) if isinstance(feed.shape, Window) else None,
        "format": stream.form,
        "interval_ms": subscription.lane_id.interval_ns // MILLISECOND,
        "opened_ms": stream.opened_ms,
        "requests": stream.requests,
        "answers": stream.answers,
        "sent_bytes": stream.sent_bytes,
        "waiting": stream.waiting,
        "positions": len(positions),
        "newest_age_ms": stream.age_ms(offsets[-1]) if offsets else None,
        "oldest_age_ms": stream.age_ms(offsets[0]) if offsets else None,
    }
