"""Attacks on one gateway, and what a good subscriber and the gateway's memory notice of them.

A publisher sends a message every few milliseconds to a topic with one good subscriber. Its latency
is measured alone, and then while another process attacks the gateway in one way after the other.
Readers of large flushes are compared with the same flushes for one reader that takes all.
Each attack is bounded in connections and time, stays on the loopback address, and ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import resource
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

from bench.figure import Figure, percentile
from bench.servers.gateway import Gateway, gateway
from bench.servers.load import Load, load_on
from bench.servers.process import LOAD_CORE, running

GOOD: Final = "good"
TARGET: Final = "target"
RECORDS: Final = 5_000
ATTACK_S: Final = 8.0
ROUNDS: Final = 3  # of each attack: the p99 of one is that of the third-worst of 320 messages
REST_S: Final = 1.0
INTERVAL_S: Final = 0.02
MESSAGE_EVERY_S: Final = 0.025  # later than the interval, so that each is a row of its own
RATIO_MAX: Final = 1.5
SHARE: Final = 0.99
HEAD: Final = "Host: localhost\r\nAccept: text/event-stream\r\n"

Attack = Callable[[int], Awaitable[None]]
Client = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def _nothing(_: int) -> None:
    await asyncio.sleep(2 * ATTACK_S)  # longer than the measurement


@dataclass(frozen=True, slots=True)
class Kind:
    """An attack, and the memory that it may cost: what is documented for that many connections.

    It is measured once it has opened its connections, after `opening_s`. `harmless` is what goes on
    in its place while the good subscriber is measured alone.
    """

    attack: Attack
    growth_mib_max: float
    opening_s: float = 0.0
    harmless: Attack = _nothing


async def _crowd(port: int, count: int, each: Client) -> None:
    """Open so many connections, a few at a time, and let each do its part until the end."""

    async def one() -> None:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 10)
            try:
                await each(writer)
            finally:
                writer.transport.abort()

    tasks: list[asyncio.Task[None]] = []
    for number in range(count):
        tasks.append(asyncio.create_task(one()))
        if number % 50 == 0:
            await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)


def _drip(head: bytes, every_s: float) -> Client:
    async def each(writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while not writer.is_closing():
            await asyncio.sleep(every_s)
            writer.write(b"a")

    return each


async def _slow_headers(port: int) -> None:
    await _crowd(port, 1_000, _drip(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ", 1.0))


async def _slow_bodies(port: int) -> None:
    head = (
        f"POST /v1/topics/{TARGET}/messages HTTP/1.1\r\nHost: localhost\r\n"
        "Content-Type: application/json\r\nContent-Length: 60000\r\n\r\n"
    )
    await _crowd(port, 500, _drip(head.encode(), 0.2))


async def _idle(port: int) -> None:
    async def each(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * ATTACK_S)  # longer than the attack, unless it is cut

    await _crowd(port, 1_000, each)


async def _connections(port: int) -> None:
    while True:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.transport.abort()
        await asyncio.sleep(0)


async def _slow_readers(port: int) -> None:
    target = f"/v1/topics/{TARGET}/subscribe?options=conflation%3Dnone"

    async def each(writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport reads, too
        writer.write(f"GET {target} HTTP/1.1\r\n{HEAD}\r\n".encode())
        await asyncio.sleep(2 * ATTACK_S)  # longer than the attack, unless it is cut

    crowd = asyncio.create_task(_crowd(port, 200, each))
    await asyncio.sleep(1.0)
    body = b"\n".join(_record(number) for number in range(100))
    while not crowd.done():
        await _request(port, "POST", f"/v1/topics/{TARGET}/messages", body, "application/x-ndjson")
        await asyncio.sleep(0.2)


async def _frozen_readers(port: int) -> None:
    await _large_flushes(port, 5_000, 0)


async def _dripping_readers(port: int) -> None:
    await _large_flushes(port, 600, 512)


async def _one_quick_reader(port: int) -> None:
    await _large_flushes(port, 1, 8 << 20)


async def _large_flushes(port: int, readers: int, taken_bytes: int) -> None:
    """Publish 4 MiB every two seconds for readers that take so many bytes ten times a second."""
    loop = asyncio.get_running_loop()
    target = f"/v1/topics/{TARGET}/subscribe?options=conflation%3D100ms&command=subscribe"

    async def read() -> None:
        with socket.socket() as client, contextlib.suppress(OSError):
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", port))
            await loop.sock_sendall(client, f"GET {target} HTTP/1.1\r\n{HEAD}\r\n".encode())
            if not taken_bytes:
                await asyncio.sleep(3 * ATTACK_S)  # longer than the attack, unless it is cut
            taken = b"begun"
            while taken:
                await asyncio.sleep(0.1)
                taken = await loop.sock_recv(client, taken_bytes)

    body = b"\n".join(b'{"k":%d,"note":"%b"}' % (key, b"ab" * 2_000) for key in range(1_000))
    async with asyncio.TaskGroup() as tasks:
        for number in range(readers):
            tasks.create_task(read())
            if number % 50 == 0:
                await asyncio.sleep(0.02)
        while True:
            path = f"/v1/topics/{TARGET}/messages"
            await _request(port, "POST", path, body, "application/x-ndjson")
            await asyncio.sleep(2.0)


async def _lanes(port: int) -> None:
    readers: list[asyncio.Task[bytes]] = []
    for session in range(4):
        subscriptions = [
            {"topic": TARGET, "options": f"conflation=1s,conflation_key=[/k,/x{session}x{number}]"}
            for number in range(250)
        ]
        body = json.dumps({"subscriptions": subscriptions}).encode()
        answer = await _request(port, "POST", "/v1/sessions", body)
        found = json.loads(answer.partition(b"\r\n\r\n")[2] or b"{}").get("events")
        if found is not None:
            readers.append(asyncio.create_task(_request(port, "GET", found)))
    body = b"\n".join(_record(number) for number in range(10))
    while True:
        await _request(port, "POST", f"/v1/topics/{TARGET}/messages", body, "application/x-ndjson")
        await asyncio.sleep(0.1)


async def _filters(port: int) -> None:
    # The first is the slowest that is accepted, 0.1 ms for each record; the second is refused.
    filters = [
        " OR ".join(f"/note LIKE '(.*a){{{times}}}{number}$'" for number in range(60))
        for times in (2, 9)
    ]
    paths = [f"/v1/topics/{TARGET}/sow?filter={quote(text)}" for text in filters]
    while True:
        await asyncio.gather(*(_request(port, "GET", path) for path in 2 * paths))


async def _bookmarks(port: int) -> None:
    marks = quote(",".join(f"t{number}=e{number}-{'9' * 15}" for number in range(180)))
    paths = [
        f"/v1/topics/%3E/subscribe?bookmarks={marks}",
        f"/v1/topics/{TARGET}/subscribe?last_event_id={'z' * 100}-{'9' * 18}",
        f"/v1/topics/{TARGET}/sow?as_of=0001-01-01T00:00:00Z",
        f"/v1/topics/{TARGET}/messages?from={'z' * 64}-{'9' * 18}",
    ]
    while True:
        await asyncio.gather(*(_request(port, "GET", path, most_bytes=4_096) for path in paths))


async def _pipelining(port: int) -> None:
    async def each(writer: asyncio.StreamWriter) -> None:
        one = b"GET /v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n"
        while not writer.is_closing():
            writer.write(one * 500)
            await asyncio.wait_for(writer.drain(), 2.0)

    while True:
        with contextlib.suppress(TimeoutError, OSError):
            await _crowd(port, 20, each)


async def _bombs(port: int) -> None:
    bomb = gzip.compress(b" " * (64 << 20))
    path = f"/v1/topics/{TARGET}/messages"
    while True:
        await _request(port, "POST", path, bomb, "application/json", "Content-Encoding: gzip\r\n")


async def _request(
    port: int, method: str, path: str, body: bytes = b"", media_type: str = "application/json",
    more: str = "", most_bytes: int = 64 << 20,
) -> bytes:  # fmt: skip
    """Send a request, and return the answer up to so many bytes; nothing where it is cut."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{more}"
    if body:
        head += f"Content-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
    received = b""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(head.encode() + b"\r\n" + body)
            while len(received) < most_bytes and (piece := await reader.read(1 << 16)):
                received += piece
        finally:
            writer.transport.abort()
    return received


