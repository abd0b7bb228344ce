"""A whole gateway in the test's own loop, a client of it, and streams read event by event."""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import httpx2

from tests.support.certificates import Authority, Signed
from tests.support.clocks.jumping_loop import JumpingLoop
from tests.support.deadlines import HANGS_S
from tests.support.network.memory import transport_to
from tests.support.servers import edge_settings, running
from tests.support.wire import Wire, connected
from tidegate.app.gateway import Gateway
from tidegate.app.http.application import create_app
from tidegate.app.http.server import Server
from tidegate.app.settings.settings import Settings
from tidegate.app.timers import wall_ms
from tidegate.clients.sse import Event, Parser

MANY = httpx2.Limits(max_connections=None)  # each open stream is a connection
NDJSON = {"Content-Type": "application/x-ndjson"}
JSON = {"Content-Type": "application/json"}


AS_SENT = {"Accept-Encoding": "identity"}
"""Headers of a client that looks at a stream's bytes as they come."""


class Stream:
    """One open event stream; every wait has a deadline."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self.parser = Parser()
        self.raw = bytearray()
        self.hello_id = ""
        self._chunks = answer.aiter_raw()
        self._ahead: deque[Event] = deque()

    @property
    def last_id(self) -> str:
        """What a browser would send as Last-Event-ID."""
        return self.parser.last_id

    async def next(self) -> Event:
        """The next event."""
        async with asyncio.timeout(HANGS_S):
            while not self._ahead:
                self._take(await anext(self._chunks))
        return self._ahead.popleft()

    async def until(self, name: str) -> list[Event]:
        """Events up to and with the first of this name."""
        events = [await self.next()]
        while events[-1].name != name:
            events.append(await self.next())
        return events

    async def values(self, count: int) -> list[Any]:
        """The JSON of the next messages; other events are an error."""
        values = []
        for _ in range(count):
            event = await self.next()
            assert event.name == "message", event
            values.append(json.loads(event.text))
        return values

    async def raw_until(self, mark: bytes) -> bytearray:
        """Everything received so far, once `mark` is in it."""
        async with asyncio.timeout(HANGS_S):
            while mark not in self.raw:
                self._take(await anext(self._chunks))
        return self.raw

    async def rest(self) -> list[Event]:
        """Events up to the stream's orderly end."""
        async with asyncio.timeout(HANGS_S):
            async for chunk in self._chunks:
                self._take(chunk)
        rest = list(self._ahead)
        self._ahead.clear()
        return rest

    def _take(self, chunk: bytes) -> None:
        self.raw += chunk
        self._ahead.extend(self.parser.feed(chunk))


