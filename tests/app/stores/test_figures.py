"""Stores that tell their figures."""

from __future__ import annotations

from pathlib import Path

from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.stores.items import Message
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import MeasuredStore, Publication, StoreFigures, TopicRecord


async def test_a_store_that_keeps_nothing_counts_its_writes() -> None:
    store = MemoryStore()
    assert isinstance(store, MeasuredStore)
    await store.put_topic(TopicRecord("px", TopicDefinition.parse(b"{}"), "e1"))
    for _ in range(2):
        await store.append("px", Publication([Message(b"1"), Message(b"2")], 0))
    assert store.figures() == StoreFigures(commits=2)


def test_a_store_need_not_tell_any() -> None:
    assert not isinstance(object(), MeasuredStore)


async def test_the_sqlite_store_tells_its_transactions_and_its_size(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    assert store.figures() == StoreFigures(0)
    await store.open()
    await store.put_topic(TopicRecord("px", TopicDefinition.parse(b"{}"), "e1"))
    before = store.figures()
    await store.append("px", Publication([Message(b"1" * 100_000)], 0))
    after = store.figures()
    assert after.commits == before.commits + 1
    assert after.queued == 0
    assert before.size_bytes is not None
    assert after.size_bytes is not None
    assert after.size_bytes >= before.size_bytes + 100_000
    await store.aclose()
