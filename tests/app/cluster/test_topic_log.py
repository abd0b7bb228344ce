"""A topic in Redis: its keys are in one slot, and what is kept is of one moment."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.crc import key_slot

from tests.support.buses import BusServer
from tidegate.app.cluster.connection import BusConnection, StreamEntry
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.membership import fence_key
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.cluster.scripts import READ_MS
from tidegate.app.cluster.topic_log import TopicLog
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Item, Message, Removal
from tidegate.app.stores.store import Bounds, Publication, Retry, TopicRecord
from tidegate.conflation.definition import History
from tidegate.conflation.frame import RemovalReason

NUMBERS = itertools.count()
RECORD = TopicRecord("px", TopicDefinition.parse(b'{"key":["/k"]}'), "e1")


def test_an_append_touches_one_slot_of_its_topic() -> None:
    connection = BusConnection("redis://localhost")
    log = TopicLog(connection, RECORD, "", History(10), Bounds())
    publication = Publication([], 0, retry=Retry("r", b"d"), stages={"a": "", "b": ""})
    keys = {*log.append_keys(publication)} - {fence_key(connection)}
    assert len(keys) == 10
    assert len({key_slot(name.encode()) for name in keys}) == 1


def test_what_is_kept_aside_belongs_to_the_epoch() -> None:
    connection = BusConnection("redis://localhost")
    before = TopicLog(connection, RECORD, "", History(10), Bounds())
    after = TopicLog(
        connection, TopicRecord("px", RECORD.document, "e2"), "", History(10), Bounds()
    )
    assert before.stage_key("s") != after.stage_key("s")
    asked = Publication([], 0, retry=Retry("r", b"d"))
    differ = set(before.append_keys(asked)) ^ set(after.append_keys(asked))
    assert differ == {before.stages_key, after.stages_key}


@pytest.mark.redis
async def test_what_is_kept_is_of_one_moment_while_others_write(redis_bus: BusServer) -> None:
    """Records and journal tell the same, however much is written while they are read."""
    connection = BusConnection(redis_bus.url, f"topic-log-{next(NUMBERS)}")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    await store.open()
    await store.put_topic(RECORD)
    is_over = asyncio.Event()

    async def write() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            message = Message(b"%d" % number, f'["{number % 50}"]')
            await store.append("px", Publication([message], 0))

    writing = asyncio.create_task(write())
    for _ in range(5):
        kept = await store.load("px")
        newest = {frame.key: frame for frame in kept.journal}
        assert sorted(newest.values(), key=lambda it: it.offset) == list(kept.records)
        assert kept.head == len(kept.journal)
    is_over.set()
    await writing
    await store.aclose()


@pytest.mark.redis
async def test_a_removal_has_the_value_that_it_takes_away(redis_bus: BusServer) -> None:
    """Not the one that the gateway knew which wrote it: that one may have been behind."""
    connection = BusConnection(redis_bus.url, f"topic-log-{next(NUMBERS)}")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    await store.open()
    await store.put_topic(RECORD)
    for item in (
        Message(b"1", '["a"]'),
        Message(b"2", '["a"]'),
        Removal('["a"]', RemovalReason.DELETED, b"1"),
        Removal('["a"]', RemovalReason.DELETED, b"2"),
    ):
        await store.append("px", Publication([item], 0))
    kept = await store.load("px")
    assert [frame.payload for frame in kept.journal] == [b"1", b"2", b"2", b""]
    await store.aclose()


@pytest.mark.redis
async def test_a_stream_that_is_trimmed_while_it_is_read_is_not_read_for_ever(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = BusConnection(redis_bus.url, f"topic-log-{next(NUMBERS)}")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    await store.open()
    document = TopicDefinition.parse(b'{"key":["/k"],"history":{"messages":1}}')
    await store.put_topic(TopicRecord("px", document, "e1"))
    log, times_ms = store.log("px"), itertools.count(0, 2 * READ_MS)
    head = log.head

    async def head_before_others_write() -> int:
        found = await head()
        for key in ('["a"]', '["b"]'):
            await store.append("px", Publication([Message(b"1", key)], next(times_ms)))
        return found

    monkeypatch.setattr(TopicLog, "head", lambda self: head_before_others_write())
    assert await log.load() is None
    await store.aclose()


@pytest.mark.redis
async def test_a_topic_is_read_that_keeps_messages_for_less_time_than_its_records_take(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.app.cluster.topic_log.FOLLOW_S", 0.0)
    connection = BusConnection(redis_bus.url, f"topic-log-{next(NUMBERS)}")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    await store.open()
    document = TopicDefinition.parse(b'{"key":["/k"],"history":{"messages":10,"age":"1h"}}')
    await store.put_topic(TopicRecord("px", document, "e1"))
    log, numbers = store.log("px"), itertools.count()

    async def write() -> None:
        number = next(numbers)
        items: list[Item] = [
            Message(b"%d" % number, f'["{number % 30}"]'),
            Removal(f'["{number * 7 % 30}"]', RemovalReason.DELETED),
        ]
        await store.append("px", Publication(items, number * 2 * READ_MS))

    for _ in range(50):
        await write()
    scan = connection.writer.hscan_iter

    async def scan_while_others_write(*given: Any, **more: Any) -> AsyncIterator[Any]:
        async for record in scan(*given, **more):
            yield record
            for _ in range(4):
                await write()

    with monkeypatch.context() as patch:
        patch.setattr(connection.writer, "hscan_iter", scan_while_others_write)
        busy = await log.load()
    quiet = await log.load()
    assert busy is not None
    assert quiet is not None
    assert busy.head == quiet.head
    assert busy.records == quiet.records
    await store.aclose()


@pytest.mark.redis
async def test_what_is_trimmed_between_two_reads_of_a_stream_leaves_no_hole(
    redis_bus: BusServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegate.app.cluster.topic_log.ENTRIES_AT_ONCE", 2)
    connection = BusConnection(redis_bus.url, f"topic-log-{next(NUMBERS)}")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    await store.open()
    document = TopicDefinition.parse(b'{"key":["/k"],"history":{"messages":4}}')
    await store.put_topic(TopicRecord("px", document, "e1"))
    log, numbers = store.log("px"), itertools.count()

    async def write(count: int) -> None:
        for number in itertools.islice(numbers, count):
            message = Message(b"%d" % number, f'["{number % 5}"]')
            await store.append("px", Publication([message], number * 2 * READ_MS))

    await write(6)
    read, more = connection.read_stream, [6]

    async def read_before_others_write(stream: str, after: int, count: int) -> list[StreamEntry]:
        found = await read(stream, after, count)
        if more:
            await write(more.pop())
        return found

    monkeypatch.setattr(connection, "read_stream", read_before_others_write)
    loaded = await log.load()
    assert loaded is not None
    assert [frame.offset for frame in loaded.journal] == [9, 10, 11, 12]
    assert loaded == await log.load()
    await store.aclose()
