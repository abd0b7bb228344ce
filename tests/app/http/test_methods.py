"""HEAD is answered as GET would be; Allow names every method of a path."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.gateways import Running, running_gateway
from tests.support.wire import connected, get

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(name="running", scope="module", loop_scope="module")
async def running_fixture() -> AsyncIterator[Running]:
    async with running_gateway() as running:
        await running.topic()
        yield running


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/v1/topics", "/v1/topics/px", "/metrics"])
async def test_head_has_the_header_of_get_and_no_body(running: Running, path: str) -> None:
    head, get = await running.http.head(path), await running.http.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == get.headers["content-type"]


async def test_head_opens_no_stream(running: Running) -> None:
    answer = await running.http.head("/v1/topics/px/subscribe")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")
    session = (await running.http.post("/v1/sessions")).json()["session"]
    answer = await running.http.head(f"/v1/sessions/{session}/events")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    assert running.gateway.driver.engine.stats().sessions == 0


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/topics/px", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/v1/topics/px/messages", "GET, HEAD, POST"),
        ("/v1/topics/px/sow", "DELETE, GET, HEAD"),
        ("/v1/topics/px/subscribe", "GET, POST"),
        ("/v1/sessions", "GET, HEAD, POST"),
        ("/v1/sessions/abc", "DELETE, GET, HEAD, PATCH"),
        ("/v1/sessions/abc/events", "GET"),
        ("/healthz", "GET, HEAD"),
        ("/static/style.css", "GET, HEAD"),
        ("/client/nosuch.js", "GET, HEAD"),
    ],
)
async def test_allow_names_every_method_of_the_path(
    running: Running, path: str, allowed: str
) -> None:
    answer = await running.http.request("TRACE", path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


@pytest.mark.parametrize("name", ["subscribe", "events", "trace", "stream"])
async def test_a_topic_may_be_called_as_streams_are(running: Running, name: str) -> None:
    await running.topic(name)
    path = f"/v1/topics/{name}"
    head = await running.http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    answer = await running.http.request("TRACE", path)
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH, PUT"
    # A page of another origin may ask, as for any topic: the browser keeps the answer.
    answer = await running.http.get(path, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 200
    async with connected(running.address) as wire:
        await wire.send(get(first=f"GET {path} HTTP/1.1".encode()))
        wire.writer.write_eof()
        assert (await wire.read_answer()).status == 200
