"""The state of the world as of a past time: from the board, the journal, and an archive."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from app.archive.archive import TRIES, Archive
from app.problems import Problem
from conflation.bookmark import Bookmark
from conflation.definition import Kind
from conflation.errors import BookmarkExpired
from conflation.frame import Frame
from conflation.language.iso_time import parse_time
from conflation.topics.topic import Topic
from keys.archived import Part, after

logger = logging.getLogger("tidegate.archive")

LOOKED_AT_ONCE = 2_000
_MILLISECONDS = re.compile(r"[0-9]{9,15}", re.ASCII)


class Past(NamedTuple):
    """Records as they were at a place, by last change."""

    place: Bookmark
    records: list[Frame]


def time_of(text: str) -> int:
    """Milliseconds of the epoch, from a text with them or an ISO 8601 time.

    Raises:
        Problem: options-invalid.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        return parse_time(text)
    except ValueError as error:
        raise Problem("options-invalid", f"as_of takes milliseconds or a time: {error}.") from None


async def records_as_of(
    topic: Topic, kind: Kind, time_ms: int, now_ms: int, archive: Archive | None
) -> Past:
    """The newest message of each key among those that had been published at that time.

    Raises:
        BookmarkExpired: neither journal nor archive reaches back that far.
    """
    assert topic.sow is not None, "it keeps records"
    dropped, head, epoch = topic.journal.dropped_through, topic.head, topic.epoch
    frames, live = topic.journal.after(dropped), topic.sow.board.live()
    later = next((at for at, frame in enumerate(frames) if frame.timestamp_ms > time_ms), None)
    if later is None and (frames or time_ms >= now_ms):
        return Past(Bookmark(epoch, head), live)
    if not later and (dropped or archive is not None):  # perhaps in an epoch before this one
        return await _before(topic, kind, time_ms, archive)
    changed, known = await _sorted_out(frames, later or 0)
    unknown = changed - known.keys() if dropped else set()
    if unknown:
        known.update(await _state(topic.name, epoch, dropped, kind, archive, unknown))
    records = [record for record in live if record.key not in changed]
    records += [known[text] for text in changed & known.keys()]
    return Past(Bookmark(epoch, dropped + (later or 0)), _in_order(records))


async def _sorted_out(frames: Sequence[Frame], later: int) -> tuple[set[str], dict[str, Frame]]:
    """Keys that have changed since, and the newest message of each key before."""
    changed: set[str] = set()
    known: dict[str, Frame] = {}
    for start in range(0, len(frames), LOOKED_AT_ONCE):
        for at, frame in enumerate(frames[start : start + LOOKED_AT_ONCE], start):
            if at < later:
                known[frame.key] = frame
            else:
                changed.add(frame.key)
        await asyncio.sleep(0)
    return changed, known


async def _before(topic: Topic, kind: Kind, time_ms: int, archive: Archive | None) -> Past:
    """As of a time that lies before the journal."""
    if archive is None:
        raise BookmarkExpired("the journal does not reach back to this time")
    place = await _place(topic, time_ms, archive)
    if not place.offset:
        return Past(place, [])
    found = await _state(topic.name, place.epoch, place.offset, kind, archive, None)
    return Past(place, _in_order(list(found.values())))


async def _place(topic: Topic, time_ms: int, archive: Archive) -> Bookmark:
    """The last message that had been published at a time, by the archive.

    Raises:
        BookmarkExpired: it cannot be told.
    """
    from app.archive.parquet import ArchiveDamaged
    from app.archive.state import place_at

    for _ in range(TRIES):
        parts = await archive.parts(topic.name)
        then = [part for part in parts if part.stamp_ms <= time_ms]
        if not then:
            return _beginning(topic, next(iter(parts), None))
        part = then[-1]
        try:
            position = await archive.apart(place_at, parts[part], part, time_ms)
        except FileNotFoundError:
            continue  # it has become a part of another
        except ArchiveDamaged as error:
            raise _unreadable(topic.name, error) from error
        if _following(topic, parts, part.epoch, position) > position + 1:
            raise BookmarkExpired("the archive lacks messages that may be of before this time")
        return Bookmark(part.epoch, position)
    raise BookmarkExpired("the archive cannot be read as of this time")


def _beginning(topic: Topic, oldest: Part | None) -> Bookmark:
    """Before its first message a topic has nothing; whether this is known of it.

    Raises:
        BookmarkExpired: it is not.
    """
    if oldest is None and not topic.journal.dropped_through:
        return Bookmark(topic.epoch, 0)
    if oldest is None or oldest.first != 1:
        raise BookmarkExpired("neither the journal nor the archive reaches back to this time")
    return Bookmark(oldest.epoch, 0)


def _following(topic: Topic, parts: Iterable[Part], epoch: str, position: int) -> int:
    """The first position behind another of which anything is known; at most the next one if none.

    Of an epoch that is over nobody knows of more than is archived.
    """
    archived = after(parts, epoch, position)
    if archived:
        return archived[0].first
    return topic.journal.dropped_through + 1 if epoch == topic.epoch else position + 1


async def _state(
    name: str,
    epoch: str,
    position: int,
    kind: Kind,
    archive: Archive | None,
    wanted: set[str] | None,
) -> dict[str, Frame]:
    """The newest message of each wanted key at a position, of all keys if None, by the archive."""
    if archive is None:
        raise BookmarkExpired("the journal does not tell of all records of this time")
    from app.archive.parquet import ArchiveDamaged
    from app.archive.state import StateReader

    for _ in range(TRIES):
        reader = StateReader(await archive.parts(name), epoch, position, kind, wanted)
        try:
            while await archive.apart(reader.step):
                pass
        except FileNotFoundError:
            continue  # it has become a part of another
        except ArchiveDamaged as error:
            raise _unreadable(name, error) from error
        if reader.is_whole:
            return reader.found
        break
    raise BookmarkExpired("the archive does not reach back to this time")


def _unreadable(name: str, error: Exception) -> BookmarkExpired:
    """Who asks can do nothing about it; the operator can, and is told."""
    logger.warning("the archive of %s cannot be read: %s", name, error)
    return BookmarkExpired("the archive cannot be read as of this time")


def _in_order(records: list[Frame]) -> list[Frame]:
    """Without those that were gone, by last change."""
    there = (record for record in records if not record.removed)
    return sorted(there, key=lambda record: record.offset)
