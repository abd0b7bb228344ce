"""Lane assignment: subscribers join lanes, and go over to others while messages come."""

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
from tidegate.conflation.sessions.lane_change import apply_change, note_change
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
"""What the end or the move of a subscription costs, in records that are looked at."""

BOOKMARK_EXPIRED = "BOOKMARK_EXPIRED"
"""Why a replay ends whose next messages are gone, where `bookmark_not_found` is `fail`."""

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
        """Begin empty; `joined` takes each subscriber that is in another lane, and its session."""
        self.openings = Openings(self._open, self._go_on, in_steps=in_steps)
        self._schedule = schedule
        self._registry = registry
        self._note_joined = joined
        # By name, the ends of the subscriptions of dropped topics that are under way.
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
        """Add a subscriber with its backfill, and let it join its lane unless live rows wait.

        Raises:
            BookmarkExpired: see `begin`.
        """
        assert session.subscribers.get((name, topic.name)) is None, (
            "a name subscribes to a topic once"
        )
        subscriber = Subscriber.of(session.id, name, topic, subscription)
        if self.openings.add(session, subscriber):
            self._registry.add(session, subscriber, announced=announced)
        else:
            with _holding_feed(session, subscriber):
                self._begin(session, subscriber, now)
                self._registry.add(session, subscriber, announced=announced)
                if subscriber.joins_at_once:
                    self._join(session, subscriber, now)
        if subscriber.backfill is not None or announced:
            self._registry.wake(session)

    def _open(
        self, session: Session, subscriber: Subscriber, missed: Sequence[Frame], now: Instant
    ) -> None:
        """Go on with a subscription, or a change of one, that has waited for its board.

        It begins as if it were made now. If it has neither snapshot nor bookmark, or is a replay
        that had caught up, it has a cut that its client knows: `missed` has come since.
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
            self.openings.follow(session, subscriber)
            self._join(session, subscriber, now)
        self._apply_due_change(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    def _go_on(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        """Send the rows that were under way, and make the change that has waited for them."""
        self._apply_due_change(session, subscriber, now)
        self._registry.wake(session)

    def _begin(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        begin(subscriber, session.limits if session.conflated else UNLIMITED, now)
        self.openings.follow(session, subscriber)

    def adopt(self, session: Session, subscriber: Subscriber) -> None:
        """Add a subscriber of another engine as it is, with its lane and its deadlines."""
        session.subscribers.add(subscriber)
        if subscriber.lane is not None and subscriber.feed is not None:
            feed, lane = subscriber.feed, subscriber.lane
            self._schedule.arm(lane, (feed, lane), feed.topic)
        if subscriber.backfill is not None:
            self._schedule.arm(subscriber.backfill, subscriber, subscriber.topic.name)

    def restart(self, topic: Topic, now: Instant) -> None:
        """Begin every subscription of a topic again, with a snapshot: it has a new epoch."""
        for session, before in self._registry.of_topic(topic.name):
            change = before.change
            wanted = before.member.subscription if change is None else change.subscription
            wanted = replace(wanted, resume=NOWHERE, paused=before.paused)
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

    def go_on_after_take(self, session: Session, now: Instant) -> None:
        """Go on with what a take has begun or has brought to its end."""
        for subscriber in session.subscribers:
            if subscriber.backfill is not None:
                self.continue_backfill(session, subscriber, now)
            elif subscriber.is_turning:
                self.openings.follow(session, subscriber)

    def take_together(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        """Return rows for a cohort; one far behind ends, and has its rows made in steps."""
        answered = self._registry.dissolve_far_behind(cohort) if self.openings.in_steps else None
        if answered is None:
            return self._registry.take_together(cohort, bytes_max)
        for session in answered:
            self.openings.follow(session, session.only_subscriber)
        return None

    # --- Backfill

    def continue_backfill(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        """Arm the next row of a backfill; if it is out, go on to live rows, or end a `sow`."""
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
        # Messages came while the replay ran. Once none are left it may join without a gap.
        try:
            subscriber.backfill = continue_replay(subscriber, cursor)
        except BookmarkExpired:
            self._registry.end_subscriber(session, subscriber, BOOKMARK_EXPIRED)
            return
        if subscriber.backfill is not None:
            self.openings.follow(session, subscriber)
            return
        subscriber.member.cut = subscriber.topic.head
        if not self.openings.add_replayed(session, subscriber):
            self._join(session, subscriber, now)
            self._apply_due_change(session, subscriber, now)

    def supply(
        self, session: Session, wanted: HistoryWanted, piece: Sequence[Frame], now: Instant
    ) -> None:
        """Give a replay what it wanted of an archive, unless it has gone on without it."""
        subscriber = session.subscribers.get(wanted.subscriber)
        if subscriber is None or subscriber.backfill is None or subscriber.history is None:
            return
        # The gateway may be late: the topic may have been restarted, or the piece supplied before.
        place = subscriber.topic.place(Bookmark(wanted.epoch, wanted.after))
        if place != Bookmark(subscriber.topic.epoch, subscriber.history.after):
            return
        subscriber.member.record_sent(subscriber.backfill.rows)
        try:
            supply(subscriber, piece)
        except BookmarkExpired:
            self._registry.end_subscriber(session, subscriber, BOOKMARK_EXPIRED)
            return
        self.openings.follow(session, subscriber)
        self.continue_backfill(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    # --- Changes

    def change(
        self, session: Session, subscriber: Subscriber, subscription: Subscription, now: Instant
    ) -> None:
        """Give a subscriber other options, which take effect when what is held goes."""
        for watcher in subscriber.watchers:
            watcher.changes(subscription, now)
        change = note_change(session, subscriber, subscription, now)
        if change is not None and subscriber.lane is not None:
            self._schedule.arm(change, subscriber, subscriber.topic.name)
            self._apply_due_change(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    def reassign_all(self, topic: str, now: Instant) -> None:
        """Move queues to the lanes that a new policy of a topic, such as `always`, asks for.

        Very many go in steps: a queue conflates by the old policy until it has moved.
        """
        sessions = self._registry.sessions_of(topic)
        self.openings.do(self._reassigned(sessions, now))

    def _reassigned(self, sessions: Sequence[Session], now: Instant) -> Steps[None]:
        def reassign(piece: Sequence[Session]) -> tuple[Session, ...]:
            for session in self._registry.present([each.id for each in piece]):
                if session.ended is None:
                    # It is not the time of the definition any more, after the first step.
                    self.reassign(session, max(now, self.openings.now))
            return ()

        yield from in_steps(sessions, reassign, SESSION_COST)

    def end_all(self, topic: Topic, reason: str) -> None:
        """End the subscriptions of a topic that is dropped, very many in steps."""
        self._ending[topic.name] = self._ended(topic, reason)
        self.openings.do(self._ending[topic.name])

    def finish_ending(self, topic: str) -> None:
        """End what is left of a topic's subscriptions: another topic is to have its name."""
        if topic in self._ending:
            finished(self._ending[topic])

    def _ended(self, topic: Topic, reason: str) -> Steps[None]:
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
        """Move a session's queues to the lanes that its queue policies ask for now."""
        for subscriber in session.subscribers:
            lane = subscriber.lane
            if lane is None or not subscriber.queues or subscriber.change is not None:
                continue  # what changes already asks for its lane anew when it is due
            subscription = subscriber.member.subscription
            if lane.id != subscriber.lane_id(subscription, conflated=session.conflated):
                self._registry.leave_cohort(session)
                self.change(session, subscriber, subscription, now)

    def release(self, subscriber: Subscriber, now: Instant) -> None:
        """Act on a subscriber's deadline: that of a change, or of a paced replay's next row."""
        session = self._registry.isolate(subscriber.member.session)
        is_changed = self._apply_due_change(session, subscriber, now)
        if is_changed or subscriber.backfill is not None:
            self._registry.wake(session)

    def _join(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        subscriber.join(conflated=session.conflated)
        self._joined(session, subscriber, now)

    def _apply_due_change(self, session: Session, subscriber: Subscriber, now: Instant) -> bool:
        """Change lanes if that is due; a replay that has not caught up has none to leave yet.

        Rows of the change before, if they are under way, come first.
        """
        change = subscriber.change
        if change is None or subscriber.lane is None or subscriber.is_turning:
            return False
        if change.deadline is None or change.deadline > now:
            return False
        if self.openings.add_change(session, subscriber):
            return False
        apply_change(session, subscriber)
        self.openings.follow(session, subscriber)
        self._joined(session, subscriber, now)
        return True

    def _joined(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        self._note_joined(session, subscriber)
        for watcher in subscriber.watchers:
            watcher.moved(now)


def _holding_feed(session: Session, subscriber: Subscriber) -> AbstractContextManager[None]:
    """Hold the feed that a new subscriber's snapshot and lane have in common, if it is to join."""
    if not subscriber.joins_at_once:
        return nullcontext()
    lane_id = subscriber.lane_id(subscriber.member.subscription, conflated=session.conflated)
    return subscriber.topic.holding(lane_id.feed)