class Remote:
    """A gateway that serves somewhere, and verbs with short words to talk to it over HTTP."""

    def __init__(
        self, address: str, http: httpx2.AsyncClient, tls: ssl.SSLContext | None = None
    ) -> None:
        self.address = address
        self.http = http
        self.tls = tls
        self.hellos: list[dict[str, Any]] = []

    async def topic(self, name: str = "px", key: Sequence[str] = ("/k",), **more: object) -> None:
        """Create a topic, or replace its definition."""
        answer = await self.http.put(f"/v1/topics/{name}", json={"key": list(key), **more})
        assert answer.status_code in {200, 201}, answer.text

    async def publish(
        self, *messages: object, topic: str = "px", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Publish values in one request."""
        lines = b"\n".join(json.dumps(message).encode() for message in messages)
        return await self.publish_lines(lines, topic=topic, headers=headers)

    async def publish_lines(
        self, lines: bytes, topic: str = "px", headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Publish NDJSON as it is."""
        answer = await self.http.post(
            f"/v1/topics/{topic}/messages", content=lines, headers={**NDJSON, **(headers or {})}
        )
        assert answer.status_code == 200, answer.text
        published: dict[str, Any] = answer.json()
        return published

    async def sow(self, topic: str = "px") -> list[Any]:
        """The newest value of each key, by last change."""
        answer = await self.http.get(f"/v1/topics/{topic}/sow")
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    @contextlib.asynccontextmanager
    async def subscribe(
        self, options: str = "", topic: str = "px", last_id: str = "", **params: str
    ) -> AsyncIterator[Stream]:
        """A stream that has said `hello`."""
        query = {"options": options, **params} if options else params
        headers = {"Last-Event-ID": last_id} if last_id else {}
        path = f"/v1/topics/{topic}/subscribe"
        async with self.http.stream("GET", path, params=query, headers=headers) as answer:
            assert answer.status_code == 200, (await answer.aread()).decode()
            stream = Stream(answer)
            hello = await stream.next()
            assert hello.name == "hello"
            self.hellos.append(json.loads(hello.text))
            stream.hello_id = hello.id
            yield stream

    @contextlib.asynccontextmanager
    async def frozen(
        self, options: str = "", topic: str = "px", query: str = ""
    ) -> AsyncIterator[Wire]:
        """A subscriber that reads `hello` and then nothing more."""
        async with connected(self.address, self.tls) as wire:
            target = f"/v1/topics/{topic}/subscribe?options={options}{query}"
            await wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await wire.read_until(b"event: hello")
            wire.freeze()
            yield wire


class Running(Remote):
    """A gateway in this very process, which can also be looked into."""

    def __init__(
        self,
        server: Server,
        http: httpx2.AsyncClient,
        gateway: Gateway,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(server.address, http, tls)
        self.server = server
        self.gateway = gateway


@contextlib.asynccontextmanager
async def client_of(
    address: str, limits: httpx2.Limits = MANY, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Remote]:
    """The same verbs for the gateway at an address; `tls`: what the client trusts."""
    async with httpx2.AsyncClient(
        base_url=address,
        transport=transport_to(address, limits, tls),
        trust_env=False,
        timeout=HANGS_S,
        limits=limits,
        headers=AS_SENT,
        verify=tls or False,
    ) as http:
        yield Remote(address, http, tls)


@contextlib.asynccontextmanager
async def running_gateway(**given: Any) -> AsyncIterator[Running]:
    """A gateway on a free port, its settings as given.

    `tls`: what its client trusts. `off_ms`: how far the clock of its machine is ahead.
    """
    tls: ssl.SSLContext | None = given.pop("tls", None)
    off_ms: int = given.pop("off_ms", 0)
    settings: Settings = edge_settings(**given)
    loop = asyncio.get_running_loop()
    if isinstance(loop, JumpingLoop):
        if settings.store_dir != ":memory:" or settings.redis or settings.archive:
            loop.use_outside()
        app = create_app(settings, clock=loop.clock.read_ns, wall_ms=loop.clock.wall_ms)
    else:
        app = create_app(settings, wall_ms=lambda: wall_ms() + off_ms)
    gateway: Gateway = app.state.gateway
    async with (
        running(app, settings, on_shutdown=gateway.say_goodbye) as server,
        httpx2.AsyncClient(
            base_url=server.address,
            transport=transport_to(server.address, MANY, tls),
            trust_env=False,
            timeout=HANGS_S,
            limits=MANY,
            headers=AS_SENT,
            verify=tls or False,
        ) as http,
    ):
        yield Running(server, http, gateway, tls)


@contextlib.asynccontextmanager
async def gateway_over_tls(
    authority: Authority, server: Signed, **given: Any
) -> AsyncIterator[Running]:
    """A gateway with the server's certificate, and a client that trusts its authority."""
    async with running_gateway(
        tls=authority.trusting(), tls_cert=str(server.cert), tls_key=str(server.key), **given
    ) as gateway:
        yield gateway


async def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until something holds; fails with `what` when it never does."""
    try:
        async with asyncio.timeout(HANGS_S):
            while not condition():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"it never happened: {what}") from None


def names(events: Iterable[Event]) -> list[str]:
    """The names of events, in order."""
    return [event.name for event in events]
