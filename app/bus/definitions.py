"""Definitions on the bus: every topic's epoch and document, and the order they were written in."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Sequence

import msgspec

from app.bus.connection import BusConnection
from app.bus.scripts import DEFINE
from app.mergers import Mergers
from app.problems import Problem
from app.stores.shared import Change, DefinitionsMoved
from app.stores.store import TopicRecord
from app.topic_document import TopicDocument

CHANGES_AT_ONCE = 1_000

logger = logging.getLogger("tidegate.bus")


class Definitions:
    """What this gateway has seen of them: the `version`, in the `life` of a bus that lost nothing.

    A bus that was emptied has another life; one that was set back has a version behind ours.
    """

    def __init__(self, connection: BusConnection, mergers: Mergers) -> None:
        self.life = ""
        self.version = 0
        self._connection = connection
        self._mergers = mergers
        parts = ("epochs", "documents", "life", "changes")
        self._keys = [connection.shared_key(part) for part in parts]

    @property
    def stream(self) -> str:
        """The stream of changes; an entry's id is its version."""
        return self._keys[3]

    async def open(self) -> None:
        """Begin the life of a bus that is new, or take it as it is."""
        await self._connection.ask("HSETNX", self._keys[2], "id", secrets.token_hex(8))
        await self.read()

    async def read(self) -> list[TopicRecord]:
        """All definitions, as of one version, which counts as seen.

        Raises:
            RedisError, OSError: the bus is out.
        """
        self.life, self.version, records = await self._all()
        return records

    async def stands(self) -> bool:
        """Whether it is the bus that is known: the same life, and nothing of it was taken back."""
        life = await self._connection.ask("HGETALL", self._keys[2])
        return (
            life.get(b"id", b"").decode() == self.life
            and int(life.get(b"version", 0)) >= self.version
        )

    async def is_behind(self) -> bool:
        """Whether something was written that is not known here yet."""
        version = await self._connection.ask("HGET", self._keys[2], "version")
        return int(version or 0) > self.version

    async def changes(self, known: Iterable[str] = ()) -> Sequence[Change]:
        """What was written behind what counts as seen; all of it anew where that is too long ago.

        `known`: names of topics, of which those that are no more are told then.
        """
        changes: list[Change] = []
        entries = await self._connection.entries(self.stream, self.version, CHANGES_AT_ONCE)
        for expected, (version, fields) in enumerate(entries, self.version + 1):
            if version != expected:
                return await self._missed(known)
            name, epoch = fields[b"name"].decode(), fields[b"epoch"].decode()
            record = self._record(name, epoch, fields[b"document"]) if epoch else None
            changes.append(Change(version, name, record))
        return changes

    def seen(self, version: int) -> None:
        """What was written up to this version holds here."""
        self.version = max(self.version, version)

    def doubt(self) -> None:
        """What the bus has may not all hold here: it counts as another bus until it is read."""
        self.life = ""

    async def put(self, record: TopicRecord) -> None:
        """Write a definition, its epoch with it.

        Raises:
            DefinitionsMoved: something was written that is not known here yet.
        """
        document = msgspec.json.encode(record.document.document())
        await self._write(record.name, record.epoch, document)

    async def delete(self, name: str) -> None:
        """A topic is no more.

        Raises:
            DefinitionsMoved: something was written that is not known here yet.
        """
        await self._write(name, "", b"")

    async def _write(self, name: str, epoch: str, document: bytes) -> None:
        words = [self.life, self.version, name, epoch, document]
        version = await self._connection.run(DEFINE, self._keys, words)
        if not version:
            raise DefinitionsMoved
        self.seen(version)

    async def _missed(self, known: Iterable[str]) -> list[Change]:
        """Every definition there is, as the stream reaches no further back.

        They count as seen with the last of them.
        """
        _, version, records = await self._all()
        found = {**dict.fromkeys(known), **{record.name: record for record in records}}
        if not found:
            self.seen(version)
        return [
            Change(version if at == len(found) else self.version, name, record)
            for at, (name, record) in enumerate(found.items(), 1)
        ]

    async def _all(self) -> tuple[str, int, list[TopicRecord]]:
        """The life and the version of the bus, and the definitions as of that."""
        async with self._connection.writer.pipeline(transaction=True) as step:
            for name in self._keys[:3]:
                step.hgetall(name)
            epochs, documents, life = await step.execute()
        records = (
            self._record(name.decode(), epoch.decode(), documents.get(name, b"{}"))
            for name, epoch in epochs.items()
        )
        version = int(life.get(b"version", 0))
        known = [record for record in records if record is not None]
        return life.get(b"id", b"").decode(), version, known

    def _record(self, name: str, epoch: str, document: bytes) -> TopicRecord | None:
        """None of a topic that asks for what this gateway does not have, a merger for instance."""
        try:
            return TopicRecord(name, TopicDocument.parse(document, self._mergers), epoch)
        except Problem as problem:
            logger.error("%s is not served here: %s", name, problem.detail)
            return None
