"""Places: which gateway has a session, or the session itself while it is on its way."""

from __future__ import annotations

from typing import Any, NamedTuple

from app.bus.connection import BusConnection, reaching

HELD_MS = 3_600_000
HELD_AGAIN_MS = HELD_MS // 3
"""A gateway says so often again that it holds a session which another one opened."""

# A hash of `owner` and `luggage`. Luggage without an owner is anybody's; with one it is what that
# gateway has taken and not confirmed yet, so that an answer that was lost loses no session.
_PARK = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'owner')
redis.call('HSET', KEYS[1], 'luggage', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
_TAKE = """
local owner = redis.call('HGET', KEYS[1], 'owner')
local luggage = redis.call('HGET', KEYS[1], 'luggage')
if luggage and (not owner or owner == ARGV[1]) then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {ARGV[1], luggage}
end
return {owner or '', ''}
"""
_HOLD = """
local owner = redis.call('HGET', KEYS[1], 'owner')
local luggage = redis.call('HGET', KEYS[1], 'luggage')
if owner and owner ~= ARGV[1] or luggage and not owner then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
redis.call('HDEL', KEYS[1], 'luggage')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""


class Place(NamedTuple):
    """Where a session is: `owner` is a gateway's id, "" if nobody has said.

    `luggage` is the session, which whoever asked has taken with it; else empty.
    """

    owner: str
    luggage: bytes


class Places:
    """Where sessions are that are not with the gateway that opened them.

    Args:
        bus: what the gateways share.
        gateway: this one's id.
    """

    def __init__(self, bus: BusConnection, gateway: str) -> None:
        self._bus = bus
        self._gateway = gateway

    async def park(self, session: str, luggage: bytes, kept_ms: int) -> None:
        """Leave a session for whoever takes it within so many ms; again does nothing new.

        Raises:
            Problem: bus-unavailable; it may be there or not.
        """
        await self._run(_PARK, session, luggage, kept_ms)

    async def take(self, session: str) -> Place:
        """Where a session is; taken at once, if it is on its way.

        Until it is said to be held, it may be taken again.

        Raises:
            Problem: bus-unavailable.
        """
        owner, luggage = await self._run(_TAKE, session, HELD_MS)
        return Place(owner.decode(), luggage)

    async def look(self, session: str) -> Place:
        """Where a session is; it stays there.

        Raises:
            Problem: bus-unavailable.
        """
        with reaching():
            owner, luggage = await self._bus.ask(
                "HMGET", self._bus.shared_key("session", session), "owner", "luggage"
            )
        return Place((owner or b"").decode(), luggage or b"")

    async def hold(self, session: str) -> None:
        """Say that a session which another gateway opened is here.

        Raises:
            Problem: bus-unavailable.
        """
        await self._run(_HOLD, session, HELD_MS)

    async def _run(self, script: str, session: str, *words: object) -> Any:
        name = self._bus.shared_key("session", session)
        with reaching():
            return await self._bus.run(script, [name], [self._gateway, *words])
