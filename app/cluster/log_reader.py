"""The topic log reader: feeds what any gateway appended to a topic into the engine, in order.

Stream ids alone do not prove continuity, because Redis continues silently after a loss. So each
entry must follow the engine's last one in the same epoch; otherwise the topic restarts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum

from redis.exceptions import RedisError

from tidegate.app.cluster.connection import BusConnection, id_after, with_timeout
from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.cluster.redis_store import RedisStore
from tidegate.app.cluster.topic_log import ForeignEntry, parse_entry
from tidegate.app.definitions.graph import sources_first, sources_of
from tidegate.app.definitions.topic import TopicDefinition
from tidegate.app.refusals import Refused
from tidegate.app.stores.store import DefinitionsMoved, TopicRecord
from tidegate.app.streams.driver import Driver
from tidegate.app.streams.outage import Outage
from tidegate.app.timers import Backoff, wait_until_set
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.catalog import Catalog
from tidegate.conflation.errors import TopicUnknown
from tidegate.conflation.frame import Frame, RestoredTopic
from tidegate.keys.text.bookmark import Bookmark

ENTRIES_AT_ONCE = 100
WAIT_S = 1.0
CHECK_INTERVAL_S = 1.0
CHECKED_AT_ONCE = 200
"""Number of topics that each check compares with Redis, in rotation."""

PUBLISH_S = 0.02
"""A topic that the engine needs longer to process is read again later, so others can proceed."""

PAUSE_S, PAUSE_S_MAX = 0.05, 2.0

Fields = dict[bytes, bytes]

logger = logging.getLogger("tidegate.bus")


class Doubt(IntEnum):
    """Why a topic's copy in the engine is checked; of several reasons the greatest counts."""

    EPOCH = 1
    """Its epoch may have ended."""
    HISTORY = 2
    """Redis has an entry of another history."""
    GAP = 3
    """The copy lacks entries."""


