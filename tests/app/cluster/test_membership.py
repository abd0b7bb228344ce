"""The roll: who is there, who has left, and whose time is up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.support.rules import rule
from tidegate.app.cluster import membership as rolls
from tidegate.app.cluster.connection import BusClock, BusConnection
from tidegate.app.cluster.membership import Lease, Membership, lease_key
from tidegate.app.refusals import Refused
from tidegate.app.timers import wall_ms
from tidegate.app.topics.leadership import Leadership

pytestmark = pytest.mark.redis


@pytest.fixture
async def bus(redis_url: str) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_url, "roll-test")
    await made.execute("DEL", made.shared_key("gateways"))
    yield made
    await made.aclose()


async def test_each_sees_the_others_until_they_leave(bus: BusConnection) -> None:
    one, two = Membership(bus, "one"), Membership(bus, "two")
    await one.heartbeat()
    assert one.others == []
    await two.heartbeat()
    assert two.others == ["one"]
    assert await one.has("two"), "who is not known is looked for"
    await two.leave()
    await one.heartbeat()
    assert one.others == []


async def test_who_is_not_heard_of_is_gone(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Membership(bus, "one"), Membership(bus, "two")
    with monkeypatch.context() as patched:
        patched.setattr(rolls, "DEAD_S", 0.001)
        await two.heartbeat()
    await one.heartbeat()
    while "two" in one.others:
        await one.heartbeat()
    assert not await one.has("two")
    assert await one.has("one")


@rule("cluster-10")
@pytest.mark.parametrize("is_connected", [False, True])
async def test_who_is_silent_has_died_if_it_is_not_connected(
    bus: BusConnection,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_connected: bool,
) -> None:
    monkeypatch.setattr(rolls, "SUSPECT_S", 0.0)
    theirs = BusConnection(redis_url, "roll-test")
    one, two = Membership(bus, "one"), Membership(theirs, "two")
    await two.heartbeat()
    await one.heartbeat()
    if not is_connected:
        await theirs.aclose()
        while "tidegate:two" in await bus.client_names():
            await asyncio.sleep(0)
    await one.remove_dead()
    assert one.others == ["two"], "it may be about to connect again"
    await one.remove_dead()
    assert one.others == (["two"] if is_connected else [])
    await one.heartbeat()
    assert await one.has("two") == is_connected, "it is struck off for all"
    if not is_connected:
        await one.wait_until_gone("two")
    await two.heartbeat()
    assert await one.has("two"), "who says so is there"
    await theirs.aclose()


@rule("cluster-10")
async def test_who_wakes_and_connects_again_was_never_dead(
    bus: BusConnection, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hung for some seconds, and its connections are overdue by its own clock."""
    monkeypatch.setattr(rolls, "SUSPECT_S", 0.0)
    theirs = BusConnection(redis_url, "roll-test")
    one, two = Membership(bus, "one"), Membership(theirs, "two")
    await two.heartbeat()
    await one.heartbeat()
    for _ in range(3):
        await theirs.writer.connection_pool.disconnect()
        while "tidegate:two" in await bus.client_names():
            await asyncio.sleep(0)
        await one.remove_dead()
        await theirs.execute("PING")  # before its next heartbeat
        await one.remove_dead()
        assert one.others == ["two"]
    await theirs.aclose()


