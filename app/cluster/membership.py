"""Cluster membership by heartbeat, and the leader lease."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable

from redis.exceptions import ResponseError

from tidegate.app.cluster.connection import BusConnection, translate_errors
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.cluster.scripts import ACQUIRE_LEASE, EXTEND_LEASE
from tidegate.app.refusals import Refused
from tidegate.app.timers import Backoff

_LEASE = "duties"  # of expiry, derived topics and clean-up, for all gateways

TERM_S = 4.0
BEATS_PER_TERM = 8  # the others try as often, so a dead holder is soon replaced

logger = logging.getLogger("tidegate.bus")


def lease_key(connection: BusConnection) -> str:
    """Return the key that holds the holder of the leader lease."""
    return connection.shared_key("lease", _LEASE)


def fence_key(connection: BusConnection) -> str:
    """Return the key that holds the fencing number of the newest holder."""
    return connection.shared_key("fence", _LEASE)


class Lease:
    """The leader lease, which one gateway at a time holds; a fencing number grows with each holder.

    The holder treats the lease as lost after one term without a reply, by its own clock, before
    Redis can grant it to another. If that clock is wrong, the fencing number still rejects its
    writes.

    Args:
        connection: the shared Redis.
        holder: this gateway's id.
        on_acquired: called with the fencing number when this gateway acquires the lease.
        on_lost: called when this gateway loses the lease.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        connection: BusConnection,
        holder: str,
        *,
        on_acquired: Callable[[int], None],
        on_lost: Callable[[], None],
        clock: Callable[[], float],
        term_s: float = TERM_S,
    ) -> None:
        self.number: int | None = None
        self._connection = connection
        self._keys = [lease_key(connection), fence_key(connection)]
        self._holder = holder
        self._on_acquired = on_acquired
        self._on_lost = on_lost
        self._clock = clock
        self._term_s = term_s
        self._valid_until_s = 0.0

    async def run(self) -> None:
        """Acquire and extend the lease until cancelled."""
        while True:
            try:
                await self.step()
            except Exception:
                logger.exception("a step of the leader lease failed; retrying")
            raise_if_cancelled()
            await asyncio.sleep(self._term_s / BEATS_PER_TERM)

    async def step(self) -> None:
        """Do one step: acquire the lease, extend it, or detect its loss."""
        sent_s, term_ms = self._clock(), round(self._term_s * 1_000)
        try:
            with translate_errors():
                if self.number is None:
                    await self._acquire(sent_s, term_ms)
                    return
                words = [self._holder, term_ms]
                if await self._connection.run_script(EXTEND_LEASE, self._keys[:1], words):
                    self._valid_until_s = sent_s + self._term_s
                else:
                    self._valid_until_s = 0.0
        except Refused:
            pass  # Redis is unavailable: the lease stays valid for the rest of the term
        if self.number is not None and self._clock() >= self._valid_until_s:
            await self._lose()

    async def release(self) -> None:
        """Release the lease, so that another gateway can acquire it at once."""
        if self.number is None:
            return
        await self._lose()
        try:
            with translate_errors():
                await self._connection.run_script(EXTEND_LEASE, self._keys[:1], [self._holder, 0])
        except Refused:
            pass  # then the lease expires by itself

    async def _acquire(self, sent_s: float, term_ms: int) -> None:
        number = await self._connection.run_script(
            ACQUIRE_LEASE, self._keys, [self._holder, term_ms]
        )
        if number:
            self.number, self._valid_until_s = number, sent_s + self._term_s
            self._on_acquired(number)

    async def _lose(self) -> None:
        self.number = None
        self._on_lost()


HEARTBEAT_S = 0.5
SUSPECT_S = 1.5
"""A gateway that is silent for this long and has no connection to Redis counts as dead."""

DEAD_S = 10.0
"""A gateway that is silent for this long counts as dead in any case."""

