"""Whether the gateway should get traffic: only while its store accepts writes.

Rule cluster-12 is tested here.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.buses import PREFIXES, bus_server
from tests.support.deadlines import LOOPS_S
from tests.support.gateways import Running, running_gateway
from tests.support.rules import rule
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.sqlite import SqliteStore

pytestmark = rule("cluster-12")


BIG = {"v": "x" * 500_000}


async def readiness(gateway: Running) -> str:
    """What `/readyz` says: "" or a reason. The metric says the same."""
    answer = await gateway.http.get("/readyz")
    before = None
    while answer.status_code != before:  # or it has changed around the question for the metric
        before = answer.status_code
        text = (await gateway.http.get("/metrics")).text
        answer = await gateway.http.get("/readyz")
    families = {it.name: it for it in text_string_to_metric_families(text)}
    assert families["tidegate_ready"].samples[0].value == (answer.status_code == 200)
    if answer.status_code == 200:
        return ""
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    return str(answer.json()["detail"])


async def until_it_says(gateway: Running, reason: str) -> None:
    async with asyncio.timeout(LOOPS_S):
        while not (await readiness(gateway)).endswith(reason):
            await asyncio.sleep(0.05)


async def until_ready(gateway: Running) -> None:
    async with asyncio.timeout(LOOPS_S):
        while await readiness(gateway):
            await asyncio.sleep(0.05)


async def publishes(gateway: Running, value: object) -> int:
    return (await gateway.http.post("/v1/topics/px/messages", json=value)).status_code


async def test_a_full_disk_is_not_ready_until_there_is_room(tmp_path: Path) -> None:
    async with running_gateway(data=str(tmp_path / "store")) as gateway:
        store = gateway.gateway.store
        assert isinstance(store, SqliteStore)
        await gateway.topic(key=[])
        assert await readiness(gateway) == ""
        pages = await store._run(lambda it: it.execute("PRAGMA page_count").fetchone()[0])
        await store._run(lambda it: it.execute(f"PRAGMA max_page_count = {pages}"))
        assert await publishes(gateway, BIG) == 503
        for _ in range(2):
            assert "the store cannot be written: database or disk is full" in await readiness(
                gateway
            )
        await store._run(lambda it: it.execute("PRAGMA max_page_count = 100000").fetchall())
        assert await readiness(gateway) == "", "nobody has to publish for it"
        assert await publishes(gateway, BIG) == 200


async def test_a_folder_whose_files_are_removed_is_not_ready_and_takes_nothing(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "store"
    async with running_gateway(data=str(folder)) as gateway:
        await gateway.topic(key=[])
        assert await publishes(gateway, 1) == 200
        for file in folder.iterdir():
            file.unlink()
        reason = "the store cannot be written: the file tidegate.db was removed or replaced."
        assert (await readiness(gateway)).endswith(reason)
        assert await publishes(gateway, 2) == 503
        answer = await gateway.http.get("/v1/topics/px/messages?from=epoch")
        assert len(answer.text.splitlines()) == 1, "reading goes on"


@pytest.mark.redis
@pytest.mark.system
async def test_a_bus_that_refuses_writes_is_not_ready_until_it_takes_them() -> None:
    with bus_server("redis") as server:
        given = {"redis": server.url, "redis_prefix": next(PREFIXES)}
        async with running_gateway(**given) as gateway:
            bus = gateway.gateway.bus
            assert bus is not None
            ask = bus.connection.execute
            await gateway.topic(key=[])
            assert await readiness(gateway) == ""

            await ask("CONFIG SET", "maxmemory", "1")
            assert await publishes(gateway, BIG) == 503
            assert "the bus takes no writes: its memory is full" in await readiness(gateway)
            await ask("CONFIG SET", "maxmemory", "0")
            await until_ready(gateway)

            await ask("REPLICAOF", "127.0.0.1", "1")
            assert await publishes(gateway, 1) == 503
            await until_it_says(gateway, "the bus takes no writes: it is a replica.")
            await ask("REPLICAOF", "NO", "ONE")
            await until_ready(gateway)
            async with asyncio.timeout(LOOPS_S):
                while await publishes(gateway, 1) != 200:  # the server has begun another life
                    await asyncio.sleep(0.02)

            (server.folder / "dump.rdb" / "in-the-way").mkdir(parents=True)
            await ask("CONFIG SET", "save", "3600 1")
            await ask("BGSAVE")
            async with asyncio.timeout(LOOPS_S):
                while await publishes(gateway, 1) == 200:
                    await asyncio.sleep(0.02)
            assert "the bus takes no writes: it cannot save to its disk" in await readiness(gateway)
            await ask("CONFIG SET", "save", "")
            await until_ready(gateway)
            assert await publishes(gateway, 1) == 200


class Silent(MemoryStore):
    """A store that says nothing when it is asked."""

    async def fault(self) -> str | None:
        await asyncio.Event().wait()
        return None


async def test_a_store_that_does_not_answer_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.gateway.STORE_S_MAX", 0.05)
    async with running_gateway() as gateway:
        assert await gateway.gateway.unready() is None
        gateway.gateway.store = Silent()
        assert await gateway.gateway.unready() == "the store does not answer in time"
        gateway.gateway.ready = False
        assert await gateway.gateway.unready() == "the store has not answered yet"
