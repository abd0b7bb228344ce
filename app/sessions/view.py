"""What of a session is shown: where it stands, what waits, what its subscriptions came to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.sessions.asked import Asked, Granted
from app.sessions.session import Session
from conflation.duration import MILLISECOND
from conflation.errors import SessionUnknown
from conflation.language.normal import granted, lane_text
from conflation.sessions.session import QueueLimits, SeatId
from conflation.stats import SessionStats, SubscriptionStats

FIGURES = ("filtered", "matched", "delivered", "conflated", "dropped", "waiting")


def session_view(session: Session, *, whole: bool = True) -> dict[str, Any]:
    """A session; `whole`: with its subscriptions, else only how many they are."""
    stats = _stats(session)
    shown = subscription_views(session) if whole else len(session.asked)
    return {
        "session": session.id,
        "state": session.state,
        "reason": session.closed,
        "opened_ms": session.opened_ms,
        "unsent_bytes": 0 if session.reader is None else session.reader.unsent_bytes,
        "queue": {
            "messages": 0 if stats is None else stats.queued_messages,
            "bytes": 0 if stats is None else stats.queued_bytes,
        },
        "limits": _limits(session.limits),
        "conflated": session.conflated,
        "subscriptions": shown,
    }


def subscription_views(session: Session) -> list[dict[str, Any]]:
    """All that a session is subscribed to; what has ended and was not told yet is left out."""
    seats = _seats(session)
    return [
        subscription_view(session, each, seats)
        for each in session.asked.values()
        if session.reader is None or each.by_pattern or (each.name, each.text) in seats
    ]


def subscription_view(
    session: Session, asked: Asked, seats: Mapping[SeatId, SubscriptionStats] | None = None
) -> dict[str, Any]:
    """One subscription; of a pattern's topics the sums, and each by itself."""
    seats = _seats(session) if seats is None else seats
    topics = {
        topic: _topic_view(found, seats.get((asked.name, topic)))
        for topic, found in asked.topics.items()
        if session.reader is None or (asked.name, topic) in seats
    }
    view = {
        **answer(asked),
        "command": next((str(each.subscription.command) for each in asked.topics.values()), None),
        "filter": asked.wish.filter_text or None,
        "order_by": asked.wish.order_text or None,
        "paused": any(each.subscription.paused for each in asked.topics.values()),
        **{name: sum(topic[name] for topic in topics.values()) for name in FIGURES},
    }
    if asked.by_pattern:
        view["topics"] = [{"topic": topic, **each} for topic, each in topics.items()]
    else:
        view["interval_ms"] = next((each["interval_ms"] for each in topics.values()), None)
    return view


def answer(asked: Asked, warnings: Iterable[str] | None = None) -> dict[str, Any]:
    """What whoever subscribes is told; what a pattern gets depends on the topic."""
    view: dict[str, Any] = {"sub": asked.name, "topic": asked.text}
    shown = {topic: _granted_view(found) for topic, found in asked.topics.items()}
    if asked.by_pattern:
        view |= {"options": None, "lane": None}
        view["topics"] = [{"topic": topic, **each} for topic, each in shown.items()]
    else:
        view |= next(iter(shown.values()), {"options": None, "lane": None})
    return view if warnings is None else {**view, "warnings": list(warnings)}


def _granted_view(found: Granted) -> dict[str, Any]:
    subscription = found.subscription
    return {
        "options": granted(subscription),
        "lane": lane_text(subscription.lane_id),
        "format": found.form,
    }


def _topic_view(found: Granted, stats: SubscriptionStats | None) -> dict[str, Any]:
    """In one topic; what is neither delivered nor conflated nor waits was dropped."""
    interval_ms = found.subscription.lane_id.interval_ns // MILLISECOND
    figures = dict.fromkeys(FIGURES, 0)
    if stats is not None:
        figures |= {name: getattr(stats, name) for name in FIGURES if name != "dropped"}
        told = figures["delivered"] + figures["conflated"] + figures["waiting"]
        figures["dropped"] = figures["matched"] - told
    return {**_granted_view(found), "interval_ms": interval_ms, **figures}


def _limits(limits: QueueLimits) -> dict[str, int]:
    return {
        "messages": limits.messages_max,
        "bytes": limits.bytes_max,
        "upper": limits.upper_percent,
        "lower": limits.lower_percent,
    }


def _seats(session: Session) -> dict[SeatId, SubscriptionStats]:
    stats = _stats(session)
    return {} if stats is None else {(each.name, each.topic): each for each in stats.subscriptions}


def _stats(session: Session) -> SessionStats | None:
    if session.reader is None:
        return None
    try:
        return session.gateway.driver.engine.session_stats(session.id)
    except SessionUnknown:
        return None
