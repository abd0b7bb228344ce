"""Queue limits: a full queue is conflated, or its session is closed (CONTRACT 6)."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.conflation.definition import QueuePolicy
from tidegate.conflation.outputs import CloseReason, QueueCrossed
from tidegate.conflation.sessions.accounting import Remedies
from tidegate.conflation.sessions.registry import SessionRegistry
from tidegate.conflation.sessions.session import FULL_PERCENT, HALF_PERCENT, QueueLimits, Session
from tidegate.conflation.sessions.subscriber import Subscriber
from tidegate.conflation.topics.topic import Topic

ROWS_MAX = 1_000
"""Messages that one step in idle time conflates: it holds up the event loop for that long."""
ARMED_AT_ONCE = 16
"""Subscribers of a session whose watermarks are set anew with each that joins a lane."""
WORTH_ONE_IN = 8
"""At least this part of a queue must be new before it is conflated again in idle time."""


class QueueLimiter:
    """Looks at a queue when it may have reached the next level that matters, and at no other.

    The room that a session has before that level is shared among its subscribers, each of which
    has a watermark at the feed that it reads from: no queue grows faster than its feed. So a
    publish costs the queues that may have got there, and not the others (law 1).
    """

    def __init__(self, registry: SessionRegistry) -> None:
        self._registry = registry
        # Sessions above the level from which on idle time is worth spending on them.
        self._long: dict[str, Session] = {}
        # Sessions whose watermarks are to be set anew before the next publish.
        self._unarmed: dict[str, Session] = {}
        self._forced = self._background = self._unsubscribed = 0

    def grown(self, topic: Topic) -> None:
        """Relieve full queues, or close their sessions: a topic has new messages."""
        for session_id in dict.fromkeys(place[0] for place in topic.overgrown()):
            self.look(self._registry.isolate(session_id))

    def joined(self, session: Session, subscriber: Subscriber) -> None:
        """Note that a subscriber has joined a lane: its session's room is shared anew.

        Of many subscribers not at once: each shares it among all, so a pattern of many topics,
        which joins lane after lane, would cost the square of their number.
        """
        if len(session.subscribers) <= ARMED_AT_ONCE:
            self.arm(session)  # else a publish would do it for ten thousand sessions that have come
            return
        self._unarmed[session.id] = session
        # What is empty changes no level, but what is left of a lane may have been the queue.
        if session.is_crossed or any(subscriber.queued()):
            self._note_level(session)

    def arm_joined(self) -> None:
        """Set the watermarks of sessions that have joined lanes: from now on their queues grow."""
        unarmed, self._unarmed = self._unarmed, {}
        for session in unarmed.values():
            if session.ended is None:
                self.arm(session)

    def arm(self, session: Session) -> None:
        """Set a session's watermarks anew: its subscribers' lanes or its limits have changed."""
        self._unarmed.pop(session.id, None)
        subscribers = [each for each in session.subscribers if each.queues]
        queued, queued_bytes = session.queued()
        messages, size = session.limits.room(queued, queued_bytes + session.unsent_bytes)
        # Equal shares: whichever queue grows, the sum reaches the level no earlier than one of
        # these is crossed. Then the rest of the room is shared anew.
        for subscriber in subscribers:
            feed = subscriber.feed
            assert feed is not None
            feed.watermarks.set(
                subscriber.member.place,
                feed.grown_messages + messages // len(subscribers),
                feed.grown_bytes + size // len(subscribers),
            )
        self._note_level(session)

    def look(self, session: Session) -> None:
        """Apply a session's limits: conflate its queue, and close it if that was not enough.

        These are steps 2 and 3 of a full queue; step 1, holding up the publisher, is the gateway's.
        """
        self._note_level(session)
        if session.is_above(FULL_PERCENT) and session.conflated:
            self._conflate(session)
        if session.is_above(FULL_PERCENT):
            self._registry.close(session, CloseReason.QUEUE_LIMIT)
        if session.ended is None:
            self.arm(session)
        else:
            self.forget(session)

    def note_unsent(self, session: Session, unsent_bytes: int) -> None:
        """Note the bytes that a socket holds; more of them leave less room for the queue."""
        # More unsent bytes leave less room, so watermarks move; fewer may only end a crossing.
        rises = unsent_bytes > session.unsent_bytes
        session.unsent_bytes = unsent_bytes
        if rises:
            self.arm(session)
        else:
            self.taken(session)

    def left(self, session: Session) -> None:
        """Note that a subscriber has left; what was queued for it goes as full values (queue-10).

        A queue of deltas grows by that. It is judged with the next message.
        """
        if session.ended is None:
            self.arm(session)

    def taken(self, session: Session) -> None:
        """Note that a queue has become shorter."""
        # Each take comes by here: sessions that were never long are done after this question.
        if session.is_crossed and session.ended is None:
            self._note_level(session)

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
            subscriber = max(_worthwhile(session), key=Subscriber.unconflated, default=None)
            if subscriber is not None:
                self._registry.leave_cohort(session)  # its queue will differ from theirs
                subscriber.conflate(ROWS_MAX)
                self._background += 1
                self.arm(session)
                return True
        return False

    # --- Questions

    def counts(self) -> Remedies:
        """Return what became of queues so far."""
        return Remedies(self._forced, self._background, self._unsubscribed)

    def over_half_full(self, topic: Topic) -> set[str]:
        """Return the sessions more than half full whose queue this topic fills among others."""
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
        # Oldest first, as they go out.
        for drain in session.drains():
            drain.relieve()
        queued = [each for each in session.subscribers if each.queued()[0]]
        for subscriber in queued:
            if subscriber.topic.definition.policy is QueuePolicy.CONFLATE:
                subscriber.conflate()
        # All subscriptions of such a topic, also those with an interval (rule queue-7).
        crowding = {each.topic for each in queued if _unsubscribes(each)}
        ended = [each for each in session.subscribers if each.topic in crowding]
        for subscriber in ended:
            self._unsubscribed += 1
            self._registry.end_subscriber(session, subscriber, "BACK_PRESSURE")

    def _note_level(self, session: Session) -> None:
        """Announce thresholds that were crossed, and remember a long queue."""
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


def _worthwhile(session: Session) -> list[Subscriber]:
    """Return the queues that may be conflated, and of which enough is new."""
    return [
        subscriber
        for subscriber in session.subscribers
        if subscriber.topic.definition.policy is QueuePolicy.CONFLATE
        and subscriber.unconflated() * WORTH_ONE_IN >= max(1, subscriber.queued()[0])
    ]
