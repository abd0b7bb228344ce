"""A large publish waits for slow readers as long as they read something, and no longer."""

from __future__ import annotations

import asyncio

from tests.app.streams.test_driver import PLENTY, Stage
from tests.support.deadlines import HANGS_S
from tidegate.app.streams.backpressure import split_publish
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.lane import COMBINING_COST
from tidegate.conflation.sessions.session import QueueLimits


async def test_it_waits_until_who_is_behind_has_taken_something() -> None:
    stage = Stage(policy="off", messages_max=4)
    consumer = stage.open("conflation=none")
    await stage.say("a1 a2 a3")
    waiting = asyncio.create_task(stage.driver._backpressure.wait("px", HANGS_S))
    await asyncio.sleep(0)
    assert not waiting.done()
    consumer.take(PLENTY)
    assert await waiting < HANGS_S


async def test_who_takes_nothing_is_given_up_until_he_does() -> None:
    stage = Stage(policy="off", messages_max=4)
    consumer = stage.open("conflation=none")
    drain = stage.driver._backpressure
    await stage.say("a1 a2 a3")
    await drain.wait("px", 0.01)
    async with asyncio.timeout(HANGS_S):
        await drain.wait("px", 2 * HANGS_S)  # nobody is waited for
    consumer.take(PLENTY)
    await stage.say("a1 a2 a3")
    waiting = asyncio.create_task(drain.wait("px", HANGS_S))
    await asyncio.sleep(0)
    assert not waiting.done(), "again, as he took something"
    consumer.close()
    await waiting


async def test_the_least_limits_are_those_of_who_asked_for_less() -> None:
    stage = Stage(messages_max=100)
    drain = stage.driver._backpressure
    assert drain.least_limits("px") == QueueLimits(100, PLENTY)
    stage.driver.open("s", QueueLimits(7, PLENTY))
    stage.subscribe("conflation=none", "s")
    assert drain.least_limits("px") == QueueLimits(7, PLENTY)
    drain.note_limits("s", QueueLimits(100, PLENTY))
    assert drain.least_limits("px") == QueueLimits(100, PLENTY)
    drain.note_limits("s", QueueLimits(7, PLENTY))
    drain.forget("s")
    assert drain.least_limits("px") == QueueLimits(100, PLENTY)


def test_messages_that_cost_many_looks_go_in_slices_of_a_millisecond_or_some() -> None:
    frames = [Frame(at, b"{}", "k") for at in range(1, 101)]
    limits = QueueLimits(10_000, PLENTY)
    hundred_lanes = 100 * (1 + COMBINING_COST)
    assert {len(piece) for piece in split_publish(frames, limits, hundred_lanes)} == {1}
    assert [len(piece) for piece in split_publish(frames, limits, 100)] == [30, 30, 30, 10]
    assert [len(piece) for piece in split_publish(frames, limits)] == [100]
