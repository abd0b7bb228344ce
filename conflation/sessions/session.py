"""A session: one consumer, its subscriptions, and what it is owed."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tidegate.conflation.definition import Priority
from tidegate.conflation.frame import Batch
from tidegate.conflation.lanes.every_message import EveryMessageLane
from tidegate.conflation.lanes.lane import Lane, Member
from tidegate.conflation.outputs import CloseReason, Output, Rows
from tidegate.conflation.sessions.rows import Backfill, CatchUpRows, DrainedRows
from tidegate.conflation.subscription import Subscription, queue_rules
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

SeatId = tuple[str, str]
"""Subscription and topic: a pattern has a seat in each topic that it takes."""


HALF_PERCENT = 50

_RANKS = {Priority.HIGH: 0, Priority.DEFAULT: 1, Priority.LOW: 2}


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of what a session's `conflation=none` subscriptions may have waiting.

    Above `upper_percent` of either, and at `lower_percent` of both again after that, the shell is
    told (Diffusion's thresholds); a queue above the lower one is conflated in idle time.
    """

    messages_max: int
    bytes_max: int
    upper_percent: int = 80
    lower_percent: int = 50

    def is_above(self, percent: int, messages: int, size: int) -> bool:
        """Whether a queue takes up more than a share of either bound."""
        over_messages = 100 * messages > percent * self.messages_max
        return over_messages or 100 * size > percent * self.bytes_max

    def room(self, messages: int, size: int) -> tuple[int, int]:
        """How many messages and bytes may come before the next level that matters."""
        levels = sorted((HALF_PERCENT, self.lower_percent, self.upper_percent, 100))
        return _room(levels, messages, self.messages_max), _room(levels, size, self.bytes_max)


UNLIMITED = QueueLimits(1 << 62, 1 << 62)


