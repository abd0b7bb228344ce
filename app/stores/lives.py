"""Whether a store's file may have gone back in time since it was last written.

A store that survives its process, and not its machine, may come back from a loss of power with
less than somebody was told of. So a life notes under which start of the machine it goes on, and
takes the note away at a good end. A note of another start of the machine means: perhaps offsets
are given a second time, so every topic begins another epoch.
"""

from __future__ import annotations

import logging
import secrets
import sqlite3
from pathlib import Path

from app.logs import event

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

RESTORED = "restored"
"""Stands for a start that no machine has had."""

_TABLE = "CREATE TABLE IF NOT EXISTS life (boot TEXT NOT NULL) STRICT"
_EPOCH_BYTES = 6

logger = logging.getLogger("tidegate.store")


def begin(connection: sqlite3.Connection, *, survives_power: bool) -> bool:
    """Note a life; whether every topic has another epoch now. All of it is safe on return.

    Where the machine does not say when it was started, any life that had no good end counts.
    """
    boot = boot_id()
    synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(_TABLE)
    noted = connection.execute("SELECT boot FROM life").fetchone()
    is_doubtful = noted is not None and (noted[0] != boot or not boot)
    if is_doubtful:
        for (topic,) in connection.execute("SELECT id FROM topics").fetchall():
            renew(connection, topic)
    connection.execute("DELETE FROM life")
    if not survives_power:
        connection.execute("INSERT INTO life VALUES (?)", (boot,))
    connection.execute("COMMIT")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    if is_doubtful:
        text = "the machine went down without a good end: every topic begins another epoch"
        logger.warning(text, extra=event("store-in-doubt"))
    return is_doubtful


def renew(connection: sqlite3.Connection, topic: int) -> str:
    """Have a topic go on in another epoch, with all that it has; the epoch."""
    epoch = secrets.token_hex(_EPOCH_BYTES)
    connection.execute("UPDATE topics SET epoch = ? WHERE id = ?", (epoch, topic))
    return epoch


def end(connection: sqlite3.Connection) -> None:
    """A good end; closing the last connection brings it, and all before it, to the disk."""
    connection.execute("DELETE FROM life")


def boot_id() -> str:
    """What is another one after each start of the machine; empty where nobody says."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


def doubt(connection: sqlite3.Connection) -> None:
    """Time has gone back for certain: with the next life every topic has another epoch."""
    connection.execute(_TABLE)
    connection.execute("DELETE FROM life")
    connection.execute("INSERT INTO life VALUES (?)", (RESTORED,))
