"""The archive: tells the engine how far back each topic reaches, and reads messages in threads."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from tidegate.app.settings.settings import SettingsInvalid
from tidegate.app.streams.driver import Driver
from tidegate.app.topics.registry import TopicRegistry
from tidegate.conflation.definition import Kind
from tidegate.conflation.errors import BookmarkExpired, EngineError
from tidegate.conflation.frame import Frame
from tidegate.conflation.outputs import HistoryWanted
from tidegate.conflation.topics.topic import Archived, Topic
from tidegate.keys.archived import Part, reach, topic_folder
from tidegate.keys.errors import Refusal

REFRESH_S = 5.0
THREADS = 2
TRIES = 3
"""Attempts to read a piece while the pipeline merges files into larger ones."""
SETTLED_NS = 2_000_000_000
"""After this a change of a folder gets another time: some file systems count two seconds."""
CHANGING = (0, 0)
"""The mark of a folder that may change again without another time."""

T = TypeVar("T")

logger = logging.getLogger("tidegate.archive")


def check_archive(folder: Path) -> None:
    """Check the folder and the Parquet reader.

    Raises:
        SettingsInvalid: the folder does not exist, or pyarrow is missing.
    """
    if not folder.is_dir():
        raise SettingsInvalid(f"archive: there is no folder {folder}")
    # Found and not imported: the import takes a good part of a second, and only a reader of old
    # messages needs it.
    if importlib.util.find_spec("pyarrow") is None:
        raise SettingsInvalid(
            "archive: needs pyarrow, which is not installed: install the extra archive of Tidegate"
        )


class Archive:
    """Reports the archived range of each topic to the engine, and supplies history for replays."""

    def __init__(self, folder: Path, catalog: TopicRegistry, driver: Driver) -> None:
        """Check the folder and the Parquet reader; read nothing yet.

        Raises:
            SettingsInvalid: the folder does not exist, or pyarrow is missing.
        """
        check_archive(folder)
        self._folder = folder
        self._catalog = catalog
        self._driver = driver
        self._listings: dict[str, Listing] = {}
        # Own threads: reads of large files must not delay other work on the default ones.
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="archive")
        self._reads: set[asyncio.Task[None]] = set()
        driver.on_history_wanted = self._start_supply

    async def run(self) -> None:
        """Refresh every topic's listing at intervals."""
        while True:
            names = [entry.record.name for entry in self._catalog.listed("", "", 1 << 30)]
            for name in names:
                await self.refresh(name)
            for gone in self._listings.keys() - names:
                del self._listings[gone]
            await asyncio.sleep(REFRESH_S)

    async def refresh(self, name: str) -> None:
        """Report a topic's archived range to the engine."""
        parts = await self.parts(name)
        with contextlib.suppress(EngineError):
            topic = self._driver.engine.topic(name)
            topic.archived = archived_of(parts, topic.epoch)

    async def parts(self, name: str) -> dict[Part, Path]:
        """Return all parts of a topic, of every epoch; none if its folder cannot be read."""
        listing = self._listings.setdefault(name, Listing(self._folder, name))
        try:
            return await self.run_in_thread(listing.parts)
        except OSError as error:
            logger.warning("the archive of %s cannot be read: %s", name, error)
            return {}

    async def messages(
        self, topic: Topic, kind: Kind, position: int, through: int
    ) -> AsyncIterator[Sequence[Frame]]:
        """Yield messages of a topic after a position, from the archive and then from the journal.

        Raises:
            ArchiveLost: messages in this range were deleted meanwhile.
        """
        while position < through:
            # Asked again for each piece: the journal may be trimmed while the pieces before were
            # sent.
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
        """Read messages after a position, as `parquet.piece`; none if the archive lacks them."""
        from tidegate.app.archive import parquet  # pyarrow is optional

        for _ in range(TRIES):
            parts = await self.parts(name)
            try:
                return await self.run_in_thread(
                    parquet.piece, parts, epoch, position, through, kind
                )
            except FileNotFoundError:
                continue  # the pipeline has merged the file into a larger one
            except parquet.ArchiveDamaged as error:
                logger.warning("the archive of %s cannot be read: %s", name, error)
                break
        return []

    async def run_in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        """Run blocking work in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def aclose(self) -> None:
        """Cancel all reads."""
        self._driver.on_history_wanted = None
        for task in self._reads:
            task.cancel()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start_supply(self, wanted: HistoryWanted) -> None:
        task = asyncio.create_task(self._supply(wanted), name="read from the archive")
        self._reads.add(task)
        task.add_done_callback(self._reads.discard)

    async def _supply(self, wanted: HistoryWanted) -> None:
        name = wanted.subscriber[1]
        try:
            kind = self._catalog.get(name).document.kind
            # Only what the journal has dropped: the engine continues from its journal by itself.
            through = self._driver.engine.topic(name).journal.dropped_through
        except Refusal:
            return  # the subscriber already got the topic's deletion
        piece = await self.piece(name, wanted.epoch, wanted.after, through, kind)
        self._driver.engine.supply_history(wanted, piece, self._driver.now())
        self._driver.dispatch()


class ArchiveLost(Exception):
    """Messages that a response had promised were deleted while it was sent; the response is cut."""


async def begun(pieces: AsyncIterator[Sequence[Frame]]) -> AsyncIterator[Sequence[Frame]]:
    """Return the pieces with the first one already read, so that an error precedes the response.

    Raises:
        BookmarkExpired: the first piece is missing or unreadable.
    """
    try:
        first = await anext(pieces, ())
    except ArchiveLost:
        raise BookmarkExpired("the archive cannot be read from this bookmark on") from None

    async def all_pieces() -> AsyncIterator[Sequence[Frame]]:
        yield first
        async for frames in pieces:
            yield frames

    return all_pieces()


class Listing:
    """The parts of one topic in order of publication. It blocks: call it in a thread."""

    def __init__(self, archive: Path, topic: str) -> None:
        self._folder = archive / topic_folder(topic)
        self._days: dict[str, tuple[tuple[int, int], list[tuple[Part, Path]]]] = {}

    def parts(self) -> dict[Part, Path]:
        """Return each part with its path; none if the topic has no archive."""
        try:
            with os.scandir(self._folder) as entries:
                days = [it for it in entries if it.name.startswith("date=") and it.is_dir()]
        except FileNotFoundError:
            days = []
        found = {day.name: self._day(Path(day.path)) for day in days}
        self._days = {name: each for name, each in found.items() if each is not None}
        return dict(sorted(pair for _, pairs in self._days.values() for pair in pairs))

    def _day(self, folder: Path) -> tuple[tuple[int, int], list[tuple[Part, Path]]] | None:
        now_ns = time.time_ns()
        try:
            about = folder.stat()
            # The inode detects a folder that was replaced by one with the same time.
            mark = about.st_ino, about.st_mtime_ns
            known = self._days.get(folder.name)
            if known is not None and known[0] == mark:
                return known
            pairs = [(Part.of(path.name), path) for path in folder.iterdir()]
        except FileNotFoundError:
            return None
        found = [(part, path) for part, path in pairs if part is not None]
        return mark if now_ns - about.st_mtime_ns > SETTLED_NS else CHANGING, found


def archived_of(parts: dict[Part, Path], epoch: str) -> Archived | None:
    """Return the gapless range of an epoch that ends with its newest part, or None."""
    found = reach(list(parts), epoch)
    if found is None:
        return None
    first, last = found
    own = [part for part in parts if part.epoch == epoch and part.first >= first]
    return Archived(first, last, tuple((part.stamp_ms, part.first) for part in own))
