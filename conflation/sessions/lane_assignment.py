"""Lane assignment: subscribers begin, join lanes, change lanes and end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.outputs import HistoryWanted, Rows
from tidegate.conflation.schedule import Schedule
from tidegate.conflation.sessions.backfill import begin, begin_late, continue_replay, supply
from tidegate.conflation.sessions.lane_change import apply_change, plan_change
from tidegate.conflation.sessions.openings import Openings
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import UNLIMITED, Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.steps import Steps, finished, in_steps
from tidegate.conflation.subscription import Command, Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

Due = tuple[Feed, Lane] | Subscriber | Topic
"""What a deadline belongs to: a lane (a flush), a subscriber (a change, or the next row of a
paced replay), or a topic (expiry)."""

SESSION_COST = 20
"""What ending or moving a subscription costs, in records that are examined."""

BOOKMARK_EXPIRED = "BOOKMARK_EXPIRED"
"""The end of a replay whose next messages are gone, if `bookmark_not_found` is `fail`."""

NOWHERE = Bookmark("", 0)
"""No topic has this epoch: a subscription that resumes from here gets everything."""


class LaneAssignment:
    """Moves subscribers into lanes and between them, and arms the deadlines on their way."""

    def __init__(
        self,
        schedule: Schedule[Due],
        registry: SessionRegistry,
        joined: Callable[[Session, Subscriber], None],
        *,
        in_steps: bool = False,
    ) -> None:
        """Begin empty; `joined` is called with each subscriber that has joined a lane."""
        self.openings = Openings(self._begin_waiting, self._rows_built, in_steps=in_steps)
        self._schedule = schedule
        self._registry = registry
        self._on_joined = joined
        # By name of dropped topics: the steps that end their subscriptions.
        self._ending: dict[str, Steps[None]] = {}

    # --- Beginning

    def subscribe(
        self,
        session: Session,
        name: str,
        topic: Topic,
        subscription: Subscription,
        now: Instant,
        *,
        announced: bool,
    ) -> None:
        """Add a subscriber with its backfill; it joins its lane now or once a replay is done.

        Raises:
            BookmarkExpired: see `begin`.
        """
        assert session.subscribers.get((name, topic.name)) is None, (
            "a name subscribes to a topic once"
        )
        subscriber = Subscriber.of(session.id, name, topic, subscription)
        if self.openings.wait_new(session, subscriber):
            self._registry.add(session, subscriber, announced=announced)
        else:
            with _holding_feed(session, subscriber):
                self._begin(session, subscriber, now)
                self._registry.add(session, subscriber, announced=announced)
                if subscriber.joins_at_once:
                    self._join(session, subscriber, now)
        if subscriber.backfill is not None or announced:
            self._registry.wake(session)

    def _begin_waiting(
        self, session: Session, subscriber: Subscriber, missed: Sequence[Frame], now: Instant
    ) -> None:
        """Begin a subscription, or make a change of one, that has waited for its board.

        It begins as if it were made now. If it has neither snapshot nor bookmark, or is a replay
        that had caught up, its client knows its cut: `missed` was published since.
        """
        subscription = subscriber.member.subscription
        if subscriber.lane is not None:
            pass  # a change, which takes effect below
        elif subscription.resume is not None or (
            subscription.command.queries and subscription.replay is None
        ):
            try:
                with _holding_feed(session, subscriber):
                    self._begin(session, subscriber, now)
                    if subscriber.joins_at_once:
                        self._join(session, subscriber, now)
            except BookmarkExpired:
                self._registry.end_subscriber(session, subscriber, BOOKMARK_EXPIRED)
                return
        else:
            begin_late(subscriber, missed)
            self.openings.build_rows(session, subscriber)
            self._join(session, subscriber, now)
        self._apply_due_change(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    def _rows_built(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        """Send rows that have been built, and make a change that has waited for them."""
        self._apply_due_change(session, subscriber, now)
        self._registry.wake(session)

    def _begin(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        begin(subscriber, session.limits if session.conflated else UNLIMITED, now)
        self.openings.build_rows(session, subscriber)

    def adopt(self, session: Session, subscriber: Subscriber) -> None:
        """Add a subscriber of another engine with its lane and its deadlines."""
        session.subscribers.add(subscriber)
        if subscriber.lane is not None and subscriber.feed is not None:
            feed, lane = subscriber.feed, subscriber.lane
            self._schedule.arm(lane, (feed, lane), feed.topic)
        if subscriber.backfill is not None:
            self._schedule.arm(subscriber.backfill, subscriber, subscriber.topic.name)

    def restart(self, topic: Topic, now: Instant) -> None:
        """Begin every subscription of a topic with a new epoch again, with a snapshot.

        One of which nothing was sent yet begins where its reader is.
        """
        for session, before in self._registry.of_topic(topic.name):
            change = before.change
            wanted = before.member.subscription if change is None else change.subscription
            is_new = change is None and not before.has_begun
            resume = (wanted.resume if is_new else None) or NOWHERE
            wanted = replace(wanted, resume=resume, paused=before.paused)
            successor = Subscriber.of(session.id, before.member.name, topic, wanted)
            try:
                with _holding_feed(session, successor):
                    self._begin(session, successor, now)
                    self._registry.replace(session, before, successor)
                    if successor.joins_at_once:
                        self._join(session, successor, now)
            except BookmarkExpired:
                self._registry.end_subscriber(session, before, BOOKMARK_EXPIRED)
            self._registry.wake(session)

    # --- Takes

    def continue_after_take(self, session: Session, now: Instant) -> None:
        """Continue backfills, and build the rows of catch-ups that the take has begun."""
        for subscriber in session.subscribers:
            if subscriber.backfill is not None:
                self.continue_backfill(session, subscriber, now)
            elif subscriber.awaits_rows:
                self.openings.build_rows(session, subscriber)

    def take_together(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        """Return rows for a cohort; one that is far behind ends, and its rows are made in steps."""
        answered = self._registry.dissolve_far_behind(cohort) if self.openings.in_steps else None
        if answered is None:
            return self._registry.take_together(cohort, bytes_max)
        for session in answered:
            self.openings.build_rows(session, session.only_subscriber)
        return None

    # --- Backfill

    def continue_backfill(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        """Arm the next row of a backfill; after its last, begin live rows or end a `sow`."""
        cursor = subscriber.backfill
        assert cursor is not None, "only a backfill is continued"
        self._schedule.arm(cursor, subscriber, subscriber.topic.name)
        history = subscriber.history
        if history is not None and subscriber.wants_history:
            history.asked = True
            epoch = subscriber.topic.epoch
            self._registry.emit(HistoryWanted(session.id, subscriber.id, epoch, history.after))
        if not subscriber.is_backfilled:
            return
        subscriber.backfill = None
        subscription = subscriber.member.subscription
        if subscriber.lane is not None:
            return  # it joined when it subscribed; its live rows follow
        if subscription.command is Command.SOW:
            self._registry.finish_query(session, subscriber)
            return
        # Messages were published while the replay ran; it joins once none of them are left.
        try:
            subscriber.backfill = continue_replay(subscriber, cursor)
        except BookmarkExpired:
            self._registry.end_subscriber(session, subscriber, BOOKMARK_EXPIRED)
            return
        if subscriber.backfill is not None:
            self.openings.build_rows(session, subscriber)
            return
        subscriber.member.cut = subscriber.topic.head
        if not self.openings.wait_replayed(session, subscriber):
            self._join(session, subscriber, now)
            self._apply_due_change(session, subscriber, now)

    def supply(
        self, session: Session, wanted: HistoryWanted, piece: Sequence[Frame], now: Instant
    ) -> None:
        """Give a replay what it asked of an archive, unless it does not need that any more."""
        subscriber = session.subscribers.get(wanted.subscriber)
        if subscriber is None or subscriber.backfill is None or subscriber.history is None:
            return
        # The topic may have been restarted meanwhile, or the piece supplied before.
        place = subscriber.topic.place(Bookmark(wanted.epoch, wanted.after))
        if place != Bookmark(subscriber.topic.epoch, subscriber.history.after):
            return
        subscriber.member.record_sent(subscriber.backfill.rows)
        try:
            supply(subscriber, piece)
        except BookmarkExpired:
            self._registry.end_subscriber(session, subscriber, BOOKMARK_EXPIRED)
            return
        self.openings.build_rows(session, subscriber)
        self.continue_backfill(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    # --- Changes

    def change(
        self, session: Session, subscriber: Subscriber, subscription: Subscription, now: Instant
    ) -> None:
        """Give a subscriber other options, which take effect when held rows are sent."""
        for watcher in subscriber.watchers:
            watcher.changes(subscription, now)
        change = plan_change(session, subscriber, subscription, now)
        if change is not None and subscriber.lane is not None:
            self._schedule.arm(change, subscriber, subscriber.topic.name)
            self._apply_due_change(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    def reassign_all(self, topic: str, now: Instant) -> None:
        """Move queues to the lanes of a topic's new policy, such as `always`; many in steps.

        A queue is conflated by the old policy until it has moved.
        """
        sessions = self._registry.sessions_of(topic)
        self.openings.run(self._reassign_in_steps(sessions, now))

    def _reassign_in_steps(self, sessions: Sequence[Session], now: Instant) -> Steps[None]:
        def reassign(piece: Sequence[Session]) -> tuple[Session, ...]:
            for session in self._registry.present([each.id for each in piece]):
                if session.ended is None:
                    # After the first step, `now` is a time of the past.
                    self.reassign(session, max(now, self.openings.now))
            return ()

        yield from in_steps(sessions, reassign, SESSION_COST)

    def end_all(self, topic: Topic, reason: str) -> None:
        """End the subscriptions of a topic that is dropped, many of them in steps."""
        self._ending[topic.name] = self._end_in_steps(topic, reason)
        self.openings.run(self._ending[topic.name])

    def finish_ending(self, topic: str) -> None:
        """End the remaining subscriptions of a dropped topic, as another takes its name."""
        if topic in self._ending:
            finished(self._ending[topic])

    def _end_in_steps(self, topic: Topic, reason: str) -> Steps[None]:
        def end(piece: Sequence[Session]) -> tuple[Session, ...]:
            for session in self._registry.present([each.id for each in piece]):
                for subscriber in session.subscribers:
                    if subscriber.topic is topic:
                        self._registry.leave_cohort(session)
                        self._registry.end_subscriber(session, subscriber, reason)
            return ()

        sessions = self._registry.sessions_of(topic.name)
        yield from in_steps(sessions, end, SESSION_COST)
        self._registry.accounting.forget(topic.name)
        del self._ending[topic.name]

    def reassign(self, session: Session, now: Instant) -> None:
        """Move a session's queues to the lanes of its present queue policies."""
        for subscriber in session.subscribers:
            lane = subscriber.lane
            if lane is None or not subscriber.queues or subscriber.change is not None:
                continue  # a change that is due finds the lane by itself
            subscription = subscriber.member.subscription
            if lane.id != subscriber.lane_id(subscription, conflated=session.conflated):
                self._registry.leave_cohort(session)
                self.change(session, subscriber, subscription, now)

    def handle_deadline(self, subscriber: Subscriber, now: Instant) -> None:
        """Act on a subscriber's deadline: that of a change, or of a paced replay's next row."""
        session = self._registry.isolate(subscriber.member.session)
        is_changed = self._apply_due_change(session, subscriber, now)
        if is_changed or subscriber.backfill is not None:
            self._registry.wake(session)

    def _join(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        subscriber.join(conflated=session.conflated)
        self._joined(session, subscriber, now)

    def _apply_due_change(self, session: Session, subscriber: Subscriber, now: Instant) -> bool:
        """Change lanes if that is due; return whether it was.

        A replay waits until it has caught up and has a lane, and a second change until the rows of
        the first one are built.
        """
        change = subscriber.change
        if change is None or subscriber.lane is None or subscriber.awaits_rows:
            return False
        if change.deadline is None or change.deadline > now:
            return False
        if self.openings.wait_change(session, subscriber):
            return False
        apply_change(session, subscriber)
        self.openings.build_rows(session, subscriber)
        self._joined(session, subscriber, now)
        return True

    def _joined(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        self._on_joined(session, subscriber)
        for watcher in subscriber.watchers:
            watcher.moved(now)


def _holding_feed(session: Session, subscriber: Subscriber) -> AbstractContextManager[None]:
    """Hold the feed from which a new subscriber reads its snapshot and then its lane."""
    if not subscriber.joins_at_once:
        return nullcontext()
    lane_id = subscriber.lane_id(subscriber.member.subscription, conflated=session.conflated)
    return subscriber.topic.holding(lane_id.feed)
