"""The archive that an operator has configured: what is in it, and pieces of that, from a thread."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from app.archive.listing import Listing, archived_of
from app.catalog import Catalog
from app.driver import Driver
from app.problems import Problem
from app.settings import SettingsInvalid
from conflation.definition import Kind
from conflation.errors import BookmarkExpired, EngineError
from conflation.frame import Frame
from conflation.outputs import PastWanted
from conflation.topics.topic import Topic
from keys.archived import Part

LOOK_EVERY_S = 5.0
THREADS = 2
TRIES = 3
"""Files may become parts of others, while a piece is read, so often in a row."""

T = TypeVar("T")

logger = logging.getLogger("tidegate.archive")


class Archive:
    """Tells the engine what is archived, and brings it what a replay wants of that."""

    def __init__(self, folder: Path, catalog: Catalog, driver: Driver) -> None:
        """Look at nothing yet.

        Raises:
            SettingsInvalid: there is no such folder, or nothing that reads Parquet.
        """
        if not folder.is_dir():
            raise SettingsInvalid(f"archive: there is no folder {folder}")
        if importlib.util.find_spec("pyarrow") is None:
            raise SettingsInvalid(
                "archive: needs pyarrow: run python3 dev.py setup (without --no-spark)"
            )
        self._folder = folder
        self._catalog = catalog
        self._driver = driver
        self._listings: dict[str, Listing] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="archive")
        self._bringing: set[asyncio.Task[None]] = set()
        driver.on_past_wanted = self._want

    async def run(self) -> None:
        """Look at every topic now and then."""
        while True:
            names = [entry.record.name for entry in self._catalog.listed("", "", 1 << 30)]
            for name in names:
                await self.look(name)
            for gone in self._listings.keys() - names:
                del self._listings[gone]
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self, name: str) -> None:
        """Tell the engine what there is of a topic now."""
        parts = await self.parts(name)
        with contextlib.suppress(EngineError):
            topic = self._driver.engine.topic(name)
            topic.archived = archived_of(parts, topic.epoch)

    async def parts(self, name: str) -> dict[Part, Path]:
        """All parts of a topic, of every epoch; none where its folder cannot be read."""
        listing = self._listings.setdefault(name, Listing(self._folder, name))
        try:
            return await self.apart(listing.parts)
        except OSError as error:
            logger.warning("the archive of %s cannot be read: %s", name, error)
            return {}

    async def messages(
        self, topic: Topic, kind: Kind, position: int, through: int
    ) -> AsyncIterator[Sequence[Frame]]:
        """Messages of a topic behind a position, from the archive and then from the journal.

        Raises:
            ArchiveLost: what stood there is gone by now.
        """
        while position < through:
            if topic.journal.dropped_through <= position:
                frames: Sequence[Frame] = topic.journal.after(position, until=through)
            else:
                frames = await self.piece(topic.name, topic.epoch, position, through, kind)
            if not frames:
                raise ArchiveLost(f"position {position + 1} of {topic.name} is gone")
            yield frames
            position = frames[-1].offset

    async def piece(
        self, name: str, epoch: str, position: int, through: int, kind: Kind
    ) -> list[Frame]:
        """Messages that follow a position, as `parquet.piece`; none where it is of no use."""
        from app.archive import parquet

        for _ in range(TRIES):
            parts = await self.parts(name)
            try:
                return await self.apart(parquet.piece, parts, epoch, position, through, kind)
            except FileNotFoundError:
                continue
            except parquet.ArchiveDamaged as error:
                logger.warning("the archive of %s cannot be read: %s", name, error)
                break
        return []

    async def apart(self, work: Callable[..., T], *given: object) -> T:
        """Do blocking work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *given)

    def aclose(self) -> None:
        """Bring nothing any more."""
        self._driver.on_past_wanted = None
        for task in self._bringing:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _want(self, wanted: PastWanted) -> None:
        task = asyncio.create_task(self._bring(wanted), name="bring from the archive")
        self._bringing.add(task)
        task.add_done_callback(self._bringing.discard)

    async def _bring(self, wanted: PastWanted) -> None:
        name = wanted.seat[1]
        try:
            kind = self._catalog.get(name).document.kind
            through = self._driver.engine.topic(name).journal.dropped_through
        except (EngineError, Problem):
            return  # who wanted it has been told that the topic is gone
        piece = await self.piece(name, wanted.epoch, wanted.after, through, kind)
        self._driver.engine.bring(wanted, piece, self._driver.now())
        self._driver.settle()


class ArchiveLost(Exception):
    """Messages that an answer had promised are gone while it was sent: it ends unfinished."""


async def begun(pieces: AsyncIterator[Sequence[Frame]]) -> AsyncIterator[Sequence[Frame]]:
    """The same pieces, the first of them at hand: before it nothing of an answer was promised.

    Raises:
        BookmarkExpired: it is gone, or cannot be read.
    """
    try:
        first = await anext(pieces, ())
    except ArchiveLost:
        raise BookmarkExpired("the archive cannot be read from this bookmark on") from None

    async def all_of_them() -> AsyncIterator[Sequence[Frame]]:
        yield first
        async for frames in pieces:
            yield frames

    return all_of_them()
