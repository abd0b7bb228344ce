"""A trace: recorded calls are repeated on a separate engine, where each decision is observed.

Of the real engine only the calls are recorded (`recorder.py`). Here they are repeated with a copy
of the subscriber, alone in its lane, which `decisions.py` observes. Each take must have the outputs
of the real one: otherwise the trace ends with `DIVERGED`.
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
    """Return what a recorded subscription was sent, from its calls, which are not changed."""
    trace = Trace()
    outputs: list[Output] = []
    for call in calls:
        deque(trace.decisions(fresh(call)), maxlen=0)
        outputs += trace.taken if isinstance(call, Taken) else ()
    return outputs


def fresh(call: Call) -> Call:
    """Return a copy of a call, for a trace that must not change the original."""
    return Copied(call.now, copy_of(call.subscriber)) if isinstance(call, Copied) else call


class Trace:
    """The trace of one subscription; it changes the subscribers in its calls.

    `taken` has the outputs of the last take; `ended` is the reason of the trace's end.
    """

    def __init__(self) -> None:
        self.taken: Sequence[Output] = ()
        self.ended: str | None = None
        self._replay: TraceReplay | None = None

    def close(self) -> None:
        """Free the engine."""
        if self._replay is not None:
            self._replay.close()

    def decisions(self, call: Call) -> Iterator[Decision]:
        """Repeat a call; yield the decisions in it."""
        if isinstance(call, Copied):
            # With a new engine, so that no earlier difference persists.
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

    `wanted` is the subscription of a planned change, which only the original makes: the next copy
    has its result.
    """

    def __init__(self, copied: Copied) -> None:
        self.subscriber: Subscriber = copied.subscriber
        self.taken: Sequence[Output] = ()
        self.wanted: Subscription | None = None
        self.began_in = None if self.subscriber.lane is None else self.subscriber.lane.id
        # The real code, as a model of it could differ from what happens.
        self._engine = Engine(sessions_max=1, subscriptions_max=1)
        self._engine.import_subscriber(self.subscriber)
        self._observer = DecisionObserver(self.subscriber)

    def close(self) -> None:
        """End the subscriber, which breaks the reference cycles of its engine."""
        self._engine.close_session(self.subscriber.member.session)
        self._engine.drop_topic(self.subscriber.topic.name)

    def again(self, call: Call) -> Iterator[Decision]:
        """Repeat one call; yield the decisions in it."""
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
                # A member that never takes: a join splits what the lane holds.
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
        # One by one, so that each decision is observed before the next message.
        for frame in frames:
            self._engine.publish(self.subscriber.topic.name, [frame], now)
            yield from self._observer.message(frame, now)

    def _take(self, bytes_max: int, now: Instant) -> Iterator[Decision]:
        # Without messages, to set the time of the take: `take` has no `now`.
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