class TopicLogReader:
    """One task that reads all topics, each from the engine's head.

    `restore_definitions` writes the definitions that Redis has lost back; `restart_topic` begins a
    topic again, with what Redis has of it.
    """

    def __init__(
        self,
        connection: BusConnection,
        store: RedisStore,
        catalog: Catalog,
        driver: Driver,
        append_waiters: AppendWaiters,
        restore_definitions: Callable[[], Awaitable[None]],
        restart_topic: Callable[[TopicRecord, RestoredTopic], Awaitable[None]],
        outage: Outage,
    ) -> None:
        self._connection = connection
        self._store = store
        self._catalog = catalog
        self._driver = driver
        self._append_waiters = append_waiters
        self._restore_definitions = restore_definitions
        self._restart_topic = restart_topic
        self._outage = outage
        self._wake = asyncio.Event()
        self._suspects: dict[str, Doubt] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._check_due_s = 0.0
        self._last_checked = ""
        store.on_suspect = self.suspect
        store.head_seen = self._head
        store.is_unavailable = lambda: outage.is_on
        append_waiters.shared_head = store.shared_head
        catalog.listen(lambda name: self._wake.set())

    def suspect(self, topic: str, doubt: Doubt = Doubt.EPOCH) -> None:
        """Schedule a continuity check of a topic."""
        self._suspects[topic] = max(doubt, self._suspects.get(topic, doubt))
        self._wake.set()

    async def run(self) -> None:
        """Read until cancelled; while Redis is unavailable, retry with growing pauses."""
        backoff = Backoff(PAUSE_S, PAUSE_S_MAX)
        while True:
            raise_if_cancelled()
            try:
                # All topics after an outage; from then on a few at a time.
                await self._check(name for name in self._names())
                while True:
                    raise_if_cancelled()
                    await self._step()
                    backoff.succeeded()
            except (RedisError, OSError, Refused) as error:
                self._outage.began(type(error).__name__)
            except Exception:
                logger.exception("reading topics from the bus failed; retrying")
            await backoff.pause()

    async def open(self) -> None:
        """Restart topics of another server life before the gateway serves requests.

        If Redis is unavailable, `run` does the same as soon as Redis is back.
        """
        with contextlib.suppress(RedisError, OSError, Refused):
            await self._check(self._names())
            await self._repair_suspects()

    async def _repair_suspects(self) -> dict[str, Doubt]:
        """Repair suspect topics; return those that could not be looked at now."""
        # Taken first: a topic that becomes suspect during its repair is checked again.
        suspects, self._suspects = self._suspects, {}
        # A look at all of them, as there may be thousands, and one change holds up each.
        if not suspects or self._catalog.changing.locked():
            return suspects
        if await self._store.definitions.is_behind():
            return suspects
        skipped: dict[str, Doubt] = {}
        for name in sources_first(suspects, self._document):
            waits = not skipped.keys().isdisjoint(sources_of(name, self._document))
            if waits or not await self._repair(name, suspects[name]):
                skipped[name] = suspects[name]
        return skipped

    async def _step(self) -> None:
        self._wake.clear()
        skipped = await self._repair_suspects()
        if asyncio.get_running_loop().time() >= self._check_due_s:
            await self._check(self._next_in_rotation())
        # Only once no topic is suspect: until then what is read may belong to another history.
        if not self._suspects:
            if not skipped:
                self._outage.over()
            # Topics that were skipped are tried again soon: until then the bus counts as out.
            await self._publish_all(await self._read(PAUSE_S if skipped else WAIT_S))
        for name, doubt in skipped.items():
            self.suspect(name, doubt)

    # Reading

    async def _read(self, wait_s: float) -> list[tuple[str, list[Fields]]]:
        """Read new entries of all idle topics, and wait for one at most so long."""
        names = [name for name in self._names() if name not in self._busy]
        if not names:
            await wait_until_set(self._wake, wait_s)
            return []
        streams = {self._store.log(name).stream: name for name in names}
        command = ("XREAD", "COUNT", ENTRIES_AT_ONCE, "BLOCK", round(wait_s * 1_000), "STREAMS")
        positions = [id_after(self._head(name)) for name in names]
        reading = asyncio.ensure_future(
            with_timeout(self._connection.execute_blocking(*command, *streams, *positions), wait_s)
        )
        woken = asyncio.ensure_future(self._wake.wait())
        try:
            await asyncio.wait({reading, woken}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return []  # woken by a new topic or a suspect: begin again with all names
            reply = reading.result() or []
        finally:
            for task in (reading, woken):
                task.cancel()
            await asyncio.gather(reading, woken, return_exceptions=True)
        return [
            (streams[stream.decode()], [fields for _, fields in entries])
            for stream, entries in reply
        ]

    async def _publish_all(self, reply: Sequence[tuple[str, list[Fields]]]) -> None:
        """Publish the entries to the engine; a slow topic is read again when it is done."""
        tasks = {
            asyncio.create_task(self._publish(name, entries), name=f"publish to {name}"): name
            for name, entries in reply
        }
        if not tasks:
            return
        # A topic with slow subscribers must not hold up the log of all others.
        _, pending = await asyncio.wait(tasks, timeout=PUBLISH_S)
        for task in pending:
            self._busy[tasks[task]] = task
            task.add_done_callback(self._done)

    async def _publish(self, name: str, entries: Sequence[Fields]) -> None:
        try:
            frames = self._contiguous_frames(name, entries)
            if frames:
                await self._driver.publish(name, frames)
        except TopicUnknown:
            pass  # the topic was deleted before the entries arrived
        except ForeignEntry as foreign:
            logger.warning("%s: %s; the topic restarts", name, foreign)
            self.suspect(name, Doubt.GAP)
        except Exception:
            logger.exception("%s cannot be read; the topic restarts", name)
            self.suspect(name, Doubt.GAP)
        self._append_waiters.notify(name)

    def _contiguous_frames(self, name: str, entries: Sequence[Fields]) -> list[Frame]:
        """Return the frames that continue the engine's copy without a gap, up to the first gap."""
        topic = self._driver.engine.topic(name)
        frames: list[Frame] = []
        for fields in entries:
            expected = (frames[-1].offset if frames else topic.head) + 1
            try:
                epoch, first, parsed = parse_entry(fields)
            except ForeignEntry:
                if not frames:
                    raise
                break  # publish the entries before it; the next read raises for this one
            is_ours = topic.place(Bookmark(epoch, first)).epoch == topic.epoch
            if not is_ours or first != expected:
                self.suspect(name, Doubt.GAP if is_ours else Doubt.HISTORY)
                break
            frames += parsed
        return frames

    def _done(self, task: asyncio.Task[None]) -> None:
        self._busy = {name: busy for name, busy in self._busy.items() if busy is not task}
        self._wake.set()

    # Continuity checks

    async def _check(self, names: Iterable[str]) -> None:
        """Compare topics with Redis, which may have lost data without any error."""
        self._check_due_s = asyncio.get_running_loop().time() + CHECK_INTERVAL_S
        await self._store.check_settings()
        if not await self._store.definitions.is_intact():
            if self._store.definitions.life:  # else only this gateway has lost track
                # Out until all topics are in their epochs, also where no connection was lost.
                self._outage.began("it may have lost data")
            await self._restore_definitions()
            names = self._names()
        for name in await self._store.find_suspects(names, self._head):
            self.suspect(name)

    async def _repair(self, name: str, doubt: Doubt) -> bool:
        """Restart a suspect topic in its current epoch with the messages that Redis still has.

        Return False, with nothing done, while definitions change, because its current definition is
        then unknown; a change may itself wait for a writer that waits for this reader.
        """
        if self._catalog.changing.locked():
            return False
        async with self._catalog.changing:
            is_behind = await self._store.definitions.is_behind()
            return not is_behind and await self._restart(name, doubt)

    async def _restart(self, name: str, doubt: Doubt) -> bool:
        entry = self._catalog.served(name)
        if entry is None or not self._store.has(name):
            return True
        if name in self._busy:
            return False
        record = entry.record
        epoch = await self._store.confirm_epoch(name, self._head(name))
        if epoch != record.epoch:
            record = TopicRecord(name, entry.document, epoch)
            try:
                await self._store.put_epoch(record)
            except DefinitionsMoved:
                return False
        elif doubt is Doubt.EPOCH or (doubt is Doubt.HISTORY and await self._is_followed(name)):
            return True
        is_continued = epoch != entry.record.epoch and doubt is not Doubt.GAP
        seen = Bookmark(entry.record.epoch, self._head(name)) if is_continued else None
        restored = await self._store.load_current(record, seen)
        if restored is None:  # Redis has begun another life, or others trim it; tried again
            return False
        await self._restart_topic(record, restored)
        return True

    async def _is_followed(self, name: str) -> bool:
        """Return True if the next entry is of the topic's history, or there is none.

        What was read before the gateway knew of the entry's epoch may be of it now.
        """
        topic = self._driver.engine.topic(name)
        command = ("XREAD", "COUNT", 1, "STREAMS", self._store.log(name).stream)
        reply = await self._connection.execute(*command, id_after(topic.head))
        for _, [(_, fields)] in reply or []:
            try:
                epoch, first, _ = parse_entry(fields)
            except ForeignEntry:
                return False
            return topic.place(Bookmark(epoch, first)).epoch == topic.epoch
        return True

    def _document(self, name: str) -> TopicDefinition | None:
        entry = self._catalog.served(name)
        return None if entry is None else entry.document

    def _names(self) -> list[str]:
        names = (entry.record.name for entry in self._catalog.entries())
        return sorted(name for name in names if self._store.has(name))

    def _next_in_rotation(self) -> list[str]:
        """Return the next topics of the rotation."""
        names = [name for name in self._names() if name > self._last_checked][:CHECKED_AT_ONCE]
        self._last_checked = names[-1] if len(names) == CHECKED_AT_ONCE else ""
        return names

    def _head(self, name: str) -> int:
        try:
            return self._driver.engine.topic(name).head
        except TopicUnknown:
            return 0
