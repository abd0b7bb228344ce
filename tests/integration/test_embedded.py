"""An embedded topic under real servers: streams, resumes, readers that stop, the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from dev import ROOT
from tests.docs.site import block_run_by
from tests.support import leftovers
from tests.support.commands import environment
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Stream
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tests.support.wire import connected

pytestmark = pytest.mark.system

APP = "tests.support.embedded_app:app"
SERVERS = {
    "uvicorn": ("--port", "{port}", APP),
    "hypercorn": ("--bind", "127.0.0.1:{port}", APP),
    "granian": (
        *("--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}"),
        *("--workers-kill-timeout", "1", APP),  # it waits for open streams else
    ),
}
PROGRAM = "hypercorn, by the program of docs/embedding.md"
MIB = 1 << 20
PUBLISHED_BYTES = 80 * MIB
STOPPED_BYTES = 24 * MIB
"""More than a reader that stops may cost: its queue, a write of a MiB, and copies of the server."""

on_each_server = pytest.mark.parametrize(
    "server",
    [
        "uvicorn",
        pytest.param("hypercorn", marks=pytest.mark.nightly),
        pytest.param("granian", marks=pytest.mark.nightly),
    ],
)


class Service:
    """The application, served by a process of its own."""

    def __init__(self, address: str, http: httpx2.AsyncClient, process: subprocess.Popen[str]):
        self.address = address
        self.http = http
        self.process = process

    async def publish(self, *messages: dict[str, Any]) -> str:
        answer = await self.http.post("/prices", content=json.dumps(messages))
        assert answer.status_code == 200, answer.text
        return str(answer.json())

    @contextlib.asynccontextmanager
    async def reading(self, last_id: str = "", **asked: str) -> AsyncIterator[Stream]:
        headers = {"Last-Event-ID": last_id} if last_id else {}
        async with self.http.stream("GET", "/prices", params=asked, headers=headers) as answer:
            assert answer.status_code == 200, await answer.aread()
            yield Stream(answer)

    async def state(self) -> dict[str, int]:
        state: dict[str, int] = (await self.http.get("/state")).json()
        return state

    async def until_readers(self, count: int) -> None:
        async with asyncio.timeout(HANGS_S):
            while (await self.state())["readers"] != count:
                await asyncio.sleep(0.05)


@contextlib.asynccontextmanager
async def service(server: str) -> AsyncIterator[Service]:
    port = lasting_port()
    if server == PROGRAM:
        words = ["-c", block_run_by(__file__).text.replace("8001", str(port))]
    else:
        words = ["-m", server, *(word.format(port=port) for word in SERVERS[server])]
    process = subprocess.Popen(
        [sys.executable, *words],
        cwd=ROOT / "examples/embedded",
        env=environment(),
        process_group=0,
        text=True,
    )
    leftovers.watch(process)
    address = f"http://127.0.0.1:{port}"
    headers = {"Accept-Encoding": "identity"}
    async with httpx2.AsyncClient(
        base_url=address, trust_env=False, timeout=HANGS_S, headers=headers
    ) as http:
        try:
            await until_it_answers(http, process)
            yield Service(address, http, process)
        finally:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, HANGS_S)


async def until_it_answers(http: httpx2.AsyncClient, process: subprocess.Popen[str]) -> None:
    async with asyncio.timeout(HANGS_S):
        while True:
            with contextlib.suppress(httpx2.TransportError):
                await http.get("/state")
                return
            assert process.poll() is None, "the server has ended"
            await asyncio.sleep(0.05)


@on_each_server
async def test_a_stream_conflates_and_is_resumed_by_its_last_id(server: str) -> None:
    async with service(server) as here:
        await here.publish({"symbol": "a", "price": 0})
        async with here.reading(options="conflation=100ms") as stream:
            await stream.until("group_end")
            for price in range(1, 51):
                await here.publish({"symbol": "a", "price": price})
            events = [await stream.next()]
            while json.loads(events[-1].text)["price"] < 50:
                events.append(await stream.next())
            assert len(events) < 50
            await stream.raw_until(b": heartbeat\n\n")
        await here.until_readers(0)
        await here.publish({"symbol": "b", "price": 1})
        async with here.reading(stream.last_id, options="conflation=100ms") as stream:
            [*_, resumed, row] = await stream.until("message")
        assert json.loads(resumed.text)["mode"] == "changes"
        assert json.loads(row.text) == {"symbol": "b", "price": 1}


@on_each_server
async def test_a_refusal_is_a_problem(server: str) -> None:
    async with service(server) as here:
        answer = await here.http.get("/prices", params={"options": "conflation=fast"})
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["position"] == 11


@rule("embed-2")
@on_each_server
@pytest.mark.parametrize(
    "options", ["conflation=50ms", pytest.param("conflation=none", marks=pytest.mark.nightly)]
)
async def test_a_reader_that_stops_costs_little_and_is_forgotten(server: str, options: str) -> None:
    async with service(server) as here:
        before = await published(here, PUBLISHED_BYTES // 4)  # the interpreter keeps what it got
        async with connected(here.address) as wire:
            target = f"/prices?options={options}"
            await wire.send(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            await wire.read_until(b"event: hello")
            wire.freeze()
            most = await published(here, PUBLISHED_BYTES)
            await here.until_readers(0)
        assert most - before < STOPPED_BYTES


async def published(here: Service, size_bytes: int) -> int:
    """Publish so many bytes, in messages of ten keys; return the most memory that was used."""
    large, most = "x" * 100_000, 0
    for price in range(size_bytes // len(large) // 10):
        await here.publish(*({"symbol": it, "price": price, "pad": large} for it in "abcdefghij"))
        most = max(most, (await here.state())["bytes"])
    return most


@on_each_server
async def test_a_stopped_server_ends_its_streams(server: str) -> None:
    async with service(server) as here, here.reading(options="conflation=1s") as stream:
        await stream.until("group_end")
        here.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(httpx2.TransportError):
            rest = await stream.rest()
            if server == "uvicorn":
                assert rest[-1].name == "goodbye"
        await asyncio.to_thread(here.process.wait, HANGS_S)


async def test_close_before_the_server_stops_says_goodbye() -> None:
    async with service(PROGRAM) as here, here.reading(options="conflation=1s") as stream:
        await stream.until("group_end")
        here.process.send_signal(signal.SIGTERM)
        assert (await stream.rest())[-1].name == "goodbye"
        assert await asyncio.to_thread(here.process.wait, HANGS_S) == 0
