"""Queue limits: a full queue is conflated, or its session is closed (CONTRACT 6)."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.outputs import BACK_PRESSURE, CloseReason, QueueCrossed
from tidegate.conflation.sessions.accounting import Remedies
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import FULL_PERCENT, HALF_PERCENT, QueueLimits, Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.topics.topic import Topic

ROWS_MAX = 1_000
"""Messages that one step in idle time conflates, which bounds how long it blocks the event loop."""
ARMED_AT_ONCE = 16
"""Up to so many subscribers of a session, its watermarks are set at each join of a lane."""
WORTH_ONE_IN = 8
"""One message in so many of a queue must be new before idle time is spent on it again."""


class QueueLimiter:
    """Applies the limits of sessions when their queues may have reached the next relevant level.

    The room that a session has before that level is divided among its subscribers, each of which
    has a watermark at the feed that it reads from: no queue grows faster than its feed. So a
    publish costs only the queues that may have reached it (law 1).
    """

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        # Sessions that may be above their lower threshold, or more than half full.
        self._long: dict[str, Session] = {}
        # Sessions whose watermarks have to be set again before the next publish.
        self._unarmed: dict[str, Session] = {}
        self._forced = self._background = self._unsubscribed = 0

    def enforce_grown(self, topic: Topic) -> None:
        """Apply the limits of sessions whose queues may be full: a topic has new messages."""
        for session_id in dict.fromkeys(place[0] for place in topic.grown_queues()):
            self.enforce(self._registry.isolate(session_id))

    def joined(self, session: Session, subscriber: Subscriber) -> None:
        """Divide a session's room again: a subscriber has joined a lane.

        A session with many subscribers is divided later, by `arm_joined`: a pattern of many topics
        joins lane after lane, and that would take time for the square of their number.
        """
        if len(session.subscribers) <= ARMED_AT_ONCE:
            self.arm(session)  # or the next publish would do it for ten thousand new sessions
            return
        self._unarmed[session.id] = session
        # An empty queue changes no level, but the lane that was left may have had one.
        if session.is_crossed or any(subscriber.queued()):
            self._update_level(session)

    def arm_joined(self) -> None:
        """Set the watermarks of sessions that have joined lanes, before a publish."""
        unarmed, self._unarmed = self._unarmed, {}
        for session in unarmed.values():
            if session.ended is None:
                self.arm(session)

    def arm(self, session: Session) -> None:
        """Set a session's watermarks again: its subscribers' lanes or its limits have changed."""
        self._unarmed.pop(session.id, None)
        subscribers = [each for each in session.subscribers if each.queues]
        queued, queued_bytes = session.queued()
        messages, size = session.limits.room(queued, queued_bytes + session.unsent_bytes)
        # Equal shares: whichever queue grows, the sum reaches the level no earlier than one share
        # is used up. Then the rest of the room is divided again.
        for subscriber in subscribers:
            feed = subscriber.feed
            assert feed is not None
            feed.watermarks.set(
                subscriber.member.place,
                feed.grown_messages + messages // len(subscribers),
                feed.grown_bytes + size // len(subscribers),
            )
        self._update_level(session)

    def enforce(self, session: Session) -> None:
        """Apply a session's limits: conflate its queue, and close it if that was not enough.

        These are steps 2 and 3 of a full queue; step 1, which the gateway does, is to let the
        publisher wait.
        """
        self._update_level(session)
        if session.is_above(FULL_PERCENT) and session.conflated:
            self._conflate(session)
        if session.is_above(FULL_PERCENT):
            self._registry.close(session, CloseReason.QUEUE_LIMIT)
        if session.ended is None:
            self.arm(session)
        else:
            self.forget(session)

    def note_unsent(self, session: Session, unsent_bytes: int) -> None:
        """Record the bytes that a socket holds; they take up room of the queue."""
        # More bytes move the watermarks; fewer can only bring the queue below its threshold.
        rises = unsent_bytes > session.unsent_bytes
        session.unsent_bytes = unsent_bytes
        if rises:
            self.arm(session)
        else:
            self.taken(session)

    def left(self, session: Session) -> None:
        """Divide a session's room again: a subscriber has left, and its queue is now a drain.

        A drain has values in place of deltas (queue-10), so it may be larger than the queue was.
        Limits apply to it with the next message.
        """
        if session.ended is None:
            self.arm(session)

    def taken(self, session: Session) -> None:
        """Announce a queue that is below its lower threshold again: it has become shorter."""
        if session.is_crossed and session.ended is None:
            self._update_level(session)

    def forget(self, session: Session) -> None:
        """Forget a session that has ended."""
        self._long.pop(session.id, None)
        self._unarmed.pop(session.id, None)

    # --- Idle time

    @property
    def has_long(self) -> bool:
        """True if there may be a queue above its lower threshold."""
        return bool(self._long)

    def step(self) -> bool:
        """Conflate a part of the longest queue above its lower threshold; False: there is none."""
        self._forget_short()
        long = [one for one in self._long.values() if one.conflated and _is_long(one)]
        for session in sorted(long, key=_fullness, reverse=True):
            subscriber = max(_worth_conflating(session), key=Subscriber.unconflated, default=None)
            if subscriber is not None:
                self._registry.leave_cohort(session)  # its queue will differ from theirs
                subscriber.conflate(ROWS_MAX)
                self._background += 1
                self.arm(session)
                return True
        return False

    # --- Questions

    def counts(self) -> Remedies:
        """Return how many queues were conflated, and subscriptions ended, so far."""
        return Remedies(self._forced, self._background, self._unsubscribed)

    def over_half_full(self, topic: Topic) -> set[str]:
        """Return the sessions that are more than half full and queue messages of this topic."""
        self._forget_short()
        return {
            session.id
            for session in self._long.values()
            if session.is_above(HALF_PERCENT) and _queues(session, topic)
        }

    def limits_at(self, topic: Topic, session_ids: Iterable[str]) -> list[QueueLimits]:
        """Return the limits of those of these sessions that queue a topic's messages."""
        sessions = self._registry.present(session_ids)
        return [session.limits for session in sessions if _queues(session, topic)]

    def _forget_short(self) -> None:
        for session in list(self._long.values()):
            level = min(HALF_PERCENT, session.limits.lower_percent)
            if session.ended is not None or not session.is_above(level):
                self.forget(session)

    def _conflate(self, session: Session) -> None:
        """Conflate the whole queue, topic by topic, as far as the topics' policies go."""
        self._forced += 1
        for drain in session.drains():  # they are older than the queues
            drain.apply_policy()
        queued = [each for each in session.subscribers if each.queued()[0]]
        for subscriber in queued:
            if subscriber.topic.definition.policy is QueuePolicy.CONFLATE:
                subscriber.conflate()
        # All subscriptions of such a topic, also those with an interval (rule queue-7).
        topics = {each.topic for each in queued if _unsubscribes(each)}
        ended = [each for each in session.subscribers if each.topic in topics]
        for subscriber in ended:
            self._unsubscribed += 1
            self._registry.end_subscriber(session, subscriber, BACK_PRESSURE)

    def _update_level(self, session: Session) -> None:
        """Announce a threshold that was crossed, and add a long queue to `_long`."""
        messages, size = session.fills()
        limits = session.limits
        if not session.is_crossed and limits.is_above(limits.upper_percent, messages, size):
            self._cross(session, messages, size, upper=True)
        elif session.is_crossed and not limits.is_above(limits.lower_percent, messages, size):
            self._cross(session, messages, size, upper=False)
        if limits.is_above(min(HALF_PERCENT, limits.lower_percent), messages, size):
            self._long[session.id] = session

    def _cross(self, session: Session, messages: int, size: int, *, upper: bool) -> None:
        session.is_crossed = upper
        self._registry.emit(QueueCrossed(session.id, upper, messages, size))


def _queues(session: Session, topic: Topic) -> bool:
    return any(each.topic is topic and each.queues for each in session.subscribers)


def _unsubscribes(subscriber: Subscriber) -> bool:
    return subscriber.topic.definition.policy is QueuePolicy.UNSUBSCRIBE


def _is_long(session: Session) -> bool:
    return session.is_above(session.limits.lower_percent)


def _fullness(session: Session) -> float:
    """Return the share of a session's limits that is taken."""
    messages, size = session.fills()
    limits = session.limits
    return max(messages / limits.messages_max, size / limits.bytes_max)


def _worth_conflating(session: Session) -> list[Subscriber]:
    """Return the queues that may be conflated, and of which enough is new."""
    return [
        subscriber
        for subscriber in session.subscribers
        if subscriber.topic.definition.policy is QueuePolicy.CONFLATE
        and subscriber.unconflated() * WORTH_ONE_IN >= max(1, subscriber.queued()[0])
    ]
