"""A recorder: the calls that touch one seat, in their order; what a trace is made of."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.sessions.session import PendingChange, Subscriber
from tidegate.conflation.subscription import Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant

# A twin: a copy of a seat with its board and lane, as they stand now, that goes its own way.


def twin_of(seat: Subscriber) -> Subscriber:
    """The same seat, alone in its lane, in a topic that has no other feed.

    What never changes is shared with the original: it costs references, a few for each key. Of a
    window or of groups the order is made anew, as for a new filter. Records do not expire here:
    that is for the original to say.
    """
    topic = _topic(seat.topic)
    member = copy.deepcopy(seat.member, {id(seat.member.subscription): seat.member.subscription})
    twin = Subscriber(member, topic, paused=seat.paused)
    if seat.feed is not None and seat.lane is not None:
        twin.feed = _feed(topic, seat.feed)
        twin.lane = _lane(seat.lane, twin.feed)
        twin.lane.members[member.place] = member
        twin.feed.adopt(twin.lane)
    if seat.opening is not None:
        twin.opening = copy.copy(seat.opening)
        twin.opening.pacing = copy.copy(seat.opening.pacing)
        twin.opening.past = copy.copy(seat.opening.past)
    if seat.transfer is not None:
        twin.transfer = PendingChange(seat.transfer.subscription, seat.transfer.deadline)
    twin.owed = copy.copy(seat.owed)
    return twin


def _topic(real: Topic) -> Topic:
    topic = Topic(real.name, replace(real.definition, expiration_ns=None), real.epoch)
    topic.head = real.head
    topic.journal = copy.deepcopy(real.journal)
    if topic.sow is not None and real.sow is not None:
        topic.sow.take_over(real.sow)
    return topic


def _feed(topic: Topic, real: Feed) -> Feed:
    feed = topic.feed(real.id)
    feed.take_over(real)
    return feed


def _lane(real: Lane, feed: Feed) -> Lane:
    """All that a lane holds, without its other members."""
    shared: dict[int, Any] = {id(real.board): feed.board, id(real.members): {}}
    return copy.deepcopy(real, shared)


MESSAGES_MAX = 50_000
BYTES_MAX = 16 << 20
OVERRUN = "OVERRUN"


@dataclass(frozen=True, slots=True)
class Seated:
    """The seat as it was at this moment: at the beginning, and whenever it stands otherwise."""

    now: Instant
    seat: Subscriber


@dataclass(frozen=True, slots=True)
class Published:
    """Messages of the topic, in one call; `eager`: with each its groups' rows are made."""

    now: Instant
    frames: Sequence[Frame]
    eager: bool = False


@dataclass(frozen=True, slots=True)
class Advanced:
    """Time went on, and something was due."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Taken:
    """The session took what this seat had for it, about `bytes_max` of payload."""

    now: Instant
    bytes_max: int
    outputs: Sequence[Output]


@dataclass(frozen=True, slots=True)
class Changed:
    """The subscription was given other options."""

    now: Instant
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class Redefined:
    """The topic was given another definition."""

    now: Instant
    definition: Definition


@dataclass(frozen=True, slots=True)
class Settled:
    """Somebody looked at the board: the rows of groups were made."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Joined:
    """Somebody else joined the lane: what it holds is cut there."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Conflated:
    """The queue of every message, or the next so many of it, was put together by its policy."""

    now: Instant
    messages_max: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The subscription has ended, or its trace: `OVERRUN` if that was not read fast enough."""

    now: Instant
    reason: str


Call = (
    Seated
    | Published
    | Advanced
    | Taken
    | Changed
    | Redefined
    | Settled
    | Joined
    | Conflated
    | Ended
)


