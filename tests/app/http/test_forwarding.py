"""Forwarding: over HTTP, any gateway answers for the sessions of all."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.buses import BusServer
from tests.support.gateways import (
    JSON,
    Remote,
    Running,
    Stream,
    client_of,
    eventually,
    running_gateway,
)
from tests.support.rules import rule
from tests.support.servers import edge_settings, running
from tests.support.sessions import attached, opened
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.http.application import create_app

pytestmark = pytest.mark.redis
runs = itertools.count()
Reading = contextlib.AbstractAsyncContextManager[Stream]


@contextlib.asynccontextmanager
async def gateway(redis_url: str, prefix: str) -> AsyncIterator[Remote]:
    settings, bus = edge_settings(), BusConnection(redis_url, prefix)
    app = create_app(settings, bus=bus)
    farewell = app.state.gateway.say_goodbye
    async with (
        contextlib.aclosing(bus),
        running(app, settings, on_shutdown=farewell) as server,
        client_of(server.address) as remote,
    ):
        yield remote


@contextlib.asynccontextmanager
async def two_gateways(redis_url: str) -> AsyncIterator[tuple[Remote, Remote]]:
    prefix = f"elsewhere-test-{next(runs)}"
    async with gateway(redis_url, prefix) as one, gateway(redis_url, prefix) as two:
        yield one, two


async def test_every_verb_reaches_a_session_from_anywhere(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        await one.topic()
        session = await opened(one)
        path = f"/v1/sessions/{session}"
        granted = await two.http.post(f"{path}/subscriptions", json={"topic": "px"})
        assert (granted.status_code, granted.json()["sub"]) == (201, "s1")
        assert granted.headers["location"] == f"{path}/subscriptions/s1"
        shown: list[Any] = []
        for remote in (one, two):
            answers = [
                await remote.http.get(path),
                await remote.http.get(f"{path}/subscriptions"),
                await remote.http.get(f"{path}/subscriptions/s1/auto"),
                await remote.http.get(f"{path}/subscriptions/s2"),
                await remote.http.put(path),
                await remote.http.patch(f"{path}/subscriptions/s1", json={"options": "zzz=1"}),
                await remote.http.patch(path, content=b"x" * 70_000, headers=JSON),
            ]
            shown.append(
                [(each.status_code, each.json(), each.headers["content-type"]) for each in answers]
            )
        assert shown[0] == shown[1]
        assert [status for status, _, _ in shown[1]] == [200, 200, 200, 404, 405, 400, 413]
        head = await two.http.head(path)
        assert (head.status_code, head.content) == (200, b"")
        closed = await two.http.delete(path)
        assert (closed.status_code, closed.content) == (204, b"")
        assert (await one.http.get(path)).json()["reason"] == "CLOSED_BY_ADMIN"


async def test_a_stream_takes_the_session_along(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        session = await opened(one)
        async with attached(one, session) as old, attached(two, session) as new:
            [goodbye] = await old.rest()
            assert goodbye.name == "goodbye"
            assert "REPLACED" in goodbye.text
            path = f"/v1/sessions/{session}"
            assert (await one.http.get(path)).json()["state"] == "attached"
            again = await two.http.get(f"{path}/events", headers={"Last-Event-ID": goodbye.id})
            assert again.status_code == 204, "who was replaced does not come back"
            assert (await one.http.delete(path)).status_code == 204
            assert (await new.rest())[-1].name == "goodbye"
        for remote in (one, two):
            assert (await remote.http.get(f"{path}/events")).status_code == 204


async def test_a_pattern_s_stream_goes_on_at_another_gateway(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        async with one.subscribe(topic="px.*") as stream:
            session = one.hellos[-1]["session"]
        async with two.subscribe(topic="px.*", last_id=stream.last_id):
            assert two.hellos[-1]["session"] == session
        refused = await two.http.get(
            "/v1/topics/px.*/subscribe", headers={"Last-Event-ID": "gone.s1-0"}
        )
        assert (refused.status_code, refused.json()["code"]) == (404, "session-unknown")


@rule("cluster-11")
async def test_a_trace_is_had_where_the_stream_is(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        await one.topic()
        session = await opened(one, subscriptions=[{"topic": "px"}])
        path = f"/v1/sessions/{session}/subscriptions/s1/trace"
        assert (await one.http.get(path)).status_code == 200
        refused = await two.http.get(path)
        assert (refused.status_code, refused.json()["code"]) == (404, "session-unknown")
        assert "another gateway" in refused.json()["detail"]


async def test_a_list_is_of_all_gateways_page_by_page(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        ids = sorted([await opened(remote) for remote in (one, two) * 3])
        found: list[str] = []
        address = "/v1/sessions?limit=4"
        while address:
            page = (await two.http.get(address)).json()
            found += [view["session"] for view in page["sessions"]]
            address = page["next"]
            assert page["missing"] == []
        assert found == ids


@contextlib.asynccontextmanager
async def lagging(gateway: Running) -> AsyncIterator[asyncio.Event]:
    """What comes from the bus does not reach its engine until it may."""
    assert gateway.gateway.bus is not None
    follower = gateway.gateway.bus._log_reader
    assert follower is not None
    add_stored, may_go_on = follower._publish_all, asyncio.Event()

    async def held(*given: Any) -> None:
        await may_go_on.wait()
        await add_stored(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(follower, "_publish_all", held)
        yield may_go_on


@pytest.mark.parametrize("posted", [False, True])
async def test_a_reader_is_waited_with_until_what_it_has_seen_is_here(
    redis_bus: BusServer, posted: bool
) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": f"elsewhere-test-{next(runs)}"}
    async with running_gateway(**shared) as one, running_gateway(**shared) as two:
        await one.topic(key=())
        catalog = two.gateway.catalog
        await eventually(lambda: catalog.find("px") is not None, "the topic is known")
        stack = contextlib.AsyncExitStack()
        async with lagging(two) as may_go_on, stack:
            target = {"topic": "px"}
            session = await opened(one, subscriptions=[target]) if posted else ""

            def read(remote: Remote, last_id: str = "") -> Reading:
                if posted:
                    return attached(remote, session, last_id)
                return remote.subscribe(last_id=last_id)

            async with read(one) as stream:
                await one.publish(1, 2)
                await stream.until("message")
                if not posted:
                    await stream.until("message")
            coming = asyncio.create_task(stack.enter_async_context(read(two, stream.last_id)))
            arrivals = two.gateway.arrivals
            await eventually(lambda: bool(arrivals._waiters), "the reader is waited with")
            may_go_on.set()
            back = await coming
            assert '"replay"' in (await back.until("resumed"))[-1].text
            await two.publish(3)
            [message] = await back.until("message")
            assert "3" in message.text


async def test_operations_tell_which_gateway_answered(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        ids = set()
        for remote in (one, two):
            session = await opened(remote)
            for path in ("/healthz", "/readyz", "/metrics"):
                answer = await remote.http.get(path)
                assert answer.headers["tidegate-gateway"] == session.partition(".")[0]
            ids.add(session.partition(".")[0])
            assert "tidegate-gateway" not in (await remote.http.get("/v1/sessions")).headers
        assert len(ids) == 2


async def test_a_gateway_that_is_not_ready_names_itself(redis_bus: BusServer) -> None:
    shared = {"redis": redis_bus.url, "redis_prefix": f"elsewhere-test-{next(runs)}"}
    async with running_gateway(**shared) as one:
        gateway_id = (await one.http.get("/readyz")).headers["tidegate-gateway"]
        one.gateway.say_goodbye()
        answer = await one.http.get("/readyz")
        assert (answer.status_code, answer.headers["tidegate-gateway"]) == (503, gateway_id)


async def test_a_stream_tells_which_gateway_serves_it_also_after_a_move(redis_url: str) -> None:
    async with two_gateways(redis_url) as (one, two):
        await one.topic()
        await two.topic()
        session = await opened(one)
        ids = [(await each.http.get("/healthz")).headers["tidegate-gateway"] for each in (one, two)]
        assert session.startswith(f"{ids[0]}.")
        for path in (f"/v1/sessions/{session}/events", "/v1/topics/px/subscribe"):
            for remote, gateway_id in zip((one, two), ids, strict=True):
                for coding in ("identity", "gzip"):
                    headers = {"Accept": "text/event-stream", "Accept-Encoding": coding}
                    async with remote.http.stream("GET", path, headers=headers) as answer:
                        assert answer.headers.get_list("tidegate-gateway") == [gateway_id]


@pytest.mark.parametrize("path", ["/v1/sessions/", "/v1/sessions/a.b.c", "/v1/sessions/gone.s1"])
async def test_what_is_no_session_is_unknown(redis_url: str, path: str) -> None:
    async with two_gateways(redis_url) as (one, _):
        answer = await one.http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "session-unknown") or (
            path.endswith("/") and answer.json()["code"] == "not-found"
        )
        changed = await one.http.patch("/v1/sessions/gone.s1", json={"conflated": False})
        assert (changed.status_code, changed.json()["code"]) == (404, "session-unknown")
