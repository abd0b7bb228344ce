"""Topic definitions in Redis: every topic's epoch and document, and the log of changes to them."""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence

from tidegate.app.cluster.connection import BusConnection
from tidegate.app.cluster.scripts import CLEAR_CHANGES, DEFINE, OPEN
from tidegate.app.cluster.topic_log import topic_keys
from tidegate.app.definitions.graph import sources_first
from tidegate.app.definitions.mergers import Mergers
from tidegate.app.names import TOPIC_NAME
from tidegate.app.stores.store import (
    Change,
    DefinitionHeld,
    DefinitionsMoved,
    HeadMoved,
    Stored,
    TopicRecord,
    encode_definition,
    parse_stored,
)

CHANGES_AT_ONCE = 1_000
HELD = -1
HAS_MESSAGES = -2
NAME_SHOWN_MAX = 80
_IS_NAME = re.compile(TOPIC_NAME.pattern.encode())
_IS_EPOCH = re.compile(rb"[A-Za-z0-9]{1,64}")

logger = logging.getLogger("tidegate.bus")


def definition_text(stored: Stored) -> bytes:
    """Return the text of a definition in Redis: unchanged where it was read from there.

    Another version may have written it, and may understand what is unusable here.
    """
    if isinstance(stored, TopicRecord) and not stored.text:
        return encode_definition(stored.document)
    return stored.text


def in_order_of_sources(definitions: Iterable[Stored]) -> list[Stored]:
    """Return definitions, each behind those of the topics that its topic is filled from."""
    stored = {each.name: each for each in definitions}
    served = {name: it.document for name, it in stored.items() if isinstance(it, TopicRecord)}
    return [stored[name] for name in sources_first(stored, served.get)]


def digest_of(text: bytes) -> str:
    """Return what tells a definition from the one that it replaced."""
    return hashlib.blake2b(text, digest_size=8).hexdigest()


