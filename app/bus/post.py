"""The post: each gateway's inbox on the bus, and questions that are answered through it."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from redis.exceptions import RedisError

from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection, patiently, reaching
from app.bus.roll import Roll
from app.problems import Problem

PATIENCE_S = 5.0
INBOX_MAX = 10_000
INBOX_MS = 60_000
"""An inbox into which nothing is put for so long is gone, with its gateway."""

WAIT_S = 5
TAKEN_AT_ONCE = 100
ASKED_AT_ONCE = 64
REMEMBERED = 10_000
RETRY_S = 0.2

_PUT = """
if redis.call('LLEN', KEYS[1]) >= tonumber(ARGV[2]) then return 0 end
redis.call('RPUSH', KEYS[1], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""

Office = Callable[[bytes], Awaitable[bytes]]
"""Answers the questions of one subject."""

logger = logging.getLogger("tidegate.bus")


class Letter(msgspec.Struct, frozen=True, array_like=True):
    """A question, or without a subject the answer to the one of its number.

    `due_ms`: after this time of the bus nobody waits for the answer.
    """

    number: str
    sender: str
    subject: str
    body: bytes
    due_ms: int


_READER = msgspec.msgpack.Decoder(Letter)


class Post:
    """Asks other gateways, and answers them.

    A letter whose fate is unknown is sent again with its number, and each number is heeded once.

    Args:
        bus: what the gateways share.
        roll: who they are.
        offices: who answers, by subject. What one raises is logged, and not answered.
    """

    def __init__(self, bus: BusConnection, roll: Roll, offices: Mapping[str, Office]) -> None:
        self._bus = bus
        self._roll = roll
        self._offices = offices
        self._numbers = itertools.count(1)
        self._awaited: dict[str, asyncio.Future[bytes]] = {}
        self._heeded: dict[str, None] = {}
        self._answering: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(ASKED_AT_ONCE)

    async def ask(
        self, gateway: str, subject: str, body: bytes, patience_s: float = PATIENCE_S
    ) -> bytes:
        """What another gateway answers.

        Raises:
            Problem: bus-unavailable; whether it was heeded is not known.
        """
        number = f"{self._roll.gateway}-{next(self._numbers)}"
        due_ms = self._roll.now_ms() + round(patience_s * 1_000)
        letter = Letter(number, self._roll.gateway, subject, body, due_ms)
        answer = self._awaited[number] = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(patience_s):
                await self._send(gateway, letter)
                heed_cancellation()
                return bytes(await answer)
        except TimeoutError:
            detail = "The gateway that it belongs to did not answer in time."
            raise Problem("bus-unavailable", detail, headers={"Retry-After": "1"}) from None
        finally:
            del self._awaited[number]

    async def run(self) -> None:
        """Open what comes in until cancelled; that it cannot be read is told once."""
        is_told = False
        while True:
            heed_cancellation()
            try:
                letters = await self._fetch()
            except (RedisError, OSError) as error:  # a wait that was too long among them
                level = logging.DEBUG if is_told else logging.WARNING
                logger.log(level, "the inbox cannot be read: %s", type(error).__name__)
                is_told = True
                await asyncio.sleep(RETRY_S)
                continue
            is_told = False
            for text in letters:
                self._open(text)

    async def aclose(self) -> None:
        """Answer nobody any more."""
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _send(self, gateway: str, letter: Letter) -> None:
        try:
            taken = await self._put(gateway, letter)
        except Problem:  # it may have arrived: its number tells
            taken = await self._put(gateway, letter)
        if not taken:
            detail = "The gateway that it belongs to has too much to do."
            raise Problem("bus-unavailable", detail, headers={"Retry-After": "1"})

    async def _put(self, gateway: str, letter: Letter) -> bool:
        words = [msgspec.msgpack.encode(letter), INBOX_MAX, INBOX_MS]
        with reaching():
            return bool(await self._bus.run(_PUT, [self._inbox(gateway)], words))

    async def _fetch(self) -> list[bytes]:
        name = self._inbox(self._roll.gateway)
        reader: Any = self._bus.reader  # its own types leave out what RESP2 settles
        first = await patiently(reader.blpop([name], timeout=WAIT_S), WAIT_S)
        if first is None:
            return []
        more = await patiently(reader.lpop(name, TAKEN_AT_ONCE))
        return [first[1], *(more or ())]

    def _open(self, text: bytes) -> None:
        try:
            letter = _READER.decode(text)
        except msgspec.MsgspecError:
            logger.warning("a letter cannot be read")
            return
        if not letter.subject:
            answer = self._awaited.get(letter.number)
            if answer is not None and not answer.done():
                answer.set_result(letter.body)
        elif self._heeds(letter):
            task = asyncio.create_task(self._answer(letter), name="answer a gateway")
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    def _heeds(self, letter: Letter) -> bool:
        """Whether a question is new, and to be answered in time."""
        if letter.number in self._heeded or letter.subject not in self._offices:
            return False
        if len(self._answering) >= INBOX_MAX or self._is_late(letter):
            return False
        self._heeded[letter.number] = None
        if len(self._heeded) > REMEMBERED:
            del self._heeded[next(iter(self._heeded))]
        return True

    def _is_late(self, letter: Letter) -> bool:
        return letter.due_ms < self._roll.now_ms()

    async def _answer(self, letter: Letter) -> None:
        async with self._room:
            if not self._is_late(letter):
                await self._answer_now(letter)

    async def _answer_now(self, letter: Letter) -> None:
        try:
            body = await self._offices[letter.subject](letter.body)
            answer = Letter(letter.number, self._roll.gateway, "", body, letter.due_ms)
            await self._send(letter.sender, answer)
        except Problem as problem:
            logger.warning("%s of a gateway is not answered: %s", letter.subject, problem.detail)
        except Exception:
            logger.exception("%s of a gateway is not answered", letter.subject)

    def _inbox(self, gateway: str) -> str:
        return self._bus.shared_key("inbox", gateway)
