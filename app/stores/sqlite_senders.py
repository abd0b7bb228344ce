"""The tables of the SQLite store that hold producers, Idempotency-Keys, stages and marks."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from tidegate.app.stores.items import Item, pack, unpack
from tidegate.app.stores.memory import RETRY_MS, STAGE_MS
from tidegate.app.stores.sqlite_tables import StoredTopic
from tidegate.app.stores.store import (
    Appended,
    Bounds,
    Producer,
    Publication,
    Retry,
    key_used_otherwise,
    run_superseded,
)


def earlier_result(
    connection: sqlite3.Connection, topic: int, publication: Publication
) -> Appended | None:
    """Return the result of a request already handled, or None for a new one.

    For a new request nothing is written.

    Raises:
        Refused: producer-fenced, idempotency-conflict; nothing was written.
    """
    if publication.retry is not None:
        appended = _earlier_retry(connection, topic, publication.retry, publication.timestamp_ms)
        if appended is not None:
            return appended
    producer = publication.producer
    highest = None if producer is None else _known(connection, topic, producer)
    if highest is None:
        return None
    return Appended(0, 0, duplicate=True, highest=highest)


def mark_of(connection: sqlite3.Connection, topic: int) -> str:
    """Return the mark up to which a derived topic is filled; "" for one without."""
    row = connection.execute("SELECT mark FROM marks WHERE topic = ?", (topic,)).fetchone()
    return "" if row is None else str(row[0])


def put_mark(connection: sqlite3.Connection, topic: int, mark: str) -> None:
    """Record how far a derived topic is filled."""
    connection.execute("INSERT OR REPLACE INTO marks (topic, mark) VALUES (?, ?)", (topic, mark))


def check_limits(
    connection: sqlite3.Connection, stored: StoredTopic, publication: Publication, limits: Bounds
) -> None:
    """Check that the sender's limits allow one more request; nothing is written.

    Counting rows is slow, so it happens at the first request and when a limit may be reached; in
    between a cached upper bound is enough.

    Raises:
        Refused: limit-reached.
    """
    if publication.retry is not None:
        if stored.retries is None or stored.retries >= limits.retry_keys_max:
            since_ms = publication.timestamp_ms - RETRY_MS
            stored.retries = _count(connection, _RETRIES, stored.id, since_ms)
        limits.check_retry_keys(stored.retries + 1)
    if publication.producer is not None:
        if stored.producers is None or stored.producers >= limits.producers_max:
            name = publication.producer.name
            stored.producers = _count(connection, _OTHER_PRODUCERS, stored.id, name)
        limits.check_producers(stored.producers + 1)


_RETRIES = "SELECT count(*) FROM retries WHERE topic = ? AND at_ms > ?"
_OTHER_PRODUCERS = "SELECT count(*) FROM producers WHERE topic = ? AND name != ?"


def _count(connection: sqlite3.Connection, query: str, *arguments: object) -> int:
    return int(connection.execute(query, arguments).fetchone()[0])


def record_sender(
    connection: sqlite3.Connection,
    stored: StoredTopic,
    publication: Publication,
    appended: Appended,
) -> None:
    """Record a new request of its sender, and delete its stages."""
    topic = stored.id
    if publication.fill is not None:
        put_mark(connection, topic, publication.fill.mark)
    if publication.producer is not None:
        _put_producer(connection, topic, publication.producer)
        stored.producers = (stored.producers or 0) + 1
    if publication.retry is not None:
        stored.retries = (stored.retries or 0) + 1
        retry, now_ms = publication.retry, publication.timestamp_ms
        # Expired keys go when a new one comes: no task has to look for them.
        connection.execute("DELETE FROM retries WHERE at_ms <= ?", (now_ms - RETRY_MS,))
        connection.execute(
            "INSERT INTO retries (topic, name, digest, at_ms, first, last) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (topic, retry.name, retry.digest, now_ms, appended.first, appended.last),
        )
    # In the transaction of the write: a stage is published once, or stays.
    for name in publication.stages:
        connection.execute("DELETE FROM stages WHERE topic = ? AND name = ?", (topic, name))


def stage(
    connection: sqlite3.Connection,
    topic: int,
    name: str,
    items: Sequence[Item],
    now_ms: int,
    limits: Bounds,
) -> None:
    """Store a stage, and delete expired ones.

    Raises:
        Refused: limit-reached; nothing was written.
    """
    # Packed before the limits are checked: they count what is stored.
    packed = pack(items)
    # The bytes are those of all topics, of which anybody may have as many as there may be.
    count, size_bytes = connection.execute(
        "SELECT count(*) FILTER (WHERE topic = :topic), coalesce(sum(length(items)), 0) "
        "FROM stages WHERE at_ms > :since_ms AND (topic != :topic OR name != :name)",
        {"topic": topic, "since_ms": now_ms - STAGE_MS, "name": name},
    ).fetchone()
    limits.check_stages(count + 1, size_bytes + len(packed))
    connection.execute("DELETE FROM stages WHERE at_ms <= ?", (now_ms - STAGE_MS,))
    connection.execute(
        "INSERT OR REPLACE INTO stages (topic, name, at_ms, items) VALUES (?, ?, ?, ?)",
        (topic, name, now_ms, packed),
    )


def staged(
    connection: sqlite3.Connection, topic: int, names: Sequence[str], now_ms: int
) -> list[Item] | None:
    """Return the items of stages in the order of `names`; None if a stage does not exist."""
    found: list[Item] = []
    for name in names:
        row = connection.execute(
            "SELECT items FROM stages WHERE topic = ? AND name = ? AND at_ms > ?",
            (topic, name, now_ms - STAGE_MS),
        ).fetchone()
        if row is None:
            return None
        found += unpack(row[0])
    return found


def _earlier_retry(
    connection: sqlite3.Connection, topic: int, retry: Retry, now_ms: int
) -> Appended | None:
    row = connection.execute(
        "SELECT digest, first, last FROM retries WHERE topic = ? AND name = ? AND at_ms > ?",
        (topic, retry.name, now_ms - RETRY_MS),
    ).fetchone()
    if row is None:
        return None
    digest, first, last = row
    if digest != retry.digest:
        raise key_used_otherwise()
    return Appended(first, last, duplicate=True)


def _known(connection: sqlite3.Connection, topic: int, producer: Producer) -> int | None:
    """Return the highest sequence if this one is not above it; record a newer run then."""
    row = connection.execute(
        "SELECT run, sequence FROM producers WHERE topic = ? AND name = ?", (topic, producer.name)
    ).fetchone()
    if row is None:
        return None
    run, highest = row
    if producer.run < run:
        raise run_superseded()
    if producer.sequence > highest:
        return None
    # Noted for a duplicate as well: from now on requests of older runs are fenced.
    _put_producer(connection, topic, Producer(producer.name, highest, producer.run))
    return int(highest)


def _put_producer(connection: sqlite3.Connection, topic: int, producer: Producer) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO producers (topic, name, run, sequence) VALUES (?, ?, ?, ?)",
        (topic, producer.name, producer.run, producer.sequence),
    )
