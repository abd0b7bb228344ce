"""A trace: recorded calls run again on an engine of their own, and what was decided in them.

The engine that serves is not observed, only its calls are (`recorder.py`). Here they are made
again, with a twin of the seat alone in its lane, and a witness looks at that. Each take must give
what the real one gave: a trace that tells something else says so and ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.lane import Member
from tidegate.conflation.options.print import lane_text
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.sessions.recorder import (
    OVERRUN,
    Advanced,
    Call,
    Changed,
    Conflated,
    Ended,
    Joined,
    Published,
    Redefined,
    Seated,
    Settled,
    Taken,
    twin_of,
)
from tidegate.conflation.sessions.session import Subscriber
from tidegate.conflation.subscription import Subscription
from tidegate.conflation.tracing.decisions import Decision, DecisionKind, DecisionObserver
from tidegate.keys.text.duration import Instant

DIVERGED = "DIVERGED"


def replay(calls: Iterable[Call]) -> list[Output]:
    """What a recorded subscription is given, from its calls alone, which stay as they are."""
    trace = Trace()
    outputs: list[Output] = []
    for call in calls:
        deque(trace.tell(fresh(call)), maxlen=0)
        outputs += trace.taken if isinstance(call, Taken) else ()
    return outputs


def fresh(call: Call) -> Call:
    """The same call, for a trace that is to leave the record as it is."""
    return Seated(call.now, twin_of(call.seat)) if isinstance(call, Seated) else call


class Trace:
    """One subscription's; the seats in its calls are used up.

    `taken` is what the last take gave; `ended` says why nothing follows.
    """

    def __init__(self) -> None:
        self.taken: Sequence[Output] = ()
        self.ended: str | None = None
        self._scene: TraceReplay | None = None

    def tell(self, call: Call) -> Iterator[Decision]:
        """Make a call once more; the decisions in it, one after the other."""
        if isinstance(call, Seated):
            before, self._scene = self._scene, TraceReplay(call)
            if before is not None:
                yield from self._scene.follows(before, call.now)
            return
        if isinstance(call, Ended):
            self.ended = call.reason
            if call.reason != OVERRUN:
                yield Decision(call.now, DecisionKind.UNSUBSCRIBED, why=call.reason)
            return
        assert self._scene is not None, "a trace begins with its seat"
        yield from self._scene.again(call)
        if isinstance(call, Taken):
            self.taken = self._scene.taken
            if not same(self.taken, call.outputs):
                self.ended = DIVERGED


class TraceReplay:
    """The engine of a trace: one topic, one session, one seat.

    `wanted` is what the subscription is about to be changed to: that is the original's to do, and
    the next scene shows how the seat stands then.
    """

    def __init__(self, seated: Seated) -> None:
        self.seat: Subscriber = seated.seat
        self.taken: Sequence[Output] = ()
        self.wanted: Subscription | None = None
        self.began_in = None if self.seat.lane is None else self.seat.lane.id
        self._engine = Engine(sessions_max=1, subscriptions_max=1)
        self._engine.import_subscriber(self.seat)
        self._witness = DecisionObserver(self.seat)

    def again(self, call: Call) -> Iterator[Decision]:
        """One call."""
        seat = self.seat
        match call:
            case Published(now, frames, eager):
                if seat.feed is not None:
                    seat.feed.set_eager(eager=eager)
                yield from self._publish(frames, now)
            case Advanced(now):
                self._engine.advance(now)
                yield from self._witness.flushed(now)
            case Taken(now, bytes_max):
                yield from self._take(bytes_max, now)
            case Changed(_, subscription):
                self.wanted = subscription
            case Redefined(_, definition):
                seat.topic.definition = definition
            case Settled() if seat.feed is not None:
                seat.feed.settle()
            case Joined() if seat.lane is not None:
                seat.lane.join(Member("", "", seat.member.subscription))
                seat.lane.joins += 1
            case Conflated(now, messages_max):
                before, _ = seat.queued()
                seat.conflate(messages_max)
                yield self._witness.conflated(before, now)

    def follows(self, before: TraceReplay, now: Instant) -> Iterator[Decision]:
        """How the seat stands otherwise than before: where to, or when, and what it is owed."""
        lane, wanted, transfer = self.seat.lane, before.wanted, self.seat.transfer
        if wanted is not None:
            due = None if transfer is None else transfer.deadline
            yield Decision(now, DecisionKind.CHANGED, due=due, why=lane_text(wanted.lane_id))
        if lane is not None and before.began_in != lane.id:
            rows = 0 if self.seat.owed is None else len(self.seat.owed.rest())
            yield Decision(now, DecisionKind.MOVED, rows=rows, why=lane_text(lane.id))

    def _publish(self, frames: Sequence[Frame], now: Instant) -> Iterator[Decision]:
        for frame in frames:
            self._engine.publish(self.seat.topic.name, [frame], now)
            yield from self._witness.message(frame, now)

    def _take(self, bytes_max: int, now: Instant) -> Iterator[Decision]:
        self._engine.publish(self.seat.topic.name, (), now)  # nothing; but it is later now
        place = self._witness.place()
        self.taken = self._engine.take(self.seat.member.session, bytes_max)
        yield from self._witness.took(place, self.taken, now)


def same(some: Sequence[Output], others: Sequence[Output]) -> bool:
    """Whether two sessions were given the same."""
    return len(some) == len(others) and all(map(_same, some, others))


def _same(one: Output, other: Output) -> bool:
    if not isinstance(one, Rows) or not isinstance(other, Rows):
        return one == other
    ours, theirs = one.batch, other.batch
    return one.op == other.op and (ours.frames, ours.low_water) == (theirs.frames, theirs.low_water)
