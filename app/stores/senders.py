"""What the embedded store knows of senders: numbered producers, retries, stages."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from app.problems import Problem
from app.stores.bounds import Bounds
from app.stores.memory import RETRY_MS, STAGE_MS
from app.stores.packing import pack, unpack
from app.stores.rows import StoredTopic
from app.stores.store import Appended, Item, Producer, Publication, Retry


def known(connection: sqlite3.Connection, topic: int, publication: Publication) -> Appended | None:
    """What a request is answered that came before, or whose number is no news; None of a new one.

    Of a new one nothing is written.

    Raises:
        Problem: producer-fenced, idempotency-conflict; nothing was written.
    """
    if publication.retry is not None:
        appended = _again(connection, topic, publication.retry, publication.timestamp_ms)
        if appended is not None:
            return appended
    if publication.producer is None or _is_news(connection, topic, publication.producer):
        return None
    forget_stages(connection, topic, publication.stages)
    return Appended(0, 0, duplicate=True)


def check_room(
    connection: sqlite3.Connection, there: StoredTopic, publication: Publication, bounds: Bounds
) -> None:
    """Whether one more request of this sender may be known; nothing is written.

    Counting takes its time, so it is done when a bound may have been reached, and at first.

    Raises:
        Problem: limit-reached.
    """
    if publication.retry is not None:
        if there.retries is None or there.retries >= bounds.retry_keys_max:
            since_ms = publication.timestamp_ms - RETRY_MS
            there.retries = _count(connection, _RETRIES, there.id, since_ms)
        bounds.check_retry_keys(there.retries + 1)
    if publication.producer is not None:
        if there.producers is None or there.producers >= bounds.producers_max:
            name = publication.producer.name
            there.producers = _count(connection, _OTHER_PRODUCERS, there.id, name)
        bounds.check_producers(there.producers + 1)


_RETRIES = "SELECT count(*) FROM retries WHERE topic = ? AND at_ms > ?"
_OTHER_PRODUCERS = "SELECT count(*) FROM producers WHERE topic = ? AND name != ?"


def _count(connection: sqlite3.Connection, asked: str, *words: object) -> int:
    return int(connection.execute(asked, words).fetchone()[0])


def note(
    connection: sqlite3.Connection,
    there: StoredTopic,
    publication: Publication,
    appended: Appended,
) -> None:
    """Note what is to be known of a new request; its stages are forgotten."""
    topic = there.id
    if publication.producer is not None:
        _put_producer(connection, topic, publication.producer)
        there.producers = (there.producers or 0) + 1
    if publication.retry is not None:
        there.retries = (there.retries or 0) + 1
        retry, now_ms = publication.retry, publication.timestamp_ms
        connection.execute("DELETE FROM retries WHERE at_ms <= ?", (now_ms - RETRY_MS,))
        connection.execute(
            "INSERT INTO retries (topic, name, digest, at_ms, first, last) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (topic, retry.name, retry.digest, now_ms, appended.first, appended.last),
        )
    forget_stages(connection, topic, publication.stages)


def stage(
    connection: sqlite3.Connection,
    topic: int,
    name: str,
    items: Sequence[Item],
    now_ms: int,
    bounds: Bounds,
) -> None:
    """Keep items aside; what has waited for too long is forgotten.

    Raises:
        Problem: limit-reached; nothing was written.
    """
    packed = pack(items)
    count, size_bytes = connection.execute(
        "SELECT count(*), coalesce(sum(length(items)), 0) FROM stages "
        "WHERE topic = ? AND at_ms > ? AND name != ?",
        (topic, now_ms - STAGE_MS, name),
    ).fetchone()
    bounds.check_stages(count + 1, size_bytes + len(packed))
    connection.execute("DELETE FROM stages WHERE at_ms <= ?", (now_ms - STAGE_MS,))
    connection.execute(
        "INSERT OR REPLACE INTO stages (topic, name, at_ms, items) VALUES (?, ?, ?, ?)",
        (topic, name, now_ms, packed),
    )


def staged(
    connection: sqlite3.Connection, topic: int, names: Sequence[str], now_ms: int
) -> list[Item] | None:
    """Items of stages in the order of the names; None if one is not there (any more)."""
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


def forget_stages(connection: sqlite3.Connection, topic: int, names: Sequence[str]) -> None:
    """Their items have been published."""
    for name in names:
        connection.execute("DELETE FROM stages WHERE topic = ? AND name = ?", (topic, name))


def _again(
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
        detail = "The Idempotency-Key was used for another request."
        raise Problem("idempotency-conflict", detail)
    return Appended(first, last, duplicate=True)


def _is_news(connection: sqlite3.Connection, topic: int, producer: Producer) -> bool:
    """Whether its number is above its highest; the newest run is noted in any case."""
    row = connection.execute(
        "SELECT run, sequence FROM producers WHERE topic = ? AND name = ?", (topic, producer.name)
    ).fetchone()
    if row is None:
        return True
    run, highest = row
    if producer.run < run:
        raise Problem("producer-fenced", "A newer run of this producer has committed.")
    if producer.sequence > highest:
        return True
    _put_producer(connection, topic, Producer(producer.name, highest, producer.run))
    return False


def _put_producer(connection: sqlite3.Connection, topic: int, producer: Producer) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO producers (topic, name, run, sequence) VALUES (?, ?, ?, ?)",
        (topic, producer.name, producer.run, producer.sequence),
    )
