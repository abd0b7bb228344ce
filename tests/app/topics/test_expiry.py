"""Expiry: records that are not published again are removed, and the others stay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.clocks.manual import Clock
from tests.support.place import Place
from tests.support.rules import rule
from tidegate.app.stores.store import Appended, TopicRecord
from tidegate.app.topics.expiry import EXPIRED_AT_ONCE, Expiry
from tidegate.conflation.frame import RemovalReason, RestoredTopic, Tombstone
from tidegate.conflation.outputs import RecordsExpired
from tidegate.keys.text.duration import SECOND


class Swept(Place):
    """A place with expiry, and a topic whose records live for 10 s."""

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(clock=self.clock)
        self.expiry = Expiry(self.catalog, self.driver, self.writer, self.leadership)
        self.driver.on_expired = self.expiry.note

    async def pass_time(self, seconds: int) -> None:
        self.clock.forward(self.driver, seconds * SECOND)
        for _ in range(200):
            await asyncio.sleep(0)

    def reasons(self) -> list[RemovalReason]:
        frames = self.driver.engine.topic("px").journal.after(0)
        return [frame.reason for frame in frames if isinstance(frame, Tombstone)]


@contextlib.asynccontextmanager
async def swept(**document: Any) -> AsyncIterator[Swept]:
    place = Swept()
    running = asyncio.create_task(place.expiry.run())
    await place.put("px", **{"key": ["/k"], "expiration": "10s", **document})
    yield place
    running.cancel()


async def test_a_record_that_is_not_published_again_expires() -> None:
    async with swept() as place:
        await place.say("px", {"k": 1}, {"k": 2})
        await place.pass_time(6)
        await place.say("px", {"k": 2})
        await place.pass_time(3)
        assert place.sow("px") == [{"k": 1}, {"k": 2}]
        await place.pass_time(1)
        assert place.sow("px") == [{"k": 2}]
        await place.pass_time(6)
        assert place.sow("px") == []
        assert place.reasons() == [RemovalReason.EXPIRED] * 2


async def test_the_one_record_of_a_topic_without_a_key_expires_too() -> None:
    async with swept(key=[], retain=True) as place:
        await place.say("px", 1)
        await place.pass_time(10)
        assert place.sow("px") == []


async def test_many_are_taken_away_in_slices() -> None:
    async with swept() as place:
        await place.say("px", *({"k": n} for n in range(2 * EXPIRED_AT_ONCE + 7)))
        await place.pass_time(10)
        assert place.sow("px") == []
        assert len(place.reasons()) == 2 * EXPIRED_AT_ONCE + 7


async def test_what_is_published_while_others_are_swept_stays() -> None:
    async with swept() as place:
        await place.say("px", {"k": 1}, {"k": 2})
        entry = place.catalog.get("px")
        async with entry.writing:  # a publisher is just writing
            await place.pass_time(10)
            assert len(place.sow("px")) == 2
            saying = asyncio.create_task(place.say("px", {"k": 1}))
        await saying
        await place.pass_time(0)
        assert place.sow("px") == [{"k": 1}]


@rule("topic-7")
async def test_a_shorter_expiration_counts_from_then_on() -> None:
    async with swept(expiration=None) as place:
        await place.say("px", {"k": 1})
        await place.put("px", key=["/k"], expiration="1s")
        await place.say("px", {"k": 2})
        await place.pass_time(1)
        assert place.sow("px") == []
        await place.say("px", {"k": 3})
        await place.put("px", key=["/k"])
        await place.pass_time(100)
        assert place.sow("px") == [{"k": 3}]


async def test_the_latest_word_covers_the_earlier_ones() -> None:
    async with swept() as place:
        await place.say("px", {"k": 1}, {"k": 2})
        epoch = place.driver.engine.topic("px").epoch
        for through in (1, 2):
            place.expiry.note(RecordsExpired("px", epoch, through))
        await place.pass_time(0)
        assert place.sow("px") == []


async def test_a_topic_that_went_or_came_anew_is_left_alone() -> None:
    async with swept() as place:
        await place.say("px", {"k": 1})
        epoch = place.driver.engine.topic("px").epoch
        await place.expiry.remove_expired(RecordsExpired("zzq", epoch, 1))
        await place.expiry.remove_expired(RecordsExpired("px", "another", 1))
        assert place.sow("px") == [{"k": 1}]


async def test_a_topic_that_begins_again_meanwhile_does_not_keep_the_sweeper() -> None:
    async with swept() as place:
        await place.put("other", key=["/k"], expiration="10s")
        await place.say("px", {"k": 1})
        await place.say("other", {"k": 1})
        entry = place.catalog.get("px")
        async with entry.writing:  # a publisher is just writing
            await place.pass_time(10)
            again = place.live("px")
            renewed = TopicRecord("px", entry.document, "e2")
            place.catalog.renew(renewed, RestoredTopic(head=1, records=again, journal=again))
        await place.pass_time(0)
        assert place.sow("other") == []


async def test_a_store_that_is_out_is_tried_again_and_is_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "tidegate.expiry")
    monkeypatch.setattr("tidegate.app.topics.expiry.RETRY_S", 0)
    async with swept() as place:
        await place.say("px", {"k": 1})
        append, calls = place.store.append, []

        async def out_for_a_while(*asked: Any) -> Appended:
            calls.append(asked)
            if len(calls) <= 3:
                raise ConnectionError("out")
            return await append(*asked)

        monkeypatch.setattr(place.store, "append", out_for_a_while)
        await place.pass_time(10)
        assert place.sow("px") == []
        assert len(calls) == 4
    levels = [it.levelname for it in caplog.records if "beyond their time" in it.message]
    assert levels == ["WARNING", "DEBUG", "DEBUG"]


@rule("topic-7")
async def test_what_is_due_stays_once_nothing_expires_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with swept() as place:
        await place.say("px", {"k": 1})
        append = place.store.append

        async def out(*asked: Any) -> Appended:
            raise ConnectionError("out")

        monkeypatch.setattr(place.store, "append", out)
        await place.pass_time(10)
        monkeypatch.setattr(place.store, "append", append)
        await place.put("px", key=["/k"])
        await place.expiry.remove_expired(
            RecordsExpired("px", place.driver.engine.topic("px").epoch, 1)
        )
        assert place.sow("px") == [{"k": 1}]


@rule("topic-7")
async def test_what_waits_for_a_change_of_the_topic_is_decided_by_it() -> None:
    async with swept() as place:
        await place.say("px", {"k": 1})
        entry = place.catalog.get("px")
        async with entry.writing:
            changing = asyncio.create_task(place.put("px", key=["/k"]))
            await asyncio.sleep(0)
            await place.pass_time(10)  # the sweeper waits behind the change
        await changing
        await place.pass_time(0)
        assert place.sow("px") == [{"k": 1}]


async def test_a_topic_that_goes_meanwhile_does_not_stop_the_sweeper() -> None:
    async with swept() as place:
        await place.put("other", key=["/k"], expiration="10s")
        await place.say("px", {"k": 1})
        await place.say("other", {"k": 1})
        entry = place.catalog.get("px")
        async with entry.writing:
            await place.pass_time(10)
            deleting = asyncio.create_task(place.catalog.delete("px"))
            await asyncio.sleep(0)
        await deleting
        await place.pass_time(0)
        assert place.sow("other") == []
