"""The driver and full queues: thresholds, idle time, other limits; one reader after another."""

from __future__ import annotations

import asyncio

from tests.app.streams.test_driver import PLENTY, Stage, woken
from tests.support.deadlines import HANGS_S
from tests.support.manual_driver import described
from tidegate.conflation.outputs import CloseReason
from tidegate.conflation.sessions.session import QueueLimits


async def test_a_threshold_that_is_crossed_is_told() -> None:
    stage = Stage(policy="off", messages_max=10)
    crossed = list[tuple[bool, int]]()
    stage.driver.on_crossed = lambda event: crossed.append((event.upper, event.messages))
    consumer = stage.open("conflation=none")
    for _ in range(9):
        await stage.say("a1")
    assert len(await woken(consumer)) == 1
    assert crossed == [(True, 9), (False, 0)]


async def test_a_long_queue_is_conflated_in_idle_time() -> None:
    stage = Stage(messages_max=100)
    consumer = stage.open("conflation=none")
    for _ in range(60):
        await stage.say("a1")
    async with asyncio.timeout(HANGS_S):
        while stage.driver.engine.session_stats("s").queued_messages > 1:
            await asyncio.sleep(0.001)
    [rows] = consumer.take(PLENTY)
    assert described([rows]) == ["a1"]


async def test_other_limits_hold_at_once() -> None:
    stage = Stage(policy="off", messages_max=100)
    consumer = stage.open("conflation=none")
    for _ in range(3):
        await stage.say("a1")
    stage.driver.tune("s", QueueLimits(2, PLENTY), conflated=True)
    assert stage.driver.closed_sessions == {"MESSAGE_QUEUE_LIMIT_REACHED": 1}
    assert await woken(consumer) == ["goodbye MESSAGE_QUEUE_LIMIT_REACHED"]


async def test_what_the_socket_holds_leaves_less_room() -> None:
    stage = Stage(policy="off")
    stage.driver.open("s", QueueLimits(100, 1_000))
    stage.subscribe("conflation=none", "s")
    await stage.say("a1")
    stage.driver.note_unsent("s", 999)
    await stage.say("a1")
    assert stage.driver.closed_sessions == {"MESSAGE_QUEUE_LIMIT_REACHED": 1}
    stage.driver.note_unsent("nobody", 1)


async def test_a_consumer_that_makes_room_has_its_last_word_and_takes_nothing_more() -> None:
    stage = Stage()
    old = stage.open("conflation=none")
    old.replace(b"farewell")
    assert (old.is_over, old.take(PLENTY), old.notices()) == (True, [], b"farewell")
    new = stage.open("conflation=none")
    old.note_unsent(1 << 30)
    old.give_up(CloseReason.WRITE_TIMEOUT)
    old.close()
    assert old.caught_up() == []
    await stage.say("a1")
    assert await woken(new) == ["a1"]
    assert stage.driver.closed_sessions == {}, "the new one is another's business"