def _room(levels: Sequence[int], taken: int, most: int) -> int:
    return next((room for level in levels if (room := level * most // 100 - taken) >= 0), 0)


@dataclass(slots=True, eq=False)
class PendingChange:
    """What a seat goes over to once what is held for it is due."""

    subscription: Subscription
    deadline: Instant | None


class Watcher(Protocol):
    """Is told what happens to a seat."""

    def took(self, bytes_max: int, outputs: Sequence[Output], now: Instant) -> None:
        """It was served."""

    def changes(self, subscription: Subscription, now: Instant) -> None:
        """It is about to get other options."""

    def stands(self, now: Instant) -> None:
        """It stands otherwise than before: in another lane, or on its way there."""

    def conflates(self, messages_max: int | None) -> None:
        """Its queue is about to be put together."""

    def ended(self, reason: str) -> None:
        """It is given up."""


@dataclass(slots=True, eq=False)
class Subscriber:
    """A member together with what it reads from.

    No lane for a `sow`, and for a replay that has not caught up yet.
    """

    member: Member
    topic: Topic
    opening: Backfill | None = None
    feed: Feed | None = None
    lane: Lane | None = None
    transfer: PendingChange | None = None
    owed: CatchUpRows | None = None
    paused: bool = False
    watchers: tuple[Watcher, ...] = ()

    @property
    def id(self) -> SeatId:
        """Its place in the session."""
        return self.member.name, self.topic.name

    def take(self, bytes_max: int, now: Instant) -> list[Output]:
        """The opening first, then what is owed, then what the lane has let go."""
        outputs = self._next(bytes_max, now)
        for watcher in self.watchers:
            watcher.took(bytes_max, outputs, now)
        return outputs

    def _next(self, bytes_max: int, now: Instant) -> list[Output]:
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
            if self.queues and self.has_more:
                batch.low_water = None  # the queue has not drained
        return batch

    def _from_lane(self, bytes_max: int) -> Batch | None:
        batch = None if self.lane is None else self.lane.take(self.member, bytes_max)
        while batch is not None and not batch.frames and self.lane is not None:
            batch = self.lane.take(self.member, bytes_max)
        if batch is None or self.lane is None:
            return batch
        if batch.payload_bytes <= bytes_max or len(batch.frames) == 1:
            return batch
        self.member.delivered -= batch.messages()
        spec = self.lane.id.feed.key_spec  # as what is owed after a move is called, to be joined
        rows = [(f"{spec} {frame.key}", frame) for frame in batch.frames]
        self.owed = CatchUpRows(rows, batch.low_water)
        return self._from_owed(bytes_max)

    def waiting(self) -> int:
        """Values that it will still get if nothing else is published."""
        owed = 0 if self.owed is None else self.owed.waiting()
        return owed if self.lane is None else owed + self.lane.waiting(self.member)

    def has_everything(self) -> bool:
        """Whether nothing of what was published so far is still to come."""
        if self.paused or self.lane is None or self.opening is not None:
            return False
        is_settled = self.feed is None or self.feed.is_settled
        return is_settled and self.owed is None and not self.lane.pending(self.member)

    @property
    def has_more(self) -> bool:
        """Whether another take would find something, as far as can be seen at no cost."""
        if self.opening is not None or self.owed is not None:
            return not self.paused
        return self.lane is not None and self.lane.ready(self.member) and not self.paused

    @property
    def queues(self) -> bool:
        """Whether what waits counts towards the session's limits."""
        return self.lane is not None and self.lane.id.queues

    @property
    def is_changing(self) -> bool:
        """Whether it is still on its way to other options."""
        return self.transfer is not None or self.owed is not None

    def queued(self) -> tuple[int, int]:
        """Messages and bytes that count towards the session's limits."""
        if self.lane is None or not self.queues:
            return 0, 0
        messages, size = self.lane.queued(self.member)
        owed_messages, owed_size = (0, 0) if self.owed is None else self.owed.queued()
        return messages + owed_messages, size + owed_size

    @property
    def may_part(self) -> bool:
        """Whether what is queued is still told when it ends."""
        has_begun = self.opening is None and not self.paused
        return self.queues and has_begun and not self.topic.definition.tidies

    def unconflated(self) -> int:
        """Messages of the queue that `conflate` has not put together yet."""
        return (
            len(self.lane.unconflated(self.member))
            if isinstance(self.lane, EveryMessageLane)
            else 0
        )

    def conflate(self, messages_max: int | None = None) -> None:
        """Put the queue, or the next so many messages of it, together by the topic's rules."""
        for watcher in self.watchers:
            watcher.conflates(messages_max)
        lane = self.lane
        if not isinstance(lane, EveryMessageLane):
            return
        rules, through = queue_rules(lane.id, self.topic.definition), None
        if messages_max is not None:
            through = lane.unconflated(self.member)[:messages_max][-1].offset
        lane.give_up(self.member, rules, through)
        if self.owed is not None:
            for row_key, unreported in self.owed.conflate(rules, lane.board):
                self.member.miss(row_key, unreported)


class Session:
    """Seats by subscription and topic, and control events: who comes and goes, in that order.

    They go out before rows, as those are of seats that are still there.

    `ready` is true from the moment the shell was told until a take finds nothing. One that
    `lasts` stays open without subscriptions; one that is not `conflated` has no queue policy.
    `unsent_bytes` is what its socket holds beyond its own small buffers. `is_crossed`: its queue
    rose above the upper threshold, and has not come down to the lower one since.
    """

    def __init__(
        self, session_id: str, limits: QueueLimits, *, lasts: bool = False, conflated: bool = True
    ) -> None:
        self.id = session_id
        self.limits = limits
        self.lasts = lasts
        self.conflated = conflated
        self.seats: dict[SeatId, Subscriber] = {}
        self.outbox: deque[Output | DrainedRows] = deque()
        self.ready = False
        self.ended: CloseReason | None = None
        self.unsent_bytes = 0
        self.is_crossed = False

    def take(self, bytes_max: int, now: Instant) -> list[Output]:
        """Outputs of about `bytes_max`; seats take turns, so that none starves another of its rank.

        Topics of a higher priority are served first.
        """
        outputs, room = self._from_outbox(bytes_max)
        lowest = max(_RANKS.values())
        for seat_id in sorted(self.seats, key=self._rank):
            if room <= 0 or self.outbox or self._rank(seat_id) > lowest:
                break
            seat = self.seats[seat_id]
            taken = seat.take(room, now)
            if not taken:
                continue
            room -= _payload_bytes(taken)
            outputs += taken
            self.seats[seat_id] = self.seats.pop(seat_id)
            if seat.has_more:
                lowest = self._rank(seat_id)
        return outputs

    def _from_outbox(self, bytes_max: int) -> tuple[list[Output], int]:
        """Who comes and goes, and what is still to be told to who went; then the room left."""
        outputs, room = list[Output](), bytes_max
        while self.outbox and room > 0:
            first = self.outbox[0]
            if not isinstance(first, DrainedRows):
                outputs.append(first)
            elif not first.owed.is_over:
                outputs.append(first.take(room))
                room -= _payload_bytes(outputs[-1:])
                if not first.owed.is_over:
                    continue
            self.outbox.popleft()
        return outputs, room

    def _rank(self, seat_id: SeatId) -> int:
        return _RANKS[self.seats[seat_id].topic.definition.priority]

    def seats_of(self, name: str) -> list[Subscriber]:
        """The seats of one subscription."""
        return [seat for seat in self.seats.values() if seat.member.name == name]

    def caught_up(self) -> list[tuple[SeatId, Bookmark]]:
        """Seats that have everything, and the heads of their topics."""
        return [
            (seat.id, seat.topic.bookmark(seat.topic.head))
            for seat in self.seats.values()
            if seat.has_everything()
        ]

    def partings(self) -> list[DrainedRows]:
        """What is still to be told to subscriptions that have ended."""
        return [left for left in self.outbox if isinstance(left, DrainedRows)]

    def queued(self) -> tuple[int, int]:
        """Messages and payload bytes waiting for `conflation=none` subscriptions."""
        queues = [seat.queued() for seat in self.seats.values()]
        queues += [left.queued() for left in self.partings()]
        return sum(messages for messages, _ in queues), sum(size for _, size in queues)

    def fills(self) -> tuple[int, int]:
        """What counts towards the limits: with a queue also what the socket holds."""
        messages, size = self.queued()
        return messages, size + self.unsent_bytes if messages else 0

    def is_above(self, percent: int) -> bool:
        """Whether the queue takes up more than a share of what it may."""
        return self.limits.is_above(percent, *self.fills())


def _payload_bytes(outputs: Sequence[Output]) -> int:
    return sum(out.batch.payload_bytes for out in outputs if isinstance(out, Rows))
