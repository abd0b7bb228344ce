"""Stores that tell their figures."""

from __future__ import annotations

from app.stores.figures import MeasuredStore, StoreFigures
from app.stores.memory import MemoryStore
from app.stores.store import Message, Publication, TopicRecord
from app.topic_document import TopicDocument


async def test_a_store_that_keeps_nothing_counts_its_writes() -> None:
    store = MemoryStore()
    assert isinstance(store, MeasuredStore)
    await store.put_topic(TopicRecord("px", TopicDocument.parse(b"{}"), "e1"))
    for _ in range(2):
        await store.append("px", Publication([Message(b"1"), Message(b"2")], 0))
    assert store.figures() == StoreFigures(commits=2)


def test_a_store_need_not_tell_any() -> None:
    assert not isinstance(object(), MeasuredStore)
