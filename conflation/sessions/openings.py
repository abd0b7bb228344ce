"""Openings: what a subscription needs that costs too much at once is made step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tidegate.conflation.frame import Frame
from tidegate.conflation.sessions.session import Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.steps import RowBuild
from tidegate.conflation.subscription import FeedId
from tidegate.conflation.topics.feed import Feed, FeedBuild
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant

Waiting = tuple[Session, Subscriber]


@dataclass(slots=True, eq=False)
class BoardOpening:
    """One board under way, and the subscribers that wait for it; `feed` once it is built."""

    topic: Topic
    build: FeedBuild
    feed: Feed | None = None
    waiting: list[Waiting] = field(default_factory=list)

    def is_wanted_by(self, subscriber: Subscriber) -> bool:
        """Return whether it still begins with this board, or changes to it."""
        if subscriber.lane is None:
            return True
        change = subscriber.change
        return change is not None and change.subscription.lane_id.feed == self.build.feed.id

    def end(self) -> None:
        """Let go of the board."""
        self.topic.abandon(self.build)
        if self.feed is not None:
            self.topic.release(self.feed)


@dataclass(slots=True, eq=False)
class RowOpening:
    """Rows of a backfill under way, and the subscribers that are sent them."""

    build: RowBuild
    waiting: list[Waiting] = field(default_factory=list)

    def is_wanted_by(self, subscriber: Subscriber) -> bool:
        """Return whether these rows are still what a subscriber is sent next."""
        return subscriber.backfill is not None and subscriber.backfill.build is self.build

    def end(self) -> None:
        """Do nothing: the rows go with the last that refers to them."""


class Openings:
    """Work for subscribers that would hold everybody else up if it was done at once.

    A filter, a window or groups over a million records cost seconds, and so do a sorted snapshot
    and a replay. So each is done in steps, between which the caller does other things. There are
    two kinds of work, and they differ in their moment:

    - A board that is not there yet is built, and whoever waits for it begins when it is done, as
      if it had subscribed then. It was sent nothing before, so nothing can be lost. A subscription
      without a snapshot is sent what came since its cut. A change to other rows takes effect then.
    - Rows of a backfill are made of a cut, which was taken when the subscription began. It is in
      its lane already; what comes meanwhile follows the backfill.
    """

    def __init__(
        self,
        records_max: int | None,
        begin: Callable[[Session, Subscriber, Sequence[Frame], Instant], None],
        wake: Callable[[Session], None],
    ) -> None:
        """`records_max`: records of a step; None does everything at once."""
        self.records_max = records_max
        self._begin = begin
        self._wake = wake
        # The order is that of turns: builds advance one step each.
        self._openings: dict[FeedBuild | RowBuild, BoardOpening | RowOpening] = {}

    def __bool__(self) -> bool:
        return bool(self._openings)

    def add(self, session: Session, subscriber: Subscriber) -> bool:
        """Let a new subscriber wait if its board has to be built in steps; else False.

        A replay needs no board before it joins its lane.
        """
        subscription = subscriber.member.subscription
        is_resumed = subscription.resume is not None
        if subscription.replay is not None and not is_resumed:
            return False
        # What a bookmark missed may turn out to be a snapshot.
        of_records = is_resumed or subscription.command.queries
        return self._add(session, subscriber, subscription.lane_id.feed, of_records=of_records)

    def add_replayed(self, session: Session, subscriber: Subscriber) -> bool:
        """Let a replay that has caught up wait for the board that it joins; else False."""
        if subscriber.watchers:
            return False
        feed_id = subscriber.member.subscription.lane_id.feed
        return self._add(session, subscriber, feed_id, of_records=False)

    def add_change(self, session: Session, subscriber: Subscriber) -> bool:
        """Let a change of options wait if its board has to be built in steps; else False."""
        # A trace makes the change when it is due, and would find that it takes longer.
        if subscriber.change is None or subscriber.watchers:
            return False
        feed_id = subscriber.change.subscription.lane_id.feed
        return self._add(session, subscriber, feed_id, of_records=False)

    def _add(
        self, session: Session, subscriber: Subscriber, feed_id: FeedId, *, of_records: bool
    ) -> bool:
        if self.records_max is None:
            return False
        build = subscriber.topic.build(feed_id, self.records_max, of_records=of_records)
        if build is None:
            return False
        opening = self._openings.setdefault(build, BoardOpening(subscriber.topic, build))
        if all(other is not subscriber for _, other in opening.waiting):
            opening.waiting.append((session, subscriber))
        return True

    def follow(self, session: Session, subscriber: Subscriber) -> None:
        """Go on with the rows of a subscriber's backfill, if they take more than one step."""
        cursor = subscriber.backfill
        if cursor is None or cursor.build is None or not cursor.is_under_way:
            return
        # A trace makes all rows at once, and would find that these take longer.
        if self.records_max is None or subscriber.watchers:
            cursor.complete()
            return
        opening = self._openings.setdefault(cursor.build, RowOpening(cursor.build))
        opening.waiting.append((session, subscriber))

    def step(self, now: Instant) -> None:
        """Do a bounded part of the opening that has not had a turn for the longest time, if any."""
        if not self._openings or self.records_max is None:
            return
        build, opening = next(iter(self._openings.items()))
        del self._openings[build]
        # The subscription may have ended, or its topic begun anew with a subscriber of its own.
        opening.waiting = [
            (session, subscriber)
            for session, subscriber in opening.waiting
            if session.subscribers.get(subscriber.id) is subscriber
            and opening.is_wanted_by(subscriber)
        ]
        if not opening.waiting:
            opening.end()
            return
        self._openings[build] = opening
        if isinstance(opening, RowOpening):
            if opening.build.step():
                # Rows are shared, so all of them together cost no more than a step.
                for session, subscriber in opening.waiting:
                    assert subscriber.backfill is not None
                    subscriber.backfill.complete()
                    self._wake(session)
                opening.waiting.clear()
        elif opening.feed is not None:
            # One in a step: each has a snapshot of its own made.
            session, subscriber = opening.waiting.pop(0)
            missed = opening.build.since(subscriber.member.cut)
            self._begin(session, subscriber, missed, now)
        elif opening.build.step(self.records_max, now):
            opening.feed = opening.topic.built(opening.build)
