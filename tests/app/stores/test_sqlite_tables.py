"""Tables of the SQLite store: a journal row for each request, a record row for each key."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.stores import sqlite_tables
from tidegate.app.stores.items import Message
from tidegate.app.stores.schema import TABLES_OF_TOPIC, open_database
from tidegate.app.stores.sqlite_tables import StoredTopic
from tidegate.app.stores.store import Checkpoint, Publication, TopicRecord
from tidegate.conflation.frame import Frame

RECORD = TopicRecord("px", TopicDefinition.parse(b'{"key":["/k"]}'), "e1")


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = open_database(tmp_path / "x.db", survives_power=False)
    sqlite_tables.put_topic(opened, RECORD)
    yield opened
    opened.close()


def there(connection: sqlite3.Connection) -> StoredTopic:
    found = sqlite_tables.find(connection, "px")
    assert found is not None
    return found


def counted(connection: sqlite3.Connection, table: str) -> int:
    found: int = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
    return found


def test_a_request_is_one_row(connection: sqlite3.Connection) -> None:
    topic = there(connection)
    for size in (3, 2):
        sqlite_tables.append(connection, topic, Publication([Message(b"1", "[1]")] * size, 7))
    assert counted(connection, "journal") == 2
    assert topic.head == there(connection).head == 5


def test_a_key_is_one_row(connection: sqlite3.Connection) -> None:
    topic = there(connection)
    for offset in (1, 2):
        changes = [Frame(offset, b"1", "[1]"), Frame(offset + 10, b"2", "[2]")]
        sqlite_tables.checkpoint(connection, topic, Checkpoint("e1", changes, offset + 10, 0, 0))
    assert counted(connection, "records") == 2
    assert [it.offset for it in sqlite_tables.load(connection, topic).records] == [2, 12]


def test_the_head_outlives_the_journal(connection: sqlite3.Connection) -> None:
    topic = there(connection)
    sqlite_tables.append(connection, topic, Publication([Message(b"1", "[1]")] * 3, 7))
    sqlite_tables.checkpoint(connection, topic, Checkpoint("e1", (), 3, 3, 0))
    assert counted(connection, "journal") == 0
    assert there(connection).head == 3


def test_a_topic_leaves_no_row_behind(connection: sqlite3.Connection) -> None:
    topic = there(connection)
    sqlite_tables.append(connection, topic, Publication([Message(b"1", "[1]")], 7))
    sqlite_tables.checkpoint(connection, topic, Checkpoint("e1", [Frame(1, b"1", "[1]")], 1, 0, 0))
    sqlite_tables.put_topic(connection, TopicRecord("px", RECORD.document, "e2"))
    assert there(connection).id != topic.id
    assert [counted(connection, table) for table in TABLES_OF_TOPIC] == [0] * 6
    assert [name for name, _, _ in sqlite_tables.documents(connection)] == ["px"]
