"""Session locations: which gateway has a session, or the serialized session while it moves.

`SessionRowCleanup` removes rows of `tidegate.sessions` whose session no gateway has.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any, NamedTuple

import msgspec

from tidegate.app.cluster.connection import BusConnection, translate_errors
from tidegate.app.cluster.membership import DEAD_S, Membership
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.leadership import Leadership
from tidegate.app.topics.registry import TopicRegistry
from tidegate.app.topics.system_topics import SESSIONS
from tidegate.app.topics.writer import Writer
from tidegate.conflation.frame import Frame, RemovalReason

LOCATION_MS = 3_600_000
REFRESH_MS = LOCATION_MS // 3
"""Interval at which a gateway confirms the location of a session that another one opened."""

# A hash of `owner` and `transfer`. Any gateway may claim a transfer without an owner; a transfer
# with an owner was claimed and not confirmed, and stays so that a lost reply loses no session. It
# stays for as long as it would have without the claim, of which its claimant may never learn.
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
        owner, transfer = await self._run(_CLAIM, session)
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
OWN_ROWS_EVERY = 15
"""Checks of dead gateways' rows for one of a gateway's own rows: these are wrong far less often."""

logger = logging.getLogger("tidegate.bus")


class SessionRow(msgspec.Struct):
    """The fields of a row of `tidegate.sessions` that identify the session's gateway."""

    session: str
    gateway: str = ""


_ROWS = msgspec.json.Decoder(SessionRow)


class SessionRowCleanup:
    """Removes rows of sessions that no gateway has and none can claim.

    The leader checks the rows of dead gateways. Every gateway checks those that name it: a session
    may have left it, and have ended at a gateway that could not write the session's row any more.
    All other writes of a session's row come from the gateway that has it.

    `has_session` tells whether this gateway has a session.
    """

    def __init__(
        self,
        membership: Membership,
        locations: SessionLocations,
        catalog: TopicRegistry,
        driver: Driver,
        writer: Writer,
        leadership: Leadership,
        has_session: Callable[[str], bool],
    ) -> None:
        self._membership = membership
        self._locations = locations
        self._catalog = catalog
        self._driver = driver
        self._writer = writer
        self._leadership = leadership
        self._has_session = has_session

    async def run(self) -> None:
        """Check at intervals until cancelled; retry after an error, mostly an unavailable Redis."""
        for number in count(1):
            await asyncio.sleep(CHECK_INTERVAL_S)
            raise_if_cancelled()
            try:
                if self._leadership.is_held:
                    await self.clear_dead()
                if number % OWN_ROWS_EVERY == 0:
                    await self.clear_own()
            except Exception as error:  # most often the bus is out
                logger.info("removing rows without a session from %s failed: %s", SESSIONS, error)

    async def clear_dead(self) -> None:
        """Remove rows of dead gateways whose sessions nobody has.

        Raises:
            TopicUnknown, Refused: some rows may remain.
        """
        if not self._membership.is_connected_for(DEAD_S):
            return  # after an interruption Redis may lack gateways that are alive
        if not (rows := self._of_unknown(self._rows())):
            return
        # A gateway joins before it writes a session's row, so members read after the rows are
        # complete for these rows.
        await self._membership.heartbeat()
        await self._remove_orphaned(self._of_unknown(rows), self._leadership.fence)

    async def clear_own(self) -> None:
        """Remove rows that name this gateway although it has no such session, nor has another.

        Raises:
            TopicUnknown, Refused: some rows may remain.
        """
        if rows := [row for row in self._rows() if self._is_left(_ROWS.decode(row.payload))]:
            await self._membership.heartbeat()
            await self._remove_orphaned(rows, None)

    def _rows(self) -> Iterable[Frame]:
        if self._catalog.served(SESSIONS) is None:
            return ()
        sow = self._driver.engine.topic(SESSIONS).sow
        assert sow is not None, "it has a key"
        return sow.board.live()

    def _of_unknown(self, rows: Iterable[Frame]) -> list[Frame]:
        """Return the rows of gateways that are not members."""
        members = {*self._membership.others, self._membership.gateway}
        return [row for row in rows if _ROWS.decode(row.payload).gateway not in members]

    def _is_left(self, row: SessionRow) -> bool:
        return row.gateway == self._membership.gateway and not self._has_session(row.session)

    async def _remove_orphaned(self, rows: Iterable[Frame], fence: int | None) -> None:
        orphaned = [row for row in rows if await self._is_orphaned(row)]
        if orphaned:
            entry = self._catalog.get(SESSIONS)
            await self._writer.remove(entry, orphaned, RemovalReason.DELETED, fence)

    async def _is_orphaned(self, row: Frame) -> bool:
        """Return whether no gateway has the session, and none can claim it."""
        session = _ROWS.decode(row.payload).session
        location = await self._locations.read(session)
        raise_if_cancelled()
        if self._has_session(session) or location.owner in self._membership.others:
            return False
        # What this gateway claimed and did not confirm is arriving.
        is_claimable = location.owner in ("", self._membership.gateway)
        return not (location.transfer and is_claimable)
