"""The usher: who is shown to which lane, when it is time, and what follows an opening."""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.outputs import HistoryWanted
from tidegate.conflation.schedule import Schedule
from tidegate.conflation.sessions import lane_change, subscriber
from tidegate.conflation.sessions.backfill import brought, go_on
from tidegate.conflation.sessions.queue_limits import QueueLimiter
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.rows import Backfill
from tidegate.conflation.sessions.session import Session, Subscriber
from tidegate.conflation.subscription import Command, Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant

Due = tuple[Feed, Lane] | Subscriber | Topic
"""Whose deadline it is: a lane's, a seat's (a change, a replay's next row), a topic's (expiry)."""


class LaneAssignment:
    """Seats in and between lanes; whatever changes a queue's lane sets its alarms anew."""

    def __init__(
        self, schedule: Schedule[Due], roster: SessionRegistry, queue_limits: QueueLimiter
    ) -> None:
        self._schedule = schedule
        self._roster = roster
        self._relief = queue_limits

    def join(self, session: Session, seat: Subscriber, now: Instant) -> None:
        """A seat takes its place in its lane."""
        subscriber.join(session, seat)
        self._seated(session, seat, now)

    def change(
        self, session: Session, seat: Subscriber, subscription: Subscription, now: Instant
    ) -> None:
        """A seat gets other options, which take effect when what is held goes."""
        for watcher in seat.watchers:
            watcher.changes(subscription, now)
        transfer = lane_change.change(session, seat, subscription, now)
        if transfer is not None and seat.lane is not None:
            self._schedule.arm(transfer, seat)
            self._apply_change(session, seat, now)
        for watcher in seat.watchers:
            watcher.stands(now)
        self._roster.wake(session)

    def renew(self, topic: Topic, now: Instant) -> None:
        """A topic has begun again: all its seats are taken anew, and open with a snapshot."""
        for session, seat in self._roster.of_topic(topic.name):
            successor = subscriber.again(session, seat, topic, now)
            self._roster.replace(session, seat, successor)
            if subscriber.joins_at_once(successor):
                self.join(session, successor, now)
            self._roster.wake(session)

    def reseat(self, session: Session, now: Instant) -> None:
        """The queue policies of a session's topics, or its own, may ask for other lanes."""
        for seat in list(session.seats.values()):
            if seat.lane is None or not seat.queues or seat.transfer is not None:
                continue
            subscription = seat.member.subscription
            if seat.lane.id != subscriber.lane_id_of(session, seat.topic, subscription):
                self.change(session, seat, subscription, now)

    def release(self, seat: Subscriber, now: Instant) -> None:
        """The deadline of a change has come, or that of a replay's next row."""
        session = self._roster.find(seat.member.session)
        if self._apply_change(session, seat, now) or seat.opening is not None:
            self._roster.wake(session)

    def opened(self, session: Session, seat: Subscriber, opening: Backfill, now: Instant) -> None:
        """An opening waits for its next row, or is over: live rows follow, or nothing does."""
        self._schedule.arm(opening, seat)
        if opening.past is not None and opening.wants_past:
            opening.past.asked = True
            wanted = HistoryWanted(session.id, seat.id, seat.topic.epoch, opening.past.after)
            self._roster.tell(wanted)
        if not opening.done:
            return
        seat.opening = None
        subscription = seat.member.subscription
        if seat.lane is not None:
            return
        if subscription.command is Command.SOW:
            self._roster.finish(session, seat)
            return
        seat.opening = go_on(opening, seat.topic, subscription)
        if seat.opening is None:
            self.join(session, seat, now)
            self._apply_change(session, seat, now)

    def brought(
        self, session: Session, wanted: HistoryWanted, piece: Sequence[Frame], now: Instant
    ) -> None:
        """What a replay wanted from an archive; whoever has gone on without it needs it no more."""
        seat = session.seats.get(wanted.seat)
        opening = None if seat is None else seat.opening
        if seat is None or opening is None or opening.past is None:
            return
        if (wanted.epoch, wanted.after) != (seat.topic.epoch, opening.past.after):
            return
        seat.member.note(opening.rows)
        seat.opening = brought(opening, seat.topic, seat.member.subscription, piece)
        self.opened(session, seat, seat.opening, now)
        for watcher in seat.watchers:
            watcher.stands(now)
        self._roster.wake(session)

    def _apply_change(self, session: Session, seat: Subscriber, now: Instant) -> bool:
        """Change lanes if that is due; a replay that goes on has none to leave yet."""
        due = None if seat.transfer is None or seat.lane is None else seat.transfer.deadline
        if due is None or due > now:
            return False
        lane_change.apply_change(session, seat)
        self._seated(session, seat, now)
        return True

    def _seated(self, session: Session, seat: Subscriber, now: Instant) -> None:
        """It is in another lane now."""
        self._relief.arm(session)
        for watcher in seat.watchers:
            watcher.stands(now)
