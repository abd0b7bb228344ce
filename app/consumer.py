"""A consumer: one session's end towards its stream."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from app.late import Moment
from conflation.bookmark import Bookmark
from conflation.engine import Engine
from conflation.errors import SessionUnknown
from conflation.outputs import CloseReason, Output
from conflation.sessions.session import SeatId


class Shell(Protocol):
    """What is around the engine, as a consumer needs it: it is told of what is done here."""

    engine: Engine

    def taken(self, session: str) -> None:
        """A session took something, or has taken everything there was."""

    def moment(self, *, has_unsent: bool, is_behind: bool) -> Moment:
        """What is known now of how late a write may be."""

    def note_unsent(self, session: str, unsent_bytes: int) -> None:
        """What a session's socket holds that its peer has not acknowledged."""

    def close(self, session: str, reason: CloseReason | None = None) -> None:
        """End a session, with a goodbye if there is a reason for one."""


class Consumer:
    """One session's end towards its stream: take what is there, else wait to be woken.

    `is_over`: another one has taken its place; what it was told last is all that it gets.
    """

    def __init__(self, driver: Shell, session: str) -> None:
        self.session = session
        self.is_over = False
        self._driver = driver
        self._woken = asyncio.Event()
        self._notices: deque[bytes] = deque()

    def take(self, bytes_max: int) -> list[Output]:
        """What to send now; nothing left means: wait."""
        if self.is_over:
            return []
        try:
            outputs = self._driver.engine.take(self.session, bytes_max)
        except SessionUnknown:
            outputs = []
        self._driver.taken(self.session)
        return outputs

    async def wait(self, seconds_max: float) -> bool:
        """Until there is something to take; False when that took longer than it may."""
        try:
            async with asyncio.timeout(seconds_max):
                await self._woken.wait()
        except TimeoutError:
            return False
        self._woken.clear()
        return True

    def wake(self) -> None:
        """There is something to take."""
        self._woken.set()

    def tell(self, notice: bytes) -> None:
        """An event that is not the engine's; it goes out before the next outputs."""
        self._notices.append(notice)
        self._woken.set()

    def notices(self) -> bytes:
        """What was told since the last call."""
        told = b"".join(self._notices)
        self._notices.clear()
        return told

    def caught_up(self) -> list[tuple[SeatId, Bookmark]]:
        """Its subscriptions for which nothing is on the way, and up to where they have it all."""
        if self.is_over:
            return []
        try:
            return self._driver.engine.caught_up(self.session)
        except SessionUnknown:
            return []

    def moment(self, *, has_unsent: bool, is_behind: bool) -> Moment:
        """What is known at a write of how late it may be."""
        return self._driver.moment(has_unsent=has_unsent, is_behind=is_behind)

    def note_unsent(self, unsent_bytes: int) -> None:
        """So many bytes does the socket hold that its peer has not acknowledged."""
        if not self.is_over:
            self._driver.note_unsent(self.session, unsent_bytes)

    def give_up(self, reason: CloseReason) -> None:
        """The peer cannot even be told goodbye; the reason is noted."""
        if not self.is_over:
            self._driver.close(self.session, reason)

    def close(self) -> None:
        """The peer is gone, or has been told goodbye."""
        if not self.is_over:
            self.is_over = True
            self._driver.close(self.session)

    def leave(self, farewell: bytes) -> None:
        """Make room for another consumer of the session; the stream ends with this event."""
        self.close()
        self.tell(farewell)
