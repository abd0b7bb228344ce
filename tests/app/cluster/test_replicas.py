"""A primary with a replica: Sentinels that name it, and publishers that wait for the replica."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from redis.asyncio.connection import SSLConnection
from redis.exceptions import ConnectionError as ConnectionLost

from tests.support.buses import BusServer, bus_server
from tests.support.deadlines import HANGS_S
from tests.support.gateways import Running, running_gateway
from tests.support.ports import lasting_port
from tests.support.rules import rule
from tidegate.app.cluster import log_reader, persistence
from tidegate.app.cluster.connection import WRITER_CONNECTIONS_MAX, BusConnection
from tidegate.app.cluster.persistence import Durability, check_server
from tidegate.app.cluster.scripts import LIFE
from tidegate.app.cluster.sentinel import primary_pool
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import StoreUnusable

DOWN_MS = 300


@dataclass(frozen=True)
class Pair:
    """A primary, and a replica that has begun to follow it."""

    primary: BusServer
    replica: BusServer
    port: int

    async def in_step(self) -> None:
        """Wait until the replica has all that the primary has."""
        connection = BusConnection(self.primary.url)
        async with asyncio.timeout(HANGS_S):
            while True:
                found = await connection.execute("INFO", "replication")
                replica = found.get("slave0", {"offset": -1})
                if replica["offset"] == found["master_repl_offset"]:
                    break
                await asyncio.sleep(0.01)
        await connection.aclose()

    async def lose_replica_again(self, gateway: Running) -> None:
        """Let the replica go on until the gateway has noticed, then stop it once more."""
        self.pause_replica(is_paused=False)
        async with asyncio.timeout(HANGS_S):
            while (await gateway.http.get("/readyz")).status_code != 200:
                await asyncio.sleep(0.05)
        self.pause_replica(is_paused=True)

    def pause_replica(self, *, is_paused: bool) -> None:
        """Stop the replica's process, or let it go on."""
        os.kill(self.replica.pid, signal.SIGSTOP if is_paused else signal.SIGCONT)


@contextlib.asynccontextmanager
async def pair(kind: str = "redis", *flags: str) -> AsyncIterator[Pair]:
    port = lasting_port()
    flags = ("--bind", "127.0.0.1", *flags)
    following = ("--port", str(lasting_port()), "--replicaof", f"127.0.0.1 {port}")
    fast = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
    with (
        bus_server(kind, "--port", str(port), *fast, *flags) as primary,
        bus_server(kind, *following, *flags) as replica,
    ):
        servers = Pair(primary, replica, port)
        await servers.in_step()
        try:
            yield servers
        finally:
            if replica.is_running:
                os.kill(replica.pid, signal.SIGCONT)


@contextlib.contextmanager
def sentinel_of(primary: Pair) -> Iterator[str]:
    """A Sentinel that watches the primary; yields the address for gateways."""
    port = lasting_port()
    with bus_server("redis") as server:
        server.kill()
        path = Path(server.folder, "sentinel.conf")
        path.write_text(
            f"sentinel monitor px 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds px {DOWN_MS}\n"
            "sentinel failover-timeout px 3000\n"
        )
        server.start("--port", str(port), "--bind", "127.0.0.1", sentinel=path)
        yield f"redis+sentinel://127.0.0.1:{lasting_port()},127.0.0.1:{port}/px"


async def post(gateway: Running, key: int) -> httpx2.Response:
    """Publish one message; the same one again is a duplicate."""
    return await gateway.http.post(
        "/v1/topics/px/messages", json={"k": key}, headers={"Idempotency-Key": f"request-{key}"}
    )


async def posted(gateway: Running, key: int) -> None:
    """Publish one message as soon as it is acknowledged."""
    async with asyncio.timeout(HANGS_S):
        while (await post(gateway, key)).status_code != 200:
            await asyncio.sleep(0.05)


