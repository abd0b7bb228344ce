"""The tables of the SQLite store that hold topics, their journals and their records."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tidegate.app.stores.items import pack, to_frames, unpack
from tidegate.app.stores.schema import TABLES_OF_TOPIC
from tidegate.app.stores.store import (
    Appended,
    Checkpoint,
    Publication,
    TopicRecord,
    encode_definition,
)
from tidegate.conflation.frame import Frame, RemovalReason, RestoredTopic, Tombstone

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
    """A topic's row id, epoch and last offset.

    `retries` and `producers` are upper bounds of their row counts, None until counted.
    """

    id: int
    epoch: str
    head: int
    retries: int | None = None
    producers: int | None = None


def find(connection: sqlite3.Connection, name: str) -> StoredTopic | None:
    """Return the topic with this name, or None."""
    # A checkpoint may have deleted the newest journal row: the head is the higher of both.
    row = connection.execute(
        "SELECT id, epoch, max(through, coalesce("
        "(SELECT max(last) FROM journal WHERE topic = id), 0)) FROM topics WHERE name = ?",
        (name,),
    ).fetchone()
    return None if row is None else StoredTopic(*row)


def documents(connection: sqlite3.Connection) -> list[tuple[str, bytes, str]]:
    """Return name, document and epoch of every topic in order of creation."""
    found = connection.execute("SELECT name, document, epoch FROM topics ORDER BY id")
    return found.fetchall()


def put_topic(connection: sqlite3.Connection, record: TopicRecord) -> None:
    """Create a topic or replace its document; a new epoch deletes the old one's data."""
    document = encode_definition(record.document)
    stored = find(connection, record.name)
    if stored is not None and stored.epoch == record.epoch:
        connection.execute("UPDATE topics SET document = ? WHERE id = ?", (document, stored.id))
        return
    if stored is not None:
        delete_topic(connection, stored)  # a new epoch gets a new row id, and shares nothing
    connection.execute(
        "INSERT INTO topics (name, epoch, document) VALUES (?, ?, ?)",
        (record.name, record.epoch, document),
    )


def delete_topic(connection: sqlite3.Connection, topic: StoredTopic) -> None:
    """Delete a topic with all its rows."""
    for table in TABLES_OF_TOPIC:
        # A table cannot be a parameter; the names are those of this program.
        connection.execute(f"DELETE FROM {table} WHERE topic = ?", (topic.id,))
    connection.execute("DELETE FROM topics WHERE id = ?", (topic.id,))


def append(
    connection: sqlite3.Connection, topic: StoredTopic, publication: Publication
) -> Appended:
    """Append a request's items to the journal as one row."""
    # Offsets come from memory: one writer thread has them all, and a rollback forgets them.
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


def checkpoint(connection: sqlite3.Connection, topic: StoredTopic, changed: Checkpoint) -> None:
    """Write changed records, and delete journal rows and tombstones no longer needed.

    Records are written in key order, so that each page of the file is written once.
    """
    by_key = sorted(changed.changes, key=lambda frame: frame.key)
    # One statement for all rows: SQLite compiles it once.
    connection.executemany(_PUT_RECORD, _rows(topic.id, by_key))
    connection.execute(
        "DELETE FROM records WHERE topic = ? AND reason IS NOT NULL AND position <= ?",
        (topic.id, changed.horizon),
    )
    connection.execute(
        "UPDATE topics SET through = ?, horizon = ?, exempt_through = ? WHERE id = ?",
        (changed.through, changed.horizon, changed.exempt_through, topic.id),
    )
    # A row goes only once the records cover it and no replay may ask for it.
    connection.execute(
        "DELETE FROM journal WHERE topic = ? AND last <= ?",
        (topic.id, min(changed.through, changed.journal_through)),
    )


def load(connection: sqlite3.Connection, topic: StoredTopic) -> RestoredTopic:
    """Load a topic."""
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
        journal += to_frames(unpack(items), first, timestamp_ms)
    return RestoredTopic(
        head=topic.head,
        records=[_record(*row) for row in records],
        horizon=horizon,
        journal=journal,
        dropped_through=journal[0].offset - 1 if journal else topic.head,
        exempt_through=exempt_through,
    )


def _rows(topic: int, frames: Sequence[Frame]) -> Iterator[tuple[object, ...]]:
    for frame in frames:
        # Tombstones are kept as records are: a start must know what was removed, and until when.
        columns = (topic, frame.key, frame.offset, frame.timestamp_ms, frame.payload, frame.exempt)
        if isinstance(frame, Tombstone):
            yield *columns, frame.reason, frame.put_offset, frame.put_ms
        else:
            yield *columns, None, 0, 0


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
        reason=RemovalReason(reason), put_offset=put_offset, put_ms=put_ms,
    )  # fmt: skip
