"""Two Redis servers take writes at once, each for one gateway; then one of them is gone.

That is what a failover leaves behind while the primary still answers some. Rule cluster-16.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from redis.exceptions import ReadOnlyError

from tests.support.buses import BusServer, bus_server, has_topic
from tests.support.gateways import Running, eventually, names, running_gateway
from tests.support.rules import rule
from tidegate.app.cluster.connection import BusConnection

pytestmark = [pytest.mark.redis, rule("cluster-16")]

SYNCS = pytest.mark.parametrize("fsync", ["everysec", "always"])


@dataclass
class Split:
    """`stays` writes to the server that will be gone, until it is led to that of `moved`."""

    stays: Running
    moved: Running
    primary: BusServer
    replica: BusServer
    links: Sequence[Path]

    def promote(self, *flags: str) -> None:
        """Let a replica that has all so far take over, for one gateway only."""
        shutil.copytree(
            self.primary.folder,
            self.replica.folder,
            ignore=shutil.ignore_patterns("*.sock"),
            dirs_exist_ok=True,
        )
        self.replica.start(*flags)
        self._lead(self.links[1])

    def end(self) -> None:
        """Let the first server die: its gateway is led to the other one."""
        self._lead(self.links[0])
        self.primary.kill()

    def _lead(self, link: Path) -> None:
        link.unlink()
        link.symlink_to(self.replica.folder / "bus.sock")


@contextlib.asynccontextmanager
async def split(fsync: str, *messages: object) -> AsyncIterator[Split]:
    """Two gateways, a topic with messages at both, then a replica that has taken over for one."""
    flags = ("--appendfsync", fsync)
    with bus_server("redis", *flags) as primary, bus_server("redis", *flags) as replica:
        replica.kill()
        shutil.rmtree(replica.folder / "appendonlydir")
        links = [primary.folder.with_name(f"{primary.folder.name}-{at}") for at in (1, 2)]
        async with contextlib.AsyncExitStack() as stack:
            gateways = []
            for link in links:
                link.symlink_to(primary.folder / "bus.sock")
                stack.callback(link.unlink)
                gateways.append(
                    await stack.enter_async_context(running_gateway(redis=f"unix://{link}"))
                )
            one, other = gateways
            await one.topic()
            await one.publish(*messages)
            await has_topic(other)
            await eventually(lambda: head(other) == len(messages), "the other has all")
            found = Split(one, other, primary, replica, links)
            found.promote(*flags)
            # Its connections to the first server are cut, as a failover cuts them.
            bus = other.gateway.bus
            assert bus is not None
            for client in (bus.connection.writer, bus.connection.reader):
                await client.connection_pool.disconnect()
            await eventually_ready(other)
            yield found


def head(gateway: Running, topic: str = "px") -> int:
    return gateway.gateway.driver.engine.topic(topic).head


def has_all(gateway: Running, messages: int, topic: str) -> bool:
    return head(gateway, topic) == messages


async def eventually_ready(gateway: Running) -> None:
    async def is_ready() -> bool:
        return (await gateway.http.get("/readyz")).status_code == 200

    while not await is_ready():
        await asyncio.sleep(0.02)


async def published_at_last(gateway: Running, message: object, topic: str) -> None:
    """Publish as soon as the bus takes it: until then it is refused, and has no effect."""

    async def is_published() -> bool:
        answer = await gateway.http.post(f"/v1/topics/{topic}/messages", json=message)
        assert answer.status_code in {200, 503}, answer.text
        return answer.status_code == 200

    while not await is_published():
        await asyncio.sleep(0.02)


async def journal(gateway: Running, topic: str = "px") -> list[object]:
    text = (await gateway.http.get(f"/v1/topics/{topic}/messages?from=epoch")).text
    return [json.loads(line)["value"] for line in text.splitlines()]


def rows(*values: int) -> list[object]:
    return [{"k": f"key {value}", "v": value} for value in values]


@SYNCS
async def test_what_one_took_alone_is_gone_and_its_readers_are_told(fsync: str) -> None:
    async with split(fsync, *rows(1, 2, 3)) as found:
        stays, moved = found.stays, found.moved
        async with (
            stays.subscribe("conflation=none", command="subscribe") as lost,
            moved.subscribe("conflation=none", command="subscribe") as kept,
        ):
            assert (await stays.publish(*rows(4, 5, 6)))["last"].endswith("-6")
            assert await lost.values(3) == rows(4, 5, 6)
            seen = lost.last_id
            await moved.publish(*rows(40, 50, 60, 70, 80, 90))
            assert await kept.values(6) == rows(40, 50, 60, 70, 80, 90)
            found.end()
            told = await lost.until("group_end")
            assert "resumed" in names(told)
            values = [json.loads(event.text) for event in told if event.name == "message"]
            assert values == rows(1, 2, 3, 40, 50, 60, 70, 80, 90)
            epoch = lost.last_id.split("-")[0]
            assert not seen.startswith(f"{epoch}-")
        await eventually_ready(stays)
        assert await journal(stays) == await journal(moved)
        for gateway in (stays, moved):  # whoever saw what is gone gets no row after it as if
            async with gateway.subscribe("conflation=none", last_id=seen) as stream:
                resumed = await stream.until("resumed")
                assert json.loads(resumed[-1].text)["mode"] == "snapshot"


@SYNCS
async def test_what_another_defined_meanwhile_is_neither_missed_nor_replaced(fsync: str) -> None:
    async with split(fsync, *rows(1)) as found:
        stays, moved = found.stays, found.moved
        for number in range(12):
            await stays.topic(f"alone-{number}")
        await moved.topic("shared")
        await moved.publish(*rows(1, 2, 3, 4, 5), topic="shared")
        assert (await moved.http.delete("/v1/topics/px")).status_code == 204
        found.end()
        await published_at_last(stays, {"k": "key 6", "v": 6}, topic="shared")
        for gateway in (stays, moved):
            await has_topic(gateway, "shared")
            await eventually(partial(has_all, gateway, 6, "shared"), "all is there")
            assert await journal(gateway, "shared") == rows(1, 2, 3, 4, 5, 6)
            for number in range(12):
                await has_topic(gateway, f"alone-{number}")
            assert gateway.gateway.catalog.find("px") is None, "deleted there, so not put back"


async def test_readers_of_a_pattern_keep_a_topic_whose_deletion_was_lost() -> None:
    with bus_server("redis") as primary, bus_server("redis") as replica:
        replica.kill()
        shutil.rmtree(replica.folder / "appendonlydir")
        link = primary.folder.with_name(f"{primary.folder.name}-link")
        link.symlink_to(primary.folder / "bus.sock")
        with contextlib.ExitStack() as stack:
            stack.callback(link.unlink)
            await _lose_a_deletion(primary, replica, link)


async def _lose_a_deletion(primary: BusServer, replica: BusServer, link: Path) -> None:
    async with running_gateway(redis=f"unix://{link}") as gateway:
        await gateway.topic()
        await gateway.publish(*rows(1))
        shutil.copytree(
            primary.folder,
            replica.folder,
            ignore=shutil.ignore_patterns("*.sock"),
            dirs_exist_ok=True,
        )
        async with gateway.subscribe(topic="*") as stream:
            await stream.until("group_end")
            assert (await gateway.http.delete("/v1/topics/px")).status_code == 204
            removed = await stream.until("unsubscribed")
            assert json.loads(removed[-1].text)["reason"] == "REMOVED"
            replica.start()
            link.unlink()
            link.symlink_to(replica.folder / "bus.sock")
            primary.kill()
            await stream.until("subscribed")
            await stream.until("group_end")
            await eventually_ready(gateway)
            seen = stream.last_id
        async with gateway.subscribe(topic="*", last_id=seen) as stream:
            await gateway.publish(*rows(2))
            assert "unsubscribed" not in names(await stream.until("message"))


async def test_a_primary_that_becomes_a_replica_is_left_for_the_one_at_the_address() -> None:
    """It keeps its connections: nobody but a Sentinel closes them."""
    with bus_server("redis") as former, bus_server("redis") as primary:
        link = former.folder / "address.sock"
        link.symlink_to("bus.sock")
        bus, operator = BusConnection(f"unix://{link}"), BusConnection(former.url)
        await bus.execute("SET", "key", "before")
        link.unlink()
        link.symlink_to(primary.folder / "bus.sock")
        await operator.execute("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(ReadOnlyError):
            await bus.execute("SET", "key", "refused")
        await bus.execute("SET", "key", "after")
        for each in (bus, operator):
            await each.aclose()
