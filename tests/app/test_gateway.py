"""The parts put together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.gateways import running_gateway
from tests.support.servers import edge_settings
from tidegate.app.gateway import Gateway
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.sqlite import SqliteStore


async def test_it_is_ready_while_it_is_open() -> None:
    gateway = Gateway.build(edge_settings())
    seen = [gateway.ready]
    await gateway.open()
    seen.append(gateway.ready)
    await gateway.aclose()
    seen.append(gateway.ready)
    assert seen == [False, True, False]


async def test_a_goodbye_reaches_every_stream_and_turns_new_ones_away() -> None:
    async with running_gateway() as running:
        await running.topic()
        async with running.subscribe() as first, running.subscribe("conflation=1h") as second:
            running.gateway.say_goodbye()
            for stream in (first, second):
                assert (await stream.rest())[-1].name == "goodbye"
        assert running.gateway.stopping
        assert not running.gateway.ready


def test_session_ids_are_never_the_same_and_safe_in_a_path() -> None:
    gateway = Gateway.build(edge_settings())
    ids = {gateway.new_session_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(re.fullmatch(r"s[A-Za-z0-9_-]{16}", one) for one in ids)


def test_limits_come_from_the_settings() -> None:
    gateway = Gateway.build(edge_settings(queue_messages_max=7, queue_bytes_max="2KiB"))
    assert (gateway.driver.limits.messages_max, gateway.driver.limits.bytes_max) == (7, 2_048)


async def test_who_builds_it_brings_the_time_and_the_store() -> None:
    store = MemoryStore()
    gateway = Gateway.build(edge_settings(), store=store, clock=lambda: 5, wall_ms=lambda: 7)
    assert gateway.store is store
    assert (gateway.driver.now(), gateway.driver.wall_ms()) == (5, 7)


@pytest.mark.parametrize(("durability", "synchronous"), [("process", 1), ("power", 2)])
async def test_the_store_is_what_settings_say(
    tmp_path: Path, durability: str, synchronous: int
) -> None:
    assert isinstance(Gateway.build(edge_settings()).store, MemoryStore)
    store = Gateway.build(edge_settings(data=str(tmp_path), durability=durability)).store
    assert isinstance(store, SqliteStore)
    await store.open()
    found = await store._run(lambda it: it.execute("PRAGMA synchronous").fetchone())
    assert found == (synchronous,)
    await store.aclose()
