"""One gateway at a time has the lease, and each holder's number is above all before it."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from tests.support.buses import BusServer
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.membership import Lease, fence_key, lease_key

pytestmark = pytest.mark.redis
NUMBERS = itertools.count()
TERM_S = 60.0


def number_of(holder: Holder) -> int:
    """The fencing number that it holds."""
    assert holder.lease.number is not None
    return holder.lease.number


class Holder:
    """A gateway that notes when the lease is its own."""

    def __init__(self, connection: BusConnection, name: str) -> None:
        self.now_s = 0.0
        self.story: list[int | str] = []
        self.lease = Lease(
            connection, name,
            on_acquired=self._taken, on_lost=self._lost, clock=lambda: self.now_s, term_s=TERM_S,
        )  # fmt: skip

    def _taken(self, number: int) -> None:
        self.story.append(number)

    def _lost(self) -> None:
        self.story.append("lost")


@pytest.fixture
async def connection(redis_bus: BusServer) -> AsyncIterator[BusConnection]:
    made = BusConnection(redis_bus.url, f"lease-{next(NUMBERS)}")
    yield made
    await made.aclose()


async def test_only_one_has_it_and_the_next_one_has_a_higher_number(
    connection: BusConnection,
) -> None:
    one, other = Holder(connection, "one"), Holder(connection, "other")
    for _ in range(2):
        await one.lease.step()
        await other.lease.step()
    number = number_of(one)
    assert (one.story, other.story) == ([number], [])
    await one.lease.release()
    await other.lease.step()
    await one.lease.step()
    assert (one.story, other.story) == ([number, "lost"], [other.lease.number])
    assert number_of(other) > number


async def test_a_number_that_a_failover_has_lost_is_not_granted_again(
    connection: BusConnection,
) -> None:
    one, other = Holder(connection, "one"), Holder(connection, "other")
    await one.lease.step()
    # A replica takes over that has neither the lease nor its number.
    await connection.execute("DEL", lease_key(connection), fence_key(connection))
    await asyncio.sleep(0.002)
    await other.lease.step()
    assert number_of(other) > number_of(one)


async def test_a_number_is_above_the_last_one_also_where_the_clock_went_back(
    connection: BusConnection,
) -> None:
    await connection.execute("SET", fence_key(connection), 4_102_444_800_000)
    one = Holder(connection, "one")
    await one.lease.step()
    assert one.lease.number == 4_102_444_800_001
    assert await connection.execute("GET", fence_key(connection)) == b"4102444800001"


async def test_who_finds_another_in_its_place_has_lost_it(connection: BusConnection) -> None:
    one, other = Holder(connection, "one"), Holder(connection, "other")
    await one.lease.step()
    [number] = one.story
    await connection.execute("DEL", lease_key(connection))
    await other.lease.step()
    await one.lease.step()
    assert (one.story, other.story) == ([number, "lost"], [other.lease.number])
    assert one.lease.number is None


async def test_it_has_a_term_on_the_bus(connection: BusConnection) -> None:
    await Holder(connection, "one").lease.step()
    left_ms = await connection.execute("PTTL", lease_key(connection))
    assert 0 < left_ms <= TERM_S * 1_000


async def test_while_the_bus_is_out_it_holds_for_the_rest_of_its_term(
    connection: BusConnection,
) -> None:
    one = Holder(connection, "one")
    await one.lease.step()
    number = number_of(one)
    gone = BusConnection("unix:///nowhere/redis.sock")
    one.lease._connection = gone
    one.now_s = TERM_S - 1
    await one.lease.step()
    assert one.story == [number]
    one.now_s = TERM_S
    await one.lease.step()
    assert one.story == [number, "lost"]
    await one.lease.step()
    await one.lease.release()
    assert one.story == [number, "lost"]
    await gone.aclose()
