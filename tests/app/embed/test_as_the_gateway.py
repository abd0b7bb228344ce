"""An embedded topic sends what the gateway sends: the same calls and options, the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pytest

from tests.support.asgi import request_of, scope_of, served
from tests.support.gateways import Running, Stream, eventually, running_gateway
from tests.support.rules import rule
from tidegate.embed import ConflatedTopic, TopicLimits

HEARTBEAT_S = 5
SESSION = re.compile(rb'"session":"[^"]*"')
RETRY = re.compile(rb"retry: \d+")


class Here(Protocol):
    """A topic of prices, embedded or at a gateway."""

    async def publish(self, *messages: Any) -> None: ...
    async def remove(self, symbol: str) -> None: ...
    def reading(
        self, last_id: str = "", **asked: str
    ) -> contextlib.AbstractAsyncContextManager[Callable[[], bytes]]: ...


class Embedded:
    """The topic in this process."""

    def __init__(self, **fields: Any) -> None:
        limits = TopicLimits(heartbeat_s=HEARTBEAT_S)
        self.topic = ConflatedTopic(key=["/symbol"], name="prices", limits=limits, **fields)

    async def publish(self, *messages: Any) -> None:
        await self.topic.publish(*map(text_of, messages))

    async def remove(self, symbol: str) -> None:
        await self.topic.remove(symbol)

    @contextlib.asynccontextmanager
    async def reading(self, last_id: str = "", **asked: str) -> AsyncIterator[Callable[[], bytes]]:
        headers = {"last_event_id": last_id} if last_id else {}
        response = self.topic.response(request_of(**headers), **asked)
        async with served(response, scope_of()) as answer:
            await opened(lambda: answer.raw)
            yield lambda: bytes(answer.raw)


class AtGateway:
    """The topic at a gateway, over its own HTTP."""

    def __init__(self, running: Running) -> None:
        self.running = running

    async def publish(self, *messages: Any) -> None:
        await self.running.publish_lines(b"\n".join(map(text_of, messages)), topic="prices")

    async def remove(self, symbol: str) -> None:
        path, wanted = "/v1/topics/prices/sow", {"filter": f"/symbol = '{symbol}'"}
        answer = await self.running.http.delete(path, params=wanted)
        assert answer.status_code == 200, answer.text

    @contextlib.asynccontextmanager
    async def reading(self, last_id: str = "", **asked: str) -> AsyncIterator[Callable[[], bytes]]:
        async with self.running.subscribe(topic="prices", last_id=last_id, **asked) as stream:
            reading = asyncio.create_task(read(stream))
            await opened(lambda: stream.raw)
            try:
                yield lambda: bytes(stream.raw)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)


async def read(stream: Stream) -> None:
    while True:
        await stream.next()


async def opened(raw: Callable[[], bytes | bytearray]) -> None:
    await eventually(lambda: b"event: hello" in raw(), "hello")
    await asyncio.sleep(0.01)


def text_of(message: Any) -> bytes:
    return json.dumps(message).encode()


def price(symbol: str, number: int, **more: object) -> dict[str, object]:
    return {"symbol": symbol, "price": number, **more}


async def plain(here: Here, asked: dict[str, str]) -> list[bytes]:
    """A reader from the beginning, while the topic is quiet, changes, and is quiet again."""
    await here.publish(price("a", 1), price("b", 1), price("c", 1))
    async with here.reading(**asked) as received:
        for number in range(2, 30):
            await here.publish(price("a", number), price("b", 30 - number, old=number))
            await asyncio.sleep(0.1)
        await here.remove("b")
        await asyncio.sleep(0.01)  # two requests of HTTP are never written as one
        await here.publish(price("d", 1))
        await asyncio.sleep(2 * HEARTBEAT_S + 1)
        return [received()]


async def returning(here: Here, asked: dict[str, str]) -> list[bytes]:
    """A reader that leaves twice, and comes back with its last id."""
    await here.publish(price("a", 1), price("b", 1))
    parts, last_id = [], ""
    for round_number in range(3):
        async with here.reading(last_id, **asked) as received:
            await here.publish(price("a", 10 * round_number))
            await asyncio.sleep(2)
            parts.append(received())
        ids = re.findall(rb"^id: (\S+)$", parts[-1], re.MULTILINE)
        last_id = ids[-1].decode()
        await here.publish(price("b", round_number), price("c", round_number))
        if round_number == 1:
            await here.remove("a")
        await asyncio.sleep(0.01)
    return parts


class Case(NamedTuple):
    """What is played with which options to a topic of these fields."""

    play: Callable[[Here, dict[str, str]], Awaitable[list[bytes]]]
    asked: dict[str, str]
    fields: Mapping[str, Any] = MappingProxyType({})

    @property
    def id(self) -> str:
        """The name of the case."""
        return f"{self.play.__name__} {dict(self.asked)} {dict(self.fields)}"


CASES = [
    *(
        Case(plain, {"options": options})
        for options in (
            "conflation=1s",
            "conflation=none",
            "conflation=500ms,pace=key,oof",
            "conflation=1s,edge=leading",
            "conflation=1s,oof,receipt",
            "conflation=1s,top_n=2,oof",
            "conflation=1s,progress",
            "conflation=1s,reduce=[/price:sum]",
            "conflation=1s,conflation_key=[/old]",
            "conflation=1s,max_age=5s",
            "conflation=auto,min=200ms",
            "conflation=2s,select=[-/,+/symbol]",
        )
    ),
    Case(plain, {"options": "conflation=1s,oof", "filter": "/price > 10"}),
    Case(plain, {"options": "conflation=1s", "command": "sow_and_delta_subscribe"}),
    Case(plain, {"options": "conflation=1s,grouping=[/symbol],projection=[COUNT(/price) AS /n]"}),
    Case(plain, {"options": "conflation=1s,top_n=2", "order_by": "/price DESC"}),
    Case(plain, {"options": "conflation=1s", "format": "batch"}),
    Case(plain, {"options": "conflation=none,oof", "format": "envelope"}),
    Case(plain, {"options": "conflation=none", "command": "subscribe"}),
    Case(plain, {"command": "sow", "order_by": "/symbol DESC"}),
    Case(plain, {}, {"options": "conflation=2s,oof"}),
    Case(plain, {"options": "conflation=1s"}, {"merge": {"/price": "sum"}}),
    Case(plain, {"options": "conflation=1s,oof"}, {"expiration": "1s"}),
    Case(returning, {"options": "conflation=1s,oof"}),
    Case(returning, {"options": "conflation=none"}),
    Case(returning, {"options": "bookmark=epoch,conflation=1s"}),
    Case(returning, {"options": "conflation=1s,top_n=2,oof"}),
]


@rule("embed-1")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_an_embedded_topic_sends_what_the_gateway_sends(case: Case) -> None:
    embedded = Embedded(**case.fields)
    found = await case.play(embedded, case.asked)
    async with running_gateway(heartbeat=f"{HEARTBEAT_S}s") as running:
        await running.topic("prices", ("/symbol",), **case.fields)
        wanted = await case.play(AtGateway(running), case.asked)
        gateway_epoch = running.gateway.catalog.get("prices").record.epoch
    assert all(found)
    epoch = embedded.topic._driven.topic.epoch
    sent = [event for part in found for event in alike(part, epoch)]
    expected = [event for part in wanted for event in alike(part, gateway_epoch)]
    for number, (one, other) in enumerate(zip(sent, expected, strict=False)):
        assert one == other, f"event {number}"
    assert len(sent) == len(expected)


def alike(raw: bytes, epoch: str) -> list[bytes]:
    """The events, without what each process draws for itself: epoch, session and times."""
    raw = RETRY.sub(b"retry: 0", SESSION.sub(b'"session":""', raw))
    raw = re.sub(rb'"gap_ms":\d+', b'"gap_ms":0', raw.replace(epoch.encode(), b"epoch"))
    raw = re.sub(rb'"age_ms":\d+', b'"age_ms":0', raw)
    return raw.split(b"\n\n")


@rule("embed-1")
async def test_a_stream_that_both_refuse_has_the_same_problem() -> None:
    asked = {"options": "conflation=1s,oof,oof"}
    async with served(
        ConflatedTopic(key=["/symbol"]).response(request_of(), **asked), scope_of()
    ) as found:
        await eventually(lambda: found.is_over, "the answer is whole")
    async with running_gateway() as running:
        await running.topic("prices", ("/symbol",))
        wanted = await running.http.get("/v1/topics/prices/subscribe", params=asked)
    assert (found.status, json.loads(found.raw)) == (wanted.status_code, wanted.json())
    assert found.headers["content-type"] == wanted.headers["content-type"]


async def test_the_header_of_a_stream_is_that_of_the_gateway() -> None:
    response = ConflatedTopic(key=["/symbol"]).response(request_of())
    async with served(response, scope_of()) as found:
        await found.until(b"event: group_end")
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe() as stream:
            wanted = dict(stream.answer.headers)
    names = ("content-type", "cache-control", "vary", "x-accel-buffering")
    assert {name: found.headers[name] for name in names} == {name: wanted[name] for name in names}
