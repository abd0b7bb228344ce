"""Openings: boards and rows that take too long to be made at once are made in steps."""

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
    """Work for subscribers that would block the event loop if it was done at once.

    A filter, a window or groups over 100,000 records take up to a second, and so do a sorted
    snapshot and a replay. So each is a generator; `step` runs one step of them in turn. There are
    two kinds of work, which see the topic at different moments:

    - A missing board is built, and subscriptions that wait for it begin when it is done, as if they
      had subscribed then. They were sent nothing before, so nothing can be lost. One without a
      snapshot is sent what was published since its cut. A change to other rows takes effect then.
    - Rows of a backfill are made of a cut, which was taken when the subscription began. It is in
      its lane already; what is published meanwhile follows the backfill. The rows that another
      filter shows and hides are made of both boards as they were when the subscriber changed lanes.
    """

    def __init__(
        self,
        begin: Callable[[Session, Subscriber, Sequence[Frame], Instant], None],
        on_built: Callable[[Session, Subscriber, Instant], None],
        *,
        in_steps: bool,
    ) -> None:
        """Without `in_steps` everything is done at once.

        `begin`: begins a subscription or a change whose board is built, with what was published
        since its cut. `on_built`: called with a subscriber whose rows are built.
        """
        self.in_steps = in_steps
        self._begin = begin
        self._on_built = on_built
        self._work: deque[Steps[None]] = deque()  # the next step is that of the first
        self._waiting: dict[FeedBuild | RowBuild, list[Waiting]] = {}
        self._spent = 0  # records of which boards were built at once since the last step
        self.now: Instant = 0  # of the current step

    def __bool__(self) -> bool:
        # A step without work only resets `_spent`, so that small boards are built at once again.
        return bool(self._work) or self._spent > FEW

    def wait_new(self, session: Session, subscriber: Subscriber) -> bool:
        """Return True, and let a new subscriber wait, if its board has to be built in steps.

        A replay needs no board before it joins its lane.
        """
        subscription = subscriber.member.subscription
        is_resumed = subscription.resume is not None
        if subscription.replay is not None and not is_resumed:
            return False
        # A resume may be answered with a snapshot.
        of_records = is_resumed or subscription.command.queries
        feed_id = subscription.lane_id.feed
        return self._wait_for_board(session, subscriber, feed_id, of_records=of_records)

    def wait_replayed(self, session: Session, subscriber: Subscriber) -> bool:
        """Return True, and let a replay that has caught up wait, if its board has to be built."""
        if subscriber.watchers:
            return False
        feed_id = subscriber.member.subscription.lane_id.feed
        return self._wait_for_board(session, subscriber, feed_id, of_records=False)

    def wait_change(self, session: Session, subscriber: Subscriber) -> bool:
        """Return True, and let a change of options wait, if a board has to be built in steps."""
        # A trace repeats the change at once, so it must not take longer here.
        if subscriber.change is None or subscriber.watchers:
            return False
        feed_ids = [subscriber.change.subscription.lane_id.feed]
        if subscriber.lane is not None:
            # Deferred rows of the old board are sent, too, so they have to be made.
            feed_ids.append(subscriber.lane.id.feed)
        waits = [
            self._wait_for_board(session, subscriber, feed_id, of_records=False)
            for feed_id in feed_ids
        ]
        return any(waits)

    def _wait_for_board(
        self, session: Session, subscriber: Subscriber, feed_id: FeedId, *, of_records: bool
    ) -> bool:
        if not self.in_steps:
            return False
        topic = subscriber.topic
        # A pattern may have hundreds of topics, each with a small board to build.
        room = max(0, items_at_once() - self._spent)
        build = topic.build(feed_id, room, of_records=of_records)
        if build is None:
            self._spent += topic.unbuilt(feed_id)
            return False
        self._wait(session, subscriber, build, self._board_steps(topic, build))
        return True

    def build_rows(self, session: Session, subscriber: Subscriber) -> None:
        """Build the remaining rows of a subscriber's cursors, in steps unless it is traced."""
        for cursor in subscriber.cursors:
            if cursor.build is None or not cursor.is_building:
                continue
            # A trace makes all rows at once, so they must not take longer here.
            if not self.in_steps or subscriber.watchers:
                subscriber.complete(cursor)
                continue
            self._wait(session, subscriber, cursor.build, self._row_steps(cursor.build))

    def _wait(
        self,
        session: Session,
        subscriber: Subscriber,
        build: FeedBuild | RowBuild,
        work: Steps[None],
    ) -> None:
        """Let a subscriber wait for a build, whose work begins with the first one that waits."""
        waiting = self._waiting.get(build)
        if waiting is None:
            waiting = self._waiting[build] = []
            self._work.append(work)
        if all(other is not subscriber for _, other in waiting):
            waiting.append((session, subscriber))

    def run(self, work: Steps[None]) -> None:
        """Run work for which no subscriber waits: the first step now, the others in turn."""
        if not self.in_steps:
            finished(work)
        elif next(work, self) is not self:  # `self` marks the end
            self._work.append(work)

    def step(self, now: Instant) -> None:
        """Run the next step of the work in the queue, if there is any."""
        self.now, self._spent = now, 0
        if self._work:
            work = self._work.popleft()
            if next(work, self) is not self:
                self._work.append(work)

    def _board_steps(self, topic: Topic, build: FeedBuild) -> Steps[None]:
        """Build a board; then begin the subscriptions that wait for it, one in each step."""
        steps = build.steps()
        feed: Feed | None = None
        while waiting := self._still_waiting(build):
            if feed is not None:
                session, subscriber = waiting.pop(0)  # each one's snapshot takes a step
                self._begin(session, subscriber, build.since(subscriber.member.cut), self.now)
            elif next(steps, self) is self:
                feed = topic.built(build)
            yield
        del self._waiting[build]
        topic.abandon(build)
        if feed is not None:
            topic.release(feed)

    def _row_steps(self, build: RowBuild) -> Steps[None]:
        """Make rows; in the last step all subscribers that wait for them get the same list."""
        while self._still_waiting(build) and not build.step():
            yield
        for session, subscriber in self._waiting.pop(build):
            for cursor in subscriber.cursors:
                if cursor.build is build:
                    subscriber.complete(cursor)
            self._on_built(session, subscriber, self.now)

    def _still_waiting(self, build: FeedBuild | RowBuild) -> list[Waiting]:
        # A subscription may have ended, or may have another subscriber as its topic was restarted.
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
