"""The accounting identity: matched = delivered + conflated + dropped + waiting.

Counting changes nothing: deferred rows of groups are previewed, not made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tidegate.conflation.lanes.member import Member
from tidegate.conflation.options.grant import lane_text
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic

# --- Counters as frozen values; they add up (see `SubscriptionStats`)


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """One subscription since it joined: matched = delivered + conflated + waiting.

    Of the values published meanwhile each was matched or filtered.
    """

    name: str
    topic: str
    lane: str
    matched: int
    """Messages published since the join that its filter accepts."""
    delivered: int
    """Live rows taken; snapshot and resume rows are not counted."""
    conflated: int
    """Messages replaced by a newer one of their key before they were due."""
    waiting: int
    """Rows still to come if nothing more is published."""
    filtered: int = 0
    """Messages published since the join that its filter keeps out."""
    unreported: int = 0
    """Conflated messages that no receipt counts unless their key has another row."""


@dataclass(frozen=True, slots=True)
class SessionStats:
    """One session and its subscriptions."""

    session: str
    queued_messages: int
    """Waiting messages of `conflation=none` subscriptions; intervals queue nothing."""
    queued_bytes: int
    subscriptions: tuple[SubscriptionStats, ...]


@dataclass(frozen=True, slots=True)
class TopicStats:
    """One topic since it was made: matched = delivered + conflated + dropped + waiting.

    The sums are over its subscriptions, past ones included.
    """

    topic: str
    messages_in: int
    """Removals included, as they have offsets, too."""
    removals_in: int
    bytes_in: int
    keys: int
    boards: int
    lanes: int
    subscriptions: int
    offered: int
    """Values published while a subscription was there, for each of these: matched + filtered."""
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
class Remedies:
    """Counts of what was done about full queues, and about long ones in idle time."""

    forced: int = 0
    """Queues that were conflated because a message would have breached their limit."""
    background: int = 0
    """Parts of queues that were conflated in idle time."""
    unsubscribed: int = 0
    """Subscriptions that ended with BACK_PRESSURE."""


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters of topics, sessions and subscriptions."""

    sessions: int
    flushes: int
    topics: tuple[TopicStats, ...]
    remedies: Remedies = Remedies()
    unsubscribed: Mapping[str, int] = field(default_factory=dict)
    """Ends of subscriptions that were sent to their sessions, by reason."""
    resumed: Mapping[str, int] = field(default_factory=dict)
    """Subscriptions that were resumed from a bookmark, by mode."""


def subscription_stats(subscriber: Subscriber, *, named: bool = True) -> SubscriptionStats:
    """Return the counters of one subscription as it stands now; its lane's text if `named`."""
    member, lane, feed = subscriber.member, subscriber.lane, subscriber.feed
    topic = subscriber.topic
    if lane is None or feed is None:
        return SubscriptionStats(member.name, topic.name, "sow", 0, 0, 0, 0)
    # Deferred rows of groups count as matched and waiting, as if they had been made.
    accepted, board = feed.preview()
    preview = lane.on(board)
    waiting = _catching_up(subscriber) + preview.waiting(member)
    matched = accepted - member.joined
    return SubscriptionStats(
        member.name,
        topic.name,
        lane_text(lane.id) if named else "",  # takes as long as all the rest
        matched,
        member.delivered,
        # Conflated messages are counted nowhere; they are the difference.
        matched - member.delivered - waiting,
        waiting,
        feed.filtered_out(topic.values_in, accepted) - member.passed,
        sum(unreported.count.messages for unreported in (member.unreported or {}).values())
        + sum(unreported.count.messages for _, unreported in preview.unreported(member)),
    )


def _catching_up(subscriber: Subscriber) -> int:
    return 0 if subscriber.catch_up is None else subscriber.catch_up.waiting()


DROPPED = "dropped "
"""The prefix of the sums of dropped rows by reason."""


