"""The roll: which gateways share the bus, each saying again and again that it is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from redis.exceptions import ResponseError

from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection, reaching
from app.bus.lease import DUTIES, lease_key
from app.problems import Problem

BEAT_S = 0.5
SILENT_S = 1.5
"""Who has not been heard of for so long and has no connection to the bus any more has died."""

GONE_S = 10.0
"""Who has not been heard of for so long is gone in any case."""

# The bus's own clock, so that clocks of machines may differ. Who is there, by when it is gone.
_BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {now, redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')}
"""

# Who was heard of meanwhile stays. What it did for all is free for another.
# KEYS gateways lease; ARGV gateway gone_at_ms
_BURY = """
if redis.call('ZSCORE', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return redis.call('ZREM', KEYS[1], ARGV[1])
"""

logger = logging.getLogger("tidegate.bus")


class Roll:
    """The gateways there are, as of the last beat.

    A process that dies loses its connections at once, one that is only held up keeps them. So who
    is silent is looked for among the connections of the bus, which bear their gateway's name.

    Args:
        bus: what they share.
        gateway: this one's id.
    """

    def __init__(self, bus: BusConnection, gateway: str) -> None:
        self.gateway = gateway
        self._bus = bus
        self._name = bus.shared_key("gateways")
        self._found: dict[str, bytes] = {}
        self._changed = asyncio.Event()
        self._bus_ms = 0
        self._ahead_ms = 0
        self._steady_since_s = float("inf")
        bus.sign(_signature(gateway))

    @property
    def others(self) -> list[str]:
        """The other gateways, by id."""
        return sorted(self._found.keys() - {self.gateway})

    def now_ms(self) -> int:
        """The bus's time, by which all gateways go."""
        return _wall_ms() + self._ahead_ms

    def is_steady(self, for_s: float) -> bool:
        """Whether the bus has heard of this gateway all that time.

        Else it may have heard of nobody: whom it does not know may be there all the same.
        """
        return _now_s() - self._steady_since_s >= for_s

    async def has(self, gateway: str) -> bool:
        """Whether a gateway is there; one that is not known is looked for.

        Raises:
            Problem: bus-unavailable.
        """
        if gateway not in self._found:
            await self.beat()
        return gateway in self._found

    async def gone(self, gateway: str) -> None:
        """Until a gateway is not there any more."""
        while gateway in self._found:
            await self._changed.wait()

    async def beat(self) -> None:
        """Say that this one is there, and see who else is.

        Raises:
            Problem: bus-unavailable.
        """
        began_ms = _wall_ms()
        try:
            with reaching():
                now_ms, found = await self._bus.run(
                    _BEAT, [self._name], [self.gateway, round(GONE_S * 1_000)]
                )
        except Problem:
            self._steady_since_s = float("inf")
            raise
        self._steady_since_s = min(self._steady_since_s, _now_s())
        self._bus_ms = int(now_ms)
        self._ahead_ms = self._bus_ms - (began_ms + _wall_ms()) // 2
        pairs = zip(found[::2], found[1::2], strict=True)
        self._note({name.decode(): gone_at_ms for name, gone_at_ms in pairs})

    async def bury(self) -> None:
        """Strike those off that have died since they were heard of.

        Raises:
            Problem: bus-unavailable.
        """
        keys = [self._name, lease_key(self._bus, DUTIES)]
        silent = {name: self._found[name] for name in self.others if self._is_silent(name)}
        if not silent or not self.is_steady(SILENT_S):
            return
        try:
            with reaching():
                names = await self._bus.names()
                for gateway, gone_at_ms in silent.items():
                    if _signature(gateway) not in names:
                        await self._bus.run(_BURY, keys, [gateway, gone_at_ms])
                        self._note({k: v for k, v in self._found.items() if k != gateway})
        except Problem as problem:
            if not isinstance(problem.__cause__, ResponseError):  # else it may not be asked
                raise

    async def run(self) -> None:
        """Beat until cancelled; while the bus is out, what was known last holds. Told once."""
        is_told = False
        while True:
            try:
                await self.beat()
                await self.bury()
                is_told = False
            except Problem as problem:
                level = logging.DEBUG if is_told else logging.WARNING
                logger.log(level, "the roll of gateways is not renewed: %s", problem.detail)
                is_told = True
            heed_cancellation()
            await asyncio.sleep(BEAT_S)

    async def leave(self) -> None:
        """Be gone at once; if the bus is out, the others find out by themselves."""
        with contextlib.suppress(Problem), reaching():
            await self._bus.ask("ZREM", self._name, self.gateway)

    def _note(self, found: dict[str, bytes]) -> None:
        self._found = found
        self._changed.set()
        self._changed = asyncio.Event()

    def _is_silent(self, gateway: str) -> bool:
        heard_ms = float(self._found[gateway]) - GONE_S * 1_000
        return self._bus_ms - heard_ms >= SILENT_S * 1_000


def _signature(gateway: str) -> str:
    """What a gateway's connections are called."""
    return f"tidegate:{gateway}"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _now_s() -> float:
    return time.monotonic()
