"""A bus that promises less than the gateway is refused at start, in one sentence."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from tests.support.buses import BusServer, bus_server
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, running_gateway
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.persistence import (
    check_server,
    persistence_fault,
    read_settings,
    rejection_reason,
)
from tidegate.app.stores.store import StoreUnusable

GOOD = {"appendonly": "yes", "appendfsync": "everysec", "maxmemory-policy": "noeviction"}


@pytest.mark.parametrize(
    ("changed", "survives_power", "said"),
    [
        ({}, False, ""),
        ({"appendonly": "no"}, False, "appendonly yes"),
        ({"maxmemory-policy": "allkeys-lru"}, False, "noeviction"),
        ({"maxmemory-policy": "volatile-ttl"}, False, "noeviction"),
        ({}, True, "appendfsync always"),
        ({"appendfsync": "always"}, True, ""),
        ({"appendfsync": "no"}, False, ""),
    ],
)
def test_what_is_wrong_is_said_with_what_to_set(
    changed: dict[str, str], survives_power: bool, said: str
) -> None:
    fault = persistence_fault({**GOOD, **changed}, survives_power=survives_power)
    assert (said in fault) if said else fault == ""


@pytest.mark.redis
@pytest.mark.parametrize("kind", ["redis", pytest.param("valkey", marks=pytest.mark.nightly)])
async def test_servers_are_asked(kind: str) -> None:
    with bus_server(kind, "--appendfsync", "always") as server:
        connection = BusConnection(server.url)
        await check_server(connection)
        settings = await read_settings(connection)
        assert persistence_fault(settings, survives_power=True) == ""
        await connection.execute("CONFIG SET", "appendonly", "no")
        settings = await read_settings(connection)
        assert "appendonly yes" in persistence_fault(settings, survives_power=False)
        await connection.aclose()


@pytest.mark.redis
async def test_a_node_of_a_cluster_is_refused() -> None:
    with bus_server("redis", "--cluster-enabled", "yes") as server:
        connection = BusConnection(server.url)
        with pytest.raises(StoreUnusable, match="a Redis Cluster, which is not supported"):
            await check_server(connection)
        await connection.aclose()


@pytest.mark.redis
async def test_a_sentinel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sentinel.conf").touch()
    with bus_server("redis") as server:
        server.kill()
        server.start(sentinel=tmp_path / "sentinel.conf")
        connection = BusConnection(server.url)
        with pytest.raises(StoreUnusable, match="a Sentinel, which stores nothing"):
            await check_server(connection)
        await connection.aclose()


@pytest.mark.redis
@pytest.mark.parametrize(
    ("setting", "wrong", "right"),
    [
        ("appendonly", "no", "yes"),
        pytest.param("maxmemory-policy", "allkeys-lru", "noeviction", marks=pytest.mark.nightly),
    ],
)
async def test_a_server_that_promises_less_while_it_runs_gets_no_writes(
    setting: str, wrong: str, right: str
) -> None:
    with bus_server("redis") as server:
        admin = BusConnection(server.url)
        async with running_gateway(redis=server.url) as gateway:
            await gateway.topic()
            await admin.execute("CONFIG SET", setting, wrong)
            await answers(gateway, 503)
            refused = await gateway.http.post("/v1/topics/px/messages", json={"k": 1})
            assert (refused.status_code, refused.json()["code"]) == (503, "bus-unavailable")
            assert f"set {setting} {right} in Redis" in refused.json()["detail"]
            staged = await gateway.http.post(
                "/v1/topics/px/messages", json={"k": 1}, headers={"Tidegate-Stage": "s"}
            )
            document = {"key": ["/k"], "description": "changed"}
            changed = await gateway.http.put("/v1/topics/px", json=document)
            made = await gateway.http.put("/v1/topics/new", json=document)
            deleted = await gateway.http.delete("/v1/topics/px")
            assert {each.status_code for each in (staged, changed, made, deleted)} == {503}
            assert setting in (await gateway.http.get("/readyz")).json()["detail"]
            await admin.execute("CONFIG SET", setting, right)
            await answers(gateway, 200)
            await gateway.publish({"k": 1})
        await admin.aclose()


async def answers(gateway: Running, status: int) -> None:
    """Wait until the gateway says that it is ready, or that it is not."""
    async with asyncio.timeout(HANGS_S):
        while (await gateway.http.get("/readyz")).status_code != status:
            await asyncio.sleep(0.05)


@pytest.mark.redis
async def test_where_the_settings_may_not_be_read_info_is(redis_bus: BusServer) -> None:
    admin = BusConnection(redis_bus.url)
    rights = ("on", "nopass", "~*", "+@all", "-config")
    await admin.execute("ACL SETUSER", "guest", *rights)
    guest = BusConnection(redis_bus.url.replace("unix://", "unix://guest:none@"))
    settings = await read_settings(guest)
    assert persistence_fault(settings, survives_power=False) == ""
    assert "appendfsync always" in persistence_fault(settings, survives_power=True)
    await guest.aclose()
    await admin.execute("ACL DELUSER", "guest")
    await admin.aclose()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OutOfMemoryError("command not allowed"), "its memory is full"),
        (ReadOnlyError("You can't write against a read only replica."), "it is a replica"),
        (ResponseError("MISCONF Redis is configured to save"), "it cannot save to its disk"),
        (ResponseError("NOREPLICAS Not enough good replicas to write."), "too few replicas"),
        (ResponseError("ODD " + "x" * 99), "it answers ODD"),
        (ResponseError("x" * 99), "it answers " + "x" * 20),
    ],
)
def test_why_a_write_is_refused_is_said_in_a_few_words(error: ResponseError, said: str) -> None:
    assert rejection_reason(error).endswith(said)
