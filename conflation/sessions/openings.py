"""Openings: what a subscription needs that costs too much at once is made step by step."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tidegate.conflation.frame import Frame
from tidegate.conflation.sessions.session import Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.steps import FEW, RowBuild, Steps, finished, items_at_once
from tidegate.conflation.subscription import FeedId
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.feed_build import FeedBuild
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant

Waiting = tuple[Session, Subscriber]


class Openings:
    """Work for subscribers that would hold everybody else up if it was done at once.

    A filter, a window or groups over 100,000 records cost up to a second, and so do a sorted
    snapshot and a replay. So each is a generator, which the caller of `step` pulls in turn with the
    others. There are two kinds of work, and they differ in their moment:

    - A board that is not there yet is built, and whoever waits for it begins when it is done, as
      if it had subscribed then. It was sent nothing before, so nothing can be lost. A subscription
      without a snapshot is sent what came since its cut. A change to other rows takes effect then.
    - Rows of a backfill are made of a cut, which was taken when the subscription began. It is in
      its lane already; what comes meanwhile follows the backfill. So are the rows that another
      filter shows and hides: of both boards, as they were when the subscriber changed lanes.
    """

    def __init__(
        self,
        begin: Callable[[Session, Subscriber, Sequence[Frame], Instant], None],
        go_on: Callable[[Session, Subscriber, Instant], None],
        *,
        in_steps: bool,
    ) -> None:
        """Without `in_steps` everything is done at once."""
        self.in_steps = in_steps
        self._begin = begin
        self._go_on = go_on
        self._work: deque[Steps[None]] = deque()  # each has a step in turn
        self._waiting: dict[FeedBuild | RowBuild, list[Waiting]] = {}
        self._spent = 0  # records that boards were built of at once since the last step
        self.now: Instant = 0  # of the step that is being done

    def __bool__(self) -> bool:
        # A step that does nothing else lets others build their boards at once.
        return bool(self._work) or self._spent > FEW

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
        feed_ids = [subscriber.change.subscription.lane_id.feed]
        if subscriber.lane is not None:
            # Deferred rows of the old board are sent, too, so they have to be made.
            feed_ids.append(subscriber.lane.id.feed)
        waits = [self._add(session, subscriber, each, of_records=False) for each in feed_ids]
        return any(waits)

    def _add(
        self, session: Session, subscriber: Subscriber, feed_id: FeedId, *, of_records: bool
    ) -> bool:
        if not self.in_steps:
            return False
        topic = subscriber.topic
        # Hundreds of topics of a pattern may each have a small board to build.
        room = max(0, items_at_once() - self._spent)
        build = topic.build(feed_id, room, of_records=of_records)
        if build is None:
            self._spent += topic.unbuilt(feed_id)
            return False
        self._wait(session, subscriber, build, self._built(topic, build))
        return True

    def follow(self, session: Session, subscriber: Subscriber) -> None:
        """Go on with the rows that a subscriber is to be sent, if they take more than one step."""
        for cursor in subscriber.cursors:
            if cursor.build is None or not cursor.is_under_way:
                continue
            # A trace makes all rows at once, and would find that these take longer.
            if not self.in_steps or subscriber.watchers:
                subscriber.complete(cursor)
                continue
            self._wait(session, subscriber, cursor.build, self._made(cursor.build))

    def _wait(
        self,
        session: Session,
        subscriber: Subscriber,
        build: FeedBuild | RowBuild,
        work: Steps[None],
    ) -> None:
        """Let a subscriber wait for a build, which begins with the first who does."""
        waiting = self._waiting.get(build)
        if waiting is None:
            waiting = self._waiting[build] = []
            self._work.append(work)
        if all(other is not subscriber for _, other in waiting):
            waiting.append((session, subscriber))

    def do(self, work: Steps[None]) -> None:
        """Do work that nobody waits for in turn with openings; or without steps, now."""
        if not self.in_steps:
            finished(work)
        elif next(work, self) is not self:  # the first step is now: it may be all
            self._work.append(work)

    def step(self, now: Instant) -> None:
        """Do a step of the work that has not had a turn for the longest time, if there is any."""
        self.now, self._spent = now, 0
        if self._work:
            work = self._work.popleft()
            if next(work, self) is not self:  # steps yield nothing of their own
                self._work.append(work)

    def _built(self, topic: Topic, build: FeedBuild) -> Steps[None]:
        """Build a board, and let those who wait for it begin, one in a step."""
        steps = build.steps()
        feed: Feed | None = None
        while waiting := self._still_waiting(build):
            if feed is not None:
                session, subscriber = waiting.pop(0)  # each has a snapshot of its own made
                self._begin(session, subscriber, build.since(subscriber.member.cut), self.now)
            elif next(steps, self) is self:
                feed = topic.built(build)
            yield
        del self._waiting[build]
        topic.abandon(build)
        if feed is not None:
            topic.release(feed)

    def _made(self, build: RowBuild) -> Steps[None]:
        """Make rows, and hand them to all who wait for them: as rows are shared, in one step."""
        while self._still_waiting(build) and not build.step():
            yield
        for session, subscriber in self._waiting.pop(build):
            for cursor in subscriber.cursors:
                if cursor.build is build:
                    subscriber.complete(cursor)
            self._go_on(session, subscriber, self.now)

    def _still_waiting(self, build: FeedBuild | RowBuild) -> list[Waiting]:
        # A subscription may have ended, or its topic begun anew with a subscriber of its own.
        waiting = self._waiting[build] = [
            (session, subscriber)
            for session, subscriber in self._waiting[build]
            if session.subscribers.get(subscriber.id) is subscriber and _wants(subscriber, build)
        ]
        return waiting


def _wants(subscriber: Subscriber, build: FeedBuild | RowBuild) -> bool:
    """Return whether a subscriber still begins with a build, or changes to it."""
    if isinstance(build, RowBuild):
        return any(cursor.build is build for cursor in subscriber.cursors)
    if subscriber.lane is None:
        return True
    change = subscriber.change
    if change is None:
        return False
    return build.feed.id in (subscriber.lane.id.feed, change.subscription.lane_id.feed)
