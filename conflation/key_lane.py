"""The lane of `pace=key`: AMPS's own timing, an interval for each key."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from conflation.board import Board
from conflation.duration import MILLISECOND, Instant
from conflation.frame import Batch, Frame
from conflation.lane import Lane
from conflation.member import Member
from conflation.subscription import LaneId

TICK_NS_MAX = 50 * MILLISECOND


class KeyLane(Lane):
    """A key's interval opens with its first held message.

    The interval is constant, so deadlines leave in the order in which they came: no heap.

    Positions count flushed rows. `_flushed` keeps each key's newest row in flush order: what
    a board is to offsets, it is to flushes.
    """

    def __init__(self, lane_id: LaneId, board: Board, position: int) -> None:
        super().__init__(lane_id, board, position=0)
        self._tick_ns = max(1, min(lane_id.interval_ns // 20, TICK_NS_MAX))
        self._held: dict[str, int] = {}
        self._due: deque[tuple[Instant, str]] = deque()
        self._flushed: dict[str, tuple[int, Frame]] = {}

    def accept(self, rows: Sequence[tuple[str, Frame]], now: Instant) -> None:
        due = -(-(now + self.id.interval_ns) // self._tick_ns) * self._tick_ns
        for board_key, frame in rows:
            if board_key not in self._held:
                self._held[board_key] = frame.offset
                if self.firsts is not None:
                    self.firsts.note([(board_key, frame)])
                self._due.append((due, board_key))
        self.deadline = self._due[0][0] if self._due else None

    def flush(self, now: Instant) -> bool:
        frames: list[tuple[str, Frame]] = []
        while self._due and self._due[0][0] <= now:
            _, board_key = self._due.popleft()
            del self._held[board_key]
            if self.firsts is not None:
                self.firsts.release([board_key], self.board)
            newest = self.board.get(board_key)
            if newest is not None:
                frames.append((board_key, newest))
        self.deadline = self._due[0][0] if self._due else None
        frames.sort(key=lambda row: row[1].offset)
        since = self.position
        for board_key, frame in frames:
            self.position += 1
            self._flushed.pop(board_key, None)
            self._flushed[board_key] = (self.position, frame)
        rows = [frame for _, frame in frames]
        firsts = self.firsts_of(rows)
        self.batch = Batch(rows, since, self.position, self.low_water(), firsts)
        return bool(frames)

    def in_step(self, member: Member, batch: Batch) -> bool:
        """Only once nothing is held that a member joined with: no row twice, no id back."""
        fresh = batch.low_water is not None and batch.low_water >= member.cut
        newer = not batch.frames or batch.frames[0].offset > member.cut
        return fresh and newer and batch.since == member.position

    def joining_position(self) -> int:
        return self.position

    def backlog(self, member: Member) -> list[Frame]:
        return [frame for _, frame in self._missed(member)]

    def waiting(self, member: Member) -> int:
        return len(self._missed(member)) + len(self._coming(member))

    def catch_up(self, member: Member) -> list[Frame]:
        rows = [*self.backlog(member), *self._coming(member)]
        member.position, member.cut = self.position, self.board.head
        return rows

    def row_position(self, frame: Frame) -> int:
        for position, flushed in reversed(self._flushed.values()):
            if flushed is frame:
                return position
        raise AssertionError("a row of a backlog has been flushed")

    def low_water(self) -> int:
        first_held = next(iter(self._held.values()), None)
        return self.board.head if first_held is None else first_held - 1

    def _coming(self, member: Member) -> list[Frame]:
        held = (self.board.get(board_key) for board_key in self._held)
        return [frame for frame in held if frame is not None and frame.offset > member.cut]

    def _missed(self, member: Member) -> list[tuple[int, Frame]]:
        missed: list[tuple[int, Frame]] = []
        for board_key, (position, frame) in reversed(self._flushed.items()):
            if position <= member.position:
                break
            if board_key not in self._held and frame.offset > member.cut:
                missed.append((position, frame))
        missed.reverse()
        return missed
