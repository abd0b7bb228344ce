"""Lane assignment: subscribers join lanes, and go over to others while messages come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tidegate.conflation.boards.board import Pair
from tidegate.conflation.frame import Frame, RemovalReason, Row, Tombstone
from tidegate.conflation.lanes.accumulate import combines, lifted
from tidegate.conflation.lanes.lane import Lane, all_shown, shown_as
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import HistoryWanted
from tidegate.conflation.schedule import Schedule
from tidegate.conflation.sessions.backfill import begin, begin_late, continue_replay, supply
from tidegate.conflation.sessions.openings import Openings
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.rows import RowCursor, collapsed
from tidegate.conflation.sessions.session import UNLIMITED, Session
from tidegate.conflation.sessions.subscriber import PendingChange, Subscriber
from tidegate.conflation.subscription import Command, Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

Due = tuple[Feed, Lane] | Subscriber | Topic
"""What a deadline belongs to: a lane (a flush), a subscriber (a change, or the next row of a
paced replay), or a topic (expiry)."""

NOWHERE = Bookmark("", 0)
"""No topic has this epoch: a subscription that resumes from here gets everything."""


class LaneAssignment:
    """Moves subscribers into lanes and between them, and arms the deadlines on their way."""

    def __init__(
        self,
        schedule: Schedule[Due],
        registry: SessionRegistry,
        arm_watermarks: Callable[[Session], None],
        opening_records_max: int | None = None,
    ) -> None:
        """`arm_watermarks` is called with each session whose queue is in another lane."""
        self.openings = Openings(opening_records_max, self._open, registry.wake)
        self._schedule = schedule
        self._registry = registry
        self._arm_watermarks = arm_watermarks

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
        assert (name, topic.name) not in session.subscribers, "a name subscribes to a topic once"
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
            with _holding_feed(session, subscriber):
                self._begin(session, subscriber, now)
                if subscriber.joins_at_once:
                    self._join(session, subscriber, now)
        else:
            begin_late(subscriber, missed, self.openings.records_max)
            self.openings.follow(session, subscriber)
            self._join(session, subscriber, now)
        self._apply_due_change(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    def _begin(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        limits = session.limits if session.conflated else UNLIMITED
        begin(subscriber, limits, now, self.openings.records_max)
        self.openings.follow(session, subscriber)

    def adopt(self, session: Session, subscriber: Subscriber) -> None:
        """Add a subscriber of another engine as it is, with its lane and its deadlines."""
        session.subscribers[subscriber.id] = subscriber
        if subscriber.lane is not None and subscriber.feed is not None:
            self._schedule.arm(subscriber.lane, (subscriber.feed, subscriber.lane))
        if subscriber.backfill is not None:
            self._schedule.arm(subscriber.backfill, subscriber)

    def restart(self, topic: Topic, now: Instant) -> None:
        """Begin every subscription of a topic again, with a snapshot: it has a new epoch."""
        for session, before in self._registry.of_topic(topic.name):
            change = before.change
            wanted = before.member.subscription if change is None else change.subscription
            wanted = replace(wanted, resume=NOWHERE, replay=None, paused=before.paused)
            successor = Subscriber.of(session.id, before.member.name, topic, wanted)
            with _holding_feed(session, successor):
                self._begin(session, successor, now)
                self._registry.replace(session, before, successor)
                if successor.joins_at_once:
                    self._join(session, successor, now)
            self._registry.wake(session)

    # --- Backfill

    def continue_backfill(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        """Arm the next row of a backfill; if it is out, go on to live rows, or end a `sow`."""
        cursor = subscriber.backfill
        assert cursor is not None, "only a backfill is continued"
        self._schedule.arm(cursor, subscriber)
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
            self._registry.finish(session, subscriber)
            return
        # Messages came while the replay ran. Once none are left it may join without a gap.
        subscriber.backfill = continue_replay(subscriber, cursor, self.openings.records_max)
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
        if (wanted.epoch, wanted.after) != (subscriber.topic.epoch, subscriber.history.after):
            return
        subscriber.member.note(subscriber.backfill.rows)
        supply(subscriber, piece, self.openings.records_max)
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
        change = _note_change(session, subscriber, subscription, now)
        if change is not None and subscriber.lane is not None:
            self._schedule.arm(change, subscriber)
            self._apply_due_change(session, subscriber, now)
        for watcher in subscriber.watchers:
            watcher.moved(now)
        self._registry.wake(session)

    def reassign(self, session: Session, now: Instant) -> None:
        """Move a session's queues to the lanes that its queue policies ask for now."""
        for subscriber in list(session.subscribers.values()):
            lane = subscriber.lane
            if lane is None or not subscriber.queues or subscriber.change is not None:
                continue  # what changes already asks for its lane anew when it is due
            subscription = subscriber.member.subscription
            if lane.id != subscriber.lane_id(subscription, conflated=session.conflated):
                self.change(session, subscriber, subscription, now)

    def release(self, subscriber: Subscriber, now: Instant) -> None:
        """Act on a subscriber's deadline: that of a change, or of a paced replay's next row."""
        session = self._registry.find(subscriber.member.session)
        is_changed = self._apply_due_change(session, subscriber, now)
        if is_changed or subscriber.backfill is not None:
            self._registry.wake(session)

    def _join(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        subscriber.join(conflated=session.conflated)
        self._joined(session, subscriber, now)

    def _apply_due_change(self, session: Session, subscriber: Subscriber, now: Instant) -> bool:
        """Change lanes if that is due; a replay that has not caught up has none to leave yet."""
        change = subscriber.change
        due = None if change is None or subscriber.lane is None else change.deadline
        if due is None or due > now or self.openings.add_change(session, subscriber):
            return False
        _apply_change(session, subscriber)
        self._joined(session, subscriber, now)
        return True

    def _joined(self, session: Session, subscriber: Subscriber, now: Instant) -> None:
        self._arm_watermarks(session)
        for watcher in subscriber.watchers:
            watcher.moved(now)


def _holding_feed(session: Session, subscriber: Subscriber) -> AbstractContextManager[None]:
    """Hold the feed that a new subscriber's snapshot and lane have in common, if it is to join."""
    if not subscriber.joins_at_once:
        return nullcontext()
    lane_id = subscriber.lane_id(subscriber.member.subscription, conflated=session.conflated)
    return subscriber.topic.holding(lane_id.feed)


# --- From one lane to another


View = Mapping[str, Frame]
"""The rows of a client that has everything: by the key that it knows a row by, as shown."""


def _note_change(
    session: Session, subscriber: Subscriber, subscription: Subscription, now: Instant
) -> PendingChange | None:
    """Note what a subscriber changes to, and when; None if its lane stays the same.

    What is held goes at the earlier of its own deadline and `now` plus the new interval, and the
    subscriber with it; until then the old options hold (rule change-1). It goes at once where
    nothing is held, where every message is asked for, and to another board. A subscriber without
    a lane goes once it has one.
    """
    before, lane = subscriber.change, subscriber.lane
    held_until = None if lane is None else lane.deadline
    if before is not None:
        # A second change must not put off what the first one has promised.
        held_until, before.deadline = before.deadline, None
    subscriber.paused, subscriber.change = subscription.paused, None
    lane_id = subscriber.lane_id(subscription, conflated=session.conflated)
    if lane is not None and lane.id == lane_id:
        subscriber.member.subscription = subscription
        return None
    interval_ns = subscription.lane_id.interval_ns
    waits = lane is not None and lane.id.feed == subscription.lane_id.feed and interval_ns
    due = min(held_until, now + interval_ns) if waits and held_until is not None else now
    subscriber.change = PendingChange(subscription, due)
    return subscriber.change


def _apply_change(session: Session, subscriber: Subscriber) -> None:
    """Leave the old lane with all that it has for the member, held or not, and join the new one.

    From board to board of the same view the member's position is all that there is to keep.
    """
    member, old, old_feed = subscriber.member, subscriber.lane, subscriber.feed
    change = subscriber.change
    assert old is not None
    assert old_feed is not None
    assert change is not None
    subscriber.change, change.deadline = None, None
    if old.id == subscriber.lane_id(change.subscription, conflated=session.conflated):
        member.subscription = change.subscription  # a replay has just joined it
        return
    old_feed.settle()  # rows that are put off are not pending yet, and would be lost
    since, cut, joined = member.position, member.cut, member.joined - old_feed.accepted
    passed = member.passed - subscriber.topic.filtered_out(old_feed)
    pending, unreported = old.left_behind(member)
    backlog = member.backlog
    member.backlog = None
    member.subscription = change.subscription
    # Positions of the old lane say nothing in the new one, and neither does what they refer to.
    member.conflated_to = member.released = 0
    member.owed = None
    member.remember()
    # It joins before it leaves: a topic forgets a board without lanes, and both may have the same.
    subscriber.join(conflated=session.conflated)
    new, feed = subscriber.lane, subscriber.feed
    assert new is not None
    assert feed is not None
    # What it was sent so far counts on: matched and filtered are differences to these.
    member.joined = feed.accepted + joined
    member.passed = subscriber.topic.filtered_out(feed) + passed
    at_a_place = subscriber.catch_up is None and backlog is None
    if at_a_place and new.is_stateless and old.counts_offsets and _shows_the_same(old, new):
        # What the old lane held is let go to it alone, so it need not wait for the new lane.
        member.position, member.cut, member.released = since, cut, new.board.head
    else:
        member.catch_up = None
        for row_key, messages in unreported:  # older than what is pending of their keys
            member.miss(row_key, messages)
        _catch_up(subscriber, old, pending)
        if not _shows_the_same(old, new):
            # Other rows or fields: deltas would be against values that the client never had.
            member.drop_delta_base()
            _catch_up(subscriber, new, _changed(_view(old), new, member))
    if new.is_stateless:
        member.unreported = None  # it counts nothing
    subscriber.leave_lane(old)


def _shows_the_same(old: Lane, new: Lane) -> bool:
    return (old.id.feed, old.id.select) == (new.id.feed, new.id.select)


def _view(lane: Lane) -> View:
    shown = all_shown(shown_as(lane.id.select), lane.board.live())
    return {frame.key: frame for frame in shown}


def _changed(before: View, lane: Lane, member: Member) -> list[Pair]:
    """Return the rows that turn the old view of a client into the new one; they are no messages."""
    after = _view(lane)
    rows: list[Frame] = []
    # Without `oof` removals were not asked for: rows that the new filter hides go stale.
    if lane.id.oof:
        rows += [_out(row) for row_key, row in before.items() if row_key not in after]
    for row_key, row in after.items():
        known = before.get(row_key)
        if member.subscription.command.queries and (known is None or known.payload != row.payload):
            rows.append(_in(row))
    return [(row.key, row) for row in rows]


def _out(row: Frame) -> Tombstone:
    return Tombstone(row.offset, row.payload, row.key, row.timestamp_ms, reason=RemovalReason.MATCH)


def _in(row: Frame) -> Row:
    return Row(
        row.offset, row.payload, row.key, row.timestamp_ms,
        first=row.offset, first_ms=row.timestamp_ms, messages=0,
    )  # fmt: skip


def _catch_up(subscriber: Subscriber, lane: Lane, rows: Sequence[Pair]) -> None:
    """Put rows of a lane after those it has to catch up with, together if the new lane allows."""
    # A key of one board may be the text of another's, so its specification is part of it here.
    spec, new = lane.id.feed.key_spec, subscriber.lane
    earlier = [] if subscriber.catch_up is None else subscriber.catch_up.pairs_left
    pairs: Sequence[Pair] = earlier + [
        (f"{spec} {board_key}", known)
        for board_key, row in rows
        for known in subscriber.member.as_known((row,))
    ]
    if new is not None and not new.id.lists:
        # Rows of a list are single messages; where the new lane combines, they are what it would
        # have made of each.
        if lane.id.lists and combines(new.id):
            pairs = [(board_key, lifted(row, new.id)) for board_key, row in pairs]
        pairs = collapsed(pairs)
    head = subscriber.topic.head
    subscriber.catch_up = RowCursor.catch_up(pairs, head) if pairs else None
