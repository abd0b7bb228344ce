"""Joining: a reader comes to a session that is kept, and goes on from where it stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from app.problems import Problem
from app.sessions.asked import Asked, Granted
from app.sessions.cursor import Cursor, Mark
from app.sessions.reader import Reader
from app.sessions.session import Session
from app.topic_pattern import TopicPattern
from app.topic_places import UNKNOWN
from app.wish import Decided, Wish
from conflation.definition import QueuePolicy
from conflation.errors import BookmarkExpired, EngineError, LimitReached
from conflation.outputs import CloseReason, Unsubscribed
from conflation.sessions.resume import overflows
from conflation.sessions.session import SeatId
from conflation.subscription import Subscription
from keys.errors import KeysError


def begun(
    session: Session, target: str | TopicPattern, wish: Wish, decisions: Mapping[str, Decided]
) -> tuple[Reader, bytes]:
    """A reader that comes with its one subscription, that of a plain GET, and its hello.

    Raises:
        Problem, EngineError, KeysError: the session is of no use.
    """
    reader = session.reader = Reader(session)
    asked, _ = session.subscribe(target, wish, decisions, announced=False)
    if session.cursor is not None:
        session.pattern = asked.text
        session.keeper.attached(session, is_back=False)
        return reader, reader.hello(id_text=session.cursor.text)
    # Without rows to come first hello has an id: who leaves now can come back to this place.
    [found] = asked.topics.values()
    is_bare = found.start is not None and found.subscription.resume is None
    return reader, reader.hello(id_text=str(found.start) if is_bare else "")


def joined(session: Session, number: int | None, retry_ms: int) -> tuple[Reader, bytes]:
    """A reader that has seen this number of the session's cursor, and its hello.

    One without a number has nothing: what has a snapshot begins with it, other subscriptions
    go on behind what the last reader's peer acknowledged. A reader that is there already is
    sent away.

    Raises:
        LimitReached: there are as many sessions as may be; a reader that was there is gone.
    """
    cursor = session.cursor
    assert cursor is not None
    keeper = session.keeper
    if session.reader is not None:
        session.reader.send_away(CloseReason.REPLACED, retry_ms)
    try:
        reader = session.reader = Reader(session)
    except LimitReached:
        keeper.left(session)
        raise
    keeper.attached(session, is_back=session.was_read)
    session.was_read = True
    return reader, _Joining(session, reader, cursor, number).run()


class _Joining:
    def __init__(
        self, session: Session, reader: Reader, cursor: Cursor, number: int | None
    ) -> None:
        self._session = session
        self._reader = reader
        self._cursor = cursor
        self._is_new = number is None
        self._since = cursor.confirmed if number is None else number
        self._marks: Mapping[SeatId, Mark] | None = cursor.marks(self._since)
        self._judges = reader.came_after is not CloseReason.QUEUE_LIMIT
        self._gone: set[str] = set()

    def run(self) -> bytes:
        """Seat what still can be seated, and tell what has ended since; the hello."""
        begun: dict[SeatId, Subscription] = {}
        for asked in list(self._session.asked.values()):
            for topic in list(asked.topics):
                found = self._present(asked, topic)
                if found is not None:
                    begun[asked.name, topic] = found
        self._cursor.rewind(
            {seat: each.resume for seat, each in begun.items() if not _is_replayed(each)}
        )
        self._cursor.confirmed = self._cursor.number
        reason = self._judged(begun)
        for seat, subscription in begun.items():
            if seat[1] not in self._gone:
                self._seat(seat, subscription)
        hello = self._reader.hello(id_text=self._cursor.text)
        self._tell_endings()
        if reason is not None:
            self._reader.consumer.give_up(reason)
        return hello

    def _seat(self, seat: SeatId, subscription: Subscription) -> None:
        asked, topic = self._session.asked[seat[0]], seat[1]
        try:
            self._reader.seat(asked, topic, subscription=subscription)
        except BookmarkExpired:  # a replay that was to begin where the journal reached then
            subscription = replace(subscription, resume=UNKNOWN)
            self._reader.seat(asked, topic, subscription=subscription)

    def _present(self, asked: Asked, topic: str) -> Subscription | None:
        """What a subscription begins with in a topic that is still there, if anything."""
        found = self._still_granted(asked, topic)
        seat = asked.name, topic
        if found is None:
            self._session.drop(*seat)
            self._session.note_end(Unsubscribed(*seat, "REMOVED"))
            return None
        if self._marks is not None and found.is_over(self._marks.get(seat)):
            self._session.drop(*seat)
            return None
        return replace(found.subscription, resume=self._mark(seat, found))

    def _still_granted(self, asked: Asked, topic: str) -> Granted | None:
        """What was granted; None where the topic was deleted, be it there again or not."""
        found = asked.topics[topic]
        entry = self._session.gateway.catalog.find(topic)
        if entry is None or self._session.gateway.catalog.has_ended(found.epoch):
            return None
        if entry.record.epoch == found.epoch:
            return found
        try:
            return self._session.regrant(asked, topic)
        except (Problem, EngineError, KeysError):
            return None

    def _mark(self, seat: SeatId, found: Granted) -> Mark:
        if self._marks is None:
            return UNKNOWN
        if seat not in self._marks or (self._is_new and found.subscription.command.queries):
            return found.start
        return self._marks[seat] or UNKNOWN

    def _judged(self, begun: Mapping[SeatId, Subscription]) -> CloseReason | None:
        """Policies apply to what was missed, as if it had been queued (CONTRACT 4.2).

        Not twice: who was told that the queue was full gets what the journal has.
        """
        session, engine = self._session, self._session.gateway.driver.engine
        limits = session.limits
        if not self._judges:
            return None
        for (_, name), subscription in begun.items():
            topic = engine.topic(name)
            if not overflows(topic, subscription, limits, conflated=session.conflated):
                continue
            policy = topic.definition.policy if session.conflated else QueuePolicy.OFF
            if policy is QueuePolicy.OFF:
                return CloseReason.QUEUE_LIMIT
            if policy is QueuePolicy.UNSUBSCRIBE:
                self._gone.add(name)
        for seat in begun:
            if seat[1] in self._gone:
                session.drop(*seat)
                self._cursor.end(seat)
                session.note_end(Unsubscribed(*seat, "BACK_PRESSURE"))
        return None

    def _tell_endings(self) -> None:
        """Of subscriptions that ended since, as far as the reader may not have seen it."""
        session = self._session
        endings = list(session.endings)
        session.endings.clear()
        for number, told in endings:
            if self._marks is None or number > self._since:
                session.tell_end(told)
            else:
                session.endings.append((number, told))


def _is_replayed(subscription: Subscription) -> bool:
    """Whether it begins with its replay, which a reader without a place in it begins again."""
    return subscription.resume is None and not subscription.command.queries
