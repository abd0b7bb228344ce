"""What has ended is freed by counts of references: full collections are rare."""

from __future__ import annotations

import asyncio
import itertools
import ssl
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Sequence
from signal import SIGUSR1

import httpx2
import pytest

from tests.support.certificates import Authority, Signed
from tests.support.children import serving
from tests.support.deadlines import HANGS_S
from tests.support.gateways import NDJSON, Remote, client_of
from tests.support.wire import connected, exchange, get, request
from tidegate.clients.sse import Parser

PROGRAM = """
import functools, gc, runpy, signal, sys

cached = functools.lru_cache

def forgetful(maxsize=1, typed=False):  # what a cache has forgotten must be free as well
    return cached(1)(maxsize) if callable(maxsize) else cached(1, typed)

functools.lru_cache = forgetful

gc.set_debug(gc.DEBUG_SAVEALL)  # what a collection finds is kept

def count(*_):
    gc.collect()
    ours = [found for found in gc.garbage if type(found).__module__.startswith("tidegate.")]
    print(len(ours), flush=True)

signal.signal(signal.SIGUSR1, count)
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
COUNTS_GARBAGE = (sys.executable, "-c", PROGRAM)
MAKES_CYCLES = """sys.argv.pop(0)
from tidegate.app.topics.registry import TopicRegistry
found = TopicRegistry.get
def get(self, name):
    cycle = type(self).__new__(type(self))
    cycle.get = cycle
    return found(self, name)
