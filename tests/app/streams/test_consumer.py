"""A consumer takes, waits and is woken; once it has been replaced, nothing reaches it."""

from __future__ import annotations

import asyncio

from tests.app.streams.test_driver import PLENTY, Stage, woken
from tidegate.conflation.outputs import CloseReason


async def test_it_is_woken_by_what_there_is_to_take_and_by_what_it_is_told() -> None:
    stage = Stage()
    consumer = stage.open("conflation=none")
    assert not await consumer.wait(0.001)
    await stage.say("a1")
    assert await woken(consumer) == ["a1"]
    waiting = asyncio.create_task(consumer.wait(60))
    consumer.send(b"one ")
    consumer.send(b"two")
    assert await waiting
    assert (consumer.notices(), consumer.notices()) == (b"one two", b"")


async def test_of_a_session_that_is_gone_there_is_nothing_to_take() -> None:
    stage = Stage()
    consumer = stage.open("conflation=none")
    await stage.say("a1")
    consumer.give_up(CloseReason.WRITE_TIMEOUT)
    consumer.close()
    consumer.close()
    assert (consumer.take(PLENTY), consumer.caught_up(), consumer.is_over) == ([], [], True)
    assert stage.driver.closed_sessions == {"WRITE_TIMEOUT": 1}
