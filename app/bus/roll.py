"""The roll: which gateways share the bus, each saying again and again that it is there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection, reaching
from app.problems import Problem

BEAT_S = 1.0
GONE_S = 10.0
"""Who has not been heard of for so long is gone."""

# The bus's own clock, so that clocks of machines may differ.
_BEAT = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {now, redis.call('ZRANGE', KEYS[1], 0, -1)}
"""

logger = logging.getLogger("tidegate.bus")


class Roll:
    """The gateways there are, as of the last beat.

    Args:
        bus: what they share.
        gateway: this one's id.
    """

    def __init__(self, bus: BusConnection, gateway: str) -> None:
        self.gateway = gateway
        self._bus = bus
        self._name = bus.shared_key("gateways")
        self._found: frozenset[str] = frozenset()
        self._ahead_ms = 0

    @property
    def others(self) -> list[str]:
        """The other gateways, by id."""
        return sorted(self._found - {self.gateway})

    def now_ms(self) -> int:
        """The bus's time, by which all gateways go."""
        return _wall_ms() + self._ahead_ms

    async def has(self, gateway: str) -> bool:
        """Whether a gateway is there; one that is not known is looked for.

        Raises:
            Problem: bus-unavailable.
        """
        if gateway not in self._found:
            await self.beat()
        return gateway in self._found

    async def beat(self) -> None:
        """Say that this one is there, and see who else is.

        Raises:
            Problem: bus-unavailable.
        """
        began_ms = _wall_ms()
        with reaching():
            now_ms, found = await self._bus.run(
                _BEAT, [self._name], [self.gateway, round(GONE_S * 1_000)]
            )
        self._ahead_ms = int(now_ms) - (began_ms + _wall_ms()) // 2
        self._found = frozenset(name.decode() for name in found)

    async def run(self) -> None:
        """Beat until cancelled; while the bus is out, what was known last holds."""
        while True:
            try:
                await self.beat()
            except Problem as problem:
                logger.warning("the roll of gateways is not renewed: %s", problem.detail)
            heed_cancellation()
            await asyncio.sleep(BEAT_S)

    async def leave(self) -> None:
        """Be gone at once; if the bus is out, the others find out by themselves."""
        with contextlib.suppress(Problem), reaching():
            await self._bus.ask("ZREM", self._name, self.gateway)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
