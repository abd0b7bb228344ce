"""The sessions there are: read ones, those that wait for a reader, for a while those that ended."""

from __future__ import annotations

import asyncio
from collections import Counter

from app.own_topics import SessionsTopic
from app.premises import Premises
from app.problems import Problem
from app.sessions.luggage import packed, unpacked
from app.sessions.session import Session, State
from conflation.errors import LimitReached
from conflation.outputs import CloseReason, QueueCrossed, SessionClosed
from conflation.sessions.session import QueueLimits


class Sessions:
    """Sessions by id.

    One that is kept waits `session_retention` for its reader; of one that has ended it is known
    for as long how it did.
    """

    def __init__(self, gateway: Premises) -> None:
        self._gateway = gateway
        self._sessions: dict[str, Session] = {}
        self._ended: dict[str, None] = {}
        self._lapses: dict[str, asyncio.TimerHandle] = {}
        self.topic = SessionsTopic(gateway.catalog, gateway.writer)
        gateway.driver.on_closed = self._closed
        gateway.driver.on_crossed = self._crossed

    def open(
        self,
        *,
        limits: QueueLimits | None = None,
        conflated: bool = True,
        kept: bool = False,
        lasts: bool = False,
    ) -> Session:
        """A new session without subscriptions and without a reader; arguments as of `Session`.

        Raises:
            LimitReached: as many sessions as may be.
        """
        self._check_room()
        session = Session(
            self._gateway,
            self,
            self._gateway.new_session_id(),
            limits=limits,
            conflated=conflated,
            kept=kept,
            lasts=lasts,
        )
        self._sessions[session.id] = session
        self._tell(session, "opened")
        if kept:
            self._lapse_later(session)
        return session

    def get(self, session_id: str) -> Session:
        """The session of this id, also one that has ended.

        Raises:
            Problem: session-unknown.
        """
        found = self._sessions.get(session_id)
        if found is None:
            raise Problem("session-unknown", "There is no such session, or not any more.")
        return found

    def listed(self, after: str, limit: int) -> list[Session]:
        """Sessions that have not ended, by id, at most `limit` from behind `after`."""
        ids = sorted(each for each in self._sessions.keys() - self._ended.keys() if each > after)
        return [self._sessions[each] for each in ids[:limit]]

    def __contains__(self, session_id: str) -> bool:
        """Whether the session is known here, be it that it has ended."""
        return session_id in self._sessions

    def kept(self) -> list[Session]:
        """Those that another gateway could go on with, some of them ended."""
        return [session for session in self._sessions.values() if session.cursor is not None]

    def pack(self, session: Session, retry_ms: int) -> bytes:
        """A session that is kept, for another gateway; a reader that is there is sent away.

        It stays here, away, until it is released.
        """
        if session.reader is not None:
            session.reader.send_away(CloseReason.REPLACED, retry_ms)
            session.reader = None
        self._lapse_never(session.id)
        return packed(session)

    def release(self, session: Session) -> None:
        """Another gateway has it: nothing is known of it here any more, and nothing told."""
        self._sessions.pop(session.id, None)
        self._ended.pop(session.id, None)
        self._lapse_never(session.id)
        session.end()

    def adopt(self, luggage: bytes) -> Session:
        """Go on with a session that another gateway has packed.

        Raises:
            LimitReached: as many sessions as may be.
            ValueError: it was packed by another version.
        """
        self._check_room()
        session = unpacked(luggage, self._gateway, self)
        self._sessions[session.id] = session
        if session.has_ended:
            self._ended[session.id] = None
        self._lapse_later(session)
        return session

    def states(self) -> Counter[str]:
        """How many there are in each state."""
        return Counter(session.state for session in self._sessions.values())

    def tell(self, notice: bytes) -> None:
        """Have an event written on every stream that is open."""
        for session in self._sessions.values():
            if session.reader is not None:
                session.reader.consumer.tell(notice)

    def unsent_bytes(self) -> int:
        """What the sockets of all of them hold that their peers have not acknowledged."""
        readers = (session.reader for session in self._sessions.values())
        return sum(reader.unsent_bytes for reader in readers if reader is not None)

    def attached(self, session: Session, *, is_back: bool) -> None:
        """A reader has come; `is_back`: there was one before."""
        self._lapse_never(session.id)
        self._tell(session, "resumed" if is_back else "attached")

    def left(self, session: Session) -> None:
        """The reader is gone, or has been told goodbye."""
        session.reader = None
        if session.id not in self._sessions:
            return
        is_final = session.closed is not None and not session.closed.reconnect
        if session.cursor is None or is_final:
            self._note_ended(session)
        elif not session.has_ended:
            self._tell(session, "lost")
            self._lapse_later(session)

    def close(self, session: Session) -> None:
        """An administrator's word: the reader is told goodbye, and cannot come back."""
        if session.has_ended:
            return
        if session.reader is not None:
            self._gateway.driver.close(session.id, CloseReason.CLOSED_BY_ADMIN)
        session.closed = CloseReason.CLOSED_BY_ADMIN
        self._note_ended(session)

    def discard(self, session: Session) -> None:
        """It was opened in vain: nobody has seen it."""
        if session.reader is not None:
            session.reader.close()
        session.end()
        self._forget(session.id)

    def aclose(self) -> None:
        """Wait for nobody any more."""
        for lapse in self._lapses.values():
            lapse.cancel()
        self._lapses.clear()

    def _check_room(self) -> None:
        sessions_max = self._gateway.settings.sessions_max
        if len(self._sessions) - len(self._ended) >= sessions_max:
            raise LimitReached(f"there are {sessions_max} sessions already")

    def _closed(self, event: SessionClosed) -> None:
        """The engine has sent a reader away, or its stream has given it up."""
        session = self._sessions.get(event.session)
        if session is not None:
            session.closed = event.reason

    def _note_ended(self, session: Session) -> None:
        if not session.has_ended:
            session.end()
            self._tell(session, "closed")
        self._ended[session.id] = None
        self._lapse_later(session)
        if len(self._ended) > self._gateway.settings.sessions_max:
            self._forget(next(iter(self._ended)))

    def _crossed(self, event: QueueCrossed) -> None:
        """A session's queue has crossed a threshold."""
        session = self._sessions.get(event.session)
        if session is not None:
            name = "queue_upper" if event.upper else "queue_lower"
            queue = {"messages": event.messages, "bytes": event.bytes}
            self._tell(session, name, queue=queue)

    def _tell(self, session: Session, event: str, **more: object) -> None:
        """Have it published on the gateway's own topic."""
        at_ms = self._gateway.driver.wall_ms()
        told = {"event": event, "state": session.state, "reason": session.closed, "at_ms": at_ms}
        self.topic.note(session.id, {**told, "gateway": self._gateway.id, **more})

    def _lapse_later(self, session: Session) -> None:
        self._lapse_never(session.id)
        delay_s = self._gateway.settings.session_retention.seconds
        loop = asyncio.get_running_loop()
        self._lapses[session.id] = loop.call_later(delay_s, self._lapse, session)

    def _lapse(self, session: Session) -> None:
        """Its reader did not come back, or its end was told for long enough."""
        if session.state is State.AWAY:
            session.end()
            self._tell(session, "closed")
        if session.state is State.ENDED:
            self._forget(session.id)

    def _forget(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)
        self._ended.pop(session_id, None)
        self._lapse_never(session_id)
        self.topic.forget(session_id)

    def _lapse_never(self, session_id: str) -> None:
        lapse = self._lapses.pop(session_id, None)
        if lapse is not None:
            lapse.cancel()
