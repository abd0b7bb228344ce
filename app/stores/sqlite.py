"""The embedded store: SQLite in WAL mode, in a folder that is this gateway's alone.

A request is one row of the journal. The state of the world is not written with it but now and
then, by `checkpoint`: a start takes what was written then, and the journal behind it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from app.mergers import Mergers
from app.problems import Problem
from app.stores import lives, rows, senders
from app.stores.bounds import Bounds
from app.stores.figures import StoreFigures
from app.stores.folder import Folder
from app.stores.group_commit import Answer, GroupCommit, Work
from app.stores.memory import NORMAL
from app.stores.rows import StoredTopic
from app.stores.schema import open_database
from app.stores.store import (
    Appended,
    Checkpoint,
    HeadMoved,
    Item,
    Kept,
    Publication,
    StoreUnusable,
    TopicRecord,
)
from app.topic_document import NO_MERGERS, TopicDocument

OWN_TOPICS = "tidegate.*"


class SqliteStore:
    """One file, one writer thread. `survives_power`: each commit waits for the disk."""

    survives_process = True
    checkpoints = True

    def __init__(
        self,
        folder: Path,
        *,
        survives_power: bool = False,
        mergers: Mergers = NO_MERGERS,
        bounds: Bounds = NORMAL,
    ) -> None:
        self._path = folder
        self._survives_power = survives_power
        self._mergers = mergers
        self._bounds = bounds
        self._topics: dict[str, StoredTopic] = {}  # the writer thread's, as long as all is well
        self._folder: Folder | None = None
        self._connection: sqlite3.Connection | None = None
        self._commits: GroupCommit | None = None

    async def open(self) -> None:
        """Take the folder, open the file or make it, and see whether it can be read.

        Raises:
            StoreUnusable: with one sentence for the operator; nothing was changed.
        """
        self._folder = Folder.take(self._path)
        try:
            self._connection = open_database(
                self._folder.database, survives_power=self._survives_power
            )
            self._commits = GroupCommit(self._connection, self._topics.clear)
            await self._do(_forget_own)
            await self.records()
        except Problem as problem:
            await self.aclose()
            raise StoreUnusable(problem.detail) from None
        except StoreUnusable:
            await self.aclose()
            raise

    def figures(self) -> StoreFigures:
        """Transactions, what waits for one, and the size of the file with its log."""
        if self._commits is None or self._folder is None:
            return StoreFigures(0)
        return StoreFigures(self._commits.commits, self._commits.queued, self._folder.size_bytes())

    async def records(self) -> Sequence[TopicRecord]:
        """Every topic there is."""
        return [
            TopicRecord(name, self._document(name, text), epoch)
            for name, text, epoch in await self._do(rows.documents)
        ]

    async def kept(self, name: str) -> Kept:
        """What is kept of a topic."""
        return await self._do(
            lambda connection: rows.kept(connection, self._topic(connection, name))
        )

    async def put_topic(self, record: TopicRecord) -> None:
        """Create a topic or replace its document; a new epoch begins at offset 1."""

        def work(connection: sqlite3.Connection) -> None:
            rows.put_topic(connection, record)
            self._topics.pop(record.name, None)

        await self._do(work)

    async def delete_topic(self, name: str) -> None:
        """Forget a topic with its messages and its producers' numbers."""

        def work(connection: sqlite3.Connection) -> None:
            rows.delete_topic(connection, self._topic(connection, name))
            del self._topics[name]

        await self._do(work)

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Number items and keep them, in one step with what is noted of their sender.

        Raises:
            HeadMoved: `expected_head` is not the topic's last offset.
            Problem: producer-fenced; idempotency-conflict; limit-reached; bus-unavailable.
        """

        def work(connection: sqlite3.Connection) -> Appended:
            there = self._topic(connection, topic)
            known = senders.known(connection, there.id, publication)
            if known is not None:
                return known
            if publication.expected_head not in (None, there.head):
                raise HeadMoved
            senders.check_room(connection, there, publication, self._bounds)
            appended = rows.append(connection, there, publication)
            senders.note(connection, there, publication, appended)
            return appended

        return await self._do(work)

    async def renew(self, name: str, seen: int) -> str:
        """The epoch in which a topic goes on that was seen up to an offset."""

        def work(connection: sqlite3.Connection) -> str:
            there = self._topic(connection, name)
            if there.head < seen:
                there.epoch = lives.renew(connection, there.id)
            return there.epoch

        return await self._do(work)

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Keep items aside for an hour; those of an earlier stage of that name are forgotten.

        Raises:
            Problem: limit-reached; bus-unavailable.
        """
        await self._do(
            lambda connection: senders.stage(
                connection,
                self._topic(connection, topic).id,
                name,
                items,
                now_ms,
                self._bounds,
            )
        )

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> list[Item] | None:
        """The items of stages, in the order of the names; None if one is not there (any more)."""
        return await self._do(
            lambda connection: senders.staged(
                connection, self._topic(connection, topic).id, names, now_ms
            )
        )

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Keep a topic's records; nothing happens to one that is gone, or another one by now."""

        def work(connection: sqlite3.Connection) -> None:
            there = rows.find(connection, topic)
            if there is not None and there.epoch == checkpoint.epoch:
                rows.checkpoint(connection, there, checkpoint)

        await self._do(work)

    async def fault(self) -> str | None:
        """What the last write has failed of, if that is so still."""
        return "the store is closed" if self._commits is None else await self._commits.fault()

    async def aclose(self) -> None:
        """Finish what was asked, and let the folder go."""
        if self._commits is not None:
            await self._commits.aclose()
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):  # then the next start is in doubt
                lives.end(self._connection)
            self._connection.close()
        if self._folder is not None:
            self._folder.release()
        self._commits = self._connection = self._folder = None
        self._topics.clear()

    async def _do(self, work: Work[Answer]) -> Answer:
        if self._commits is None:
            raise Problem("bus-unavailable", "The store is closed.")
        return await self._commits.do(work)

    def _topic(self, connection: sqlite3.Connection, name: str) -> StoredTopic:
        """A topic's place; what was taken back is asked for anew."""
        found = self._topics.get(name) or rows.find(connection, name)
        assert found is not None, "the catalog knows which topics there are"
        self._topics[name] = found
        return found

    def _document(self, name: str, text: bytes) -> TopicDocument:
        """A topic's definition.

        Raises:
            StoreUnusable: settings do not name a merger that it needs, or the like.
        """
        try:
            return TopicDocument.parse(text, self._mergers)
        except Problem as problem:
            detail = f"The definition of topic {name} cannot be used: {problem.detail}"
            raise StoreUnusable(detail) from None


def _forget_own(connection: sqlite3.Connection) -> None:
    """The gateway's own topics tell of one process; with another they begin anew."""
    names = connection.execute("SELECT name FROM topics WHERE name GLOB ?", (OWN_TOPICS,))
    for (name,) in names.fetchall():
        topic = rows.find(connection, name)
        assert topic is not None
        rows.delete_topic(connection, topic)
