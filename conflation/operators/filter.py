"""Operators: what of a topic is on a board, and what a message does to it; the plain one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import ClassVar, NamedTuple

from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.subscription import FeedId
from tidegate.keys.filter import Filter
from tidegate.keys.spec import KeySpec, conflation_key

Move = tuple[str, Frame]
"""A board key and the frame to put there; a tombstone takes the key away."""

RowOf = Callable[[Frame], Move]
"""How a frame becomes the row of a board."""


class Change(NamedTuple):
    """What a message did to a board: `frame` is there now, in the place of `replaced`."""

    board_key: str
    frame: Frame
    replaced: Frame | None


class Operator(ABC):
    """Decides what of a topic is on one board: messages in, moves on the board out.

    Most operators make the rows of each message at once. An operator that defers rows until the
    board is read overrides the methods about deferred rows.
    """

    rows_are_messages: ClassVar[bool] = False
    """Each row is one message, so a message without a row was filtered out."""
    message_cost: ClassVar[int] = 1
    """What a message costs here, as a number of filters that are tried on it."""
    row_cost: ClassVar[int] = 1
    """The cost of making a deferred row, in messages that are examined."""

    @abstractmethod
    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return what a message does to the board."""

    def seed(self, frames: Iterable[Frame]) -> Iterable[Move]:
        """Return what records that are there already do to a new board.

        `frames` are the newest of their keys, oldest first, as a board has them. They may come in
        parts; `seeded` follows the last.
        """
        return chain.from_iterable(map(self.moves, frames))

    def seeded(self) -> Sequence[Move]:
        """Return what else all these records do to the board, once all of them are in."""
        return ()

    @abstractmethod
    def copy_for(self, board: Board) -> Operator:
        """Return the same operator, as it stands now, for a copy of its board."""

    def ordered(self) -> Iterable[str] | None:
        """Return the board keys in an order that is kept; None: there is none but of change."""
        return None

    def passing(self) -> RowOf | None:
        """Return how values become rows if each is one whatever it says; None: ask `moves`."""
        return None

    def defer(self, frames: Sequence[Frame], *, has_removals: bool) -> int | None:
        """Defer the rows of these; return how many have a row. None: nothing is, ask `moves`."""
        return None

    @property
    def deferred_messages(self) -> int:
        """The number of messages whose rows are deferred; `DEFERRED_MAX` bounds it."""
        return 0

    @property
    def deferred_rows(self) -> int:
        """The number of deferred rows of groups, which nothing bounds."""
        return 0

    @property
    def is_materialized(self) -> bool:
        """True if no row is deferred."""
        return not self.deferred_rows

    def materialize(self, rows_max: int | None = None) -> Sequence[Move]:
        """Return what the deferred rows do to the board, or the first `rows_max` of them."""
        del rows_max
        return ()

    def preview(self) -> Sequence[Move]:
        """Return what `materialize` would, without the rows' values; this changes nothing."""
        return ()

    def deferred_keys(self, offset: int) -> list[str]:
        """Return the board keys of deferred rows that the message at this offset changed last."""
        return []

    @property
    def is_eager(self) -> bool:
        """True while nothing is deferred although it could be."""
        return False

    def set_eager(self, *, eager: bool) -> None:
        """Make all rows at once from now on, or defer again those that can be."""
        del eager