@pytest.mark.redis
@rule("cluster-4")
async def test_a_gateway_goes_on_at_the_primary_that_sentinels_name() -> None:
    """The first of the two Sentinels does not answer."""
    async with pair() as servers:
        with sentinel_of(servers) as url:
            async with running_gateway(redis=url) as gateway:
                await gateway.topic()
                await gateway.publish({"k": 1})
                await servers.in_step()
                async with gateway.subscribe("conflation=none") as stream:
                    servers.primary.kill()
                    await posted(gateway, 2)
                    await stream.until("message")
                rows = await gateway.sow()
                assert rows == [{"k": 1}, {"k": 2}]


@pytest.mark.redis
@pytest.mark.parametrize(
    ("kind", "durability"),
    [("redis", "process"), pytest.param("valkey", "power", marks=pytest.mark.nightly)],
)
@rule("publish-2")
async def test_what_a_replica_lacks_is_not_acknowledged(
    kind: str, durability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_reader, "CHECK_INTERVAL_S", 0.1)
    # A replica says each second how much of its file is on the disk.
    monkeypatch.setattr(persistence, "REPLICAS_S_MAX", 0.2 if durability == "process" else 1.5)
    async with (
        pair(kind, "--appendfsync", "always") as servers,
        running_gateway(
            redis=servers.primary.url, redis_replicas=1, durability=durability
        ) as gateway,
    ):
        await gateway.http.put("/v1/topics/px", json={"key": ["/k"]})
        await gateway.http.put("/v1/topics/py", json={"key": ["/k"]})
        await posted(gateway, 1)  # a new replica writes its file first
        changed = {"key": ["/k"], "description": "changed"}
        servers.pause_replica(is_paused=True)
        for _ in range(2):  # a change that is there already is not acknowledged either
            unkept = await gateway.http.put("/v1/topics/px", json=changed)
            assert "Only 0 of 1 replicas have what is stored" in unkept.json()["detail"]
        await servers.lose_replica_again(gateway)
        for _ in range(2):  # nor one that finds nothing left to remove
            unkept = await gateway.http.delete("/v1/topics/px/sow", params={"key": "[1]"})
            assert "Only 0 of 1 replicas have what is stored" in unkept.json()["detail"]
        await servers.lose_replica_again(gateway)
        for _ in range(2):
            unkept = await gateway.http.delete("/v1/topics/py")
            assert "Only 0 of 1 replicas have what is stored" in unkept.json()["detail"]
        await servers.lose_replica_again(gateway)
        refused = await post(gateway, 2)
        assert (refused.status_code, refused.json()["code"]) == (503, "bus-unavailable")
        assert "Only 0 of 1 replicas have what is stored" in refused.json()["detail"]
        for key in 2, 3:  # a duplicate is not acknowledged either; who waited would wait in vain
            refused = await post(gateway, key)
            assert (refused.status_code, refused.json()["code"]) == (503, "bus-unavailable")
            assert "writes nothing now: 0 of 1 replicas" in refused.json()["detail"]
        servers.pause_replica(is_paused=False)
        await posted(gateway, 2)
        assert await gateway.sow() == [{"k": 2}]


@pytest.mark.redis
@rule("publish-2")
async def test_waits_share_a_connection_and_leave_the_others_to_the_gateway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(persistence, "REPLICAS_S_MAX", 0.5)
    async with pair() as servers:
        connection = BusConnection(servers.primary.url)
        life = (await connection.run_script(LIFE, [], [])).decode()
        durability = Durability(connection, 1, survives_power=False)
        servers.pause_replica(is_paused=True)
        waits = [
            asyncio.create_task(durability.wait(life, is_unwritten=False))
            for _ in range(3 * WRITER_CONNECTIONS_MAX)
        ]
        await asyncio.sleep(0.1)
        async with asyncio.timeout(0.3):
            await connection.execute("PING")
        ended = await asyncio.gather(*waits, return_exceptions=True)
        assert all("0 of 1 replicas have what is stored" in str(error) for error in ended)
        servers.pause_replica(is_paused=False)
        await servers.in_step()
        monkeypatch.setattr(persistence, "REPLICAS_S_MAX", 4.0)
        await durability.wait(life)
        with pytest.raises(Refused, match="The bus died before its replicas"):
            await durability.wait("another life", is_unwritten=False)
        await connection.aclose()


