"""`conflation=auto` over a real socket: a reader of 20 KB a second, which then reads fast."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import json
import socket
import termios
from collections.abc import AsyncIterator
from functools import partial
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tidegate.app.gateway import Gateway
from tidegate.app.streams.session import Session
from tidegate.clients.sse import Event, Parser
from tidegate.keys.text.duration import SECOND, parse_duration

SLOW_BYTES_PER_S = 20_000
KEYS = 60
PAD = "x" * 180

# Half a minute; tests/conflation/test_auto_on_sockets.py has the rules on simulated sockets.
pytestmark = pytest.mark.nightly


@pytest.fixture(autouse=True)
async def one_time(steady: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway, its publisher and its reader go by the loop's time."""
    build = partial(Gateway.build, clock=lambda: round(now_s() * SECOND))
    monkeypatch.setattr(Gateway, "build", build)


def now_s() -> float:
    return asyncio.get_running_loop().time()


class Paced:
    """A stream read off its socket at a pace, without anything read ahead."""

    def __init__(self, raw: socket.socket, session: Session) -> None:
        self.session = session
        self.bytes_per_s: float | None = SLOW_BYTES_PER_S
        self.held_bytes_max = 0
        self._socket = raw
        self._parser = Parser()

    async def batch(self) -> list[Event]:
        """What the next bytes complete, after as long as they take."""
        self.held_bytes_max = max(self.held_bytes_max, self._held_bytes())
        loop = asyncio.get_running_loop()
        piece = await loop.sock_recv(self._socket, 1_000 if self.bytes_per_s else 1 << 16)
        assert piece, "the stream ended"
        if self.bytes_per_s is not None:
            await asyncio.sleep(len(piece) / self.bytes_per_s)
        return self._parser.feed(piece)

    def _held_bytes(self) -> int:
        """In both kernels, and in the gateway's own buffer."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._socket.fileno(), termios.FIONREAD, waiting)
        reader = self.session.reader
        return waiting[0] + (0 if reader is None else reader.unsent_bytes)


@contextlib.asynccontextmanager
async def played() -> AsyncIterator[tuple[Running, Paced]]:
    """A topic that is published into, and its one subscriber."""
    async with running_gateway() as running:
        await running.topic()
        async with published(running), paced(running, "conflation=auto") as stream:
            yield running, stream


@contextlib.asynccontextmanager
async def paced(running: Running, options: str) -> AsyncIterator[Paced]:
    """A subscriber with small buffers, which has its answer's header."""
    url, loop = urlsplit(running.address), asyncio.get_running_loop()
    with socket.socket() as raw:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 10)
        raw.setblocking(False)
        await loop.sock_connect(raw, (url.hostname, url.port))
        target = f"/v1/topics/px/subscribe?options={options}&command=subscribe&format=batch"
        request = f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n"
        await loop.sock_sendall(raw, request.encode())
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += await loop.sock_recv(raw, 1)
        [session] = running.gateway.sessions.listed("", 9)
        yield Paced(raw, session)


@contextlib.asynccontextmanager
async def published(running: Running) -> AsyncIterator[None]:
    """All keys anew, fifty times a second, each with the time of its publication."""

    async def publish() -> None:
        while True:
            rows = [{"k": k, "at": now_s(), "pad": PAD} for k in range(KEYS)]
            await running.publish(*rows)
            await asyncio.sleep(0.02)

    publishing = asyncio.create_task(publish())
    try:
        yield
    finally:
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing


class Story:
    """What a reader saw: how old rows were, and what was decided."""

    def __init__(self, stream: Paced) -> None:
        self.stream = stream
        self.decisions: list[dict[str, Any]] = []
        self.flushes: list[int] = []
        self.lateness_s_max = 0.0
        self._interval_ns = parse_duration("50ms")

    async def until(self, reason: set[str], count: int) -> None:
        """Read until so many decisions for these reasons have arrived."""
        async with asyncio.timeout(LOOPS_S):
            while sum(each["reason"] in reason for each in self.decisions) < count:
                await self.read()

    async def read(self) -> None:
        """Read once."""
        for event in await self.stream.batch():
            self._take(event)

    def _take(self, event: Event) -> None:
        if event.name == "conflation":
            self.decisions.append(json.loads(event.text))
            self._interval_ns = parse_duration(self.decisions[-1]["to"])
        elif event.name == "message":
            self.flushes.append(len(self.decisions))
            oldest = min(row["value"]["at"] for row in json.loads(event.text)["rows"])
            lateness_s = now_s() - oldest - self._interval_ns / SECOND
            self.lateness_s_max = max(self.lateness_s_max, lateness_s)


@rule("auto-2", "auto-3", "auto-4", "auto-5")
async def test_a_slow_reader_gets_a_longer_interval_and_a_fast_one_a_shorter_one_again() -> None:
    # rules auto-2 to auto-5
    async with played() as (running, stream):
        story = Story(stream)
        await story.until({"slow", "full"}, 4)
        assert story.flushes.count(0) <= 5
        flush_bytes = KEYS * (len(PAD) + 100)
        drain_s = (stream.held_bytes_max + flush_bytes) / SLOW_BYTES_PER_S
        assert story.lateness_s_max <= drain_s + 0.5
        assert [each["from"] for each in story.decisions[:4]] == [
            "50ms",
            "100ms",
            "200ms",
            "500ms",
        ]
        assert all(each["inputs"]["overdue_bytes"] > 0 for each in story.decisions[:4])
        stream.bytes_per_s = None
        await story.until({"quick"}, 1)
        assert story.decisions[-1]["inputs"]["calm_ms"] >= 10_000
        path = f"/v1/sessions/{stream.session.id}/subscriptions/s1/auto"
        view = (await running.http.get(path)).json()
    named = ("from", "to", "reason", "inputs")
    assert [{name: each[name] for name in named} for each in view["decisions"]] == [
        {name: each[name] for name in named} for each in story.decisions
    ]
    assert view["interval"] == story.decisions[-1]["to"]
    assert all(later["from"] == one["to"] for one, later in pairwise(story.decisions))


@rule("auto-2")
async def test_a_fast_reader_of_large_flushes_stays_at_the_shortest_interval() -> None:
    # rule auto-2
    async with played() as (_, stream):
        stream.bytes_per_s = None
        story = Story(stream)
        async with asyncio.timeout(LOOPS_S):
            while len(story.flushes) < 60:
                await story.read()
    assert story.decisions == []
