"""A trace: recorded calls are made again on an engine of its own, and each decision is observed.

The engine that serves is not observed, only its calls are (`recorder.py`). Here they are made
again with a copy of the subscriber, alone in its lane, which `decisions.py` looks at. Each take
must give what the real one gave: a trace that does not, says so and ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.options.grant import lane_text
from tidegate.conflation.outputs import Output, Rows
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.subscription import Subscription
from tidegate.conflation.tracing.decisions import Decision, DecisionKind, DecisionObserver
from tidegate.conflation.tracing.recorder import (
    OVERRUN,
    Advanced,
    Call,
    Changed,
    Conflated,
    Copied,
    Ended,
    Joined,
    Published,
    Redefined,
    Settled,
    Taken,
    copy_of,
)
from tidegate.keys.text.duration import Instant

DIVERGED = "DIVERGED"


def replay(calls: Iterable[Call]) -> list[Output]:
    """Return what a recorded subscription was sent, from its calls alone; they are not used up."""
    trace = Trace()
    outputs: list[Output] = []
    for call in calls:
        deque(trace.decisions(fresh(call)), maxlen=0)
        outputs += trace.taken if isinstance(call, Taken) else ()
    return outputs


def fresh(call: Call) -> Call:
    """Return the same call, for a trace that leaves the record as it is."""
    return Copied(call.now, copy_of(call.subscriber)) if isinstance(call, Copied) else call


class Trace:
    """The trace of one subscription; it uses up the subscribers in its calls.

    `taken` is what the last take gave; `ended` says why nothing follows.
    """

    def __init__(self) -> None:
        self.taken: Sequence[Output] = ()
        self.ended: str | None = None
        self._replay: TraceReplay | None = None

    def close(self) -> None:
        """Let go of the engine at the end."""
        if self._replay is not None:
            self._replay.close()

    def decisions(self, call: Call) -> Iterator[Decision]:
        """Make a call again; yield the decisions in it, one after the other."""
        if isinstance(call, Copied):
            # An engine of its own from here: nothing that was wrong before the copy lives on.
            before, self._replay = self._replay, TraceReplay(call)
            if before is not None:
                yield from self._replay.follows(before, call.now)
                before.close()
            return
        if isinstance(call, Ended):
            self.ended = call.reason
            if call.reason != OVERRUN:
                yield Decision(call.now, DecisionKind.UNSUBSCRIBED, why=call.reason)
            return
        assert self._replay is not None, "a trace begins with a copy of its subscriber"
        yield from self._replay.again(call)
        if isinstance(call, Taken):
            self.taken = self._replay.taken
            # Decisions after a difference would explain something that did not happen.
            if not same(self.taken, call.outputs):
                self.ended = DIVERGED


class TraceReplay:
    """An engine for one subscriber, from one copy of it to the next.

    `wanted` is what the subscription is about to be changed to. The original does that, and the
    next copy shows what came of it.
    """

    def __init__(self, copied: Copied) -> None:
        self.subscriber: Subscriber = copied.subscriber
        self.taken: Sequence[Output] = ()
        self.wanted: Subscription | None = None
        self.began_in = None if self.subscriber.lane is None else self.subscriber.lane.id
        # The very engine that serves: a model of it could say what does not happen.
        self._engine = Engine(sessions_max=1, subscriptions_max=1)
        self._engine.import_subscriber(self.subscriber)
        self._observer = DecisionObserver(self.subscriber)

    def close(self) -> None:
        """End the subscriber, as its engine is a ring of objects until then."""
        self._engine.close_session(self.subscriber.member.session)
        self._engine.drop_topic(self.subscriber.topic.name)

    def again(self, call: Call) -> Iterator[Decision]:
        """Make one call again; yield the decisions in it."""
        subscriber = self.subscriber
        match call:
            case Published(now, frames, eager):
                if subscriber.feed is not None:
                    subscriber.feed.set_eager(eager=eager)
                yield from self._publish(frames, now)
            case Advanced(now):
                self._engine.advance(now)
                yield from self._observer.flushed(now)
            case Taken(now, bytes_max):
                yield from self._take(bytes_max, now)
            case Changed(_, subscription):
                self.wanted = subscription
            case Redefined(_, definition):
                # The definition alone: the journal's bounds and expiry are the original's to keep.
                subscriber.topic.definition = definition
            case Settled() if subscriber.feed is not None:
                subscriber.feed.materialize()
            case Joined() if subscriber.lane is not None:
                # A member that is never asked: only the cut that its join makes counts.
                subscriber.lane.join(Member("", "", subscriber.member.subscription))
                subscriber.lane.joins += 1
            case Conflated(now, messages_max):
                before, _ = subscriber.queued()
                subscriber.conflate(messages_max)
                yield self._observer.conflated(before, now)

    def follows(self, before: TraceReplay, now: Instant) -> Iterator[Decision]:
        """Yield what has changed since `before`: the options, or the lane."""
        lane, wanted, transfer = self.subscriber.lane, before.wanted, self.subscriber.change
        if wanted is not None:
            due = None if transfer is None else transfer.deadline
            yield Decision(now, DecisionKind.CHANGED, due=due, why=lane_text(wanted.lane_id))
        if lane is not None and before.began_in != lane.id:
            rows = 0 if self.subscriber.catch_up is None else len(self.subscriber.catch_up.left)
            yield Decision(now, DecisionKind.MOVED, rows=rows, why=lane_text(lane.id))

    def _publish(self, frames: Sequence[Frame], now: Instant) -> Iterator[Decision]:
        # One by one, so that each decision is seen before the next message covers it.
        for frame in frames:
            self._engine.publish(self.subscriber.topic.name, [frame], now)
            yield from self._observer.message(frame, now)

    def _take(self, bytes_max: int, now: Instant) -> Iterator[Decision]:
        # No message, but the time of the take: `take` itself has no `now`.
        self._engine.publish(self.subscriber.topic.name, (), now)
        place = self._observer.place()
        self.taken = self._engine.take(self.subscriber.member.session, bytes_max)
        yield from self._observer.took(place, self.taken, now)


def same(some: Sequence[Output], others: Sequence[Output]) -> bool:
    """Return whether two sessions were sent the same."""
    return len(some) == len(others) and all(map(_same, some, others))


def _same(one: Output, other: Output) -> bool:
    if not isinstance(one, Rows) or not isinstance(other, Rows):
        return one == other
    ours, theirs = one.batch, other.batch
    return one.op == other.op and (ours.frames, ours.low_water) == (theirs.frames, theirs.low_water)
