"""Openings: subscriptions to large boards begin once these are built, step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidegate.conflation.sessions.session import Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.topics.feed import Feed, FeedBuild
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant

Begin = Callable[[Session, Subscriber, Instant], None]


@dataclass(slots=True, eq=False)
class Opening:
    """One board under way, and the subscribers that wait for it; `feed` once it is built."""

    topic: Topic
    build: FeedBuild
    feed: Feed | None = None
    waiting: list[tuple[Session, Subscriber]] = field(default_factory=list)


class Openings:
    """Subscribers whose snapshot needs a board that is not there yet.

    A filter, a window or groups over a million records cost seconds, in which nobody else would
    be served. So the board is built in steps, between which the caller does other things, and a
    subscriber begins when it is done: as if it had subscribed then. Its snapshot is the exact cut
    of that moment, and nothing can be lost, for it was sent nothing before.

    Only who asks for a snapshot may wait. A subscription without one begins at a cut that its
    client has been given.
    """

    def __init__(self, records_max: int | None, begin: Begin) -> None:
        """`records_max`: records of a step; None builds every board at once."""
        self._records_max = records_max
        self._begin = begin
        # The order is that of turns: builds advance one step each.
        self._openings: dict[FeedBuild, Opening] = {}

    def __bool__(self) -> bool:
        return bool(self._openings)

    def add(self, session: Session, subscriber: Subscriber) -> bool:
        """Let a new subscriber wait if its board has to be built in steps; else False."""
        topic, subscription = subscriber.topic, subscriber.member.subscription
        is_resumed = subscription.resume is not None or subscription.replay is not None
        if self._records_max is None or is_resumed or not subscription.command.queries:
            return False
        build = topic.build(subscription.lane_id.feed, self._records_max)
        if build is None:
            return False
        opening = self._openings.setdefault(build, Opening(topic, build))
        opening.waiting.append((session, subscriber))
        return True

    def step(self, now: Instant) -> None:
        """Do a bounded part of the opening that has not had a turn for the longest time, if any."""
        if not self._openings or self._records_max is None:
            return
        build, opening = next(iter(self._openings.items()))
        del self._openings[build]
        # The subscription may have ended, or its topic begun anew with a subscriber of its own.
        opening.waiting = [
            (session, subscriber)
            for session, subscriber in opening.waiting
            if session.subscribers.get(subscriber.id) is subscriber
        ]
        if not opening.waiting:
            _end(opening)
            return
        self._openings[build] = opening
        if opening.feed is not None:
            # One in a step: each has a snapshot of its own made.
            self._begin(*opening.waiting.pop(0), now)
        elif build.step(self._records_max, now):
            opening.feed = opening.topic.built(build)


def _end(opening: Opening) -> None:
    if opening.feed is None:
        opening.topic.abandon(opening.build)
    else:
        opening.topic.release(opening.feed)
