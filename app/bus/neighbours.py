"""Neighbours: the gateways that share a bus, as one of them sees the rest.

A session belongs to the gateway that holds its stream. Requests about it are answered there, from
wherever they came; a reader who comes elsewhere takes the session along.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection
from app.bus.places import HELD_AGAIN_MS, Places
from app.bus.post import Post
from app.bus.remains import Remains
from app.bus.roll import BEAT_S, Roll
from app.inner_call import Call, Reply
from app.problems import Problem
from app.sessions.registry import Sessions
from app.sessions.session import Session
from app.settings import Settings
from conflation.errors import LimitReached

CALL = "call"
GIVE = "give"
LEFT, TAKEN = b"left", b"taken"
"""Answers: the session is on the bus; the reader's place is another's. Empty: no such session."""

TURNS_MAX = 3
"""A session that is on the move is looked for again so often."""

LIST_PATIENCE_S = 2.0
LOOK_S_MAX = BEAT_S
"""A look around that takes longer would tell no more than the roll's own next beat."""

ON_ITS_WAY_MS_MIN = 10_000
PARK_S_MAX = 1.0
PARKED_AT_ONCE = 50
RETRY_S = 0.2
FAREWELL_RETRY_MS = 1_000

Performer = Callable[[Call], Awaitable[Reply]]

logger = logging.getLogger("tidegate.bus")

_GIFTS = msgspec.msgpack.Decoder(tuple[str, int | None])
_CALLS = msgspec.msgpack.Decoder(tuple[str, Call])
_REPLIES = msgspec.msgpack.Decoder(Reply)


