"""The roster: sessions from opening to their end, seats as they go, and what the shell is told."""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.conflation.errors import LimitReached, SessionUnknown, SubscriptionUnknown
from tidegate.conflation.outputs import (
    CloseReason,
    Event,
    Goodbye,
    SessionClosed,
    SessionReady,
    Unsubscribed,
)
from tidegate.conflation.sessions import subscriber
from tidegate.conflation.sessions.accounting import Accounting
from tidegate.conflation.sessions.session import Session, Subscriber

GONE = "GONE"
"""Why what was queued is dropped when a peer leaves without a word."""

RENEWED = "RENEWED"
"""Why it is dropped when a topic begins again: a snapshot takes its place."""

_WANTED = ("REQUESTED", "CONTROL")


class SessionRegistry:
    """Who is there. Events pile up until the shell asks for them."""

    def __init__(self, sessions: dict[str, Session], ledger: Accounting, sessions_max: int) -> None:
        self._sessions = sessions
        self._ledger = ledger
        self._sessions_max = sessions_max
        self._events: list[Event] = []

    def open(self, session: Session) -> None:
        """Let a session in.

        Raises:
            LimitReached: as many sessions as may be.
        """
        assert session.id not in self._sessions, "session ids are never used twice"
        if len(self._sessions) >= self._sessions_max:
            raise LimitReached(f"there are {self._sessions_max} sessions already")
        self._sessions[session.id] = session

    def find(self, session_id: str) -> Session:
        """The session of this id.

        Raises:
            SessionUnknown: it is not there, or its goodbye has been taken.
        """
        found = self._sessions.get(session_id)
        if found is None:
            raise SessionUnknown("there is no such session")
        return found

    def present(self, session_ids: Iterable[str]) -> list[Session]:
        """Those of these sessions that are still there."""
        return [self._sessions[each] for each in session_ids if each in self._sessions]

    def seats(self, session: Session, name: str) -> list[Subscriber]:
        """The seats of one subscription.

        Raises:
            SubscriptionUnknown: it has none.
        """
        seats = session.seats_of(name)
        if not seats:
            raise SubscriptionUnknown(f"the session has no subscription {name}")
        return seats

    def of_topic(self, name: str) -> list[tuple[Session, Subscriber]]:
        """Every seat in a topic."""
        return [
            (session, seat)
            for session in self._sessions.values()
            for seat in session.seats.values()
            if seat.topic.name == name
        ]

    def close(self, session: Session, reason: CloseReason | None) -> None:
        """End a session: with a reason it is owed a goodbye, without one its peer is gone.

        What is queued is dropped, but for what was promised to subscriptions that have ended when
        the last of them is the session's end.
        """
        why = reason or session.ended or GONE
        if reason is not CloseReason.UNSUBSCRIBED:
            for left in session.partings():
                left.drop(why)
        for seat in list(session.seats.values()):
            self._vacate(session, seat, why)
        if reason is None:
            self.forget(session)
            self.tell(SessionClosed(session.id, session.ended))
        elif session.ended is None:
            session.ended = reason
            session.outbox.append(Goodbye(reason))
            self.tell(SessionClosed(session.id, reason))
            self.wake(session)

    def forget(self, session: Session) -> None:
        """It has said goodbye, or nobody is left to hear one."""
        del self._sessions[session.id]

    def leave(self, session: Session, seat: Subscriber, reason: str) -> None:
        """End a seat; the session is told, and the last one's end is the session's.

        What is queued goes first where the topic does not tidy up and the client wanted to leave.
        """
        parts = reason in _WANTED and seat.may_part
        if parts:
            session.outbox.append(self._ledger.parting(seat))
        self._vacate(session, seat, reason, parts=parts)
        session.outbox.append(Unsubscribed(seat.member.name, seat.topic.name, reason))
        self._ledger.tell_end(reason)
        self.wake(session)
        self.end_empty(session)

    def replace(self, session: Session, seat: Subscriber, successor: Subscriber) -> None:
        """Another seat in its place and its turn; what waits for the old one is dropped."""
        for watcher in seat.watchers:
            watcher.ended(RENEWED)
        self._ledger.end(seat, RENEWED)
        subscriber.leave(seat)
        session.seats[seat.id] = successor
        self._ledger.begin_at(successor)

    def finish(self, session: Session, seat: Subscriber) -> None:
        """A query has told all its rows."""
        for watcher in seat.watchers:
            watcher.ended("FINISHED")
        del session.seats[seat.id]
        self.end_empty(session)

    def end_empty(self, session: Session) -> None:
        """The last subscription's end is the session's."""
        if not session.seats and session.ended is None and not session.lasts:
            self.close(session, CloseReason.UNSUBSCRIBED)

    def wake(self, session: Session) -> None:
        """It has something to take; told once until a take finds nothing."""
        if not session.ready:
            session.ready = True
            self.tell(SessionReady(session.id))

    def wake_by_id(self, session_id: str) -> None:
        """The same, for whoever knows only a member."""
        self.wake(self._sessions[session_id])

    def tell(self, event: Event) -> None:
        """Something for the shell to act on."""
        self._events.append(event)

    def events(self) -> list[Event]:
        """What has happened since the last call."""
        happened, self._events = self._events, []
        return happened

    def _vacate(
        self, session: Session, seat: Subscriber, reason: str, *, parts: bool = False
    ) -> None:
        for watcher in seat.watchers:
            watcher.ended(reason)
        del session.seats[seat.id]
        self._ledger.end(seat, reason, parts=parts)
        subscriber.leave(seat)
