"""The faults: three lanes that break gateways, links and Redis at random, from a seed."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tests.campaign.cluster import GATEWAYS, HEALED_S_MAX, TOPICS, Cluster, NeverHealed
from tests.campaign.ledger import Request
from tests.faults.setups.children import DidNotStart, GatewayChild
from tests.support.network.fault_proxy import BLACK_HOLE, CLEAR, STALLED, Line
from tidegate.app.settings.settings import AWAY_STATUS, CONFIG_STATUS

SETTINGS_SEEN_S = 3.0
"""Gateways read the settings of Redis each second; what they acknowledge later is a promise."""

MAY_END_WITH = {AWAY_STATUS, CONFIG_STATUS}
"""Redis does not answer, or promises too little at that moment: whoever supervises starts again."""
PUBLISH = b"EVALSHA"
FRESH_FILE_S = 5.0
"""How long a fresh replica takes to write its first file."""

SLOW_SYNC_S = {"everysec": 1.5, "always": 0.05}

Act = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Loss:
    """What Redis may have lost by itself: by a failover, or while it was told to keep nothing.

    Attributes:
        began_at_s: when the fault began.
        ended_at_s: when no gateway could write to what is gone any more.
        kept: the last offset of each topic that is left.
        unsafe_until_s: of settings: gateways may acknowledge until then; 0 otherwise.
    """

    what: str
    began_at_s: float
    ended_at_s: float
    kept: Mapping[str, int]
    unsafe_until_s: float = 0.0

    def covers(self, request: Request, offset: int | None) -> bool:
        """Return whether it can have taken a request along, which was at this offset if known."""
        if request.sent_at_s > self.ended_at_s:
            return False
        # A removal that found nothing has written nothing: an earlier one may be lost.
        is_written = request.writes or request.deleted or request.last is not None
        until_s = self.unsafe_until_s if is_written else self.ended_at_s
        if self.unsafe_until_s and not self.began_at_s <= request.answered_at_s <= until_s:
            return False
        return offset is None or offset > self.kept.get(request.topic, 0)


@dataclass(slots=True, eq=False)
class Faults:
    """Breaks a cluster until it is told to stop.

    Attributes:
        counts: how many faults of each class there were.
        losses: what Redis lost by itself.
        deaths: from when to when the primary was away; it may have lost what nobody was promised.
        notes: what happened, with its time.
        findings: gateways that ended by themselves.
    """

    cluster: Cluster
    chance: random.Random
    pace_s: float
    counts: Counter[str] = field(default_factory=Counter)
    losses: list[Loss] = field(default_factory=list)
    deaths: list[tuple[float, float]] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    _gateway_lane: asyncio.Lock = field(default_factory=asyncio.Lock)
    _link_lane: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def strike(self, until: asyncio.Event) -> None:
        """Play faults until `until` is set, and those that run then to their end."""
        gateways = [self._kill_gateway, self._pause_gateway]
        links = [self._partition, self._slow_link, self._cut_links, self._lose_replies]
        redis = [
            self._slow_disk,
            self._change_settings,
            self._kill_redis,
            self._fail_over_fresh,
        ]
        failovers = [self._fail_over_killed, self._fail_over_paused, self._fail_over_split]
        self.chance.shuffle(failovers)
        async with asyncio.TaskGroup() as lanes:
            first = [[self._kill_gateway], [self._partition], [self._kill_redis, failovers[0]]]
            lanes.create_task(self._lane(gateways, until, self._gateway_lane, first[0]))
            lanes.create_task(self._lane(links, until, self._link_lane, first[1]))
            lanes.create_task(self._lane([*redis, *failovers], until, None, first[2]))

    async def _lane(
        self,
        acts: Sequence[Act],
        until: asyncio.Event,
        lock: asyncio.Lock | None,
        first: Sequence[Act],
    ) -> None:
        """Play the first acts, whatever time that takes, then all in random order till the end."""
        deck, owed = list(first)[::-1], len(first)
        while owed > 0 or not until.is_set():
            owed -= 1
            await asyncio.sleep(self.pace_s * self.chance.uniform(0.3, 1.7))
            if lock is None:
                await deck.pop()()
            else:
                async with lock:
                    await deck.pop()()
            if not deck:
                deck = self.chance.sample(list(acts), len(acts))

    def _note(self, kind: str, text: str) -> None:
        self.counts[kind] += 1
        self.notes.append((time.monotonic(), text))

    def _tell(self, text: str) -> None:
        self.notes.append((time.monotonic(), text))

    # Gateways

    async def _kill_gateway(self) -> None:
        at = self.chance.randrange(GATEWAYS)
        self._note("gateway kills", f"gateway {at} is killed")
        await self.cluster.gateways[at].kill()
        await asyncio.sleep(self.chance.uniform(0, 1))
        await self.start_gateway(at)

    async def start_gateway(self, at: int) -> None:
        """Start a gateway until it is ready: one that finds no Redis for long ends by itself.

        Raises:
            NeverHealed: it does not become ready.
        """
        gateway, began_at = self.cluster.gateways[at], time.monotonic()
        while time.monotonic() - began_at < 2 * HEALED_S_MAX:
            try:
                await gateway.start()
                self._tell(f"gateway {at} is ready again")
                return
            except DidNotStart as ended:
                if ended.status not in MAY_END_WITH:
                    self.findings.append(f"gateway {at} ended with {ended.status}: {ended}")
                self._tell(f"gateway {at} ended with {ended.status} at its start")
        raise NeverHealed(f"gateway {at} does not start")

    async def _pause_gateway(self) -> None:
        at = self.chance.randrange(GATEWAYS)
        gateway: GatewayChild = self.cluster.gateways[at]
        self._note("gateway pauses", f"gateway {at} is stopped")
        gateway.signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(self.chance.choice((0.5, 2, 5)) * self.chance.uniform(0.5, 1.5))
        finally:
            gateway.signal(signal.SIGCONT)
        self._tell(f"gateway {at} goes on")

    # Links

    async def _partition(self) -> None:
        at, way = self.chance.randrange(GATEWAYS), self.chance.randrange(3)
        link = self.cluster.links[at]
        self._note("partitions", f"gateway {at} is cut off from Redis ({way})")
        match way:
            case 0:
                link.carry(up=BLACK_HOLE, down=BLACK_HOLE)
            case 1:
                link.carry(up=STALLED, down=STALLED)
            case _:
                link.refuse()
        await asyncio.sleep(self.chance.choice((1, 3, 7)) * self.chance.uniform(0.5, 1.5))
        link.clear()
        self._tell(f"gateway {at} reaches Redis again")

    async def _slow_link(self) -> None:
        at = self.chance.randrange(GATEWAYS)
        link = self.cluster.links[at]
        self._note("slow links", f"the link of gateway {at} is slow")
        slow = Line(latency_s=self.chance.uniform(0.02, 0.3), jitter_s=self.chance.uniform(0, 0.3))
        way = self.chance.randrange(3)
        link.carry(up=slow if way != 1 else CLEAR, down=slow if way else CLEAR)
        await asyncio.sleep(self.chance.uniform(1, 5))
        link.clear()
        self._tell(f"the link of gateway {at} is fast again")

    async def _cut_links(self) -> None:
        at = self.chance.randrange(GATEWAYS)
        link = self.cluster.links[at]
        self._note("links cut in mid-answer", f"links of gateway {at} are cut in mid-answer")
        for _ in range(self.chance.randint(1, 6)):
            link.carry(down=Line(cut_after_bytes=self.chance.choice((7, 60, 300, 3_000))))
            await asyncio.sleep(self.chance.uniform(0.1, 0.7))
            link.carry(down=CLEAR)
            await asyncio.sleep(self.chance.uniform(0, 0.3))

    async def _lose_replies(self) -> None:
        link = self.cluster.links[at := self.chance.randrange(GATEWAYS)]
        self._note("replies lost", f"replies to gateway {at} are lost")
        for _ in range(self.chance.randint(1, 4)):
            link.drop_reply(self.chance.randint(1, 3), PUBLISH)
            await asyncio.sleep(self.chance.uniform(0.2, 0.8))

    # Redis

    async def _kill_redis(self) -> None:
        self._note("redis kills", f"{self.cluster.primary.name} is killed")
        await self._restart_primary(self.chance.choice((0, 0, 0.5, 2)))
        self._tell(f"{self.cluster.primary.name} is back with {await self._heads()}")

    async def _restart_primary(self, away_s: float, sync_s: float = 0.0) -> None:
        primary, began_at = self.cluster.primary, time.monotonic()
        await primary.kill()
        await asyncio.sleep(away_s)
        primary.configure(sync_s=sync_s)
        await primary.start()
        self.deaths.append((began_at, time.monotonic()))

    async def _heads(self) -> dict[str, int]:
        return await self.cluster.primary.heads(tuple(TOPICS))

    async def _slow_disk(self) -> None:
        """Redis dies on a slow disk, where it may reply before it writes."""
        if shutil.which("strace") is None:
            return
        sync_s = SLOW_SYNC_S[self.cluster.fsync]
        self._note("slow disks", f"{self.cluster.primary.name} is killed, and its disk is slow")
        self.counts["redis kills"] += 1
        # strace may hang where a process forks in a delayed call, as it does for a replica.
        await self.cluster.other.kill()
        await self._restart_primary(0, sync_s)
        self._tell(f"{self.cluster.primary.name} is back on the slow disk")
        await asyncio.sleep(self.chance.uniform(2, 5))
        self._note("redis kills", f"{self.cluster.primary.name} is killed on its slow disk")
        await self._restart_primary(0)
        self._tell(f"{self.cluster.primary.name} is back with {await self._heads()}")
        await self.cluster.attach_replica()

    async def _change_settings(self) -> None:
        """Redis is told to keep nothing, and may die meanwhile, or just after it keeps again."""
        async with self._gateway_lane, self._link_lane:
            primary, ends = self.cluster.primary, self.chance.randrange(3)
            self._note("settings changed", f"{primary.name}: appendonly no ({ends})")
            began_at = time.monotonic()
            await primary.command("CONFIG", "SET", "appendonly", "no")
            await asyncio.sleep(self.chance.uniform(SETTINGS_SEEN_S, SETTINGS_SEEN_S + 1))
            if ends != 0:
                await primary.command("CONFIG", "SET", "appendonly", "yes")
                self._tell(f"{primary.name}: appendonly yes")
                await asyncio.sleep(self.chance.choice((0.05, 0.3, 1)) * self.chance.random())
            if ends == 2:
                return
            self._note("redis kills", f"{primary.name} is killed after its settings changed")
            await primary.kill()
            primary.configure()
            await primary.start()
            kept = await self._heads()
            unsafe_until = began_at + SETTINGS_SEEN_S
            self.losses.append(
                Loss("settings", began_at, time.monotonic(), kept, unsafe_until_s=unsafe_until)
            )
            self._tell(f"{primary.name} is back with {kept}")

    async def _fail_over_killed(self) -> None:
        await self._fail_over("killed")

    async def _fail_over_paused(self) -> None:
        await self._fail_over("paused")

    async def _fail_over_split(self) -> None:
        await self._fail_over("split")

    async def _fail_over(self, kind: str) -> None:
        """Promote the replica; gateways find it behind the address of the primary.

        Until the end of a split some gateways are still led to the old primary, which answers.
        """
        cluster = self.cluster
        while not await cluster.replica_follows():
            self._tell("the replica does not follow")
            await cluster.attach_replica()
        await self._let_replica_lag()
        began_at, old = time.monotonic(), cluster.primary
        self._note(f"failovers, old primary {kind}", f"{old.name} fails over, and is {kind}")
        if kind == "killed":
            await old.kill()
        elif kind == "paused":
            old.signal(signal.SIGSTOP)
        await cluster.other.command("REPLICAOF", "NO", "ONE")
        cluster.primary_at = 1 - cluster.primary_at
        kept = await self._heads()
        if kind == "split":
            order = self.chance.sample(range(GATEWAYS), GATEWAYS)
            moved = order[: self.chance.randint(1, GATEWAYS - 1)]
            self._tell(f"{cluster.primary.name} has {kept}; gateways {moved} are led to it")
            cluster.lead(*moved)
            await asyncio.sleep(self.chance.uniform(0.5, 6))
            await cluster.note_epochs()
            cluster.lead(*(at for at in order if at not in moved))
        else:
            cluster.lead()
        ended_at = time.monotonic()
        self.losses.append(Loss(f"failover, {kind}", began_at, ended_at, kept))
        self._tell(f"all are led to {cluster.primary.name}, which began with {kept}")
        await asyncio.sleep(self.chance.uniform(0, 3))
        if kind == "split" and self.chance.random() < 0.5:
            await old.kill()
        if kind == "paused":
            old.signal(signal.SIGCONT)
        await cluster.attach_replica()
        self._tell(f"{old.name} is a replica now")

    async def _fail_over_fresh(self) -> None:
        """A replica is promoted before its file is whole: it has just got all from the primary.

        It dies a moment later. What was acknowledged before it was promoted, it may lose.
        """
        cluster = self.cluster
        await cluster.other.kill()
        keys = max(1, await cluster.primary.command("DBSIZE"))
        save_us = round(FRESH_FILE_S * 1e6 / keys)
        cluster.other.configure(replica_of=cluster.replication.port, save_us=save_us)
        await cluster.other.start()
        if not await cluster.replica_follows():
            self._tell("the fresh replica does not follow")
            return
        began_at, old = time.monotonic(), cluster.primary
        self._note("failovers to a fresh replica", f"{old.name} dies; a fresh replica takes over")
        await old.kill()
        await cluster.other.command("REPLICAOF", "NO", "ONE")
        cluster.primary_at = 1 - cluster.primary_at
        kept = await self._heads()
        cluster.lead()
        ended_at = time.monotonic()
        self._tell(f"{cluster.primary.name} began with {kept}")
        await asyncio.sleep(self.chance.uniform(0.3, 1.2) * FRESH_FILE_S)
        self._note("redis kills", f"{cluster.primary.name} is killed")
        await self._restart_primary(0)
        left = await self._heads()
        kept = {topic: min(kept[topic], left[topic]) for topic in kept}
        self.losses.append(Loss("failover to a fresh replica", began_at, ended_at, kept))
        self._tell(f"{cluster.primary.name} is back with {left}")
        await cluster.attach_replica()

    async def _let_replica_lag(self) -> None:
        """Let the replica miss what is written for a moment, or have all."""
        lag = self.chance.randrange(3)
        if lag == 1:
            self.cluster.replication.carry(down=BLACK_HOLE)
        elif lag == 2:
            self.cluster.replication.carry(down=Line(latency_s=0.2, jitter_s=0.2))
        await asyncio.sleep(self.chance.uniform(0.1, 1) if lag else 0)
