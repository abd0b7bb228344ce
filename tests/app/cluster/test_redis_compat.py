"""A write to a Redis whose connection is lost fails as a lost connection, in each Python."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio.connection import Connection, SSLConnection, UnixDomainSocketConnection
from redis.asyncio.sentinel import SentinelManagedConnection, SentinelManagedSSLConnection
from redis.exceptions import ConnectionError as ConnectionLost

from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.redis_compat import reporting_lost_writes


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("'NoneType' object has no attribute '_add_writer'"),
        TypeError("'NoneType' object is not callable"),
    ],
)
async def test_what_python_raises_is_a_lost_connection(error: Exception) -> None:
    class Lost(Connection):
        async def send_packed_command(self, command: Any, check_health: bool = True) -> None:
            raise error

    with pytest.raises(ConnectionLost, match="was lost before a write"):
        await reporting_lost_writes(Lost)().send_command("PING")


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("redis://one", Connection),
        ("rediss://one", SSLConnection),
        ("unix:///run/redis.sock", UnixDomainSocketConnection),
        ("redis+sentinel://one/px", SentinelManagedConnection),
        ("rediss+sentinel://one/px", SentinelManagedSSLConnection),
    ],
)
def test_every_kind_of_connection_does_so(url: str, base: type) -> None:
    connection = BusConnection(url)
    for client in (connection.writer, connection.reader):
        assert client.connection_pool.connection_class is reporting_lost_writes(base)
