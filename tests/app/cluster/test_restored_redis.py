"""A Redis that was put back by hand, and an operator who says so."""

from __future__ import annotations

import itertools

import pytest

from tests.support.buses import BusServer
from tests.support.gateways import names, running_gateway
from tests.support.rules import rule
from tidegate.app.cluster.definitions import mark_restored
from tidegate.app.stores.store import StoreUnusable

pytestmark = pytest.mark.redis

PREFIXES = (f"put-back-{number}" for number in itertools.count())


async def epoch_of(running: object) -> str:
    answer = await running.http.get("/v1/topics/px")  # type: ignore[attr-defined]  # a Remote
    return str(answer.json()["epoch"])


@rule("cluster-5")
async def test_topics_begin_again_where_a_gateway_runs_and_where_one_starts(
    redis_bus: BusServer,
) -> None:
    given = {"redis": redis_bus.url, "redis_prefix": next(PREFIXES)}
    async with running_gateway(**given) as running:
        await running.topic()
        await running.publish({"k": 1})
        epochs = [await epoch_of(running)]
        async with running.subscribe("conflation=10ms") as stream:
            await stream.until("group_end")
            assert await mark_restored(redis_bus.url, given["redis_prefix"]) >= 1
            assert "resumed" in names(await stream.until("group_end"))
        epochs.append(await epoch_of(running))
    await mark_restored(redis_bus.url, given["redis_prefix"])
    async with running_gateway(**given) as running:
        async with running.subscribe("conflation=10ms", last_id=f"{epochs[1]}-1") as stream:
            assert "group_end" in names(await stream.until("group_end"))
        assert await running.sow() == [{"k": 1}]
        await running.publish({"k": 2})
        epochs.append(await epoch_of(running))
    assert len(set(epochs)) == 3


async def test_a_bus_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(StoreUnusable, match="does not answer"):
        await mark_restored("unix:///nowhere/at/all.sock", "tidegate")
