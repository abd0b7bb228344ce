"""A topic: its numbering, its journal, its feeds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec

from tidegate.conflation.boards.board import THE_RECORD
from tidegate.conflation.definition import Definition
from tidegate.conflation.errors import BookmarkExpired
from tidegate.conflation.frame import Frame, RestoredTopic, Tombstone
from tidegate.conflation.journal import Log, SharedReplays
from tidegate.conflation.lanes.lane import Lane
from tidegate.conflation.lanes.member import Member
from tidegate.conflation.subscription import FeedId, LaneId
from tidegate.conflation.topics.expiry_deadlines import ExpiryDeadlines
from tidegate.conflation.topics.feed import DEFERRED_BYTES_MAX, Feed
from tidegate.conflation.topics.feed_build import FeedBuild
from tidegate.conflation.topics.index import FeedIndex
from tidegate.conflation.topics.watermarks import Place
from tidegate.keys.text.bookmark import Bookmark
from tidegate.keys.text.duration import MILLISECOND, Instant

# --- What an archive has of a topic's epoch; the gateway sets it, as it reads archives


@dataclass(frozen=True, slots=True)
class Archived:
    """Positions `first` to `last`, without a hole.

    `stamps`: times (ms) and the positions of the first messages that are no older, both rising.
    """

    first: int
    last: int
    stamps: tuple[tuple[int, int], ...] = ()

    def start_at(self, timestamp_ms: int) -> int:
        """Return a position before all messages at or after a time."""
        found = bisect_right(self.stamps, (timestamp_ms, -1)) - 1
        return self.first - 1 if found < 0 else self.stamps[found][1] - 1


class Topic:
    """A named stream of messages in one epoch, numbered from 1 without holes.

    An epoch may continue others: up to an offset each, the messages of both are the same.
    """

    def __init__(self, name: str, definition: Definition, epoch: str) -> None:
        self.name = name
        self.definition = definition
        self.epoch = epoch
        self.head = 0
        self._bookmark = Bookmark(epoch, 0)
        self._former: Mapping[str, int] = {}
        self.journal = Log()
        self.feeds: dict[FeedId, Feed] = {}
        self.expiry = ExpiryDeadlines()
        self.messages_in = 0
        self.removals_in = 0
        self.bytes_in = 0
        self.archived: Archived | None = None
        self.replays = SharedReplays()
        self._index = FeedIndex()
        # Feeds that the last call of `publish` has filled and that someone queues.
        self._queued: list[Feed] = []
        self._forgetting: list[Feed] = []
        self._held: list[Feed] = []
        self._builds: dict[FeedId, FeedBuild] = {}
        self._built: list[FeedBuild] = []  # finished, with subscriptions that have not begun yet
        keeps_records = bool(definition.key_spec) or definition.retains
        self.sow = self.feed(FeedId(definition.key_spec)) if keeps_records else None

    def successor(self, epoch: str) -> Topic:
        """Return the topic in another epoch, empty except for its counters."""
        topic = Topic(self.name, self.definition, epoch)
        # Counters of metrics must not decrease.
        topic.messages_in, topic.removals_in = self.messages_in, self.removals_in
        topic.bytes_in = self.bytes_in
        return topic

    def continue_in(self, epoch: str, former: Mapping[str, int]) -> bool:
        """Continue in an epoch that continues this one; return False if it lacks messages.

        `former`: the epochs that it continues, each with the last offset that both have.
        """
        if self.head > former.get(self.epoch, -1):
            return False
        self.epoch, self._former = epoch, former
        self._bookmark = Bookmark(epoch, self.head)
        self.archived = None  # the gateway sets it again, for the new epoch
        return True

    def redefine(self, definition: Definition) -> None:
        """Give the topic another definition with the same key."""
        assert self.definition.key_spec == definition.key_spec, "a topic's key is for life"
        self.definition = definition
        self.journal.keep(definition.history)
        if definition.expiration_ns is None:
            self.expiry.forget()

    def restore(self, kept: RestoredTopic, now: Instant, now_ms: int) -> None:
        """Restore a stored topic; records expire as much earlier as they are old.

        `now_ms` is wall time, as frames have it.
        """
        assert not self.head, "only a new topic is restored"
        self.head, self._former = kept.head, kept.former
        self.journal.dropped_through = kept.dropped_through
        self.journal.extend(kept.journal)
        self.journal.keep(self.definition.history)
        if self.sow is None:
            return
        self.sow.restore(kept)
        if self.definition.expiration_ns is not None:
            # The engine's clock is monotonic, so only a record's age can be carried over.
            for record in self.sow.board.live():
                age_ns = max(0, now_ms - record.timestamp_ms) * MILLISECOND
                self.expiry.schedule(record.offset, now + self.definition.expiration_ns - age_ns)

    def publish(self, frames: Sequence[Frame], now: Instant) -> list[tuple[Feed, Lane]]:
        """Publish the next frames; return the lanes whose deadline this armed.

        A tombstone among them removes the record of its key, and is journaled with the value of
        that record.
        """
        assert frames[0].offset == self.head + 1, "offsets have no holes"
        removals = sum(frame.removed for frame in frames)
        if removals:  # rare, and only then every frame has to be checked
            frames = self._completed(frames)
        self.head = frames[-1].offset
        self.messages_in += len(frames)
        self.removals_in += removals
        size = self.journal.extend(frames)
        self.bytes_in += size
        self.journal.keep(self.definition.history)
        if self.definition.expiration_ns is not None:
            self.expiry.schedule(self.head, now + self.definition.expiration_ns)
        routed = self._index.routed(frames, None if self.sow is None else self.sow.board)
        self._queued = [feed for feed in routed if feed.watermarks.places]
        self._forgetting = [feed for feed in routed if feed.forgets]
        for build in self._builds.values():
            build.add(frames)
        for build in self._built:
            build.record(frames)
        armed = [
            (feed, lane)
            for feed, some in routed.items()
            for lane in feed.publish(some, now, has_removals=removals > 0)
        ]
        if size > DEFERRED_BYTES_MAX * len(frames):
            for feed in routed:
                feed.materialize_messages()
        return armed

    def crowded_members(self, keys_max: int) -> list[Member]:
        """Return the members for which the last call of `publish` leaves too many keys waiting."""
        return [member for feed in self._forgetting for member in feed.crowded_members(keys_max)]

    def grown_queues(self) -> list[Place]:
        """Return the queues that the last call of `publish` may have filled to a relevant level.

        A queue grows only with its feed, so only feeds that were given frames are checked.
        """
        return [place for feed in self._queued for place in feed.grown_queues()]

    def expired(self, now: Instant) -> int | None:
        """Return the offset up to which records have expired; None if none of them is left."""
        through = self.expiry.expired(now)
        oldest = None if self.sow is None else self.sow.board.oldest()
        return through if oldest is not None and oldest.offset <= through else None

    @property
    def message_cost(self) -> int:
        """What a message costs the boards that see each one, as a number of filters tried on it."""
        return sum(feed.message_cost for feed in self._index.tried)

    @property
    def values_in(self) -> int:
        """Messages that were published, without removals."""
        return self.messages_in - self.removals_in

    def filtered_out(self, feed: Feed) -> int:
        """Return how many values a feed's filter has kept out since it was made."""
        return feed.filtered_out(self.values_in, feed.accepted)

    def feed(self, feed_id: FeedId) -> Feed:
        """Return the feed of this id, which is made at its first use."""
        if (found := self.feeds.get(feed_id)) is None:
            found = Feed(feed_id, self.definition.key_spec, self.name)
            by_record = feed_id.shape is not None or feed_id.key_spec == self.definition.key_spec
            # Rows of other keys cannot be made of records: earlier messages are not known.
            if self.feeds and self.sow is not None and by_record:
                found.seed(self.sow.board.live())
            self._add(found)
        return found

    def _add(self, feed: Feed) -> None:
        feed.board.head = self.head
        feed.accepted, feed.begun_at = 0, self.values_in
        self.feeds[feed.id] = feed
        self._index.add(feed, feed.id.filter)

    def build(
        self, feed_id: FeedId, records_max: int, *, of_records: bool = True
    ) -> FeedBuild | None:
        """Return the build of the feed that answers for a feed's records, begun if need be.

        None: it is there without deferred rows, or so few records are left that they can be done
        at once. Without `of_records` a lane's own feed is meant, which begins empty if its rows are
        no records.
        """
        wanted = self.of_records(feed_id)
        if not of_records and wanted != feed_id:
            return None
        there, found = self.feeds.get(wanted), self._builds.get(wanted)
        if found is not None and (there is None or found.is_there):
            return found
        if self.unbuilt(feed_id) <= records_max:
            return None
        if there is not None:
            self._held.append(there)
        records = () if there or self.sow is None else self.sow.board.frames()
        feed = there or Feed(wanted, self.definition.key_spec, self.name)
        found = FeedBuild(feed, records, is_there=there is not None)
        self._builds[wanted] = found
        return found

    def unbuilt(self, feed_id: FeedId) -> int:
        """Return what it costs to complete such a feed, in records that are examined."""
        there = self.feeds.get(self.of_records(feed_id))
        board = () if self.sow is None else self.sow.board
        return len(board) * feed_id.record_cost if there is None else there.deferred_rows

    def built(self, build: FeedBuild) -> Feed:
        """Take over a feed that is built, and hold it until `release`."""
        # A lane without a snapshot may have made the same feed at once.
        if build.feed.id not in self.feeds:
            self._add(build.feed)
        feed = self.feeds[build.feed.id]
        self._held.append(feed)
        self.abandon(build)
        self._built.append(build)
        return feed

    def abandon(self, build: FeedBuild) -> None:
        """Forget a build, under way or done."""
        if self._builds.get(build.feed.id) is build:
            del self._builds[build.feed.id]
            if build.is_there:
                self.release(build.feed)
        self._built = [each for each in self._built if each is not build]

    def release(self, feed: Feed) -> None:
        """Stop holding a feed; it is dropped if it has no lanes."""
        self._held.remove(feed)
        self.drop_unused(feed)

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane without members, and its feed if that has no other."""
        feed = self.feeds[lane.id.feed]
        feed.drop_lane(lane)
        self.drop_unused(feed)

    @contextmanager
    def holding(self, feed_id: FeedId) -> Iterator[None]:
        """Hold the feed of this id for a subscription that reads its rows and then joins a lane.

        Making a feed takes time for all records: without this it would be made for the snapshot,
        dropped, and recreated for the lane.
        """
        feed = self.feed(feed_id)
        self._held.append(feed)
        try:
            yield
        finally:
            self.release(feed)

    def drop_unused(self, feed: Feed) -> None:
        """Drop a feed without lanes that is not held; the feed of records stays."""
        if not feed.lanes and feed is not self.sow and feed not in self._held:
            del self.feeds[feed.id]
            self._index.discard(feed, feed.id.filter)

    def lane(self, lane_id: LaneId) -> tuple[Feed, Lane]:
        """Return the lane of this id and its feed."""
        feed = self.feed(lane_id.feed)
        feed.materialize()
        return feed, feed.lane(lane_id)

    def records(self, feed_id: FeedId) -> list[Frame]:
        """Return the rows of a board, with or without lanes, in the order of `Feed.frames`."""
        if self.sow is None:
            return []
        # A temporary feed if there is none; without lanes it is dropped again.
        feed = self.feed(self.of_records(feed_id))
        feed.materialize()
        frames = feed.frames()
        self.drop_unused(feed)
        if not feed.board.tombstones:  # the usual case: searching takes longer than the copy
            return frames
        return [frame for frame in frames if not frame.removed]

    def of_records(self, feed_id: FeedId) -> FeedId:
        """Return the feed that answers for a feed's records: another one if its keys are others."""
        # The state of the world is one row a record, whatever the subscription's conflation key.
        spec = self.definition.key_spec
        answers = feed_id.shape is not None or feed_id.key_spec == spec
        return feed_id if answers else FeedId(spec, feed_id.filter)

    def bookmark(self, offset: int) -> Bookmark:
        """Return the bookmark of an offset in this epoch."""
        # Cached: all subscriptions that begin at one head share it.
        if self._bookmark.offset != offset:
            self._bookmark = Bookmark(self.epoch, offset)
        return self._bookmark

    @property
    def continues(self) -> dict[str, int]:
        """The epochs that this one continues, each with the last offset that both have."""
        return {epoch: through for epoch, through in self._former.items() if through >= 0}

    def place(self, bookmark: Bookmark) -> Bookmark:
        """Return a bookmark of an epoch that this one continues as one of this epoch.

        Any other bookmark, or one beyond what both epochs have, is returned as it is.
        """
        if bookmark.offset > self._former.get(bookmark.epoch, -1):
            return bookmark
        return Bookmark(self.epoch, bookmark.offset)

    def in_common(self, bookmark: Bookmark) -> Bookmark:
        """Return the last place up to a bookmark of an epoch that this one continues.

        Messages between that place and the bookmark are lost. A bookmark of an unknown epoch is
        returned as it is.
        """
        through = self.continues.get(bookmark.epoch)
        if through is None:
            return bookmark
        return Bookmark(self.epoch, min(bookmark.offset, through))

    def since(self, bookmark: Bookmark, messages_max: int) -> list[Frame]:
        """Return the journal after a bookmark, oldest first.

        Raises:
            BookmarkExpired: of another epoch, ahead of the topic, or trimmed since.
        """
        if not self.journal_reaches(bookmark):
            raise self.why_unreachable(bookmark)
        return self.journal.after(bookmark.offset, until=bookmark.offset + messages_max)

    def recorded_ms_since(self, offset: int) -> int | None:
        """Return the milliseconds from a message to the newest; None: the journal has lost it."""
        frames = self.journal.after(offset - 1, until=offset)
        newest = self.journal.last
        return newest.timestamp_ms - frames[0].timestamp_ms if frames and newest else None

    def journal_reaches(self, bookmark: Bookmark) -> bool:
        """Return whether everything after a bookmark is still in the journal."""
        is_ours = self.place(bookmark).epoch == self.epoch
        return is_ours and self.journal.dropped_through <= bookmark.offset <= self.head

    def why_unreachable(self, bookmark: Bookmark) -> BookmarkExpired:
        """Return why the topic cannot continue from a bookmark."""
        if self.place(bookmark).epoch != self.epoch:
            return BookmarkExpired(
                "the topic has no such epoch: the bookmark is of an earlier one, of another topic, "
                "or is none"
            )
        if bookmark.offset > self.head:
            return BookmarkExpired("the bookmark is ahead of the topic")
        begins = Bookmark(self.epoch, self.beginning)
        return BookmarkExpired(
            f"the journal does not reach back to this bookmark: it begins after {begins}, where "
            "bookmark_not_found=epoch continues, and now with a snapshot"
        )

    @property
    def beginning(self) -> int:
        """The offset after which everything is still there, in the journal or an archive.

        An archive counts only if it has all that the journal has lost: a replay has no holes.
        """
        found, dropped = self.archived, self.journal.dropped_through
        is_joined = found is not None and found.first <= dropped <= found.last
        return found.first - 1 if found is not None and is_joined else dropped

    def reaches(self, bookmark: Bookmark) -> bool:
        """Return whether everything after a bookmark is in the journal or an archive."""
        is_ours = self.place(bookmark).epoch == self.epoch
        return is_ours and self.beginning <= bookmark.offset <= self.head

    def reaches_time(self, time_ms: int) -> bool:
        """Return whether everything since a time is known to be in the journal or an archive.

        Args:
            time_ms: milliseconds since 1970.
        """
        if self.beginning == 0:
            return True
        archived = self.archived
        if archived is not None and self.beginning < self.journal.dropped_through:
            return bool(archived.stamps) and archived.stamps[0][0] < time_ms
        # Of dropped messages only the newest time is known, and not even that after a restart.
        oldest = self.journal.first
        times = (None if oldest is None else oldest.timestamp_ms, self.journal.dropped_ms)
        return any(each is not None and each < time_ms for each in times)

    def start_at(self, time_ms: int) -> int:
        """Return an offset before all messages at or after a time that are still there.

        It is right before the first of them, unless they begin in an archive.

        Args:
            time_ms: milliseconds since 1970.
        """
        if self.archived is not None and self.is_in_archive(time_ms):
            return self.archived.start_at(time_ms)
        # No bisection, as wall time may step back.
        newest_first = reversed(self.journal.after(0))
        older = (frame.offset for frame in newest_first if frame.timestamp_ms < time_ms)
        return next(older, self.journal.dropped_through)

    def is_in_archive(self, timestamp_ms: int) -> bool:
        """Return whether messages that are not older than a time may be in the archive alone."""
        first = self.journal.first
        is_older = first is None or timestamp_ms <= first.timestamp_ms
        return is_older and self.beginning < self.journal.dropped_through

    def _completed(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the frames, with the values of removed records in the removals."""
        assert self.sow is not None, "only records can be removed"
        # A removal may be of a message of this call, which is not on the board yet.
        newest: dict[str, bytes] = {}
        completed: list[Frame] = []
        for frame in frames:
            if isinstance(frame, Tombstone):
                record = self.sow.board.get(frame.key or THE_RECORD)
                payload = newest.get(frame.key, b"" if record is None else record.payload)
                frame = msgspec.structs.replace(frame, payload=payload)
            newest[frame.key] = b"" if frame.removed else frame.payload
            completed.append(frame)
        return completed
