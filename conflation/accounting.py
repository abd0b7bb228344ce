"""The accounting identity: matched = delivered + conflated + dropped + waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from conflation.normal import lane_text
from conflation.session import Seat, Session
from conflation.stats import SessionStats, SubscriptionStats, TopicStats
from conflation.topic import Topic


def subscription_stats(seat: Seat) -> SubscriptionStats:
    """One subscription, as it stands now."""
    member, lane, feed = seat.member, seat.lane, seat.feed
    if lane is None or feed is None:
        return SubscriptionStats(member.name, seat.topic.name, "sow", 0, 0, 0, 0)
    feed.settle()
    matched = feed.accepted - member.joined
    waiting = seat.waiting()
    conflated = matched - member.delivered - waiting
    return SubscriptionStats(
        member.name,
        seat.topic.name,
        lane_text(lane.id),
        matched,
        member.delivered,
        conflated,
        waiting,
    )


def session_stats(session: Session) -> SessionStats:
    """A session with its subscriptions."""
    messages, size = session.queued()
    rows = tuple(subscription_stats(seat) for seat in session.seats.values())
    return SessionStats(session.id, messages, size, rows)


def ended(seat: Seat) -> Counter[str]:
    """What a subscription that ends leaves to its topic's sums; what waited is dropped."""
    last = subscription_stats(seat)
    return Counter(
        matched=last.matched,
        delivered=last.delivered,
        conflated=last.conflated,
        dropped=last.waiting,
    )


def topic_stats(topic: Topic, seats: Iterable[Seat], past: Counter[str]) -> TopicStats:
    """A topic's sums over its subscriptions, past and present."""
    sums = Counter(past)
    subscriptions = 0
    for seat in seats:
        subscriptions += 1
        now = subscription_stats(seat)
        sums.update(
            matched=now.matched,
            delivered=now.delivered,
            conflated=now.conflated,
            waiting=now.waiting,
        )
    return TopicStats(
        topic=topic.name,
        messages_in=topic.messages_in,
        bytes_in=topic.bytes_in,
        keys=len(topic.sow.board) if topic.sow else 0,
        boards=len(topic.feeds),
        lanes=sum(len(feed.lanes) for feed in topic.feeds.values()),
        subscriptions=subscriptions,
        matched=sums["matched"],
        delivered=sums["delivered"],
        conflated=sums["conflated"],
        waiting=sums["waiting"],
        dropped=sums["dropped"],
    )
