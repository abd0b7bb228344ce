"""A recorder: the calls that touch one subscriber, in their order; what a trace is made of."""

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
from tidegate.conflation.sessions.subscriber import PendingChange, Subscriber, Watcher
from tidegate.conflation.subscription import Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.duration import Instant

# --- A copy of a subscriber with its board and lane, independent of the original


def copy_of(subscriber: Subscriber) -> Subscriber:
    """Return the same subscriber, alone in its lane, in a topic that has no other feed.

    Immutable objects are shared with the original; only references are copied, a few for each key.
    Records do not expire in the copy: their removals are recorded as messages of the original.
    """
    topic = _topic(subscriber.topic)
    subscription = subscriber.member.subscription
    member = copy.deepcopy(subscriber.member, {id(subscription): subscription})
    other = Subscriber(member, topic, paused=subscriber.paused)
    if subscriber.feed is not None and subscriber.lane is not None:
        subscriber.feed.materialize_messages()  # the copy's lane is given each message at once
        other.feed = _feed(topic, subscriber.feed)
        other.lane = _lane(subscriber.lane, other.feed)
        other.lane.members[member.place] = member
        other.feed.adopt(other.lane)
    if subscriber.backfill is not None:
        # A shallow copy: rows are shared, positions are not.
        other.backfill = copy.copy(subscriber.backfill)
        other.backfill.pacing = copy.copy(subscriber.backfill.pacing)
    if subscriber.change is not None:
        other.change = PendingChange(subscriber.change.subscription, subscriber.change.deadline)
    # Shallow copies, too.
    other.history = copy.copy(subscriber.history)
    other.catch_up = copy.copy(subscriber.catch_up)
    for cursor in other.cursors:
        cursor.complete()  # rows that the original makes in steps are made at once
    return other


def _topic(real: Topic) -> Topic:
    # The copy is given removals by expiry as messages.
    topic = Topic(real.name, replace(real.definition, expiration_ns=None), real.epoch)
    topic.head = real.head  # the journal may be empty
    topic.journal = copy.deepcopy(real.journal)
    if topic.sow is not None and real.sow is not None:
        topic.sow.take_over(real.sow)
    return topic


def _feed(topic: Topic, real: Feed) -> Feed:
    feed = topic.feed(real.id)
    feed.take_over(real)
    return feed


def _lane(real: Lane, feed: Feed) -> Lane:
    """Copy all that a lane holds, without its other members."""
    # deepcopy uses these as existing copies, so that the lane refers to the copied board.
    shared: dict[int, Any] = {id(real.board): feed.board, id(real.members): {}}
    return copy.deepcopy(real, shared)


# --- The calls


@dataclass(frozen=True, slots=True)
class Copied:
    """A copy of the subscriber: at the beginning, and after each change of lane or options."""

    now: Instant
    subscriber: Subscriber


@dataclass(frozen=True, slots=True)
class Published:
    """Messages of the topic, in one call; `eager`: group rows are computed per message."""

    now: Instant
    frames: Sequence[Frame]
    eager: bool = False


@dataclass(frozen=True, slots=True)
class Advanced:
    """Time passed, and something was due."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Taken:
    """The session took what this subscriber had for it, about `bytes_max` of payload."""

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
    """Deferred rows were made, because the board was read."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Joined:
    """Another member joined the lane, which splits what the lane holds."""

    now: Instant


@dataclass(frozen=True, slots=True)
class Conflated:
    """The queue of every message, or the next `messages_max` of it, was conflated by its policy."""

    now: Instant
    messages_max: int | None


@dataclass(frozen=True, slots=True)
class Ended:
    """The subscription has ended, or its trace: `OVERRUN` if that was not read fast enough."""

    now: Instant
    reason: str


