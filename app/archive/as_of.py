"""The state of the world as of a past time: from the board, the journal, and an archive."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import NamedTuple

from app.archive.archive import TRIES, Archive
from app.problems import Problem
from conflation.bookmark import Bookmark
from conflation.definition import Kind
from conflation.errors import BookmarkExpired
from conflation.frame import Frame
from conflation.language.iso_time import parse_time
from conflation.topics.topic import Topic

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
        raise Problem("options-invalid", f"as_of: {error}, or milliseconds.") from None


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
    if later is None and (frames or not head or time_ms >= now_ms):
        return Past(Bookmark(epoch, head), live)
    if not later and dropped:
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
    from app.archive.state import place_at

    if archive is None:
        raise BookmarkExpired("the journal does not reach back to this time")
    parts = await archive.parts(topic.name)
    then = [part for part in parts if part.stamp_ms <= time_ms]
    oldest = next(iter(parts), None)
    if not then and oldest is not None and oldest.first == 1:
        return Past(Bookmark(oldest.epoch, 0), [])  # before its first message a topic has nothing
    if not then:
        raise BookmarkExpired("neither the journal nor the archive reaches back to this time")
    part = then[-1]
    position = await archive.apart(place_at, parts[part], part, time_ms)
    is_end = position == part.last and not any(it.first == position + 1 for it in parts)
    if is_end and part.epoch == topic.epoch and position < topic.journal.dropped_through:
        raise BookmarkExpired("the archive ends before this time, and the journal begins after it")
    found = await _state(topic.name, part.epoch, position, kind, archive, None)
    return Past(Bookmark(part.epoch, position), _in_order(list(found.values())))


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
            raise BookmarkExpired("the archive cannot be read as of this time") from error
        if reader.is_whole:
            return reader.found
        break
    raise BookmarkExpired("the archive does not reach back to this time")


def _in_order(records: list[Frame]) -> list[Frame]:
    """Without those that were gone, by last change."""
    there = (record for record in records if not record.removed)
    return sorted(there, key=lambda record: record.offset)
