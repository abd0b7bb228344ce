"""As many connections as there may be, and more; and what happens without descriptors."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import httpx2
import psutil
import pytest

from tests.support.children import ended, serving, with_descriptors
from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Remote, client_of, eventually, running_gateway
from tests.support.wire import Answer, Wire, connected, exchange, post, read_all, request
from tidegate.clients.sse import Parser

JSON_LENGTH = ("Content-Type: application/json", "Content-Length: 7")
PUBLISH = request("/v1/topics/px/messages", *JSON_LENGTH, method="POST") + b'{"k":1}'
NEVER_IDLE = httpx2.Limits(keepalive_expiry=None)
HEALTH = ("/healthz", "/readyz", "/metrics")
SPINS_S = 2.0
"""A loop that spins has used most of so long, if it was let."""


async def answered(address: str, target: str) -> Answer:
    """What a connection of its own gets; it says nothing about closing."""
    async with connected(address) as wire:
        await wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        head = await wire.read_answer()
        assert await wire.read_to_end() == b"", "the connection is closed after the one answer"
        return head


@contextlib.asynccontextmanager
async def streams(address: str, count: int) -> AsyncIterator[list[Wire]]:
    """Streams that have said `hello`."""
    async with contextlib.AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(connected(address)) for _ in range(count)]
        for wire in wires:
            await wire.send(b"GET /v1/topics/px/subscribe HTTP/1.1\r\nHost: localhost\r\n\r\n")
        for wire in wires:
            await wire.read_until(b"event: hello")
        yield wires


async def test_beyond_the_bound_health_checks_alone_are_answered() -> None:
    async with running_gateway(connections_max=3) as running:  # one is the publisher's
        await running.topic()
        async with streams(running.address, 2) as [first, second]:
            refused = await exchange(running.address, PUBLISH)
            assert (refused.status, refused.code) == (429, "limit-reached")
            assert 1 <= int(refused.headers["retry-after"]) <= 5
            answer = await exchange(running.address, request("/v1/topics/px/subscribe"))
            assert answer.status == 200
            [event] = Parser().feed(answer.body)
            assert (event.name, json.loads(event.text)["code"]) == ("refused", "limit-reached")
            for target in HEALTH:
                assert (await answered(running.address, target)).status == 200
            figures = (await answered(running.address, "/metrics")).body.decode()
            assert "tidegate_connections 4.0" in figures
            assert "tidegate_connections_max 3.0" in figures
            assert 'tidegate_connections_refused_total{reason="connections"} 2.0' in figures
            await running.publish({"k": 1})
            for wire in (first, second):
                await wire.read_until(b'data: {"k": 1}')
        await eventually(lambda: not running.gateway.driver.engine.stats().sessions, "they leave")
        assert (await exchange(running.address, PUBLISH)).status == 200


async def test_idle_connections_do_not_keep_health_checks_out() -> None:
    async with (
        running_gateway(connections_max=1) as running,
        contextlib.AsyncExitStack() as stack,
    ):
        idle = [await stack.enter_async_context(connected(running.address)) for _ in range(200)]
        for target in HEALTH:
            assert (await answered(running.address, target)).status == 200
        assert await idle[1].read_to_end() == b"", "the oldest at the door made room"


async def test_a_refusal_reaches_who_is_sending_a_large_body() -> None:
    async with running_gateway(connections_max=1) as running, connected(running.address):
        body = b"x" * 500_000
        raw = post(b"Content-Length: %d" % len(body), body=body)
        assert b"429 Too Many Requests" in await read_all(running.address, raw)


async def test_who_came_too_early_is_served_once_there_is_room() -> None:
    async with (
        running_gateway(connections_max=1) as running,
        connected(running.address) as inside,
        connected(running.address) as early,
    ):
        await inside.send(request("/healthz"))
        await inside.read_to_end()
        await early.send(PUBLISH)
        assert (await early.read_answer()).status == 200


async def test_one_address_has_a_bound_of_its_own_where_it_is_set() -> None:
    async with (
        running_gateway(connections_per_address_max=1) as running,
        connected(running.address),
    ):
        assert (await exchange(running.address, PUBLISH)).status == 429
        assert (await answered(running.address, "/healthz")).status == 200


@pytest.mark.system
async def test_with_few_descriptors_the_newest_are_refused_and_the_others_go_on() -> None:
    """`ulimit -n 256`: 128 connections are served, and nobody waits for an answer in vain."""
    async with (
        serving(*with_descriptors(256)) as (process, address),
        client_of(address) as remote,
    ):
        await remote.topic()
        async with contextlib.AsyncExitStack() as stack:
            wires = [await stack.enter_async_context(connected(address)) for _ in range(300)]
            answers = await asyncio.gather(*(first_event(wire) for wire in wires))
            served = [wire for wire, name in zip(wires, answers, strict=True) if name == "hello"]
            assert 100 < len(served) < 200
            assert set(answers) <= {"hello", "refused", "cut"}
            await remote.publish({"k": 1})
            for wire in served:
                await wire.read_until(b'data: {"k": 1}')
            for target in HEALTH:
                assert (await answered(address, target)).status == 200
            assert process.returncode is None
        async with streams(address, 100):
            pass
        process.terminate()
        status, logged = await ended(process)
    assert status == 0
    assert "file descriptors allow 128 connections" in logged
    assert "Traceback" not in logged


@pytest.mark.system
@pytest.mark.nightly
async def test_without_any_descriptor_left_new_connections_are_closed_at_once() -> None:
    """Something else has eaten them all: who is inside goes on, and later all is well again."""
    async with (
        serving(TIDEGATE_KEEP_ALIVE="1h") as (process, address),
        client_of(address, NEVER_IDLE) as remote,  # there will be no other connection for it
    ):
        await remote.topic()
        async with streams(address, 5) as wires:
            gateway = psutil.Process(process.pid)
            before = gateway.rlimit(psutil.RLIMIT_NOFILE)
            gateway.rlimit(psutil.RLIMIT_NOFILE, (gateway.num_fds(), before[1]))
            async with asyncio.timeout(LOOPS_S):
                for _ in range(20):
                    assert await read_all(address, request("/healthz")) == b""
            cpu_before_s = sum(gateway.cpu_times()[:2])
            await still_delivered(remote, wires)
            await asyncio.sleep(SPINS_S)
            # Of the processor's time, so that nobody else's work counts; a twentieth is usual.
            assert sum(gateway.cpu_times()[:2]) - cpu_before_s < SPINS_S / 2, "it does not spin"
            gateway.rlimit(psutil.RLIMIT_NOFILE, before)
            assert (await exchange(address, request("/healthz"))).status == 200
        process.terminate()
        status, logged = await ended(process)
    assert status == 0
    assert logged.count("file descriptors have run out") == 1
    assert "Traceback" not in logged


async def still_delivered(remote: Remote, wires: list[Wire]) -> None:
    for version in range(20):
        await remote.publish({"k": version})
        for wire in wires:
            await wire.read_until(b'data: {"k": %d}' % version)


async def first_event(wire: Wire) -> str:
    """The name of the first event that a subscriber gets; `cut` for none."""
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        await wire.send(b"GET /v1/topics/px/subscribe HTTP/1.1\r\nHost: localhost\r\n\r\n")
        line = await wire.read_until(b"\ndata: ")
        return line.rpartition(b"event: ")[2].split(b"\n")[0].decode()
    return "cut"