class FilterOperator(Operator):
    """Rows as they are: the newest message of each key that matches the filter.

    A board of another key than the records' has to read each payload for it, which costs ten times
    as much as to put the row. There the rows are deferred until the board is read, mostly by a
    flush. So a publish costs such a board next to nothing, and thousands of them, each with its own
    key, do not hold a publisher up.
    """

    rows_are_messages = True
    row_cost = 2  # its key is read

    def __init__(self, feed_id: FeedId, sow_spec: KeySpec, topic: str, board: Board) -> None:
        self._made_of = feed_id, sow_spec, topic
        self._by_record = feed_id.key_spec == sow_spec
        self._row_of = rows_of(feed_id.key_spec, sow_spec)
        self._matches = matcher(feed_id.filter, topic)
        self._board = board
        self._deferred: list[Frame] = []
        # A message that a filter keeps out must not wake a lane, so a filter is asked at once.
        self._never_defers = self._by_record or self._matches is not None
        self._is_eager = self._never_defers

    def copy_for(self, board: Board) -> FilterOperator:
        """Return the same filter for another board, with its deferred messages."""
        other = FilterOperator(*self._made_of, board)
        other._deferred = list(self._deferred)
        return other

    def defer(self, frames: Sequence[Frame], *, has_removals: bool) -> int | None:
        """Defer messages that no lane reads before its flush; a removal does nothing here."""
        if self._is_eager:
            return None
        values = [frame for frame in frames if not frame.removed] if has_removals else frames
        self._deferred += values
        return len(values)

    @property
    def is_materialized(self) -> bool:
        """True if no message is deferred."""
        return not self._deferred

    def materialize(self, rows_max: int | None = None) -> Sequence[Move]:
        """Return the rows of the deferred messages, or of the first `rows_max`."""
        if not self._deferred:
            return ()
        frames = self._deferred[:rows_max]
        del self._deferred[:rows_max]
        return [move for frame in frames for move in self.moves(frame)]

    @property
    def deferred_messages(self) -> int:
        """The number of deferred messages."""
        return len(self._deferred)

    def preview(self) -> Sequence[Move]:
        """Return the rows of the deferred messages, which stay deferred."""
        return [move for frame in self._deferred for move in self.moves(frame)]

    @property
    def is_eager(self) -> bool:
        """True: a trace makes rows at once, and can say of each which one it replaced."""
        return True

    def set_eager(self, *, eager: bool) -> None:
        """Make rows at once from now on, or defer them; deferred ones wait for `materialize`."""
        self._is_eager = eager or self._never_defers

    def passing(self) -> RowOf | None:
        """Return how values become rows, where there is no filter."""
        # Asked once for all frames of a publish: for each it would cost as much as putting it.
        return self._row_of if self._matches is None else None

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return one row at most; a record that no longer matches leaves."""
        if frame.removed:
            # Rows of another key outlive a record: other records may have the same one.
            return [(frame.key or THE_RECORD, frame)] if self._by_record else ()
        if self._matches is None or self._matches(frame.payload, frame.key):
            return [self._row_of(frame)]
        # Only a board of records can say that a key has left: another key may have more of them.
        if self._by_record and self._board.get(frame.key or THE_RECORD) is not None:
            return [(frame.key or THE_RECORD, no_longer_matching(frame))]
        return ()


def no_longer_matching(frame: Frame) -> Tombstone:
    """Return the removal of a record that lives on, but no longer matches."""
    return Tombstone(
        frame.offset,
        b"",
        frame.key,
        frame.timestamp_ms,
        reason=RemovalReason.MATCH,
        record=frame.payload,
    )


def matcher(wanted: Filter | None, topic: str) -> Callable[[bytes, str], bool] | None:
    """Return a filter compiled for a topic; None lets everything pass."""
    return None if wanted is None else wanted.matcher(topic)


def as_published(frame: Frame) -> Move:
    """Return the row of a message on a board that knows it by its own key."""
    return frame.key, frame


def rows_of(key_spec: KeySpec, sow_spec: KeySpec) -> RowOf:
    """Return how a topic's frames become rows of a board with this key.

    On a topic with a key the frame is shared as it is. On one without, subscribers know a row by
    its conflation key, so the frame is copied with that key.
    """
    # The key was read when the message came in; the others have to read the payload once more.
    if key_spec == sow_spec and sow_spec:
        return as_published
    if not key_spec:
        return lambda frame: (THE_RECORD, frame)
    key_of = conflation_key(key_spec)
    if sow_spec:
        return lambda frame: (key_of(frame.payload), frame)

    def named(frame: Frame) -> Move:
        row_key = key_of(frame.payload)
        return row_key, Frame(
            frame.offset, frame.payload, row_key, frame.timestamp_ms, frame.exempt
        )

    return named
