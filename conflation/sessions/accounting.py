"""The accounting identity: matched = delivered + conflated + dropped + waiting.

Counting changes nothing: rows that wait to be made are foreseen, not made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.conflation.lanes.lane import Member
from tidegate.conflation.options.print import lane_text
from tidegate.conflation.sessions.rows import CatchUpRows, DrainedRows
from tidegate.conflation.sessions.session import Session, Subscriber
from tidegate.conflation.subscription import queue_rules
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic

# Counters as frozen values; they add up (see `SubscriptionStats`).


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription since it joined: matched = delivered + conflated + waiting.

    Of the values published meanwhile each was matched or filtered.
    """

    name: str
    topic: str
    lane: str
    matched: int
    """Messages published since the join that it asked for."""
    delivered: int
    """Live rows taken; snapshot and resume rows are not counted."""
    conflated: int
    """Messages replaced by a newer one of their key before they were due."""
    waiting: int
    """Rows still to come if nothing more is published."""
    filtered: int = 0
    """Messages published since the join that it did not ask for."""
    unreported: int = 0
    """Of the conflated ones those that no receipt counts, unless their key comes again."""


@dataclass(frozen=True, slots=True)
class SessionStats:
    """One session and its subscriptions."""

    session: str
    queued_messages: int
    """What `conflation=none` subscriptions have waiting; intervals queue nothing."""
    queued_bytes: int
    subscriptions: tuple[SubscriptionStats, ...]


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic since it was made: matched = delivered + conflated + dropped + waiting.

    The sums are over its subscriptions, past ones included.
    """

    topic: str
    messages_in: int
    """Removals included: they have their place in the sequence."""
    removals_in: int
    bytes_in: int
    keys: int
    boards: int
    lanes: int
    subscriptions: int
    offered: int
    """Values published while a subscription was there, once for each: matched + filtered."""
    filtered: int
    matched: int
    delivered: int
    conflated: int
    waiting: int
    dropped: int
    """Rows that were waiting when their subscription ended."""
    dropped_by: tuple[tuple[str, int], ...] = ()
    """The same by reason: why the subscription or its session ended."""
    journal_messages: int = 0
    journal_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Reliefs:
    """What became of full queues, and of long ones in idle time."""

    forced: int = 0
    """Queues that were conflated because a message would have breached their limit."""
    background: int = 0
    """Parts of queues that were conflated in idle time."""
    unsubscribed: int = 0
    """Subscriptions that ended with BACK_PRESSURE."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Topics, the number of sessions, and what happened to subscriptions."""

    sessions: int
    flushes: int
    topics: tuple[TopicStats, ...]
    reliefs: Reliefs = Reliefs()
    unsubscribed: Mapping[str, int] = field(default_factory=dict)
    """Ends of subscriptions that their sessions were told, by reason."""
    resumed: Mapping[str, int] = field(default_factory=dict)
    """Subscriptions that went on from a bookmark, by mode."""


def subscription_stats(seat: Subscriber) -> SubscriptionStats:
    """One subscription, as it stands now."""
    member, lane, feed = seat.member, seat.lane, seat.feed
    if lane is None or feed is None:
        return SubscriptionStats(member.name, seat.topic.name, "sow", 0, 0, 0, 0)
    accepted, board = feed.preview()
    owed = 0 if seat.owed is None else seat.owed.waiting()
    waiting = owed + lane.on(board).waiting(member)
    matched = accepted - member.joined
    return SubscriptionStats(
        member.name,
        seat.topic.name,
        lane_text(lane.id),
        matched,
        member.delivered,
        matched - member.delivered - waiting,
        waiting,
        feed.filtered_out(seat.topic.values_in, accepted) - member.passed,
        sum(unreported.count.messages for unreported in member.unreported.values())
        + sum(unreported.count.messages for _, unreported in lane.on(board).unreported(member)),
    )


def session_stats(session: Session) -> SessionStats:
    """A session with its subscriptions."""
    messages, size = session.queued()
    rows = tuple(subscription_stats(seat) for seat in session.seats.values())
    return SessionStats(session.id, messages, size, rows)


DROPPED = "dropped "
"""Begins the names of the sums of what was dropped, by reason."""


