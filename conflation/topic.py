"""A topic: its numbering, its journal, its feeds."""

from __future__ import annotations

from collections.abc import Sequence

from conflation.bookmark import Bookmark
from conflation.definition import Definition
from conflation.duration import Instant
from conflation.errors import BookmarkExpired
from conflation.feed import Feed, rows_of
from conflation.frame import Frame
from conflation.lane import Lane
from conflation.log import Log
from conflation.subscription import LaneId
from keys.spec import KeySpec


class Topic:
    """A named stream of messages in one epoch, numbered from 1 without holes."""

    def __init__(self, name: str, definition: Definition, epoch: str) -> None:
        self.name = name
        self.definition = definition
        self.epoch = epoch
        self.head = 0
        self.journal = Log()
        self.feeds: dict[KeySpec, Feed] = {}
        self.messages_in = 0
        self.bytes_in = 0
        self.sow = self.feed(definition.key_spec) if definition.key_spec else None

    def publish(self, frames: Sequence[Frame], now: Instant) -> list[tuple[Feed, Lane]]:
        """Take in the next frames; returns the lanes whose deadline this armed."""
        assert frames[0].offset == self.head + 1, "offsets have no holes"
        self.head = frames[-1].offset
        self.messages_in += len(frames)
        self.bytes_in += sum(len(frame.payload) for frame in frames)
        self.journal.extend(frames)
        self.journal.keep(self.definition.history)
        return [(feed, lane) for feed in self.feeds.values() for lane in feed.publish(frames, now)]

    def feed(self, key_spec: KeySpec) -> Feed:
        """The feed of this key, made if nobody asked for it before."""
        found = self.feeds.get(key_spec)
        if found is None:
            found = Feed(key_spec, rows_of(key_spec, self.definition.key_spec))
            found.board.head = self.head
            self.feeds[key_spec] = found
        return found

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane without members, and its feed if that serves nobody else."""
        feed = self.feeds[lane.id.key_spec]
        feed.drop_lane(lane)
        if not feed.lanes and feed is not self.sow:
            del self.feeds[feed.key_spec]

    def lane(self, lane_id: LaneId) -> tuple[Feed, Lane]:
        """The lane of this id and its feed."""
        feed = self.feed(lane_id.key_spec)
        return feed, feed.lane(lane_id)

    def bookmark(self, offset: int) -> Bookmark:
        """An offset of this epoch, as users see it."""
        return Bookmark(self.epoch, offset)

    def since(self, bookmark: Bookmark | None, messages_max: int) -> list[Frame]:
        """The journal after a bookmark (None: from its beginning), oldest first.

        Raises:
            BookmarkExpired: of another epoch, ahead of the topic, or trimmed since.
        """
        if bookmark is None:
            return self.journal.after(self.journal.dropped_through)[:messages_max]
        if not self.journal_reaches(bookmark):
            raise BookmarkExpired("the journal does not reach back to this bookmark")
        until = bookmark.offset + messages_max
        return self.journal.after(bookmark.offset, until=until)

    def journal_reaches(self, bookmark: Bookmark) -> bool:
        """Whether everything after a bookmark is still in the journal."""
        return (
            bookmark.epoch == self.epoch
            and self.journal.dropped_through <= bookmark.offset <= self.head
        )
