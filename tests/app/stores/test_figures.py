"""The figures of stores."""

from __future__ import annotations

from pathlib import Path

from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.definitions import Definitions
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.figures import Counters
from tidegate.app.metrics.families import store_families
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Message
from tidegate.app.stores.memory import MemoryStore
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import Publication, StoreFigures, TopicRecord


async def test_a_store_that_keeps_nothing_counts_its_writes() -> None:
    store = MemoryStore()
    await store.put_topic(TopicRecord("px", TopicDefinition.parse(b"{}"), "e1"))
    for _ in range(2):
        await store.append("px", Publication([Message(b"1"), Message(b"2")], 0))
    assert store.figures() == StoreFigures(commits=2)


def test_a_store_that_is_another_server_tells_none() -> None:
    connection = BusConnection("redis://127.0.0.1:1")
    store = RedisStore(connection, Settings(), Definitions(connection, Mergers()))
    names = {family.name for family in store_families(store, Counters())}
    assert "tidegate_store_failures" in names
    assert "tidegate_store_commits" not in names


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