# A connection costs some 40 KiB at most (docs/architecture.md), a lane of an idle key some KiB.
KINDS: Final[dict[str, Kind]] = {
    "slow headers": Kind(_slow_headers, 60),
    "slow bodies": Kind(_slow_bodies, 60),
    "idle connections": Kind(_idle, 60),
    "a flood of connections": Kind(_connections, 30),
    "slow readers": Kind(_slow_readers, 120),
    "frozen readers of large flushes": Kind(
        _frozen_readers, 5_000 * 64 / 1_024, opening_s=5.0, harmless=_one_quick_reader
    ),
    "dripping readers of large flushes": Kind(
        _dripping_readers, 100, opening_s=2.0, harmless=_one_quick_reader
    ),
    "many lanes": Kind(_lanes, 200),
    "heavy filters": Kind(_filters, 60),
    "odd bookmarks": Kind(_bookmarks, 60),
    "pipelined requests": Kind(_pipelining, 60),
    "compressed bombs": Kind(_bombs, 40),
}


class Round(NamedTuple):
    """What one attack was noticed by; times in seconds, in order of length."""

    alone: list[float]
    attacked: list[float]
    busy: float
    growth_mib: float

    @property
    def ratio(self) -> float:
        """The p99 under attack, by that alone."""
        return percentile(self.attacked, SHARE) / percentile(self.alone, SHARE)