class TraceRecorder:
    """Keeps references to what passes, so much as is bounded, until it is drained.

    The engine tells it of each call after that was made, but of a publish before queues are
    looked after. Who joins the lane is noticed with the next call: it makes no difference before.
    """

    def __init__(
        self,
        seat: Subscriber,
        now: Instant,
        wake: Callable[[], None] = lambda: None,
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        self.seat = seat
        self.is_over = False
        self._wake = wake
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._calls: deque[Call] = deque()
        self._messages = 0
        self._bytes = 0
        self._now = now
        self.stands(now)

    def drain(self) -> list[Call]:
        """What was recorded since the last call."""
        calls = list(self._calls)
        self._forget()
        return calls

    def published(self, topic: Topic, frames: Sequence[Frame], now: Instant) -> None:
        """Messages came; whether they concern the seat is for the trace to find out."""
        if topic is self.seat.topic and not self.is_over:
            self._catch_up()
            size = sum(len(frame.payload) for frame in frames)
            eager = self.seat.feed is not None and self.seat.feed.is_eager
            self._note(Published(now, frames, eager), messages=len(frames), size=size)

    def advanced(self, now: Instant) -> None:
        """Time went on; that is nothing unless the lane let something go."""
        if not self.is_over and self._stamp() != self._known:
            self._catch_up()
            self._note(Advanced(now))

    def took(self, bytes_max: int, outputs: Sequence[Output], now: Instant) -> None:
        """The session took; nothing, unless that is news."""
        if not self.is_over and (outputs or self._stamp() != self._known):
            self._catch_up()
            size = sum(out.batch.payload_bytes for out in outputs if isinstance(out, Rows))
            self._note(Taken(now, bytes_max, outputs), size=size)

    def changes(self, subscription: Subscription, now: Instant) -> None:
        """Other options are asked for; told before they take effect."""
        if not self.is_over:
            self._catch_up()
            self._note(Changed(now, subscription))

    def stands(self, now: Instant) -> None:
        """It is in another lane, which may hold something already, or is to go there."""
        if not self.is_over:
            self._notice()
            self._note(Seated(now, twin_of(self.seat)))

    def conflates(self, messages_max: int | None) -> None:
        """The session's queue is too long; told before it is made shorter."""
        if not self.is_over:
            self._catch_up()
            self._note(Conflated(self._now, messages_max))

    def ended(self, reason: str) -> None:
        """The subscription is over, and with it the trace."""
        if not self.is_over:
            self.is_over = True
            self._note(Ended(self._now, reason))

    def _catch_up(self) -> None:
        """Note what others did to the lane or the topic since the last call."""
        joins, definition, settles = self._joins, self._definition, self._settles
        self._notice()
        if settles != self._settles:
            self._note(Settled(self._now))
        if definition is not self._definition:
            self._note(Redefined(self._now, self._definition))
        for _ in range(self._joins - joins):
            self._note(Joined(self._now))

    def _notice(self) -> None:
        self._definition = self.seat.topic.definition
        self._joins = 0 if self.seat.lane is None else self.seat.lane.joins
        self._settles = 0 if self.seat.feed is None else self.seat.feed.settles

    def _note(self, call: Call, *, messages: int = 1, size: int = 0) -> None:
        self._now = call.now
        self._messages += messages
        self._bytes += size
        if self._messages > self._messages_max or self._bytes > self._bytes_max:
            self._forget()
            self.is_over = True
            call = Ended(call.now, OVERRUN)
        self._known = self._stamp()
        self._calls.append(call)
        self._wake()

    def _forget(self) -> None:
        self._calls.clear()
        self._messages = self._bytes = 0

    def _stamp(self) -> tuple[object, ...]:
        """What changes whenever the lane lets something go, or the member's place moves."""
        lane, opening = self.seat.lane, self.seat.opening
        due = None if opening is None else opening.deadline
        if lane is None:
            return None, due
        return lane.batch, lane.deadline, lane.position, self.seat.member.position, due


# The recorders that run: the one thing that the engine asks for when nobody is traced.


RECORDERS_MAX = 10


class TraceRecorders:
    """A few at most: each costs a reference for every publish of its topic, and its own engine."""

    def __init__(self) -> None:
        self.running: list[TraceRecorder] = []

    def begin(self, seat: Subscriber, now: Instant, wake: Callable[[], None]) -> TraceRecorder:
        """Record a seat from now on; `wake` is called whenever there is something to drain.

        Raises:
            LimitReached: as many as may be.
        """
        if len(self.running) >= RECORDERS_MAX:
            raise LimitReached(f"there are {RECORDERS_MAX} traces already")
        recorder = TraceRecorder(seat, now, wake)
        self.running.append(recorder)
        seat.watchers = (*seat.watchers, recorder)
        return recorder

    def end(self, recorder: TraceRecorder) -> None:
        """Nobody reads it any more."""
        self.running.remove(recorder)
        seat = recorder.seat
        seat.watchers = tuple(watcher for watcher in seat.watchers if watcher is not recorder)