class Neighbours:
    """What a gateway asks of the others, and they of it.

    Args:
        bus: what they share.
        gateway: this one's id, which its sessions' ids begin with.
        sessions: those that are here.
        perform: answers a request that another gateway has taken.
        catch_up: takes over definitions that other gateways have made; None where none are shared.
        settings: how long sessions are kept.
    """

    def __init__(
        self,
        bus: BusConnection,
        gateway: str,
        sessions: Sessions,
        perform: Performer,
        settings: Settings,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.gateway = gateway
        self.roll = Roll(bus, gateway)
        self.places = Places(bus, gateway)
        self._post = Post(bus, self.roll, {CALL: self._answer_call, GIVE: self._give})
        self._sessions = sessions
        self._perform = perform
        self._settings = settings
        self._catch_up = catch_up
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._looking: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: list[asyncio.Task[None]] = []
        self._remains: Remains | None = None

    def attend(self, remains: Remains) -> None:
        """While this gateway is there, it clears away what dead ones have left."""
        self._remains = remains

    async def open(self) -> None:
        """Be there for the others.

        Raises:
            Problem: bus-unavailable.
        """
        await self.roll.beat()
        self._start(self.roll.run(), "say that the gateway is there")
        self._start(self._post.run(), "open letters of gateways")
        self._start(self._hold_on(), "say where sessions are")
        if self._remains is not None:
            self._start(self._remains.run(), "clear away remains of gateways")

    async def aclose(self) -> None:
        """Leave sessions for whoever their readers come to, and be gone."""
        try:
            async with asyncio.timeout(PARK_S_MAX):
                await self._park_all()
        except TimeoutError:
            logger.warning("some sessions could not be left to other gateways in time")
        running = [*self._running, *self._leaving.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._post.aclose()
        await self.roll.leave()

    async def bring(self, session: str, number: int | None) -> bool:
        """Have a session here, if there is any way to, for a reader that has seen this number.

        One that another gateway has, and that can be gone on with, is given up there; its reader
        is told goodbye with REPLACED. False: whose place is taken does not take it back.

        Raises:
            Problem: bus-unavailable, limit-reached.
        """
        had_none = None
        async with self._lock(session):
            for _ in range(TURNS_MAX):
                owner = await self._owner(session)
                if owner is None or owner == had_none:
                    return True
                answer = await self._asked(owner, GIVE, msgspec.msgpack.encode((session, number)))
                if answer == TAKEN:
                    return False
                if answer != LEFT:
                    had_none = owner
        raise _on_the_move()

    async def reply(self, session: str, call: Call) -> Reply | None:
        """What the gateway of a session answers; None if it is here, or nowhere.

        Raises:
            Problem: bus-unavailable.
        """
        had_none = None
        text = msgspec.msgpack.encode((session, call))
        for _ in range(TURNS_MAX):
            async with self._lock(session):
                owner = await self._owner(session)
            if owner is None or owner == had_none:
                return None
            answer = await self._asked(owner, CALL, text)
            if answer:
                return _REPLIES.decode(answer)
            had_none = owner
        raise _on_the_move()

    def has(self, session: str) -> bool:
        """Whether a session is here, and stays."""
        return session in self._sessions and session not in self._leaving

    async def is_elsewhere(self, session: str) -> bool:
        """Whether another gateway has a session.

        Raises:
            Problem: bus-unavailable.
        """
        async with self._lock(session):
            return await self._owner(session) is not None

    async def replies(self, call: Call) -> dict[str, Reply | None]:
        """What each other gateway answers, by its id; None if it does not in time.

        One that came a moment ago is asked too: a list without it would not say that it lacks.
        """
        with contextlib.suppress(Problem, TimeoutError):  # then those known last are asked
            async with asyncio.timeout(LOOK_S_MAX):
                await self.roll.beat()
        others = self.roll.others
        text = msgspec.msgpack.encode(("", call))

        async def ask(gateway: str) -> Reply | None:
            try:
                answer = await self._post.ask(gateway, CALL, text, LIST_PATIENCE_S)
            except Problem:
                return None
            return _REPLIES.decode(answer)

        return dict(zip(others, await asyncio.gather(*map(ask, others)), strict=True))

    async def _asked(self, gateway: str, subject: str, body: bytes) -> bytes:
        """What a gateway answers; empty as well if it dies meanwhile.

        Raises:
            Problem: bus-unavailable; whether it was heeded is not known.
        """
        asking = asyncio.create_task(self._post.ask(gateway, subject, body), name="ask a gateway")
        dying = asyncio.create_task(self.roll.gone(gateway), name="see whether it dies")
        try:
            await asyncio.wait({asking, dying}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else b""
        finally:
            asking.cancel()
            dying.cancel()
            await asyncio.gather(asking, dying, return_exceptions=True)

    # Where sessions are

    async def _owner(self, session: str) -> str | None:
        """The other gateway that has a session; None if it is here by now, or nowhere."""
        await self._settled(session)
        if session in self._sessions:
            return None
        place = await self.places.take(session)
        if place.luggage:
            if self._catch_up is not None:
                await self._catch_up()
            await self._adopt(session, place.luggage)
            return None
        owner = place.owner or _first_guess(session)
        if owner in ("", self.gateway) or not await self.roll.has(owner):
            return None
        return owner

    async def _adopt(self, session: str, luggage: bytes) -> None:
        if session in self._sessions:
            return
        try:
            self._sessions.adopt(luggage)
        except LimitReached as error:
            await self.places.park(session, luggage, self._kept_ms)  # for another to take
            raise Problem(
                "limit-reached", f"{error.detail}.", headers={"Retry-After": "60"}
            ) from error
        except ValueError as error:
            logger.warning("session %s: %s", session, error)
            return
        with contextlib.suppress(Problem):  # it is said again in time
            await self.places.hold(session)

    async def _settled(self, session: str) -> None:
        """Wait while a session is about to leave.

        Raises:
            Problem: bus-unavailable; it still is.
        """
        leaving = self._leaving.get(session)
        if leaving is not None:
            done, _ = await asyncio.wait({leaving}, timeout=PARK_S_MAX)
            if not done:
                raise _on_the_move()

    async def _hold_on(self) -> None:
        """Say again and again which sessions of others are here."""
        while True:
            await asyncio.sleep(HELD_AGAIN_MS / 1_000)
            for session in self._sessions.kept():
                if _first_guess(session.id) != self.gateway and session.id not in self._leaving:
                    with contextlib.suppress(Problem):
                        await self.places.hold(session.id)
                    heed_cancellation()

    # What others ask

    async def _answer_call(self, text: bytes) -> bytes:
        session, call = _CALLS.decode(text)
        if session:
            await self._settled(session)
            if session not in self._sessions:
                return b""
        return msgspec.msgpack.encode(await self._perform(call))

    async def _give(self, text: bytes) -> bytes:
        """Leave a session to whoever asks; empty if there is nothing that could be given."""
        name, number = _GIFTS.decode(text)
        await self._settled(name)
        session = next((each for each in self._sessions.kept() if each.id == name), None)
        if session is None:
            return b""
        if number in session.replaced:
            return TAKEN
        await asyncio.wait({self._leave(session)})
        return LEFT

    def _leave(self, session: Session) -> asyncio.Task[None]:
        luggage = self._sessions.pack(session, FAREWELL_RETRY_MS)
        task = asyncio.create_task(self._park(session, luggage), name="leave a session")
        self._leaving[session.id] = task
        task.add_done_callback(lambda _: self._leaving.pop(session.id, None))
        return task

    async def _park(self, session: Session, luggage: bytes) -> None:
        """Until the bus has it for certain, nobody may go on with it, here or there."""
        while True:
            heed_cancellation()
            try:
                await self.places.park(session.id, luggage, self._kept_ms)
            except Problem:
                await asyncio.sleep(RETRY_S)
            else:
                break
        self._sessions.release(session)

    async def _park_all(self) -> None:
        sessions = self._sessions.kept()
        while sessions:
            some, sessions = sessions[:PARKED_AT_ONCE], sessions[PARKED_AT_ONCE:]
            leaving = [self._leaving.get(each.id) or self._leave(each) for each in some]
            await asyncio.wait(leaving)

    @property
    def _kept_ms(self) -> int:
        return max(self._settings.session_retention.ms, ON_ITS_WAY_MS_MIN)

    def _lock(self, session: str) -> asyncio.Lock:
        """One looks for a session at a time: what one brings, the others find here."""
        return self._looking.setdefault(session, asyncio.Lock())

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._running.append(asyncio.create_task(work, name=name))


def _first_guess(session: str) -> str:
    """The gateway that opened a session, by the session's id; "" if the id does not say."""
    gateway, dot, _ = session.partition(".")
    return gateway if dot else ""


def _on_the_move() -> Problem:
    detail = "The session is on its way to another gateway; ask again."
    return Problem("bus-unavailable", detail, headers={"Retry-After": "1"})
