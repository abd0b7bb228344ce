"""Several gateways on one bus: what one takes in all have, and who subscribes may be anywhere.

Rules 426 and 427 are told here.
"""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.buses import PREFIXES, BusServer, document, gateways, has_topic
from tests.support.gateways import Running, eventually, running_gateway

pytestmark = pytest.mark.redis


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
    async with (
        running_gateway(**given) as third,
        third.subscribe("conflation=10ms", last_id=seen) as stream,
    ):
        assert (await document(stream, "resumed"))["mode"] == "changes"
        assert await stream.values(1) == [{"k": "1", "v": 10}]


async def test_deltas_from_two_sides_build_one_record(redis_bus: BusServer) -> None:
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