@pytest.mark.redis
@pytest.mark.nightly
async def test_a_replica_that_is_gone_is_told_before_anything_is_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        pair() as servers,
        running_gateway(redis=servers.primary.url, redis_replicas=1) as gateway,
    ):
        await gateway.topic()
        servers.replica.kill()
        async with asyncio.timeout(HANGS_S):
            while (await gateway.http.get("/readyz")).status_code != 503:
                await asyncio.sleep(0.05)
        assert "0 replicas" in (await gateway.http.get("/readyz")).json()["detail"]
        assert "0 replicas" in (await post(gateway, 1)).json()["detail"]
        assert await gateway.sow() == []
        # As after a failover to the only replica: what was lost comes back, and reads go on.
        admin = BusConnection(servers.primary.url)
        await admin.execute("FLUSHALL")
        await admin.aclose()
        async with asyncio.timeout(HANGS_S):
            while "lost" not in caplog.text or gateway.gateway.outage.is_on:
                await asyncio.sleep(0.05)


async def test_an_old_redis_cannot_sync_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = BusConnection("unix:///nowhere/bus.sock")

    async def server(*arguments: object) -> dict[str, str]:
        return {"redis_version": "7.0.15"}

    monkeypatch.setattr(connection, "execute", server)
    await check_server(connection)
    with pytest.raises(StoreUnusable, match=r"redis_replicas needs Redis 7\.2"):
        await check_server(connection, syncs_replicas=True)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis+sentinel://one,two", "the name of the service"),
        ("redis+sentinel:///px", "begins with theirs"),
        ("redis+sentinel://one,,two/px", "begins with theirs"),
        ("redis+sentinel://one:port/px", "port"),
        ("redis+sentinel://one:0/px", "begins with theirs"),
        ("redis+sentinel://one, two/px", "begins with theirs"),
        ("redis+sentinel://me:p@one,me:p@two/px", "stand once"),
        ("redis+sentinel://one/px/first", "the number of a database"),
        ("redis+sentinel://one/px/1/2", "the number of a database"),
        ("redis+sentinel://one/px?sentinel_passwrd=x", "the query has no sentinel_passwrd"),
        ("redis+sentinel://one/px?max_connections=5", "the query has no max_connections"),
        ("rediss+sentinel://one/px?ssl_ca_cert=x", "a word that is not known"),
        ("redis://one?passwrd=x", "a word that is not known"),
    ],
)
def test_a_malformed_address_is_refused(url: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BusConnection(url)


@pytest.mark.redis
async def test_sentinels_that_are_away_are_one_sentence() -> None:
    connection = BusConnection(f"redis+sentinel://127.0.0.1:{lasting_port()}/px")
    with pytest.raises(ConnectionLost, match=r"^no Sentinel names a primary of px$"):
        await connection.execute("PING")
    await connection.aclose()


def test_an_address_tells_primary_and_sentinels_apart() -> None:
    url = (
        "rediss+sentinel://me:p%2F@one,[::1]:7/p%78/3"
        "?ssl_ca_certs=/ca&sentinel_username=watch&sentinel_password=w"
    )
    pool = primary_pool(url, {"timeout": 2.0, "max_connections": 5, "protocol": 2})
    given = pool.connection_kwargs
    assert (given["username"], given["password"], given["db"]) == ("me", "p/", 3)
    assert given["ssl_ca_certs"] == "/ca"
    assert issubclass(pool.connection_class, SSLConnection)
    assert "sentinel_username" not in given
    assert pool.service_name == "px"
    sentinels = [
        client.connection_pool.connection_kwargs for client in pool.sentinel_manager.sentinels
    ]
    assert [(each["host"], each["port"]) for each in sentinels] == [("one", 26_379), ("::1", 7)]
    assert {(each["username"], each["password"]) for each in sentinels} == {("watch", "w")}
    assert {each["ssl_ca_certs"] for each in sentinels} == {"/ca"}
