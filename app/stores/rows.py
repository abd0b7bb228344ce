"""Rows of the embedded store: topics, their journal, their records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from app.stores.packing import frames_of, pack, unpack
from app.stores.schema import TABLES_OF_TOPIC
from app.stores.store import Appended, Checkpoint, Publication, TopicRecord
from conflation.frame import Frame, Gone, Tombstone
from conflation.kept import Kept

_PUT_RECORD = """
INSERT INTO records (topic, record_key, position, timestamp_ms, payload, exempt, reason,
                     put_position, put_ms)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO UPDATE SET
    position = excluded.position, timestamp_ms = excluded.timestamp_ms, payload = excluded.payload,
    exempt = excluded.exempt, reason = excluded.reason,
    put_position = excluded.put_position, put_ms = excluded.put_ms
"""


@dataclass(slots=True)
class StoredTopic:
    """A topic's place in the file, and its last offset.

    How many retries and producers it has at most is counted when somebody asks; None till then.
    """

    id: int
    epoch: str
    head: int
    retries: int | None = None
    producers: int | None = None


def find(connection: sqlite3.Connection, name: str) -> StoredTopic | None:
    """The topic of this name."""
    row = connection.execute(
        "SELECT id, epoch, max(through, coalesce("
        "(SELECT max(last) FROM journal WHERE topic = id), 0)) FROM topics WHERE name = ?",
        (name,),
    ).fetchone()
    return None if row is None else StoredTopic(*row)


def documents(connection: sqlite3.Connection) -> list[tuple[str, bytes, str]]:
    """Name, document and epoch of every topic, in the order in which they were made."""
    found = connection.execute("SELECT name, document, epoch FROM topics ORDER BY id")
    return found.fetchall()


def put_topic(connection: sqlite3.Connection, record: TopicRecord) -> None:
    """Make a topic, or write its document anew; another epoch takes the old one's place."""
    document = msgspec.json.encode(record.document.document())
    known = find(connection, record.name)
    if known is not None and known.epoch == record.epoch:
        connection.execute("UPDATE topics SET document = ? WHERE id = ?", (document, known.id))
        return
    if known is not None:
        delete_topic(connection, known)
    connection.execute(
        "INSERT INTO topics (name, epoch, document) VALUES (?, ?, ?)",
        (record.name, record.epoch, document),
    )


def delete_topic(connection: sqlite3.Connection, topic: StoredTopic) -> None:
    """Forget a topic and all that is its own."""
    for table in TABLES_OF_TOPIC:
        connection.execute(f"DELETE FROM {table} WHERE topic = ?", (topic.id,))
    connection.execute("DELETE FROM topics WHERE id = ?", (topic.id,))


def append(
    connection: sqlite3.Connection, topic: StoredTopic, publication: Publication
) -> Appended:
    """A request's items behind the topic's head, one row."""
    appended = Appended(topic.head + 1, topic.head + len(publication.items))
    if publication.items:
        connection.execute(
            "INSERT INTO journal (topic, last, first, timestamp_ms, items) VALUES (?, ?, ?, ?, ?)",
            (
                topic.id, appended.last, appended.first, publication.timestamp_ms,
                pack(publication.items),
            ),
        )  # fmt: skip
    topic.head = appended.last
    return appended


def checkpoint(connection: sqlite3.Connection, topic: StoredTopic, made: Checkpoint) -> None:
    """Write the keys that have changed; forget what nobody will ask for.

    In the order of their keys: then pages of the file are written one after the other, once.
    """
    by_key = sorted(made.changes, key=lambda frame: frame.key)
    connection.executemany(_PUT_RECORD, _rows(topic.id, by_key))
    connection.execute(
        "DELETE FROM records WHERE topic = ? AND reason IS NOT NULL AND position <= ?",
        (topic.id, made.horizon),
    )
    connection.execute(
        "UPDATE topics SET through = ?, horizon = ?, exempt_through = ? WHERE id = ?",
        (made.through, made.horizon, made.exempt_through, topic.id),
    )
    connection.execute(
        "DELETE FROM journal WHERE topic = ? AND last <= ?",
        (topic.id, min(made.through, made.journal_through)),
    )


def kept(connection: sqlite3.Connection, topic: StoredTopic) -> Kept:
    """All that is there of a topic."""
    horizon, exempt_through = connection.execute(
        "SELECT horizon, exempt_through FROM topics WHERE id = ?", (topic.id,)
    ).fetchone()
    records = connection.execute(
        "SELECT record_key, position, timestamp_ms, payload, exempt, reason, put_position, put_ms "
        "FROM records WHERE topic = ? ORDER BY position",
        (topic.id,),
    )
    journal: list[Frame] = []
    for first, timestamp_ms, items in connection.execute(
        "SELECT first, timestamp_ms, items FROM journal WHERE topic = ? ORDER BY last", (topic.id,)
    ):
        journal += frames_of(unpack(items), first, timestamp_ms)
    return Kept(
        head=topic.head,
        records=[_record(*row) for row in records],
        horizon=horizon,
        journal=journal,
        dropped_through=journal[0].offset - 1 if journal else topic.head,
        exempt_through=exempt_through,
    )


def _rows(topic: int, frames: Sequence[Frame]) -> Iterator[tuple[object, ...]]:
    for frame in frames:
        told = (topic, frame.key, frame.offset, frame.timestamp_ms, frame.payload, frame.exempt)
        if isinstance(frame, Tombstone):
            yield *told, frame.reason, frame.put_offset, frame.put_ms
        else:
            yield *told, None, 0, 0


def _record(
    record_key: str,
    offset: int,
    timestamp_ms: int,
    payload: bytes,
    exempt: int,
    reason: str | None,
    put_offset: int,
    put_ms: int,
) -> Frame:
    if reason is None:
        return Frame(offset, payload, record_key, timestamp_ms, bool(exempt))
    return Tombstone(
        offset, payload, record_key, timestamp_ms,
        reason=Gone(reason), put_offset=put_offset, put_ms=put_ms,
    )  # fmt: skip
