"""The engine's session: one client's subscribers, and what is sent before their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.conflation.definition import Priority
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.outputs import CloseReason, Output, Rows, Unsubscribed
from tidegate.conflation.sessions.drain import Drain
from tidegate.conflation.sessions.subscriber import Subscriber, SubscriberId
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

# A full queue is conflated by its policy; for one that is more than half full a publish waits.
FULL_PERCENT, HALF_PERCENT = 100, 50

SHARED_ROWS = 500
SHARED_BYTES = 128 << 10
"""A take ends after a subscriber once it has so many rows or bytes: 0.5 ms to encode."""

_RANKS = {Priority.HIGH: 0, Priority.DEFAULT: 1, Priority.LOW: 2}


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of what a session's `conflation=none` subscriptions may have waiting.

    The engine announces `QueueCrossed` when the queue rises above `upper_percent` of either bound,
    and again when it is back at `lower_percent` of both (Diffusion's thresholds). A queue above the
    lower threshold is conflated in idle time.
    """

    messages_max: int
    bytes_max: int
    upper_percent: int = 80
    lower_percent: int = 50

    def is_above(self, percent: int, messages: int, size: int) -> bool:
        """Return whether a queue takes up more than a share of either bound."""
        over_messages = 100 * messages > percent * self.messages_max
        return over_messages or 100 * size > percent * self.bytes_max

    def room(self, messages: int, size: int) -> tuple[int, int]:
        """Return how many messages and bytes may be added before the next relevant level."""
        levels = sorted((HALF_PERCENT, self.lower_percent, self.upper_percent, FULL_PERCENT))
        return _room(levels, messages, self.messages_max), _room(levels, size, self.bytes_max)


UNLIMITED = QueueLimits(1 << 62, 1 << 62)


def _room(levels: Sequence[int], taken: int, most: int) -> int:
    for level in levels:
        room = level * most // 100 - taken
        if room >= 0:
            return room
    return 0


class Subscribers:
    """The subscribers of a session by subscription and topic, in the order of their turns.

    Most sessions have one, which is kept without a dict: a dict and its key would take as much
    memory as the subscriber, for each of ten thousand idle sessions.
    """

    __slots__ = ("_by_id", "_only")

    def __init__(self) -> None:
        self._only: Subscriber | None = None
        # Once there was a second one; it then has all of them.
        self._by_id: dict[SubscriberId, Subscriber] | None = None

    def __len__(self) -> int:
        return int(self._only is not None) if self._by_id is None else len(self._by_id)

    def __iter__(self) -> Iterator[Subscriber]:
        """Iterate over the present ones; adding and removing meanwhile is allowed."""
        if self._by_id is not None:
            return iter(list(self._by_id.values()))
        return iter(() if self._only is None else (self._only,))

    def __getitem__(self, subscriber_id: SubscriberId) -> Subscriber:
        """Return the subscriber of a subscription in a topic.

        Raises:
            KeyError: there is none.
        """
        found = self.get(subscriber_id)
        if found is None:
            raise KeyError(subscriber_id)
        return found

    def get(self, subscriber_id: SubscriberId) -> Subscriber | None:
        """Return the subscriber of a subscription in a topic, if there is one."""
        if self._by_id is not None:
            return self._by_id.get(subscriber_id)
        only = self._only
        return only if only is not None and only.id == subscriber_id else None

    def add(self, subscriber: Subscriber) -> None:
        """Add a subscriber; one of the same id is replaced, at its place in the order of turns."""
        if self._by_id is None:
            only = self._only
            if only is None or only.id == subscriber.id:
                self._only = subscriber
                return
            self._by_id, self._only = {only.id: only}, None
        self._by_id[subscriber.id] = subscriber

    def remove(self, subscriber: Subscriber) -> None:
        """Remove the subscriber of this id."""
        if self._by_id is not None:
            del self._by_id[subscriber.id]
        else:
            assert self._only is subscriber, "only what was added is removed"
            self._only = None

    def pass_turn(self, subscriber: Subscriber) -> None:
        """Move a subscriber to the end of the order of turns."""
        if self._by_id is not None:
            self._by_id[subscriber.id] = self._by_id.pop(subscriber.id)


