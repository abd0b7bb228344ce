"""A bus that promises less than the gateway is refused at start, in one sentence."""

from __future__ import annotations

import pytest
from redis.exceptions import OutOfMemoryError, ReadOnlyError, ResponseError

from tests.support.buses import BusServer, bus_server
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.persistence import (
    check_persistence,
    persistence_fault,
    rejection_reason,
    syncs_every_write,
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
@pytest.mark.parametrize("kind", ["redis", "valkey"])
async def test_servers_are_asked(kind: str) -> None:
    with bus_server(kind, "--appendfsync", "always") as server:
        connection = BusConnection(server.url)
        await check_persistence(connection, survives_power=True)
        assert await syncs_every_write(connection)
        await connection.execute("CONFIG SET", "appendonly", "no")
        with pytest.raises(StoreUnusable, match="appendonly yes"):
            await check_persistence(connection, survives_power=False)
        assert not await syncs_every_write(connection)
        await connection.aclose()


@pytest.mark.redis
async def test_where_the_settings_may_not_be_read_info_is(redis_bus: BusServer) -> None:
    admin = BusConnection(redis_bus.url)
    rights = ("on", "nopass", "~*", "+@all", "-config")
    await admin.execute("ACL SETUSER", "guest", *rights)
    guest = BusConnection(redis_bus.url.replace("unix://", "unix://guest:none@"))
    await check_persistence(guest, survives_power=False)
    with pytest.raises(StoreUnusable, match="appendfsync always"):
        await check_persistence(guest, survives_power=True)
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
