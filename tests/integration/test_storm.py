"""Two thousand clients are cut and reconnect at once: none misses a message."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from tests.support.children import ended, serving
from tests.support.deadlines import HANGS_S
from tests.support.descriptors import descriptors
from tests.support.gateways import Remote, client_of
from tidegate.clients.sse import Parser

CLIENTS = 2_000
KEYS = 20
BACK_S_MAX = 10.0  # of the gateway's own work: other things may be on this machine
DESCRIPTORS = CLIENTS + 500
EVERY_MESSAGE, CONFLATED = "conflation=none", "conflation=200ms"


class Subscriber(asyncio.Protocol):
    """One client on a bare socket, which remembers its last id as a browser does."""

    def __init__(self, options: str) -> None:
        self.last_id = ""
        self.modes: list[str] = []
        self._options = options
        self._parser = Parser()
        self._transport: asyncio.Transport | None = None
        self._newest: dict[int, int] = {}
        self._wanted: set[int] = set()
        self._satisfied, self._greeted = asyncio.Event(), asyncio.Event()
        # Of this connection: where it began, and the latest offset of all and of each key.
        self._began_at = self._latest = 0
        self._latest_of: dict[int, int] = {}

    async def come(self, address: str) -> None:
        """Connect, and ask to continue behind the last id if there is one; until `hello`."""
        self._greeted.clear()
        host, port = str(urlsplit(address).hostname), int(urlsplit(address).port or 0)
        await asyncio.get_running_loop().create_connection(lambda: self, host, port)
        await self._greeted.wait()

    def cut(self) -> None:
        """The connection is gone with all that is on its way."""
        assert self._transport is not None
        self._transport.abort()

    async def has(self, last: int) -> None:
        """Wait until it has the newest message of each key, the last of all being this one."""
        self._wanted = set(range(last - KEYS + 1, last + 1)) - set(self._newest.values())
        self._satisfied.clear()
        if self._wanted:
            await self._satisfied.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._parser = Parser(self.last_id)
        self._latest_of.clear()
        target = f"/v1/topics/px/subscribe?command=subscribe&format=batch&options={self._options}"
        lines = [f"GET {target} HTTP/1.1", "Host: localhost"]
        lines += [f"Last-Event-ID: {self.last_id}"] if self.last_id else []
        transport.write("\r\n".join([*lines, "", ""]).encode())

    def data_received(self, received: bytes) -> None:
        """Events; the lines of chunked coding between them are fields of no name."""
        for event in self._parser.feed(received):
            document = json.loads(event.text)
            match event.name:
                case "message":
                    self._take(document["rows"])
                case "hello":
                    self._began_at = self._latest = offset_of(event.id)
                    self._greeted.set()
                case "resumed":
                    self.modes.append(document["mode"])
                case _:
                    raise AssertionError(event)
        self.last_id = self._parser.last_id

    def _take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            offset, key = row["value"]["offset"], row["value"]["k"]
            assert offset > self._began_at, "it comes again, although its id said that it was there"
            assert offset > self._latest_of.get(key, 0), "an older one of its key"
            if self._options == EVERY_MESSAGE:
                assert offset == self._latest + 1, "a gap"
            self._latest = self._latest_of[key] = offset
            self._newest[key] = max(offset, self._newest.get(key, 0))
            self._wanted.discard(offset)
        if not self._wanted:
            self._satisfied.set()


def offset_of(bookmark: str) -> int:
    return int(bookmark.rpartition("-")[2])


@pytest.fixture(name="many_sockets")
def many_sockets_fixture() -> Iterator[None]:
    """Sockets enough for all of them, here and in the gateway."""
    with descriptors(DESCRIPTORS):
        yield


async def published(remote: Remote, first: int, times: int) -> int:
    """Publish a new version of each key so many times, each saying its offset; the last one."""
    for start in range(first, first + times * KEYS, KEYS):
        offsets = range(start, start + KEYS)
        answer = await remote.publish(*[{"k": at % KEYS, "offset": at} for at in offsets])
        assert offset_of(answer["last"]) == offsets[-1]
    return offsets[-1]


async def all_come(subscribers: Iterable[Subscriber], address: str) -> None:
    async with asyncio.timeout(HANGS_S):
        await asyncio.gather(*(each.come(address) for each in subscribers))


async def all_have(subscribers: Iterable[Subscriber], last: int) -> None:
    async with asyncio.timeout(HANGS_S):
        await asyncio.gather(*(each.has(last) for each in subscribers))


def worked_s(process: Process) -> float:
    times = psutil.Process(process.pid).cpu_times()
    return float(times.user + times.system)


@pytest.mark.nightly
@pytest.mark.usefixtures("many_sockets")
async def test_all_are_cut_at_once_and_continue_where_they_were() -> None:
    failures: list[str] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: failures.append(str(context.get("exception", context["message"])))
    )
    subscribers = [Subscriber((EVERY_MESSAGE, CONFLATED)[n % 2]) for n in range(CLIENTS)]
    async with serving() as (process, address), client_of(address) as remote:
        await remote.topic()
        await all_come(subscribers, address)
        last = await published(remote, 1, times=1)
        await all_have(subscribers, last)

        publishing = asyncio.create_task(published(remote, last + 1, times=10))
        await subscribers[0].has(last + 3 * KEYS)  # in the midst of it
        for each in subscribers:
            each.cut()
        last = await publishing
        before_s = worked_s(process)
        await all_come(subscribers, address)
        await all_have(subscribers, last)
        back_s = worked_s(process) - before_s

        await all_have(subscribers, await published(remote, last + 1, times=1))
        for each in subscribers:
            each.cut()
        process.terminate()
        assert (await ended(process))[0] == 0
    assert not failures
    modes = Counter(tuple(each.modes) for each in subscribers)
    assert modes == {("replay",): CLIENTS // 2, ("changes",): CLIENTS // 2}
    assert back_s < BACK_S_MAX
