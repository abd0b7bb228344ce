"""The accounting identity: matched = delivered + conflated + dropped + waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from conflation.language.normal import lane_text
from conflation.queue_lane import queue_rules
from conflation.sessions.owed import Owed
from conflation.sessions.parting import Parting
from conflation.sessions.session import Seat, Session
from conflation.stats import EngineStats, Reliefs, SessionStats, SubscriptionStats, TopicStats
from conflation.topics.topic import Topic


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


DROPPED = "dropped "
"""Begins the names of the sums of what was dropped, by reason."""


def ended(seat: Seat, reason: str, *, parts: bool = False) -> Counter[str]:
    """What a subscription that ends leaves to its topic's sums.

    What waited is dropped, unless it `parts` from the session with it still to be told.
    """
    last = subscription_stats(seat)
    sums = Counter(matched=last.matched, delivered=last.delivered, conflated=last.conflated)
    if parts:
        sums["waiting"] = last.waiting
    else:
        sums.update({"dropped": last.waiting, f"{DROPPED}{reason}": last.waiting})
    return sums


class Ledger:
    """A topic's sums over its subscriptions, past and present."""

    def __init__(self, topics: Mapping[str, Topic], sessions: Mapping[str, Session]) -> None:
        self._topics = topics
        self._sessions = sessions
        self._past: dict[str, Counter[str]] = {}

    def begin(self, topic: str) -> None:
        """A topic is made."""
        self._past[topic] = Counter()

    def forget(self, topic: str) -> None:
        """A topic ends and leaves nothing behind."""
        del self._past[topic]

    def end(self, seat: Seat, reason: str, *, parts: bool = False) -> None:
        """A subscription ends: what it came to stays in its topic's sums."""
        if seat.lane is not None:
            self._past[seat.topic.name].update(ended(seat, reason, parts=parts))

    def parting(self, seat: Seat) -> Parting:
        """What is queued for a seat that is about to end."""
        member, lane, topic = seat.member, seat.lane, seat.topic
        assert lane is not None
        owed = [] if seat.owed is None else seat.owed.rest()
        queued = [
            (board_key, known)
            for board_key, row in lane.pending(member)
            for known in member.as_known((row,))
        ]
        rules = queue_rules(lane.id, topic.definition)
        rows = Owed([*owed, *queued], None)
        return Parting(member.name, topic, lane.board, rules, rows, self._past[topic.name])

    def of_topic(self, topic: Topic) -> TopicStats:
        """The sums of one topic."""
        seats = [
            self._sessions[session].seats[member, of_topic]
            for feed in topic.feeds.values()
            for lane in feed.lanes.values()
            for session, member, of_topic in lane.members
        ]
        return topic_stats(topic, seats, self._past[topic.name])

    def of_all(self, flushes: int, reliefs: Reliefs) -> EngineStats:
        """The sums of all topics."""
        topics = tuple(self.of_topic(topic) for topic in self._topics.values())
        return EngineStats(len(self._sessions), flushes, topics, reliefs)


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
        dropped_by=tuple(
            (name.removeprefix(DROPPED), rows)
            for name, rows in sorted(sums.items())
            if name.startswith(DROPPED) and rows
        ),
    )
