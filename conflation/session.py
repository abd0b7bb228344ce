"""A session: one consumer, its subscriptions, and what it is owed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from conflation.carry import Carry
from conflation.feed import Feed
from conflation.frame import Batch
from conflation.lane import Lane
from conflation.list_lane import ListLane
from conflation.member import Member
from conflation.opening import Opening
from conflation.outputs import CloseReason, Output, Rows
from conflation.topic import Topic


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of what a session's `conflation=none` subscriptions may have waiting."""

    messages_max: int
    bytes_max: int


@dataclass(slots=True, eq=False)
class Seat:
    """A member together with what it reads from; no lane for a finished `sow`."""

    member: Member
    topic: Topic
    opening: Opening | None = None
    feed: Feed | None = None
    lane: Lane | None = None
    carry: Carry | None = None

    def take(self, bytes_max: int) -> list[Output]:
        """The opening first, then what a move left owing, then what the lane has let go."""
        if self.opening is not None:
            outputs = self.opening.take(bytes_max)
            if self.opening.done:
                self.opening = None
            return outputs
        batch = self._carried(bytes_max) or self._from_lane(bytes_max)
        if batch is None:
            return []
        return [Rows(self.member.name, self.topic.name, self.topic.epoch, "publish", batch)]

    def _carried(self, bytes_max: int) -> Batch | None:
        batch = None if self.carry is None else self.carry.take(bytes_max)
        if batch is not None:
            self.member.delivered += len(batch.frames)
        if self.carry is not None and self.carry.over:
            self.carry = None
        return batch

    def _from_lane(self, bytes_max: int) -> Batch | None:
        batch = None if self.lane is None else self.lane.take(self.member, bytes_max)
        while batch is not None and not batch.frames and self.lane is not None:
            batch = self.lane.take(self.member, bytes_max)
        return batch if batch is None or self.carry is None else batch.without_id()

    def queued(self) -> tuple[int, int]:
        """Messages and bytes that count towards the session's limits."""
        return self.lane.queued(self.member) if isinstance(self.lane, ListLane) else (0, 0)


class Session:
    """Seats by subscription name, and control events that go out once rows allow.

    `ready` is true from the moment the shell was told until a take finds nothing.
    """

    def __init__(self, session_id: str, limits: QueueLimits) -> None:
        self.id = session_id
        self.limits = limits
        self.seats: dict[str, Seat] = {}
        self.outbox: deque[Output] = deque()
        self.ready = False
        self.ended: CloseReason | None = None

    def take(self, bytes_max: int) -> list[Output]:
        """Outputs of about `bytes_max`; seats take turns, so that none starves another."""
        outputs: list[Output] = []
        room = bytes_max
        for name in list(self.seats):
            if room <= 0:
                break
            taken = self.seats[name].take(room)
            room -= sum(out.batch.payload_bytes for out in taken if isinstance(out, Rows))
            outputs += taken
            if taken:
                self.seats[name] = self.seats.pop(name)
        while self.outbox:
            outputs.append(self.outbox.popleft())
        return outputs

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
