"""The SQLite store: a database in WAL mode, in a folder that one gateway locks.

A request is one journal row. Records are written only now and then, by `checkpoint`; a start loads
the last checkpoint and applies the journal after it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tidegate.app.definitions.mergers import NO_MERGERS, Mergers
from tidegate.app.names import OWN_PREFIX, REVOKED
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.stores import generation, sqlite_senders, sqlite_tables
from tidegate.app.stores.folder import StoreFolder
from tidegate.app.stores.group_commit import GroupCommit, Result, Work
from tidegate.app.stores.items import Item
from tidegate.app.stores.memory import NORMAL
from tidegate.app.stores.schema import open_database
from tidegate.app.stores.sqlite_tables import StoredTopic
from tidegate.app.stores.store import (
    Appended,
    Bounds,
    Checkpoint,
    HeadMoved,
    Publication,
    Staged,
    Stored,
    StoreFigures,
    StoreUnusable,
    TopicRecord,
    parse_stored,
)
from tidegate.conflation.frame import RestoredTopic


class SqliteStore:
    """One file and one writer thread; with `survives_power` each commit waits for the disk."""

    survives_process = True
    is_immediate = False
    checkpoints = True

    def __init__(
        self,
        folder: Path,
        *,
        survives_power: bool = False,
        mergers: Mergers = NO_MERGERS,
        limits: Bounds = NORMAL,
    ) -> None:
        self._path = folder
        self._survives_power = survives_power
        self._mergers = mergers
        self._limits = limits
        # Only the writer thread uses this cache; a rollback clears it.
        self._topics: dict[str, StoredTopic] = {}
        self._folder: StoreFolder | None = None
        self._connection: sqlite3.Connection | None = None
        self._commits: GroupCommit | None = None

    async def open(self) -> None:
        """Lock the folder, open or create the file, and check that it can be read.

        Raises:
            StoreUnusable: with one sentence for the operator; nothing was changed.
        """
        self._folder = StoreFolder.lock(self._path)
        try:
            self._connection = open_database(
                self._folder.database, survives_power=self._survives_power
            )
            self._folder.record_open_files()
            missing = self._folder.missing
            self._commits = GroupCommit(self._connection, self._topics.clear, missing)
            # Delete before reading: `records` must not report topics of the previous process.
            await self._run(_forget_own)
            await self.records()
        except Refused as refusal:
            await self.aclose()
            raise StoreUnusable(refusal.detail) from None
        except StoreUnusable:
            await self.aclose()
            raise

    def figures(self) -> StoreFigures:
        """Return the commits, the queued writes, and the size of the files."""
        if self._commits is None or self._folder is None:
            return StoreFigures(0)
        return StoreFigures(self._commits.commits, self._commits.queued, self._folder.size_bytes())

    async def records(self) -> Sequence[Stored]:
        """Return every topic."""
        return [
            parse_stored(name, text, epoch, self._mergers)
            for name, text, epoch in await self._run(sqlite_tables.documents)
        ]

    async def head(self, name: str) -> int:
        """Return the last offset of a topic."""
        return await self._run(lambda connection: self._topic(connection, name).head)

    async def load(self, name: str) -> RestoredTopic:
        """Load a topic."""
        return await self._run(
            lambda connection: sqlite_tables.load(connection, self._topic(connection, name))
        )

    async def put_topic(self, record: TopicRecord, mark: str = "") -> None:
        """Create a topic or replace its document; a new epoch starts at offset 1."""

        def work(connection: sqlite3.Connection) -> None:
            sqlite_tables.put_topic(connection, record)
            # A new epoch has a new row id, so the next use reads it.
            self._topics.pop(record.name, None)
            if mark:
                sqlite_senders.put_mark(connection, self._topic(connection, record.name).id, mark)

        await self._run(work)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and its producers' numbers."""

        def work(connection: sqlite3.Connection) -> None:
            sqlite_tables.delete_topic(connection, self._topic(connection, name))
            del self._topics[name]

        await self._run(work)

    async def settle(self) -> None:
        """Do nothing: each definition was committed before its writer went on."""

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Assign offsets and store items atomically with the state of their sender.

        Raises:
            HeadMoved: `expected_head` is not the topic's last offset, `epoch` not its epoch, or the
                topic not where `fill` begins.
            Refused: producer-fenced; idempotency-conflict; limit-reached; bus-unavailable.
        """

        def work(connection: sqlite3.Connection) -> Appended:
            stored = self._topic(connection, topic)
            earlier = sqlite_senders.earlier_result(connection, stored.id, publication)
            if earlier is not None:
                return earlier
            # After the duplicates: a repetition gets its answer whatever was written since.
            is_decided_here = publication.epoch in (None, stored.epoch)
            if publication.expected_head not in (None, stored.head) or not is_decided_here:
                raise HeadMoved
            fill = publication.fill
            if fill is not None and fill.since != sqlite_senders.mark_of(connection, stored.id):
                raise HeadMoved
            sqlite_senders.check_limits(connection, stored, publication, self._limits)
            appended = sqlite_tables.append(connection, stored, publication)
            sqlite_senders.record_sender(connection, stored, publication, appended)
            return appended

        return await self._run(work)

    async def filled(self, topic: str) -> str:
        """Return the mark up to which a derived topic is filled."""
        return await self._run(
            lambda connection: sqlite_senders.mark_of(connection, self._topic(connection, topic).id)
        )

    async def confirm_epoch(self, name: str, seen: int) -> str:
        """Return the topic's epoch, a new one if its head is below `seen`."""

        def work(connection: sqlite3.Connection) -> str:
            stored = self._topic(connection, name)
            if stored.head < seen:
                stored.epoch = generation.renew_epoch(connection, stored.id)
            return stored.epoch

        return await self._run(work)

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Store a stage for an hour, in place of an earlier one of that name.

        Raises:
            Refused: limit-reached; bus-unavailable.
        """
        await self._run(
            lambda connection: sqlite_senders.stage(
                connection,
                self._topic(connection, topic).id,
                name,
                items,
                now_ms,
                self._limits,
            )
        )

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> Staged | None:
        """Return what stages hold; None if a stage does not exist."""
        found = await self._run(
            lambda connection: sqlite_senders.staged(
                connection, self._topic(connection, topic).id, names, now_ms
            )
        )
        return None if found is None else Staged(found, dict.fromkeys(names, ""))

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Store a topic's records; ignore a topic that was deleted or restarted meanwhile."""

        def work(connection: sqlite3.Connection) -> None:
            # From the file, as a checkpoint is made in the background and the topic may have gone.
            stored = sqlite_tables.find(connection, topic)
            if stored is not None and stored.epoch == checkpoint.epoch:
                sqlite_tables.checkpoint(connection, stored, checkpoint)

        await self._run(work)

    async def fault(self) -> str | None:
        """Return why the last write failed, if writes still fail."""
        return "the store is closed" if self._commits is None else await self._commits.fault()

    async def aclose(self) -> None:
        """Finish the queued work and release the folder."""
        if self._commits is not None:
            await self._commits.aclose()
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):  # then the next start assigns new epochs
                generation.record_close(self._connection)
            self._connection.close()
        if self._folder is not None:
            self._folder.release()
        self._commits = self._connection = self._folder = None
        self._topics.clear()

    async def _run(self, work: Work[Result]) -> Result:
        if self._commits is None:
            raise Unavailable("The store is closed.")
        return await self._commits.run(work)

    def _topic(self, connection: sqlite3.Connection, name: str) -> StoredTopic:
        """Return a topic's row; read it again after a rollback emptied the cache."""
        found = self._topics.get(name) or sqlite_tables.find(connection, name)
        assert found is not None, "the catalog only asks for stored topics"
        self._topics[name] = found
        return found


def _forget_own(connection: sqlite3.Connection) -> None:
    """Delete the gateway's own topics, whose content describes the previous process.

    All but one: who was revoked stays so.
    """
    names = connection.execute("SELECT name FROM topics WHERE name GLOB ?", (f"{OWN_PREFIX}*",))
    for (name,) in names.fetchall():
        if name == REVOKED:
            continue
        topic = sqlite_tables.find(connection, name)
        assert topic is not None
        sqlite_tables.delete_topic(connection, topic)
