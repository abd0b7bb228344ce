"""A feed: one board of a topic, and the lanes that ask it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from conflation.board import Board
from conflation.duration import Instant
from conflation.frame import Frame
from conflation.key_lane import KeyLane
from conflation.lane import BatchLane, Lane
from conflation.list_lane import ListLane
from conflation.subscription import LaneId
from keys.extract import conflation_key
from keys.spec import KeySpec

Row = tuple[str, Frame]


class Feed:
    """Takes frames in, once for all its lanes; a publish wakes only lanes that listen.

    A `BatchLane` listens for one message, the one that opens its interval; the others see
    every message.
    """

    def __init__(self, key_spec: KeySpec, row_of: Callable[[Frame], Row]) -> None:
        self.key_spec = key_spec
        self.board = Board()
        self.lanes: dict[LaneId, Lane] = {}
        self.accepted = 0
        self._row_of = row_of
        self._listening: dict[LaneId, Lane] = {}

    def publish(self, frames: Sequence[Frame], now: Instant) -> list[Lane]:
        """Put frames on the board; returns the lanes whose deadline this armed."""
        rows = [self._row_of(frame) for frame in frames]
        for board_key, frame in rows:
            self.board.put(board_key, frame)
        self.accepted += len(rows)
        armed: list[Lane] = []
        for lane in list(self._listening.values()):
            idle = lane.deadline is None
            lane.accept(rows, now)
            if idle:
                armed.append(lane)
            if not lane.sees_every_message:
                del self._listening[lane.id]
        return armed

    def lane(self, lane_id: LaneId) -> Lane:
        """The lane of this id, made if this is its first member."""
        found = self.lanes.get(lane_id)
        if found is None:
            found = _new_lane(lane_id, self.board)
            self.lanes[lane_id] = self._listening[lane_id] = found
        return found

    def listen(self, lane: Lane) -> None:
        """A lane is idle again, or wants to see every message from now on."""
        if lane.id in self.lanes:
            self._listening[lane.id] = lane

    def drop_lane(self, lane: Lane) -> None:
        """Forget a lane without members."""
        assert not lane.members
        lane.deadline = None
        self.lanes.pop(lane.id, None)
        self._listening.pop(lane.id, None)


def _new_lane(lane_id: LaneId, board: Board) -> Lane:
    if not lane_id.interval_ns:
        return ListLane(lane_id, board, position=board.head)
    kind = KeyLane if lane_id.pace == "key" else BatchLane
    return kind(lane_id, board, position=board.head)


def rows_of(key_spec: KeySpec, sow_spec: KeySpec) -> Callable[[Frame], Row]:
    """How a topic's frames become rows of a board with this key.

    On a topic with a key the frame is shared as it is. On one without, the conflation key is
    what subscribers know a row by, so the frame is named by it.
    """
    if key_spec == sow_spec and sow_spec:
        return lambda frame: (frame.key, frame)
    if not key_spec:
        return lambda frame: ("[]", frame)
    key_of = conflation_key(key_spec)
    if sow_spec:
        return lambda frame: (key_of(frame.payload), frame)

    def named(frame: Frame) -> Row:
        row_key = key_of(frame.payload)
        return row_key, Frame(frame.offset, frame.payload, row_key, frame.timestamp_ms)

    return named