# The scores are expiry times by the clock of Redis, because clocks of machines differ.
# KEYS gateways; ARGV gateway gone_ms
_HEARTBEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local is_new = redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {now, is_new, redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')}
"""

# A gateway with a newer heartbeat stays. Its lease is released for another leader.
# KEYS gateways lease; ARGV gateway expires_ms
_REMOVE_DEAD = """
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return redis.call('ZREM', KEYS[1], ARGV[1])
"""


class Membership:
    """The gateways of the cluster as of the last heartbeat.

    A process that dies loses its connections at once; one that merely hangs keeps them. So a silent
    gateway is dead only if Redis has no connection with the gateway's name, at two heartbeats in a
    row: one that hung closes its overdue connections as it wakes, and opens others a moment later.

    Args:
        bus: the shared Redis.
        gateway: this gateway's id.

    Attributes:
        on_rejoined: called after a heartbeat that found this gateway removed: the others have
            counted it as dead meanwhile.
    """

    def __init__(self, bus: BusConnection, gateway: str) -> None:
        self.gateway = gateway
        self.on_rejoined: Callable[[], None] | None = None
        self._bus = bus
        self._has_joined = False
        self._name = bus.shared_key("gateways")
        self._members: dict[str, bytes] = {}
        self._changed = asyncio.Event()
        # As of the last look: silent gateways without a connection, and their last heartbeats.
        self._unconnected: dict[str, bytes] = {}
        self._bus_ms = 0
        self._connected_since_s = float("inf")
        bus.set_client_name(_client_name(gateway))

    @property
    def others(self) -> list[str]:
        """Return the ids of the other gateways."""
        return sorted(self._members.keys() - {self.gateway})

    def is_connected_for(self, duration_s: float) -> bool:
        """Return whether every heartbeat of the last `duration_s` seconds succeeded.

        After an interruption Redis may have forgotten gateways that are alive.
        """
        return _now_s() - self._connected_since_s >= duration_s

    async def has(self, gateway: str) -> bool:
        """Return whether a gateway is alive; send a heartbeat first if the gateway is unknown.

        Raises:
            Refused: bus-unavailable.
        """
        if gateway not in self._members:
            await self.heartbeat()
        return gateway in self._members

    async def wait_until_gone(self, gateway: str) -> None:
        """Wait until a gateway is no longer a member."""
        while gateway in self._members:
            await self._changed.wait()

    async def heartbeat(self) -> None:
        """Send a heartbeat and read the members.

        Raises:
            Refused: bus-unavailable.
        """
        asked_ms = self._bus.clock.wall_ms()
        try:
            with translate_errors():
                now_ms, is_new, members = await self._bus.run_script(
                    _HEARTBEAT, [self._name], [self.gateway, round(DEAD_S * 1_000)]
                )
        except Refused:
            self._connected_since_s = float("inf")
            raise
        self._connected_since_s = min(self._connected_since_s, _now_s())
        self._bus_ms = int(now_ms)
        self._bus.clock.learn(self._bus_ms, asked_ms)
        pairs = zip(members[::2], members[1::2], strict=True)
        self._set_members({name.decode(): expires_ms for name, expires_ms in pairs})
        if is_new and self._has_joined and self.on_rejoined is not None:
            self.on_rejoined()
        self._has_joined = True

    async def remove_dead(self) -> None:
        """Remove gateways that died since their last heartbeat.

        Raises:
            Refused: bus-unavailable.
        """
        keys = [self._name, lease_key(self._bus)]
        doubted_s = SUSPECT_S - HEARTBEAT_S  # the look before the one that decides
        silent = {it: self._members[it] for it in self.others if self._silence_s(it) >= doubted_s}
        before, self._unconnected = self._unconnected, {}
        if not silent or not self.is_connected_for(SUSPECT_S):
            return
        try:
            with translate_errors():
                names = await self._bus.client_names()
                for gateway, expires_ms in silent.items():
                    if _client_name(gateway) in names:
                        continue
                    self._unconnected[gateway] = expires_ms
                    if before.get(gateway) == expires_ms and self._silence_s(gateway) >= SUSPECT_S:
                        await self._bus.run_script(_REMOVE_DEAD, keys, [gateway, expires_ms])
                        self._set_members({k: v for k, v in self._members.items() if k != gateway})
        except Refused as refusal:
            # Without permission for CLIENT LIST, a dead gateway expires after DEAD_S.
            if not isinstance(refusal.__cause__, ResponseError):
                raise

    async def run(self) -> None:
        """Send heartbeats until cancelled; if Redis is unavailable, the last members stay valid."""
        # A failure changes nothing about the rhythm: others judge this gateway by it.
        backoff = Backoff(HEARTBEAT_S)
        while True:
            try:
                await self.heartbeat()
                await self.remove_dead()
                backoff.succeeded()
                pause_s = HEARTBEAT_S
            except Refused as refusal:
                logger.log(backoff.level, "the heartbeat failed: %s", refusal.detail)
                pause_s = backoff.next_s()
            raise_if_cancelled()
            await asyncio.sleep(pause_s)

    async def leave(self) -> None:
        """Remove this gateway at once; if Redis is unavailable, the others detect it later."""
        with contextlib.suppress(Refused), translate_errors():
            await self._bus.execute("ZREM", self._name, self.gateway)

    def _set_members(self, members: dict[str, bytes]) -> None:
        self._members = members
        self._changed.set()
        self._changed = asyncio.Event()

    def _silence_s(self, gateway: str) -> float:
        heard_ms = float(self._members[gateway]) - DEAD_S * 1_000
        return (self._bus_ms - heard_ms) / 1_000


def _client_name(gateway: str) -> str:
    """Return the client name of a gateway's connections."""
    return f"tidegate:{gateway}"


def _now_s() -> float:
    return time.monotonic()
