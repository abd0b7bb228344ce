"""The other gateways of the cluster, as one gateway uses them.

A session belongs to the gateway that holds its stream. Other gateways forward requests about the
session there; a reader that connects elsewhere moves the session to that gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from tidegate.app.calls import Call, Reply
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.membership import HEARTBEAT_S, Membership
from tidegate.app.cluster.peer_messages import PeerMessages, PeerService
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.cluster.session_locations import REFRESH_MS, SessionLocations, SessionRowCleanup
from tidegate.app.refusals import Refused, Unavailable, refused
from tidegate.app.settings.settings import Settings
from tidegate.app.streams.registry import Sessions
from tidegate.app.streams.session import Session
from tidegate.app.streams.session_transfer import deserialize, serialize
from tidegate.app.timers import Backoff
from tidegate.conflation.errors import LimitReached
from tidegate.keys.errors import Refusal

CALL = "call"
HAND_OVER = "give"
TICKET = "ticket"
STORED, REPLACED, OLDER = b"left", b"taken", b"older"
"""Replies to a hand-over: the session is in Redis; another reader has replaced this one; or the
session's reader came after the request.

An empty reply means that the gateway has no such session, or none that this subject opened.
"""

ATTEMPTS_MAX = 3
"""Number of attempts to locate a session that is moving."""

BROADCAST_S_MAX = 2.0
HEARTBEAT_S_MAX = HEARTBEAT_S
"""To wait longer than for the next heartbeat would find no other gateway."""

CLOCKS_MS = 100
"""How far the gateways' estimates of the time of Redis may be apart."""

TRANSFER_MS_MIN = 10_000
HAND_OVER_S_MAX = 3.0
HANDED_OVER_AT_ONCE = 50
EVENTS_S_MAX = 1.0
"""How long a session waits until its events are written; it is more important than they are."""

RETRY_S = 0.2
GOODBYE_RETRY_MS = 1_000

AnswerCall = Callable[[Call], Awaitable[Reply]]

logger = logging.getLogger("tidegate.bus")

_HAND_OVERS = msgspec.msgpack.Decoder(tuple[str, int | None, str | None, int])
_CALLS = msgspec.msgpack.Decoder(tuple[str, Call])
_REPLIES = msgspec.msgpack.Decoder(Reply)


