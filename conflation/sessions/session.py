"""A session: one consumer, its subscriptions, and what it is owed."""

from __future__ import annotations

from dataclasses import dataclass

from conflation.bookmark import Bookmark
from conflation.duration import Instant
from conflation.frame import Batch
from conflation.lanes.lane import Lane
from conflation.lanes.list_lane import ListLane
from conflation.lanes.member import Member
from conflation.outputs import CloseReason, Output, Rows
from conflation.sessions.opening import Opening
from conflation.sessions.owed import Owed
from conflation.subscription import Subscription
from conflation.topics.feed import Feed
from conflation.topics.topic import Topic

SeatId = tuple[str, str]
"""Subscription and topic: a pattern has a seat in each topic that it takes."""


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of what a session's `conflation=none` subscriptions may have waiting."""

    messages_max: int
    bytes_max: int


@dataclass(slots=True, eq=False)
class Transfer:
    """What a seat goes over to once what is held for it is due."""

    subscription: Subscription
    deadline: Instant | None


@dataclass(slots=True, eq=False)
class Seat:
    """A member together with what it reads from.

    No lane for a `sow`, and for a replay that has not caught up yet.
    """

    member: Member
    topic: Topic
    opening: Opening | None = None
    feed: Feed | None = None
    lane: Lane | None = None
    transfer: Transfer | None = None
    owed: Owed | None = None
    paused: bool = False

    @property
    def id(self) -> SeatId:
        """Its place in the session."""
        return self.member.name, self.topic.name

    def take(self, bytes_max: int, now: Instant) -> list[Output]:
        """The opening first, then what is owed, then what the lane has let go."""
        if self.paused:
            return []
        if self.opening is not None:
            outputs = self.opening.take(bytes_max, now)
            if self.opening.done:
                self.member.note(self.opening.rows)
            return outputs
        batch = self._from_owed(bytes_max) or self._from_lane(bytes_max)
        if batch is None:
            return []
        return [Rows(self.member.name, self.topic.name, self.topic.epoch, "publish", batch)]

    def _from_owed(self, bytes_max: int) -> Batch | None:
        if self.owed is None:
            return None
        batch, delivered = self.owed.take(bytes_max)
        self.member.delivered += delivered
        if self.owed.is_over:
            self.owed = None
        return batch

    def _from_lane(self, bytes_max: int) -> Batch | None:
        batch = None if self.lane is None else self.lane.take(self.member, bytes_max)
        while batch is not None and not batch.frames and self.lane is not None:
            batch = self.lane.take(self.member, bytes_max)
        if batch is None or batch.payload_bytes <= bytes_max or len(batch.frames) == 1:
            return batch
        self.member.delivered -= batch.messages()
        self.owed = Owed([(frame.key, frame) for frame in batch.frames], batch.low_water)
        return self._from_owed(bytes_max)

    def waiting(self) -> int:
        """Values that it will still get if nothing else is published."""
        owed = 0 if self.owed is None else self.owed.waiting()
        return owed if self.lane is None else owed + self.lane.waiting(self.member)

    def has_everything(self) -> bool:
        """Whether nothing of what was published so far is still to come."""
        if self.paused or self.lane is None or self.opening is not None:
            return False
        return self.owed is None and not self.lane.pending(self.member)

    def queued(self) -> tuple[int, int]:
        """Messages and bytes that count towards the session's limits."""
        return self.lane.queued(self.member) if isinstance(self.lane, ListLane) else (0, 0)


class Session:
    """Seats by subscription and topic, and control events: who comes and goes, in that order.

    They go out before rows, as those are of seats that are still there.

    `ready` is true from the moment the shell was told until a take finds nothing. One that
    `lasts` stays open without subscriptions.
    """

    def __init__(self, session_id: str, limits: QueueLimits, *, lasts: bool = False) -> None:
        self.id = session_id
        self.limits = limits
        self.lasts = lasts
        self.seats: dict[SeatId, Seat] = {}
        self.outbox: list[Output] = []
        self.ready = False
        self.ended: CloseReason | None = None

    def take(self, bytes_max: int, now: Instant) -> list[Output]:
        """Outputs of about `bytes_max`; seats take turns, so that none starves another."""
        outputs = list(self.outbox)
        self.outbox.clear()
        room = bytes_max
        for seat_id in list(self.seats):
            if room <= 0:
                break
            taken = self.seats[seat_id].take(room, now)
            room -= sum(out.batch.payload_bytes for out in taken if isinstance(out, Rows))
            outputs += taken
            if taken:
                self.seats[seat_id] = self.seats.pop(seat_id)
        return outputs

    def seats_of(self, name: str) -> list[Seat]:
        """The seats of one subscription."""
        return [seat for seat in self.seats.values() if seat.member.name == name]

    def caught_up(self) -> list[tuple[SeatId, Bookmark]]:
        """Seats that have everything, and the heads of their topics."""
        return [
            (seat.id, seat.topic.bookmark(seat.topic.head))
            for seat in self.seats.values()
            if seat.has_everything()
        ]

    def queued(self) -> tuple[int, int]:
        """Messages and payload bytes waiting for `conflation=none` subscriptions."""
        queues = [seat.queued() for seat in self.seats.values()]
        return sum(messages for messages, _ in queues), sum(size for _, size in queues)

    def over_limit(self) -> bool:
        """Whether the queue is longer than the session may have it."""
        messages, size = self.queued()
        return messages > self.limits.messages_max or size > self.limits.bytes_max

    def half_full(self) -> bool:
        """Whether more than half of what may wait does."""
        messages, size = self.queued()
        return 2 * messages > self.limits.messages_max or 2 * size > self.limits.bytes_max
