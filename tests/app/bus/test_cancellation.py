"""Whoever runs until cancelled ends when cancelled, also with a client that swallows it."""

from __future__ import annotations

import asyncio

import pytest

from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection
from app.bus.post import Post
from app.bus.roll import Roll
from tests.support.gateways import DEADLINE_S


async def test_what_was_swallowed_is_heard_of_in_the_next_turn() -> None:
    turns = 0

    async def run() -> None:
        nonlocal turns
        while True:
            heed_cancellation()
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
    roll = Roll(bus, "one")
    await roll.beat()
    tasks = [asyncio.create_task(roll.run()), asyncio.create_task(Post(bus, roll, {}).run())]
    for _ in range(turns):
        await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    _, running = await asyncio.wait(tasks, timeout=DEADLINE_S)
    await bus.aclose()
    assert not running
