"""The store of `--redis`: topics and messages in a Redis or Valkey that gateways share.

A Lua script numbers and stores each append atomically. Every gateway, the writer included, receives
the messages through its log reader.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from redis import exceptions as redis_errors
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from tidegate.app.cluster import scripts
from tidegate.app.cluster.connection import BusConnection, translate_errors
from tidegate.app.cluster.definitions import Definitions, definition_text, digest_of
from tidegate.app.cluster.persistence import (
    PROBE_MS,
    Durability,
    check_server,
    persistence_fault,
    probe_key,
    read_settings,
    rejection_reason,
    replicas_missing,
)
from tidegate.app.cluster.topic_log import TopicLog, read_head
from tidegate.app.definitions.graph import becomes_derived
from tidegate.app.definitions.topic import Unusable
from tidegate.app.refusals import Refused, Unavailable
from tidegate.app.settings.settings import Settings
from tidegate.app.stores.items import Item, pack, unpack
from tidegate.app.stores.memory import STAGE_MS
from tidegate.app.stores.store import (
    Appended,
    Bounds,
    Change,
    Checkpoint,
    DefinitionsMoved,
    HeadMoved,
    PastTime,
    Publication,
    Staged,
    StoreAway,
    Stored,
    StoreUnusable,
    TopicMoved,
    TopicRecord,
    TopicRedefined,
    key_used_otherwise,
    new_epoch,
    no_room_for_producers,
    no_room_for_retry_keys,
    no_room_for_stages,
    run_superseded,
)
from tidegate.app.timers import Backoff
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import RestoredTopic
from tidegate.keys.text.bookmark import Bookmark

OPEN_S_MAX = 4.0
"""How long a start waits for a Redis that is away; what supervises the gateway starts it again."""
OPEN_PAUSE_S, OPEN_PAUSE_S_MAX = 0.1, 1.0
PASSING = (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError)

logger = logging.getLogger("tidegate.bus")

_pack_stage = msgspec.msgpack.Encoder().encode
_unpack_stage = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


def _reason(error: Exception) -> str:
    """Return why a server could not be reached; redis-py adds its address and a number."""
    cause = error.__cause__ or error.__context__
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {getattr(cause, 'verify_message', None) or cause.reason or cause}"
    if isinstance(cause, OSError) and cause.errno:
        # asyncio writes the address in place of the reason; names not found have negative numbers.
        return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
    return str(error)


def _may_pass(error: Exception) -> bool:
    """Return True if waiting may help: a wrong password or certificate stays wrong."""
    cause = error.__cause__ or error.__context__
    is_final = isinstance(error, AuthenticationError) or isinstance(cause, ssl.SSLError)
    return isinstance(error, PASSING) and not is_final


class RedisStore:
    """The store protocol on Redis, implemented by Lua scripts.

    A writer of a definition must have seen all earlier ones; otherwise `put_topic` and
    `delete_topic` raise `DefinitionsMoved`. All appends, of any gateway, come back in order.
    `append` raises `TopicMoved` after a topic has restarted.

    `on_suspect` is called with the name of a topic whose epoch differs from the known one.
    `head_seen` returns the highest offset seen here; a lower head in Redis means another history.
    While `is_unavailable` returns true, appends fail at once instead of making publishers wait. A
    topic is written only with the record passed to `set_record`, which the catalog has applied.
    """

    survives_process = True
    is_immediate = False
    checkpoints = False

    def __init__(
        self, connection: BusConnection, settings: Settings, definitions: Definitions
    ) -> None:
        self.on_suspect: Callable[[str], None] = lambda name: None
        self.head_seen: Callable[[str], int] = lambda name: 0
        self.is_unavailable: Callable[[], bool] = lambda: False
        self.definitions = definitions
        self._connection = connection
        self._settings = settings
        self._limits = Bounds.of(settings)
        self._survives_power = settings.durability == "power"
        self._replicas = settings.redis_replicas
        self._durability = Durability(
            connection, settings.redis_replicas, survives_power=self._survives_power
        )
        self._settings_fault = ""
        self._replicas_fault = ""
        self._records: dict[str, Stored] = {}
        self._logs: dict[str, TopicLog] = {}

    async def open(self) -> None:
        """Connect, and check that Redis keeps what the gateway will acknowledge.

        A Redis that is away for a moment, or still reads its file, is waited for.

        Raises:
            StoreAway: it does not answer; one sentence for the operator, as all of these.
            StoreUnusable: it refuses the gateway, or does not keep what it should.
        """
        loop, backoff = asyncio.get_running_loop(), Backoff(OPEN_PAUSE_S, OPEN_PAUSE_S_MAX)
        until_s = loop.time() + OPEN_S_MAX
        while True:
            try:
                await self._open()
                return
            except (RedisError, OSError) as error:
                reason, place = _reason(error), self._connection.place
                if not _may_pass(error):
                    raise StoreUnusable(f"Redis at {place} refuses the gateway: {reason}") from None
                if loop.time() >= until_s:
                    raise StoreAway(f"Redis at {place} does not answer: {reason}") from None
                logger.log(
                    backoff.level, "Redis at %s does not answer; tried again: %s", place, reason
                )
            await backoff.pause()

    async def _open(self) -> None:
        await check_server(
            self._connection, syncs_replicas=self._survives_power and self._replicas > 0
        )
        await self._connection.read_clock()
        await self.check_settings()
        if self._settings_fault:
            raise StoreUnusable(self._settings_fault)
        await self.definitions.open()

    async def check_settings(self) -> None:
        """Read again what Redis promises: an operator may change its settings while it runs.

        While it promises less than the gateway answers for, appends fail and `fault` tells why.

        Raises:
            RedisError, OSError: Redis does not answer.
        """
        settings = await read_settings(self._connection)
        self._settings_fault = persistence_fault(settings, survives_power=self._survives_power)
        if self._settings_fault:
            self._durability.forget()
        if self._replicas:
            self._replicas_fault = await replicas_missing(self._connection, self._replicas)
            self._durability.ask_again()

    async def reopen(self) -> None:
        """Adopt the current state of a Redis that has lost data.

        Raises:
            Refused: bus-unavailable.
        """
        with translate_errors():
            await self.definitions.open()

    async def records(self) -> Sequence[Stored]:
        """Return every topic; `changes` reports what follows."""
        with translate_errors():
            found = await self.definitions.read()
        for stored in found:
            # A topic that is known keeps its record until the catalog has applied the new one.
            if stored.name not in self._records:
                self.set_record(stored.name, stored)
        return found

    async def changes(self) -> Sequence[Change]:
        """Return definitions written since; each is repeated until `mark_applied` confirms it."""
        with translate_errors():
            return await self.definitions.changes(self._records)

    def mark_applied(self, change: Change) -> None:
        """Confirm that the gateway has applied a change."""
        self.definitions.mark_seen(change.version)

    def set_record(self, name: str, stored: Stored | None) -> None:
        """Set the record that later writes to a topic use; None if the topic was deleted."""
        self._records.pop(name, None)
        self._logs.pop(name, None)
        if isinstance(stored, TopicRecord):
            self._logs[name] = self._log(stored)
        if stored is not None:
            self._records[name] = stored

    def names(self) -> list[str]:
        """Return the names of the topics that have a record."""
        return list(self._records)

    def log(self, name: str) -> TopicLog:
        """Return the log of a usable topic.

        Raises:
            TopicUnknown: another gateway has deleted the topic.
        """
        found = self._logs.get(name)
        if found is None:
            raise TopicUnknown("the topic was deleted")
        return found

    def has(self, name: str) -> bool:
        """Return whether the topic is usable and not known to be deleted."""
        return name in self._logs

    async def head(self, name: str) -> int:
        """Return the last offset of a topic, also of an unusable one."""
        with translate_errors():
            return await read_head(self._connection, name)

    async def shared_head(self, name: str, past: PastTime | None = None) -> int:
        """Return the last offset of a topic in its current epoch.

        Args:
            name: of the topic.
            past: a time; if it is past, messages that are stored from now on are later.

        Raises:
            TopicUnknown: the topic was deleted.
            TopicMoved: the topic has restarted in another epoch.
            Refused: bus-unavailable.
        """
        log = self.log(name)
        if self.is_unavailable():
            raise Unavailable
        with translate_errors():
            arguments = [] if past is None else [past.time_ms, past.now_ms]
            epoch, head = await self._run(scripts.HEAD, log.keys[:1], arguments)
        if epoch.decode() != log.record.epoch:
            self.on_suspect(name)
            raise TopicMoved
        return int(head)

    async def settle_epochs(self) -> None:
        """Bring each topic into an epoch of the server's present life, before any is loaded.

        After a failover the definitions may name epochs of the old primary, or one that a gateway
        began and could not announce.

        Raises:
            StoreAway: others change definitions all the time, or the server changes.
            Refused: bus-unavailable.
        """
        loop, fewest = asyncio.get_running_loop(), -1
        until_s = loop.time() + OPEN_S_MAX
        while True:
            with translate_errors():
                suspects = await self._unsettled()
                if not suspects:
                    return
                # While there are fewer each time, it goes on: others may settle them, too.
                if fewest == -1 or len(suspects) < fewest:
                    fewest, until_s = len(suspects), loop.time() + OPEN_S_MAX
                if loop.time() >= until_s:
                    place = self._connection.place
                    raise StoreAway(f"Redis at {place} has {fewest} topics of another server")
                for log in suspects:
                    try:
                        await self._settle_epoch(log)
                    except DefinitionsMoved:
                        break  # read them again
            await asyncio.sleep(OPEN_PAUSE_S)

    async def _unsettled(self) -> list[TopicLog]:
        """Return the topics whose definitions have no epoch of the server's present life."""
        stored = await self.definitions.open()
        logs = [self._log(record) for record in stored if isinstance(record, TopicRecord)]
        return await self._suspects(logs, lambda name: 0)

    async def _settle_epoch(self, log: TopicLog) -> None:
        epoch = await self._confirm_epoch(log, 0)
        if epoch != log.record.epoch:
            await self.definitions.put(replace(log.record, epoch=epoch))

    async def load(self, name: str) -> RestoredTopic:
        """Load what Redis keeps of a topic, consistent at one offset.

        Raises:
            TopicRedefined: another gateway has changed or deleted the topic since.
            TopicMoved: the server has changed meanwhile, or others trim what is not read yet.
            Refused: bus-unavailable.
        """
        record = self.log(name).record
        try:
            restored = await self.load_current(record)
            if restored is not None:
                return restored
            with translate_errors():
                stored = await self.definitions.read_one(name)
            if stored is not None and stored.epoch == record.epoch:
                raise TopicMoved
        except Refused:
            # The definition may count as seen, and is not applied: all are read again.
            self.definitions.invalidate()
            raise
        self.set_record(name, stored)
        raise TopicRedefined(stored)

    async def load_current(
        self, record: TopicRecord, seen: Bookmark | None = None
    ) -> RestoredTopic | None:
        """Load a topic from a server that has it in the epoch of a record.

        Return None if it has not, or others trim the topic before it is read.

        All is read from one server, in one of its lives: what another one has, such as an old
        primary, must not be taken for that epoch.

        Args:
            record: with the epoch.
            seen: where the gateway is; if the epoch continues that, there is nothing more to load.
        """
        with translate_errors():
            async with self._connection.pinned() as server:
                log = self._log(record, server)
                if not await log.is_current():
                    return None
                former = await log.former()
                restored: RestoredTopic | None = RestoredTopic(former=former)
                if seen is None or seen.offset > former.get(seen.epoch, -1):
                    restored = await log.load()
                if log.stream in server.foreign:
                    self.on_suspect(record.name)
                return restored if await log.is_current() else None

    async def put_topic(self, record: Stored, mark: str = "") -> None:
        """Create a topic or replace its document; a new epoch starts at offset 1.

        Args:
            record: the topic.
            mark: from which a topic that has just got its source is filled.

        Raises:
            DefinitionsMoved: another gateway has changed a topic since.
            HeadMoved: the identity would change, or a source fill it, and the topic holds messages.
            Refused: bus-unavailable.
        """
        self._check_promises()
        await self.restore_topic(record, mark)

    async def restore_topic(self, record: Stored, mark: str = "") -> None:
        """Write a definition as `put_topic` does, whatever Redis promises: nobody is answered.

        An unusable definition is written unchanged, to restore one that Redis has lost.

        Raises:
            DefinitionsMoved, HeadMoved, Refused: as `put_topic`.
        """
        known = self._records.get(record.name)
        with translate_errors():
            # The same life of the topic: its messages stay, and only the definition is written.
            if known is not None and known.epoch == record.epoch:
                is_empty = _is_filled_anew(known, record)
                await self.definitions.put(record, is_empty=is_empty, mark=mark)
            elif known is not None and known.identity != record.identity:
                await self.definitions.create(record, replaced=known.epoch, mark=mark)
            else:
                await self.definitions.create(record, mark=mark)
        self.set_record(record.name, record)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages and its producers' numbers.

        Raises:
            DefinitionsMoved: another gateway has changed a topic since.
            Refused: bus-unavailable.
        """
        if name not in self._records:
            raise TopicUnknown("the topic was deleted")
        self._check_promises()
        with translate_errors():
            await self.definitions.delete(name)
        self.set_record(name, None)

    async def settle(self) -> None:
        """Wait until the definitions written so far are kept as messages are.

        Raises:
            Refused: bus-unavailable; they are written, and may not be kept.
        """
        with translate_errors():
            life: bytes = await self._run(scripts.LIFE, [], [])
            if not await self.definitions.is_intact():
                raise Unavailable("The bus may have lost the change.")
        await self._durability.wait(life.decode())

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Assign offsets and store items atomically with the state of their sender.

        Raises:
            HeadMoved: records of the write have changed since `expected_head`, the topic is in
                another epoch than `epoch` or not where `fill` begins, or a stage is gone or another
                one.
            TopicMoved: the topic has restarted in another epoch, or has another definition.
            Refused: producer-fenced, idempotency-conflict, limit-reached, bus-unavailable.
        """
        log = self.log(topic)
        # Fail at once: a publisher would otherwise wait for the time limit of each attempt.
        if self.is_unavailable():
            raise Unavailable
        self._check_promises()
        if publication.epoch not in (None, log.record.epoch):
            raise HeadMoved  # what it was decided by may be lost
        arguments = log.append_arguments(publication, self.head_seen(topic))
        with translate_errors():
            reply = await self._run(scripts.APPEND, log.append_keys(publication), arguments)
        match reply:
            case [b"new" | b"again" | b"known" as outcome, first, last, life, unwritten]:
                await self._durability.wait(life.decode(), is_unwritten=bool(unwritten))
                if outcome == b"known":
                    return Appended(0, 0, duplicate=True, highest=int(last))
                return Appended(first, last, duplicate=outcome == b"again")
            case [b"moved", head]:
                raise HeadMoved(head)
            case [b"conflict"]:
                raise key_used_otherwise()
            case [b"full", b"retries"]:
                raise no_room_for_retry_keys()
            case [b"full", _]:
                raise no_room_for_producers()
            case [b"fenced"]:
                raise run_superseded()
            case [b"superseded"]:
                raise Refused("producer-fenced", "Another gateway is the leader now.")
            case [b"redefined"]:
                raise TopicMoved
            case _:  # of another epoch: nothing was written, and the topic is to be checked
                self.on_suspect(topic)
                raise TopicMoved

    async def filled(self, topic: str) -> str:
        """Return the mark up to which a derived topic is filled; "" for one without.

        Raises:
            TopicUnknown: the topic was deleted.
            Refused: bus-unavailable.
        """
        log = self.log(topic)
        if self.is_unavailable():
            raise Unavailable
        with translate_errors():
            found = await self._connection.execute("HGET", log.keys[0], "filled")
        return (found or b"").decode()

    async def confirm_epoch(self, name: str, seen: int) -> str:
        """Return the topic's valid epoch; a new one if continuity since `seen` cannot be proved.

        `seen`: the highest offset seen in the known epoch.
        """
        with translate_errors():
            return await self._confirm_epoch(self.log(name), seen)

    async def _confirm_epoch(self, log: TopicLog, seen: int) -> str:
        arguments = [log.record.epoch, new_epoch(), seen]
        epoch: bytes = await self._run(scripts.CONFIRM_EPOCH, log.keys, arguments)
        return epoch.decode()

    async def put_epoch(self, record: TopicRecord) -> None:
        """Announce a topic's new epoch to all gateways; the caller then calls `set_record`.

        Raises:
            DefinitionsMoved: another gateway may have announced one.
            Refused: bus-unavailable.
        """
        with translate_errors():
            await self.definitions.put(record)

    async def find_suspects(self, names: Iterable[str], seen: Callable[[str], int]) -> list[str]:
        """Return the topics whose head or epoch in Redis is not what this gateway has seen."""
        logs = [self._logs[name] for name in names if name in self._logs]
        with translate_errors():
            return [log.record.name for log in await self._suspects(logs, seen)]

    async def _suspects(
        self, logs: Sequence[TopicLog], seen: Callable[[str], int]
    ) -> list[TopicLog]:
        here = await self._run(scripts.LIFE, [], [])
        async with self._connection.writer.pipeline(transaction=False) as step:
            for log in logs:
                step.hmget(log.keys[0], ["epoch", "head", "life"])
            states = await step.execute()
        return [
            log
            for log, (epoch, head, life) in zip(logs, states, strict=True)
            if (epoch or b"").decode() != log.record.epoch
            or int(head or 0) < seen(log.record.name)
            or life != here
        ]

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Store a stage for an hour, in place of an earlier one of that name.

        Raises:
            TopicMoved: the topic has restarted in another epoch.
            Refused: limit-reached, bus-unavailable.
        """
        self._check_promises()
        log, value = self.log(topic), _pack_stage((now_ms, pack(items)))
        limits = [self._limits.stages_max, self._limits.staged_bytes_max]
        with translate_errors():
            keys = [log.keys[0], log.stages_key, log.stage_key(name)]
            arguments = [log.record.epoch, value, STAGE_MS, now_ms, *limits]
            reply = await self._run(scripts.STAGE, keys, arguments)
        if reply == b"full":
            raise no_room_for_stages()
        if reply != b"kept":
            self.on_suspect(topic)
            raise TopicMoved

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> Staged | None:
        """Return what stages hold; None if a stage does not exist."""
        keys = [self.log(topic).stage_key(name) for name in names]
        with translate_errors():
            values = await self._connection.execute("MGET", *keys) if keys else []
        found, stages = list[Item](), dict[str, str]()
        for name, value in zip(names, values, strict=True):
            if value is None:
                return None
            at_ms, items = _unpack_stage(value)
            # Redis expires it by its own clock, which may be slower than this one.
            if at_ms + STAGE_MS <= now_ms:
                return None
            found += unpack(items)
            stages[name] = f"{at_ms} {len(value)}"  # as the script of a stage notes it
        return Staged(found, stages)

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Do nothing: each append already writes the records."""

    async def fault(self) -> str | None:
        """Probe with a write that has no effect; return why Redis rejects it, or None."""
        try:
            # A write, as a replica or a full Redis still answers reads.
            await self._connection.execute("SET", probe_key(self._connection), "", "PX", PROBE_MS)
            # Another life of the server may begin without the loss of a connection.
            is_lost = bool(self.definitions.life) and not await self.definitions.is_intact()
        except ResponseError as error:
            return f"the bus takes no writes: {rejection_reason(error)}"
        except (RedisError, OSError):
            return "the bus does not answer"
        if is_lost:
            return "the bus may have lost data"
        return self._broken_promise() or None

    def figures(self) -> None:
        """Return None: Redis has metrics of its own."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connection.aclose()

    def _check_promises(self) -> None:
        """Refuse a write while Redis does not keep what the gateway would acknowledge."""
        if fault := self._broken_promise():
            raise Unavailable(f"The gateway writes nothing now: {fault}.")

    def _broken_promise(self) -> str:
        return self._settings_fault or self._replicas_fault or self._durability.fault

    def _log(self, record: TopicRecord, connection: BusConnection | None = None) -> TopicLog:
        settings = self._settings
        history = record.document.definition(
            settings.journal_messages_max, settings.journal_bytes_max
        ).history
        definition = digest_of(definition_text(record))
        connection = connection or self._connection
        return TopicLog(connection, record, definition, history, self._limits)

    async def _run(self, script: str, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        return await self._connection.run_script(script, keys, arguments)


def _is_filled_anew(before: Stored, after: Stored) -> bool:
    """Return whether a source is to fill a topic that had none: it would remove its messages."""
    if isinstance(before, Unusable) or isinstance(after, Unusable):
        return False
    return becomes_derived(before.document, after.document)