class Definitions:
    """The definitions as this gateway has seen them: up to `version`, in one `life` of Redis.

    A Redis that was emptied, was started again, or took over from another one has another life:
    there the same version may be another change.
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
        """Return the key of the stream of changes, where an entry's id is its version."""
        return self._keys[3]

    async def open(self) -> list[Stored]:
        """Begin another life if Redis has begun one, and read all definitions of it."""
        await self._open()
        return await self.read()

    async def read(self) -> list[Stored]:
        """Read all definitions as of one version, sources first, and mark that version as seen.

        Raises:
            RedisError, OSError: Redis is unavailable.
        """
        self.life, self.version, records = await self._read_all()
        return records

    async def is_intact(self) -> bool:
        """Return whether Redis has the known life and no lower version than the one seen."""
        seen = self.life, self.version
        life, version = await self._open()  # while others write, and this gateway reads on
        return life == seen[0] and version >= seen[1]

    async def _open(self) -> tuple[str, int]:
        """Return the life and the version of the definitions in Redis."""
        # Of several gateways that find another life of the server, one decides the id.
        new_id = secrets.token_hex(8)
        life, version = await self._connection.run_script(OPEN, self._keys[2:3], [new_id])
        return life.decode(), int(version)

    async def is_behind(self) -> bool:
        """Return whether Redis has changes that this gateway has not seen."""
        version = await self._connection.execute("HGET", self._keys[2], "version")
        return int(version or 0) > self.version

    async def read_one(self, name: str) -> Stored | None:
        """Read the definition that Redis has of a topic now; None if it is not defined."""
        async with self._connection.writer.pipeline(transaction=True) as step:
            for key in self._keys[:2]:
                step.hget(key, name)
            epoch, text = await step.execute()
        return None if epoch is None else self._parse(name, epoch.decode(), text or b"")

    async def changes(self, known: Iterable[str] = ()) -> Sequence[Change]:
        """Read the changes after the seen version, or all definitions if the log is too short.

        Args:
            known: names of topics; a full read reports those that no longer exist as deleted.
        """
        changes: list[Change] = []
        entries = await self._connection.read_stream(self.stream, self.version, CHANGES_AT_ONCE)
        for expected, (version, fields) in enumerate(entries, self.version + 1):
            change = self._parse_change(version, fields)
            # A missing version was trimmed or deleted, so later changes alone are not enough.
            if change is None or version != expected:
                await self._clear_changes()
                return await self._all_as_changes(known)
            changes.append(change)
        if not changes and await self.is_behind():
            # Another gateway has deleted the log, with changes that were not read here yet.
            return await self._all_as_changes(known)
        return changes

    async def deleted(self, epochs: Mapping[str, str]) -> set[str]:
        """Return which of these topics, by name and epoch, were deleted and not lost.

        A topic was deleted if the log of changes says so after it speaks of that epoch. What it no
        longer speaks of is older than the log.
        """
        told: dict[str, list[str]] = {name: [] for name in epochs}
        after = 0
        while told:
            entries = await self._connection.read_stream(self.stream, after, CHANGES_AT_ONCE)
            for after, fields in entries:  # noqa: B007 - the last one is where to read on
                name = fields.get(b"name", b"").decode(errors="replace")
                if name in told:
                    told[name].append(fields.get(b"epoch", b"").decode(errors="replace"))
            if len(entries) < CHANGES_AT_ONCE:
                break
        return {
            name
            for name, found in told.items()
            if found and not found[-1] and (epochs[name] in found or not any(found))
        }

    def mark_seen(self, version: int) -> None:
        """Mark the changes up to a version as applied here."""
        self.version = max(self.version, version)

    def invalidate(self) -> None:
        """Treat Redis as an unknown one until all definitions are read again."""
        self.life = ""

    async def put(self, stored: Stored, *, is_empty: bool = False, mark: str = "") -> None:
        """Write the definition of a topic that goes on, its epoch with it.

        Args:
            stored: the definition.
            is_empty: only if the topic holds no messages.
            mark: from which a topic that has just got its source is filled.

        Raises:
            DefinitionsMoved: Redis has a change that this gateway has not seen.
            DefinitionHeld: a gateway that publishes by the one before is to see this one first.
            HeadMoved: it holds messages, or is in another epoch.
        """
        text, empty = definition_text(stored), stored.epoch if is_empty else ""
        await self._write(stored.name, stored.epoch, text, empty=empty, mark=mark)

    async def create(self, stored: Stored, *, replaced: str = "", mark: str = "") -> None:
        """Write the definition of a topic that begins, without messages.

        Args:
            stored: the definition, with a new epoch.
            replaced: the epoch of the topic whose place it takes.
            mark: from which it is filled.

        Raises:
            DefinitionsMoved: Redis has a change that this gateway has not seen.
            HeadMoved: the replaced topic holds messages, or is in another epoch.
        """
        text = definition_text(stored)
        await self._write(stored.name, stored.epoch, text, is_new=True, empty=replaced, mark=mark)

    async def delete(self, name: str) -> None:
        """Delete a topic: its definition, its messages and its producers' numbers.

        Raises:
            DefinitionsMoved: Redis has a change that this gateway has not seen.
        """
        await self._write(name, "", b"")

    async def _write(
        self,
        name: str,
        epoch: str,
        document: bytes,
        *,
        is_new: bool = False,
        empty: str = "",
        mark: str = "",
    ) -> None:
        keys = [*self._keys, *topic_keys(self._connection, name)]
        arguments = [self.life, self.version, name, epoch, document, digest_of(document)]
        arguments += [int(is_new), empty, mark]
        version = await self._connection.run_script(DEFINE, keys, arguments)
        if version == HELD:
            raise DefinitionHeld
        if version == HAS_MESSAGES:
            raise HeadMoved
        if not version:
            raise DefinitionsMoved
        self.mark_seen(version)

    def _parse_change(self, version: int, fields: dict[bytes, bytes]) -> Change | None:
        """Parse an entry of the change log; None for one that no gateway wrote."""
        try:
            name, epoch = fields[b"name"].decode(), fields[b"epoch"].decode()
            text = fields[b"document"]
        except (KeyError, UnicodeDecodeError):
            return None
        return Change(version, name, self._parse(name, epoch, text) if epoch else None)

    async def _clear_changes(self) -> None:
        """Delete log entries that no gateway wrote, which would otherwise fail every read."""
        if await self._connection.run_script(CLEAR_CHANGES, self._keys[2:], []):
            logger.warning("%s had entries that no gateway wrote, so it was deleted", self.stream)

    async def _all_as_changes(self, known: Iterable[str]) -> list[Change]:
        """Return every definition as a change, for a gateway whose seen version left the log.

        The last change carries the version, so that an interrupted run starts over.
        """
        _, version, records = await self._read_all()
        kept: dict[str, Stored | None] = {record.name: record for record in records}
        definitions = {**{name: None for name in known if name not in kept}, **kept}
        if not definitions:
            self.mark_seen(version)
        return [
            Change(version if at == len(definitions) else self.version, name, record)
            for at, (name, record) in enumerate(definitions.items(), 1)
        ]

    async def _read_all(self) -> tuple[str, int, list[Stored]]:
        """Read the life, the version, and the definitions of that version in one transaction.

        The definitions are in the order in which they can be applied: sources first.
        """
        async with self._connection.writer.pipeline(transaction=True) as step:
            for name in self._keys[:3]:
                step.hgetall(name)
            epochs, documents, life = await step.execute()
        definitions: list[Stored] = []
        self._connection.foreign.pop(self._keys[0], None)
        for name, epoch in epochs.items():
            if _IS_NAME.fullmatch(name) is None or _IS_EPOCH.fullmatch(epoch) is None:
                finding = f"the field {name[:NAME_SHOWN_MAX]!a} is not the epoch of a topic"
                self._connection.report_foreign(self._keys[0], finding)
                continue
            text = documents.get(name, b"")
            definitions.append(self._parse(name.decode(), epoch.decode(), text))
        version = int(life.get(b"version", 0))
        return life.get(b"id", b"").decode(), version, in_order_of_sources(definitions)

    def _parse(self, name: str, epoch: str, text: bytes) -> Stored:
        return parse_stored(name, text, epoch, self._mergers)