@rule("cluster-6")
async def test_what_the_dead_did_for_all_is_free_at_once(
    bus: BusConnection, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only when its term is over."""
    monkeypatch.setattr(rolls, "SUSPECT_S", 0.0)
    theirs = BusConnection(redis_url, "roll-test")
    one, two, mine = Membership(bus, "one"), Membership(theirs, "two"), lease_of(bus, "one")
    await bus.execute("DEL", lease_key(bus))
    await lease_of(theirs, "two").step()
    await two.heartbeat()
    await one.heartbeat()
    await one.remove_dead()
    assert not await takes(mine), "who is connected keeps it"
    await theirs.aclose()
    while "tidegate:two" in await bus.client_names():
        await asyncio.sleep(0)
    await one.remove_dead()
    await one.remove_dead()
    assert await takes(mine)
    await Membership(bus, "three").heartbeat()
    await one.heartbeat()
    await one.remove_dead()
    await one.remove_dead()  # three, which had nothing
    assert await bus.execute("GET", lease_key(bus)) == b"one"


def lease_of(bus: BusConnection, holder: str) -> Lease:
    """The lease of what one does for all, as this gateway has it."""
    leadership = Leadership(held=False)
    return Lease(
        bus,
        holder,
        on_acquired=leadership.take,
        on_lost=leadership.give_up,
        clock=lambda: 0.0,
        term_s=60.0,
    )


async def takes(lease: Lease) -> bool:
    """Whether it is had after a step."""
    await lease.step()
    return lease.number is not None


@rule("cluster-10")
async def test_who_was_not_heard_of_himself_strikes_nobody_off(
    bus: BusConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolls, "SUSPECT_S", 60.0)
    now = [1_000.0]
    monkeypatch.setattr(rolls, "_now_s", lambda: now[0])
    one = Membership(bus, "one")
    assert not one.is_connected_for(0.0)
    await one.heartbeat()
    now[0] += 60
    assert one.is_connected_for(60.0)
    await one.heartbeat()
    lost = BusConnection("unix:///nowhere/bus.sock")
    monkeypatch.setattr(one, "_bus", lost)
    with pytest.raises(Refused):
        await one.heartbeat()
    assert not one.is_connected_for(0.0)
    await lost.aclose()


async def test_who_may_not_look_for_connections_waits(
    bus: BusConnection, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolls, "SUSPECT_S", 0.0)
    await bus.execute("ACL SETUSER", "blind", "on", "nopass", "~*", "+@all", "-client|list")
    blind = BusConnection(redis_url.replace("unix://", "unix://blind:none@"), "roll-test")
    await Membership(bus, "two").heartbeat()
    one = Membership(blind, "one")
    await one.heartbeat()
    await one.remove_dead()
    assert one.others == ["two"]
    await blind.aclose()
    await bus.execute("ACL DELUSER", "blind")


@pytest.mark.parametrize("off_s", [-3_600, -9, 9, 3_600])
async def test_all_go_by_the_bus_s_clock(redis_url: str, off_s: int) -> None:
    theirs = BusConnection(redis_url, "roll-test", lambda: wall_ms() + off_s * 1_000)
    await theirs.read_clock()
    assert abs(theirs.clock.now_ms() - wall_ms()) < 5_000
    steps = BusConnection(redis_url, "roll-test", lambda: next(machine_ms))
    machine_ms = iter([0, 0, 0])
    await Membership(steps, "one").heartbeat()
    assert abs(steps.clock.now_ms() - wall_ms()) < 5_000
    await theirs.aclose()
    await steps.aclose()


def test_a_slow_reply_does_not_move_the_clock() -> None:
    machine_ms = [1_000]
    clock = BusClock(lambda: machine_ms[0])
    clock.learn(51_000, asked_ms=998)
    assert clock.now_ms() == 51_001
    machine_ms[0] = 9_000  # a reply that took 6 s, of which the way back took nothing
    clock.learn(59_001, asked_ms=3_000)
    assert clock.now_ms() == 59_001
    machine_ms[0] = 100_000  # the clock of this machine was set
    clock.learn(60_000, asked_ms=99_998)
    assert clock.now_ms() == 60_001


async def test_without_a_bus_what_was_known_holds() -> None:
    roll = Membership(BusConnection("unix:///nowhere/bus.sock"), "one")
    with pytest.raises(Refused, match="bus-unavailable"):
        await roll.heartbeat()
    await roll.leave()
    assert roll.others == []
