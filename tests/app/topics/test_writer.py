"""The one way into a topic: numbered, delivered, and removals among the messages."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.place import Place
from tests.support.rules import rule
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.store import (
    Appended,
    HeadMoved,
    PastTime,
    Producer,
    Publication,
    Retry,
    Staged,
    TopicRecord,
)
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.registry import CatalogTopic
from tidegate.app.topics.writer import FRAMED_AT_ONCE, REMOVED_AT_ONCE, Writer
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import Frame, RemovalReason, RestoredTopic, Tombstone


async def keyed(*messages: object) -> Place:
    place = Place()
    await place.put("px", key=["/k"])
    if messages:
        await place.say("px", *messages)
    return place


async def test_a_removal_has_its_place_between_messages() -> None:
    place = await keyed({"k": 1}, {"k": 2})
    entry = place.catalog.get("px")
    async with entry.writing:
        items: list[Item] = [Removal("[1]", RemovalReason.DELETED), Message(b'{"k":3}', "[3]")]
        assert await place.writer.write(entry, items) == Appended(3, 4)
    assert place.sow("px") == [{"k": 2}, {"k": 3}]
    removal, message = place.driver.engine.topic("px").journal.after(2)
    assert isinstance(removal, Tombstone)
    assert (removal.key, removal.payload, removal.reason) == (
        "[1]",
        b'{"k": 1}',
        RemovalReason.DELETED,
    )
    assert not message.removed


async def test_what_is_refused_as_a_duplicate_is_not_delivered() -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    async with entry.writing:
        for duplicate in (False, True):
            item = Message(b'{"k":1}', "[1]")
            appended = await place.writer.write(entry, [item], Producer("p", 1))
            assert appended.duplicate is duplicate
    assert place.driver.engine.topic("px").head == 1


async def test_a_topic_of_another_epoch_is_another_topic() -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    await place.catalog.delete("px")
    await place.put("px", key=["/k"])
    async with entry.writing:
        with pytest.raises(TopicUnknown):
            await place.writer.write(entry, [Message(b'{"k":1}', "[1]")])


async def test_only_records_that_are_still_the_same_are_removed() -> None:
    place = await keyed({"k": 1}, {"k": 2}, {"k": 3})
    records = place.live("px")
    await place.say("px", {"k": 2, "v": "new"})
    entry = place.catalog.get("px")
    assert await place.writer.remove(entry, records, RemovalReason.DELETED) == 2
    assert place.sow("px") == [{"k": 2, "v": "new"}]
    assert await place.writer.remove(entry, records, RemovalReason.DELETED) == 0
    assert place.driver.engine.topic("px").head == 6


async def test_a_record_of_a_topic_that_was_taken_anew_is_still_the_same() -> None:
    """After an outage the topic goes on in another epoch, with what was kept of it."""
    place = await keyed({"k": 1}, {"k": 2})
    records = place.live("px")
    entry = place.catalog.get("px")
    again = [Frame(it.offset, it.payload, it.key, it.timestamp_ms) for it in records]
    renewed = TopicRecord("px", entry.document, "another")
    place.catalog.renew(renewed, RestoredTopic(head=2, records=again, journal=again))
    assert await place.writer.remove(entry, records, RemovalReason.DELETED) == 2
    assert place.sow("px") == []


async def test_a_removal_of_slices_is_begun_again_in_another_epoch() -> None:
    """What the first slices removed is there again: an answer must not count it as gone."""
    records = [{"k": n} for n in range(2 * REMOVED_AT_ONCE)]
    place = await keyed(*records)
    entry = place.catalog.get("px")
    again = [Frame(it.offset, it.payload, it.key, it.timestamp_ms) for it in place.live("px")]

    async def removed(entry: CatalogTopic) -> int:
        return await place.writer.remove(entry, place.live("px"), RemovalReason.DELETED)

    removing = asyncio.create_task(place.catalog.with_newest_definition(entry, removed))
    while len(place.sow("px")) == len(records):
        await asyncio.sleep(0)
    renewed = TopicRecord("px", entry.document, "another")
    head = place.driver.engine.topic("px").head
    place.catalog.renew(renewed, RestoredTopic(head=head, records=again))
    assert await removing == len(records)
    assert place.sow("px") == []


@rule("topic-7")
async def test_publishes_are_served_while_many_records_are_removed() -> None:
    """What is published meanwhile stays."""
    place = await keyed(*({"k": n} for n in range(3 * REMOVED_AT_ONCE)))
    entry = place.catalog.get("px")
    removing = asyncio.create_task(
        place.writer.remove(entry, place.live("px"), RemovalReason.DELETED)
    )
    await asyncio.sleep(0)
    last = {"k": 3 * REMOVED_AT_ONCE - 1, "v": "new"}
    await place.say("px", last)
    assert not removing.done()
    assert await removing == 3 * REMOVED_AT_ONCE - 1
    assert place.sow("px") == [last]


async def test_whether_a_request_came_before_is_asked_without_publishing() -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    retry = Retry("r", b"digest")
    async with entry.writing:
        for _ in range(2):
            assert await place.writer.earlier(entry, Producer("p", 1), retry=retry) is None
        written = await place.writer.write(
            entry, [Message(b'{"k":1}', "[1]")], Producer("p", 1), retry=retry
        )
        again = Appended(written.first, written.last, duplicate=True)
        assert await place.writer.earlier(entry, retry=retry) == again
        number = await place.writer.earlier(entry, Producer("p", 1))
        assert number is not None
        assert number.duplicate
    assert place.driver.engine.topic("px").head == 1


async def test_stages_are_kept_aside_and_forgotten_with_what_they_became() -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    message = Message(b'{"k":1}', "[1]")
    async with entry.writing:
        await place.writer.stage(entry, "s", [message])
        assert await place.writer.staged(entry, ["s"]) == Staged([message], {"s": ""})
        await place.writer.write(entry, [message], Producer("p", 1, run=1), stages={"s": ""})
        assert await place.writer.staged(entry, ["s"]) is None
    assert place.sow("px") == [{"k": 1}]


async def test_nothing_is_staged_for_a_topic_that_has_gone() -> None:
    place = await keyed()
    entry = place.catalog.get("px")
    await place.catalog.delete("px")
    async with entry.writing:
        with pytest.raises(TopicUnknown):
            await place.writer.stage(entry, "s", [Message(b'{"k":1}', "[1]")])
        with pytest.raises(TopicUnknown):
            await place.writer.staged(entry, ["s"])
        with pytest.raises(TopicUnknown):
            await place.writer.earlier(entry, Producer("p", 1))


async def test_a_large_request_is_numbered_through() -> None:
    place = Place(journal_messages_max=3 * FRAMED_AT_ONCE)
    await place.put("px")
    entry = place.catalog.get("px")
    async with entry.writing:
        await place.writer.write(entry, [Message(b"%d" % n) for n in range(2 * FRAMED_AT_ONCE + 1)])
    journal = place.driver.engine.topic("px").journal.after(0)
    assert [(f.offset, f.payload) for f in journal] == [
        (n + 1, b"%d" % n) for n in range(2 * FRAMED_AT_ONCE + 1)
    ]


async def test_a_removal_is_stored_with_the_value_that_it_takes_away() -> None:
    store = NotingStore()
    place = Place(store)
    await place.put("px", key=["/k"])
    await place.say("px", {"k": 1})
    entry = place.catalog.get("px")
    async with entry.writing:
        gone = [Removal(key, RemovalReason.DELETED) for key in ("[1]", "[2]", "[3]")]
        await place.writer.write(entry, [gone[0], Message(b"2", "[2]"), *gone[1:]])
    assert [item.payload for item in store.items[1:]] == [b'{"k": 1}', b"2", b"2", b""]


async def test_what_is_stored_is_delivered_although_nobody_waits_any_more() -> None:
    store = NotingStore()
    place = Place(store)
    await place.put("px")
    store.go_on.clear()
    asked = asyncio.create_task(place.say("px", 1))
    while not store.items:
        await asyncio.sleep(0)
    asked.cancel()
    store.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert place.driver.engine.topic("px").head == 1
    assert await place.say("px", 2) == Appended(2, 2)


class NotingStore(MemoryStore):
    """Remembers what is appended; goes on when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.items: list[Item] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def append(self, topic: str, publication: Publication) -> Appended:
        self.items += publication.items
        await self.go_on.wait()
        return await super().append(topic, publication)


