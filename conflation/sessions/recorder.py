"""A recorder: the calls that touch one seat, in their order; what a trace is made of."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from conflation.definition import Definition
from conflation.duration import Instant
from conflation.frame import Frame
from conflation.outputs import Output, Rows
from conflation.sessions.session import Seat
from conflation.sessions.twin import twin_of
from conflation.subscription import Subscription
from conflation.topics.topic import Topic

MESSAGES_MAX = 50_000
BYTES_MAX = 16 << 20
OVERRUN = "OVERRUN"


@dataclass(frozen=True, slots=True)
class Seated:
    """The seat as it was at this moment: at the beginning, and whenever it stands otherwise."""

    now: Instant
    seat: Seat


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


class Recorder:
    """Keeps references to what passes, so much as is bounded, until it is drained.

    The engine tells it of each call after that was made, but of a publish before queues are
    looked after. Who joins the lane is noticed with the next call: it makes no difference before.
    """

    def __init__(
        self,
        seat: Seat,
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
