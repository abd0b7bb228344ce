"""Places: a session on its way is taken by one gateway, and by that one as often as it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.session_locations import SessionLocation, SessionLocations

pytestmark = pytest.mark.redis
KEPT_MS = 60_000
S = "one.s1"


@pytest.fixture
async def bus(redis_url: str) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_url, "places-test")
    await made.execute("DEL", made.shared_key("session", S))
    yield made
    await made.aclose()


async def test_nobody_has_said_where_a_session_is_that_never_moved(bus: BusConnection) -> None:
    assert await SessionLocations(bus, "one").claim(S) == SessionLocation("", b"")


async def test_looking_takes_nothing(bus: BusConnection) -> None:
    one, two = (SessionLocations(bus, name) for name in ("one", "two"))
    assert await two.read(S) == SessionLocation("", b"")
    await one.store(S, b"session", KEPT_MS)
    for _ in range(2):
        assert await two.read(S) == SessionLocation("", b"session")
    await two.claim(S)
    await two.confirm(S)
    assert await one.read(S) == SessionLocation("two", b"")


async def test_one_gateway_takes_it(bus: BusConnection) -> None:
    one, two, three = (SessionLocations(bus, name) for name in ("one", "two", "three"))
    await one.store(S, b"session", KEPT_MS)
    assert await two.claim(S) == SessionLocation("two", b"session")
    assert await three.claim(S) == SessionLocation("two", b"")
    assert await two.claim(S) == SessionLocation("two", b"session"), "its answer may have been lost"
    await two.confirm(S)
    assert await two.claim(S) == SessionLocation("two", b"")


async def test_whoever_is_late_changes_nothing(bus: BusConnection) -> None:
    one, two, three = (SessionLocations(bus, name) for name in ("one", "two", "three"))
    await one.store(S, b"session", KEPT_MS)
    await two.claim(S)
    await one.store(S, b"session", KEPT_MS)
    await one.confirm(S)
    assert await one.claim(S) == SessionLocation("two", b"")
    await two.store(S, b"later", KEPT_MS)
    await two.confirm(S)
    assert await three.claim(S) == SessionLocation("three", b"later")


@pytest.mark.parametrize("is_confirmed", [False, True])
async def test_what_is_known_is_forgotten_in_time(bus: BusConnection, is_confirmed: bool) -> None:
    """A claimant that was sent no reply confirms nothing, and may not ask again."""
    one = SessionLocations(bus, "one")
    await one.store(S, b"session", KEPT_MS)
    await one.claim(S)
    if is_confirmed:
        await one.confirm(S)
    left_ms = await bus.execute("PTTL", bus.shared_key("session", S))
    assert 0 < left_ms <= (3_600_000 if is_confirmed else KEPT_MS)
