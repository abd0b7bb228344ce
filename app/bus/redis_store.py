"""The store of `--redis`: topics and messages on a Redis or Valkey that gateways share.

Numbers are given inside Redis, by one script for each append; what it wrote comes to every
gateway's engine through the follower, the writer's own included.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import msgspec
from redis.exceptions import RedisError, ResponseError

from app.bus import scripts
from app.bus.connection import BusConnection, reaching
from app.bus.definitions import Definitions
from app.bus.persistence import check_persistence, refusal_of, syncs_every_write
from app.bus.topic_log import TopicLog
from app.bus.written import written
from app.problems import Problem
from app.settings import Settings
from app.stores.bounds import (
    Bounds,
    no_room_for_producers,
    no_room_for_retry_keys,
    no_room_for_stages,
)
from app.stores.memory import STAGE_MS
from app.stores.packing import pack, unpack
from app.stores.shared import Change, DefinitionsMoved, EpochMoved
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
from conflation.errors import TopicUnknown

PROBE_MS = 10_000

_pack_stage = msgspec.msgpack.Encoder().encode
_unpack_stage = msgspec.msgpack.Decoder(tuple[int, bytes]).decode


class RedisStore:
    """The whole promise of a store, kept by scripts in Redis.

    `on_doubt` is called with the name of a topic whose epoch is not what it was known as; `seen`
    tells up to where a topic was seen here: what is behind that is another history. While it
    `is_out` nothing is tried: whoever publishes is not kept waiting. A topic is written to as what
    the catalog has taken it over as, which `note` says: no sooner.
    """

    survives_process = True
    checkpoints = False
    shared: Literal[True] = True

    def __init__(
        self,
        connection: BusConnection,
        settings: Settings,
        definitions: Definitions,
        *,
        survives_power: bool = False,
    ) -> None:
        self.on_doubt: Callable[[str], None] = lambda name: None
        self.seen: Callable[[str], int] = lambda name: 0
        self.is_out: Callable[[], bool] = lambda: False
        self.definitions = definitions
        self._connection = connection
        self._settings = settings
        self._bounds = Bounds.of(settings)
        self._survives_power = survives_power
        self._syncs = False
        self._logs: dict[str, TopicLog] = {}
        self._probe = connection.shared_key("probe")

    async def open(self) -> None:
        """Reach the bus, and see that it keeps what will be acknowledged.

        Raises:
            StoreUnusable: with one sentence for the operator.
        """
        try:
            await check_persistence(self._connection, survives_power=self._survives_power)
            self._syncs = await syncs_every_write(self._connection)
            await self.definitions.open()
        except (RedisError, OSError) as error:
            raise StoreUnusable(f"the bus does not answer: {error}") from None

    async def reopen(self) -> None:
        """Take a bus that has lost something as it is now.

        Raises:
            Problem: bus-unavailable.
        """
        with reaching():
            await self.definitions.open()

    async def records(self) -> Sequence[TopicRecord]:
        """Every topic there is; what follows is told by `changes`."""
        with reaching():
            records = await self.definitions.read()
        for record in records:
            if record.name not in self._logs:
                self.note(record.name, record)
        return records

    async def changes(self) -> Sequence[Change]:
        """Definitions that were written since; each is told again until it is taken over."""
        with reaching():
            return await self.definitions.changes(self._logs)

    def took_over(self, change: Change) -> None:
        """A change holds here."""
        self.definitions.seen(change.version)

    def note(self, name: str, record: TopicRecord | None) -> None:
        """From now on the topic is written to as this; None: it is no more."""
        if record is None:
            self._logs.pop(name, None)
        else:
            self._logs[name] = self._log(record)

    def log(self, name: str) -> TopicLog:
        """Where a topic is.

        Raises:
            TopicUnknown: another gateway has deleted it.
        """
        found = self._logs.get(name)
        if found is None:
            raise TopicUnknown("the topic was deleted meanwhile")
        return found

    def has(self, name: str) -> bool:
        """Whether no gateway has deleted the topic, as far as is known here."""
        return name in self._logs

    async def kept(self, name: str) -> Kept:
        """What is kept of a topic, all as of one offset."""
        return await self.kept_as(self.log(name).record)

    async def kept_as(self, record: TopicRecord) -> Kept:
        """The same by a definition that is still to be noted."""
        with reaching():
            return await self._log(record).kept()

    async def put_topic(self, record: TopicRecord) -> None:
        """Create a topic or replace its document; a new epoch begins at offset 1.

        Raises:
            DefinitionsMoved: another gateway has changed a topic since.
            HeadMoved: it would be another topic, and holds messages.
            Problem: bus-unavailable.
        """
        log, known = self._log(record), self._logs.get(record.name)
        with reaching():
            if known is not None and known.record.epoch == record.epoch:
                await self.definitions.put(record)
            elif known is not None and known.record.document.identity != record.document.identity:
                await self._succeed(log)
            else:
                await self._begin(log)
        self._logs[record.name] = log

    async def delete_topic(self, name: str) -> None:
        """Forget a topic with its messages and its producers' numbers.

        Raises:
            DefinitionsMoved: another gateway has changed a topic since.
            Problem: bus-unavailable.
        """
        log = self.log(name)
        with reaching():
            await self.definitions.delete(name)
            await self._run(scripts.DROP, log.keys, [log.record.epoch])
        del self._logs[name]

    async def append(self, topic: str, publication: Publication) -> Appended:
        """Number items and keep them, in one step with what is noted of their sender.

        On return the server has written them: its own death does not take them along.

        Raises:
            HeadMoved: `expected_head` is not the topic's last offset.
            EpochMoved: the topic is not what it is noted as.
            Problem: producer-fenced, idempotency-conflict, limit-reached, bus-unavailable.
        """
        log = self.log(topic)
        if self.is_out():
            raise bus_is_out()
        words = log.append_words(publication, syncs=self._syncs, seen=self.seen(topic))
        with reaching():
            answer = await self._run(scripts.APPEND, log.append_keys(publication), words)
        match answer:
            case [b"new" | b"again" as what, first, last, waits]:
                if waits:
                    await written(self._connection)
                return Appended(first, last, duplicate=what == b"again")
            case [b"moved"]:
                raise HeadMoved
            case [b"conflict"]:
                detail = "The Idempotency-Key was used for another request."
                raise Problem("idempotency-conflict", detail)
            case [b"full", b"retries"]:
                raise no_room_for_retry_keys()
            case [b"full", _]:
                raise no_room_for_producers()
            case [b"fenced"]:
                raise Problem("producer-fenced", "A newer run of this producer has committed.")
            case [b"superseded"]:
                raise Problem("producer-fenced", "Another gateway does this by now.")
            case _:
                self.on_doubt(topic)
                raise EpochMoved

    async def renew(self, name: str, seen: int) -> str:
        """The epoch that holds from now on; another one where continuity cannot be proved.

        `seen`: the offset up to which the topic was seen in the epoch that is known.
        """
        log = self.log(name)
        words = [log.record.epoch, new_epoch(), int(self._syncs), seen]
        with reaching():
            epoch: bytes = await self._run(scripts.RENEW, log.keys, words)
        return epoch.decode()

    async def put_epoch(self, record: TopicRecord) -> None:
        """Tell all gateways of a topic's other epoch; it is to be noted as it is taken over.

        Raises:
            DefinitionsMoved: another gateway may have done so.
            Problem: bus-unavailable.
        """
        with reaching():
            await self.definitions.put(record)

    async def doubtful(self, names: Iterable[str], seen: Callable[[str], int]) -> list[str]:
        """Topics of which the bus does not have what was seen, or not from this life of it."""
        logs = [self._logs[name] for name in names if name in self._logs]
        with reaching():
            run = b"" if self._syncs else (await self._run_id()).encode()
            async with self._connection.writer.pipeline(transaction=False) as step:
                for log in logs:
                    step.hmget(log.keys[0], ["epoch", "head", "run"])
                states = await step.execute()
        return [
            log.record.name
            for log, (epoch, head, begun) in zip(logs, states, strict=True)
            if (epoch or b"").decode() != log.record.epoch
            or int(head or 0) < seen(log.record.name)
            or begun != run
        ]

    async def _run_id(self) -> str:
        return str((await self._connection.ask("INFO", "server"))["run_id"])

    async def stage(self, topic: str, name: str, items: Sequence[Item], now_ms: int) -> None:
        """Keep items aside for an hour; those of an earlier stage of that name are forgotten.

        Raises:
            EpochMoved: the topic is not what it is noted as.
            Problem: limit-reached, bus-unavailable.
        """
        log, value = self.log(topic), _pack_stage((now_ms, pack(items)))
        bounds = [self._bounds.stages_max, self._bounds.staged_bytes_max]
        with reaching():
            keys = [log.keys[0], log.staged, log.aside(name)]
            words = [log.record.epoch, value, STAGE_MS, now_ms, *bounds]
            answer = await self._run(scripts.STAGE, keys, words)
        if answer == b"full":
            raise no_room_for_stages()
        if answer != b"kept":
            self.on_doubt(topic)
            raise EpochMoved

    async def staged(self, topic: str, names: Sequence[str], now_ms: int) -> list[Item] | None:
        """The items of stages, in the order of the names; None if one is not there (any more)."""
        places = [self.log(topic).aside(name) for name in names]
        with reaching():
            values = await self._connection.ask("MGET", *places) if places else []
        found: list[Item] = []
        for value in values:
            at_ms, items = (0, b"") if value is None else _unpack_stage(value)
            if at_ms + STAGE_MS <= now_ms:
                return None
            found += unpack(items)
        return found

    async def checkpoint(self, topic: str, checkpoint: Checkpoint) -> None:
        """Nothing is to do: records are written with each append."""

    async def fault(self) -> str | None:
        """Why the bus refuses writes, as one that means nothing finds out."""
        try:
            await self._connection.ask("SET", self._probe, "", "PX", PROBE_MS)
        except ResponseError as error:
            return f"the bus takes no writes: {refusal_of(error)}"
        except (RedisError, OSError):
            return "the bus does not answer"
        return None

    async def aclose(self) -> None:
        """Let go of all connections."""
        await self._connection.aclose()

    async def _begin(self, log: TopicLog) -> None:
        """A topic's first step is its first definition's: whoever sees it can append."""
        epoch = log.record.epoch
        found = await self._run(scripts.BEGIN, log.keys, [epoch, int(self._syncs), ""])
        try:
            await self.definitions.put(log.record)
        except BaseException:
            await self._run(scripts.DROP, log.keys, [epoch])
            raise
        await self._run(scripts.BEGIN, log.keys, [epoch, int(self._syncs), found])

    async def _succeed(self, log: TopicLog) -> None:
        """Another topic takes the place of one that holds nothing, which is taken into no more.

        Who dies in between, or is too late to tell of it, leaves an epoch that others take over
        with the definition that holds (`renew`).
        """
        if await self.definitions.is_behind():
            raise DefinitionsMoved
        if not await self._run(scripts.SUCCEED, log.keys, [log.record.epoch, int(self._syncs)]):
            raise HeadMoved
        await self.definitions.put(log.record)

    def _log(self, record: TopicRecord) -> TopicLog:
        history = record.document.definition(self._settings).history
        return TopicLog(self._connection, record, history, self._bounds)

    async def _run(self, script: str, keys: Sequence[str], words: Sequence[Any]) -> Any:
        return await self._connection.run(script, keys, words)


def bus_is_out() -> Problem:
    """What is told while nothing is tried."""
    return Problem("bus-unavailable", "The bus is out; try again.", headers={"Retry-After": "1"})


def new_epoch() -> str:
    """An epoch that nobody has used."""
    return secrets.token_hex(6)
