"""A subscriber: one subscription in one topic, its position and what it is sent next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidegate.conflation.definition import effective_lane, queue_rules
from tidegate.conflation.frame import Batch, Frame
from tidegate.conflation.lanes.catch_up import CatchUpRows
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.outputs import GroupBegin, GroupEnd, Output, Rows
from tidegate.conflation.sessions.drain import Drain
from tidegate.conflation.sessions.rows import RowCursor, deliveries
from tidegate.conflation.subscription import Command, LaneId, Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.recorded import HistoryReplay
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

SubscriberId = tuple[str, str]
"""Subscription and topic: a pattern has a subscriber in each topic that it matches."""


@dataclass(slots=True, eq=False)
class PendingChange:
    """The options that a subscriber changes to once what is held for it is due."""

    subscription: Subscription
    deadline: Instant | None


class Watcher(Protocol):
    """Records what happens to a subscriber, for its trace.

    A trace runs an engine of its own, so `tracing/` imports the engine, and the engine only knows
    this protocol. The engine calls `published` and `advanced`, the subscriber's modules the others.
    """

    def published(self, topic: Topic, frames: Sequence[Frame], now: Instant) -> None:
        """Record messages of any topic."""

    def advanced(self, now: Instant) -> None:
        """Record a call of `advance`."""

    def took(self, bytes_max: int, outputs: Sequence[Output], now: Instant) -> None:
        """Record what was taken."""

    def changes(self, subscription: Subscription, now: Instant) -> None:
        """Record other options, before they take effect."""

    def moved(self, now: Instant) -> None:
        """Record that the subscriber has changed lanes, or has planned to."""

    def conflates(self, messages_max: int | None) -> None:
        """Record that the queue is about to be conflated."""

    def ended(self, reason: str) -> None:
        """Record the end of the subscription."""


@dataclass(slots=True, eq=False)
class Subscriber:
    """One subscription in one topic.

    It is sent `backfill` first, then `catch_up`, then what its lane has flushed. There is no lane
    for a `sow`, and none for a replay until that has caught up with the topic.

    Attributes:
        member: its part in a lane: a position, and what it was sent.
        backfill: a snapshot, or what was missed since a bookmark.
        history: how far a replay has got in the archive that supplies its backfill.
        catch_up: what its last lane had for it, or the rest of an answer too large for one take.
        change: the options it changes to, and when.
        has_begun: something was sent to it by itself.
        watchers: traces.
    """

    member: Member
    topic: Topic
    backfill: RowCursor | None = None
    history: HistoryReplay | None = None
    feed: Feed | None = None
    lane: Lane | None = None
    change: PendingChange | None = None
    catch_up: RowCursor | None = None
    paused: bool = False
    has_begun: bool = False
    watchers: tuple[Watcher, ...] = ()

    @classmethod
    def of(cls, session: str, name: str, topic: Topic, subscription: Subscription) -> Subscriber:
        """Return a new subscriber, in no lane yet, whose cut is the topic's head."""
        member = Member(name, session, subscription, cut=topic.head)
        member.track_sent()
        return cls(member, topic, paused=subscription.paused)

    @property
    def id(self) -> SubscriberId:
        """Subscription and topic, its key in the session."""
        return self.member.name, self.topic.name

    # --- Its lane

    @property
    def joins_at_once(self) -> bool:
        """True if it joins its lane at once; a `sow` never does, a replay once it has caught up."""
        subscription = self.member.subscription
        is_replay = subscription.replay is not None and subscription.resume is None
        is_replay |= self.history is not None
        return subscription.command is not Command.SOW and not is_replay

    def lane_id(self, subscription: Subscription, *, conflated: bool) -> LaneId:
        """Return the lane of a subscription here; `conflated`: its session has queue policies."""
        return effective_lane(subscription, self.topic.definition, conflated=conflated)

    def join(self, *, conflated: bool) -> None:
        """Join the lane that the member's subscription names, at its head."""
        member = self.member
        feed, lane = self.topic.lane(self.lane_id(member.subscription, conflated=conflated))
        self.feed, self.lane = feed, lane
        lane.join(member)
        lane.joins += 1  # traces of other members repeat it: a join splits what the lane holds
        member.cut = self.topic.head
        # A feed counts for all its members; this one's counts are the differences to these.
        member.joined, member.passed = feed.accepted, self.topic.filtered_out(feed)
        lane.members[member.place] = member

    def leave(self) -> None:
        """Leave the lane, and cancel the deadlines of a change or a replay."""
        # This makes their entries in the schedule stale.
        if self.change is not None:
            self.change.deadline = None
        if self.backfill is not None:
            self.backfill.deadline = None
        if self.lane is not None:
            self.leave_lane(self.lane)

    def leave_lane(self, lane: Lane) -> None:
        """Leave a lane; one without members is forgotten."""
        place = self.member.place
        del lane.members[place]
        self.topic.feeds[lane.id.feed].watermarks.clear(place)
        if not lane.members:
            self.topic.drop_lane(lane)

    # --- What it is sent

    def take(self, bytes_max: int, now: Instant, *, in_steps: bool = False) -> list[Output]:
        """Return what it is sent next, about `bytes_max` of payload.

        `in_steps`: an answer of very many rows is made in steps, and taken later.
        """
        outputs: list[Output] = []
        if self.paused:
            pass  # nothing is sent, but a trace records the take
        # Oldest first: a client must not be sent an older value of a key after a newer one.
        elif self.backfill is not None:
            if not self.backfill.is_building:
                outputs = self._from_backfill(self.backfill, bytes_max, now)
                if not outputs and self.is_backfilled and self.lane is not None:
                    self.backfill = None  # it had no rows: live rows follow in this take
                    return self.take(bytes_max, now, in_steps=in_steps)
        elif self.awaits_rows:
            pass  # the rows of a change are not made yet, and no newer row may precede them
        elif self.catch_up is not None:
            outputs.append(self._rows(self._from_catch_up(self.catch_up, bytes_max, now)))
        elif (batch := self._from_lane(bytes_max, now, in_steps=in_steps)) is not None:
            outputs.append(self._rows(batch))
        self.has_begun = self.has_begun or bool(outputs)
        for watcher in self.watchers:
            watcher.took(bytes_max, outputs, now)
        return outputs

    @property
    def may_join_cohort(self) -> bool:
        """True if it is sent its lane's flushes as others are, and nothing else.

        Not while a trace watches it: the trace is given each `take` of a subscriber.
        """
        if self.lane is None or self.cursors or self.change or self.paused or self.watchers:
            return False
        return self.lane.may_join_cohort(self.member)

    def _rows(self, batch: Batch, op: str = "publish") -> Rows:
        return Rows(self.member.name, self.topic.name, self.topic.epoch, op, batch)

    def _from_backfill(self, cursor: RowCursor, bytes_max: int, now: Instant) -> list[Output]:
        outputs = [] if cursor.has_begun else self._announcement(cursor)
        cursor.has_begun = True
        batch = cursor.take(bytes_max, now)
        if batch.frames:
            outputs.append(self._rows(batch, "snapshot" if cursor.is_snapshot else "publish"))
        if self.is_backfilled:
            # Once for all pieces: rows that depend on it are sent after the last one.
            self.member.record_sent(cursor.rows)
            if cursor.is_snapshot:
                rows, bookmark = len(cursor.rows), self._bookmark(cursor)
                outputs.append(GroupEnd(self.member.name, self.topic.name, rows, bookmark))
        return outputs

    def _announcement(self, cursor: RowCursor) -> list[Output]:
        resumed = cursor.resumed
        if resumed is not None and not (cursor.rows or cursor.is_snapshot or self.history):
            # No row follows that would carry an id, so this event does.
            resumed = replace(resumed, bookmark=self._bookmark(cursor))
        outputs: list[Output] = [] if resumed is None else [resumed]
        if cursor.is_snapshot:
            outputs.append(GroupBegin(self.member.name, self.topic.name, len(cursor.rows)))
        return outputs

    def _bookmark(self, cursor: RowCursor) -> str:
        assert cursor.through is not None, "a backfill ends at an offset"
        return str(Bookmark(self.topic.epoch, cursor.through))

    def _from_catch_up(self, cursor: RowCursor, bytes_max: int, now: Instant) -> Batch:
        batch = cursor.take(bytes_max, now)
        # Rows of a queue are single messages, and no parts of a flush.
        batch.has_more = not self.queues and (cursor.has_more or not cursor.is_done)
        self.member.delivered += deliveries(batch.frames)
        if cursor.is_done:
            self.catch_up = None
            if self.queues and self.has_more:
                batch.low_water = None  # the queue after it has not drained
        return batch

    def _from_lane(self, bytes_max: int, now: Instant, *, in_steps: bool) -> Batch | None:
        lane = self.lane
        if lane is None:
            return None
        if self.feed is not None and lane.ready(self.member):
            self.feed.materialize_messages()  # a member that is behind is sent the newest values
        # A trace makes all rows at once, so they must not take longer here.
        if in_steps and not self.watchers:
            answer = lane.begin_catch_up([self.member])
            if answer is not None:
                self.send_catch_up(answer)
                return None
        batch = lane.take(self.member, bytes_max)
        # All rows of an answer may be left out for this member; the next one may have some.
        while batch is not None and not batch.frames and not self.member.is_catching_up:
            batch = lane.take(self.member, bytes_max)
        if batch is None or not batch.frames:
            return None
        if batch.payload_bytes <= bytes_max or len(batch.frames) == 1:
            return batch
        return self._from_catch_up(self.split(batch), bytes_max, now)

    def split(self, batch: Batch) -> RowCursor:
        """Let `take` return an answer of the lane in pieces, as it is too large for one take."""
        assert self.lane is not None, "a lane has answered"
        # The lane has counted the whole answer as taken; `_from_catch_up` counts the pieces.
        self.member.delivered -= batch.messages()
        spec = str(self.lane.id.feed.key_spec)  # once, and not for each of thousands of rows
        keys = [f"{spec} {frame.key}" for frame in batch.frames]
        self.catch_up = RowCursor(batch.frames, batch.low_water, keys, has_more=batch.has_more)
        return self.catch_up

    def send_catch_up(self, answer: CatchUpRows) -> None:
        """Send these rows of the lane once they are made; equal members may share the build."""
        self.catch_up = RowCursor((), answer.low_water, build=answer.build, is_building=True)

    # --- What it will be sent

    @property
    def is_backfilled(self) -> bool:
        """True once the last row of the backfill is sent, and no archive supplies more."""
        return self.backfill is not None and self.backfill.is_done and self.history is None

    @property
    def wants_history(self) -> bool:
        """True if all that an archive has supplied is sent, and no more was asked for."""
        history, cursor = self.history, self.backfill
        return history is not None and not history.asked and cursor is not None and cursor.is_out

    @property
    def cursors(self) -> list[RowCursor]:
        """What it is sent before its lane's rows, in this order."""
        return [each for each in (self.backfill, self.catch_up) if each is not None]

    @property
    def awaits_rows(self) -> bool:
        """True while the rows of its catch-up, such as those of a change, are not made yet."""
        return self.catch_up is not None and self.catch_up.is_building

    def complete(self, cursor: RowCursor) -> None:
        """Make all rows of a cursor; a catch-up without rows ends."""
        cursor.complete()
        if cursor is self.catch_up and not cursor.rows:
            self.catch_up = None

    @property
    def is_changing(self) -> bool:
        """True while it has planned a change of options, or has rows of the old ones left."""
        return self.change is not None or self.catch_up is not None

    @property
    def has_more(self) -> bool:
        """True if another take may find something; a cheap check that may be wrong."""
        if cursors := self.cursors:
            return not (self.paused or cursors[0].is_building)
        return self.lane is not None and self.lane.ready(self.member) and not self.paused

    def has_everything(self) -> bool:
        """Return whether it has been sent all that was published so far."""
        if self.paused or self.lane is None or self.backfill is not None:
            return False
        # A deferred row is not on the board yet, but will be sent.
        is_materialized = self.feed is None or self.feed.is_materialized
        return is_materialized and self.catch_up is None and not self.lane.pending(self.member)

    def waiting(self) -> int:
        """Return how many values it will still be sent if nothing else is published."""
        caught_up = 0 if self.catch_up is None else self.catch_up.waiting()
        return caught_up if self.lane is None else caught_up + self.lane.waiting(self.member)

    # --- Its queue

    @property
    def queues(self) -> bool:
        """True if rows that were not taken count towards the session's limits."""
        return self.lane is not None and self.lane.id.queues

    def queued(self) -> tuple[int, int]:
        """Return the messages and bytes that count towards the session's limits."""
        if self.lane is None or not self.queues:
            return 0, 0
        messages, size = self.lane.queued(self.member)
        more, more_bytes = (0, 0) if self.catch_up is None else self.catch_up.queued()
        return messages + more, size + more_bytes

    def unconflated(self) -> int:
        """Return how many messages of the queue `conflate` has not conflated yet."""
        return 0 if self.lane is None else len(self.lane.unconflated(self.member))

    def conflate(self, messages_max: int | None = None) -> None:
        """Conflate the queue, or its next `messages_max` messages, by the topic's rules."""
        for watcher in self.watchers:
            watcher.conflates(messages_max)
        lane = self.lane
        if lane is None or not lane.id.lists:
            return
        rules, through = queue_rules(lane.id, self.topic.definition), None
        if messages_max is not None:
            through = lane.unconflated(self.member)[:messages_max][-1].offset
        lane.conflate_queue(self.member, rules, through)
        # The catch-up is the older part of the same queue.
        if self.catch_up is not None:
            for row_key, unreported in self.catch_up.conflate(rules, lane.board):
                self.member.add_unreported(row_key, unreported)

    @property
    def drains(self) -> bool:
        """True if what is queued is still sent when the subscription ends."""
        # Not with half a snapshot, and not for a paused client.
        has_begun = self.backfill is None and not self.paused
        return self.queues and has_begun and not self.topic.definition.tidies

    def drain(self, sums: Counter[str]) -> Drain:
        """Return what is queued; from now on it is counted in `sums`, those of the topic."""
        member, lane = self.member, self.lane
        assert lane is not None, "only a lane queues"
        # Personalized now: once it has left, nobody knows what it was sent.
        queued = [
            (board_key, known)
            for board_key, row in lane.pending(member)
            for known in member.personalize((row,))
        ]
        if self.catch_up is not None:
            self.complete(self.catch_up)
        earlier = [] if self.catch_up is None else self.catch_up.pairs_left
        rules = queue_rules(lane.id, self.topic.definition)
        rows = RowCursor.catch_up([*earlier, *queued], None)
        return Drain(member.name, self.topic, lane.board, rules, rows, sums)
