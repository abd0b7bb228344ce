"""A writer waits until the engine has what it stored."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.place import Place
from tidegate.app.refusals import Refused
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import Frame, RestoredTopic


async def test_who_waits_goes_on_when_the_engine_is_there() -> None:
    place = Place()
    entry, _ = await place.put("t")
    arrivals = AppendWaiters(place.driver)
    waiting = [
        asyncio.create_task(arrivals.wait_reached("t", entry.record.epoch, offset))
        for offset in (1, 2)
    ]
    await asyncio.sleep(0)
    await place.say("t", 1)
    arrivals.notify("t")
    await waiting[0]
    assert not waiting[1].done()
    await place.say("t", 2)
    arrivals.notify("t")
    await waiting[1]
    await arrivals.wait_reached("t", entry.record.epoch, 2)


async def test_a_topic_that_began_again_leaves_it_unknown() -> None:
    place = Place()
    entry, _ = await place.put("t")
    arrivals = AppendWaiters(place.driver)
    waiting = asyncio.create_task(arrivals.wait_reached("t", entry.record.epoch, 1))
    await asyncio.sleep(0)
    place.driver.engine.restart_topic("t", "e2", RestoredTopic(), place.driver.now(), 0)
    arrivals.notify("t")
    with pytest.raises(Refused, match="bus-unavailable"):
        await waiting


@pytest.mark.parametrize(("through", "is_there"), [(0, False), (1, True)])
async def test_what_was_stored_is_there_if_the_next_epoch_continues_it(
    through: int, *, is_there: bool
) -> None:
    place = Place()
    entry, _ = await place.put("t")
    arrivals = AppendWaiters(place.driver)
    epoch = entry.record.epoch
    waiting = asyncio.create_task(arrivals.wait_reached("t", epoch, 1))
    await asyncio.sleep(0)
    kept = RestoredTopic(former={epoch: through})
    place.driver.engine.restart_topic("t", "e2", kept, place.driver.now(), 0)
    await place.driver.publish("t", [Frame(1, b"1", "")])
    arrivals.notify("t")
    if is_there:
        await waiting
    else:
        with pytest.raises(Refused, match="bus-unavailable"):
            await waiting


async def test_a_topic_that_was_deleted_is_unknown() -> None:
    place = Place()
    entry, _ = await place.put("t")
    arrivals = AppendWaiters(place.driver)
    await place.catalog.delete("t")
    with pytest.raises(TopicUnknown):
        await arrivals.wait_reached("t", entry.record.epoch, 1)


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegate.app.topics.append_waiters.PATIENCE_S", 0)
    place = Place()
    entry, _ = await place.put("t")
    with pytest.raises(Refused, match="bus-unavailable"):
        await AppendWaiters(place.driver).wait_reached("t", entry.record.epoch, 1)
