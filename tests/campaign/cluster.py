"""What the faults are played on: three gateways, two Redis, and a proxy before each link."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from redis.exceptions import RedisError

from tests.campaign.definer import CONTENDED, KEY
from tests.campaign.lineage import Lineage
from tests.campaign.node import Node
from tests.faults.setups.children import GatewayChild
from tests.faults.setups.gateway import redis_binary
from tests.faults.setups.waiting import happens
from tests.support.network.fault_proxy import FaultProxy, fault_proxy
from tidegate.app.cluster.redis_compat import raise_if_cancelled

GATEWAYS = 3
KEPT, BRIEF = "kept", "brief"
"""A topic whose whole journal is kept, and one that is trimmed to its newest messages."""

TOPICS = {KEPT: 1_000_000, BRIEF: 80}
HEARTBEAT = "1s"
HEALED_S_MAX = 120.0
FOLLOWS_S_MAX = 20.0
READY_S_MAX = 1.0
SAMPLE_S = 0.5


class NeverHealed(Exception):
    """The faults are over, and what they left does not work again."""


@dataclass(slots=True, eq=False)
class Cluster:
    """Three gateways, each with its own proxy to the primary, and a replica with its own.

    Attributes:
        nodes: the two Redis; either may be the primary.
        links: the gateways' proxies, in their order.
        replication: the replica's proxy to the primary.
        lineages: of each topic, all that was ever seen of its epochs.
        unready: of each gateway, from when to when it said that it was not ready.
    """

    folder: Path
    fsync: str
    gateways: list[GatewayChild]
    nodes: list[Node]
    links: list[FaultProxy]
    replication: FaultProxy
    clients: list[httpx2.AsyncClient]
    primary_at: int = 0
    lineages: dict[str, Lineage] = field(default_factory=dict)
    unready: list[list[tuple[float, float]]] = field(
        default_factory=lambda: [[] for _ in range(GATEWAYS)]
    )

    @property
    def primary(self) -> Node:
        """The Redis that is to be written."""
        return self.nodes[self.primary_at]

    @property
    def other(self) -> Node:
        """The other one."""
        return self.nodes[1 - self.primary_at]

    def lead(self, *links: int) -> None:
        """Let gateways connect to the primary from now on; without a word all of them."""
        for at in links or range(GATEWAYS):
            self.links[at].lead_to("127.0.0.1", self.primary.port)

    async def attach_replica(self) -> None:
        """Start the other Redis as a replica of the primary, or make it one if it runs."""
        self.replication.clear()
        self.replication.lead_to("127.0.0.1", self.primary.port)
        if self.other.is_running:
            await self.other.command("REPLICAOF", "127.0.0.1", self.replication.port)
        else:
            self.other.configure(replica_of=self.replication.port)
            await self.other.start()

    async def replica_follows(self) -> bool:
        """Wait until the replica has all; return False if it takes too long."""
        return await happens(self.other.follows, FOLLOWS_S_MAX)

    async def note_epochs(self) -> None:
        """Look at both Redis for the epochs of the topics, as far as they answer."""
        for node in self.nodes:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    for topic, lineage in self.lineages.items():
                        lineage.note_chain(*await node.chain(topic))

    async def why_unready(self, at: int) -> str:
        """Return why a gateway says that it is not ready; empty if it is."""
        try:
            answer = await self.clients[at].get("/readyz", timeout=READY_S_MAX)
        except httpx2.HTTPError as error:
            return f"/readyz is not answered: {type(error).__name__}"
        return "" if answer.is_success else str(answer.json()["detail"])

    async def watch_readiness(self, at: int, notes: list[tuple[float, str]]) -> None:
        """Note when a gateway is not ready, and why, until cancelled."""
        since_s, why = 0.0, ""
        while True:
            raise_if_cancelled()
            asked_at_s, before = time.monotonic(), why
            why = await self.why_unready(at)
            if why and not before:
                since_s = asked_at_s
            if before and not why:
                self.unready[at].append((since_s, time.monotonic()))
            if why != before:
                notes.append((asked_at_s, f"gateway {at}: {why or 'it is ready'}"))
            await asyncio.sleep(SAMPLE_S)

    async def define(self) -> None:
        """Make the topics."""
        for topic, kept_max in TOPICS.items():
            document = {**KEY, "history": {"messages": kept_max}}
            answer = await self.clients[0].put(f"/v1/topics/{topic}", json=document)
            answer.raise_for_status()
            self.lineages[topic] = Lineage()
        (await self.clients[0].put(f"/v1/topics/{CONTENDED}", json=KEY)).raise_for_status()

    async def heal(self) -> None:
        """Take every fault away, and wait until all gateways are ready.

        Raises:
            NeverHealed: one is not.
        """
        began_at = time.monotonic()
        for link in (*self.links, self.replication):
            link.clear()
        for at, gateway in enumerate(self.gateways):
            if not await happens(gateway.is_ready, HEALED_S_MAX - (time.monotonic() - began_at)):
                raise NeverHealed(f"gateway {at} is not ready {HEALED_S_MAX:g} s after all faults")
        # The first replica of a Redis begins another life of it, and so other epochs.
        await self.replica_follows()


@contextlib.asynccontextmanager
async def cluster(folder: Path, seed: int, fsync: str) -> AsyncIterator[Cluster]:
    """Start everything; at the end all processes are gone, and their files and logs are left.

    Args:
        folder: of all files.
        seed: of the proxies.
        fsync: `appendfsync` of both Redis; with `always` gateways promise `durability=power`.

    Raises:
        CannotRun: there is no Redis.
    """
    binary = redis_binary()
    async with contextlib.AsyncExitStack() as stack:
        nodes = [Node(name, binary, folder / name, fsync) for name in ("one", "two")]
        for node in nodes:
            await stack.enter_async_context(node)
        await nodes[0].start()
        ports = [nodes[0].port] * (GATEWAYS + 1)
        *links, replication = [
            await stack.enter_async_context(fault_proxy("127.0.0.1", port, seed=seed + at))
            for at, port in enumerate(ports)
        ]
        gateways = [
            GatewayChild(
                "--redis",
                f"redis://127.0.0.1:{link.port}/0",
                log=folder / f"gateway-{at}.log",
                TIDEGATE_AUTO_CREATE_TOPICS="false",
                TIDEGATE_HEARTBEAT=HEARTBEAT,
                TIDEGATE_DURABILITY="power" if fsync == "always" else "process",
            )
            for at, link in enumerate(links)
        ]
        for gateway in gateways:
            await stack.enter_async_context(gateway)
        clients = [
            await stack.enter_async_context(
                httpx2.AsyncClient(
                    base_url=gateway.address,
                    timeout=HEALED_S_MAX,
                    limits=httpx2.Limits(max_connections=None),
                    trust_env=False,
                )
            )
            for gateway in gateways
        ]
        found = Cluster(folder, fsync, gateways, nodes, links, replication, clients)
        await found.attach_replica()
        await asyncio.gather(*(gateway.start() for gateway in gateways))
        await found.define()
        yield found
