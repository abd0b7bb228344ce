"""What the SQLite store knows of producers, keys and stages expires and does not grow forever."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.rules import rule
from tidegate.app.refusals import Refused
from tidegate.app.stores import sqlite_senders
from tidegate.app.stores.items import Message
from tidegate.app.stores.memory import RETRY_MS, STAGE_MS
from tidegate.app.stores.schema import open_database
from tidegate.app.stores.sqlite_tables import StoredTopic
from tidegate.app.stores.store import Appended, Bounds, Producer, Publication, Retry

NOW_MS = 1_700_000_000_000
TOPIC = 1


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    opened = open_database(tmp_path / "x.db", survives_power=False)
    yield opened
    opened.close()


def there() -> StoredTopic:
    return StoredTopic(TOPIC, "e1", 0)


def asked(retry: str, at_ms: int) -> Publication:
    return Publication([Message(b"1")], at_ms, retry=Retry(retry, b"digest"))


def names(connection: sqlite3.Connection, table: str) -> list[str]:
    return [name for (name,) in connection.execute(f"SELECT name FROM {table} ORDER BY name")]


def test_retries_of_yesterday_are_forgotten(connection: sqlite3.Connection) -> None:
    for number, at_ms in enumerate((NOW_MS, NOW_MS + 1, NOW_MS + RETRY_MS)):
        request = asked(f"r{number}", at_ms)
        assert sqlite_senders.earlier_result(connection, TOPIC, request) is None
        sqlite_senders.record_sender(connection, there(), request, Appended(1, 1))
    assert names(connection, "retries") == ["r1", "r2"]


@rule("publish-6")
def test_senders_are_counted_again_only_where_there_may_be_no_room(
    connection: sqlite3.Connection,
) -> None:
    topic, bounds = there(), Bounds(retry_keys_max=2, producers_max=2)
    statements: list[str] = []
    connection.set_trace_callback(statements.append)

    def ask(retry: str, producer: str, at_ms: int = NOW_MS) -> int:
        """How often something was counted for it."""
        statements.clear()
        publication = Publication([], at_ms, Producer(producer, at_ms), Retry(retry, b"digest"))
        sqlite_senders.check_limits(connection, topic, publication, bounds)
        sqlite_senders.record_sender(connection, topic, publication, Appended(1, 1))
        return sum("count(*)" in statement for statement in statements)

    assert [ask("r1", "p1"), ask("r2", "p1")] == [2, 0]
    with pytest.raises(Refused, match="limit-reached"):
        ask("r3", "p1")
    assert ask("r3", "p1", NOW_MS + RETRY_MS) == 2
    assert ask("r4", "p2", NOW_MS + RETRY_MS) == 0
    with pytest.raises(Refused, match="limit-reached"):
        ask("r5", "p3", NOW_MS + 2 * RETRY_MS)
    assert names(connection, "producers") == ["p1", "p2"]


def test_stages_of_an_hour_ago_are_forgotten(connection: sqlite3.Connection) -> None:
    for number, at_ms in enumerate((NOW_MS, NOW_MS + 1, NOW_MS + STAGE_MS)):
        sqlite_senders.stage(connection, TOPIC, f"s{number}", [Message(b"1")], at_ms, Bounds())
    assert names(connection, "stages") == ["s1", "s2"]


def test_a_known_number_leaves_the_stages_and_notes_the_run(
    connection: sqlite3.Connection,
) -> None:
    first = Publication([Message(b"1")], NOW_MS, Producer("p", 3, run=1))
    sqlite_senders.record_sender(connection, there(), first, Appended(1, 1))
    sqlite_senders.stage(connection, TOPIC, "s", [Message(b"1")], NOW_MS, Bounds())
    again = Publication([Message(b"1")], NOW_MS, Producer("p", 3, run=2), stages={"s": ""})
    known = Appended(0, 0, duplicate=True, highest=3)
    assert sqlite_senders.earlier_result(connection, TOPIC, again) == known
    assert names(connection, "stages") == ["s"]
    assert connection.execute("SELECT run, sequence FROM producers").fetchall() == [(2, 3)]


def test_of_a_new_request_nothing_is_written_yet(connection: sqlite3.Connection) -> None:
    changes = connection.total_changes
    request = Publication([Message(b"1")], NOW_MS, Producer("p", 3), Retry("r", b"digest"))
    assert sqlite_senders.earlier_result(connection, TOPIC, request) is None
    assert connection.total_changes == changes
