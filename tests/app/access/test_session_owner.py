"""Only the owner of a session may use it, at every gateway."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.gateways import Remote, Stream, client_of
from tests.support.rules import rule
from tests.support.servers import edge_settings, running
from tests.support.tokens import public_jwk, token_of, write_keys
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.http.application import create_app

pytestmark = pytest.mark.redis
runs = itertools.count()

ANN = token_of("ann", "read,write,admin >")
EVE = token_of("eve", "read,write,admin >")
OBSERVER = token_of("obi", "observe >")
OWNERS: list[tuple[str, str, Any]] = [
    ("PATCH", "", {"conflated": False}),
    ("DELETE", "", None),
    ("GET", "/events", None),
    ("POST", "/subscriptions", {"topic": "px"}),
    ("PATCH", "/subscriptions/s1", {"paused": True}),
    ("DELETE", "/subscriptions/s1", None),
]
VIEWERS: list[tuple[str, str, Any]] = [
    ("GET", "", None),
    ("GET", "/subscriptions", None),
    ("GET", "/subscriptions/s1", None),
    ("GET", "/subscriptions/s1/auto", None),
]


@contextlib.asynccontextmanager
async def gateway(redis_url: str, prefix: str, keys: str) -> AsyncIterator[Remote]:
    settings, bus = edge_settings(auth_keys=keys), BusConnection(redis_url, prefix)
    app = create_app(settings, bus=bus)
    farewell = app.state.gateway.say_goodbye
    async with (
        contextlib.aclosing(bus),
        running(app, settings, on_shutdown=farewell) as server,
        client_of(server.address) as remote,
    ):
        # The gateways share sessions and no topics.
        answer = await remote.http.put("/v1/topics/px", json={"key": ["/k"]}, headers=ANN)
        assert answer.status_code == 201, answer.text
        yield remote


async def opened(remote: Remote) -> str:
    """The address of a new session of Ann's."""
    asked = {"subscriptions": [{"topic": "px", "options": "conflation=auto"}]}
    answer = await remote.http.post("/v1/sessions", json=asked, headers=ANN)
    assert answer.status_code == 201, answer.text
    return answer.headers["location"]


async def code(remote: Remote, headers: Any, method: str, path: str, body: Any = None) -> str:
    answer = await remote.http.request(method, path, headers=headers, json=body)
    return str(answer.status_code if answer.status_code < 400 else answer.json()["code"])


@rule("access-6")
async def test_a_session_that_a_stopped_gateway_left_is_its_owner_s(
    redis_url: str, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    prefix = f"owner-test-{next(runs)}"
    strangers = [*((EVE, route) for route in OWNERS + VIEWERS), *((OBSERVER, it) for it in OWNERS)]
    async with gateway(redis_url, prefix, keys) as two:
        async with gateway(redis_url, prefix, keys) as one:
            left = [await opened(one) for _ in strangers]
            observed = [await opened(one) for _ in VIEWERS]
        for at, (stranger, (method, path, body)) in zip(left, strangers, strict=True):
            # Twice: the first request brings the session here, the second finds it.
            for _ in range(2):
                answer = await code(two, stranger, method, at + path, body)
                assert answer == "session-unknown", (method, path)
            shown = (await two.http.get(at, headers=ANN)).json()
            assert (shown["session"], shown["conflated"]) == (at.rpartition("/")[2], True)
            assert [each["sub"] for each in shown["subscriptions"]] == ["s1"]
        for at, (method, path, _) in zip(observed, VIEWERS, strict=True):
            assert await code(two, OBSERVER, method, at + path) == "200", path


@rule("access-6")
async def test_nobody_else_ends_a_stream_through_another_gateway(
    redis_url: str, tmp_path: Path
) -> None:
    keys = write_keys(tmp_path / "keys.json", public_jwk("HS256"))
    prefix = f"owner-test-{next(runs)}"
    async with (
        gateway(redis_url, prefix, keys) as one,
        gateway(redis_url, prefix, keys) as two,
    ):
        at = await opened(one)
        async with (
            one.http.stream("GET", f"{at}/events", headers=ANN) as session,
            one.http.stream("GET", "/v1/topics/*/subscribe", headers=ANN) as pattern,
        ):
            streams = Stream(session), Stream(pattern)
            for stream in streams:
                await stream.until("hello")
            name = streams[1].last_id.rpartition("-")[0]
            again = {**EVE, "Last-Event-ID": streams[1].last_id}
            for stranger in (EVE, OBSERVER):
                path = f"{at}/events"
                assert await code(two, stranger, "GET", path) == "session-unknown"
                path = f"/v1/sessions/{name}/events"
                assert await code(two, stranger, "GET", path) == "session-unknown"
            path = "/v1/topics/*/subscribe"
            assert await code(two, again, "GET", path) == "session-unknown"
            await one.http.post("/v1/topics/px/messages", json={"k": 1}, headers=ANN)
            for stream in streams:
                assert not {"goodbye"} & {it.name for it in await stream.until("message")}
        async with two.http.stream("GET", f"{at}/events", headers=ANN) as session:
            assert session.status_code == 200, "its owner may move it"
