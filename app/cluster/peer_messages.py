"""Request and reply between gateways, through one inbox per gateway in Redis."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from redis.exceptions import RedisError

from tidegate.app.cluster.connection import BusConnection, translate_errors, with_timeout
from tidegate.app.cluster.membership import Membership
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.timers import Backoff

REPLY_S_MAX = 5.0
INBOX_MAX = 10_000
INBOX_MS = 60_000
"""An inbox that receives nothing for this long expires, so dead gateways leave none behind."""

WAIT_S = 5
READ_AT_ONCE = 100
HANDLED_AT_ONCE = 64
ACCEPTED_MAX = 10_000
RETRY_S = 0.2

_ENQUEUE = """
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""

PeerService = Callable[[bytes], Awaitable[bytes]]
"""A service that answers the requests with one subject."""

logger = logging.getLogger("tidegate.bus")


class PeerMessage(msgspec.Struct, frozen=True, array_like=True):
    """A request, or without a subject the reply to the request with the same request_id.

    `due_ms`: the time of Redis after which the sender no longer waits for the reply.
    """

    request_id: str
    sender: str
    subject: str
    body: bytes
    due_ms: int


_READER = msgspec.msgpack.Decoder(PeerMessage)


class PeerMessages:
    """Sends requests to other gateways and answers theirs.

    A request whose delivery is uncertain is sent again with the same id; each receiver handles an
    id once.

    Args:
        bus: the shared Redis.
        membership: the gateways of the cluster.
        services: the services by subject. An exception from one is logged, and no reply is sent.
    """

    def __init__(
        self, bus: BusConnection, membership: Membership, services: dict[str, PeerService]
    ) -> None:
        self._bus = bus
        self._membership = membership
        self.services = services
        self._ids = itertools.count(1)
        self._pending: dict[str, asyncio.Future[bytes]] = {}
        self._accepted: dict[str, None] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(HANDLED_AT_ONCE)

    async def request(
        self, gateway: str, subject: str, body: bytes, timeout_s: float = REPLY_S_MAX
    ) -> bytes:
        """Send a request to another gateway and return the reply.

        Raises:
            Refused: bus-unavailable; the other gateway may have handled the request.
        """
        request_id = f"{self._membership.gateway}-{next(self._ids)}"
        due_ms = self._bus.clock.now_ms() + round(timeout_s * 1_000)
        message = PeerMessage(request_id, self._membership.gateway, subject, body, due_ms)
        reply = self._pending[request_id] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(timeout_s):
                await self._send(gateway, message)
                raise_if_cancelled()
                return bytes(await reply)
        except TimeoutError:
            raise Unavailable("The other gateway did not reply in time.") from None
        finally:
            del self._pending[request_id]

    async def run(self) -> None:
        """Receive messages until cancelled; log only the first of consecutive read failures."""
        backoff = Backoff(RETRY_S)
        while True:
            raise_if_cancelled()
            try:
                messages = await self._receive()
            except (RedisError, OSError) as error:  # OSError covers the TimeoutError of a wait
                logger.log(backoff.level, "reading the inbox failed: %s", type(error).__name__)
                await backoff.pause()
                continue
            backoff.succeeded()
            for text in messages:
                self._handle(text)

    async def aclose(self) -> None:
        """Cancel the answers that are being made."""
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _send(self, gateway: str, message: PeerMessage) -> None:
        try:
            is_enqueued = await self._enqueue(gateway, message)
        except Refused:  # it may have arrived: the receiver ignores a repeated id
            is_enqueued = await self._enqueue(gateway, message)
        if not is_enqueued:
            raise Unavailable("The other gateway is overloaded.")

    async def _enqueue(self, gateway: str, message: PeerMessage) -> bool:
        arguments = [msgspec.msgpack.encode(message), INBOX_MAX, INBOX_MS]
        with translate_errors():
            return bool(await self._bus.run_script(_ENQUEUE, [self._inbox(gateway)], arguments))

    async def _receive(self) -> list[bytes]:
        name = self._inbox(self._membership.gateway)
        reader: Any = self._bus.reader  # redis-py's types also cover RESP3
        first = await with_timeout(reader.blpop([name], timeout=WAIT_S), WAIT_S)
        if first is None:
            return []
        more = await with_timeout(reader.lpop(name, READ_AT_ONCE))
        return [first[1], *(more or ())]

    def _handle(self, text: bytes) -> None:
        try:
            message = _READER.decode(text)
        except msgspec.MsgspecError:
            logger.warning("a malformed message from a gateway was ignored")
            return
        if not message.subject:
            reply = self._pending.get(message.request_id)
            if reply is not None and not reply.done():
                reply.set_result(message.body)
        elif self._accepts(message):
            task = asyncio.create_task(self._answer(message), name="answer a gateway")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _accepts(self, message: PeerMessage) -> bool:
        """Return whether a request is new and can be answered in time."""
        if message.request_id in self._accepted or message.subject not in self.services:
            return False
        # The sender no longer waits for a late reply, and may have sent the request elsewhere.
        if len(self._answering) >= INBOX_MAX or self._is_late(message):
            return False
        self._accepted[message.request_id] = None
        # Dictionaries keep insertion order, so this drops the oldest id.
        if len(self._accepted) > ACCEPTED_MAX:
            del self._accepted[next(iter(self._accepted))]
        return True

    def _is_late(self, message: PeerMessage) -> bool:
        return message.due_ms < self._bus.clock.now_ms()

    async def _answer(self, message: PeerMessage) -> None:
        async with self._slots:
            if not self._is_late(message):
                await self._answer_now(message)

    async def _answer_now(self, message: PeerMessage) -> None:
        try:
            body = await self.services[message.subject](message.body)
            reply = PeerMessage(
                message.request_id, self._membership.gateway, "", body, message.due_ms
            )
            await self._send(message.sender, reply)
        except Refused as refusal:
            logger.warning("a %s request of a gateway failed: %s", message.subject, refusal.detail)
        except Exception:
            logger.exception("a %s request of a gateway failed", message.subject)

    def _inbox(self, gateway: str) -> str:
        return self._bus.shared_key("inbox", gateway)
