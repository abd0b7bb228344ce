"""The roll: who is there, who has left, and whose time is up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.bus import roll as rolls
from app.bus.connection import BusConnection
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