class Peers:
    """Sends requests to the other gateways and handles theirs.

    Args:
        bus: the shared Redis.
        gateway: this gateway's id, which starts the ids of its sessions.
        sessions: the sessions of this gateway.
        handle: handles a request that another gateway forwards.
        settings: how long sessions are kept.
        catch_up: applies definitions of other gateways; None if the store is not shared.
    """

    def __init__(
        self,
        bus: BusConnection,
        gateway: str,
        sessions: Sessions,
        handle: AnswerCall,
        settings: Settings,
        catch_up: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.gateway = gateway
        self.membership = Membership(bus, gateway)
        self.locations = SessionLocations(bus, gateway)
        self._messages = PeerMessages(
            bus, self.membership, {CALL: self._handle_call, HAND_OVER: self._handle_hand_over}
        )
        self._sessions = sessions
        # The leader has removed their records, as those of a dead gateway.
        self.membership.on_rejoined = sessions.publish_all
        self._handle = handle
        self._settings = settings
        self._catch_up = catch_up
        self._arriving: dict[str, asyncio.Future[None]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._running: list[asyncio.Task[None]] = []
        self._cleanup: SessionRowCleanup | None = None

    def set_cleanup(self, cleanup: SessionRowCleanup) -> None:
        """Add the task that removes rows of sessions that no gateway has."""
        self._cleanup = cleanup

    def serve(self, subject: str, service: PeerService) -> None:
        """Answer the requests of other gateways with one more subject."""
        self._messages.services[subject] = service

    async def ask(self, subject: str, gateway: str, body: bytes) -> bytes:
        """Return the answer of a gateway; it is empty if that is not there.

        Raises:
            Refused: bus-unavailable.
        """
        if gateway not in self.membership.others:  # the id may be forged
            return b""
        return await self._request(gateway, subject, body)

    async def open(self) -> None:
        """Join the cluster and start to answer other gateways.

        Raises:
            Refused: bus-unavailable.
        """
        await self.membership.heartbeat()
        self._start(self.membership.run(), "send heartbeats")
        self._start(self._messages.run(), "receive messages of gateways")
        self._start(self._refresh_locations(), "refresh session locations")
        if self._cleanup is not None:
            self._start(self._cleanup.run(), "clean up rows of sessions")

    async def aclose(self) -> None:
        """Hand all sessions over to Redis and leave the cluster."""
        try:
            await self._hand_over_all()
        except TimeoutError:
            logger.warning("some sessions were not handed over in time")
        running = [*self._running, *self._leaving.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._messages.aclose()
        await self.membership.leave()

    async def bring_here(
        self, session: str, event: int | None, sub: str | None, asked_ms: int
    ) -> bool:
        """Move a session here, for a reader that has seen the number `event` of its cursor.

        If another gateway has the session, that gateway ends its stream with REPLACED and hands the
        session over, but only to the subject `sub` that opened it (None without authentication).
        A reader that came after `asked_ms`, by the clock of Redis, keeps it. Return False if
        another reader has replaced this one, which must not take it back.

        Raises:
            Refused: bus-unavailable, limit-reached.
        """
        owner_without_session = None
        text = msgspec.msgpack.encode((session, event, sub, asked_ms))
        async with self._lock(session):
            for _ in range(ATTEMPTS_MAX):
                owner = await self._owner(session)
                if owner is None or owner == owner_without_session:
                    return True
                answer = await self._request(owner, HAND_OVER, text)
                if answer == REPLACED:
                    return False
                if answer == OLDER:
                    break
                if answer != STORED:
                    # It may have died: look again where the session is.
                    owner_without_session = owner
        raise _moving()

    async def forward(self, session: str, call: Call) -> Reply | None:
        """Forward a request to the session's gateway; None if the session is here or nowhere.

        Raises:
            Refused: bus-unavailable.
        """
        owner_without_session = None
        text = msgspec.msgpack.encode((session, call))
        for _ in range(ATTEMPTS_MAX):
            async with self._lock(session):
                owner = await self._owner(session)
            if owner is None or owner == owner_without_session:
                return None
            answer = await self._request(owner, CALL, text)
            if answer:
                return _REPLIES.decode(answer)
            owner_without_session = owner
        raise _moving()

    def has(self, session: str) -> bool:
        """Return whether a session is here and not moving away."""
        return session in self._sessions and session not in self._leaving

    async def is_elsewhere(self, session: str) -> bool:
        """Return whether another gateway has a session.

        Raises:
            Refused: bus-unavailable.
        """
        async with self._lock(session):
            return await self._owner(session) is not None

    async def broadcast(self, call: Call) -> dict[str, Reply | None]:
        """Send a request to every other gateway; the reply is None if one does not answer in time.

        A heartbeat first finds gateways that joined a moment ago; otherwise a list would lack what
        they have.
        """
        with contextlib.suppress(Refused, TimeoutError):  # then use the members known last
            async with asyncio.timeout(HEARTBEAT_S_MAX):
                await self.membership.heartbeat()
        others = self.membership.others
        text = msgspec.msgpack.encode(("", call))

        async def ask(gateway: str) -> Reply | None:
            try:
                answer = await self._messages.request(gateway, CALL, text, BROADCAST_S_MAX)
            except Refused:
                return None
            return _REPLIES.decode(answer)

        return dict(zip(others, await asyncio.gather(*map(ask, others)), strict=True))

    async def _request(self, gateway: str, subject: str, body: bytes) -> bytes:
        """Send a request and return the reply, empty if the other gateway dies meanwhile.

        Raises:
            Refused: bus-unavailable; the other gateway may have handled the request.
        """
        request = asyncio.create_task(
            self._messages.request(gateway, subject, body), name="send a request to a gateway"
        )
        death = asyncio.create_task(
            self.membership.wait_until_gone(gateway), name="wait for the gateway's death"
        )
        try:
            await asyncio.wait({request, death}, return_when=asyncio.FIRST_COMPLETED)
            return request.result() if request.done() else b""
        finally:
            request.cancel()
            death.cancel()
            await asyncio.gather(request, death, return_exceptions=True)

    # Where sessions are

    async def _owner(self, session: str) -> str | None:
        """Return the other gateway that has a session, or None; import one stored in Redis."""
        await self._wait_while_moving(session)
        if session in self._sessions:
            return None
        arrived = self._arriving[session] = asyncio.get_running_loop().create_future()
        try:
            location = await self.locations.claim(session)
            if location.transfer:
                # The session may subscribe to topics whose definitions have not arrived here.
                if self._catch_up is not None:
                    await self._catch_up()
                await self._import(session, location.transfer)
                return None
        finally:
            del self._arriving[session]
            arrived.set_result(None)
        owner = location.owner or _opened_by(session)
        if owner in ("", self.gateway) or not await self.membership.has(owner):
            return None
        return owner

    async def _import(self, session: str, transfer: bytes) -> None:
        if session in self._sessions:
            return
        try:
            self._sessions.adopt(partial(deserialize, transfer))
        except LimitReached as error:
            # Another gateway may have room for the session.
            await self.locations.store(session, transfer, self._kept_ms)
            raise refused(error) from error
        except ValueError as error:
            logger.warning("session %s: %s", session, error)
            return
        try:
            await self.locations.confirm(session)
        except Refused:
            self._start(self._confirm(session), "confirm where a session is")

    async def _confirm(self, session: str) -> None:
        """Confirm that a session is here as soon as Redis takes it.

        Until then a copy is there, which would bring the session back after its end.
        """
        backoff = Backoff(RETRY_S)
        while True:
            await backoff.pause()
            with contextlib.suppress(Refused):
                await self.locations.confirm(session)
                return
            raise_if_cancelled()

    async def _import_claimed(self, session: str) -> None:
        """Import a session that this gateway has claimed, if it could not do so at once.

        To the others it is here; without it they would take the session for lost.

        Raises:
            Refused: bus-unavailable, limit-reached.
        """
        if session in self._sessions:
            return
        location = await self.locations.read(session)
        if location.transfer and location.owner == self.gateway:
            async with self._lock(session):
                await self._owner(session)

    async def _wait_while_moving(self, session: str) -> None:
        """Wait until a transfer of this session, to here or away, has ended.

        Raises:
            Refused: bus-unavailable; the session is still moving.
        """
        transfers: tuple[Mapping[str, asyncio.Future[None]], ...] = (self._arriving, self._leaving)
        for moving in transfers:
            if (under_way := moving.get(session)) is not None:
                done, _ = await asyncio.wait({under_way}, timeout=HAND_OVER_S_MAX)
                if not done:
                    raise _moving()

    async def _refresh_locations(self) -> None:
        """Refresh the locations of sessions that other gateways opened, before they expire."""
        while True:
            await asyncio.sleep(REFRESH_MS / 1_000)
            for session in self._sessions.movable():
                if _opened_by(session.id) != self.gateway and session.id not in self._leaving:
                    with contextlib.suppress(Refused):
                        await self.locations.confirm(session.id)
                    raise_if_cancelled()

    # Requests of other gateways

    async def _handle_call(self, text: bytes) -> bytes:
        session, call = _CALLS.decode(text)
        if session:
            await self._wait_while_moving(session)
            await self._import_claimed(session)
            if session not in self._sessions:
                return b""
        return msgspec.msgpack.encode(await self._handle(call))

    async def _handle_hand_over(self, text: bytes) -> bytes:
        """Hand a session over to the requesting gateway; reply empty if there is none."""
        name, event, sub, asked_ms = _HAND_OVERS.decode(text)
        await self._wait_while_moving(name)
        await self._import_claimed(name)
        session = next((each for each in self._sessions.movable() if each.id == name), None)
        # Before anything of it changes: to anyone but its owner the session does not exist.
        if session is None or session.cursor is None or sub not in (None, session.owner):
            return b""
        # The reader with this event was replaced: giving the session back would start a loop.
        if event in session.cursor.replaced:
            return REPLACED
        # The client may have given the request up and come here: its reader would be sent away for
        # good, and nobody would take the session.
        if session.reader is not None and asked_ms + CLOCKS_MS < session.attached_ms:
            return OLDER
        await asyncio.wait({self._start_hand_over(session)})
        return STORED

    def _start_hand_over(self, session: Session) -> asyncio.Task[None]:
        self._sessions.detach(session, GOODBYE_RETRY_MS)
        transfer = serialize(session)
        task = asyncio.create_task(self._hand_over(session, transfer), name="hand a session over")
        self._leaving[session.id] = task
        task.add_done_callback(lambda _: self._leaving.pop(session.id, None))
        return task

    async def _hand_over(self, session: Session, transfer: bytes) -> None:
        """Store a session in Redis, and release it here only after Redis has confirmed.

        Retry without limit: a session that both continued here and was stored would exist twice.
        """
        # Its record is to tell what its next gateway says of it.
        with contextlib.suppress(Refusal, TimeoutError):
            async with asyncio.timeout(EVENTS_S_MAX):
                await self._sessions.topic.settle()
        backoff = Backoff(RETRY_S)
        while True:
            raise_if_cancelled()
            try:
                await self.locations.store(session.id, transfer, self._kept_ms)
            except Refused:
                await backoff.pause()
            else:
                break
        # Only now: until Redis has confirmed, this copy is the only certain one.
        self._sessions.release(session)

    async def _hand_over_all(self) -> None:
        sessions = self._sessions.movable()
        while sessions:
            some, sessions = sessions[:HANDED_OVER_AT_ONCE], sessions[HANDED_OVER_AT_ONCE:]
            leaving = [self._leaving.get(each.id) or self._start_hand_over(each) for each in some]
            # A limit for each group: however many there are, the rest is given up only once Redis
            # takes no more.
            async with asyncio.timeout(HAND_OVER_S_MAX):
                await asyncio.wait(leaving)

    @property
    def _kept_ms(self) -> int:
        return max(self._settings.session_retention.ms, TRANSFER_MS_MIN)

    def _lock(self, session: str) -> asyncio.Lock:
        """Return a session's lock: parallel callers find the session that the first moved here."""
        return self._locks.setdefault(session, asyncio.Lock())

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._running.append(asyncio.create_task(work, name=name))


def _opened_by(session: str) -> str:
    """Return the gateway that opened a session, from the session's id; "" if the id has none."""
    gateway, dot, _ = session.partition(".")
    return gateway if dot else ""


def _moving() -> Refused:
    return Unavailable("The session is moving to another gateway; try again.")
