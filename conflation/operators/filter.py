"""Operators: which records of a topic are on a board. The plain one is a filter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from tidegate.conflation.boards.board import THE_RECORD, Board
from tidegate.conflation.frame import Frame, RemovalReason, Tombstone
from tidegate.conflation.lane_id import FeedId
from tidegate.keys.filter import Filter
from tidegate.keys.spec import KeySpec, conflation_key

Move = tuple[str, Frame]
"""A board key and the frame to put there; a tombstone takes the key away."""


class Change(NamedTuple):
    """What a message did to a board: `frame` is there now, in place of `replaced`."""

    board_key: str
    frame: Frame
    replaced: Frame | None


class Operator(Protocol):
    """Turns a topic's messages into moves on one board."""

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return what this message does to the board."""

    def settle(self) -> Sequence[Move]:
        """Return what was put off until a lane asks."""


class FilterOperator:
    """Keeps the newest message of each key that matches the filter."""

    def __init__(self, feed_id: FeedId, sow_spec: KeySpec, topic: str, board: Board) -> None:
        self._by_record = feed_id.key_spec == sow_spec
        self.row_of = rows_of(feed_id.key_spec, sow_spec)
        self._matches = matcher(feed_id.filter, topic)
        self._board = board

    def lets_pass(self, frames: Sequence[Frame]) -> bool:
        """Return True if every frame is a row, so that none needs to be looked at."""
        return self._matches is None and not any(frame.removed for frame in frames)

    def moves(self, frame: Frame) -> Sequence[Move]:
        """Return one row at most; a record that no longer matches leaves."""
        if frame.removed:
            return [(frame.key or THE_RECORD, frame)] if self._by_record else ()
        if self._matches is None or self._matches(frame.payload, frame.key):
            return [self.row_of(frame)]
        # With another key a row is no record: that it no longer matches takes nothing away.
        if self._by_record and self._board.get(frame.key or THE_RECORD) is not None:
            return [(frame.key or THE_RECORD, no_longer_matching(frame))]
        return ()

    def settle(self) -> Sequence[Move]:
        """Return nothing: a filter puts nothing off."""
        return ()


def no_longer_matching(frame: Frame) -> Tombstone:
    """Return the removal of a record that lives on without matching."""
    return Tombstone(
        frame.offset,
        b"",
        frame.key,
        frame.timestamp_ms,
        reason=RemovalReason.MATCH,
        record=frame.payload,
    )


def matcher(wanted: Filter | None, topic: str) -> Callable[[bytes, str], bool] | None:
    """Compile a filter for a topic; None lets everything pass."""
    return None if wanted is None else wanted.matcher(topic)


def rows_of(key_spec: KeySpec, sow_spec: KeySpec) -> Callable[[Frame], Move]:
    """Return how a topic's frames become rows of a board with this key.

    On a topic with a key the frame is shared as it is. On one without, subscribers know a row by
    its conflation key, so the frame is copied with that key.
    """
    if key_spec == sow_spec and sow_spec:
        return lambda frame: (frame.key, frame)
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
