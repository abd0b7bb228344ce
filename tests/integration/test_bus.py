"""Several gateways on one bus: what one takes in all have, and who subscribes may be anywhere."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.buses import BusServer
from tests.support.gateways import Running, Stream, eventually, running_gateway

pytestmark = pytest.mark.redis

PREFIXES = (f"bus-{number}" for number in itertools.count())


@contextlib.asynccontextmanager
async def gateways(server: BusServer, count: int = 2, **given: Any) -> AsyncIterator[list[Running]]:
    """So many gateways that share what no other test sees."""
    prefix = next(PREFIXES)
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                running_gateway(redis=server.url, redis_prefix=prefix, **given)
            )
            for _ in range(count)
        ]


async def has_topic(gateway: Running, name: str = "px") -> None:
    catalog = gateway.gateway.catalog
    await eventually(lambda: catalog.find(name) is not None, f"{name} is known")


async def document(stream: Stream, name: str) -> dict[str, Any]:
    """The next event, which has this name."""
    event = await stream.next()
    assert event.name == name, event
    found: dict[str, Any] = json.loads(event.text)
    return found


async def test_what_one_takes_in_a_subscriber_of_another_gets(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.subscribe("conflation=none") as stream:
            await stream.until("group_end")
            told = await one.publish({"k": "a", "v": 1}, {"k": "b", "v": 2})
            assert await stream.values(2) == [{"k": "a", "v": 1}, {"k": "b", "v": 2}]
            assert stream.last_id == told["last"]
        await other.publish({"k": "a", "v": 3})
        assert {row["v"] for row in await other.sow()} == {2, 3}


async def test_a_publish_is_in_the_state_of_the_world_of_its_gateway_at_once(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        for number, gateway in enumerate([one, other] * 20):
            await gateway.publish({"k": "a", "v": number})
            assert await gateway.sow() == [{"k": "a", "v": number}]


async def test_a_stream_is_resumed_at_another_gateway_by_changes(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await one.publish({"k": "a", "v": 1}, {"k": "b", "v": 1})
        async with one.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            seen = stream.last_id
        await one.publish({"k": "b", "v": 2})
        await has_topic(other)
        head = one.gateway.driver.engine.topic("px").head
        await eventually(
            lambda: other.gateway.driver.engine.topic("px").head == head, "all has arrived"
        )
        async with other.subscribe("conflation=10ms", last_id=seen) as stream:
            assert (await document(stream, "resumed"))["mode"] == "changes"
            assert await stream.values(1) == [{"k": "b", "v": 2}]


async def test_a_gateway_that_starts_later_has_all_of_it(redis_bus: BusServer) -> None:
    prefix = next(PREFIXES)
    given = {"redis": redis_bus.url, "redis_prefix": prefix}
    async with running_gateway(**given) as one:
        await one.topic()
        await one.publish(*({"k": str(number % 3), "v": number} for number in range(9)))
        await one.http.delete("/v1/topics/px/sow", params={"key": '["0"]'})
        async with one.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            seen = stream.last_id
        async with running_gateway(**given) as other:
            assert await other.sow() == [{"k": "1", "v": 7}, {"k": "2", "v": 8}]
            await other.publish({"k": "1", "v": 10})
    async with running_gateway(**given) as third:
        async with third.subscribe("conflation=10ms", last_id=seen) as stream:
            assert (await document(stream, "resumed"))["mode"] == "changes"
            assert await stream.values(1) == [{"k": "1", "v": 10}]


async def test_definitions_hold_everywhere(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.subscribe() as stream:
            await stream.until("group_end")
            await one.topic(description="prices")
            await eventually(
                lambda: other.gateway.catalog.get("px").document.description == "prices",
                "the description is known",
            )
            await one.publish({"k": "a", "v": 1})
            assert await stream.values(1) == [{"k": "a", "v": 1}]
            await one.http.delete("/v1/topics/px")
            event = await document(stream, "unsubscribed")
            assert event["reason"] == "REMOVED"
        assert other.gateway.catalog.find("px") is None


async def test_two_who_make_the_same_topic_make_one(redis_bus: BusServer) -> None:
    async with gateways(redis_bus) as (one, other):
        for number in range(5):
            name = f"t{number}"
            async with contextlib.AsyncExitStack():
                import asyncio

                await asyncio.gather(
                    one.publish({"v": 1}, topic=name), other.publish({"v": 2}, topic=name)
                )
            heads = [it.gateway.driver.engine.topic(name) for it in (one, other)]
            await eventually(lambda: all(it.head == 2 for it in heads), "both have both")
            assert heads[0].epoch == heads[1].epoch


async def test_deltas_from_two_sides_build_one_record(redis_bus: BusServer) -> None:
    import asyncio

    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)

        async def patch(gateway: Running, field: str) -> None:
            for number in range(10):
                answer = await gateway.http.post(
                    "/v1/topics/px/messages",
                    content=json.dumps({"k": "a", f"{field}{number}": number}),
                    headers={"Content-Type": "application/merge-patch+json"},
                )
                assert answer.status_code == 200, answer.text

        await asyncio.gather(patch(one, "x"), patch(other, "y"))
        [record] = await one.sow()
        assert len(record) == 21
