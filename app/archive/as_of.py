"""The state of the world at a past time: from the board, the journal, and an archive."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from tidegate.app.archive.archive import TRIES, Archive
from tidegate.app.refusals import Refused
from tidegate.app.streams.scheduler import in_turns
from tidegate.conflation.definition import Kind
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import Frame
from tidegate.conflation.steps import in_pieces, sorted_in_steps
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.archived import Part, after
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.time import parse_time

logger = logging.getLogger("tidegate.archive")

FRAMES_AT_ONCE = 2_000
COPIED_AT_ONCE = 40_000


class PastRecords(NamedTuple):
    """Records at a past position, ordered by last change; tombstones may be among them."""

    bookmark: Bookmark
    records: list[Frame]


def time_of(text: str) -> int:
    """Parse milliseconds since the epoch, or an ISO 8601 time.

    Raises:
        Refused: options-invalid.
    """
    try:
        return parse_time(text)
    except ValueError as error:
        raise Refused("options-invalid", f"as_of takes a time, or milliseconds: {error}.") from None


async def records_as_of(
    topic: Topic, kind: Kind, time_ms: int, now_ms: int, archive: Archive | None
) -> PastRecords:
    """Return the newest message of each key that was published by `time_ms`.

    Raises:
        BookmarkExpired: neither journal nor archive reaches back that far.
    """
    assert topic.sow is not None, "it keeps records"
    dropped, head, epoch = topic.journal.dropped_through, topic.head, topic.epoch
    frames, board = topic.journal.after(dropped), topic.sow.board.frames()
    # The first frame that is later, not the last that is not: a clock that was set back must not
    # bring a message before the ones it followed.
    first_later = next(
        (at for at, frame in enumerate(frames) if frame.timestamp_ms > time_ms), None
    )
    if first_later is None and (frames or time_ms >= now_ms):
        return PastRecords(Bookmark(epoch, head), board)
    # The time is before or after everything that the journal has. The records may have changed in
    # messages that it dropped, or in an earlier epoch.
    if not first_later and (dropped or archive is not None):
        return await _before(topic, kind, time_ms, archive)
    changed, known = await _split_journal(frames, first_later or 0)
    # With a whole journal a key that is in neither half did not exist at that time.
    unknown = changed - known.keys() if dropped else set()
    if unknown:
        known.update(await _state(topic.name, epoch, dropped, kind, archive, unknown))

    def unchanged(piece: Sequence[Frame]) -> list[Frame]:
        return [record for record in piece if record.key not in changed]

    records = await in_turns(in_pieces(board, COPIED_AT_ONCE, unchanged))
    records += [known[text] for text in changed & known.keys()]
    bookmark = Bookmark(epoch, dropped + (first_later or 0))
    return PastRecords(bookmark, await _present_in_order(records))


async def _split_journal(
    frames: Sequence[Frame], first_later: int
) -> tuple[set[str], dict[str, Frame]]:
    """Split the journal: keys that changed later, and the newest earlier message of each key."""
    changed: set[str] = set()
    known: dict[str, Frame] = {}
    for start in range(0, len(frames), FRAMES_AT_ONCE):
        for at, frame in enumerate(frames[start : start + FRAMES_AT_ONCE], start):
            if at < first_later:
                known[frame.key] = frame
            else:
                changed.add(frame.key)
        await asyncio.sleep(0)
    return changed, known


async def _before(topic: Topic, kind: Kind, time_ms: int, archive: Archive | None) -> PastRecords:
    """Return the records at a time before the journal."""
    if archive is None:
        raise BookmarkExpired("the journal does not reach back to this time")
    # In two steps, as the time is in the files and the state is by position.
    bookmark = await _find_bookmark(topic, time_ms, archive)
    if not bookmark.offset:
        return PastRecords(bookmark, [])
    found = await _state(topic.name, bookmark.epoch, bookmark.offset, kind, archive, None)
    return PastRecords(bookmark, await _present_in_order(list(found.values())))


async def _find_bookmark(topic: Topic, time_ms: int, archive: Archive) -> Bookmark:
    """Return the bookmark of the last message published by a time, from the archive.

    Raises:
        BookmarkExpired: the archive cannot prove which message that is.
    """
    from tidegate.app.archive.parquet import ArchiveDamaged
    from tidegate.app.archive.state import last_position_at

    for _ in range(TRIES):
        parts = await archive.parts(topic.name)
        then = [part for part in parts if part.stamp_ms <= time_ms]
        if not then:
            return _bookmark_before_first(topic, next(iter(parts), None))
        part = then[-1]
        try:
            position = await archive.run_in_thread(last_position_at, parts[part], part, time_ms)
        except FileNotFoundError:
            continue  # it was merged into another
        except ArchiveDamaged as error:
            raise _unreadable(topic.name, error) from error
        if _next_known(topic, parts, part.epoch, position) > position + 1:
            raise BookmarkExpired("the archive lacks messages that may be from before this time")
        return Bookmark(part.epoch, position)
    raise BookmarkExpired("the archive cannot be read as of this time")


def _bookmark_before_first(topic: Topic, oldest: Part | None) -> Bookmark:
    """Return the bookmark before a topic's first message.

    Raises:
        BookmarkExpired: the first message is neither in the journal nor in the archive.
    """
    if oldest is None and not topic.journal.dropped_through:
        return Bookmark(topic.epoch, 0)
    if oldest is None or oldest.first != 1:
        raise BookmarkExpired("neither the journal nor the archive reaches back to this time")
    return Bookmark(oldest.epoch, 0)


def _next_known(topic: Topic, parts: Iterable[Part], epoch: str, position: int) -> int:
    """Return the first position after another that is archived or was in the journal.

    Return the next position if neither is known: of an ended epoch only the archive remains.
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
    """Read the newest message of each wanted key at a position; of all keys if `wanted` is None."""
    if archive is None:
        raise BookmarkExpired("the journal does not contain all records of this time")
    from tidegate.app.archive.parquet import ArchiveDamaged
    from tidegate.app.archive.state import StateReader

    for _ in range(TRIES):
        reader = StateReader(await archive.parts(name), epoch, position, kind, wanted)
        try:
            while await archive.run_in_thread(reader.step):
                pass
        except FileNotFoundError:
            continue  # it was merged into another
        except ArchiveDamaged as error:
            raise _unreadable(name, error) from error
        if reader.is_whole:
            return reader.found
        break
    raise BookmarkExpired("the archive does not reach back to this time")


def _unreadable(name: str, error: Exception) -> BookmarkExpired:
    """Return the error for the client, and log the cause for the operator."""
    logger.warning("the archive of %s cannot be read: %s", name, error)
    return BookmarkExpired("the archive cannot be read as of this time")


async def _present_in_order(records: Sequence[Frame]) -> list[Frame]:
    """Return the records that are no tombstones, ordered by last change."""

    def present(piece: Sequence[Frame]) -> list[Frame]:
        return [record for record in piece if not record.removed]

    found = await in_turns(in_pieces(records, COPIED_AT_ONCE, present))
    return await in_turns(sorted_in_steps(found, attrgetter("offset"), FRAMES_AT_ONCE))