def figures(
    seconds: float = ATTACK_S, names: Iterable[str] = (), rounds: int = ROUNDS
) -> Iterator[Figure]:
    """Yield the good subscriber's latency and the gateway's growth, for each attack, or some.

    The latency is that of the middle round, the growth the most of all.
    """
    for name in names or KINDS:
        done = sorted((_round(name, seconds) for _ in range(rounds)), key=lambda it: it.ratio)
        yield from _figures_of(name, done)


def _round(name: str, seconds: float) -> Round:
    # A gateway for each: what one attack leaves must not count for the next.
    with gateway() as server:
        server.define(GOOD)
        server.define(TARGET, key="/k")
        server.publish(b"\n".join(_record(number) for number in range(RECORDS)), TARGET)
        request = server.request(f"conflation={INTERVAL_S * 1_000:.0f}ms", topic=GOOD)
        with load_on(server.port, 1, request, 'data: {"n":', "event: hel", sampled_every=1) as load:
            sent_ns: list[int] = []
            _deliveries(server, load, sent_ns, REST_S)  # warms up
            with _running(server, name, "harmless"):
                alone = _deliveries(server, load, sent_ns, seconds)
            before_mib = _resident_mib(server)
            with _running(server, name, "attack"):
                began_s = server.process.cpu_s()
                attacked = _deliveries(server, load, sent_ns, seconds)
                busy = (server.process.cpu_s() - began_s) / (seconds + REST_S)
                peak_mib = _resident_mib(server, "VmHWM")
    if not attacked:
        raise RuntimeError(f"the good subscriber got nothing during: {name}")
    return Round(alone, attacked, busy, peak_mib - before_mib)


@contextlib.contextmanager
def _running(server: Gateway, name: str, part: str) -> Iterator[None]:
    """Run a part of a kind of attack, from when it has begun."""
    command = [sys.executable, "-m", "bench.attacks", str(server.port), name, part]
    with running(command, (LOAD_CORE,)) as attacker:
        attacker.read()  # it has begun
        yield


def _deliveries(server: Gateway, load: Load, sent_ns: list[int], seconds: float) -> list[float]:
    """Return the seconds from publishing to receiving, in order of length."""
    first, end = len(sent_ns), time.monotonic() + seconds
    while time.monotonic() < end:
        body = b'{"n":%d,"tickerId":"T"}' % len(sent_ns)
        sent_ns.append(time.monotonic_ns())
        server.publish(body, GOOD)
        time.sleep(max(0.0, MESSAGE_EVERY_S - (time.monotonic_ns() - sent_ns[-1]) / 1e9))
    time.sleep(REST_S)
    return sorted(
        (sample.at_ns - sent_ns[sample.number]) / 1e9
        for sample in load.samples()
        if sample.number >= first
    )


def _figures_of(name: str, rounds: list[Round]) -> Iterator[Figure]:
    kind, middle = KINDS[name], rounds[len(rounds) // 2]
    before, during = percentile(middle.alone, SHARE), percentile(middle.attacked, SHARE)
    ratios = ", ".join(f"{each.ratio:.2f}" for each in rounds)
    note = (
        f"the middle of {ratios}; p99 {before * 1_000:.1f} ms alone, {during * 1_000:.1f} ms "
        f"attacked, longest {middle.attacked[-1] * 1_000:.1f} ms; of {len(middle.attacked):,} and "
        f"{len(middle.alone):,}; the gateway took {middle.busy:.0%} of its core"
    )
    yield Figure(f"{name}: a good subscriber's p99", middle.ratio, "x", RATIO_MAX, note=note)
    growth_mib = max(each.growth_mib for each in rounds)
    yield Figure(f"{name}: memory of the gateway", growth_mib, "MiB more", kind.growth_mib_max)


def _resident_mib(server: Gateway, field: str = "VmRSS") -> float:
    """Return the resident memory of the gateway, or the most that it ever had."""
    status = Path(f"/proc/{server.process.popen.pid}/status").read_text()
    return int(status.partition(f"{field}:")[2].split()[0]) / 1024


def _record(number: int) -> bytes:
    note = "ab" * 200
    return b'{"k":%d,"note":"%b","v":%d}' % (number, note.encode(), number * 7919 % 1000)


def _attack(port: int, name: str, part: str) -> None:
    """Attack a gateway in one way, or do what is harmless in its place, for a bounded time."""
    # It has all that the publisher and the subscriber leave of their core. Were it merely nice, a
    # slice of its could keep them waiting for milliseconds, which would count as the gateway's.
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    kind = KINDS[name]
    run = kind.harmless if part == "harmless" else kind.attack

    async def attack() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(kind.opening_s, lambda: print("begun", flush=True))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(kind.opening_s + ATTACK_S + 2 * REST_S):
                await run(port)

    asyncio.run(attack())


if __name__ == "__main__":
    _attack(int(sys.argv[1]), *sys.argv[2:])
