"""What every store must do. A store that survives the process joins `STORES`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from app.memory_store import MemoryStore
from app.store import Appended, Item, Message, Producer, Removal, Store, TopicRecord
from app.topic_document import TopicDocument
from conflation.frame import Gone

STORES: dict[str, Callable[[], Store]] = {"memory": MemoryStore}
PLAIN = TopicDocument()
NOW_MS = 1_700_000_000_000


@pytest.fixture(params=sorted(STORES))
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    made = STORES[request.param]()
    yield made
    await made.aclose()


async def test_a_new_store_is_empty(store: Store) -> None:
    assert list(await store.records()) == []


async def test_topics_are_kept_as_they_were_put(store: Store) -> None:
    first = TopicRecord("a", PLAIN, "e1")
    second = TopicRecord("b", TopicDocument.parse(b'{"key":["/k"],"description":"d"}'), "e2")
    await store.put_topic(first)
    await store.put_topic(second)
    assert sorted(await store.records(), key=lambda record: record.name) == [first, second]


async def test_messages_are_numbered_from_one_without_holes(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await store.append("a", [Message(b"1"), Message(b"2")], NOW_MS, None) == Appended(1, 2)
    assert await store.append("a", [Message(b"3")], NOW_MS, None) == Appended(3, 3)


async def test_a_removal_has_its_place_among_the_messages(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    items: list[Item] = [Message(b"1", "[1]"), Removal("[1]", Gone.DELETED), Message(b"2", "[2]")]
    assert await store.append("a", items, NOW_MS, None) == Appended(1, 3)


async def test_each_topic_has_its_own_numbers(store: Store) -> None:
    for name in ("a", "b"):
        await store.put_topic(TopicRecord(name, PLAIN, "e1"))
        assert await store.append(name, [Message(b"1")], NOW_MS, None) == Appended(1, 1)


async def test_a_new_document_leaves_the_numbers_alone(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await store.append("a", [Message(b"1")], NOW_MS, Producer("p", 4))
    described = TopicRecord("a", TopicDocument(description="d"), "e1")
    await store.put_topic(described)
    assert list(await store.records()) == [described]
    assert await store.append("a", [Message(b"2")], NOW_MS, None) == Appended(2, 2)
    assert (await store.append("a", [Message(b"x")], NOW_MS, Producer("p", 4))).duplicate


async def test_a_new_epoch_begins_at_one(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await store.append("a", [Message(b"1"), Message(b"2")], NOW_MS, Producer("p", 1))
    await store.put_topic(TopicRecord("a", PLAIN, "e2"))
    assert await store.append("a", [Message(b"1")], NOW_MS, Producer("p", 1)) == Appended(1, 1)


async def test_a_deleted_topic_is_gone_with_its_messages_and_producers(store: Store) -> None:
    for name in ("a", "ab"):
        await store.put_topic(TopicRecord(name, PLAIN, "e1"))
        await store.append(name, [Message(b"1")], NOW_MS, Producer("p", 1))
    await store.delete_topic("a")
    assert [record.name for record in await store.records()] == ["ab"]
    await store.put_topic(TopicRecord("a", PLAIN, "e2"))
    assert await store.append("a", [Message(b"1")], NOW_MS, Producer("p", 1)) == Appended(1, 1)
    assert (await store.append("ab", [Message(b"1")], NOW_MS, Producer("p", 1))).duplicate


async def test_a_number_not_above_the_highest_publishes_nothing(store: Store) -> None:
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    assert await store.append("a", [Message(b"1")], NOW_MS, Producer("p", 0)) == Appended(1, 1)
    assert await store.append("a", [Message(b"2")], NOW_MS, Producer("p", 7)) == Appended(2, 2)
    for old in (7, 6, 0):
        assert (await store.append("a", [Message(b"x")], NOW_MS, Producer("p", old))).duplicate
    assert await store.append("a", [Message(b"3")], NOW_MS, Producer("p", 8)) == Appended(3, 3)


async def test_producers_count_for_themselves_in_each_topic(store: Store) -> None:
    for name in ("a", "b"):
        await store.put_topic(TopicRecord(name, PLAIN, "e1"))
    await store.append("a", [Message(b"1")], NOW_MS, Producer("p", 9))
    assert not (await store.append("a", [Message(b"2")], NOW_MS, Producer("q", 1))).duplicate
    assert not (await store.append("b", [Message(b"1")], NOW_MS, Producer("p", 1))).duplicate