def ended(seat: Subscriber, reason: str, *, parts: bool = False) -> Counter[str]:
    """What a subscription that ends leaves to its topic's sums.

    What waited is dropped, unless it `parts` from the session with it still to be told.
    """
    last = subscription_stats(seat)
    sums = Counter(
        matched=last.matched,
        filtered=last.filtered,
        delivered=last.delivered,
        conflated=last.conflated,
    )
    if parts:
        sums["waiting"] = last.waiting
    else:
        sums.update({"dropped": last.waiting, f"{DROPPED}{reason}": last.waiting})
    return sums


class Accounting:
    """A topic's sums over its subscriptions, past and present.

    Sums are taken lane by lane: members for whom the same rows wait are counted once, so ten
    thousand equal subscribers cost as much as one.
    """

    def __init__(self, topics: Mapping[str, Topic], sessions: Mapping[str, Session]) -> None:
        self._topics = topics
        self._sessions = sessions
        self._past: dict[str, Counter[str]] = {}
        self._unsubscribed: Counter[str] = Counter()
        self._resumed: Counter[str] = Counter()

    def begin(self, topic: str) -> None:
        """A topic is made."""
        self._past[topic] = Counter()

    def forget(self, topic: str) -> None:
        """A topic ends and leaves nothing behind."""
        del self._past[topic]

    def begin_at(self, seat: Subscriber) -> None:
        """A subscription has its seat; if it goes on from a bookmark, by which mode."""
        if seat.opening is not None and seat.opening.resumed is not None:
            self._resumed[seat.opening.resumed.mode] += 1

    def tell_end(self, reason: str) -> None:
        """A session is told of a subscription's end."""
        self._unsubscribed[reason] += 1

    def end(self, seat: Subscriber, reason: str, *, parts: bool = False) -> None:
        """A subscription ends: what it came to stays in its topic's sums."""
        if seat.lane is not None:
            self._past[seat.topic.name].update(ended(seat, reason, parts=parts))

    def parting(self, seat: Subscriber) -> DrainedRows:
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
        rows = CatchUpRows([*owed, *queued], None)
        return DrainedRows(member.name, topic, lane.board, rules, rows, self._past[topic.name])

    def of_topic(self, topic: Topic) -> TopicStats:
        """The sums of one topic; who waits for the same in a lane is counted together."""
        sums = Counter(self._past[topic.name])
        for feed in topic.feeds.values():
            self._add_feed(sums, topic, feed)
        return topic_stats(topic, sums)

    def _add_feed(self, sums: Counter[str], topic: Topic, feed: Feed) -> None:
        accepted, board = feed.preview()
        passed = feed.filtered_out(topic.values_in, accepted)
        for lane in feed.lanes.values():
            preview = lane.on(board)
            for members in preview.alike():
                waiting = len(members) * preview.waiting(members[0])
                waiting += sum(self._owed(member) for member in members)
                matched = sum(accepted - member.joined for member in members)
                delivered = sum(member.delivered for member in members)
                sums["matched"] += matched
                sums["filtered"] += sum(passed - member.passed for member in members)
                sums["delivered"] += delivered
                sums["conflated"] += matched - delivered - waiting
                sums["waiting"] += waiting

    def _owed(self, member: Member) -> int:
        seat = self._sessions[member.session].seats[member.name, member.subscription.topic]
        return 0 if seat.owed is None else seat.owed.waiting()

    def of_engine(
        self, flushes: int, reliefs: Reliefs, names: Iterable[str] | None = None
    ) -> EngineStats:
        """The sums of these topics, or of all, and what happened to subscriptions."""
        topics = self._topics.values() if names is None else map(self._topics.__getitem__, names)
        return EngineStats(
            len(self._sessions),
            flushes,
            tuple(self.of_topic(topic) for topic in topics),
            reliefs,
            dict(self._unsubscribed),
            dict(self._resumed),
        )


def topic_stats(topic: Topic, sums: Counter[str]) -> TopicStats:
    """A topic's figures with the sums over its subscriptions, past and present."""
    lanes = [lane for feed in topic.feeds.values() for lane in feed.lanes.values()]
    return TopicStats(
        topic=topic.name,
        messages_in=topic.messages_in,
        removals_in=topic.removals_in,
        bytes_in=topic.bytes_in,
        keys=0 if topic.sow is None else len(topic.sow.board),
        boards=len(topic.feeds),
        lanes=len(lanes),
        subscriptions=sum(len(lane.members) for lane in lanes),
        offered=sums["matched"] + sums["filtered"],
        filtered=sums["filtered"],
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
        journal_messages=len(topic.journal),
        journal_bytes=topic.journal.payload_bytes,
    )
