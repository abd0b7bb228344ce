"""The store generation: detects a store's file that may have lost writes.

A store that survives its process but not a power loss may come back with less than it has
acknowledged, and would then assign offsets twice. So each opening records the boot id of the
machine, and an orderly close deletes the record. A record with another boot id means that data may
be lost, so every topic gets a new epoch.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from tidegate.app.logs import event
from tidegate.app.stores.store import new_epoch

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

RESTORED = "restored"
"""A boot id that no machine has."""

_TABLE = "CREATE TABLE IF NOT EXISTS life (boot TEXT NOT NULL) STRICT"

logger = logging.getLogger("tidegate.store")


def record_opening(connection: sqlite3.Connection, *, survives_power: bool) -> bool:
    """Record this opening durably, and return whether every topic got a new epoch.

    Without a boot id, every opening that was not closed in order counts as doubtful.
    """
    boot = boot_id()
    # The record must be on the disk before the first append, whatever the durability setting.
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TABLE)
    recorded_boot = connection.execute("SELECT boot FROM life").fetchone()
    # The same boot id means that only the process died, and the kernel kept its writes.
    is_doubtful = recorded_boot is not None and (recorded_boot[0] != boot or not boot)
    if is_doubtful:
        topics = connection.execute("SELECT id, epoch FROM topics").fetchall()
        _renew(connection, {epoch: (topic, new_epoch()) for topic, epoch in topics})
    connection.execute("DELETE FROM life")
    if not survives_power:
        connection.execute("INSERT INTO life VALUES (?)", (boot,))
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if is_doubtful:
        text = "the machine went down before the store was closed: every topic gets a new epoch"
        logger.warning(text, extra=event("store-in-doubt"))
    return is_doubtful


def renew_epoch(connection: sqlite3.Connection, topic: int) -> str:
    """Give a topic a new epoch with all its data, and return the epoch."""
    epoch = new_epoch()
    [before] = connection.execute("SELECT epoch FROM topics WHERE id = ?", (topic,)).fetchone()
    _renew(connection, {before: (topic, epoch)})
    return epoch


def _renew(connection: sqlite3.Connection, renewed: Mapping[str, tuple[int, str]]) -> None:
    """Give topics new epochs, by the epochs that they have."""
    connection.executemany(
        "UPDATE topics SET epoch = ? WHERE id = ?",
        [(epoch, topic) for topic, epoch in renewed.values()],
    )
    # The file has what topics were filled from, so their places in one are those in the other.
    for topic, mark in connection.execute("SELECT topic, mark FROM marks").fetchall():
        before, _, rest = mark.partition("-")
        if before in renewed:
            mark = f"{renewed[before][1]}-{rest}"
            connection.execute("UPDATE marks SET mark = ? WHERE topic = ?", (mark, topic))


def record_close(connection: sqlite3.Connection) -> None:
    """Record an orderly close; closing the last connection writes it to the disk."""
    connection.execute("DELETE FROM life")


def boot_id() -> str:
    """Return the id that changes with each boot; empty if the system has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def mark_restored(connection: sqlite3.Connection) -> None:
    """Mark the file as gone back in time: the next opening gives every topic a new epoch."""
    connection.execute(_TABLE)
    connection.execute("DELETE FROM life")
    connection.execute("INSERT INTO life VALUES (?)", (RESTORED,))
