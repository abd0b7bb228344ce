"""Views of sessions: state, backlog, and the counts of their subscriptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from tidegate.app.calls import Reply
from tidegate.app.streams.session import Session
from tidegate.app.streams.subscriptions import GrantedSubscription, SessionSubscription
from tidegate.conflation.errors import SessionUnknown
from tidegate.conflation.options.grant import granted, lane_text
from tidegate.conflation.sessions.accounting import SessionStats, SubscriptionStats
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.sessions.subscriber import SubscriberId
from tidegate.keys.text.duration import MILLISECOND

FIGURES = ("filtered", "matched", "delivered", "conflated", "dropped", "waiting", "unreported")


def session_view(session: Session, *, whole: bool = True) -> dict[str, Any]:
    """Return the view of a session, with its subscriptions or (not `whole`) their number."""
    messages, size, delivered = _sums(session)
    shown = subscription_views(session) if whole else len(session.asked)
    return {
        "session": session.id,
        "owner": session.owner or None,
        "address": session.address or None,
        "client": session.agent or None,
        "topics": list(dict.fromkeys(each.text for each in islice(session.asked.values(), 16))),
        "state": session.state,
        "reason": session.closed,
        "opened_ms": session.opened_ms,
        "delivered": delivered,
        "unsent_bytes": 0 if session.reader is None else session.reader.unsent_bytes,
        "queue": {
            "messages": messages,
            "bytes": size,
        },
        "limits": _limits(session.limits),
        "conflated": session.conflated,
        "subscriptions": shown,
    }


def subscription_views(session: Session) -> list[dict[str, Any]]:
    """Return the views of all subscriptions, without those that have ended."""
    subscribers = _subscribers(session)
    # The engine may have ended a subscription whose `unsubscribed` waits to be sent.
    return [
        subscription_view(session, each, subscribers)
        for each in session.asked.values()
        if session.reader is None or each.by_pattern or (each.name, each.text) in subscribers
    ]


def subscription_view(
    session: Session,
    asked: SessionSubscription,
    subscribers: Mapping[SubscriberId, SubscriptionStats] | None = None,
) -> dict[str, Any]:
    """Return one subscription; a pattern has sums, and each of its topics."""
    subscribers = _subscribers(session) if subscribers is None else subscribers
    topics = {
        topic: _topic_view(found, subscribers.get((asked.name, topic)))
        for topic, found in asked.topics.items()
        if session.reader is None or (asked.name, topic) in subscribers
    }
    view = {
        **answer(asked),
        "command": next((str(each.subscription.command) for each in asked.topics.values()), None),
        "filter": asked.request.filter_text or None,
        "order_by": asked.request.order_text or None,
        "paused": any(each.subscription.paused for each in asked.topics.values()),
        **{name: sum(topic[name] for topic in topics.values()) for name in FIGURES},
    }
    if asked.by_pattern:
        view["topics"] = [{"topic": topic, **each} for topic, each in topics.items()]
    else:
        view["interval_ms"] = next((each["interval_ms"] for each in topics.values()), None)
    return view


def answer(asked: SessionSubscription, warnings: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the answer to a subscribe request; that of a pattern lists its topics."""
    view: dict[str, Any] = {"sub": asked.name, "topic": asked.text, "options": None, "lane": None}
    shown = {topic: _granted_view(found) for topic, found in asked.topics.items()}
    if asked.by_pattern:
        view["topics"] = [{"topic": topic, **each} for topic, each in shown.items()]
    else:
        view |= next(iter(shown.values()), {})
    return view if warnings is None else {**view, "warnings": list(warnings)}


def _granted_view(found: GrantedSubscription) -> dict[str, Any]:
    subscription = found.subscription
    view = {
        "options": granted(subscription),
        "lane": lane_text(subscription.lane_id),
        "format": found.form,
    }
    # A client whose stream is cut before `subscribed` continues from here in another session.
    return view if found.start is None else {**view, "bookmark": str(found.start)}


def _topic_view(found: GrantedSubscription, stats: SubscriptionStats | None) -> dict[str, Any]:
    """Return the counts of one topic; `dropped` is what none of the others counts."""
    interval_ms = found.subscription.lane_id.interval_ns // MILLISECOND
    figures = dict.fromkeys(FIGURES, 0)
    if stats is not None:
        figures |= {name: getattr(stats, name) for name in FIGURES if name != "dropped"}
        accounted = figures["delivered"] + figures["conflated"] + figures["waiting"]
        figures["dropped"] = figures["matched"] - accounted
    return {**_granted_view(found), "interval_ms": interval_ms, **figures}


def _limits(limits: QueueLimits) -> dict[str, int]:
    return {
        "messages": limits.messages_max,
        "bytes": limits.bytes_max,
        "upper": limits.upper_percent,
        "lower": limits.lower_percent,
    }


def _subscribers(session: Session) -> dict[SubscriberId, SubscriptionStats]:
    stats = _stats(session)
    return {} if stats is None else {(each.name, each.topic): each for each in stats.subscriptions}


def _sums(session: Session) -> tuple[int, int, int]:
    """Return the messages and bytes that are queued, and the rows that the reader has taken.

    This takes little time, as it makes no counts for each subscription.
    """
    if session.reader is None:
        return 0, 0, 0
    try:
        found = session.context.driver.engine.session(session.id)
    except SessionUnknown:
        return 0, 0, 0
    return *found.queued(), found.delivered


def _stats(session: Session) -> SessionStats | None:
    if session.reader is None:
        return None
    try:
        return session.context.driver.engine.session_stats(session.id)
    except SessionUnknown:
        return None


class _Document(msgspec.Struct, frozen=True):
    sessions: list[dict[str, Any]]
    next: str | None = None


class Page(NamedTuple):
    """Views of sessions by id, at most as many as were asked for, and whether more follow.

    `missing`: gateways that did not answer; None without other gateways.
    """

    sessions: Sequence[Mapping[str, Any]]
    has_more: bool
    missing: Sequence[str] | None = None

    def joined(self, replies: Mapping[str, Reply | None], limit: int) -> Page:
        """Merge this page with the pages of other gateways, by id."""
        views = {view["session"]: view for view in self.sessions}
        has_more, missing = self.has_more, []
        for gateway, reply in replies.items():
            if reply is None or reply.status != 200:
                missing.append(gateway)
                continue
            document = msgspec.json.decode(reply.body, type=_Document)
            has_more = has_more or document.next is not None
            for view in document.sessions:
                # Two gateways may list a session that is being transferred.
                views.setdefault(view["session"], view)
        ids = sorted(views)
        return Page([views[each] for each in ids[:limit]], has_more or len(ids) > limit, missing)
