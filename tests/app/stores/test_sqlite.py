"""The SQLite store: who may open it, what it refuses, and how it recovers from failures."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.app.stores.test_store import NOW_MS, PLAIN, append
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.definitions.topic import TopicDefinition, Unusable
from tidegate.app.refusals import Refused
from tidegate.app.stores import sqlite
from tidegate.app.stores.folder import DATABASE
from tidegate.app.stores.items import Message
from tidegate.app.stores.schema import open_database
from tidegate.app.stores.sqlite import SqliteStore
from tidegate.app.stores.store import Appended, Publication, StoreUnusable, TopicRecord

ENOUGH_PAGES = 1 << 20


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections of the stores that are opened: limits are a connection's, not the file's."""
    opened: list[sqlite3.Connection] = []

    def open_noted(path: Path, *, survives_power: bool) -> sqlite3.Connection:
        opened.append(open_database(path, survives_power=survives_power))
        return opened[-1]

    monkeypatch.setattr(sqlite, "open_database", open_noted)
    return opened


@pytest.fixture
async def store(
    tmp_path: Path, connections: list[sqlite3.Connection]
) -> AsyncIterator[SqliteStore]:
    made = SqliteStore(tmp_path)
    await made.open()
    await made.put_topic(TopicRecord("a", PLAIN, "e1"))
    yield made
    await made.aclose()


def fill_disk(connection: sqlite3.Connection) -> None:
    """Let the file grow no further, as on a full disk."""
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")


def free_disk(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA max_page_count = {ENOUGH_PAGES}")


async def test_while_a_gateway_has_it_no_other_gets_it(store: SqliteStore, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path)
    with pytest.raises(StoreUnusable, match="in use by another gateway"):
        await other.open()
    await other.aclose()
    assert await append(store, "a", [Message(b"1")]) == Appended(1, 1)
    await store.aclose()
    await other.open()
    assert await append(other, "a", [Message(b"2")]) == Appended(2, 2)
    await other.aclose()


async def test_what_cannot_be_opened_lets_the_folder_go(tmp_path: Path) -> None:
    (tmp_path / DATABASE).write_bytes(b"no database, but long enough to look at" * 40)
    for _ in range(2):
        with pytest.raises(StoreUnusable, match="is not a database"):
            await SqliteStore(tmp_path).open()
    (tmp_path / DATABASE).unlink()
    store = SqliteStore(tmp_path)
    await store.open()
    await store.aclose()


async def test_a_file_that_is_damaged_is_refused_in_a_sentence(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path)
    await store.open()
    await store.put_topic(TopicRecord("a", PLAIN, "e1"))
    await store.aclose()
    path = tmp_path / DATABASE
    whole = path.read_bytes()
    path.write_bytes(whole[:4096] + b"\xff" * (len(whole) - 4096))
    with pytest.raises(StoreUnusable, match=r"malformed|cannot be") as refused:
        await SqliteStore(tmp_path).open()
    assert "\n" not in str(refused.value)


async def test_a_merger_that_settings_no_longer_name_costs_its_topic_only(tmp_path: Path) -> None:
    mergers = Mergers({"m:f": lambda current, new: new})
    document = TopicDefinition.parse(b'{"key":["/k"],"merge":"m:f"}', mergers)
    store = SqliteStore(tmp_path, mergers=mergers)
    await store.open()
    await store.put_topic(TopicRecord("px", document, "e1"))
    assert list(await store.records()) == [TopicRecord("px", document, "e1")]
    await store.aclose()
    later = SqliteStore(tmp_path)
    await later.open()
    [stored] = await later.records()
    assert isinstance(stored, Unusable)
    assert (stored.name, stored.epoch, stored.identity) == ("px", "e1", document.identity)
    assert stored.etag == document.etag("e1")
    assert "(field merge)" in stored.reason
    await later.aclose()


async def test_a_full_disk_is_a_problem_until_there_is_room(
    store: SqliteStore, connections: list[sqlite3.Connection]
) -> None:
    await append(store, "a", [Message(b"1")])
    fill_disk(connections[0])
    for _ in range(2):
        with pytest.raises(Refused, match="bus-unavailable") as out:
            await append(store, "a", [Message(b"x" * 1_000_000)])
        assert "full" in out.value.detail
    free_disk(connections[0])
    assert await append(store, "a", [Message(b"2")]) == Appended(2, 2)
    assert [it.payload for it in (await store.load("a")).journal] == [b"1", b"2"]


async def test_a_read_only_file_is_a_problem_until_it_can_be_written(
    store: SqliteStore, connections: list[sqlite3.Connection]
) -> None:
    [connection] = connections
    connection.execute("PRAGMA query_only = 1")
    with pytest.raises(Refused, match="bus-unavailable") as out:
        await append(store, "a", [Message(b"1")])
    assert "readonly" in out.value.detail
    connection.execute("PRAGMA query_only = 0")
    assert await append(store, "a", [Message(b"1")]) == Appended(1, 1)


async def test_numbers_have_no_holes_where_others_had_no_room(
    store: SqliteStore, connections: list[sqlite3.Connection]
) -> None:
    await store.put_topic(TopicRecord("b", PLAIN, "e1"))
    fill_disk(connections[0])
    answers = await asyncio.gather(
        append(store, "a", [Message(b"small")]),
        append(store, "b", [Message(b"x" * 1_000_000)]),
        return_exceptions=True,
    )
    assert answers[0] == Appended(1, 1)
    assert isinstance(answers[1], Refused)
    free_disk(connections[0])
    assert await append(store, "a", [Message(b"2")]) == Appended(2, 2)
    assert await append(store, "b", [Message(b"1")]) == Appended(1, 1)


async def test_another_program_may_read_it_meanwhile(store: SqliteStore, tmp_path: Path) -> None:
    await append(store, "a", [Message(b"1")])
    copy = tmp_path / "backup"
    copy.mkdir()
    with (
        closing(sqlite3.connect(tmp_path / DATABASE)) as source,
        closing(sqlite3.connect(copy / DATABASE)) as target,
    ):
        source.backup(target)
    restored = SqliteStore(copy)
    await restored.open()
    assert (await restored.load("a")).head == 1
    await restored.aclose()


async def test_the_gateways_own_topics_are_forgotten_at_a_start(tmp_path: Path) -> None:
    for _ in range(2):
        store = SqliteStore(tmp_path)
        await store.open()
        assert list(await store.records()) == []
        await store.put_topic(TopicRecord("tidegate.sessions", PLAIN, "e1"))
        await append(store, "tidegate.sessions", [Message(b"1")])
        await store.aclose()


async def test_a_store_that_is_closed_says_so(store: SqliteStore) -> None:
    await store.aclose()
    with pytest.raises(Refused, match="bus-unavailable"):
        await store.append("a", Publication([Message(b"1")], NOW_MS))
