"""The gateway's own topics: written some time later, in order, and again where the store failed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial

import pytest

from tests.support.deadlines import HANGS_S
from tests.support.gateways import eventually
from tests.support.place import Place
from tests.support.rules import rule
from tidegate.app.refusals import Unavailable
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import Appended, Publication
from tidegate.app.topics import system_topics as own_topics
from tidegate.app.topics.system_topics import SESSIONS, SessionsTopic, open_own


class Reluctant(MemoryStore):
    """A store that is out for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.is_out = False
        self.error: Exception = OSError("out")
        self.asked = 0

    async def append(self, topic: str, publication: Publication) -> Appended:
        self.asked += 1
        if self.is_out:
            raise self.error
        return await super().append(topic, publication)


@contextlib.asynccontextmanager
async def writing(place: Place) -> AsyncIterator[SessionsTopic]:
    topic = SessionsTopic(place.catalog, place.writer)
    await open_own(place.catalog)
    task = asyncio.create_task(topic.run())
    try:
        yield topic
    finally:
        task.cancel()


def states(place: Place) -> list[tuple[str, str]]:
    return [(row["session"], row["event"]) for row in place.sow(SESSIONS)]


def is_opened(place: Place, session: str) -> bool:
    return (session, "opened") in states(place)


async def test_the_newest_word_about_each_session_is_its_record() -> None:
    place = Place()
    async with writing(place) as topic:
        topic.note("a", {"event": "opened"})
        topic.note("b", {"event": "opened"})
        topic.note("a", {"event": "closed"})
        await eventually(lambda: len(states(place)) == 2, "it is written")
        assert states(place) == [("b", "opened"), ("a", "closed")]
        topic.forget("b")
        topic.forget("never seen")
        await eventually(lambda: states(place) == [("a", "closed")], "the record goes")


async def test_what_comes_soon_after_a_write_is_written_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_topics, "TOGETHER_S", HANGS_S)
    store = Reluctant()
    place = Place(store)
    async with writing(place) as topic:
        topic.note("a", {"event": "opened"})
        await eventually(lambda: is_opened(place, "a"), "it is written at once")
        for name in ("b", "c"):
            topic.note(name, {"event": "opened"})
            for _ in range(10):
                await asyncio.sleep(0)
        assert store.asked == 1
        await topic.aclose()  # as a gateway that ends does
        assert len(states(place)) == 3
        assert store.asked == 2


async def test_what_the_store_did_not_take_is_written_later_and_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_topics, "RETRY_S", 0.01)
    store = Reluctant()
    place = Place(store)
    async with writing(place) as topic:
        store.is_out = True
        topic.note("a", {"event": "opened"})
        await eventually(lambda: store.asked > 1, "it is tried again")
        topic.note("a", {"event": "closed"})
        store.is_out = False
        await eventually(lambda: states(place) == [("a", "closed")], "it is written")
    assert place.driver.engine.topic(SESSIONS).head == 2


@rule("cluster-3")
async def test_a_store_that_is_out_is_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(own_topics, "RETRY_S", 0.01)
    store = Reluctant()
    store.error = Unavailable("The bus is out.")
    place = Place(store)
    async with writing(place) as topic:
        for name in ("a", "b"):
            store.is_out, store.asked = True, 0
            topic.note(name, {"event": "opened"})
            await eventually(lambda: store.asked > 3, "it is tried again and again")
            store.is_out = False
            written = partial(is_opened, place, name)
            await eventually(written, "it is written")
            for _ in range(10):  # its writer hears of it, and of nothing else meanwhile
                await asyncio.sleep(0)
    levels = [record.levelname for record in caplog.records if "behind" in record.message]
    assert levels == ["WARNING", "WARNING"]


async def test_what_cannot_be_written_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_topics, "PENDING_MAX", 50)
    place = Place()
    async with writing(place) as topic:
        for number in range(own_topics.PENDING_MAX + 5):
            topic.note(str(number), {"event": "opened"})
        newest = str(own_topics.PENDING_MAX + 4)
        await eventually(partial(is_opened, place, newest), "all that was kept is written")
    kept = [session for session, _ in states(place)]
    assert kept == [str(number) for number in range(5, own_topics.PENDING_MAX + 5)]


async def test_what_comes_while_a_write_fails_takes_the_room_of_the_oldest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_topics, "PENDING_MAX", 50)
    monkeypatch.setattr(own_topics, "RETRY_S", 0.01)
    store = Reluctant()
    place = Place(store)
    append = store.append

    async def slow_to_fail(topic: str, publication: Publication) -> Appended:
        if store.is_out:
            for number in range(50, 60):
                events.note(str(number), {"event": "opened"})
            store.is_out = False
            raise Unavailable
        return await append(topic, publication)

    monkeypatch.setattr(store, "append", slow_to_fail)
    async with writing(place) as events:
        store.is_out = True
        for number in range(50):
            events.note(str(number), {"event": "opened"})
        await eventually(partial(is_opened, place, "59"), "the newest is written")
    assert [session for session, _ in states(place)] == [str(number) for number in range(10, 60)]


async def test_the_topic_is_made_once() -> None:
    place = Place()
    await open_own(place.catalog)
    epoch = place.catalog.get(SESSIONS).record.epoch
    await open_own(place.catalog)
    assert place.catalog.get(SESSIONS).record.epoch == epoch
