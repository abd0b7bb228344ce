"""Checkpoints: writes changed records to the store in the background.

A start then loads the records of the last checkpoint, and the journal after it. A checkpoint writes
at most what was published since the last one, so that the loop is not held.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Iterator

from tidegate.app.refusals import Refused
from tidegate.app.stores.store import Checkpoint, Store
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.registry import CatalogTopic, TopicRegistry
from tidegate.conflation.topics.topic import Topic

CHECK_S = 1.0
CHECKS_PER_ROUND = 30
MESSAGES_MAX = 50_000
"""A topic with so many new messages is due at the next check, any other at the next round."""

TOPICS_AT_ONCE = 100

logger = logging.getLogger("tidegate.checkpoints")


class Checkpoints:
    """Writes checkpoints of topics that are due, and of all at the end."""

    def __init__(self, store: Store, catalog: TopicRegistry, driver: Driver) -> None:
        self._store = store
        self._catalog = catalog
        self._driver = driver

    async def run(self) -> None:
        """Write due checkpoints until cancelled, also after an outage of the store."""
        if not self._store.checkpoints:
            return
        for entry in self._catalog.entries():
            self._driver.engine.set_checkpoint(entry.record.name, entry.checkpoint_offset)
        for number in itertools.count(1):
            await asyncio.sleep(CHECK_S)
            is_round = number % CHECKS_PER_ROUND == 0
            await self.write(1 if is_round else MESSAGES_MAX)

    async def write(self, messages_min: int = 1) -> None:
        """Write those of all topics that have so many messages since their last."""
        if not self._store.checkpoints:
            return
        began_ms = self._driver.wall_ms()
        try:
            for entries in self._due(messages_min):
                await asyncio.gather(*(self._write(entry) for entry in entries))
            if messages_min <= 1:  # only a round over all topics proves that nothing is left
                self._driver.figures.checkpointed_ms = began_ms
        except Refused as refusal:
            logger.warning("checkpoints wait: %s", refusal.detail)

    def _due(self, messages_min: int) -> Iterator[list[CatalogTopic]]:
        """Yield due topics in small groups: a group shares a commit, and blocks nobody for long."""
        some: list[CatalogTopic] = []
        messages = 0
        for entry in self._catalog.entries():
            if (since := self._messages_since(entry)) < messages_min:
                continue
            some.append(entry)
            messages += since
            if messages >= MESSAGES_MAX or len(some) == TOPICS_AT_ONCE:
                yield some
                some, messages = [], 0
        if some:
            yield some

    def _messages_since(self, entry: CatalogTopic) -> int:
        if self._catalog.served(entry.record.name) is not entry:
            return 0  # deleted, or created again, while another topic was written
        return self._driver.engine.topic(entry.record.name).head - entry.checkpoint_offset

    async def _write(self, entry: CatalogTopic) -> None:
        name = entry.record.name
        # Made without an await: the board cannot change while its records are collected.
        made = checkpoint_of(self._driver.engine.topic(name), entry.checkpoint_offset)
        await self._store.checkpoint(name, made)
        # The store passes over what is of an earlier epoch; of that nothing is written.
        if self._catalog.served(name) is entry and entry.record.epoch == made.epoch:
            entry.checkpoint_offset = made.through
            self._driver.engine.set_checkpoint(name, made.through)


def checkpoint_of(topic: Topic, since: int) -> Checkpoint:
    """Return a topic's changed records; without records only the journal's first offset."""
    journal_through = topic.journal.dropped_through
    if topic.sow is None:
        return Checkpoint(topic.epoch, (), topic.head, journal_through, 0)
    board = topic.sow.board
    return Checkpoint(
        topic.epoch,
        board.newest(since),
        topic.head,
        journal_through,
        board.horizon,
        board.exempt_last,
    )
