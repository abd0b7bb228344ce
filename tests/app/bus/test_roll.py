"""The roll: who is there, who has left, and whose time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.bus import roll as rolls
from app.bus.connection import BusConnection
from app.bus.lease import DUTIES, Lease, lease_key
from app.bus.roll import Roll
from app.problems import Problem

pytestmark = pytest.mark.redis


@pytest.fixture
async def bus(redis_url: str) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_url, "roll-test")
    await made.ask("DEL", made.shared_key("gateways"))
    yield made
    await made.aclose()


async def test_each_sees_the_others_until_they_leave(bus: BusConnection) -> None:
    one, two = Roll(bus, "one"), Roll(bus, "two")
    await one.beat()
    assert one.others == []
    await two.beat()
    assert two.others == ["one"]
    assert await one.has("two"), "who is not known is looked for"
    await two.leave()
    await one.beat()
    assert one.others == []


async def test_who_is_not_heard_of_is_gone(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Roll(bus, "one"), Roll(bus, "two")
    with monkeypatch.context() as patched:
        patched.setattr(rolls, "GONE_S", 0.001)
        await two.beat()
    await one.beat()
    while "two" in one.others:
        await one.beat()
    assert not await one.has("two")
    assert await one.has("one")


@pytest.mark.parametrize("is_connected", [False, True])
async def test_who_is_silent_has_died_if_it_is_not_connected(
    bus: BusConnection,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_connected: bool,
) -> None:
    """Rule 594."""
    monkeypatch.setattr(rolls, "SILENT_S", 0.0)
    theirs = BusConnection(redis_url, "roll-test")
    one, two = Roll(bus, "one"), Roll(theirs, "two")
    await two.beat()
    await one.beat()
    if not is_connected:
        await theirs.aclose()
        while "tidegate:two" in await bus.names():
            await asyncio.sleep(0)
    await one.bury()
    assert one.others == (["two"] if is_connected else [])
    await one.beat()
    assert await one.has("two") == is_connected, "it is struck off for all"
    if not is_connected:
        await one.gone("two")
    await two.beat()
    assert await one.has("two"), "who says so is there"
    await theirs.aclose()


async def test_what_the_dead_did_for_all_is_free_at_once(
    bus: BusConnection, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 622: not only when its term is over."""
    monkeypatch.setattr(rolls, "SILENT_S", 0.0)
    theirs = BusConnection(redis_url, "roll-test")
    one, two, mine = Roll(bus, "one"), Roll(theirs, "two"), lease_of(bus, "one")
    await bus.ask("DEL", lease_key(bus, DUTIES))
    await lease_of(theirs, "two").beat()
    await two.beat()
    await one.beat()
    await one.bury()
    assert not await takes(mine), "who is connected keeps it"
    await theirs.aclose()
    while "tidegate:two" in await bus.names():
        await asyncio.sleep(0)
    await one.bury()
    assert await takes(mine)
    await Roll(bus, "three").beat()
    await one.beat()
    await one.bury()  # three, which had nothing
    assert await bus.ask("GET", lease_key(bus, DUTIES)) == b"one"


def lease_of(bus: BusConnection, holder: str) -> Lease:
    """The lease of what one does for all, as this gateway has it."""

    async def taken(_: int) -> None: ...

    async def lost() -> None: ...

    return Lease(bus, DUTIES, holder, taken=taken, lost=lost, clock=lambda: 0.0, term_s=60.0)


async def takes(lease: Lease) -> bool:
    """Whether it is had after a step."""
    await lease.beat()
    return lease.number is not None


async def test_who_was_not_heard_of_himself_strikes_nobody_off(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 594."""
    monkeypatch.setattr(rolls, "SILENT_S", 60.0)
    now = [1_000.0]
    monkeypatch.setattr(rolls, "_now_s", lambda: now[0])
    one = Roll(bus, "one")
    assert not one.is_steady(0.0)
    await one.beat()
    now[0] += 60
    assert one.is_steady(60.0)
    await one.beat()
    lost = BusConnection("unix:///nowhere/bus.sock")
    monkeypatch.setattr(one, "_bus", lost)
    with pytest.raises(Problem):
        await one.beat()
    assert not one.is_steady(0.0)
    await lost.aclose()


async def test_who_may_not_look_for_connections_waits(
    bus: BusConnection, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolls, "SILENT_S", 0.0)
    await bus.ask("ACL SETUSER", "blind", "on", "nopass", "~*", "+@all", "-client|list")
    blind = BusConnection(redis_url.replace("unix://", "unix://blind:none@"), "roll-test")
    await Roll(bus, "two").beat()
    one = Roll(blind, "one")
    await one.beat()
    await one.bury()
    assert one.others == ["two"]
    await blind.aclose()
    await bus.ask("ACL DELUSER", "blind")


async def test_all_go_by_the_bus_s_clock(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    roll = Roll(bus, "one")
    right = roll.now_ms()
    monkeypatch.setattr(rolls, "_wall_ms", lambda: 1_000)
    await roll.beat()
    assert abs(roll.now_ms() - right) < 5_000


async def test_without_a_bus_what_was_known_holds() -> None:
    roll = Roll(BusConnection("unix:///nowhere/bus.sock"), "one")
    with pytest.raises(Problem, match="bus-unavailable"):
        await roll.beat()
    await roll.leave()
    assert roll.others == []
