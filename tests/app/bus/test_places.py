"""Places: a session on its way is taken by one gateway, and by that one as often as it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from app.bus.connection import BusConnection
from app.bus.places import Place, Places

pytestmark = pytest.mark.redis
KEPT_MS = 60_000
S = "one.s1"


@pytest.fixture
async def bus(redis_url: str) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_url, "places-test")
    await made.ask("DEL", made.shared_key("session", S))
    yield made
    await made.aclose()


async def test_nobody_has_said_where_a_session_is_that_never_moved(bus: BusConnection) -> None:
    assert await Places(bus, "one").take(S) == Place("", b"")


async def test_looking_takes_nothing(bus: BusConnection) -> None:
    one, two = (Places(bus, name) for name in ("one", "two"))
    assert await two.look(S) == Place("", b"")
    await one.park(S, b"session", KEPT_MS)
    for _ in range(2):
        assert await two.look(S) == Place("", b"session")
    await two.take(S)
    await two.hold(S)
    assert await one.look(S) == Place("two", b"")


async def test_one_gateway_takes_it(bus: BusConnection) -> None:
    one, two, three = (Places(bus, name) for name in ("one", "two", "three"))
    await one.park(S, b"session", KEPT_MS)
    assert await two.take(S) == Place("two", b"session")
    assert await three.take(S) == Place("two", b"")
    assert await two.take(S) == Place("two", b"session"), "its answer may have been lost"
    await two.hold(S)
    assert await two.take(S) == Place("two", b"")


async def test_whoever_is_late_changes_nothing(bus: BusConnection) -> None:
    one, two, three = (Places(bus, name) for name in ("one", "two", "three"))
    await one.park(S, b"session", KEPT_MS)
    await two.take(S)
    await one.park(S, b"session", KEPT_MS)
    await one.hold(S)
    assert await one.take(S) == Place("two", b"")
    await two.park(S, b"later", KEPT_MS)
    await two.hold(S)
    assert await three.take(S) == Place("three", b"later")


@pytest.mark.parametrize("held", [False, True])
async def test_what_is_known_is_forgotten_in_time(bus: BusConnection, held: bool) -> None:
    one = Places(bus, "one")
    await one.park(S, b"session", KEPT_MS)
    if held:
        await one.take(S)
    left_ms = await bus.ask("PTTL", bus.shared_key("session", S))
    assert 0 < left_ms <= (3_600_000 if held else KEPT_MS)
