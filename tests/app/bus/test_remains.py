"""What gateways that have died have said of their sessions goes, and nothing else does.

Rule 595 is told here.
"""

from __future__ import annotations

import asyncio

import pytest

from app.bus import remains as module
from app.bus import roll as rolls
from app.bus.neighbours import Neighbours
from app.bus.remains import Remains
from app.own_topics import SESSIONS
from tests.support.buses import BusServer, gateways
from tests.support.gateways import Running, eventually
from tests.support.sessions import opened

pytestmark = pytest.mark.redis


def neighbours_of(gateway: Running) -> Neighbours:
    assert gateway.gateway.neighbours is not None
    return gateway.gateway.neighbours


def told(gateway: Running) -> set[str]:
    """The sessions that there is a row of."""
    sow = gateway.gateway.driver.engine.topic(SESSIONS).sow
    assert sow is not None
    return {row.key[2:-2] for row in sow.board.live()}


def remains_of(gateway: Running) -> Remains:
    here, neighbours = gateway.gateway, neighbours_of(gateway)
    return Remains(
        neighbours.roll, neighbours.places, here.catalog, here.driver, here.writer, here.duty
    )


async def leaves(gateway: Running) -> None:
    """It says nothing any more, also not that it is there, and is off the roll."""
    neighbours = neighbours_of(gateway)
    for task in neighbours._running:
        task.cancel()
    await asyncio.gather(*neighbours._running, return_exceptions=True)
    await neighbours.roll.leave()


async def test_rows_go_with_the_gateway_that_alone_has_their_sessions(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GONE_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 3_600.0)  # it looks when it is told to
    async with gateways(redis_bus) as (stays, dies):
        neighbours, places = neighbours_of(stays), neighbours_of(dies).places
        here, moved, parked, lost = [await opened(it) for it in (stays, dies, dies, dies)]
        assert await neighbours.bring(moved, None)
        await eventually(lambda: told(stays) == {here, moved, parked, lost}, "all are told of")
        await remains_of(stays).clear()
        assert told(stays) == {here, moved, parked, lost}, "both gateways are there"
        await places.park(parked, b"luggage", 60_000)
        await leaves(dies)
        await neighbours.roll.beat()
        assert neighbours.roll.others == []
        await remains_of(stays).clear()
        assert told(stays) == {here, moved, parked}
        bus = stays.gateway.bus
        assert bus is not None
        await bus.connection.ask("DEL", bus.connection.shared_key("session", parked))
        with monkeypatch.context() as unsteady:
            unsteady.setattr(module, "GONE_S", 3_600.0)
            await remains_of(stays).clear()
            assert told(stays) == {here, moved, parked}, "who was not heard of may be there"
        await remains_of(stays).clear()
        assert told(stays) == {here, moved}, "nobody can take it up any more"


async def test_a_gateway_that_has_just_come_is_not_taken_for_dead(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No beat lies between its coming and the look."""
    monkeypatch.setattr(module, "GONE_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 3_600.0)
    monkeypatch.setattr(rolls, "BEAT_S", 3_600.0)
    async with gateways(redis_bus) as (stays, new):
        session = await opened(new)
        await eventually(lambda: session in told(stays), "it is told of")
        await remains_of(stays).clear()
        assert told(stays) == {session}


async def test_it_is_done_by_who_has_the_duty(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GONE_S", 0.0)
    monkeypatch.setattr(module, "LOOK_S", 0.01)
    async with gateways(redis_bus, 3) as (stays, other, dies):
        lost = await opened(dies)
        await eventually(lambda: lost in told(stays) & told(other), "it is told of")
        await leaves(dies)
        await eventually(lambda: not told(stays) | told(other), "it is gone everywhere")