class Session:
    """Subscribers by subscription and topic, and an outbox of control events.

    The outbox is sent before rows: a client has to know of a subscription before its first row.

    Attributes:
        lasts: it stays open without subscriptions.
        conflated: its topics' queue policies apply; without them a full queue closes it.
        ready: the gateway was sent `SessionReady`, and every take since has found something.
        unsent_bytes: what its socket holds beyond the buffers of a healthy one.
        is_crossed: its queue rose above the upper threshold, and has not fallen to the lower one
            since.
        cohort: the sessions that take together with it.
    """

    __slots__ = (
        "_outbox", "cohort", "conflated", "ended", "id", "is_crossed", "lasts", "limits", "ready",
        "subscribers", "unsent_bytes",
    )  # fmt: skip

    def __init__(
        self, session_id: str, limits: QueueLimits, *, lasts: bool = False, conflated: bool = True
    ) -> None:
        self.id = session_id
        self.limits = limits
        self.lasts = lasts
        self.conflated = conflated
        self.subscribers = Subscribers()
        # None while it is empty, which saves memory of idle sessions.
        self._outbox: list[Output | Drain] | None = None
        self.ready = False
        self.ended: CloseReason | None = None
        self.unsent_bytes = 0
        self.is_crossed = False
        self.cohort: Cohort | None = None

    @property
    def outbox(self) -> Sequence[Output | Drain]:
        """What is sent before rows."""
        return self._outbox or ()

    def put(self, output: Output | Drain) -> None:
        """Add an output that is sent before rows."""
        if self._outbox is None:
            self._outbox = []
        self._outbox.append(output)

    def take(self, bytes_max: int, now: Instant, *, in_steps: bool = False) -> list[Output]:
        """Return outputs of about `bytes_max`; `in_steps` as of `Subscriber.take`.

        Topics of a higher priority are sent first. Subscribers of one rank take turns, so that none
        starves another.
        """
        outputs, room = self._from_outbox(bytes_max, now) if self._outbox else ([], bytes_max)
        last_rank, rows_left, least = max(_RANKS.values()), SHARED_ROWS, room - SHARED_BYTES
        for subscriber in sorted(self.subscribers, key=_rank):
            if room <= max(0, least) or rows_left <= 0 or self._outbox:
                break
            if _rank(subscriber) > last_rank:
                break
            taken = subscriber.take(room, now, in_steps=in_steps)
            if not taken:
                continue
            room -= _payload_bytes(taken)
            # Hundreds of subscribers, each with a bounded number of rows, would block the loop.
            rows_left -= sum(len(out.batch.frames) for out in taken if isinstance(out, Rows))
            outputs += taken
            self.subscribers.pass_turn(subscriber)
            if subscriber.has_more:
                # Lower priorities wait until this one has nothing left.
                last_rank = _rank(subscriber)
        return outputs

    @property
    def is_catching_up(self) -> bool:
        """True while a subscriber could be sent more rows of a catch-up at once."""
        return any(
            each.member.is_catching_up and not (each.paused or each.cursors)
            for each in self.subscribers
        )

    @property
    def may_join_cohort(self) -> bool:
        """True if it is sent the flushes of one lane and nothing else, as others may be."""
        if self.ready or self._outbox or self.is_crossed or self.ended is not None:
            return False
        return len(self.subscribers) == 1 and self.only_subscriber.may_join_cohort

    @property
    def only_subscriber(self) -> Subscriber:
        """The subscriber of a session that has one."""
        [subscriber] = self.subscribers
        return subscriber

    def _from_outbox(self, bytes_max: int, now: Instant) -> tuple[list[Output], int]:
        """Return control events and drained rows, and the bytes that are left after them."""
        outputs, room = list[Output](), bytes_max
        while self._outbox and room > 0:
            first = self._outbox[0]
            if not isinstance(first, Drain):
                outputs.append(first)
            elif not first.rows.is_out:
                outputs.append(first.take(room, now))
                room -= _payload_bytes(outputs[-1:])
                if not first.rows.is_out:
                    continue
            del self._outbox[0]
        return outputs, room

    def subscribers_of(self, name: str) -> list[Subscriber]:
        """Return the subscribers of one subscription."""
        return [each for each in self.subscribers if each.member.name == name]

    def caught_up(self) -> list[tuple[SubscriberId, Bookmark]]:
        """Return the subscribers that were sent everything, and the heads of their topics."""
        return [
            (subscriber.id, subscriber.topic.bookmark(subscriber.topic.head))
            for subscriber in self.subscribers
            if subscriber.has_everything()
        ]

    def unsent_endings(self) -> list[Unsubscribed]:
        """Return the ends of subscriptions that were not sent yet."""
        return [output for output in self.outbox if isinstance(output, Unsubscribed)]

    def drains(self) -> list[Drain]:
        """Return the queues of ended subscriptions that are still sent."""
        return [output for output in self.outbox if isinstance(output, Drain)]

    def queued(self) -> tuple[int, int]:
        """Return the messages and payload bytes that wait for `conflation=none` subscriptions."""
        queues = [subscriber.queued() for subscriber in self.subscribers if subscriber.queues]
        queues += [drain.rows.queued() for drain in self.drains()]
        return sum(messages for messages, _ in queues), sum(size for _, size in queues)

    @property
    def delivered(self) -> int:
        """The rows that its present subscriptions have taken."""
        return sum(subscriber.member.delivered for subscriber in self.subscribers)

    def fills(self) -> tuple[int, int]:
        """Return the messages and bytes that count towards the limits.

        What the socket holds counts only with a queue: without one, closing the session would free
        nothing (rule queue-6).
        """
        messages, size = self.queued()
        return messages, size + self.unsent_bytes if messages else 0

    def is_above(self, percent: int) -> bool:
        """Return whether the queue takes up more than a share of what it may."""
        return self.limits.is_above(percent, *self.fills())


def _rank(subscriber: Subscriber) -> int:
    return _RANKS[subscriber.topic.definition.priority]


def _payload_bytes(outputs: Sequence[Output]) -> int:
    return sum(out.batch.payload_bytes for out in outputs if isinstance(out, Rows))
