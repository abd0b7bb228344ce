"""The gateway's sessions by id: attached, away, and recently ended ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from tidegate.app.access.entitlement import entitlement_of
from tidegate.app.access.grants import Subject, session_unknown
from tidegate.app.refusals import Refused
from tidegate.app.streams.decisions import SessionContext
from tidegate.app.streams.session import Session, State
from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import LimitReached
from tidegate.conflation.outputs import CloseReason, QueueCrossed, SessionClosed
from tidegate.conflation.sessions.session import QueueLimits
from tidegate.conflation.steps import Steps, in_pieces

if TYPE_CHECKING:  # without authentication its libraries are not loaded
    from tidegate.app.access.access import Access

OnReader = Callable[[Session], None]

ALL = (">",)
"""The pattern of all topics."""

READERS_AT_ONCE = 500
"""Sockets whose unsent bytes are read in one iteration: about 3 us each."""


class SessionEvents(Protocol):
    """The system topic to which events of sessions are published."""

    def note(self, session: str, document: dict[str, object]) -> None:
        """Publish an event of a session."""

    def forget(self, session: str) -> None:
        """Publish that a session is not known any more."""

    async def settle(self) -> None:
        """Write what was taken so far.

        Raises:
            Refusal: it is written later.
        """


class Sessions:
    """Opens, finds, transfers and expires sessions.

    A kept session waits `session_retention` for its reader. An ended session stays known for as
    long, so that its id is answered with how it ended.
    """

    def __init__(
        self, context: SessionContext, topic: SessionEvents, new_id: Callable[[], str]
    ) -> None:
        self.context = context
        self.topic = topic
        self._new_id = new_id
        self._sessions: dict[str, Session] = {}
        self._ended: dict[str, Collection[str]] = {}  # with their topics, for who may observe them
        self._timers: dict[str, asyncio.TimerHandle] = {}
        # When tokens of readers expire; sessions that may have a new reader since the last check.
        self._token_ends: list[tuple[int, str]] = []
        self._arrived: set[str] = set()
        # Bound once: every session has both.
        self._on_attached, self._on_left = self.reader_attached, self.reader_left
        context.driver.on_closed = self._closed
        context.driver.on_crossed = self._crossed
        context.catalog.on_redefined = self.end_unsafe

    def open(
        self,
        *,
        limits: QueueLimits | None = None,
        conflated: bool = True,
        kept: bool = False,
        lasts: bool = False,
        subject: Subject | None = None,
    ) -> Session:
        """Open a session without subscriptions and without a reader; arguments as of `Session`.

        Raises:
            LimitReached: as many sessions as may be, of all or of the subject.
        """
        self._check_room()
        self.context.quotas.check_session("" if subject is None else subject.sub, subject)
        session = Session(
            self.context,
            self._new_id(),
            self._on_attached,
            self._on_left,
            limits=limits,
            conflated=conflated,
            kept=kept,
            lasts=lasts,
            subject=subject,
        )
        self._sessions[session.id] = session
        session.usage.sessions += 1
        if subject is not None:
            self._arrived.add(session.id)
        # Only a kept session may be without a reader: a plain GET opens its session.
        self._publish(session, "opened", state=State.AWAY if kept else State.ATTACHED)
        if kept:  # it has to end if no reader ever comes
            self._start_timer(session)
        return session

    def get(self, session_id: str) -> Session:
        """Return the session of this id, even one that has ended.

        Raises:
            Refused: session-unknown.
        """
        found = self._sessions.get(session_id)
        if found is None:
            raise session_unknown()
        return found

    def owner_of(self, session_id: str) -> str | None:
        """Return the `sub` that opened a session; None for a session that is not here."""
        found = self._sessions.get(session_id)
        return None if found is None else found.owner

    def topics_of(self, session_id: str) -> Collection[str]:
        """Return what a session is subscribed to: topics, and patterns; nothing for another's.

        Of one that has ended, what it was subscribed to at its end.
        """
        found = self._sessions.get(session_id)
        if found is None:
            return ()
        # One that had nothing left at its end may have had anything before.
        return (self._ended.get(session_id) or ALL) if found.has_ended else _topics(found)

    def listed(self, after: str, limit: int, subject: Subject | None = None) -> list[Session]:
        """Return up to `limit` sessions that have not ended, by id, after the id `after`.

        `subject`: only those that it opened, or may observe.
        """
        ids = sorted(each for each in self._sessions.keys() - self._ended.keys() if each > after)
        sessions = (self._sessions[each] for each in ids)
        if subject is not None:
            sub, grants = subject.sub, subject.grants
            sessions = (it for it in sessions if it.owner == sub or grants.observes(_topics(it)))
        return list(islice(sessions, limit))

    def __contains__(self, session_id: str) -> bool:
        """Return True for a known session, even one that has ended."""
        return session_id in self._sessions

    def movable(self) -> list[Session]:
        """Return the sessions that another gateway could continue; some may have ended."""
        return [session for session in self._sessions.values() if session.cursor is not None]

    def detach(self, session: Session, retry_ms: int) -> None:
        """Prepare a kept session to move to another gateway; its reader is replaced.

        The session stays here, away, until it is released. It does not expire meanwhile: the copy
        here is the only certain one.
        """
        session.replace_reader(retry_ms)
        session.reader = None
        self._cancel_timer(session.id)

    def release(self, session: Session) -> None:
        """Forget a session that another gateway has taken over."""
        self._sessions.pop(session.id, None)
        self._ended.pop(session.id, None)
        self._cancel_timer(session.id)
        session.end()
        # Not `_forget`: the gateway that took it over publishes its state now.

    def adopt(self, restore: Callable[[SessionContext, OnReader, OnReader], Session]) -> Session:
        """Take over a session from another gateway.

        `restore` builds it with what `Session` needs: the context, and what to call when a reader
        is attached and when it has left.

        Raises:
            LimitReached: as many sessions as may be.
            ValueError: `restore` cannot read it.
        """
        self._check_room()
        session = restore(self.context, self._on_attached, self._on_left)
        self._sessions[session.id] = session
        if session.has_ended:
            self._ended[session.id] = ()
        else:
            session.usage.sessions += 1
        self._start_timer(session)
        return session

    def states(self) -> Counter[str]:
        """Count the sessions in each state."""
        return Counter(session.state for session in self._sessions.values())

    def broadcast(self, notice: bytes) -> None:
        """Send an event to every open stream."""
        for session in self._sessions.values():
            if session.reader is not None:
                session.reader.consumer.send(notice)

    def unsent_bytes(self) -> Steps[int]:
        """Sum the bytes that peers have not acknowledged, in steps: each is a system call."""

        def unsent(piece: Sequence[Session]) -> list[int]:
            return [session.reader.unsent_bytes for session in piece if session.reader is not None]

        sessions = list(self._sessions.values())
        return sum((yield from in_pieces(sessions, READERS_AT_ONCE, unsent)))

    def cut_stalled(self) -> int:
        """Cut the readers whose connections keep a part of a text, as their peers are slow.

        Returns how many; they may come back, and continue from what they have.
        """
        stalled = [
            connection
            for session in self._sessions.values()
            if (reader := session.reader) is not None
            and (connection := reader.connection) is not None
            and connection.has_kept
        ]
        for connection in stalled:
            connection.give_up()
        return len(stalled)

    def reader_attached(self, session: Session) -> None:
        """Stop the timer of a session that has a reader now."""
        self._cancel_timer(session.id)
        if session.subject is not None:
            self._arrived.add(session.id)
        self._publish(session, "resumed" if session.was_read else "attached")

    def reader_left(self, session: Session) -> None:
        """Detach the reader: it is gone, or has received its goodbye."""
        session.reader = None
        if session.id not in self._sessions:
            return
        is_final = session.closed is not None and not session.closed.reconnect
        if session.cursor is None or is_final:
            self._note_ended(session)
        elif not session.has_ended:
            self._publish(session, "lost")
            self._start_timer(session)

    def close(self, session: Session) -> None:
        """Close a session for an administrator: its reader cannot come back."""
        if session.has_ended:
            return
        if session.reader is not None:
            self._close_early(session, CloseReason.CLOSED_BY_ADMIN)
        session.closed = CloseReason.CLOSED_BY_ADMIN
        self._note_ended(session)

    def end_unentitled(self, access: Access, *, are_new: bool, are_revoked: bool) -> None:
        """End the streams of expired tokens, and of subjects whose grants have changed.

        Their readers may come back with another token, and get what it grants. If neither keys nor
        policy have changed, only sessions with new readers or expired tokens are checked.
        """
        is_all = are_new or are_revoked
        for name in list(self._sessions) if is_all else self._concerned(access):
            session = self._sessions.get(name)
            if session is None or session.reader is None or session.closed is not None:
                continue
            if (subject := session.subject) is None:
                continue
            # Keys and policy may have changed between a reader's request and its attachment.
            is_new = are_new or session.id in self._arrived
            reason = access.ending(subject, are_new=is_new)
            if reason is not None:
                self._close_early(session, reason)
            elif not is_all:
                heappush(self._token_ends, (subject.expires_ms, session.id))
        # Entries of readers that have left stay; rebuild the heap once they are the majority.
        if is_all or len(self._token_ends) > 2 * len(self._sessions):
            subjects = ((it.id, it.subject) for it in self._sessions.values() if it.reader)
            self._token_ends = [(who.expires_ms, name) for name, who in subjects if who]
            heapify(self._token_ends)
        self._arrived.clear()

    def _concerned(self, access: Access) -> set[str]:
        """Return the ids of sessions with new readers, or with tokens that may have expired."""
        found, now_ms = set(self._arrived), access.now_ms()
        while self._token_ends and self._token_ends[0][0] <= now_ms:
            found.add(heappop(self._token_ends)[1])
        return found

    def end_unsafe(self, topic: str, definition: Definition) -> None:
        """End streams whose subjects may not see what another definition of a topic would send.

        A new merge that carries hidden fields into granted ones would apply to existing queues.
        """
        for session in list(self._sessions.values()):
            subject = session.subject
            if subject is None or session.reader is None or session.closed is not None:
                continue
            if any(topic in asked.topics for asked in session.asked.values()):
                try:
                    entitlement_of(subject.grants, definition, topic)
                except Refused:
                    self._close_early(session, CloseReason.REVOKED)

    def _close_early(self, session: Session, reason: CloseReason) -> None:
        assert session.reader is not None
        self.context.driver.close(session.id, reason)
        # Set here, too, as the engine may have closed the session for another reason before: from
        # now on the stream waits for its peer only as long as for a goodbye.
        session.reader.consumer.close_reason = reason

    def discard(self, session: Session) -> None:
        """Remove a session that no client has seen."""
        if session.reader is not None:
            session.reader.close()
        session.end()
        self._forget(session.id)

    def stop_timers(self) -> None:
        """Cancel all waiting for readers."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _check_room(self) -> None:
        sessions_max = self.context.settings.sessions_max
        if len(self._sessions) - len(self._ended) >= sessions_max:
            raise LimitReached(f"there are {sessions_max} sessions already (sessions_max)")

    def _closed(self, event: SessionClosed) -> None:
        """Note why the engine or the stream closed a session."""
        session = self._sessions.get(event.session)
        if session is not None:
            session.closed = event.reason

    def _note_ended(self, session: Session) -> None:
        self._ended.setdefault(session.id, tuple(_topics(session)))  # which its end lets go
        if not session.has_ended:
            session.end()
            self._publish(session, "closed")
        self._start_timer(session)
        # Ended sessions take memory, too: at most `sessions_max` are kept, the newest.
        if len(self._ended) > self.context.settings.sessions_max:
            self._forget(next(iter(self._ended)))

    def _crossed(self, event: QueueCrossed) -> None:
        """Publish that a session's queue has crossed a threshold."""
        session = self._sessions.get(event.session)
        if session is not None:
            name = "queue_upper" if event.upper else "queue_lower"
            queue = {"messages": event.messages, "bytes": event.bytes}
            self._publish(session, name, queue=queue)

    def publish_all(self) -> None:
        """Publish the state of every session again, as other gateways have removed the records."""
        for session in self._sessions.values():
            self._publish(session, "rejoined")

    def _publish(self, session: Session, event: str, **more: object) -> None:
        """Publish an event of the session on the gateway's own topic."""
        document = {
            "event": event,
            "state": session.state,
            "reason": session.closed,
            "at_ms": self.context.driver.wall_ms(),
            "gateway": self.context.gateway_id,
            **more,
        }
        self.topic.note(session.id, document)

    def _start_timer(self, session: Session) -> None:
        self._cancel_timer(session.id)
        delay_s = self.context.settings.session_retention.seconds
        loop = asyncio.get_running_loop()
        self._timers[session.id] = loop.call_later(delay_s, self._expire, session)

    def _expire(self, session: Session) -> None:
        """End a session whose reader did not come back; forget one that has ended."""
        if session.state is State.AWAY:
            session.end()
            self._publish(session, "closed")
        if session.state is State.ENDED:
            self._forget(session.id)

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._ended.pop(session_id, None)
        self._cancel_timer(session_id)
        self.topic.forget(session_id)

    def _cancel_timer(self, session_id: str) -> None:
        timer = self._timers.pop(session_id, None)
        if timer is not None:
            timer.cancel()


def _topics(session: Session) -> set[str]:
    # A pattern tells what its reader waits for, also while there is no such topic yet.
    return {each for asked in session.asked.values() for each in (asked.text, *asked.topics)}