def last_sums(subscriber: Subscriber, reason: str, *, drains: bool = False) -> Counter[str]:
    """Return what a subscription that ends adds to its topic's sums.

    Waiting rows are dropped, unless it `drains`: then they are still sent, and counted then.
    """
    last = subscription_stats(subscriber, named=False)
    sums = Counter(
        matched=last.matched,
        filtered=last.filtered,
        delivered=last.delivered,
        conflated=last.conflated,
    )
    if drains:
        # The drain moves them to `delivered` as they are sent, so that the identity always holds.
        sums["waiting"] = last.waiting
    else:
        sums.update({"dropped": last.waiting, f"{DROPPED}{reason}": last.waiting})
    return sums


class Accounting:
    """A topic's sums over its subscriptions, past and present.

    Sums are made lane by lane. Members for which the same rows wait are counted as a group, so ten
    thousand equal subscribers take as long as one.
    """

    def __init__(
        self, topics: Mapping[str, Topic], subscriber_of: Callable[[Member], Subscriber]
    ) -> None:
        self._topics = topics
        self._subscriber_of = subscriber_of
        self._past: dict[str, Counter[str]] = {}
        self._unsubscribed: Counter[str] = Counter()
        self._resumed: Counter[str] = Counter()

    def begin(self, topic: str) -> None:
        """Begin the sums of a new topic."""
        self._past[topic] = Counter()

    def forget(self, topic: str) -> None:
        """Forget the sums of a topic that has ended."""
        del self._past[topic]

    def sums(self, topic: str) -> Counter[str]:
        """Return the sums over a topic's past subscriptions, to be added to."""
        return self._past[topic]

    def begin_at(self, subscriber: Subscriber) -> None:
        """Count a subscription that continues from a bookmark, by its mode."""
        if subscriber.backfill is not None and subscriber.backfill.resumed is not None:
            self._resumed[subscriber.backfill.resumed.mode] += 1

    def count_end(self, reason: str) -> None:
        """Count the end of a subscription that its session is sent."""
        self._unsubscribed[reason] += 1

    def end(self, subscriber: Subscriber, reason: str, *, drains: bool = False) -> None:
        """Add the counters of a subscription that ends to its topic's sums."""
        # Without a lane nothing was matched: it is a query, or a replay that has not caught up.
        if subscriber.lane is not None:
            self._past[subscriber.topic.name].update(last_sums(subscriber, reason, drains=drains))

    def of_topic(self, topic: Topic) -> TopicStats:
        """Return the counters of one topic."""
        sums = Counter(self._past[topic.name])  # a copy, which is added to
        for feed in topic.feeds.values():
            self._add_feed(sums, topic, feed)
        return topic_stats(topic, sums)

    def _add_feed(self, sums: Counter[str], topic: Topic, feed: Feed) -> None:
        # Once for each feed: the preview of many groups takes long.
        accepted, board = feed.preview()
        passed = feed.filtered_out(topic.values_in, accepted)
        for lane in feed.lanes.values():
            preview = lane.on(board)
            for members in preview.by_backlog():
                waiting = len(members) * preview.waiting(members[0])
                # The lane's backlog is equal for the group; a catch-up is each member's own.
                waiting += sum(_catching_up(self._subscriber_of(member)) for member in members)
                matched = sum(accepted - member.joined for member in members)
                delivered = sum(member.delivered for member in members)
                sums["matched"] += matched
                sums["filtered"] += sum(passed - member.passed for member in members)
                sums["delivered"] += delivered
                sums["conflated"] += matched - delivered - waiting
                sums["waiting"] += waiting

    def of_engine(
        self, sessions: int, flushes: int, remedies: Remedies, names: Iterable[str] | None = None
    ) -> EngineStats:
        """Return the counters of these topics, or of all, and what happened to subscriptions."""
        topics = self._topics.values() if names is None else map(self._topics.__getitem__, names)
        return EngineStats(
            sessions,
            flushes,
            tuple(self.of_topic(topic) for topic in topics),
            remedies,
            dict(self._unsubscribed),
            dict(self._resumed),
        )


def topic_stats(topic: Topic, sums: Counter[str]) -> TopicStats:
    """Return a topic's counters with the sums over its subscriptions, past and present."""
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
