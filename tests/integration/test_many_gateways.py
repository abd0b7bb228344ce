"""Several gateways, each a process, on one Redis: sessions from anywhere, deaths, workers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.buses import BusServer
from tests.support.children import ended, runs, serving
from tests.support.clocks.stopwatch import Stopwatch
from tests.support.deadlines import HANGS_S, LOOPS_S
from tests.support.gateways import Remote, Stream, client_of, eventually
from tests.support.rules import rule
from tests.support.sessions import Follower, attached, opened, subscribed
from tests.support.tokens import public_jwk, token_of, write_keys

pytestmark = [pytest.mark.redis, pytest.mark.system]

PREFIXES = (f"many-{number}" for number in itertools.count())
STOP_S_MAX = 30.0
"""Three seconds are promised, and test_frozen_clients.py measures them: here it is no hang."""


class Child(Remote):
    """A gateway that is a process, which may be killed."""

    def __init__(self, process: Process, remote: Remote) -> None:
        super().__init__(remote.address, remote.http)
        self.process = process

    async def kill(self) -> None:
        """As `kill -9` does it."""
        self.process.kill()
        await self.process.wait()

    async def knows(self, topic: str = "px") -> None:
        """Wait until a topic that another gateway has made is known here."""
        async with asyncio.timeout(LOOPS_S):
            while (await self.http.get(f"/v1/topics/{topic}")).status_code != 200:
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def gateways(
    server: BusServer, count: int = 2, **variables: str
) -> AsyncIterator[list[Child]]:
    """So many processes that share what no other test sees."""
    shared = {"TIDEGATE_REDIS": server.url, "TIDEGATE_REDIS_PREFIX": next(PREFIXES), **variables}
    async with contextlib.AsyncExitStack() as stack:
        started = [stack.enter_async_context(serving(**shared)) for _ in range(count)]
        made = []
        for process, address in [await each for each in started]:
            remote = await stack.enter_async_context(client_of(address))
            made.append(Child(process, remote))
        yield made


async def listed(remote: Remote) -> dict[str, Any]:
    answer = await remote.http.get("/v1/sessions")
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


async def event_of(stream: Stream, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await stream.until(name))[-1].text)
    return found


async def test_a_session_is_served_by_both_and_misses_nothing(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (a, b):
        await a.topic()
        session = await opened(a)
        await subscribed(b, session, topic="px", options="conflation=20ms")
        await subscribed(b, session, topic="px", command="subscribe")
        follower = Follower()
        async with attached(b, session) as stream:
            await a.publish({"k": 1, "v": 1}, {"k": 2, "v": 1})
            await follower.follow(stream, s1=2, s2=2)
            changed = await a.http.patch(
                f"/v1/sessions/{session}/subscriptions/s1", json={"conflation": "50ms"}
            )
            assert changed.status_code == 200, changed.text
            assert (await event_of(stream, "conflation"))["to"] == "50ms"
            for remote in (a, b):
                [view] = (await listed(remote))["sessions"]
                assert (view["session"], view["state"]) == (session, "attached")
            seen = stream.last_id
        await b.publish({"k": 1, "v": 2}, {"k": 1, "v": 3})
        follower = Follower()
        async with attached(a, session, seen) as stream:
            await follower.follow(stream, s1=1, s2=2)
            assert sorted(each["mode"] for each in follower.resumed) == ["changes", "replay"]
            assert [row["v"] for row in follower.values("s1")] == [3]
            assert [row["v"] for row in follower.values("s2")] == [2, 3]
            closed = await b.http.delete(f"/v1/sessions/{session}")
            assert closed.status_code == 204
            assert (await event_of(stream, "goodbye"))["reason"] == "CLOSED_BY_ADMIN"
        assert (await listed(a))["sessions"] == []


@rule("cluster-9")
async def test_a_gateway_that_is_killed_takes_its_sessions_along(redis_bus: BusServer) -> None:
    """A POSTed one is unknown; a plain GET goes on by its bookmark."""
    async with gateways(redis_bus) as (a, b):
        await a.topic()
        await b.knows()
        session = await opened(a, subscriptions=[{"topic": "px"}])
        async with attached(a, session), a.subscribe("conflation=10ms") as plain:
            await plain.until("group_end")
            await a.publish({"k": 1, "v": 1})
            assert await plain.values(1) == [{"k": 1, "v": 1}]
            seen = plain.last_id
            await a.kill()
        await b.publish({"k": 2, "v": 2})
        async with b.subscribe("conflation=10ms", last_id=seen) as plain:
            assert (await event_of(plain, "resumed"))["mode"] == "changes"
            assert await plain.values(1) == [{"k": 2, "v": 2}]
        codes = set()
        async with asyncio.timeout(LOOPS_S):
            while "session-unknown" not in codes:
                answer = await b.http.get(f"/v1/sessions/{session}")
                codes.add(answer.json()["code"])
        assert codes <= {"bus-unavailable", "session-unknown"}
        events = await b.http.get(f"/v1/sessions/{session}/events")
        assert (events.status_code, events.json()["code"]) == (404, "session-unknown")
        assert (await listed(b))["missing"] == []


async def test_a_gateway_that_stops_leaves_its_sessions_to_the_other(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (a, b):
        await a.topic()
        await b.knows()
        session = await opened(a, subscriptions=[{"topic": "px", "command": "subscribe"}])
        async with attached(a, session) as stream:
            await a.publish({"k": 1})
            await Follower().follow(stream, s1=1)
            with Stopwatch(a.process.pid) as watch:
                a.process.terminate()
                assert (await event_of(stream, "goodbye"))["reason"] == "SHUTDOWN"
                seen = stream.last_id
                assert (await ended(a.process))[0] == 0
        assert watch.taken_s < STOP_S_MAX
        await b.publish({"k": 2})
        follower = Follower()
        async with attached(b, session, seen) as stream:
            await follower.follow(stream, s1=1)
        assert follower.values("s1") == [{"k": 2}]
        assert follower.resumed[0]["closed"] == "SHUTDOWN"


@pytest.mark.nightly  # tests/app/cluster/test_peers.py does so within a process
async def test_a_list_names_who_does_not_answer(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (a, b):
        session, other = await opened(a), await opened(b)
        a.process.send_signal(signal.SIGSTOP)
        page = await listed(b)
        assert [view["session"] for view in page["sessions"]] == [other]
        assert page["missing"] == [session.partition(".")[0]]
        answer = await b.http.patch(f"/v1/sessions/{session}", json={"conflated": False})
        assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
        a.process.send_signal(signal.SIGCONT)
        async with asyncio.timeout(LOOPS_S):
            while (await listed(b))["missing"]:
                await asyncio.sleep(0.05)
        view = (await b.http.get(f"/v1/sessions/{session}")).json()
        assert view["conflated"], "who was asked too late did not heed it"


@pytest.mark.nightly
async def test_while_the_bus_is_out_streams_get_its_status(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (a, b):
        session = await opened(a)
        redis_bus.kill()
        try:
            answer = await b.http.get(f"/v1/sessions/{session}")
            assert (answer.status_code, answer.json()["code"]) == (503, "bus-unavailable")
            events = await b.http.get(f"/v1/sessions/{session}/events")
            assert (events.status_code, "event: refused" in events.text) == (200, True)
            assert (await a.http.get(f"/v1/sessions/{session}")).status_code == 200
        finally:
            redis_bus.start()
        async with asyncio.timeout(LOOPS_S):
            while (await b.http.get(f"/v1/sessions/{session}")).status_code != 200:
                await asyncio.sleep(0.05)


# Workers


async def who(address: str) -> str:
    """Which gateway a new connection comes to."""
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=HANGS_S) as http:
        return str((await http.get("/readyz")).headers["tidegate-gateway"])


async def all_of(address: str, count: int) -> set[str]:
    """The gateways at an address, once so many have answered."""
    found: set[str] = set()
    async with asyncio.timeout(LOOPS_S):
        while len(found) < count:
            with contextlib.suppress(httpx2.TransportError):
                found.add(await who(address))
    return found


async def workers_up(address: str) -> dict[str, float]:
    """What one scrape, of whichever worker, says of all of them."""
    async with httpx2.AsyncClient(base_url=address, trust_env=False, timeout=HANGS_S) as http:
        text = (await http.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    ready = {sample.labels["worker"] for sample in families["tidegate_ready"].samples}
    up = {it.labels["worker"]: it.value for it in families["tidegate_worker_up"].samples}
    assert ready == {worker for worker, is_up in up.items() if is_up}
    return up


async def all_up(address: str) -> None:
    """Wait for a scrape to which both workers have answered in time."""
    async with asyncio.timeout(LOOPS_S):
        while await workers_up(address) != {"1": 1.0, "2": 1.0}:
            await asyncio.sleep(0.05)


@pytest.mark.nightly
async def test_two_workers_are_one_address(redis_bus: BusServer) -> None:
    async with gateways(redis_bus, 1, TIDEGATE_WORKERS="2") as [both]:
        ids = await all_of(both.address, 2)
        await both.topic()
        session = await opened(both)
        for _ in range(10):
            async with client_of(both.address) as remote:
                answer = await remote.http.get(f"/v1/sessions/{session}")
                assert answer.status_code == 200
                page = await listed(remote)
                assert [view["session"] for view in page["sessions"]] == [session]
        await all_up(both.address)
        workers = psutil.Process(both.process.pid).children()
        workers[0].send_signal(signal.SIGKILL)
        assert len(await all_of(both.address, 2) | ids) >= 2
        async with asyncio.timeout(LOOPS_S):
            while (await who(both.address)) in ids:
                await asyncio.sleep(0)
        await all_up(both.address)
        with Stopwatch(both.process.pid) as watch:
            both.process.terminate()
            status, logged = await ended(both.process)
        assert (status, watch.taken_s < STOP_S_MAX) == (0, True)
        assert re.search(r"worker \d exited with status -9; restarting", logged)


@pytest.mark.nightly  # tests/app/cluster/test_workers.py does so without Redis
async def test_workers_whose_parent_is_killed_stop(redis_bus: BusServer) -> None:
    async with gateways(redis_bus, 1, TIDEGATE_WORKERS="2") as [both]:
        workers = psutil.Process(both.process.pid).children()
        os.kill(both.process.pid, signal.SIGKILL)
        assert len(workers) == 2
        await eventually(lambda: not any(map(runs, workers)), "both have stopped")


@rule("access-6")
@pytest.mark.nightly
async def test_a_session_moves_to_another_gateway_with_its_owner_only(
    redis_bus: BusServer, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    root, ann = token_of("root", "read,write,admin >"), token_of("ann", "read prices.>")
    eve = token_of("eve", "read,admin,write >")
    async with gateways(redis_bus, TIDEGATE_AUTH_KEYS=keys) as (one, two):
        for topic in ("prices.eu", "secret"):
            body = {"key": ["/k"]}
            answer = await one.http.put(f"/v1/topics/{topic}", json=body, headers=root)
            assert answer.status_code == 201, answer.text
            message = {"k": f"in {topic}"}
            await one.http.post(f"/v1/topics/{topic}/messages", json=message, headers=root)
        async with asyncio.timeout(LOOPS_S):
            while (await two.http.get("/v1/topics/secret", headers=root)).status_code != 200:
                await asyncio.sleep(0.01)
        asked = {"subscriptions": [{"topic": ">"}]}
        opening = await one.http.post("/v1/sessions", json=asked, headers=ann)
        at, events = opening.headers["location"], opening.json()["events"]
        # Asked at the other gateway, which forwards it.
        assert (await two.http.get(at, headers=ann)).status_code == 200
        assert (await two.http.get(at, headers=eve)).json()["code"] == "session-unknown"
        assert (await two.http.get(at)).status_code == 401
        assert (await two.http.get("/v1/sessions", headers=eve)).json()["sessions"] == []
        assert len((await two.http.get("/v1/sessions", headers=ann)).json()["sessions"]) == 1
        async with two.http.stream("GET", events, headers=ann) as answer:
            assert answer.status_code == 200
            stream = Stream(answer)
            await stream.until("group_end")
            await two.http.put("/v1/topics/secret.two", json={"key": ["/k"]}, headers=root)
            await two.http.put("/v1/topics/prices.us", json={"key": ["/k"]}, headers=root)
            await stream.until("subscribed")
            assert b"in prices.eu" in stream.raw
            assert b"secret" not in stream.raw
        assert (await one.http.get(events, headers=eve)).json()["code"] == "session-unknown"
