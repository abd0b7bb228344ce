"""Whoever runs until cancelled ends when cancelled, also with a client that swallows it."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.deadlines import HANGS_S
from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.membership import Membership
from tidegate.app.cluster.peer_messages import PeerMessages
from tidegate.app.cluster.redis_compat import raise_if_cancelled


async def test_what_was_swallowed_is_heard_of_in_the_next_turn() -> None:
    turns = 0

    async def run() -> None:
        nonlocal turns
        while True:
            raise_if_cancelled()
            turns += 1
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue

    task = asyncio.create_task(run())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert turns == 1


@pytest.mark.redis
@pytest.mark.parametrize("turns", range(6))
async def test_the_bus_s_loops_end_wherever_they_are(redis_url: str, turns: int) -> None:
    bus = BusConnection(redis_url, "cancellation-test")
    roll = Membership(bus, "one")
    await roll.heartbeat()
    tasks = [
        asyncio.create_task(roll.run()),
        asyncio.create_task(PeerMessages(bus, roll, {}).run()),
    ]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    _, running = await asyncio.wait(tasks, timeout=HANGS_S)
    await bus.aclose()
    assert not running
