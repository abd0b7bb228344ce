"""The pages of a polled stream: JSON arrays of what has changed from one position to another.

Rows are those of the State Protocol of Durable Streams (`insert`, `update` and `delete` of a key,
and `reset`), or bare values. No I/O and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, Protocol

import msgspec

from tidegate.app.refusals import Refused
from tidegate.app.streams.encoding import json_value
from tidegate.conflation.boards.board import Board
from tidegate.conflation.definition import Kind
from tidegate.conflation.frame import Frame
from tidegate.conflation.lanes.lane import shown_as
from tidegate.conflation.subscription import Subscription, Window
from tidegate.conflation.topics.feed import Feed
from tidegate.conflation.topics.topic import Topic
from tidegate.keys.text.bookmark import Bookmark

ROWS_AT_ONCE: Final = 5_000
BYTES_AT_ONCE: Final = 1 << 20
"""About how many rows and bytes a page has; longer answers are several pages."""

MARK_BYTES: Final = 5
RESET: Final = b'{"headers":{"control":"reset"}}'
"""The row at which a reader clears what it has."""


class RowForm(StrEnum):
    """How rows are written: as changes of keys, or their values alone."""

    STATE = "state"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a topic's epoch: its reader has everything up to `offset`.

    `cut`: its reader has only the oldest of the changes since the cut, as a page had no room for
    all. `mark`: identifies the kind of rows that the reader has (`mark_of`); empty for a place that
    no stream has given, such as a bookmark.
    """

    epoch: str
    offset: int
    cut: int | None = None
    mark: str = ""

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text of a position, or of a bookmark.

        Raises:
            Refused: bookmark-invalid.
        """
        found = _POSITION.fullmatch(text)
        if found is None:
            detail = "offset is -1, now, or the Stream-Next-Offset of an answer, unchanged."
            raise Refused("bookmark-invalid", detail)
        epoch, offset, cut, mark = found.groups()
        return cls(epoch, int(offset), None if cut is None else int(cut), mark or "")

    def __str__(self) -> str:
        # With a fixed width, so that the texts of an epoch's positions sort like the positions.
        cut = "" if self.cut is None else f"_{self.cut:019}"
        mark = f".{self.mark}" if self.mark else ""
        return f"{self.epoch}_{self.offset:019}{cut}{mark}"


_POSITION = re.compile(
    r"([A-Za-z0-9]{1,64})[_-](\d{1,19})(?:_(\d{1,19}))?(?:\.([0-9a-f]{10}))?", re.ASCII
)


def mark_of(subscription: Subscription, form: RowForm, kind: Kind) -> str:
    """Return a short hash of what a stream shows: which rows, which of their fields, and how.

    A topic's options and a token's grants may change that while a reader polls, so that the records
    it has are no longer those of the stream. Equal at all gateways, and after a restart.
    """
    lane_id = subscription.lane_id
    feed = lane_id.feed
    shape = feed.shape
    if isinstance(shape, Window):
        shown = f"{shape.order or ''},{shape.top_n},{shape.skip_n}"
    else:
        shown = str(shape or "")
    # Rows of a topic without records are messages, whatever its conflation key is.
    key = str(feed.key_spec) if lane_id.oof else ""
    parts = [form, kind, key, str(feed.filter or ""), shown, str(lane_id.select or "")]
    return blake2b(msgspec.json.encode(parts), digest_size=MARK_BYTES).hexdigest()


@dataclass(slots=True, eq=False)
class Page:
    """The rows between two positions, as a JSON array.

    `since` is None for the beginning. `is_last`: no page follows it now. `encoded`: answers with
    this page, which equal requests share, by what else they depend on.
    """

    since: Position | None
    next: Position
    body: bytes = b"[]"
    rows: int = 0
    is_last: bool = True
    encoded: dict[Hashable, Any] = field(default_factory=dict)
    _digest: str = ""

    @property
    def digest(self) -> str:
        """A digest of the rows, for ETags: rows at a position depend on options and the token."""
        if not self._digest:
            self._digest = blake2b(self.body, digest_size=8).hexdigest()
        return self._digest

    @property
    def is_news(self) -> bool:
        """True if a request is answered with it at once, and does not wait.

        Also without rows, for a reader that begins or has read only a part: it does not know yet
        that this is the end.
        """
        is_on_its_way = self.since is None or self.since.cut is not None or not self.is_last
        return self.rows > 0 or is_on_its_way


class PageSource(Protocol):
    """What a polled stream reads its pages from.

    `mark`: that of its positions.
    """

    mark: str

    def begin(self, topic: Topic) -> None:
        """Prepare the source before the first position is given: from then on it knows removals."""
        ...

    def page(self, topic: Topic, since: Position | None) -> Page:
        """Return the page after a position, or from the beginning, up to the topic's head.

        Raises:
            Refused: bookmark-expired.
        """
        ...

    def skip_unmatched(self, topic: Topic, since: Position) -> Position:
        """Return a later position, if no message between the two matches."""
        ...


class RecordPages:
    """Pages of a board: the newest row of each changed key, and the keys that have left.

    A board knows what has left since it was made. A position before that, of another epoch or of
    other rows is answered with `reset` and a snapshot. With bare values there is no such row, so it
    is refused.
    """

    def __init__(self, subscription: Subscription, form: RowForm, kind: Kind) -> None:
        self._feed_id = subscription.lane_id.feed
        self.mark = mark_of(subscription, form, kind)
        self._shown = shown_as(subscription.lane_id.select)
        self._form = form
        self._kind = kind
        self._head = b'{"type":%b,"key":' % msgspec.json.encode(subscription.topic)
        self._feed: Feed | None = None
        self._known_from = 0

    def page(self, topic: Topic, since: Position | None) -> Page:
        """Return what has changed since a position; a snapshot in parts, if it is long.

        Raises:
            Refused: bookmark-expired.
        """
        board = self._board(topic)
        begins = since is None or not self._reaches(topic, board, since)
        if begins and since is not None and self._form is RowForm.VALUE:
            raise expired()
        offset, cut = (-1, topic.head) if begins or since is None else (since.offset, since.cut)
        rows: list[bytes] = [RESET] if begins and since is not None else []
        size, through, looked_at = 0, offset, 0
        found = board.part(offset, ROWS_AT_ONCE, cut=cut)
        for board_key, frame in found:
            if size > BYTES_AT_ONCE and frame.offset != through:
                break
            looked_at += 1
            through = frame.offset
            is_known = cut is None and board.held_at(board_key, offset)
            row = self._row(board_key, frame, is_known=is_known)
            if row:
                rows.append(row)
                size += len(row)
        is_last = looked_at == len(found) < ROWS_AT_ONCE
        # A reader with only a part may hold a key that left and came back beyond that part.
        part = Position(topic.epoch, through, offset if cut is None else cut, self.mark)
        end = Position(topic.epoch, topic.head, mark=self.mark) if is_last else part
        return Page(since, end, b"[" + b",".join(rows) + b"]", len(rows), is_last)

    def begin(self, topic: Topic) -> None:
        """Prepare the source before the first position is given: from then on it knows removals."""
        self._board(topic)

    def skip_unmatched(self, topic: Topic, since: Position) -> Position:
        """Return the position itself: a board can answer it however many messages do not match."""
        return since

    def _board(self, topic: Topic) -> Board:
        feed = topic.feeds[self._feed_id]
        if feed is not self._feed:
            self._feed = feed
            # The board of all records is as old as the topic; another one does not know what had
            # left before it was made.
            self._known_from = 0 if feed is topic.sow else topic.head
        feed.materialize()
        return feed.board

    def _reaches(self, topic: Topic, board: Board, since: Position) -> bool:
        if since.epoch != topic.epoch or since.offset > topic.head or since.mark != self.mark:
            return False
        # A reader within a snapshot needs the removals since the snapshot began.
        asked = since.offset if since.cut is None else since.cut
        return max(board.horizon, self._known_from) <= asked <= topic.head

    def _row(self, board_key: str, frame: Frame, *, is_known: bool) -> bytes:
        if self._form is RowForm.VALUE:
            return b"" if frame.removed else json_value(self._as_shown(frame), self._kind)
        head = self._head + msgspec.json.encode(board_key)
        if frame.removed:
            return head + b',"headers":{"operation":"delete"}}'
        operation = b"update" if is_known else b"insert"
        value = json_value(self._as_shown(frame), self._kind)
        return b'%b,"value":%b,"headers":{"operation":"%b"}}' % (head, value, operation)

    def _as_shown(self, frame: Frame) -> Frame:
        return frame if self._shown is None else self._shown(frame)


class JournalPages:
    """Pages of a topic without records: every message of its journal that matches."""

    def __init__(self, subscription: Subscription, kind: Kind) -> None:
        wanted = subscription.lane_id.feed.filter
        self.mark = mark_of(subscription, RowForm.VALUE, kind)
        self._matches = None if wanted is None else wanted.matcher(subscription.topic)
        self._shown = shown_as(subscription.lane_id.select)
        self._kind = kind
        self._unmatched = "", 0, 0  # epoch, start, end: no message in between matches

    def begin(self, topic: Topic) -> None:
        """Do nothing: the journal knows how far back it reaches."""

    def page(self, topic: Topic, since: Position | None) -> Page:
        """Return the messages after a position, or from the journal's beginning.

        Raises:
            Refused: bookmark-expired.
        """
        if since is None:
            after = topic.journal.dropped_through
        elif self._reaches(topic, since):
            after = since.offset
        else:
            raise expired()
        found = topic.journal.after(after, until=after + ROWS_AT_ONCE)
        rows: list[bytes] = []
        size, through = 0, after
        for frame in found:
            if size > BYTES_AT_ONCE:
                break
            through = frame.offset
            if self._is_shown(frame):
                shown = frame if self._shown is None else self._shown(frame)
                rows.append(json_value(shown, self._kind))
                size += len(rows[-1])
        is_last = through == topic.head
        end = Position(topic.epoch, through, mark=self.mark)
        return Page(since, end, b"[" + b",".join(rows) + b"]", len(rows), is_last)

    def skip_unmatched(self, topic: Topic, since: Position) -> Position:
        """Return the position before the next message that matches, as far as one call searches.

        A reader that stayed behind would be refused once the journal is trimmed.
        """
        epoch, after, through = self._unmatched
        if epoch != since.epoch or not after <= since.offset <= through:
            after = through = since.offset
        if since.epoch != topic.epoch or not topic.journal_reaches(Bookmark(since.epoch, through)):
            return since
        for frame in topic.journal.after(through, until=through + ROWS_AT_ONCE):
            if self._is_shown(frame):
                break
            through = frame.offset
        self._unmatched = since.epoch, after, through
        return Position(since.epoch, through, mark=self.mark)

    def _is_shown(self, frame: Frame) -> bool:
        # A removal is no value. Those of a series with a key are in its journal, and so is the
        # expiry of the one record of a topic without a key.
        if frame.removed:
            return False
        return self._matches is None or self._matches(frame.payload, frame.key)

    def _reaches(self, topic: Topic, since: Position) -> bool:
        is_ours = since.epoch == topic.epoch and since.mark == self.mark
        return is_ours and topic.journal_reaches(_bookmark(since))


def expired() -> Refused:
    """Return the refusal of a position from which no page continues."""
    detail = "The stream does not go on from this position; read it again from the beginning."
    return Refused("bookmark-expired", detail)


def _bookmark(position: Position) -> Bookmark:
    return Bookmark(position.epoch, position.offset)
