"""Session locations: which gateway has a session, or the serialized session while it moves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from tidegate.app.cluster.connection import BusConnection, translate_errors
from tidegate.app.cluster.membership import DEAD_S, Membership
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.derived import Leadership
from tidegate.app.topics.registry import TopicRegistry
from tidegate.app.topics.system_topics import SESSIONS
from tidegate.app.topics.writer import Writer
from tidegate.conflation.frame import Frame, RemovalReason

LOCATION_MS = 3_600_000
REFRESH_MS = LOCATION_MS // 3
"""Interval at which a gateway confirms the location of a session that another one opened."""

# A hash of `owner` and `transfer`. Any gateway may claim a transfer without an owner; a transfer
# with an owner was claimed and not confirmed, and stays so that a lost reply loses no session.
_STORE = """
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner and owner ~= ARGV[1] then return 0 end
redis.call('HDEL', KEYS[1], 'owner')
redis.call('HSET', KEYS[1], 'transfer', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
"""
_CLAIM = """
local owner = redis.call('HGET', KEYS[1], 'owner')
local transfer = redis.call('HGET', KEYS[1], 'transfer')
if transfer and (not owner or owner == ARGV[1]) then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return {ARGV[1], transfer}
end
return {owner or '', ''}
"""
_CONFIRM = """
local owner = redis.call('HGET', KEYS[1], 'owner')
local transfer = redis.call('HGET', KEYS[1], 'transfer')
if owner and owner ~= ARGV[1] or transfer and not owner then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1])
redis.call('HDEL', KEYS[1], 'transfer')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
"""


class SessionLocation(NamedTuple):
    """A session's location: `owner` is a gateway's id, "" if unknown.

    `transfer` is the serialized session, given to the caller that claims it; otherwise empty.
    """

    owner: str
    transfer: bytes


class SessionLocations:
    """The locations of sessions that are not with the gateway that opened them.

    Args:
        bus: the shared Redis.
        gateway: this gateway's id.
    """

    def __init__(self, bus: BusConnection, gateway: str) -> None:
        self._bus = bus
        self._gateway = gateway

    async def store(self, session: str, transfer: bytes, kept_ms: int) -> None:
        """Store a serialized session for `kept_ms`; a repeated call has no further effect.

        Raises:
            Refused: bus-unavailable; the session may be stored or not.
        """
        await self._run(_STORE, session, transfer, kept_ms)

    async def claim(self, session: str) -> SessionLocation:
        """Return a session's location, and claim the session if it is stored.

        The claimant may claim it again until it calls `confirm`, so a lost reply loses no session.

        Raises:
            Refused: bus-unavailable.
        """
        owner, transfer = await self._run(_CLAIM, session, LOCATION_MS)
        return SessionLocation(owner.decode(), transfer)

    async def read(self, session: str) -> SessionLocation:
        """Return a session's location without claiming the session.

        Raises:
            Refused: bus-unavailable.
        """
        with translate_errors():
            owner, transfer = await self._bus.execute(
                "HMGET", self._bus.shared_key("session", session), "owner", "transfer"
            )
        return SessionLocation((owner or b"").decode(), transfer or b"")

    async def confirm(self, session: str) -> None:
        """Confirm that a session which another gateway opened is here.

        Raises:
            Refused: bus-unavailable.
        """
        await self._run(_CONFIRM, session, LOCATION_MS)

    async def _run(self, script: str, session: str, *arguments: object) -> Any:
        name = self._bus.shared_key("session", session)
        with translate_errors():
            return await self._bus.run_script(script, [name], [self._gateway, *arguments])


CHECK_INTERVAL_S = 2.0

logger = logging.getLogger("tidegate.bus")


class SessionRow(msgspec.Struct):
    """The fields of a row of `tidegate.sessions` that identify the session's gateway."""

    session: str
    gateway: str = ""


_ROWS = msgspec.json.Decoder(SessionRow)


class DeadPeerCleanup:
    """Removes rows of sessions that no gateway has and none can claim.

    Only the leader runs it. All other writes of a session's row come from the gateway that has it.
    """

    def __init__(
        self,
        membership: Membership,
        locations: SessionLocations,
        catalog: TopicRegistry,
        driver: Driver,
        writer: Writer,
        leadership: Leadership,
    ) -> None:
        self._membership = membership
        self._locations = locations
        self._catalog = catalog
        self._driver = driver
        self._writer = writer
        self._leadership = leadership

    async def run(self) -> None:
        """Check at intervals until cancelled; retry after an error, mostly an unavailable Redis."""
        while True:
            await asyncio.sleep(CHECK_INTERVAL_S)
            raise_if_cancelled()
            await self._leadership.begins()
            try:
                await self.clear()
            except Exception as error:  # most often the bus is out
                logger.info("removing rows of dead gateways from %s failed: %s", SESSIONS, error)

    async def clear(self) -> None:
        """Remove rows without an owner.

        Raises:
            TopicUnknown, Refused: some rows may remain.
        """
        entry = self._catalog.served(SESSIONS)
        if entry is None or not self._membership.is_connected_for(DEAD_S):
            return  # after an interruption Redis may lack gateways that are alive
        sow = self._driver.engine.topic(SESSIONS).sow
        assert sow is not None, "it has a key"
        if not (unknown := self._of_unknown(sow.board.live())):
            return
        # A gateway joins before it writes a session's row, so members read after the rows are
        # complete for these rows.
        await self._membership.heartbeat()
        members = self._members()
        orphaned = [
            row for row in self._of_unknown(unknown) if await self._is_orphaned(row, members)
        ]
        if orphaned:
            await self._writer.remove(
                entry, orphaned, RemovalReason.DELETED, self._leadership.fence
            )

    def _members(self) -> set[str]:
        return {*self._membership.others, self._membership.gateway}

    def _of_unknown(self, rows: Iterable[Frame]) -> list[Frame]:
        """Return the rows of gateways that are not members."""
        members = self._members()
        return [row for row in rows if _ROWS.decode(row.payload).gateway not in members]

    async def _is_orphaned(self, row: Frame, members: set[str]) -> bool:
        location = await self._locations.read(_ROWS.decode(row.payload).session)
        raise_if_cancelled()
        return location.owner not in members and not (location.transfer and not location.owner)