TopicRegistry.get = get
"""
LIVES = 40
QUICK_LIVES = 5
numbers = itertools.count(100)
ONE = httpx2.Limits(max_keepalive_connections=1)
CUT_BODY = b"POST /v1/topics/px/messages HTTP/1.1"
Life = Callable[[Remote], Awaitable[None]]


async def garbage(process: Process) -> int:
    """How many objects of the product's the collector has ever found in reference cycles.

    Not asyncio's: each of its transports refers to itself.
    """
    assert process.stdout is not None
    process.send_signal(SIGUSR1)
    async with asyncio.timeout(HANGS_S):
        async for line in process.stdout:
            if line.strip().isdigit():
                return int(line)
    raise AssertionError("the gateway has ended")


async def is_alone(gateway: Remote) -> bool:
    """Whether the gateway has no other connection than the one that asks."""
    return "\ntidegate_connections 1.0\n" in (await gateway.http.get("/metrics")).text


async def a_stream(gateway: Remote) -> None:
    async with gateway.subscribe("conflation=10ms") as stream:
        await gateway.publish({"k": 1})
        await stream.until("message")


async def a_window(gateway: Remote) -> None:
    async with gateway.subscribe("conflation=10ms,top_n=2", order_by="/k"):
        pass


async def a_grouping(gateway: Remote) -> None:
    async with gateway.subscribe(
        "conflation=10ms,grouping=[/k],projection=[/k,count(/k) as /n]"
    ) as stream:
        await gateway.publish({"k": 1})
        await stream.until("message")


async def a_replay(gateway: Remote) -> None:
    async with gateway.subscribe("conflation=none,bookmark=epoch") as stream:
        await stream.until("message")


async def a_stream_like_no_other(gateway: Remote) -> None:
    """What is compiled for a request is not shared with another then."""
    number = next(numbers)
    options = f"conflation={number}ms,flush_on=[/b = {number}],select=[-/,+/k,+/x]"
    wanted = f"/k > 0 AND (/a LIKE '^x{number}' OR LENGTH(/c) < {number})"
    async with gateway.subscribe(options, filter=wanted, order_by="/x DESC"):
        pass


async def a_reduction(gateway: Remote) -> None:
    async with gateway.subscribe(f"conflation={next(numbers)}ms,reduce=[/x:sum]") as stream:
        await gateway.publish({"k": 1})
        await stream.until("message")


async def a_pattern(gateway: Remote) -> None:
    await gateway.topic("of.many")
    async with gateway.subscribe("conflation=10ms", topic="of.*") as stream:
        await gateway.publish({"k": 1}, topic="of.many")
        await stream.until("message")


async def a_change(gateway: Remote) -> None:
    async with gateway.subscribe("conflation=10ms"):
        hello = gateway.hellos.pop()
        answer = await gateway.http.patch(
            f"/v1/sessions/{hello['session']}/subscriptions/{hello['subscriptions'][0]['sub']}",
            json={"options": f"conflation={next(numbers)}ms"},
            headers={"Content-Type": "application/merge-patch+json"},
        )
        assert answer.status_code == 200, answer.text


async def an_explanation(gateway: Remote) -> None:
    options = f"conflation={next(numbers)}ms"
    document = {"topic": "px", "options": options}
    assert (await gateway.http.post("/v1/explain", json=document)).status_code == 200


async def a_frozen_stream(gateway: Remote) -> None:
    async with gateway.frozen("conflation=10ms"):
        await gateway.publish({"k": 1, "much": "." * 10_000})


async def a_session(gateway: Remote) -> None:
    answer = await gateway.http.post("/v1/sessions", json={"subscriptions": [{"topic": "px"}]})
    session = f"/v1/sessions/{answer.json()['session']}"
    async with gateway.http.stream("GET", f"{session}/events") as events:
        parser = Parser()
        async for chunk in events.aiter_raw():
            if parser.feed(chunk):
                break
    assert (await gateway.http.delete(session)).status_code == 204


async def a_topic(gateway: Remote) -> None:
    await gateway.topic("short", retain=True)
    async with gateway.subscribe("conflation=10ms", topic="short"):
        await gateway.publish({"k": 1}, topic="short")
        assert (await gateway.http.delete("/v1/topics/short")).status_code == 204


async def a_view(gateway: Remote) -> None:
    await gateway.topic("slow", key=(), source={"topic": "px", "interval": "100ms"})
    async with gateway.subscribe("conflation=10ms", topic="slow") as stream:
        await gateway.publish({"k": 1})
        await stream.until("message")
    assert (await gateway.http.delete("/v1/topics/slow")).status_code == 204


async def a_refused_publication(gateway: Remote) -> None:
    path = "/v1/topics/px/messages"
    assert (await gateway.http.post(path, content=b'{"k":1,', headers=NDJSON)).status_code == 400


async def a_snapshot(gateway: Remote) -> None:
    await gateway.sow()


async def a_cut_publication(gateway: Remote) -> None:
    async with connected(gateway.address, gateway.tls) as wire:
        head = get(
            b"Content-Type: application/x-ndjson", b"Transfer-Encoding: chunked", first=CUT_BODY
        )
        await wire.send(head + b'8\r\n{"k":1}\n\r\n')


async def a_refused_handshake(gateway: Remote) -> None:
    await exchange(gateway.address, request("/healthz"))


async def cycles_left(process: Process, gateway: Remote, life: Life, lives: int) -> int:
    """How many objects so many lives leave to the collector."""
    await life(gateway)  # what the first one loads may leave some
    at_start = await garbage(process)
    for _ in range(lives):
        await life(gateway)
    async with asyncio.timeout(HANGS_S):
        while not await is_alone(gateway):
            await asyncio.sleep(0.01)
    return await garbage(process) - at_start


async def cycles_left_in_its_own(
    life: Life, before_it: Sequence[str], tls: ssl.SSLContext | None = None, **variables: str
) -> int:
    """How many objects are left to the collector after many lives in a gateway of their own."""
    async with (
        serving(*before_it, **variables) as (process, address),
        client_of(address, ONE, tls) as gateway,
    ):
        await gateway.topic(retain=True)
        await gateway.publish({"k": 1})
        return await cycles_left(process, gateway, life, LIVES)


LIVED = (
    a_stream, a_window, a_grouping, a_replay, a_stream_like_no_other, a_reduction,
    a_pattern, a_change, an_explanation, a_frozen_stream, a_session, a_topic, a_view,
    a_refused_publication, a_snapshot, a_cut_publication,
)  # fmt: skip


@pytest.mark.system
async def test_nothing_that_ends_leaves_a_reference_cycle() -> None:
    """One kind of life after another, in one gateway; a cycle is at least one object."""
    async with serving(*COUNTS_GARBAGE) as (process, address), client_of(address, ONE) as gateway:
        await gateway.topic(retain=True)
        await gateway.publish({"k": 1})
        for life in LIVED:
            left = await cycles_left(process, gateway, life, QUICK_LIVES)
            if left >= QUICK_LIVES:  # what happens once, as a cache that fills, is no leak
                left = await cycles_left(process, gateway, life, LIVES)
                assert left < LIVES, life.__name__


@pytest.mark.nightly
@pytest.mark.parametrize("life", LIVED)
async def test_nothing_that_ends_often_leaves_a_reference_cycle(life: Life) -> None:
    assert await cycles_left_in_its_own(life, COUNTS_GARBAGE) < LIVES


@pytest.mark.nightly
@pytest.mark.parametrize(
    "life", [a_stream, a_frozen_stream, a_cut_publication, a_refused_handshake]
)
async def test_nor_does_what_ends_over_tls(
    life: Life, authority: Authority, server: Signed
) -> None:
    files = {"TIDEGATE_TLS_CERT": str(server.cert), "TIDEGATE_TLS_KEY": str(server.key)}
    assert await cycles_left_in_its_own(life, COUNTS_GARBAGE, authority.trusting(), **files) < LIVES


@pytest.mark.nightly
async def test_a_reference_cycle_would_be_seen() -> None:
    program = COUNTS_GARBAGE[-1].replace("sys.argv.pop(0)", MAKES_CYCLES)
    assert await cycles_left_in_its_own(a_snapshot, (*COUNTS_GARBAGE[:-1], program)) >= LIVES