class OvertakenStore(MemoryStore):
    """Refuses the first decided write: others have moved the head to 3 meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.decided: list[tuple[str | None, int | None]] = []

    async def append(self, topic: str, publication: Publication) -> Appended:
        self.decided.append((publication.epoch, publication.expected_head))
        if len(self.decided) == 1:
            raise HeadMoved(3)
        return Appended(4, 4)


async def test_a_write_is_decided_again_once_what_overtook_it_is_there() -> None:
    """Until then publishers of the topic go on."""
    store = OvertakenStore()
    place = Place(store)
    await place.put("px", key=["/k"])
    entry, driver, arrivals = place.catalog.get("px"), place.driver, AppendWaiters(place.driver)
    topic, seen = driver.engine.topic("px"), list[int]()

    async def decide() -> list[Item]:
        seen.append(topic.head)
        return [Message(b'{"k":1}', "[1]")]

    async def arrive(*offsets: int) -> None:
        await driver.publish("px", [Frame(offset, b'{"k":2}', "[2]") for offset in offsets])
        arrivals.notify("px")
        for _ in range(5):
            await asyncio.sleep(0)

    writing = asyncio.create_task(Writer(store, driver, arrivals).write_decided(entry, decide))
    await asyncio.sleep(0.001)
    for offset in (1, 2):
        await arrive(offset)
        assert seen == [0]
        assert not entry.writing.locked()
    await arrive(3)
    await arrive(4)
    assert await writing == Appended(4, 4)
    epoch = entry.record.epoch
    assert store.decided == [(epoch, 0), (epoch, 3)]


async def test_a_write_is_decided_by_one_epoch() -> None:
    """The next one may lack what it was decided by."""
    store = OvertakenStore()
    place = Place(store)
    await place.put("px", key=["/k"])
    entry, arrivals = place.catalog.get("px"), AppendWaiters(place.driver)
    before = entry.record.epoch

    async def decide() -> list[Item]:
        place.catalog.renew(TopicRecord("px", entry.document, "another"), RestoredTopic(head=9))
        return [Message(b'{"k":1}', "[1]")]

    writer = Writer(store, place.driver, arrivals)
    writing = asyncio.create_task(writer.write_decided(entry, decide))
    while not store.decided:
        await asyncio.sleep(0.001)
    assert store.decided == [(before, 0)]
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)


async def test_nothing_is_waited_for_where_all_records_have_changed() -> None:
    """However often other gateways publish meanwhile."""
    place = await keyed({"k": 1}, {"k": 2})
    entry, driver, arrivals = place.catalog.get("px"), place.driver, AppendWaiters(place.driver)
    records = place.live("px")
    await place.say("px", {"k": 1, "v": "new"}, {"k": 2, "v": "new"})

    async def shared_head(name: str, past: PastTime | None) -> int:
        await asyncio.sleep(0.01)
        head = driver.engine.topic(name).head + 1
        await driver.publish(name, [Frame(head, b'{"k":3}', "[3]")])
        return head

    arrivals.shared_head = shared_head
    writer = Writer(place.store, driver, arrivals)
    assert await writer.remove(entry, records, RemovalReason.DELETED) == 0
