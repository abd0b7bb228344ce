"""The needs of a gateway: memory by key, message and connection, CPU by message, row and reader.

Each group of figures has its own process. docs/operations.md has the formulas for these figures.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from bench.engine import payloads
from tidegate.conflation.definition import Definition, History
from tidegate.conflation.engine import Engine
from tidegate.conflation.frame import Frame
from tidegate.conflation.options.grant import decide
from tidegate.conflation.options.table import Options
from tidegate.conflation.sessions.session import UNLIMITED
from tidegate.keys.spec import KeySpec, record_key

TIDEGATE = Path(sys.executable).with_name("tidegate")
NDJSON = {"Content-Type": "application/x-ndjson"}
PER_REQUEST = 1_000
KEYS = 200_000
CONNECTIONS = 1_000
MEMBERS = 2_000
BEHIND_BY = 1_000
ROUNDS = 30
INTERVAL_S = 0.1
SETTLE_S = 1.0
HEARTBEAT_S = 15

Figure = tuple[str, float, str]


@dataclass(frozen=True, slots=True)
class MeasuredGateway:
    """A gateway in its own process, a client of it, and the resources that it uses."""

    client: httpx2.AsyncClient
    process: psutil.Process

    @property
    def port(self) -> int:
        """The port of its listener."""
        return self.client.base_url.port or 80

    def resident_bytes(self) -> int:
        """Return its resident memory."""
        return int(self.process.memory_info().rss)

    def cpu_us(self) -> float:
        """Return its CPU time so far, in microseconds."""
        times = self.process.cpu_times()
        return float(times.user + times.system) * 1e6

    async def topic(self, key: list[str], history: int) -> None:
        """Create the topic with a journal of `history` messages."""
        definition = {"key": key, "history": {"messages": history}}
        (await self.client.put("/v1/topics/sizing", json=definition)).raise_for_status()

    async def publish(self, texts: list[bytes], per_request: int = PER_REQUEST) -> None:
        """Publish in requests of `per_request` lines."""
        for start in range(0, len(texts), per_request):
            body = b"\n".join(texts[start : start + per_request])
            path = "/v1/topics/sizing/messages"
            answer = await self.client.post(path, content=body, headers=NDJSON)
            answer.raise_for_status()


def figures() -> Iterator[Figure]:
    """Yield name, value and unit of each figure."""
    for measure in (_keys, _journal, _connections, _subscriptions, _publishing, _flushing):
        yield from asyncio.run(_with_gateway(measure))
    yield from _members()
    yield from asyncio.run(_disk())


async def _with_gateway(
    measure: Callable[[MeasuredGateway], Awaitable[list[Figure]]],
) -> list[Figure]:
    async with _gateway() as gateway:
        return await measure(gateway)


@contextlib.asynccontextmanager
async def _gateway(folder: str = ":memory:") -> AsyncIterator[MeasuredGateway]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIDEGATE_")}
    command = [str(TIDEGATE), "serve", "--data", folder, "--port", "0"]
    server = subprocess.Popen(  # noqa: ASYNC220 - nothing else runs in this loop yet
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        async with httpx2.AsyncClient(base_url=address, timeout=60) as client:
            yield MeasuredGateway(client, psutil.Process(server.pid))
    finally:
        server.terminate()
        server.wait(10)


async def _keys(gateway: MeasuredGateway) -> list[Figure]:
    await gateway.topic(["/k"], history=0)
    idle = gateway.resident_bytes()
    texts = [b'{"k":%d,"text":"%b"}' % (n, b"x" * 100) for n in range(KEYS)]
    await gateway.publish(texts)
    each = (gateway.resident_bytes() - idle) / KEYS
    beyond = each - sum(map(len, texts)) / KEYS
    return [
        ("a gateway that does nothing", idle / 1e6, "MB"),
        ("a key, beyond its value", beyond, "B"),
    ]


async def _journal(gateway: MeasuredGateway) -> list[Figure]:
    await gateway.topic([], history=KEYS)
    idle = gateway.resident_bytes()
    texts = [b'{"k":%d,"text":"%b"}' % (n, b"x" * 100) for n in range(KEYS)]
    await gateway.publish(texts)
    each = (gateway.resident_bytes() - idle) / KEYS
    return [("a journaled message, beyond its value", each - sum(map(len, texts)) / KEYS, "B")]


async def _connections(gateway: MeasuredGateway) -> list[Figure]:
    await gateway.topic(["/k"], history=0)
    idle = gateway.resident_bytes()
    async with _readers(gateway, CONNECTIONS):
        await asyncio.sleep(SETTLE_S)
        each = (gateway.resident_bytes() - idle) / CONNECTIONS
        before = gateway.cpu_us()
        await asyncio.sleep(HEARTBEAT_S)
        cpu_us = (gateway.cpu_us() - before) / HEARTBEAT_S / CONNECTIONS
    return [
        ("an idle connection with its subscription", each / 1e3, "kB"),
        ("an idle connection, a second", cpu_us, "us CPU"),
    ]


async def _subscriptions(gateway: MeasuredGateway) -> list[Figure]:
    await gateway.topic(["/k"], history=0)
    idle = gateway.resident_bytes()
    subscription = {"topic": "sizing", "options": "conflation=1s"}
    sessions = 10
    for _ in range(sessions):
        body = {"subscriptions": [subscription] * 200}
        (await gateway.client.post("/v1/sessions", json=body)).raise_for_status()
    each = (gateway.resident_bytes() - idle) / (200 * sessions)
    return [("a further subscription of a session that is kept", each / 1e3, "kB")]


async def _publishing(gateway: MeasuredGateway) -> list[Figure]:
    await gateway.topic(["/tickerId"], history=100_000)
    texts = payloads()
    found: list[Figure] = []
    for per_request, count in ((1, 2_000), (PER_REQUEST, len(texts))):
        before = gateway.cpu_us()
        await gateway.publish(texts[:count], per_request)
        name = f"a message, in requests of {per_request}"
        found.append((name, (gateway.cpu_us() - before) / count, "us CPU"))
    return found


async def _flushing(gateway: MeasuredGateway) -> list[Figure]:
    """Measure a flush by row, by reader, and by row and reader."""
    await gateway.topic(["/k"], history=0)
    few, many, rows_few, rows_many = 20, 200, 10, 500
    costs: dict[tuple[int, int], float] = {}
    for readers in (0, few, many):
        async with _readers(gateway, readers):
            await asyncio.sleep(SETTLE_S / 2)
            for rows in (rows_few, rows_many):
                costs[readers, rows] = await _flush_us(gateway, rows)
    over_readers = {
        rows: (costs[many, rows] - costs[few, rows]) / (many - few)
        for rows in (rows_few, rows_many)
    }
    by_both = (over_readers[rows_many] - over_readers[rows_few]) / (rows_many - rows_few)
    own = {rows: costs[few, rows] - few * over_readers[rows] - costs[0, rows]
           for rows in (rows_few, rows_many)}  # fmt: skip
    by_row = (own[rows_many] - own[rows_few]) / (rows_many - rows_few)
    return [
        ("a flush, for each row", by_row, "us CPU"),
        ("a flush, for each reader", over_readers[rows_few] - rows_few * by_both, "us CPU"),
        ("a flush, for each row and reader", by_both, "us CPU"),
    ]


async def _flush_us(gateway: MeasuredGateway, rows: int) -> float:
    """Return the CPU time of one publish and its flush."""
    texts = [b'{"k":%d,"text":"%b"}' % (n, b"x" * 100) for n in range(rows)]
    await gateway.publish(texts)
    await asyncio.sleep(2 * INTERVAL_S)
    before = gateway.cpu_us()
    for _ in range(ROUNDS):
        await gateway.publish(texts)
        await asyncio.sleep(1.5 * INTERVAL_S)
    return (gateway.cpu_us() - before) / ROUNDS


@contextlib.asynccontextmanager
async def _readers(gateway: MeasuredGateway, count: int) -> AsyncIterator[None]:
    """Open `count` streams that take everything."""
    query = f"options=conflation={INTERVAL_S * 1_000:.0f}ms&command=subscribe&format=batch"
    request = f"GET /v1/topics/sizing/subscribe?{query} HTTP/1.1\r\nHost: localhost\r\n\r\n"
    writers: list[asyncio.StreamWriter] = []
    tasks: list[asyncio.Task[None]] = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request.encode())
        await reader.readuntil(b"event: hello")
        writers.append(writer)
        tasks.append(asyncio.create_task(_drain(reader)))
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(1 << 16):
        pass


async def _disk() -> list[Figure]:
    """Measure the SQLite store after an orderly stop; without a journal only records count."""
    found: list[Figure] = []
    for name, key, per_request in (
        ("on disk: a request and its message", [], 1),
        (f"on disk: a message, in requests of {PER_REQUEST}", [], PER_REQUEST),
        ("on disk: a record", ["/k"], PER_REQUEST),
    ):
        count = 100 * per_request if per_request > 1 else 2_000
        texts = [b'{"k":%d,"text":"%b"}' % (n, b"x" * 100) for n in range(count)]
        with tempfile.TemporaryDirectory() as folder:
            async with _gateway(folder) as gateway:
                await gateway.topic(key, history=0 if key else count)
                await gateway.publish(texts, per_request)
            taken = _size_of(folder)
        found.append((f"{name}, beyond its value", (taken - sum(map(len, texts))) / count, "B"))
    return found


def _size_of(folder: str) -> int:
    return sum(path.stat().st_size for path in Path(folder).iterdir())


def _members() -> Iterator[Figure]:
    """Yield the engine's part of a subscription, without its stream: in step, and behind."""
    for options in ("conflation=1s", "conflation=none"):
        for behind in (0, BEHIND_BY):
            name = f"engine: a subscription with {options}, {behind} messages behind"
            yield name, _member_bytes(options, behind), "B"


def _member_bytes(options: str, behind: int) -> float:
    spec = KeySpec.of(["/k"])
    definition = Definition(History(0), spec)
    engine = Engine(sessions_max=MEMBERS, subscriptions_max=1)
    engine.define_topic("sizing", definition, "e")
    granted = decide("sizing", definition, Options.parse(options), command="subscribe")
    key_of = record_key(spec)
    texts = [b'{"k":%d}' % n for n in range(behind)]
    frames = [Frame(n, text, key_of(text)) for n, text in enumerate(texts, start=1)]
    tracemalloc.start()
    try:
        for n in range(MEMBERS):
            engine.open_session(f"s{n}", UNLIMITED)
            engine.subscribe(f"s{n}", "s1", granted, 0)
        if frames:
            engine.publish("sizing", frames, 0)
        return tracemalloc.get_traced_memory()[0] / MEMBERS
    finally:
        tracemalloc.stop()