Call = (
    Copied
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

# --- The recorder


MESSAGES_MAX = 50_000
BYTES_MAX = 16 << 20
OVERRUN = "OVERRUN"

RECORDERS_MAX = 10
"""Each keeps a reference for every publish of its topic, and replays on a separate engine."""


class TraceRecorder:
    """Keeps references to calls, within bounds, until `take_calls` returns them.

    The tense of a method says when it is called: `published`, `advanced`, `took` and `moved` after
    the change (of a publish before the queue limits are applied), `changes` and `conflates` before
    it. A join of another member is recorded with the next call: before that it has no effect.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        now: Instant,
        wake: Callable[[], None] = lambda: None,
        *,
        messages_max: int = MESSAGES_MAX,
        bytes_max: int = BYTES_MAX,
    ) -> None:
        """`wake` is called when `take_calls` has something to return."""
        self.subscriber = subscriber
        self.is_over = False
        self._wake = wake
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._calls: deque[Call] = deque()
        self._messages = 0
        self._bytes = 0
        self._now = now
        self.moved(now)

    def take_calls(self) -> list[Call]:
        """Return the calls recorded since the last call of this method."""
        calls = list(self._calls)
        self._forget()
        return calls

    def published(self, topic: Topic, frames: Sequence[Frame], now: Instant) -> None:
        """Record messages of the topic; the replay shows whether they concern the subscriber."""
        if topic is self.subscriber.topic and not self.is_over:
            self._catch_up()
            size = sum(len(frame.payload) for frame in frames)
            # It depends on other lanes of the board, which the copy does not have.
            eager = self.subscriber.feed is not None and self.subscriber.feed.is_eager
            self._append(Published(now, frames, eager), messages=len(frames), size=size)

    def advanced(self, now: Instant) -> None:
        """Record a call of `advance`, if the lane has flushed something."""
        # Most calls concern other lanes, which the stamp shows without reading rows.
        if not self.is_over and self._stamp() != self._known:
            self._catch_up()
            self._append(Advanced(now))

    def took(self, bytes_max: int, outputs: Sequence[Output], now: Instant) -> None:
        """Record a take, if it found something or moved the member."""
        # A take without outputs can move the member past a flush that had no row for it.
        if not self.is_over and (outputs or self._stamp() != self._known):
            self._catch_up()
            size = sum(out.batch.payload_bytes for out in outputs if isinstance(out, Rows))
            self._append(Taken(now, bytes_max, outputs), size=size)

    def changes(self, subscription: Subscription, now: Instant) -> None:
        """Record other options, before they take effect."""
        if not self.is_over:
            self._catch_up()
            self._append(Changed(now, subscription))

    def moved(self, now: Instant) -> None:
        """Record that the subscriber has changed lanes, or has planned to."""
        if not self.is_over:
            self._snapshot_lane()
            self._append(Copied(now, copy_of(self.subscriber)))

    def conflates(self, messages_max: int | None) -> None:
        """Record that the queue is about to be conflated."""
        if not self.is_over:
            self._catch_up()
            self._append(Conflated(self._now, messages_max))

    def ended(self, reason: str) -> None:
        """Record the end of the subscription, and so of the trace."""
        if not self.is_over:
            self.is_over = True
            self._append(Ended(self._now, reason))

    def _catch_up(self) -> None:
        """Record what others did to the lane or the topic since the last call."""
        joins, definition, materializations = self._joins, self._definition, self._materializations
        self._snapshot_lane()
        if materializations != self._materializations:
            self._append(Settled(self._now))
        if definition is not self._definition:
            self._append(Redefined(self._now, self._definition))
        for _ in range(self._joins - joins):
            self._append(Joined(self._now))

    def _snapshot_lane(self) -> None:
        self._definition = self.subscriber.topic.definition
        self._joins = 0 if self.subscriber.lane is None else self.subscriber.lane.joins
        feed = self.subscriber.feed
        self._materializations = 0 if feed is None else feed.materializations

    def _append(self, call: Call, *, messages: int = 1, size: int = 0) -> None:
        self._now = call.now
        self._messages += messages
        self._bytes += size
        # With a gap all that follows would be wrong, so a trace that falls behind ends.
        if self._messages > self._messages_max or self._bytes > self._bytes_max:
            self._forget()
            self.is_over = True
            call = Ended(call.now, OVERRUN)
        self._known = self._stamp()  # a difference at the next call has happened in between
        self._calls.append(call)
        self._wake()

    def _forget(self) -> None:
        self._calls.clear()
        self._messages = self._bytes = 0

    def _stamp(self) -> tuple[object, ...]:
        """Return a value that changes when the lane flushes, or the member's position moves."""
        lane, backfill = self.subscriber.lane, self.subscriber.backfill
        due = None if backfill is None else backfill.deadline
        if lane is None:
            return None, due
        return lane.batch, lane.deadline, lane.position, self.subscriber.member.position, due


def begin_recording(
    watchers: list[Watcher], subscriber: Subscriber, now: Instant, wake: Callable[[], None]
) -> TraceRecorder:
    """Begin to record a subscriber, as one of its engine's watchers.

    Raises:
        LimitReached: there are too many.
    """
    if len(watchers) >= RECORDERS_MAX:
        raise LimitReached(f"there are {RECORDERS_MAX} traces already")
    recorder = TraceRecorder(subscriber, now, wake)
    watchers.append(recorder)
    # A new tuple, as the subscriber may be iterating over the present one.
    subscriber.watchers = (*subscriber.watchers, recorder)
    return recorder


def end_recording(watchers: list[Watcher], recorder: TraceRecorder) -> None:
    """Stop a recorder."""
    watchers.remove(recorder)
    subscriber = recorder.subscriber
    subscriber.watchers = tuple(each for each in subscriber.watchers if each is not recorder)
