"""The engine: its API, and the only module that knows both topics and sessions.

Inputs are calls at `now` (monotonic ns), outputs are taken. Equal calls have equal outputs.

    topics      define_topic restore_topic restart_topic set_checkpoint drop_topic
    sessions    open_session close_session set_session_limits note_unsent conflate_idle
    subscribers subscribe open_step unsubscribe change import_subscriber
    messages    publish supply_history
    time        advance next_deadline
    outputs     take enter_cohort leave_cohort take_together announcements
    questions   topic session over_half_full limits_at stats ...
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from math import inf

from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import LimitReached, SessionUnknown, TopicUnknown
from tidegate.conflation.frame import Frame, RestoredTopic
from tidegate.conflation.lanes.cohort import Cohort
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.outputs import (
    Announcement,
    CloseReason,
    HistoryWanted,
    Output,
    RecordsExpired,
    Rows,
)
from tidegate.conflation.schedule import Schedule
from tidegate.conflation.sessions.accounting import EngineStats, SessionStats, TopicStats
from tidegate.conflation.sessions.lane_assignment import Due, LaneAssignment
from tidegate.conflation.sessions.queue_limits import QueueLimiter
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import UNLIMITED, QueueLimits, Session
from tidegate.conflation.sessions.subscriber import Subscriber, Watcher
from tidegate.conflation.steps import items_at_once
from tidegate.conflation.subscription import Subscription
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import Instant

FLUSHED_ROW_COST = 8
"""A flushed row counts as so many items of a step. With 500 rows in a call of `advance`, a topic
with many small lanes doubled the latency of others. A change of a subscription and an expiry take
about as long as a row."""


class Engine:
    """Topics and sessions. Callers may read `schedule`, and pass the time as `now`."""

    def __init__(
        self,
        *,
        sessions_max: int,
        subscriptions_max: int,
        keys_max: int | None = None,
        in_steps: bool = False,
    ) -> None:
        """`in_steps`: long work is left to `open_step`; otherwise it is done at once."""
        self._subscriptions_max = subscriptions_max
        self._topics: dict[str, Topic] = {}
        self.schedule: Schedule[Due] = Schedule()
        self._registry = SessionRegistry(self._topics, sessions_max, keys_max)
        self._accounting = self._registry.accounting
        self._queue_limits = QueueLimiter(self._registry)
        joined = self._queue_limits.joined
        self._lanes = LaneAssignment(self.schedule, self._registry, joined, in_steps=in_steps)
        self._in_steps = in_steps
        self._flushes, self._now = 0, 0
        self.watchers: list[Watcher] = []  # traces: no more than a few, and mostly none

    # --- Topics

    def define_topic(self, name: str, definition: Definition, epoch: str) -> None:
        """Create a topic, or give an existing one a new definition with the same key."""
        found = self._topics.get(name)
        if found is None:
            self._lanes.finish_ending(name)
            self._topics[name] = Topic(name, definition, epoch)
            self._accounting.begin(name)
            return
        found.redefine(definition)
        self._lanes.reassign_all(name, self._now)

    def restore_topic(self, name: str, kept: RestoredTopic, now: Instant, now_ms: int) -> None:
        """Restore a new topic's messages and records; `now_ms` is wall time."""
        self._clock(now)
        topic = self.topic(name)
        topic.restore(kept, now, now_ms)
        self.schedule.arm(topic.expiry, topic, topic.name)

    def restart_topic(
        self, name: str, epoch: str, kept: RestoredTopic, now: Instant, now_ms: int
    ) -> bool:
        """Begin a new epoch with what is left of a topic; subscribers get a snapshot of it.

        Nothing changes for them, and False is returned, where the new epoch continues the known one
        and lacks nothing of it: what has come since is then published like all else.

        Raises:
            TopicUnknown: there is none of that name.
        """
        before = self.topic(name)
        if before.continue_in(epoch, kept.former):
            return False
        before.expiry.forget()
        self._topics[name] = before.successor(epoch)
        self.restore_topic(name, kept, now, now_ms)
        self._lanes.restart(self._topics[name], now)
        return True

    def set_checkpoint(self, name: str, offset: int) -> None:
        """Record that records are stored up to an offset; later tombstones must be kept."""
        if (sow := self.topic(name).sow) is not None:
            sow.set_checkpoint(offset)

    def drop_topic(self, name: str, reason: str = "REMOVED") -> None:
        """Drop a topic; its subscriptions end with the reason, very many of them in steps.

        Raises:
            TopicUnknown: there is none of that name.
        """
        topic = self.topic(name)
        del self._topics[name]
        self._lanes.end_all(topic, reason)

    # --- Sessions

    def open_session(
        self, session_id: str, limits: QueueLimits, *, lasts: bool = False, conflated: bool = True
    ) -> None:
        """Open a session without subscriptions; one that `lasts` stays open without any.

        A session that is not `conflated` has no queue policy: a full queue closes it.

        Raises:
            LimitReached: there are as many sessions as allowed.
        """
        self._registry.open(Session(session_id, limits, lasts=lasts, conflated=conflated))

    def close_session(self, session_id: str, reason: CloseReason | None = None) -> None:
        """Close a session. With a reason it still takes a goodbye; without one its peer is gone.

        Raises:
            SessionUnknown: there is none, or it has ended.
        """
        session = self._registry.isolate(session_id)
        self._registry.close(session, reason)
        self._queue_limits.forget(session)

    def set_session_limits(self, session_id: str, limits: QueueLimits, *, conflated: bool) -> None:
        """Change a session's limits, and switch its queue policies on or off.

        Raises:
            SessionUnknown: there is none.
        """
        session = self._registry.isolate(session_id)
        session.limits, session.conflated = limits, conflated
        self._lanes.reassign(session, self._now)
        self._queue_limits.enforce(session)

    def note_unsent(self, session_id: str, unsent_bytes: int) -> None:
        """Record the unacknowledged bytes in a session's socket, which count as queued.

        Raises:
            SessionUnknown: there is none.
        """
        self._queue_limits.note_unsent(self._registry.isolate(session_id), unsent_bytes)

    def conflate_idle(self, now: Instant) -> bool:
        """Conflate a bounded part of the longest queue in idle time; False: nothing to do."""
        self._clock(now)
        return self._queue_limits.step()

    # --- Subscribers

    def subscribe(
        self, session_id: str, name: str, subscription: Subscription, now: Instant, *,
        announced: bool = False,
    ) -> Bookmark:  # fmt: skip
        """Add a subscription and return its cut: everything that follows is newer.

        `take` pulls the snapshot or the missed rows; live rows follow without gap or overlap. A
        name has at most one subscriber in each topic. `announced` sends `subscribed`.

        Raises:
            SessionUnknown, TopicUnknown, LimitReached, BookmarkExpired.
        """
        self._clock(now)
        session = self._registry.isolate(session_id)
        if session.ended is not None:
            raise SessionUnknown("the session has ended")
        topic = self.topic(subscription.topic)
        if len(session.subscribers) >= self._subscriptions_max:
            raise LimitReached(f"a session has at most {self._subscriptions_max} subscriptions")
        self._lanes.subscribe(session, name, topic, subscription, now, announced=announced)
        return topic.bookmark(topic.head)

    def open_step(self, now: Instant) -> None:
        """Run one step of the openings, if there are any."""
        self._clock(now)
        self._lanes.openings.step(now)

    def unsubscribe(self, session_id: str, name: str, reason: str = "REQUESTED") -> None:
        """End a subscription in all its topics; what is held for it is dropped, as in AMPS.

        What is queued for it is sent before its end, unless the topic tidies on unsubscribe.

        Raises:
            SessionUnknown, SubscriptionUnknown.
        """
        session = self._registry.isolate(session_id)
        for subscriber in self._registry.subscribers(session, name):
            self._registry.end_subscriber(session, subscriber, reason)
        self._queue_limits.left(session)

    def change(self, session_id: str, name: str, subscription: Subscription, now: Instant) -> None:
        """Change a subscription's options: another lane of its topic, paused or not.

        The change takes effect when held rows are sent (rule change-1). A new filter adds the
        rows that the old one hid, and with `oof` removes the rows that it no longer matches.

        Raises:
            SessionUnknown, SubscriptionUnknown.
        """
        self._clock(now)
        session = self._registry.isolate(session_id)
        if (subscriber := session.subscribers.get((name, subscription.topic))) is not None:
            self._lanes.change(session, subscriber, subscription, now)
        else:  # a name that has other topics is known
            self._registry.subscribers(session, name)

    def import_subscriber(self, subscriber: Subscriber) -> None:
        """Take over a subscriber and its topic from another engine, in a session without limits."""
        self._topics[subscriber.topic.name] = subscriber.topic
        self._accounting.begin(subscriber.topic.name)
        session = Session(subscriber.member.session, UNLIMITED, lasts=True)
        self._registry.open(session)
        self._lanes.adopt(session, subscriber)

    # --- Messages

    def publish(self, topic_name: str, frames: Sequence[Frame], now: Instant) -> None:
        """Publish a topic's next messages, numbered without gaps; tombstones remove records.

        Raises:
            TopicUnknown: there is no such topic.
        """
        self._clock(now)
        topic = self.topic(topic_name)
        if not frames:
            return
        self._queue_limits.arm_joined()
        for feed, lane in topic.publish(frames, now):
            self.schedule.arm(lane, (feed, lane), feed.topic)
        if topic.definition.expiration_ns is not None:
            self.schedule.arm(topic.expiry, topic, topic.name)
        for watcher in self.watchers:
            watcher.published(topic, frames, now)  # first: queues may be conflated for it
        self._queue_limits.enforce_grown(topic)
        self._registry.end_crowding(topic)

    def supply_history(self, wanted: HistoryWanted, piece: Sequence[Frame], now: Instant) -> None:
        """Give a replay the archived messages it asked for; an empty piece: there are none."""
        self._clock(now)
        for session in self._registry.present([wanted.session]):
            self._lanes.supply(session, wanted, piece, now)

    # --- Time and outputs

    def advance(self, now: Instant, *, left_first: bool = False) -> None:
        """Flush lanes that are due, and wake their sessions.

        With `in_steps`, at most a part of a step: what exceeds that stays due. `left_first`: begin
        with what an earlier call has left.
        """
        self._clock(now)
        self.schedule.begin(left_first=left_first)
        room = items_at_once(FLUSHED_ROW_COST) if self._in_steps else inf
        while room > 0 and (due := self.schedule.pop_due(now)) is not None:
            if isinstance(due, tuple):
                room -= self._flush(*due, now)
                continue
            room -= 1
            if isinstance(due, Subscriber):
                self._lanes.handle_deadline(due, now)
            else:
                self._expire(due, now)
        self.schedule.leave(now)
        for watcher in self.watchers:
            watcher.advanced(now)  # last: a trace explains a flush by the state after it

    def next_deadline(self) -> Instant | None:
        """Return when to call `advance` next; None: not before the next publish."""
        return self.schedule.next_deadline()

    def take(self, session_id: str, bytes_max: int) -> list[Output]:
        """Return what to send now, about `bytes_max` of payload.

        Call it until it returns nothing: only then is the session announced as ready again.

        Raises:
            SessionUnknown: there is none, or its goodbye has been taken.
        """
        session = self._registry.get(session_id)
        self._registry.leave_cohort(session, is_taking=True)
        outputs = session.take(bytes_max, self._now, in_steps=self._in_steps)
        self._lanes.continue_after_take(session, self._now)
        if session.ended is not None and not session.outbox:
            self._registry.forget(session)  # the goodbye comes last, and is out
        self._queue_limits.taken(session)
        self._registry.taken(session, has_found=bool(outputs))
        return outputs

    def enter_cohort(self, session_id: str, kind: Hashable) -> Cohort | None:
        """Add a session that has taken everything to the cohort of its lane and `kind`.

        Return None if its rows may differ from those of others. A call that concerns the session
        alone removes it from its cohort, and announces it.
        """
        return self._registry.enter_cohort(session_id, kind)

    def leave_cohort(self, session_id: str) -> None:
        """Remove a session from its cohort, if it has one, and announce it."""
        for session in self._registry.present([session_id]):
            self._registry.leave_cohort(session)

    def take_together(self, cohort: Cohort, bytes_max: int) -> Rows | None:
        """Return rows for all sessions of a cohort, about `bytes_max` of payload.

        Call it until it returns None: only then is the cohort announced as ready again.
        """
        return self._lanes.take_together(cohort, bytes_max)

    def announcements(self) -> list[Announcement]:
        """Return the announcements since the last call, for the driver to act on."""
        return self._registry.announcements()

    # --- Queries, which change nothing

    def topic(self, name: str) -> Topic:
        """Return a topic, to read.

        Raises:
            TopicUnknown: there is none.
        """
        found = self._topics.get(name)
        if found is None:
            raise TopicUnknown(f"there is no topic {name}")
        return found

    def session(self, session_id: str) -> Session:
        """Return a session, to read.

        Raises:
            SessionUnknown: there is none.
        """
        return self._registry.get(session_id)

    @property
    def has_openings(self) -> bool:
        """True if `open_step` has work."""
        return bool(self._lanes.openings)

    @property
    def has_long_queues(self) -> bool:
        """True if `conflate_idle` may have work."""
        return self._queue_limits.has_long

    def over_half_full(self, topic_name: str) -> set[str]:
        """Return the sessions that queue a known topic and whose queue is over half full."""
        return self._queue_limits.over_half_full(self.topic(topic_name))

    def limits_at(self, topic_name: str, session_ids: Iterable[str]) -> list[QueueLimits]:
        """Return the limits of those of these sessions that queue a known topic's messages."""
        return self._queue_limits.limits_at(self.topic(topic_name), session_ids)

    def stats(self, names: Iterable[str] | None = None) -> EngineStats:
        """Return all counters, with those of every topic or of the named ones."""
        remedies = self._queue_limits.counts()
        return self._accounting.of_engine(len(self._registry), self._flushes, remedies, names)

    def topic_stats(self, name: str) -> TopicStats:
        """Return the counters of one known topic."""
        return self._accounting.of_topic(self.topic(name))

    def session_stats(self, session_id: str) -> SessionStats:
        """Return the counters of one session.

        Raises:
            SessionUnknown: there is none.
        """
        return self._registry.stats(session_id)

    def _expire(self, topic: Topic, now: Instant) -> None:
        through = topic.expired(now)
        self.schedule.arm(topic.expiry, topic, topic.name)
        if through is not None:
            self._registry.emit(RecordsExpired(topic.name, topic.epoch, through))

    def _flush(self, feed: Feed, lane: Lane, now: Instant) -> int:
        # Rows of groups are made once a flush, however many of their records changed. Very many are
        # made in steps, and the lane stays due. Not with a trace, which makes them at once.
        step = items_at_once() if self._in_steps and not self.watchers else None
        before = feed.accepted
        is_materialized = feed.materialize_some(step) and (step is None or lane.prepare(step))
        made = (feed.accepted - before) * feed.row_cost
        flushed = feed.flush(lane, now) if is_materialized else step or 0
        self.schedule.arm(lane, (feed, lane), feed.topic)
        if flushed and is_materialized:
            self._flushes += 1
            self._registry.announce(lane)
        return made + max(flushed, lane.examined)  # rows that are not sent take time, too

    def _clock(self, now: Instant) -> None:
        # Deadlines are compared with `now`: a clock that goes back would lose flushes.
        assert now >= self._now, "the clock never goes back"
        self._now = now
