"""Filling: a topic's definition changes, and it is filled as what holds says, no sooner."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from app.driver import Driver
from app.entry import Entry
from app.filler import Fillers, wanted
from app.topic_document import TopicDocument


class Filling:
    """Has the fillers do what definitions say; one change at a time, of one topic."""

    def __init__(self, driver: Driver, fillers: Fillers) -> None:
        self._driver = driver
        self._fillers = fillers

    def prepare(self, name: str, document: TopicDocument) -> None:
        """Subscribe to the source of a topic that may not be there yet, if it has one.

        Raises:
            EngineError: there are too many sessions, or the source cannot be asked this.
        """
        source = document.gateway_source
        if source is not None:
            self._fillers.prepare(name, source, document.key_spec)

    def start(self, entry: Entry) -> None:
        """Begin to fill a topic that was prepared."""
        self._fillers.start(entry)

    async def stop(self, name: str) -> None:
        """Fill a topic no more."""
        await self._fillers.stop(name)

    def begin(self, entries: Iterable[Entry]) -> None:
        """It is this gateway's turn to fill these topics, each after its source."""
        for entry in entries:
            self.prepare(entry.record.name, entry.document)
            self._fillers.start(entry)

    async def end(self) -> None:
        """It is another's."""
        await self._fillers.aclose()

    @asynccontextmanager
    async def refilled(self, known: Entry, document: TopicDocument) -> AsyncIterator[None]:
        """Have the topic filled as its new definition says from when that holds, no sooner."""
        name, old, new = known.record.name, known.document.gateway_source, document.gateway_source
        if old == new:
            yield
        elif old is not None and new is not None and old.topic == new.topic:
            wanted(self._driver, new, document.key_spec)  # what cannot be asked is refused here
            yield
            self._fillers.change(name, new, document.key_spec)
        else:
            async with self.unfilled(known):
                self.prepare(name, document)
                yield
            self._fillers.start(known)

    @asynccontextmanager
    async def unfilled(self, known: Entry) -> AsyncIterator[None]:
        """Nobody fills the topic while it changes; if that fails it is filled as it was."""
        name = known.record.name
        await self._fillers.stop(name)
        try:
            yield
        except BaseException:
            await self._fillers.stop(name)
            self.prepare(name, known.document)
            self._fillers.start(known)
            raise
