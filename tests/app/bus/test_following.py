"""Definitions that other gateways make, change and delete hold here, atomically for who subscribes.

Rule 423 is told here.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.buses import BusServer, document, gateways, has_topic
from tests.support.gateways import eventually

pytestmark = pytest.mark.redis


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
            told = await asyncio.gather(
                one.publish({"v": 1}, topic=name), other.publish({"v": 2}, topic=name)
            )
            epochs, offsets = zip(*(each["last"].split("-") for each in told), strict=True)
            assert len(set(epochs)) == 1
            assert set(offsets) == {"1", "2"}


async def test_a_change_of_identity_elsewhere_ends_what_was_subscribed(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        async with other.subscribe() as stream:
            await stream.until("group_end")
            await one.topic(key=["/other"])
            assert (await document(stream, "unsubscribed"))["reason"] == "REMOVED"
        await eventually(
            lambda: str(other.gateway.catalog.get("px").document.key_spec) == "[/other]",
            "the other key is known",
        )


async def test_who_changes_what_another_has_just_changed_decides_beside_that(
    redis_bus: BusServer,
) -> None:
    async with gateways(redis_bus) as (one, other):
        await one.topic()
        await has_topic(other)
        await asyncio.gather(
            one.http.patch("/v1/topics/px", json={"description": "d"}),
            other.http.patch("/v1/topics/px", json={"priority": "high"}),
        )
        entries = [gateway.gateway.catalog.get("px") for gateway in (one, other)]
        both = ("d", "high")
        await eventually(
            lambda: all((it.document.description, it.document.priority) == both for it in entries),
            "both changes hold",
        )
