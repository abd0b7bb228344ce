"""The follower: what anybody appended to the topics served here comes into the engine, in order.

Stream ids prove nothing by themselves: after a loss Redis goes on without a sign. So each entry
must follow on what the engine has, in the epoch that is known; else the topic begins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable, Sequence

from redis.exceptions import RedisError

from app.arrivals import Arrivals
from app.bus.cancellation import heed_cancellation
from app.bus.connection import BusConnection, patiently
from app.bus.following import Following
from app.bus.redis_store import RedisStore
from app.bus.topic_log import entry_frames
from app.catalog import Catalog
from app.driver import Driver
from app.outage import Outage
from app.problems import Problem
from app.stores.shared import DefinitionsMoved
from app.stores.store import TopicRecord
from conflation.bookmark import Bookmark
from conflation.errors import TopicUnknown
from conflation.frame import Frame

ENTRIES_AT_ONCE = 100
WAIT_S = 1.0
LOOK_S = 1.0
LOOKED_AT_ONCE = 200
"""So many topics are compared with the bus at each look, by turns."""

TURN_S = 0.02
"""A topic that takes longer to be taken in keeps no other from being read."""

CLAIM_S_MAX = 2.0
"""A reader who claims a place waits so long; then a snapshot tells it all the same."""

PAUSE_S, PAUSE_S_MAX = 0.05, 2.0

Fields = dict[bytes, bytes]

logger = logging.getLogger("tidegate.bus")


class Follower:
    """One task that reads all topics, each from the offset that the engine has."""

    def __init__(
        self,
        connection: BusConnection,
        store: RedisStore,
        catalog: Catalog,
        driver: Driver,
        arrivals: Arrivals,
        following: Following,
        outage: Outage,
    ) -> None:
        self._connection = connection
        self._store = store
        self._catalog = catalog
        self._driver = driver
        self._arrivals = arrivals
        self._following = following
        self._outage = outage
        self._stirred = asyncio.Event()
        self._doubted: dict[str, bool] = {}
        self._claimed: dict[str, Bookmark] = {}
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._look_due_s = 0.0
        self._looked_at = ""
        store.on_doubt = self.doubt
        store.seen = self._head
        store.is_out = lambda: outage.is_on
        catalog.listen(lambda name: self._stirred.set())

    def doubt(self, topic: str, *, has_gap: bool = False) -> None:
        """See whether a topic went on without a hole; `has_gap`: what the engine has did not."""
        self._doubted[topic] = self._doubted.get(topic, False) or has_gap
        self._stirred.set()

    async def claim(self, topic: str, seen: Bookmark) -> None:
        """Somebody has seen this place, which is not here: wait for what the bus says, a while."""
        self._claimed[topic] = seen
        self.doubt(topic)
        with contextlib.suppress(TimeoutError, Problem, TopicUnknown):
            async with asyncio.timeout(CLAIM_S_MAX):
                await self._arrivals.reached(topic, seen.epoch, seen.offset)

    async def run(self) -> None:
        """Follow until cancelled; while the bus is out, ask for it with growing pauses."""
        pause_s = PAUSE_S
        while True:
            heed_cancellation()
            try:
                await self._look(name for name in self._names())
                while True:
                    heed_cancellation()
                    await self._step()
                    pause_s = PAUSE_S
            except (RedisError, OSError, Problem) as error:
                self._outage.began(type(error).__name__)
            except Exception:
                logger.exception("following the bus failed; tried again")
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    async def begin(self) -> None:
        """Before anything is served: topics of another life of the server begin again.

        Where the bus is out by now, `run` does it when it is back.
        """
        with contextlib.suppress(RedisError, OSError, Problem):
            await self._look(self._names())
            await self._mend_doubted()

    async def _mend_doubted(self) -> None:
        doubted, self._doubted = self._doubted, {}
        for name, has_gap in doubted.items():
            await self._mend(name, has_gap=has_gap)

    async def _step(self) -> None:
        self._stirred.clear()
        await self._mend_doubted()
        if asyncio.get_running_loop().time() >= self._look_due_s:
            await self._look(self._next_names())
        if self._doubted:
            return
        self._outage.over()
        await self._take_in(await self._read())

    # Reading

    async def _read(self) -> list[tuple[str, list[Fields]]]:
        """What is behind the engine's heads, as soon as there is anything; nothing if stirred."""
        names = [name for name in self._names() if name not in self._busy]
        if not names:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._stirred.wait()
            return []
        streams = {self._store.log(name).stream: name for name in names}
        words = ("XREAD", "COUNT", ENTRIES_AT_ONCE, "BLOCK", round(WAIT_S * 1_000), "STREAMS")
        places = [f"{self._head(name)}-0" for name in names]
        reading = asyncio.ensure_future(
            patiently(self._connection.read(*words, *streams, *places), WAIT_S)
        )
        stirred = asyncio.ensure_future(self._stirred.wait())
        try:
            await asyncio.wait({reading, stirred}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                return []
            answer = reading.result() or []
        finally:
            for task in (reading, stirred):
                task.cancel()
            await asyncio.gather(reading, stirred, return_exceptions=True)
        return [
            (streams[stream.decode()], [fields for _, fields in entries])
            for stream, entries in answer
        ]

    async def _take_in(self, answer: Sequence[tuple[str, list[Fields]]]) -> None:
        """Hand it to the engine; a topic that takes its time is read again when it is done."""
        tasks = {
            asyncio.create_task(self._publish(name, entries), name=f"take in {name}"): name
            for name, entries in answer
        }
        if not tasks:
            return
        _, pending = await asyncio.wait(tasks, timeout=TURN_S)
        for task in pending:
            self._busy[tasks[task]] = task
            task.add_done_callback(self._done)

    async def _publish(self, name: str, entries: Sequence[Fields]) -> None:
        try:
            frames = self._following_on(name, entries)
            if frames:
                await self._driver.publish(name, frames)
        except TopicUnknown:
            pass  # it was deleted meanwhile
        except Exception:
            logger.exception("%s cannot be followed; it begins again", name)
            self.doubt(name, has_gap=True)
        self._arrivals.moved(name)

    def _following_on(self, name: str, entries: Sequence[Fields]) -> list[Frame]:
        """Frames of the entries that follow on what the engine has, up to the first hole."""
        topic = self._driver.engine.topic(name)
        frames: list[Frame] = []
        for fields in entries:
            expected = (frames[-1].offset if frames else topic.head) + 1
            is_known = fields[b"e"].decode() == topic.epoch
            if not is_known or int(fields[b"f"]) != expected:
                self.doubt(name, has_gap=is_known)
                break
            frames += entry_frames(fields)
        return frames

    def _done(self, task: asyncio.Task[None]) -> None:
        self._busy = {name: busy for name, busy in self._busy.items() if busy is not task}
        self._stirred.set()

    # Doubts

    async def _look(self, names: Iterable[str]) -> None:
        """Compare the bus with what was seen of it: it may have lost something without a word."""
        self._look_due_s = asyncio.get_running_loop().time() + LOOK_S
        if not await self._store.definitions.stands():
            await self._following.restore()
        for name in await self._store.doubtful(names, self._head):
            self.doubt(name)
        for name in self._claimed:
            self.doubt(name)

    async def _mend(self, name: str, *, has_gap: bool) -> None:
        """Have a doubtful topic go on in the epoch that holds, with what is kept of it.

        While definitions change here or have changed elsewhere, what holds is not known: it is
        looked at again. A change may wait for a writer, who waits for what is read here.
        """
        if self._catalog.changing.locked():
            return
        async with self._catalog.changing:
            if not await self._store.definitions.is_behind():
                await self._renew(name, has_gap=has_gap)

    async def _renew(self, name: str, *, has_gap: bool) -> None:
        entry = self._catalog.find(name)
        if entry is None or not self._store.has(name) or name in self._busy:
            return
        record = entry.record
        claim = self._claimed.get(name)
        is_claimed = claim is not None and claim.epoch == record.epoch
        seen = max(self._head(name), claim.offset if claim is not None and is_claimed else 0)
        epoch = await self._store.renew(name, seen)
        self._claimed.pop(name, None)
        if epoch != record.epoch:
            record = TopicRecord(name, entry.document, epoch)
            try:
                await self._store.put_epoch(record)
            except DefinitionsMoved:
                return
        elif not has_gap:
            return
        kept = await self._store.kept(name)
        logger.warning("%s begins again, in epoch %s", name, epoch)
        self._store.note(name, record)
        self._catalog.renew(record, kept)
        self._arrivals.moved(name)

    def _names(self) -> list[str]:
        names = (entry.record.name for entry in self._catalog.entries())
        return sorted(name for name in names if self._store.has(name))

    def _next_names(self) -> list[str]:
        """The next topics whose turn it is to be looked at."""
        behind = [name for name in self._names() if name > self._looked_at][:LOOKED_AT_ONCE]
        self._looked_at = behind[-1] if len(behind) == LOOKED_AT_ONCE else ""
        return behind

    def _head(self, name: str) -> int:
        try:
            return self._driver.engine.topic(name).head
        except TopicUnknown:
            return 0
