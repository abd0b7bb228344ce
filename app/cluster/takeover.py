"""The takeover: a gateway that acquires the leader lease reads the log before it acts as leader."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from tidegate.app.cluster.redis_compat import raise_if_cancelled
from tidegate.app.refusals import Refused
from tidegate.app.timers import Backoff
from tidegate.app.topics.append_waiters import AppendWaiters
from tidegate.app.topics.catalog import Catalog
from tidegate.app.topics.leadership import Leadership
from tidegate.conflation.errors import TopicUnknown

RETRY_S, RETRY_S_MAX = 0.05, 1.0

logger = logging.getLogger("tidegate.bus")


class Takeover:
    """Makes this gateway the leader once it has read what the leader before has written.

    A derived topic that is filled from less than that would be taken back to an older state. The
    writes of the leader before are refused from the acquisition on, so what the log holds then is
    all that it has written, and all that it has filled it from.

    Args:
        catalog: its definitions, and the topics that are derived.
        append_waiters: they know what the log holds, and wait for it.
        leadership: taken once everything is read.
        catch_up: applies the definitions that other gateways have written.
    """

    def __init__(
        self,
        catalog: Catalog,
        append_waiters: AppendWaiters,
        leadership: Leadership,
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        self._catalog = catalog
        self._append_waiters = append_waiters
        self._leadership = leadership
        self._catch_up = catch_up
        self._task: asyncio.Task[None] | None = None
        # By topic and epoch, as found first: publishers may be faster than this gateway reads.
        self._heads: dict[tuple[str, str], int] = {}

    async def begin(self, number: int) -> None:
        """Begin to take over with this fencing number; the lease is extended meanwhile."""
        self._heads.clear()
        self._task = asyncio.create_task(self._run(number), name="take over as the leader")

    async def end(self) -> None:
        """Stop being the leader, or becoming it: the lease is lost, or this gateway stops."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._leadership.give_up()
        await self._catalog.stop_filling()

    async def _run(self, number: int) -> None:
        backoff = Backoff(RETRY_S, RETRY_S_MAX)
        while True:
            try:
                await self._read_log()
                raise_if_cancelled()
                self._leadership.take(number)
                await self._catalog.start_filling()
                return
            except Exception as error:
                text = "not the leader yet, tried again: %s"
                logger.log(backoff.level, text, error, exc_info=not isinstance(error, Refused))
            raise_if_cancelled()
            await backoff.pause()

    async def _read_log(self) -> None:
        """Wait until what the log holds of derived topics and their sources is in the engine.

        Raises:
            Refused: bus-unavailable, or it takes long, or a topic began again meanwhile.
        """
        await self._catch_up()
        names = set[str]()
        for entry in self._catalog.entries():
            if (source := entry.document.gateway_source) is not None:
                names |= {entry.record.name, source.topic}
        for name in names:
            with contextlib.suppress(TopicUnknown):  # it was deleted meanwhile
                await self._read_topic(name)

    async def _read_topic(self, name: str) -> None:
        entry = self._catalog.served(name)
        if entry is None:
            return  # nothing is filled from it
        place = name, entry.record.epoch
        if place not in self._heads:
            self._heads[place] = await self._append_waiters.shared_head(name, None)
        await self._append_waiters.wait_reached(*place, self._heads[place])
