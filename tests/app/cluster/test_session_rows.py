"""Rows of sessions that no gateway has any more are removed, and no others.

Rule session-7 is tested here.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.buses import BusServer, gateways
from tests.support.gateways import Running, eventually
from tests.support.rules import rule
from tests.support.sessions import opened
from tidegate.app.cluster import membership as rolls
from tidegate.app.cluster import session_locations as module
from tidegate.app.cluster.peers import Peers
from tidegate.app.cluster.session_locations import SessionRowCleanup
from tidegate.app.refusals import Unavailable
from tidegate.app.timers import wall_ms
from tidegate.app.topics.system_topics import SESSIONS

pytestmark = [pytest.mark.redis, rule("session-7")]


@pytest.fixture
def checks_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """No check of its own runs, and a gateway that is off the roll counts as dead at once."""
    monkeypatch.setattr(module, "DEAD_S", 0.0)
    monkeypatch.setattr(module, "CHECK_INTERVAL_S", 3_600.0)


def peers_of(gateway: Running) -> Peers:
    assert gateway.gateway.peers is not None
    return gateway.gateway.peers


def shown(gateway: Running) -> set[str]:
    """The sessions that there is a row of."""
    sow = gateway.gateway.driver.engine.topic(SESSIONS).sow
    assert sow is not None
    return {row.key[2:-2] for row in sow.board.live()}


def cleanup_of(gateway: Running) -> SessionRowCleanup:
    here, peers = gateway.gateway, peers_of(gateway)
    return SessionRowCleanup(
        peers.membership,
        peers.locations,
        here.catalog,
        here.driver,
        here.writer,
        here.leadership,
        here.sessions.__contains__,
    )


async def leaves(gateway: Running) -> None:
    """It says nothing any more, also not that it is there, and is off the roll."""
    peers = peers_of(gateway)
    for task in peers._running:
        task.cancel()
    await asyncio.gather(*peers._running, return_exceptions=True)
    await peers.membership.leave()


@pytest.mark.usefixtures("checks_when_called")
async def test_rows_go_with_the_gateway_that_alone_has_their_sessions(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (stays, dies):
        peers, places = peers_of(stays), peers_of(dies).locations
        here, moved, parked, lost = [await opened(it) for it in (stays, dies, dies, dies)]
        assert await peers.bring_here(moved, None, None, wall_ms())
        await eventually(lambda: shown(stays) == {here, moved, parked, lost}, "all are listed")
        await cleanup_of(stays).clear_dead()
        assert shown(stays) == {here, moved, parked, lost}, "both gateways are there"
        await places.store(parked, b"transfer", 60_000)
        await leaves(dies)
        await peers.membership.heartbeat()
        assert peers.membership.others == []
        await cleanup_of(stays).clear_dead()
        assert shown(stays) == {here, moved, parked}
        bus = stays.gateway.bus
        assert bus is not None
        await bus.connection.execute("DEL", bus.connection.shared_key("session", parked))
        with monkeypatch.context() as unsteady:
            unsteady.setattr(module, "DEAD_S", 3_600.0)
            await cleanup_of(stays).clear_dead()
            assert shown(stays) == {here, moved, parked}, "who was not heard of may be there"
        await cleanup_of(stays).clear_dead()
        assert shown(stays) == {here, moved}, "nobody can take it up any more"


@pytest.mark.usefixtures("checks_when_called")
async def test_a_gateway_that_was_cut_off_shows_its_sessions_again(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with gateways(redis_bus) as (stays, cut_off):
        members = peers_of(cut_off).membership
        session = await opened(cut_off)
        await eventually(lambda: session in shown(stays), "it is listed")
        with monkeypatch.context() as interrupted:

            async def fails() -> None:
                raise Unavailable

            interrupted.setattr(members, "heartbeat", fails)
            await members.leave()  # as the others remove it
            await peers_of(stays).membership.heartbeat()
            await cleanup_of(stays).clear_dead()
            await eventually(lambda: session not in shown(stays), "it is removed")
        await members.heartbeat()
        await eventually(lambda: session in shown(stays), "it is listed again")


@pytest.mark.usefixtures("checks_when_called")
async def test_a_gateway_that_has_just_come_is_not_taken_for_dead(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No beat lies between its coming and the look."""
    monkeypatch.setattr(rolls, "HEARTBEAT_S", 3_600.0)
    async with gateways(redis_bus) as (stays, new):
        session = await opened(new)
        await eventually(lambda: session in shown(stays), "it is listed")
        await cleanup_of(stays).clear_dead()
        assert shown(stays) == {session}


async def test_it_is_done_by_who_has_the_duty(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEAD_S", 0.0)
    monkeypatch.setattr(module, "CHECK_INTERVAL_S", 0.01)
    async with gateways(redis_bus, 3) as (stays, other, dies):
        lost = await opened(dies)
        await eventually(lambda: lost in shown(stays) & shown(other), "it is listed")
        await leaves(dies)
        await eventually(lambda: not shown(stays) | shown(other), "it is gone everywhere")


@pytest.mark.usefixtures("checks_when_called")
async def test_a_row_goes_whose_session_ended_where_its_row_could_not_be_written(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It names the gateway that the session has left, which is alive."""
    async with gateways(redis_bus) as (left, ended):
        peers = peers_of(ended)
        moved, parked, here = [await opened(left) for _ in range(3)]
        await eventually(lambda: shown(left) == {moved, parked, here}, "all are listed")
        # What the next gateway tells of the session is not written: it cannot reach Redis.
        monkeypatch.setattr(ended.gateway.session_events, "note", lambda *_: None)
        assert await peers.bring_here(moved, None, None, wall_ms())
        await cleanup_of(left).clear_own()
        assert shown(left) == {moved, parked, here}, "another gateway has it"
        await leaves(ended)
        await peers_of(left).locations.store(parked, b"transfer", 60_000)
        left.gateway.sessions.release(left.gateway.sessions.get(parked))
        await cleanup_of(left).clear_own()
        await eventually(lambda: shown(left) == {parked, here}, "it is removed")
