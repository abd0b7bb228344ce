"""Writers: they publish what they note in the ledger first, and go on through every outage."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from collections.abc import AsyncIterator

import httpx2

from tests.faults.checks.ledger import Answer, Ledger, Level, Request, Sender

RECORDS_PER_WRITER = 8
MESSAGES_OFTEN_MAX = 12
MESSAGES_SELDOM = 300
ANSWER_S_MAX = 10.0
AGAIN_S = 0.1
REFUSED_FROM, BROKEN_FROM = 400, 500
GONE = 404  # a topic that was lost: the oracle has that to say
NDJSON = {"Content-Type": "application/x-ndjson"}


class Refused(Exception):
    """The gateway refused a request in which nothing is wrong."""


class Writer:
    """One writer of one topic, with one request under way at a time.

    Numbered and keyed ones send a request again until it is acknowledged; plain ones do not, and
    they also remove records.
    """

    def __init__(
        self, name: str, topic: str, ledger: Ledger, sender: Sender, level: Level, seed: int
    ) -> None:
        self.name = name
        self._topic = topic
        self._ledger = ledger
        self._sender = sender
        self._level = level
        self._chance = random.Random(f"{seed} {name}")
        self._sequence = 0
        self._pending: Request | None = None
        self._removed = ""

    async def write(self, http: httpx2.AsyncClient, until: asyncio.Event) -> None:
        """Publish without rest, through outages, until `until` is set.

        Raises:
            Refused: a request was answered with 4xx, and not because its topic is gone.
        """
        while not until.is_set():
            if self._pending is None:
                self._pending = self._next()
                self._ledger.note(self._pending)
            await self._attempt(http, self._pending)

    async def settle(self, http: httpx2.AsyncClient) -> None:
        """Send what is still open until it is acknowledged; a plain request stays open."""
        while self._pending is not None:
            await self._attempt(http, self._pending)

    def _next(self) -> Request:
        self._sequence += 1
        if self._sender is Sender.PLAIN and self._chance.random() < 0.1:
            name = self._record()
            if name != self._removed:  # once; before it is removed again, it is written
                self._removed = name
                return self._request((name,), removes=True)
        seldom = self._chance.random() < 0.02
        count = MESSAGES_SELDOM if seldom else self._chance.randint(1, MESSAGES_OFTEN_MAX)
        names = tuple(self._record() for _ in range(count))
        if self._removed in names:
            self._removed = ""
        return self._request(names, removes=False)

    def _request(self, names: tuple[str, ...], *, removes: bool) -> Request:
        return Request(self.name, self._sequence, self._level, names, removes, time.monotonic())

    def _record(self) -> str:
        return f"{self.name}-{self._chance.randrange(RECORDS_PER_WRITER)}"

    async def _attempt(self, http: httpx2.AsyncClient, request: Request) -> None:
        """Send once; a plain writer gives a request up that was sent and not answered."""
        answer = await self._send(http, request)
        status = BROKEN_FROM if answer is None else answer.status_code
        if REFUSED_FROM <= status < BROKEN_FROM and status != GONE:
            raise Refused(f"{status} {answer and answer.text}")
        if answer is None or status >= REFUSED_FROM:
            if self._sender is Sender.PLAIN and request.attempts:
                self._pending = None
            await asyncio.sleep(AGAIN_S)
            return
        said = answer.json()
        request.answer = Answer(
            time.monotonic(),
            said.get("first"),
            said.get("last"),
            said.get("duplicate", False),
            said.get("deleted", 0),
        )
        self._pending = None

    async def _send(self, http: httpx2.AsyncClient, request: Request) -> httpx2.Response | None:
        verb = self._remove if request.removes else self._publish
        try:
            answer = await verb(http, request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return None  # nothing was sent: no attempt
        except httpx2.HTTPError:
            answer = None
        request.attempts += 1
        return answer

    async def _publish(self, http: httpx2.AsyncClient, request: Request) -> httpx2.Response:
        rows = (
            {"k": name, "w": self.name, "n": request.sequence, "i": index}
            for index, name in enumerate(request.keys)
        )
        body = b"\n".join(json.dumps(row).encode() for row in rows)
        params = {"ack": str(self._level)}
        address = f"/v1/topics/{self._topic}/messages"
        headers = {**NDJSON, **self._marks(request)}
        return await http.post(address, params=params, content=body, headers=headers)

    async def _remove(self, http: httpx2.AsyncClient, request: Request) -> httpx2.Response:
        params = {"key": json.dumps(list(request.keys))}
        return await http.delete(f"/v1/topics/{self._topic}/sow", params=params)

    def _marks(self, request: Request) -> dict[str, str]:
        match self._sender:
            case Sender.NUMBERED:
                return {
                    "Tidegate-Producer": self.name,
                    "Tidegate-Sequence": str(request.sequence),
                }
            case Sender.KEYED:
                return {"Idempotency-Key": f"{self.name}-{request.sequence}"}
            case Sender.PLAIN:
                return {}


@contextlib.asynccontextmanager
async def writing(address: str, writers: list[Writer]) -> AsyncIterator[None]:
    """Writers at work meanwhile; at the end each has nothing open that it would send again."""
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(
        base_url=address, timeout=ANSWER_S_MAX, limits=limits, trust_env=False
    ) as http:
        until = asyncio.Event()
        tasks = [asyncio.create_task(writer.write(http, until)) for writer in writers]
        try:
            yield
            until.set()
            await asyncio.gather(*tasks)
            await asyncio.gather(*(writer.settle(http) for writer in writers))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
